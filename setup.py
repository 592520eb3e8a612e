"""Only what setup.cfg cannot say: the extension modules, compiled from our own C where NumPy is not fast enough, and
the programs of firewalls that run in the kernel."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FIREWALL = Path("orchestrator/enforce/drivers/bpf")
PROGRAMS = (
    (FIREWALL, "flowcache", ()),
    (FIREWALL, "classifier", ()),
    (Path("orchestrator/statesync"), "statesync", ("-mcpu=v3",)),  # it compares and swaps
)


class BuildAll(build_ext):
    """The extension modules, and the kernel's programs where there is a compiler for them: firewalls need those."""

    def run(self) -> None:
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


setup(
    cmdclass={"build_ext": BuildAll},
    ext_modules=[
        Extension(
            "orchestrator.policy._cover",
            ["orchestrator/policy/_native/cover.c"],
            depends=[
                f"orchestrator/policy/_native/{name}.h"
                for name in ("sets", "tree", "search", "rows", "crossings", "takers", "changes")
            ],
            extra_compile_args=["-O3"],
        ),
        Extension(
            "orchestrator.policy._rules",
            [f"orchestrator/policy/_native/rules/{name}.c" for name in ("module", "read", "write")],
            depends=["orchestrator/policy/_native/rules/rules.h"],
            extra_compile_args=["-O3"],
        ),
        *(
            Extension(f"orchestrator.edge._{name}", [f"orchestrator/edge/_native/{name}.c"], extra_compile_args=["-O3"])
            for name in ("matches", "sampling")
        ),
        *(
            Extension(
                f"orchestrator.classify._{name}",
                [f"orchestrator/classify/_native/{name}.c"],
                depends=["orchestrator/classify/_native/packet.h"],
                extra_compile_args=["-O3"],
            )
            for name in ("records", "frames", "grouping")
        ),
        Extension(
            "orchestrator.classify._forest",
            [
                f"orchestrator/classify/_native/forest/{name}.c"
                for name in (
                    "module",
                    "ranks",
                    "kinds",
                    "entries",
                    "growing",
                    "grids",
                    "asking",
                    "asking_avx2",
                    "asking_avx512",
                )
            ],
            depends=[
                "orchestrator/classify/_native/packet.h",
                *(f"orchestrator/classify/_native/forest/{name}.h" for name in ("forest", "growing", "asking")),
            ],
            extra_compile_args=["-O3"],
        ),
        *(
            Extension(
                f"orchestrator.enforce._{name}", [f"orchestrator/enforce/_native/{name}.c"], extra_compile_args=["-O3"]
            )
            for name in ("flowstats", "nfqueue")
        ),
        *(
            Extension(
                f"orchestrator.compile._{name}", [f"orchestrator/compile/_native/{name}.c"], extra_compile_args=["-O3"]
            )
            for name in ("columns", "levels")
        ),
        Extension(
            "orchestrator.compile._index",
            [f"orchestrator/compile/_native/{name}.c" for name in ("index", "follow", "rtree")],
            depends=[f"orchestrator/compile/_native/{name}.h" for name in ("atom", "extent", "follow", "rtree")],
            extra_compile_args=["-O3"],
        ),
        Extension(
            "orchestrator.compile._equivalence",
            [
                f"orchestrator/compile/_native/equivalence/{name}.c"
                for name in ("module", "decode", "cover", "index", "edits")
            ],
            depends=["orchestrator/compile/_native/equivalence/equivalence.h"],
            extra_compile_args=["-O3"],
        ),
    ],
)
