"""A domain's generation raised above one that a host holds, as its reports raise it, but by any distance."""

from __future__ import annotations

from orchestrator.store.points.generations import raise_above
from orchestrator.store.unit import Unit


def raise_generation(unit: Unit, domain: str, held: int) -> int | None:
    """Raise a domain above a generation; return where it is then, None if nothing moved."""
    return raise_above(unit.transaction, domain, unit.domains.get(domain).generation, held)
