"""ranks.py, which starts the processes of a distributed script where mpirun is not there."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

RANKS = pathlib.Path(__file__).resolve().parents[2] / "src/agent/ranks.py"
WORDS = ["--host", "algo-2", "--processes", "2", "--first", "2", "--total", "4"]


def start(program, *options):
    return subprocess.Popen([sys.executable, RANKS, *WORDS, *options, "--", sys.executable, "-u", "-c", program],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(program, *options):
    process = start(program, *options)
    out, err = process.communicate(timeout=120)
    return process.returncode, sorted(out.splitlines()), sorted(err.splitlines())


def test_each_process_knows_its_rank_and_its_lines_carry_it():
    code, out, err = run("""
import os, sys
print(*[os.environ["OMPI_COMM_WORLD_" + name] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")])
print("RANK" in os.environ, file=sys.stderr)
print("no end of line", end="")
""")
    assert code == 0
    assert out == ["[1,mpirank:2,algo-2]<stdout>:2 4 0 2", "[1,mpirank:2,algo-2]<stdout>:no end of line",
                   "[1,mpirank:3,algo-2]<stdout>:3 4 1 2", "[1,mpirank:3,algo-2]<stdout>:no end of line"]
    assert err == ["[1,mpirank:2,algo-2]<stderr>:False", "[1,mpirank:3,algo-2]<stderr>:False"]


def test_torch_gets_its_own_names():
    code, out, _ = run("""
import os
print(*[os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")])
""", "--torch")
    assert (code, out) == (0, ["[1,mpirank:2,algo-2]<stdout>:2 4 0 2", "[1,mpirank:3,algo-2]<stdout>:3 4 1 2"])


@pytest.mark.parametrize("end,code", [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_one_that_fails_ends_the_others(end, code):
    got, _, err = run(f"""
import os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "3":
    {end}
time.sleep(600)
""")
    assert got == code
    assert any("rank 3 ended with" in line for line in err)


def test_what_a_process_leaves_behind_does_not_hold_the_job():
    code, out, _ = run("""
import os
if os.fork() == 0:
    import time
    time.sleep(600)
print("left")
""")
    assert (code, len(out)) == (0, 2)


def test_a_stop_waits_for_the_processes():
    process = start("""
import signal, sys
def leave(number, frame):
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready")
signal.pause()
""")
    lines = [process.stdout.readline() for _ in range(2)]
    assert all("ready" in line for line in lines)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], text=True, capture_output=True).stdout.split()
    for pid in [process.pid, *map(int, children)]:  # as the agent does: to every process
        os.kill(pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.count("saved") == 2
