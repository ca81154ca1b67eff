"""Starts, kills and restarts `atelier serve`, and runs `atelier` beside it."""
import json
import os
import pathlib
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATELIER = ROOT / "bin/atelier"
START_SECONDS = 20


class Server:
    def __init__(self, data_dir):
        self.data_dir = pathlib.Path(data_dir)
        self.log = self.data_dir.with_name(self.data_dir.name + ".log")
        self.process = None
        self.url = None

    def start(self, listen="127.0.0.1:0", *options):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [ATELIER, "serve", "--data-dir", self.data_dir, "--listen", listen, *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()  # ends with the process too
        assert line.startswith("ready http"), f"{line!r}; log: {self.log.read_text()[-2000:]}"
        self.url = line.split()[1]
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process.stdout.close()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        if self.process:
            self.process.stdout.close()

    def restart(self):
        """On the same port, as an operator would."""
        return self.start(self.url.removeprefix("http://"))

    def run(self, *arguments, check=True, **options):
        done = subprocess.run([ATELIER, *arguments, "--data-dir", self.data_dir], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=300, **options)
        assert not check or done.returncode == 0, f"atelier {arguments}: {done.stdout}{done.stderr}"
        return done

    def environment(self):
        """What a client's process needs: ours alone, whatever the person who runs the tests has set."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SAGEMAKER_", "SM_"))}
        ours = json.loads(self.run("env", "--json").stdout)
        nowhere = str(self.data_dir.with_name("no-such-file"))
        return {**kept, **ours, "AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere,
                "NO_PROXY": "*"}
