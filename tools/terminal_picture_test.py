#!/usr/bin/env python3
"""tools/terminal_picture over a program that writes as ours do: colours, and a live line that is drawn over."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent / "terminal_picture"
PROGRAM = r"""
import sys
assert sys.stdout.isatty()
print("\x1b[36mTraining\x1b[0m  begins & <ends>")
for share in (10, 50, 90):
    print(f"\r\x1b[2Khead  {share} %", end="", flush=True)
print("\r\x1b[2KCompleted")
sys.exit(3)
"""


class TerminalPicture(unittest.TestCase):
    def draw(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "picture.svg"
            done = subprocess.run([TOOL, path, *options, "--", sys.executable, "-c", PROGRAM], capture_output=True, text=True)
            text = path.read_text() if path.exists() else ""
        return done.returncode, re.findall(r"<text[^>]*>([^<]*)</text>", text), text

    def test_the_end_of_a_run_has_what_is_left_on_the_screen(self):
        code, words, text = self.draw()
        self.assertEqual((code, words), (3, ["Training", "begins &amp; &lt;ends&gt;", "Completed"]))
        self.assertRegex(text, r'fill="#39c5cf">Training<')

    def test_a_moment_has_the_live_line_as_it_was(self):
        self.assertEqual(self.draw("--at", "50 %")[1][-1], "head  50 %")

    def test_a_moment_that_never_comes_is_said_and_nothing_is_written(self):
        self.assertEqual(self.draw("--at", "100 %"), (1, [], ""))


if __name__ == "__main__":
    unittest.main()
