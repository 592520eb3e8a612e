"""What an operator is told of all tenants, enforcement points and certificates, asked of the database at once."""

from __future__ import annotations

import datetime as dt
import random

from store.conftest import FakeWall
from store.scenes import acl, populate, prefix, rule

from orchestrator.identity.authority import Issued
from orchestrator.identity.names import Subject, Usage
from orchestrator.store import Store
from orchestrator.store.points.pointrecords import CertificateRecord
from orchestrator.store.records import Quota
from orchestrator.store.unit import Unit

SOON = dt.timedelta(days=14)
USAGES = (Usage.SWITCH, Usage.CONTROLLER)
NAMES = ("a", "b", "c", "d", "e")


def keep(unit: Unit, name: str, usage: Usage, number: int, days: float) -> str:
    """Issue a certificate to a switch, or to an enforcement point that enrols for it; its serial."""
    issued = Issued(
        Subject(usage, "pop", name),
        "pem",
        f"{number:040x}",
        bytes([number]) * 32,
        bytes([number, 1]) * 16,
        unit.now,
        unit.now + dt.timedelta(days=days),
    )
    if usage is Usage.SWITCH:
        return unit.certificates.keep(issued).serial
    known = {each.name: each.id for each in unit.enforcers.list("pop")}
    if name not in known:
        token = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(hours=1), author="x")
        known[name] = unit.enforcers.enrol(token, name=name, kind="openflow").enforcer.id
    return unit.certificates.keep(issued, known[name]).serial


def find_ending(unit: Unit) -> set[str]:
    """The oracle: the newest valid certificate of each bearer, where it runs out."""
    newest: dict[Subject, CertificateRecord] = {}
    for each in unit.certificates.list():
        if each.is_valid:
            newest[each.subject] = each
    return {
        each.serial
        for each in newest.values()
        if each.ends - unit.now < SOON and each.ends - unit.now < (each.ends - each.issued) / 4
    }


def test_certificates_that_end_are_found(store: Store, wall: FakeWall) -> None:
    populate(store)
    draw = random.Random(7)
    told = 0
    for number in range(120):
        wall.move(seconds=draw.choice((3_600, 86_400, 3 * 86_400)))
        with store.write() as unit:
            serial = keep(unit, draw.choice(NAMES), draw.choice(USAGES), number, draw.choice((1, 8, 30, 90)))
            if draw.random() < 0.2:
                unit.certificates.revoke(serial)
        with store.read() as unit:
            expected = find_ending(unit)
            assert {each.serial for each in unit.certificates.ending(SOON)} == expected
            told += len(expected)
    assert told > 20, "the draw has certificates that end"


def test_lists_with_a_limit_are_found_with_their_length(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        for number, name in enumerate(("free", "by-rules", "by-flows", "by-bytes")):
            unit.tenants.create(name, name="", domain="pop", prefixes=[prefix(f"10.{20 + number}.0.0/16")])
        unit.tenants.set_quota("by-rules", Quota(rules=10))
        unit.tenants.set_quota("by-flows", Quota(flows=10))
        unit.tenants.set_quota("by-bytes", Quota(stored_bytes=1 << 20))
        unit.acls.replace("by-rules", acl(rule("one", destination="10.21.0.0/24")), author="ann")
        unit.acls.replace(
            "by-rules",
            acl(rule("one", destination="10.21.0.0/24"), rule("two", destination="10.21.0.0/24")),
            author="ann",
        )
    with store.read() as unit:
        found = {each.tenant: (each.domain, each.rules, each.quota.rules) for each in unit.tenants.limited()}
        assert found == {"by-rules": ("pop", 2, 10), "by-flows": ("pop", 0, None)}
        assert unit.tenants.count() == len(unit.tenants.list())


def test_silent_points_of_all_domains_are_found(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.create("else")
        joined = {}
        for domain, name in (("pop", "heard"), ("pop", "silent"), ("else", "silent"), ("else", "never")):
            token = unit.enforcers.invite(domain, expires=unit.now + dt.timedelta(hours=1), author="x")
            joined[domain, name] = unit.enforcers.enrol(token, name=name, kind="openflow").enforcer.id
    for named, waits_s in (("silent", 9), ("heard", 1)):
        with store.write() as unit:
            for (_, name), number in joined.items():
                if name == named:
                    unit.enforcers.report(number, [])
        wall.move(seconds=waits_s)
    with store.read() as unit:
        assert {(each.domain, each.name) for each in unit.enforcers.silent(8)} == {
            ("pop", "silent"),
            ("else", "silent"),
        }


def test_a_page_of_tenants_has_each_ones_prefixes(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        for number in range(6):
            owned = [prefix(f"10.{100 + number}.{part}.0/24") for part in range(number)]
            unit.tenants.create(f"t{number}", name="", domain="pop", prefixes=owned)
    with store.read() as unit:
        page = unit.tenants.list(limit=4, marker="t0")
        assert [each.id for each in page] == ["t1", "t2", "t3", "t4"]
        assert page == tuple(unit.tenants.get(each.id) for each in page)
        assert len(page[3].prefixes) == 4
