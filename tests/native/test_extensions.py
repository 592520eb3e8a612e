"""The extension modules: hardened as they are built, and free of faults that sanitizers find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(orchestrator.__file__).parents[1]
EXTENSIONS = sorted(ROOT.glob("orchestrator/**/*.so"))
SANITIZED = (
    "tests/classify/test_frames.py", "tests/classify/test_captures.py", "tests/classify/test_columns.py",
    "tests/classify/test_search_law.py", "tests/classify/test_timeline.py", "tests/edge/test_lines.py",
    "tests/edge/test_sampling.py",
    "tests/enforce/test_openflow_bulk.py", "tests/enforce/test_openflow_differential.py",
    "tests/enforce/test_queue_netlink.py", "tests/formats/test_native.py", "tests/formats/test_native_bulk.py",
    "tests/laws/test_findings_cover.py", "tests/laws/test_levels_law.py", "tests/laws/test_levels_update.py",
    "tests/laws/test_list_edits.py", "tests/compile/test_equivalence.py",
)  # fmt: skip
"""Tests that call every function of every extension, on the laws' examples."""


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda path: path.name.split(".")[0])
def test_an_extension_is_hardened(extension: Path) -> None:
    """Stacks are guarded and not executable; what the loader fills in is read-only once it is loaded."""
    shown = read_elf("-dlW", extension)
    assert "BIND_NOW" in shown
    assert "GNU_RELRO" in shown
    assert not any("GNU_STACK" in line and "RWE" in line for line in shown.splitlines())
    assert "__stack_chk_fail" in read_elf("-sW", extension)


def read_elf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", option, path], capture_output=True, text=True, check=True).stdout


LOADED = """
import pytest, sys
pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]])
print(*(module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)), sep="\\n")
"""


def test_each_extension_is_among_those_that_sanitizers_see() -> None:
    words = [sys.executable, "-c", LOADED, *SANITIZED]
    loaded = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {str(each) for each in EXTENSIONS} <= set(loaded)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """AddressSanitizer and UndefinedBehaviorSanitizer, in a copy of the sources, end the tests at the first fault."""
    sanitizers = "-fsanitize=address,undefined"
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.so", "build", "dist", "docs", "__pycache__"))
    flags = {"CFLAGS": f"{sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=undefined", "LDFLAGS": sanitizers}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=copy, env=os.environ | flags, check=True)
    libraries = (sanitizer("libasan.so"), sanitizer("libubsan.so"), sanitizer("libstdc++.so.6"))
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # the interpreter keeps memory on purpose
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(copy),
    }
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SANITIZED]
    done = subprocess.run(tests, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def sanitizer(library: str) -> str:
    """The path of a library of the compiler that built the extensions."""
    asked = ["gcc", f"-print-file-name={library}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
