"""A Program: everything one enforcement tier of a domain must hold, as one value.

Same policy, same placement, same bytes. A program says nothing about how the device got where it is; an enforcement
point compares it with what the device holds and closes the gap.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from orchestrator.program.blocks import Blocks
from orchestrator.program.flows import FlowTable


class Tier(enum.Enum):
    """Where in a domain a program runs."""

    HOST = "host"
    SERVER = "server"
    EDGE = "edge"
    SPREAD = "spread"
    """The switch that spreads traffic over firewalls."""


UPLINK = "uplink"
"""The symbol of a switch's port towards the edge; every other symbol is an interface's name."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Flows for every switch of a tier.

    `generation` grows with each publication; `digest` is of the content alone.
    """

    domain: str
    tier: Tier
    generation: int
    digest: bytes
    blocks: Blocks
    ports: tuple[str, ...]

    @classmethod
    def of(cls, domain: str, tier: Tier, generation: int, flows: FlowTable | Blocks, ports: tuple[str, ...]) -> Program:
        """A program of some rows, with their digest."""
        blocks = flows if isinstance(flows, Blocks) else Blocks.of(flows)
        return cls(domain, tier, generation, blocks.digest(ports), blocks, ports)

    @property
    def flows(self) -> FlowTable:
        """All rows as one table.

        Copies: for whole programs, not for small changes.
        """
        return self.blocks.join_rows()
