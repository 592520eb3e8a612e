"""What one of many asks or says costs the database the same, however many others there are.

A domain of ten firewalls, hosts, tenants and endpoints is compared with one of four hundred, in the steps of SQLite's
machine. What costs more with each of them is asked by each of them, so all together would ask for its square.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from store.scenes import acl, endpoint, rule
from store.steps import ticking

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.identity.authority import Issued
from orchestrator.identity.names import Subject, Usage
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.program.counts import Counts
from orchestrator.program.program import Tier
from orchestrator.store import open_store
from orchestrator.store.hits.history import HitHistory
from orchestrator.store.hits.hitrecords import HitOrder
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import EndpointRecord, FirewallRecord, HostRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Load, Plane
from orchestrator.wire.points import PointState

FEW, MANY, RULES = 10, 400, 16
AGENT = "f5"

Work = Callable[[Unit], object]


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Databases of a small and a large domain, with the agent of one of its firewalls."""
    few, many = (tmp_path_factory.mktemp("crowd") / "store.db" for _ in range(2))
    return filled(few, FEW), filled(many, MANY)


def filled(path: Path, size: int) -> Path:
    with closing(open_store(f"sqlite:///{path}")) as store, store.write() as unit:
        unit.domains.create("pop")
        for number in range(size):
            owned = Prefix(Family.IPV4, (10 << 24) + (number << 8), 24)
            unit.tenants.create(f"t{number}", name="", domain="pop", prefixes=[owned])
            at = f"10.{number >> 8}.{number & 0xFF}.5/32"
            unit.domains.put_endpoint("pop", endpoint(f"e{number}", at, port=f"p{number}", tenant=f"t{number}"))
            unit.domains.add_host("pop", HostRecord(f"h{number}", 1 + number, "up"))
            unit.firewalls.add("pop", FirewallRecord(f"f{number}", Plane.NFTABLES))
            unit.acls.replace(
                f"t{number}", acl(*(rule(f"r{port}", port, str(owned)) for port in range(RULES))), author="x"
            )
            keep_certificate(unit, f"c{number}", enrol(unit, f"c{number}", "openflow"))
        enrol(unit, AGENT, Plane.NFTABLES.value)
        generation = unit.domains.get("pop").generation
        held = PointReport("h5", generation, bytes(16), PointState.ENFORCED, ports=("p5", "p6", "elsewhere"))
        unit.enforcers.report(enrol(unit, "c", "openflow"), [held])
        HitHistory(unit.transaction, "pop").append(counted(size * RULES))
    return path


def counted(rules: int) -> Counts:
    """Counts of rules 1 to `rules`, those with a higher number the more."""
    numbers = np.arange(1, rules + 1)
    first = np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())
    return Counts(numbers.astype(np.uint64) | first, numbers, numbers * 100, numbers * 0, numbers)


def enrol(unit: Unit, name: str, kind: str) -> int:
    token = unit.enforcers.invite("pop", expires=unit.now.replace(year=unit.now.year + 1), author="x")
    return unit.enforcers.enrol(token, name=name, kind=kind).enforcer.id


def keep_certificate(unit: Unit, name: str, enforcer: int) -> None:
    lasts = dt.timedelta(days=365)
    print_, key = (hashlib.sha256(f"{part} {name}".encode()).digest() for part in ("certificate", "key"))
    subject = Subject(Usage.CONTROLLER, "pop", name)
    unit.certificates.keep(Issued(subject, "pem", print_.hex()[:40], print_, key, unit.now, unit.now + lasts), enforcer)


def agent(unit: Unit) -> int:
    (found,) = unit.enforcers.list("pop", limit=1, marker="f")
    assert found.name == AGENT
    return found.id


def certificates_after_the_third(unit: Unit) -> object:
    third = unit.certificates.list(limit=3)[-1]
    return unit.certificates.list("pop", limit=5, marker=third.serial)


def first_rules(order: HitOrder) -> Work:
    return lambda unit: unit.hits.first_rules("pop", order, limit=100)


WORK: dict[str, Work] = {
    "an agent's load": lambda unit: unit.firewalls.report_load(agent(unit), Load(1, 2, 3, 4)),
    "whom an agent speaks for": lambda unit: unit.enforcers.check_hosts(agent(unit), (AGENT,), place="body"),
    "one firewall": lambda unit: unit.firewalls.get("pop", AGENT),
    "one host": lambda unit: unit.domains.host("pop", "h5"),
    "a host's endpoints": lambda unit: unit.domains.endpoints_in_force("pop", "h5"),
    "a page of endpoints": lambda unit: unit.domains.page_endpoints("pop", limit=5, marker="e2"),
    "a page of a tenant's endpoints": lambda unit: unit.domains.page_of_tenant("t5", limit=5),
    "a page of firewalls": lambda unit: unit.firewalls.list("pop", limit=5, marker="f2"),
    "a page of enforcers": lambda unit: unit.enforcers.list("pop", limit=5, marker="c2"),
    "a page of tokens": lambda unit: unit.tokens.list(limit=5, marker=3),
    "a page of certificates": lambda unit: unit.certificates.list("pop", limit=5),
    "certificates after one": certificates_after_the_third,
    "a page of tenants": lambda unit: unit.tenants.list(limit=5, marker="t2"),
    **{f"a domain's first rules by {order.value}": first_rules(order) for order in HitOrder},
    "an endpoint that is written": lambda unit: unit.domains.put_endpoint(
        "pop", endpoint("e8", "10.0.8.9/32", port="p8", tenant="t8")
    ),
    "a host that comes": lambda unit: unit.domains.add_host("pop", HostRecord("new", 1 << 20, "up")),
    "a firewall that comes": lambda unit: unit.firewalls.add("pop", FirewallRecord("fnew", Plane.NFTABLES)),
    "a tenant that comes": lambda unit: unit.tenants.create(
        "new", name="", domain="pop", prefixes=[Prefix.parse("172.16.0.0/24")]
    ),
}


@pytest.mark.parametrize("work", WORK)
def test_one_of_many_costs_no_more_than_one_of_few(crowds: tuple[Path, Path], work: str) -> None:
    found = []
    for path in crowds:
        with ticking(path) as (store, ticks):
            with store.write() as unit:
                WORK[work](unit)
            found.append(ticks[0])
    few, many = found
    assert few > 0
    assert many <= 2 * few + 5, (few, many)


def test_a_hosts_endpoints_are_those_of_its_interfaces(crowds: tuple[Path, Path]) -> None:
    with closing(open_store(f"sqlite:///{crowds[1]}")) as store, store.read() as unit:
        assert unit.domains.endpoints_in_force("pop", "h5").endpoints == ("e5", "e6")


def test_pages_of_endpoints_are_all_of_them_each_once(crowds: tuple[Path, Path]) -> None:
    with closing(open_store(f"sqlite:///{crowds[1]}")) as store, store.read() as unit:
        whole = unit.domains.endpoints("pop")
        assert len(whole) == MANY
        found: list[EndpointRecord] = []
        marker = None
        while page := unit.domains.page_endpoints("pop", limit=70, marker=marker):
            found += page
            marker = page[-1].endpoint.name
        assert tuple(found) == whole
        assert all(each.endpoint.prefixes for each in found)
        after_one_that_went = unit.domains.page_endpoints("pop", limit=1, marker="e3995")
        assert [each.endpoint.name for each in after_one_that_went] == ["e4"]
