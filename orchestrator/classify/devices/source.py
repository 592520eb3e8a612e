"""The source of the models for one IP version, for OpenCL C and CUDA C."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from orchestrator.classify.devices.tables import words_of
from orchestrator.policy.addresses import Family

PARTS = ("portable.h", "models.c")


@cache
def source(family: Family) -> str:
    """The models for addresses of one IP version."""
    folder = files(__package__) / "kernels"
    return "\n".join([f"#define WORDS {words_of(family)}", *((folder / part).read_text("utf-8") for part in PARTS)])
