#!/usr/bin/env python3
"""bench/run's exit codes and what it keeps, with targets that print what the test wants."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run"
LINE = {"id": "Z1", "what": "a test", "unit": "things", "ours": 3, "peer": None, "peer_name": "none", "ratio": None,
        "target": 2, "holds": True, "host": "here"}


class BenchRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bench = pathlib.Path(folder.name) / "bench"
        self.bench.mkdir()
        shutil.copy(RUN, self.bench / "run")

    def run_on(self, printed, *options):
        """The exit code, and what was said, of a target that prints this."""
        target = self.bench / "z1"
        target.write_text(f"#!{sys.executable}\n\"\"\"A target of a test.\"\"\"\nprint({printed!r})\n")
        target.chmod(0o755)
        done = subprocess.run([sys.executable, self.bench / "run", "Z1", *options], capture_output=True, text=True)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def test_0_where_the_target_holds(self):
        code, said, _ = self.run_on("some words first\n" + json.dumps(LINE))
        self.assertEqual((code, json.loads(said)), (0, LINE))

    def test_1_where_it_falls_short(self):
        self.assertEqual(self.run_on(json.dumps({**LINE, "holds": False}))[0], 1)

    def test_2_where_it_could_not_be_measured(self):
        for printed, word in (("", "no result"), ("{broken", "no JSON"), (json.dumps({"id": "Z1"}), "left out what")):
            code, _, error = self.run_on(printed, "--keep")
            self.assertEqual(code, 2)
            self.assertIn(word, error)
        self.assertFalse((self.bench / "results").exists())
        self.assertEqual(self.run_on(json.dumps({**LINE, "holds": None}))[0], 2)

    def test_2_for_a_target_that_is_not_there(self):
        done = subprocess.run([sys.executable, self.bench / "run", "Y9"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("Y9", done.stderr)

    def test_keep_adds_a_line(self):
        for _ in range(2):
            self.run_on(json.dumps(LINE), "--keep")
        kept = (self.bench / "results/Z1.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line) for line in kept], [LINE, LINE])


if __name__ == "__main__":
    unittest.main()
