"""`python -m allinone begin|end DIRECTORY`: a set-up that stays, to try things by hand or to run tests against."""

from __future__ import annotations

import sys
from pathlib import Path

from allinone.stack import AllInOne


def main() -> int:
    """Do as told."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("begin", "end"):
        print("python -m allinone begin|end DIRECTORY", file=sys.stderr)
        return 2
    here = AllInOne.in_directory(Path(sys.argv[2]).absolute())
    if sys.argv[1] == "end":
        here.end()
        return 0
    here.begin()
    print(here.place.keystone)
    return 0


if __name__ == "__main__":
    sys.exit(main())
