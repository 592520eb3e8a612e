"""The Merkle digest of a program's blocks: a changed row costs one block.

It covers every row's key and value and what the symbols stand for. Row order, padding and the numbering of instruction
lists do not count. `blocks.py` draws the tree and keeps it; here it is made from scratch.
"""

from __future__ import annotations

from orchestrator.program.blocks import Blocks
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.flows import FlowTable

__all__ = ["DIGEST_BYTES", "digest"]


def digest(flows: FlowTable, ports: tuple[str, ...]) -> bytes:
    """The 16-byte digest of a program's rows and symbols."""
    return Blocks.of(flows).digest(ports)
