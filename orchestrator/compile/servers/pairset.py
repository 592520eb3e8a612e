"""A tenant's exact pairs as a multiset: a pair goes with its last rule.

It never changes: with a few pairs more or fewer it shares all blocks of rows that these do not touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from orchestrator.compile.servers.exactpairs import Keys, PairSet, pair_rows
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import difference
from orchestrator.program.flows import Flow, FlowTable

NO_ROWS = FlowTable.of(())
RowChange = tuple[FlowTable, FlowTable]
"""The rows that are gone, and those that came."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The pairs of a tenant's number; `more` counts further rules for each row."""

    tenant: int
    rows: Blocks
    more: Mapping[Flow, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tenant: int, pairs: Mapping[PairSet, Keys]) -> Pairs:
        """Make a set from pairs, each given once for every rule that permits it."""
        tables, more = [], {}
        for kind, keys in pairs.items():
            each, count = np.unique(keys, axis=0, return_counts=True)
            tables.append(pair_rows(kind, each, tenant))
            for place in np.flatnonzero(count > 1).tolist():
                more[tables[-1].row(place)] = int(count[place]) - 1
        return cls(tenant, Blocks.of(FlowTable.join_tables(tables)), more)

    def exchange_pairs(self, gone: Mapping[PairSet, Keys], come: Mapping[PairSet, Keys]) -> tuple[Pairs, RowChange]:
        """Return the pairs without some, which must be there, and with others."""
        by: dict[Flow, int] = {}
        for pairs, sign in ((gone, -1), (come, 1)):
            for kind, keys in pairs.items():
                for row in pair_rows(kind, keys, self.tenant).rows():
                    by[row] = by.get(row, 0) + sign
        more = dict(self.more)
        removed: list[Flow] = []
        added: list[Flow] = []
        for row, change in by.items():
            before = more.pop(row, 0) + (row in self.rows)
            after = before + change
            if after > 1:
                more[row] = after - 1
            if bool(before) != bool(after):
                (added if after else removed).append(row)
        tables = FlowTable.of(removed), FlowTable.of(added)
        return Pairs(self.tenant, self.rows.replace_rows(*tables), more), tables

    def since(self, before: Pairs | None) -> RowChange:
        """Return the change from other pairs to these."""
        if before is None:
            return NO_ROWS, self.rows.join_rows()
        return difference(*before.rows.apart(self.rows))
