"""Which symbol stands for which switch port.

A program's `ports` are a hash table: each name lies in the slot that its hash names or, where that is taken, in the
next free one; slots without a name hold an empty string and no row speaks of them. So when an endpoint comes or goes,
the symbols of the others stay (but for the rare one pushed on by a collision, and for the day the table doubles), and
with them the rows. A plain sorted list would renumber half of a domain's endpoints each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from orchestrator.program.flows import SYMBOL_BASE
from orchestrator.program.program import UPLINK

_FEWEST_SLOTS = 8


def port_table(names: Iterable[str]) -> tuple[str, ...]:
    """Return a program's `ports` for interface names: the uplink, then the slots."""
    wanted = sorted(set(names) - {UPLINK})
    count = _FEWEST_SLOTS
    while count < 2 * len(wanted):
        count *= 2
    slots = [""] * count
    for name in wanted:
        slot = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") % count
        while slots[slot]:
            slot = (slot + 1) % count
        slots[slot] = name
    return (UPLINK, *slots)


def symbols(ports: tuple[str, ...]) -> Mapping[str, int]:
    """The port number that stands for each name."""
    return {name: SYMBOL_BASE + index for index, name in enumerate(ports) if name}
