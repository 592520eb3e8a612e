"""Rules as columns, for compilers and classifiers of tens of thousands of rules.

A row is an *atom*: one prefix for each side, one port range for each side, one protocol, one value under a mask. A rule
that lists several of these is several atoms, which are disjoint. Addresses of both IP versions are kept left-aligned in
128 bits (an IPv4 address in the upper 32), so that "equal under the shorter mask" is the same question for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

ANY_BYTE = -1
"""In `protocol` and both columns of `icmp`: every value."""

FRAG_ANY, FRAG_NOT_LATER, FRAG_LATER = 0, 1, 2
"""How an atom treats fragments: any; only with the transport header; later fragments only."""

INGRESS, EGRESS = 0, 1
DENY, PERMIT = 0, 1

Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class RuleTable:
    """Atoms as columns of equal length, ordered by `order` within a tenant."""

    order: npt.NDArray[np.uint32]
    """Position of the rule in its list, both directions counted together."""
    number: npt.NDArray[np.uint64]
    """The rule's number (0 where none was given)."""
    tenant: npt.NDArray[np.uint32]
    direction: npt.NDArray[np.uint8]
    action: npt.NDArray[np.uint8]
    family: npt.NDArray[np.uint8]
    """4 or 6."""
    protocol: npt.NDArray[np.int16]
    src_hi: npt.NDArray[np.uint64]
    src_lo: npt.NDArray[np.uint64]
    src_len: npt.NDArray[np.uint8]
    dst_hi: npt.NDArray[np.uint64]
    dst_lo: npt.NDArray[np.uint64]
    dst_len: npt.NDArray[np.uint8]
    sp_lo: npt.NDArray[np.uint16]
    sp_hi: npt.NDArray[np.uint16]
    dp_lo: npt.NDArray[np.uint16]
    dp_hi: npt.NDArray[np.uint16]
    icmp_type: npt.NDArray[np.int16]
    icmp_code: npt.NDArray[np.int16]
    word_value: npt.NDArray[np.uint16]
    word_mask: npt.NDArray[np.uint16]
    """The bits of the fields of `WORD` that are looked at (`policy/fields.py`)."""
    frag: npt.NDArray[np.uint8]
    log: npt.NDArray[np.uint8]
    """1: the packets that the rule decides are reported."""

    def __len__(self) -> int:
        return len(self.order)

    @property
    def icmp(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
        """The ICMP types and codes that atoms ask for; ANY_BYTE: every one."""
        return self.icmp_type, self.icmp_code

    def columns(self) -> dict[str, Column]:
        """Every column by its name, in declared order."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> RuleTable:
        """Select some rows, by index or by mask."""
        return RuleTable(**{name: column[rows] for name, column in self.columns().items()})

    def in_one_list(self) -> RuleTable:
        """Return the atoms as rows of one list, whatever their directions."""
        return replace(self, direction=np.full(len(self), INGRESS, np.uint8))

    @classmethod
    def join_tables(cls, tables: Sequence[RuleTable]) -> RuleTable:
        """The rows of several tables, one after the other."""
        if not tables:
            return cls.empty()
        return cls(**{name: np.concatenate([getattr(part, name) for part in tables]) for name in COLUMNS})

    @classmethod
    def empty(cls) -> RuleTable:
        return cls(**{name: np.empty(0, dtype) for name, dtype in COLUMNS.items()})


COLUMNS = {
    "order": np.uint32, "number": np.uint64, "tenant": np.uint32, "direction": np.uint8, "action": np.uint8,
    "family": np.uint8, "protocol": np.int16, "src_hi": np.uint64, "src_lo": np.uint64, "src_len": np.uint8,
    "dst_hi": np.uint64, "dst_lo": np.uint64, "dst_len": np.uint8, "sp_lo": np.uint16, "sp_hi": np.uint16,
    "dp_lo": np.uint16, "dp_hi": np.uint16, "icmp_type": np.int16, "icmp_code": np.int16,
    "word_value": np.uint16, "word_mask": np.uint16, "frag": np.uint8, "log": np.uint8,
}  # fmt: skip
"""The columns of a `RuleTable` and their types."""
