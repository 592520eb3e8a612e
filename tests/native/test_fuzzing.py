"""Parsers in C meet inputs that a fuzzer makes from what their code did with those before (libFuzzer, ASan, UBSan)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from native.fuzzing.targets import OF_OURS, SEEDS

import orchestrator

ROOT = Path(orchestrator.__file__).parents[1]
HARNESS = ROOT / "tests/native/fuzzing/harness.c"
INPUTS = int(os.environ.get("ACLFLOW_FUZZ_INPUTS", "100000"))
"""So many a parser."""
SANITIZERS = "address,undefined"


@pytest.mark.parametrize("target", SEEDS, ids=lambda target: target.__name__)
def test_a_seed_is_understood_and_each_beginning_of_it_is_no_fault(target: Callable[[bytes], int]) -> None:
    for seed in SEEDS[target]:
        assert target(seed) > 0
        for end in range(len(seed) + 1):
            target(seed[:end])


def test_each_extension_is_fuzzed_or_reads_what_is_our_own() -> None:
    """A parser that is new is named in one of the two places."""
    names = {path.name.partition(".")[0] for path in ROOT.glob("orchestrator/**/*.so")}
    assert names > OF_OURS
    assert fuzzed_extensions() & names == names - OF_OURS


def fuzzed_extensions() -> set[str]:
    """The names of modules in C that are called when every seed is read."""
    found: set[str] = set()

    def note(frame: object, event: str, called: object) -> None:
        module = getattr(called, "__module__", None) or ""
        if event == "c_call" and module:
            found.add(module.rpartition(".")[2])

    sys.setprofile(note)
    try:
        for target, seeds in SEEDS.items():
            for seed in seeds:
                target(seed)
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources whose extensions tell where they went, and beside it the fuzzer's program."""
    if shutil.which("clang") is None or not fuzzer_library().exists():
        pytest.skip("needs clang with libFuzzer: apt-get install clang libclang-rt-14-dev")
    folder = tmp_path_factory.mktemp("fuzzing")
    ignored = shutil.ignore_patterns(".*", "*.so", "build", "dist", "docs", "__pycache__")
    shutil.copytree(ROOT, folder / "tree", ignore=ignored)
    flags = f"-g -fsanitize=fuzzer-no-link,{SANITIZERS} -fno-sanitize-recover=undefined"
    built = {"CC": "clang", "CFLAGS": flags, "LDSHARED": "clang -shared"}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=folder / "tree", env=os.environ | built, check=True)
    library = f"-lpython{sysconfig.get_config_var('LDVERSION')}"
    include = f"-I{sysconfig.get_path('include')}"
    words = ["-g", f"-fsanitize=fuzzer,{SANITIZERS}", include, str(HARNESS), "-rdynamic", library]
    subprocess.run(["clang", *words, "-o", folder / "fuzzer"], check=True)
    return folder


def fuzzer_library() -> Path:
    folder = subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(folder, "lib/linux", f"libclang_rt.fuzzer-{os.uname().machine}.a")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", SEEDS, ids=lambda target: target.__name__)
def test_no_input_ends_a_parser(target: Callable[[bytes], int], fuzzer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS[target]):
        (corpus / str(number)).write_bytes(seed)
    tree = fuzzer / "tree"
    environment = os.environ | {
        "FUZZ_TARGET": target.__name__,
        "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "tests"), sysconfig.get_path("purelib")]),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # the interpreter keeps memory on purpose
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    words = [f"-runs={INPUTS}", "-seed=1", "-max_len=4096", "-len_control=10", f"-artifact_prefix={tmp_path}/"]
    command = [fuzzer / "fuzzer", *words, corpus]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    covered = [int(each) for each in re.findall(r"\bcov: (\d+)", done.stderr)]
    assert covered[-1] > covered[0], "the fuzzer learned nothing: are the extensions built for it?"
    assert f"Done {INPUTS} runs" in done.stderr
    print(f"{target.__name__}: {INPUTS} inputs, {covered[-1]} places of the code reached")
