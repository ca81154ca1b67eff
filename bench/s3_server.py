"""What bench/s3-list, s3-small and s3-large share: servers, load, and the CPU that a server spends on it."""
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

root = pathlib.Path(__file__).resolve().parent.parent
binaries = root / "build/release/bin"
MIB = 1 << 20


def build():
    subprocess.run(["ninja", "-C", root / "build/release", "s3_load", "s3_test_server"], check=True, stdout=subprocess.DEVNULL)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Ours:
    """The embedded S3, alone in a process."""

    def __init__(self, folder):
        self.process = subprocess.Popen([binaries / "s3_test_server", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.target = self.process.stdout.readline().split()[1] + ",testkey,testsecret"

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


class Moto:
    """moto's server, with its objects in memory and no check of signatures."""

    def __init__(self):
        import socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.process = subprocess.Popen([root / ".env-bench/bin/moto_server", "-H", "127.0.0.1", "-p", str(port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.target = f"http://127.0.0.1:{port},testkey,testsecret"
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).read()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("moto_server does not answer")
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def load(target, mode, count, size):
    done = subprocess.run([binaries / "s3_load", target, mode, str(count), str(size)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if done.stdout else {}


def measure(server, mode, count, size, of="count"):
    """Operations (or bytes) by second of wall, and by second of the server's CPU: what one core could do."""
    before = cpu_seconds(server.process.pid)
    result = load(server.target, mode, count, size)
    if not result[of]:
        raise RuntimeError(f"{mode}: {server.target.split(',')[0]} gave nothing")
    used = max(cpu_seconds(server.process.pid) - before, 0.005)
    return result[of] / result["wall"], result[of] / used


def compare(name, what, unit, target, scale, ours_run, peer_run, prepare, rounds=5):
    """Interleaved rounds; prints the line that bench/run wants. `ours` is by second of CPU, `ours_wall` by second of wall."""
    build()
    with_moto = (root / ".env-bench/bin/moto_server").exists()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        prepare(folder)
        ours, peer = Ours(folder), Moto() if with_moto else None
        try:
            rows, peer_rows = [], []
            if peer:
                peer_run(peer, True)
            for _ in range(rounds):
                rows.append(ours_run(ours))
                if peer:
                    peer_rows.append(peer_run(peer, False))
        finally:
            ours.stop()
            if peer:
                peer.stop()
    value = statistics.median(cpu for _, cpu in rows) / scale
    theirs = statistics.median(cpu for _, cpu in peer_rows) / scale if peer_rows else None
    print(json.dumps({
        "id": name, "what": what, "unit": unit, "ours": round(value, 2),
        "spread": [round(f(cpu for _, cpu in rows) / scale, 2) for f in (min, max)],
        "ours_wall": round(statistics.median(wall for wall, _ in rows) / scale, 2),
        "peer": theirs and round(theirs, 3), "peer_name": "moto_server" if with_moto else "moto_server is not installed: scripts/setup bench",
        "peer_wall": round(statistics.median(wall for wall, _ in peer_rows) / scale, 3) if peer_rows else None,
        "ratio": theirs and round(value / theirs, 1), "target": f">= {target:g} {unit} on one core", "holds": value >= target,
        "rounds": rounds, "load": round(os.getloadavg()[0], 1),
        "host": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
    }))


def main(run):
    try:
        run()
    except Exception as failure:  # whatever it was, nothing was measured
        print(f"{pathlib.Path(sys.argv[0]).name}: {type(failure).__name__}: {failure}", file=sys.stderr)
        sys.exit(2)
