"""The wheels that an image is given: ours, and what it asks for at the versions that are pinned."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from imagebuilder.recipes import FOLDER, Fault
from imagebuilder.tools import run

_PINS = FOLDER.parent / "packaging/requirements/base.txt"
_PIP_WHEELS = Path("/usr/share/python-wheels")
_PYTHON_OF_THE_IMAGE = (3, 11)


def version_of(wheel: Path) -> str:
    """The version in the name of a wheel of ours. Raises Fault."""
    found = re.fullmatch(r"aclflow-([^-]+)-cp311-cp311-\S+\.whl", wheel.name)
    if not wheel.is_file() or found is None:
        raise Fault(f"{wheel} is no wheel of aclflow for Debian 12's Python: `make package` makes one")
    return found[1]


def gather(wheel: Path, into: Path) -> None:
    """Put a wheel of ours, all that it asks for, and pip itself into a new folder. Raises Fault."""
    if sys.version_info[:2] != _PYTHON_OF_THE_IMAGE:
        raise Fault("extension modules are built for the Python they are built with: use Debian 12's, 3.11")
    pip = sorted(_PIP_WHEELS.glob("pip-*.whl"))
    if not pip:
        raise Fault(f"there is no wheel of pip in {_PIP_WHEELS}: apt-get install python3-venv")
    into.mkdir(parents=True)
    words = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement", _PINS, "--wheel-dir", into)
    run(sys.executable, "-m", "pip", "wheel", *words)
    shutil.copy(wheel, into)
    shutil.copy(pip[-1], into)
