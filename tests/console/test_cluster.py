"""A firewall cluster on the operator's page, in a real browser: members that serve, lag, hold packets, are silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from command_line import aclflow
from playwright.sync_api import Locator, expect

from orchestrator.client.spread import Carrier, Link
from orchestrator.lab.processes import free_port
from orchestrator.statesync.status import Followed, StateCount, Status, StatusServer

from .conftest import Look, Town, bare_town
from .test_accessible import violations

HOST = "127.0.0.1"
NUMBERS = (1, 2, 3)


def well(number: int) -> Status:
    """A member that serves, follows the two others and has all their messages."""
    others = tuple(each for each in NUMBERS if each != number)
    states = (StateCount("tcp", "ESTABLISHED", 1200 + number), StateCount("tcp", "SYN_SENT", 7))
    return Status(
        number, "full", "dirty", "synchronous", serves=True, is_whole=True, followers=others,
        followed=tuple(Followed(each, is_whole=True, lag=0) for each in others), held=0, states=states, counters={},
    )  # fmt: skip


@dataclass
class Members:
    """Three members that say what they are told to say, where the console asks them."""

    ports: tuple[int, ...]
    says: dict[int, Status]
    servers: dict[int, StatusServer]

    def begin(self, number: int) -> None:
        say: Callable[[], Status] = lambda: self.says[number]  # noqa: E731 -- bound to its number
        self.servers[number] = StatusServer(HOST, self.ports[number - 1], say)

    def end(self, number: int) -> None:
        self.servers.pop(number).close()

    @property
    def places(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self.ports]


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    members = Members(tuple(free_port() for _ in NUMBERS), {number: well(number) for number in NUMBERS}, {})
    for number in NUMBERS:
        members.begin(number)
    yield members
    for number in [*members.servers]:
        members.end(number)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, members: Members) -> Iterator[Town]:
    """A domain whose traffic is spread over the three; the console was told where they answer."""
    options = [word for place in members.places for word in ("--cluster", f"pop={place}")]
    with bare_town(tmp_path_factory.mktemp("cluster"), *options) as here, here.client() as client:
        client.domains.create("pop")
        client.domains.create("other")
        for number in NUMBERS:
            client.firewalls.add("pop", f"fw{number}", "nftables")
        links = [[Link(f"{side}{number}", f"0a:00:00:00:0{number}:0{at}") for at, side in ((1, "l"), (2, "r"))]
                 for number in NUMBERS]  # fmt: skip
        client.spread.configure(
            "pop", [Carrier(f"fw{number}", number, *pair) for number, pair in zip(NUMBERS, links, strict=True)]
        )
        yield here


@pytest.fixture
def cluster(look: Look, town: Town, members: Members) -> Locator:
    """The cluster's part of the page, where all is well."""
    for number in NUMBERS:
        members.says[number] = well(number)
    look.sign_in(town.admin, "/admin/firewalls")
    return look.page.locator("[data-part=cluster]:visible")


def row(cluster: Locator, name: str) -> Locator:
    return cluster.get_by_role("row", name=name)


def test_members_are_shown_with_what_they_own_share_and_know(look: Look, cluster: Locator) -> None:
    """Only where the console was told of a cluster."""
    expect(cluster).to_have_count(1)
    expect(cluster.get_by_role("status")).to_have_text("3 of 3 members well")
    expect(cluster).to_contain_text("level full, dirty, synchronous")
    for said in ("1: fw1", "serves", "86 of 256 (33.6 %)", "2, 3", "0 of member 2, 0 of member 3", "1\u202f201"):
        expect(row(cluster, "fw1")).to_contain_text(said)
    expect(row(cluster, "tcp established")).to_contain_text(
        "member 1: 1\u202f201, member 2: 1\u202f202, member 3: 1\u202f203"
    )
    expect(row(cluster, "tcp syn sent")).to_contain_text("member 1: 7, member 2: 7, member 3: 7")
    look.picture("admin-cluster")
    assert violations(look) == []
    look.page.set_viewport_size({"width": 390, "height": 844})
    look.open("/admin/firewalls")
    expect(cluster).to_have_count(1)
    assert look.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_member_that_lags_holds_or_is_silent_is_seen_without_a_reload(
    look: Look, cluster: Locator, members: Members
) -> None:
    """The command line says the same, and ends with 1."""
    expect(cluster.get_by_role("status")).to_have_text("3 of 3 members well")
    look.page.evaluate("window.stays = true")
    members.says[2] = replace(well(2), followed=(Followed(1, is_whole=True, lag=41), Followed(3, is_whole=True, lag=0)))
    members.says[1] = replace(well(1), held=512)
    expect(row(cluster, "fw2")).to_contain_text("serves, messages missing")
    expect(row(cluster, "fw2")).to_contain_text("41 of member 1")
    expect(row(cluster, "fw1")).to_contain_text("512")
    members.says[2] = replace(well(2), is_whole=False)
    expect(row(cluster, "fw2")).to_contain_text("serves, not whole yet")
    members.says[2] = replace(well(2), serves=False)
    expect(row(cluster, "fw2")).to_contain_text("does not serve")
    members.end(3)
    expect(row(cluster, members.places[2])).to_contain_text("does not answer")
    expect(cluster.get_by_role("status")).to_have_text("1 of 3 members well")
    told = aclflow("firewall", "cluster", *members.places)
    assert (told.code, "does not answer" in told.out) == (1, True)
    members.begin(3)
    members.says[2] = well(2)
    expect(cluster.get_by_role("status")).to_have_text("3 of 3 members well")
    expect(look.page.get_by_role("alert").filter(has_text="does not answer")).to_be_hidden()
    assert look.page.evaluate("window.stays")


@pytest.mark.parametrize("text", ["127.0.0.1:9381", "pop=", "pop=127.0.0.1", "pop=127.0.0.1:0"])
def test_a_place_that_is_none_is_refused_before_anything_listens(text: str) -> None:
    told = aclflow("console", "--cluster", text)
    assert (told.code, "--cluster" in told.err) == (2, True)
