"""Meters as rows of a program, with their rates.

A switch keeps meters beside its tables. In a program they are rows of a table that no packet comes to, which say it in
their match (`reg0` the meter, `reg1` packets a second, `reg2` packets at once), so that digest, delta, wire form and
read-back hold for them as for every row. The driver makes the meter of a row before it writes the row, and takes a row
whose meter is not there, or another, for one that is missing.
"""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import meter_of, path_mtu_meter_of
from orchestrator.compile.openflow.oxm import REGISTERS, Term
from orchestrator.compile.pipelines.host import Table
from orchestrator.policy.loglimit import LogLimit
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
_FIELDS = REGISTERS[:3]


class Meter(NamedTuple):
    """A meter: its number, packets a second, packets at once."""

    number: int
    rate: int
    burst: int


def meter_row(tenant: int, limit: LogLimit) -> Flow:
    """The row that declares the meter of a tenant's reports (0: of the operator's)."""
    return _declare_meter(Meter(meter_of(tenant), limit.rate, limit.burst), tenant)


def path_mtu_meter_row(tenant: int, rate: int) -> Flow:
    """The row that declares the meter of a tenant's messages about path MTU."""
    return _declare_meter(Meter(path_mtu_meter_of(tenant), rate, rate), tenant)


def _declare_meter(meter: Meter, tenant: int) -> Flow:
    match = oxm.pack(Term(field, word) for field, word in zip(_FIELDS, meter, strict=True))
    return Flow(Table.METERS, 0, match, b"", _STRUCTURE, tenant)


def meter_in(match: bytes) -> Meter | None:
    """The meter that a row of table `meters` declares; None if it declares none."""
    terms = oxm.unpack(match)
    whole = [term.field for term in terms if term.mask is None]
    return Meter(*[term.value for term in terms]) if whole == [*_FIELDS] else None
