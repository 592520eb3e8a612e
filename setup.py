"""Only what setup.cfg cannot say: the extension modules, compiled from our own C where NumPy is not fast enough."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("orchestrator.compile._levels", ["orchestrator/compile/_native/levels.c"], extra_compile_args=["-O3"])
    ]
)
