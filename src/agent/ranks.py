"""Starts the processes of one host of a distributed job, with the variables that Open MPI would set.

  python ranks.py --host algo-1 --processes 2 --first 0 --total 4 [--torch] -- COMMAND ARGUMENT...

--first is the rank of the first process of this host. Lines of the processes carry their rank as
mpirun --tag-output and the training toolkit write it. When a process fails, the others of the host
are stopped and its exit code is the result. --torch adds RANK, LOCAL_RANK and what goes with them.
"""
import argparse
import importlib.util
import os
import selectors
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 10
MAX_LINE = 1 << 16


def parse(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    for name in ("--processes", "--first", "--total"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def variables(options, local):
    rank = options.first + local
    found = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": options.total,
             "OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": options.processes,
             "OMPI_COMM_WORLD_NODE_RANK": local, "OMPI_UNIVERSE_SIZE": options.total}
    if options.torch:
        found.update({"RANK": rank, "WORLD_SIZE": options.total, "LOCAL_RANK": local,
                      "LOCAL_WORLD_SIZE": options.processes})
    return {name: str(value) for name, value in found.items()}


class Lines:
    """One pipe of one process; whole lines go out, with the rank in front."""

    def __init__(self, pipe, out, tag):
        self.pipe, self.out, self.tag, self.held = pipe, out, tag.encode(), b""

    def read(self):
        piece = os.read(self.pipe.fileno(), MAX_LINE)
        self.held += piece
        *lines, self.held = self.held.split(b"\n")
        for line in lines:
            self.write(line)
        if not piece or len(self.held) > MAX_LINE:
            self.give_out()
        return bool(piece)

    def give_out(self):
        if self.held:
            self.write(self.held)
        self.held = b""

    def write(self, line):
        self.out.write(self.tag + line + b"\n")
        self.out.flush()


def start(options):
    processes, pipes = [], selectors.DefaultSelector()
    for local in range(options.processes):
        process = subprocess.Popen(options.command, env={**os.environ, **variables(options, local)},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, bufsize=0)
        processes.append(process)
        for pipe, out, name in ((process.stdout, sys.stdout.buffer, "stdout"),
                                (process.stderr, sys.stderr.buffer, "stderr")):
            tag = f"[1,mpirank:{options.first + local},{options.host}]<{name}>:"
            pipes.register(pipe, selectors.EVENT_READ, Lines(pipe, out, tag))
    return processes, pipes


def failed_rank(options, processes):
    for local, process in enumerate(processes):
        if process.poll():
            return options.first + local, process.returncode
    return None


def words_of(code):
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def run(options):
    processes, pipes = start(options)
    failure, kill_at = None, None
    running = True
    while running:
        # What they leave behind may hold a pipe for ever: once all have ended, what is there counts.
        running = any(process.poll() is None for process in processes)
        while events := pipes.select(0.2 if running else 0):
            for key, _ in events:
                if not key.data.read():
                    pipes.unregister(key.fileobj)
            if running:
                break
        if failure is None:
            failure = failed_rank(options, processes)
            if failure is not None:
                print(f"[atelier] rank {failure[0]} ended with {words_of(failure[1])}; the other "
                      f"processes of {options.host} are stopped", file=sys.stderr, flush=True)
                kill_at = time.monotonic() + GRACE_SECONDS
                signal_all(processes, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() > kill_at:
            kill_at = None
            signal_all(processes, signal.SIGKILL)
    for lines in [key.data for key in pipes.get_map().values()]:
        lines.give_out()
    code = failure[1] if failure else 0
    return code if code >= 0 else 128 - code


def signal_all(processes, number):
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def main():
    options = parse(sys.argv[1:])
    if not options.torch and importlib.util.find_spec("mpi4py"):
        sys.exit("mpi4py is installed, but mpirun (Debian's openmpi-bin) is not, or the job has several "
                 "instances: without it every process would believe to be alone. Use torch_distributed.")
    # A stop goes to every process of the job: this one waits for the others.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sys.exit(run(options))


main()
