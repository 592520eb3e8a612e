"""The models: the tables each reads, and its launch.

Paper: sections IV A to C; figures 5 and 6.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.classify.columns import columns
from orchestrator.classify.devices.device import Argument, Device, Lane, Launch, Memory, Program
from orchestrator.classify.devices.tables import U32, tables_of
from orchestrator.classify.devices.tuples import merge_shapes, space, tuples_of
from orchestrator.classify.devices.vectors import vectors_of
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import Box


class Model(enum.Enum):
    """How the rows of a packet are asked.

    Values are the names that reports and options use.
    """

    DATA_GLOBAL = "data-parallel-global"
    DATA_CONSTANT = "data-parallel-constant"
    DATA_LOCAL = "data-parallel-local"
    FUNCTION = "function-parallel"
    """A launch a packet, as the paper has it."""
    FUNCTION_BATCHED = "function-parallel-batched"
    HYBRID = "hybrid"
    BIT_VECTORS = "bit-vectors"
    TUPLE_SPACE = "tuple-space"
    MERGED_TUPLES = "merged-tuples"


BRUTE_FORCE = (
    Model.DATA_GLOBAL, Model.DATA_CONSTANT, Model.DATA_LOCAL, Model.FUNCTION, Model.FUNCTION_BATCHED, Model.HYBRID,
)  # fmt: skip
"""Those that go through all rows."""

SHARED = (Model.FUNCTION, Model.FUNCTION_BATCHED)
"""Those of which each item answers for its share of the rows, so a packet has as many answers as items."""

KERNELS = {
    Model.DATA_GLOBAL: "data_parallel_global",
    Model.DATA_CONSTANT: "data_parallel_constant",
    Model.DATA_LOCAL: "data_parallel_local",
    Model.FUNCTION: "function_parallel",
    Model.FUNCTION_BATCHED: "function_parallel",
    Model.HYBRID: "hybrid",
    Model.BIT_VECTORS: "bit_vectors",
    Model.TUPLE_SPACE: "tuple_space",
    Model.MERGED_TUPLES: "tuple_space",
}

MOST_LAYERS = 65_535
"""Packets of a batch of function-parallel: CUDA's second axis has no more."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """The rows of one direction in one IP version, as a model reads them."""

    model: Model
    family: Family
    count: int
    """Rows."""
    tables: tuple[U32, ...]
    """In the order in which the kernel takes them: rows and sets, vectors, or rows, sets and tuples."""

    @property
    def nbytes(self) -> int:
        """The size of the tables on a device, in bytes."""
        return sum(table.nbytes for table in self.tables)


def compile_rows(model: Model, family: Family, boxes: Sequence[Box]) -> Compiled:
    """Compile boxes of one IP version to a model's tables.

    Raises TooLarge where bit vectors would be.
    """
    if not boxes:
        return Compiled(model, family, 0, ())
    if model is Model.BIT_VECTORS:
        return Compiled(model, family, len(boxes), (vectors_of(columns(family, boxes)),))
    if model in BRUTE_FORCE:
        tables = tables_of(columns(family, boxes))
        return Compiled(model, family, len(boxes), (tables.rows, tables.sets))
    found = space(boxes)
    tables = tables_of(found.columns)
    tuples = tuples_of(merge_shapes(found) if model is Model.MERGED_TUPLES else found)
    return Compiled(model, family, len(boxes), (tables.rows, tables.sets, tuples))


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Compiled rows on a device, ready for launches."""

    compiled: Compiled
    program: Program
    memory: tuple[Memory, ...]

    def answers(self, packets: int, items: int) -> int:
        """How many answers so many packets have."""
        model = self.compiled.model
        return items if model is Model.FUNCTION else packets * items if model is Model.FUNCTION_BATCHED else packets

    def start(self, lane: Lane, packets: int, items: int) -> None:
        """Launch the model for the packets of a lane; function-parallel as printed takes `start_one` instead."""
        groups = {Model.FUNCTION_BATCHED: 1, Model.HYBRID: packets}.get(self.compiled.model, -(-packets // items))
        layers = packets if self.compiled.model is Model.FUNCTION_BATCHED else 1
        begin_or_count = 0 if self.compiled.model is Model.FUNCTION_BATCHED else packets
        lane.launch(self.program, self._launch(groups, items, layers), packets, begin_or_count)

    def start_one(self, lane: Lane, packets: int, packet: int, items: int) -> None:
        """Launch function-parallel for one of the packets of a lane."""
        lane.launch(self.program, self._launch(1, items, 1), packets, packet)

    def _launch(self, groups: int, items: int, layers: int) -> Launch:
        """Return what a device is to run: kernel, sizes and memory."""
        count, model = self.compiled.count, self.compiled.model
        arguments: tuple[Argument, ...] = self.memory
        if model is not Model.BIT_VECTORS:
            rows, *more = self.memory
            arguments = (rows, count, *more)
        return Launch(KERNELS[model], groups, items, layers, arguments)


def load(device: Device, program: Program, compiled: Compiled) -> Loaded:
    """Put compiled rows, one at least, onto a device. Raises TooLarge and Refused."""
    if compiled.model is not Model.DATA_CONSTANT:
        return Loaded(compiled, program, tuple(device.store(table) for table in compiled.tables))
    rows, sets = compiled.tables
    reading, constant = program.with_constant(rows)
    return Loaded(compiled, reading, (constant, device.store(sets)))
