"""Runs functions side by side in forked processes.

The SDK's waits are long and cost nothing (it polls every 5 to 30 s, and nothing of it is patched), and importing
it is slow: so it is imported once, and every scenario runs in a fork of its own at the same time.
"""
import dataclasses
import json
import os
import pathlib
import signal
import sys
import time
import traceback


@dataclasses.dataclass
class Outcome:
    value: object
    error: str    # class name, empty when the function returned
    message: str
    output: str   # all that it printed, log lines of the job among it


class Background:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.running = {}

    def start(self, name, function, *arguments):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._child(name, function, arguments)
        self.running[name] = pid

    def output(self, name):
        path = self.folder / f"{name}.out"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def outcome(self, name, seconds=400):
        result = self.folder / f"{name}.json"
        if name in self.running:
            self._wait(self.running.pop(name), seconds, name)
        assert result.exists(), f"{name} left no result:\n{self.output(name)[-4000:]}"
        return Outcome(**json.loads(result.read_text()), output=self.output(name))

    def close(self):
        for pid in self.running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _wait(self, pid, seconds, name):
        # A pidfd becomes readable when the process ends.
        import select
        descriptor = os.pidfd_open(pid)
        try:
            ready, _, _ = select.select([descriptor], [], [], seconds)
            if not ready:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            assert ready, f"{name} did not end within {seconds} s:\n{self.output(name)[-4000:]}"
        finally:
            os.close(descriptor)

    def _child(self, name, function, arguments):
        descriptor = os.open(self.folder / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        result = {"value": None, "error": "", "message": ""}
        try:
            result["value"] = function(*arguments)
        except BaseException as error:  # the parent judges it
            traceback.print_exc()
            result.update(error=type(error).__name__, message=str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        temporary = self.folder / f"{name}.tmp"
        temporary.write_text(json.dumps(result))
        temporary.rename(self.folder / f"{name}.json")
        os._exit(0)


def wait_until(condition, what, seconds=120):
    """Polls what has no event to wait for: another process's output, a job's state."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds} s")
