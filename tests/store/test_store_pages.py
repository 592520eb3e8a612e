"""Pages of lists: together they are the whole list, each item once, also where items go meanwhile."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from store.conftest import FakeWall
from store.scenes import endpoint, populate, prefix

from orchestrator.errors import BadInput
from orchestrator.hosts.request import Machine, Onboarding
from orchestrator.hosts.switch import Wanted
from orchestrator.identity.authority import Issued
from orchestrator.identity.names import Subject, Usage
from orchestrator.store import Store
from orchestrator.store.records import FirewallRecord, Role
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane

NAMES = ("b", "B", "a-1", "a-10", "a-2", "_x", "z", "a.1", "Z9", "m", "n:1")
SMALL = 3
ALL = 1_000

Page = Callable[[Unit, int, Any], Sequence[Any]]

PAGES: dict[str, tuple[Page, Callable[[Any], Any]]] = {
    "tokens": (lambda unit, limit, marker: unit.tokens.list(limit=limit, marker=marker or 0), lambda each: each.id),
    "certificates": (
        lambda unit, limit, marker: unit.certificates.list(limit=limit, marker=marker), lambda each: each.serial
    ),
    "certificates of a domain": (
        lambda unit, limit, marker: unit.certificates.list("pop", limit=limit, marker=marker), lambda each: each.serial
    ),
    "enforcers": (
        lambda unit, limit, marker: unit.enforcers.list("pop", limit=limit, marker=marker or ""),
        lambda each: each.name,
    ),
    "firewalls": (
        lambda unit, limit, marker: unit.firewalls.list("pop", limit=limit, marker=marker or ""),
        lambda each: each.firewall.name,
    ),
    "onboardings": (
        lambda unit, limit, marker: unit.onboardings.page("pop", limit=limit, marker=marker or ""),
        lambda each: each.asked.switch.host,
    ),
    "a tenant's endpoints": (
        lambda unit, limit, marker: unit.domains.page_of_tenant("blue", limit=limit, marker=marker),
        lambda each: each.endpoint.name,
    ),
}  # fmt: skip


@pytest.fixture
def filled(store: Store, wall: FakeWall) -> Store:
    """Everything that is paged, under the same names, made in another order than that of the names."""
    populate(store)
    with store.write() as unit:
        unit.domains.create("else")
        unit.tenants.create("red", name="", domain="pop", prefixes=[prefix("10.2.0.0/16")])
    for number, name in enumerate(random.Random(5).sample(NAMES, len(NAMES))):
        wall.move(seconds=1)
        with store.write() as unit:
            until = unit.now + dt.timedelta(days=9)
            token = unit.enforcers.invite("pop", expires=until, author="x")
            unit.enforcers.enrol(token, name=name, kind="openflow")
            unit.tokens.create(Role.READER, tenant="blue", description=name)
            unit.firewalls.add("pop", FirewallRecord(f"f-{name}", Plane.NFTABLES))
            unit.onboardings.ask(
                Onboarding(Machine(f"192.0.2.{number + 1}"), Wanted("pop", name, "eth1", ("tcp:192.0.2.1:6653",)))
            )
            for again in range(3):
                issue(unit, "pop" if number % 3 else "else", name, number * 3 + again, until)
            unit.domains.put_endpoint("pop", endpoint(f"e-{name}", f"10.1.0.{number + 1}", port=f"p{number}"))
            unit.domains.put_endpoint(
                "pop", endpoint(f"r-{name}", f"10.2.0.{number + 1}", port=f"q{number}", tenant="red")
            )
    return store


def issue(unit: Unit, domain: str, name: str, number: int, until: dt.datetime) -> None:
    """Keep a certificate; serials are in another order than everything else, and three are of one moment."""
    serial = f"{number * 7 % 40:040x}"
    subject = Subject(Usage.SWITCH, domain, name)
    unit.certificates.keep(
        Issued(subject, "pem", serial, bytes([number]) * 32, bytes([number, 1]) * 16, unit.now, until)
    )


@pytest.mark.parametrize("what", PAGES)
def test_pages_are_together_the_whole_list(filled: Store, what: str) -> None:
    page, name_of = PAGES[what]
    with filled.read() as unit:
        whole = page(unit, ALL, None)
        assert len(whole) >= len(NAMES) - 3
        found: list[Any] = []
        marker = None
        while part := page(unit, SMALL, marker):
            assert len(part) <= SMALL
            found += part
            marker = name_of(part[-1])
        assert found == list(whole)


def test_lists_are_in_the_order_that_they_promise(filled: Store) -> None:
    with filled.read() as unit:
        for what in ("enforcers", "firewalls", "onboardings", "a tenant's endpoints"):
            page, name_of = PAGES[what]
            names = [name_of(each) for each in page(unit, ALL, None)]
            assert names == sorted(names)
            assert len(names) == len(NAMES)
        numbers = [each.id for each in unit.tokens.list()]
        assert numbers == sorted(numbers)
        keys = [(each.subject.domain, each.subject.name, each.issued, each.serial) for each in unit.certificates.list()]
        assert keys == sorted(keys)
        assert {each.subject.domain for each in unit.certificates.list("pop")} == {"pop"}


def test_a_page_goes_on_behind_a_name_that_is_gone(filled: Store) -> None:
    """Not behind a certificate that is gone, for its serial alone does not tell where it stood."""
    with filled.read() as unit:
        names = [each.name for each in unit.enforcers.list("pop")]
        assert [each.name for each in unit.enforcers.list("pop", limit=2, marker="a-1x")] == [
            name for name in names if name > "a-1x"
        ][:2]
        with pytest.raises(BadInput, match="begin anew"):
            unit.certificates.list(limit=2, marker="f" * 40)
