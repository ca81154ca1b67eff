#!/usr/bin/python3
"""Target T8: SIGKILL at random moments of a training, again and again until it ends, and the final weights equal those of an
undisturbed run, bit for bit.

Usage: tests/faults/kill_training.py ATELIER_VISION [--kills 3] [--engine fused-fp32] [--seed 1] [--term] [--epochs 4]

Draws a small data set (three classes, a damaged picture among them), trains it once alone, then again and again with a
checkpoint after every step, each attempt killed after a random part of what the rest of the run may take; the attempts go on
until the wanted number of kills is reached and one attempt ends by itself. Runs with weights of a first job, so that kills hit
the features of the frozen trunk, too. --term: half of the attempts end by SIGTERM, which must end them by themselves with
exit code 0 and a model. Prints one line; exit 0: equal, 1: not.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

CLASSES = ("dark", "light", "striped")


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    body = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b""))


def draw(root, train, validation):
    dice = random.Random(7)
    for kind, label in enumerate(CLASSES):
        for i in range(train + validation):
            folder = root / ("train" if i < train else "validation") / label
            folder.mkdir(parents=True, exist_ok=True)
            rows = [[(60, 150, 60 if y % 6 < 3 else 150)[kind] + dice.randrange(100) for _ in range(24)] for y in range(24)]
            (folder / f"{i:03}.png").write_bytes(png(rows))
    (root / "train/dark/cut.png").write_bytes((root / "train/dark/000.png").read_bytes()[:300])


class Job:
    """The folders of one training, whose program may be started many times."""

    def __init__(self, program, base, data, hyperparameters):
        self.program, self.base = program, base
        (base / "input/config").mkdir(parents=True)
        (base / "input/data").symlink_to(data)
        (base / "checkpoints").mkdir()
        (base / "input/config/hyperparameters.json").write_text(json.dumps(hyperparameters))
        self.log = open(base / "log", "ab")

    def start(self):
        shutil.rmtree(self.base / "model", ignore_errors=True)
        environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(self.base), "ATELIER_CACHE_DIR": str(self.base / "cache"),
                       "OMP_WAIT_POLICY": "PASSIVE"}
        return subprocess.Popen([self.program, "train"], env=environment, stdout=self.log, stderr=self.log)

    def run(self):
        begin = time.monotonic()
        if self.start().wait() != 0:
            sys.exit("a training failed:\n" + (self.base / "log").read_text()[-2000:])
        return time.monotonic() - begin

    def weights(self):
        return hashlib.sha256((self.base / "model/model.safetensors").read_bytes()).hexdigest()


def disturb(job, kills, seconds, dice, terms):
    """Starts the program until it ends by itself after `kills` attempts that did not. Returns (kills, ends by SIGTERM)."""
    killed = ended = 0
    while True:
        program = job.start()
        if killed + ended >= kills:
            if program.wait() != 0:
                sys.exit("an attempt failed:\n" + (job.base / "log").read_text()[-2000:])
            return killed, ended
        polite = terms and dice.random() < .5
        try:
            program.wait(timeout=dice.uniform(.02, 1) * seconds)
            # It was faster than that; the next attempts begin anew, or there would be nothing left to kill.
            shutil.rmtree(job.base / "checkpoints")
            (job.base / "checkpoints").mkdir()
            continue
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGTERM if polite else signal.SIGKILL)
        code = program.wait()
        if polite and code == 0 and not (job.base / "model/model.safetensors").exists():
            sys.exit("SIGTERM left no model")
        if polite and code not in (0, -signal.SIGTERM):  # before main it has no handler
            sys.exit(f"SIGTERM ended the program with {code}:\n" + (job.base / "log").read_text()[-2000:])
        ended, killed = ended + polite, killed + (not polite)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--engine", default="fused-fp32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--term", action="store_true")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        base = pathlib.Path(name)
        draw(base / "data", 24, 8)
        common = {"mini_batch_size": "16", "image_size": "32", "engine": options.engine, "threads": "2"}
        first = Job(options.program, base / "first", base / "data", {**common, "use_pretrained_model": "0", "epochs": "1"})
        first.run()
        # The trunk of the first, without its classifier: the next training begins with features of it.
        weights = base / "trunk.safetensors"
        strip(base / "first/model/model.safetensors", weights)
        settings = {**common, "epochs": str(options.epochs), "pretrained_weights": str(weights), "checkpoint_interval_seconds": "0"}
        alone = Job(options.program, base / "alone", base / "data", settings)
        seconds = alone.run()
        disturbed = Job(options.program, base / "disturbed", base / "data", settings)
        killed, ended = disturb(disturbed, options.kills, seconds, dice, options.term)
        resumed = (base / "disturbed/log").read_text().count("resumed: ")
        left = sorted(path.name for path in (base / "disturbed/checkpoints").iterdir())
        equal = alone.weights() == disturbed.weights()
    if len(left) > 3:
        sys.exit(f"more is left than a run and two states: {left}")
    print(f"killed={killed} ended_by_sigterm={ended} resumed={resumed} engine={options.engine} equal={equal}")
    return 0 if equal else 1


def strip(source, target):
    """The weights file without the classifier."""
    data = source.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    kept, blobs, at = {}, [], 0
    for entry, value in header.items():
        if entry == "__metadata__" or entry.startswith("classifier."):
            continue
        begin, end = value["data_offsets"]
        blobs.append(data[8 + length + begin:8 + length + end])
        kept[entry] = {**value, "data_offsets": [at, at + end - begin]}
        at += end - begin
    text = json.dumps(kept).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


if __name__ == "__main__":
    sys.exit(main())
