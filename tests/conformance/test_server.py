"""The server as a process: one to a folder, keys for the owner only, a clean end."""
import json
import os
import signal
import stat
import subprocess

from server import ATELIER, Server


def test_a_second_server_on_the_same_folder_is_refused_by_name(atelier_server):
    done = subprocess.run([ATELIER, "serve", "--data-dir", atelier_server.data_dir, "--listen", "127.0.0.1:0"],
                          text=True, capture_output=True, timeout=20)
    assert done.returncode != 0
    assert str(atelier_server.data_dir) in done.stderr
    assert str(atelier_server.process.pid) in done.stderr
    assert "ready" not in done.stdout


def test_the_endpoint_is_in_the_folder_and_the_keys_are_for_the_owner_only(atelier_server):
    assert (atelier_server.data_dir / "endpoint").read_text().strip() == atelier_server.url
    assert atelier_server.url.startswith("http://127.0.0.1:")
    secret = json.loads(atelier_server.run("env", "--json").stdout)["AWS_SECRET_ACCESS_KEY"]
    holders = [path for path in atelier_server.data_dir.rglob("*")
               if path.is_file() and secret.encode() in path.read_bytes()]
    assert holders
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in holders), holders


def test_sigterm_ends_the_server_cleanly_and_the_keys_stay(tmp_path):
    server = Server(tmp_path / "data").start()
    first = server.environment()["AWS_SECRET_ACCESS_KEY"]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    server.process.stdout.close()
    again = Server(tmp_path / "data").start()
    try:
        assert again.environment()["AWS_SECRET_ACCESS_KEY"] == first
    finally:
        again.stop()


def test_only_loopback_is_served_without_tls(tmp_path):
    done = subprocess.run([ATELIER, "serve", "--data-dir", tmp_path / "data", "--listen", "0.0.0.0:0"],
                          text=True, capture_output=True, timeout=20)
    assert done.returncode != 0
    assert "0.0.0.0:0" in done.stderr


def test_env_prints_exports_that_a_shell_takes(atelier_server):
    printed = atelier_server.run("env").stdout
    done = subprocess.run(["sh", "-c", printed + 'echo "$AWS_ENDPOINT_URL $AWS_DEFAULT_REGION"'],
                          text=True, capture_output=True, env={"PATH": os.environ["PATH"]}, check=True)
    assert done.stdout.split() == [atelier_server.url, "us-west-2"]


def test_init_writes_only_where_it_is_told_and_never_over_a_file(atelier_server, tmp_path):
    told = tmp_path / "config.yaml"
    told.write_text("mine\n")
    done = atelier_server.run("init", "--sdk-config", str(told), check=False)
    assert done.returncode != 0 and str(told) in done.stderr
    assert told.read_text() == "mine\n"
    assert atelier_server.run("init").returncode == 0
    assert list(tmp_path.iterdir()) == [told]


def test_who_follows_a_job_waits_for_a_server_that_is_killed_and_comes_back_on_another_port(tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "t.py").write_text(
        "import time\nfor i in range(40):\n    print('line', i, flush=True)\n    time.sleep(0.1)\n")
    server = Server(tmp_path / "data").start()
    try:
        server.run("s3", "mb", "s3://models")
        with subprocess.Popen([ATELIER, "train", "--script", source / "t.py", "--output", "s3://models/",
                               "--data-dir", server.data_dir], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as train:
            seen = []
            for line in train.stdout:
                seen.append(line.strip())
                if seen[-1] == "line 3":
                    server.kill()
                    server.start()
            assert train.wait(60) == 0, train.stderr.read()
        assert [line for line in seen if line.startswith("line ")] == [f"line {i}" for i in range(40)]
    finally:
        server.stop()
