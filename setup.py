"""Only what setup.cfg cannot say: the extension modules, compiled from our own C where NumPy is not fast enough, and
the programs of firewalls that run in the kernel. C reads match fields from headers that are made here."""

import dataclasses
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent))

from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BYTES, WORD, WORD_BITS
from orchestrator.policy.model.rule import Rule

DECLARATIONS = ("orchestrator/policy/fields.py", "orchestrator/policy/model/rule.py")
"""What the headers are made of."""

FIREWALL = Path("orchestrator/enforce/drivers/bpf")
PROGRAMS = (
    (FIREWALL, "flowcache", ()),
    (FIREWALL, "classifier", ()),
    (Path("orchestrator/statesync"), "statesync", ("-mcpu=v3",)),  # it compares and swaps
)

# Besides what the interpreter was built with: checked copies, guarded stacks and returns, tables that are read-only
# once the module is loaded.
COMPILED = ("-O3", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fstack-clash-protection")
LINKED = ("-Wl,-z,relro", "-Wl,-z,now")


class BuildAll(build_ext):
    """The extension modules, and the kernel's programs where there is a compiler for them: firewalls need those."""

    def run(self) -> None:
        headers_folder = Path(self.build_temp) / "headers"
        write_headers(headers_folder)
        self.include_dirs.append(str(headers_folder))
        super().run()
        if shutil.which("clang") is None:
            self.warn("there is no clang: flow cache, classifier and state synchronisation are left out")
            return
        root = Path() if self.inplace else Path(self.build_lib)
        headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
        options = ["-O2", "-g", "-Wall", "-target", "bpf", headers]
        for folder, name, more in PROGRAMS:
            source, built = folder / "_native" / f"{name}.bpf.c", root / folder / f"{name}.bpf.o"
            done = subprocess.run(
                ["clang", *options, *more, "-c", source, "-o", built], capture_output=True, text=True, check=False
            )
            if done.returncode:
                self.warn(f"the {name} of firewalls is left out (libbpf-dev is needed, too): {done.stderr}")


def write_headers(folder: Path) -> None:
    """Write what C knows of match fields and of rules."""
    folder.mkdir(parents=True, exist_ok=True)
    rule_fields = (field.name.upper() for field in dataclasses.fields(Rule))
    for name, lines in (("match_fields", list_match_fields()), ("rule_fields", [enumeration(rule_fields, "FIELDS")])):
        guard = f"ACLFLOW_{name.upper()}_H"
        text = "\n".join(["/* Made by setup.py. */", f"#ifndef {guard}", f"#define {guard}", *lines, "#endif"])
        (folder / f"{name}.h").write_text(text + "\n", "utf-8")


def list_match_fields() -> Iterator[str]:
    """Yield the lines about the word of bits, and about fields whose values are bytes."""
    for field in WORD:
        name, bits = field.name.upper(), field.bits[Family.IPV4]
        yield f"enum {{ {name}_SHIFT = {field.shift}, {name}_BITS = {bits}, {name}_HIGHEST = {(1 << bits) - 1} }};"
    yield f"enum {{ WORD_BITS = {WORD_BITS} }};"
    yield enumeration((f"{field.name.upper()}_BYTE" for field in BYTES), "BYTE_FIELDS")
    yield f"#define BYTES_OF(packet) {{ {', '.join(f'(packet)->{field.name}' for field in BYTES)} }}"


def enumeration(names: Iterable[str], end: str) -> str:
    """Some numbers from 0 on in C, and how many they are."""
    return f"enum {{ {', '.join((*names, end))} }};"


def native(name: str, *sources: str, headers: tuple[str, ...] = ()) -> Extension:
    """The extension module of a dotted name; files are below `_native` of its package."""
    folder = "/".join(name.split(".")[:-1]) + "/_native"
    return Extension(
        name,
        [f"{folder}/{source}.c" for source in sources],
        depends=[*DECLARATIONS, *(f"{folder}/{header}.h" for header in headers)],
        extra_compile_args=[*COMPILED],
        extra_link_args=[*LINKED],
    )


def within(folder: str, *names: str) -> tuple[str, ...]:
    """Names of files in a folder."""
    return tuple(f"{folder}/{name}" for name in names)


setup(
    cmdclass={"build_ext": BuildAll},
    ext_modules=[
        native(
            "orchestrator.policy._cover",
            "cover",
            headers=("sets", "tree", "search", "rows", "crossings", "takers", "changes"),
        ),
        native(
            "orchestrator.policy._rules", *within("rules", "module", "read", "write"), headers=within("rules", "rules")
        ),
        *(native(f"orchestrator.edge._{name}", name) for name in ("matches", "sampling")),
        native("orchestrator.classify._records", "records"),
        native("orchestrator.classify._frames", "frames", "kinds", headers=("frames", "hashing", "packet")),
        native("orchestrator.classify._grouping", "grouping", headers=("hashing",)),
        native(
            "orchestrator.classify._forest",
            *within("forest", "module", "ranks", "kinds", "entries", "growing", "grids"),
            *within("forest", "asking", "asking_avx2", "asking_avx512"),
            headers=("packet", *within("forest", "forest", "growing", "asking")),
        ),
        *(native(f"orchestrator.enforce._{name}", name) for name in ("flowstats", "nfqueue")),
        *(native(f"orchestrator.compile._{name}", name) for name in ("columns", "levels")),
        native(
            "orchestrator.compile._index",
            *("index", "follow", "rtree"),
            headers=("atom", "extent", "follow", "rtree"),
        ),
        native(
            "orchestrator.compile._equivalence",
            *within("equivalence", "module", "decode", "cover", "index", "edits"),
            headers=within("equivalence", "equivalence"),
        ),
    ],
)
