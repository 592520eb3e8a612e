"""Only what setup.cfg cannot say: the extension modules, compiled from our own C where NumPy is not fast enough."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "orchestrator.policy._cover",
            ["orchestrator/policy/_native/cover.c"],
            depends=[f"orchestrator/policy/_native/{name}.h" for name in ("sets", "tree", "search")],
            extra_compile_args=["-O3"],
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
    ]
)
