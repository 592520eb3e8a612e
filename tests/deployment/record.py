"""Runs the whole site for real and writes the end of its log into docs/deploy.md (`make deploy-log`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/deploy.md"
BEGIN, END = "<!-- log: make deploy-log -->\n", "<!-- end of log -->\n"


def main() -> int:
    """Run it; the page is written only where all of it passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = ["-m", "pytest", "-x", "-v", "tests/deployment/test_site.py", f"--junitxml={report}"]
        done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
        if done.returncode == 0:
            said = PAGE.read_text()
            head, _, rest = said.partition(BEGIN)
            PAGE.write_text(head + BEGIN + log(report.read_text()) + END + rest.partition(END)[2])
    return done.returncode


def log(report: str) -> str:
    """The end of the log, from pytest's report in XML. Raises ValueError where a test was left out."""
    suite = next(ElementTree.fromstring(report).iter("testsuite"))
    if int(suite.get("skipped", 0)):
        raise ValueError("tests were skipped: this is no log of a whole run")
    lines = [
        f"{each.get('name', '').removeprefix('test_').replace('_', ' '):90} {float(each.get('time', 0)):6.0f} s"
        for each in suite.iter("testcase")
    ]
    total = f"{suite.get('tests')} parts of the story passed, {float(suite.get('time', 0)):.0f} s in all"
    return "\n".join(["```", *lines, total, "```", ""])


if __name__ == "__main__":
    sys.exit(main())
