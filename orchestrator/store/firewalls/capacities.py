"""Capacities of one firewall VNF: every version of measurements, and the fitted model.

Kept are the measurements, not what was fitted to them, so that a better fit serves old measurements too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Row, func, insert, select

from orchestrator.errors import BadInput, NotFound
from orchestrator.scaling.capacity import CapacityModel, Measured, fit
from orchestrator.store.firewalls.fleetrecords import CapacityRecord
from orchestrator.store.schema.firewalls import capacity_models
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.transaction import Transaction, one_line
from orchestrator.wire.firewalls import Plane

_MOST_MEASUREMENTS = 10_000


class Capacities:
    """The capacity models' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, plane: Plane, measured: Sequence[Measured], *, source: str) -> CapacityRecord:
        """Store measurements as a plane's newest version.

        Raises BadInput where no model fits them.
        """
        one_line(source, place="source")
        if len(measured) > _MOST_MEASUREMENTS:
            raise BadInput(f"more than {_MOST_MEASUREMENTS} measurements", place="measured")
        fit(measured, version=0)
        values = {
            "plane": plane.value,
            "created": self._tx.micros,
            "source": source,
            "measured": orjson.dumps([asdict(each) for each in measured]).decode(),
        }
        row = self._tx.write(insert(capacity_models).values(**values).returning(*capacity_models.c)).one()
        return _read_record(row)

    def list(self) -> tuple[CapacityRecord, ...]:
        """Every version, the newest first."""
        return tuple(
            _read_record(row)
            for row in self._tx.read(select(capacity_models).order_by(capacity_models.c.version.desc()))
        )

    def get(self, version: int) -> CapacityRecord:
        """Return a capacity model. Raises NotFound."""
        row = self._tx.read(select(capacity_models).where(capacity_models.c.version == version)).one_or_none()
        if row is None:
            raise NotFound(f"there is no capacity model {version}")
        return _read_record(row)

    def current(self) -> dict[Plane, CapacityModel]:
        """The model that counts for each plane that was measured: the newest."""
        newest = select(func.max(capacity_models.c.version)).group_by(capacity_models.c.plane)
        rows = self._tx.read(select(capacity_models).where(capacity_models.c.version.in_(newest)))
        return {Plane(row.plane): model_of(_read_record(row)) for row in rows}


@lru_cache(maxsize=64)
def model_of(record: CapacityRecord) -> CapacityModel:
    """The model that fits a version's measurements."""
    return fit(record.measured, version=record.version)


def _read_record(row: Row[Any]) -> CapacityRecord:
    measured = tuple(Measured(**each) for each in orjson.loads(row.measured))
    return CapacityRecord(row.version, Plane(row.plane), from_micros(row.created), row.source, measured)
