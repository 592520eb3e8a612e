"""Pages of what traffic, clouds and edges bring about, in a real browser before a service that has it all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from playwright.sync_api import expect

from orchestrator.bootstrap import opened_store
from orchestrator.client import Client, Host
from orchestrator.client.spread import Carrier, Link
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.pipelines.host import Table
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, Packet, TenantId
from orchestrator.policy.protocols import TCP
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import sum_rows
from orchestrator.program.program import Program, Tier
from orchestrator.program.sightings import Sighting, Sightings
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.lifecycle import MemberState, Step
from orchestrator.settings import Settings
from orchestrator.store.firewalls.fleetrecords import FleetSettings
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import FleetSample, Load, Plane

from .conftest import SHOP, Look, Town

LIFE = (
    MemberState.BUILDING,
    MemberState.ENROLLED,
    MemberState.LOADED,
    MemberState.PROVEN,
    MemberState.SERVING,
)
BECAUSE = "152 kpps expected in 10 s, 75.9 kpps each with 8 rules: 3 at 70%"
LOGGED = [
    {"id": "no-telnet", "action": "deny", "protocol": "tcp", "destination_ports": 23, "log": True},
    {"id": "web-log", "action": "permit", "protocol": "tcp", "destination_ports": 8080, "log": True},
]


CRAMPED = """[...document.querySelectorAll(".stacks .q-table__middle, .stacks tbody tr")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1)
  .map((each) => each.innerText)"""
"""The tables and rows that do not have room for what they hold."""


@dataclass
class Agents:
    """Who speaks for the firewall fw-0 and for the host's controller."""

    town: Town
    firewall: Client
    firewall_id: int
    controller: Client
    controller_id: int
    cookies: dict[str, int]
    reports: int = 0

    def carries(self, packets_pps: int, trouble: str | None = None) -> None:
        load = Load(packets_pps, packets_pps * 4000, 610, 1234, trouble)
        self.firewall.points.report_load("pop", self.firewall_id, load)

    def saw(self, rule: str, source: int) -> None:
        """A packet from 192.0.2.`source` that a rule decided."""
        self.reports += 1
        port = 23 if rule == "no-telnet" else 8080
        packet = Packet(Family.IPV4, 0xC0000200 + source, 0xC6336414, TCP, 40000, port, tcp_flags=2)
        seen = Sighting("host1", now_us(), self.cookies[rule], packet, 60)
        self.controller.points.report_sightings("pop", self.controller_id, Sightings(self.reports, (seen,), 0))


def now_us() -> int:
    """The time, in microseconds."""
    return int(dt.datetime.now(dt.UTC).timestamp() * 1_000_000)


@pytest.fixture(scope="module")
def agents(town: Town) -> Iterator[Agents]:
    """A fleet in the middle of growing, a spread over it, a PoP, and rules that log."""
    town.stop_service()
    with opened_store(Settings(state_dir=town.directory)) as store, store.write() as unit:
        grow_a_fleet(unit)
    town.start_service()
    with town.client() as admin:
        admin.domains.add_host("pop", Host("host1", 0xA1, "up0"))
        admin.acls.put("shop", acl_from_json({**SHOP, "rules": [*LOGGED, *SHOP["rules"]]}))
        spread_over(admin, "fw-0", "fw-1")
        lay_out_a_pop(admin)
        send_through_the_pop(admin, town)
        firewall = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="fw-0", kind="nftables")
        controller = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="controller-1", kind="openflow")
        with town.client(firewall.token) as one, town.client(controller.token) as other:
            program = other.points.watch_program("pop")
            assert isinstance(program, Program)
            cookies = cookies_of(program)
            yield Agents(town, one, firewall.enforcer, other, controller.enforcer, cookies)


def grow_a_fleet(unit: Unit) -> None:
    unit.fleets.put("pop", FleetSettings())
    unit.fleets.ask("pop", 3, Plane.NFTABLES, BECAUSE)
    for member in unit.fleets.members("pop"):
        for state in LIFE[: 5 if member.number < 2 else 2]:
            unit.fleets.advance(unit.fleets.member("pop", member.name), Step(state, "as it should be"))
    unit.fleets.record("pop", 0, 1, "at least 1", by="the fleet")
    unit.fleets.record("pop", 2, 3, BECAUSE, by="the fleet")
    unit.fleets.note_decision("pop", 3, BECAUSE, model=None)
    unit.capacities.add(Plane.NFTABLES, [Measured(8, 500, 100_000)], source="a test")
    for number in range(60):
        add_sample(unit, unit.now - dt.timedelta(seconds=30 * (60 - number)), 20_000 + 1500 * number, 1 + number // 30)


def add_sample(unit: Unit, at: dt.datetime, packets_pps: int, serving: int) -> None:
    sample = FleetSample(at, packets_pps, packets_pps * 4000, 2000, serving, packets_pps // serving, 8)
    unit.fleets.sample("pop", sample, 3600.0)


def spread_over(admin: Client, *names: str) -> None:
    def link(number: int, side: str) -> Link:
        return Link(f"{side}{number}", f"0a:00:00:00:0{number}:{'01' if side == 'l' else '02'}")

    admin.spread.configure(
        "pop", [Carrier(name, number, link(number, "l"), link(number, "r")) for number, name in enumerate(names)]
    )


def lay_out_a_pop(admin: Client) -> None:
    admin.domains.create("metro")
    for number, name in enumerate(("mail", "video", "games")):
        prefix = Prefix.parse(f"198.18.{number}.0/25")
        admin.tenants.create(name, domain="metro", name=name.capitalize(), prefixes=[prefix])
    admin.pops.add("berlin", "metro", ("outside",), functions=8, heavy_interval_s=0)
    admin.domains.add_host("metro", Host("host2", 0xA2, "up0"))
    admin.firewalls.add("metro", "fs1", "nftables")
    admin.pops.add_edge("berlin", Host("edge1", 0xE1, "wan"))
    for number in (1, 2):
        admin.pops.add_server("berlin", f"fs{number}", f"to-fs{number}", f"0a:00:00:00:00:0{number}")
    prefix = Prefix.parse("198.18.1.8/32")
    admin.domains.put_endpoint("metro", Endpoint("player", TenantId("video"), "tap1", 0x0A0000000007, (prefix,)))
    admin.pops.place_tenants("berlin", {"mail": "fs1", "video": "fs2", "games": "fs2"})
    admin.pops.set_server("berlin", "fs1", "draining")


def send_through_the_pop(admin: Client, town: Town) -> None:
    """Three quarters of the packets of a rule of video's go past the servers; some are for nobody, and some end on a
    server, by a rule of mail's that no host saw a packet of."""
    for tenant, name, action, port in (("video", "web", "permit", 443), ("mail", "telnet", "deny", 23)):
        rule = {"id": name, "action": action, "protocol": "tcp", "destination_ports": port}
        admin.acls.put(tenant, acl_from_json({"rules": [rule]}))
    enrolment = admin.enrolment.enrol(admin.enrolment.invite("metro"), name="controller-2", kind="openflow")
    with town.client(enrolment.token) as enforcer:
        enforcer.points.begin_epoch("metro", enrolment.enforcer)
        program = enforcer.points.watch_program("metro")
        assert isinstance(program, Program)
        number, denied = numbers_of(program)
        packets = {
            Cookie(Tier.HOST, Kind.RULE, number): 40_000,
            Cookie(Tier.EDGE, Kind.RULE, number): 30_000,
            Cookie(Tier.SERVER, Kind.RULE, number): 10_000,
            Cookie(Tier.SERVER, Kind.RULE, denied): 321,
            Cookie(Tier.EDGE, Kind.LINE, 2): 10_000,
            Cookie(Tier.EDGE, Kind.NOBODY): 70,
        }
        cookies = np.array([cookie.pack() for cookie in packets], np.uint64)
        column = np.array([*packets.values()], np.int64)
        counts = sum_rows(cookies, column, column * 100, column * 0, column * 0 + now_us())
        sequence = enforcer.points.claim_counts("metro", enrolment.enforcer, "host2").sequence
        frame = CountFrame("host2", sequence + 1, counts, (), b"chunk", whole=False)
        assert enforcer.points.report_counts("metro", enrolment.enforcer, encode_frames([frame], 2_000_000)) == ()


def numbers_of(program: Program) -> list[int]:
    """The numbers of the rules of a program's ingress lists."""
    taken = {Cookie.unpack(row.cookie) for row in program.flows.rows() if row.table == Table.INGRESS}
    return sorted(each.number for each in taken if each is not None and each.kind is Kind.RULE)


def cookies_of(program: Program) -> dict[str, int]:
    """The cookies of the rules that log: the two highest numbers, for they came last into the list."""
    logged = [Cookie(Tier.HOST, Kind.RULE, number).pack() for number in numbers_of(program)[-2:]]
    return dict(zip((rule["id"] for rule in LOGGED), logged, strict=True))


@pytest.fixture
def page(look: Look, agents: Agents) -> Look:
    agents.carries(51_200)
    look.sign_in(look.town.admin)
    return look


def test_firewalls_are_shown_with_their_fleet_and_move_without_a_reload(page: Look, agents: Agents) -> None:
    page.open("/admin/firewalls")
    seen = page.page
    expect(seen.get_by_text("2 of 3 wanted serve")).to_be_visible()
    expect(seen.get_by_text("1 to 8, each at 70 % of what one carries")).to_be_visible()
    row = seen.locator("tr", has_text="fw-0")
    for said in ("serving", "nftables", "128 of 256 (50 %)", "51.2 k", "205 M", "61.0 %", "1\u202f234"):
        expect(row).to_contain_text(said)
    expect(seen.locator("tr", has_text="fw-2")).to_contain_text("enrolled")
    expect(seen.locator("tr", has_text="fs1")).to_contain_text("never reported")
    expect(seen.get_by_text("2 → 3")).to_be_visible()
    expect(seen.get_by_text(BECAUSE).first).to_be_visible()
    expect(seen.get_by_text("Shares of generation").filter(has_text="behind")).to_be_visible()
    expect(seen.get_by_text("Processors: 61% in use, 58% by the capacity model, which is 6% too low")).to_be_visible()
    page.picture("admin-firewalls")
    seen.evaluate("window.stays = true")
    agents.carries(77_000, "conntrack table is full")
    with opened_store(Settings(state_dir=agents.town.directory)) as store, store.write() as unit:
        add_sample(unit, unit.now, 254_000, 2)
    expect(row).to_contain_text("77 k")
    expect(row).to_contain_text("conntrack table is full")
    expect(seen.get_by_role("img", name="Packets a second, all together 254 kpps now")).to_be_visible()
    assert seen.evaluate("window.stays")


def test_the_edge_is_shown_with_its_budgets_servers_and_tenants(page: Look) -> None:
    page.open("/admin/edge")
    seen = page.page
    for said in ("edge switches: edge1", "0 of 1\u202f024 entries", "0 misdirected", "Exceptions, IPv4"):
        expect(seen.get_by_text(said).first).to_be_visible()
    expect(seen.get_by_role("row", name="fs1 draining")).to_contain_text("to-fs1")
    expect(seen.get_by_role("row", name="fs2 serving")).to_contain_text("2: games, video")
    expect(seen.get_by_role("row", name="fs2 serving")).to_contain_text("10\u202f000")
    expect(seen.get_by_role("row", name="games fs2")).to_contain_text("no packet yet")
    for said in ("30\u202f000", "10\u202f000", "75 %", "128"):
        expect(seen.get_by_role("row", name="video fs2")).to_contain_text(said)
    expect(seen.get_by_text("70 packets to addresses without owner")).to_be_visible()
    expect(seen.get_by_text("No rule is a heavy hitter")).to_be_visible()


def test_a_heavy_hitter_is_shown_as_soon_as_it_is_one(page: Look) -> None:
    page.open("/admin/edge")
    with page.town.client() as client:
        assert [each["rule"] for each in client.pops.choose_heavy_hitters("berlin")["chosen"]] == ["web"]
    row = page.page.get_by_role("row", name="video / web")
    for said in ("30\u202f000", "packets on"):
        expect(row).to_contain_text(said)


def test_the_domain_is_drawn_with_edge_firewalls_and_their_load(page: Look) -> None:
    page.open("/admin/topology")
    said = page.page.get_by_role(
        "img", name="Domain metro: 1 outside, 1 edge switches, 2 firewalls, 1 hosts, 3 tenants"
    )
    expect(said).to_be_visible()
    pop = page.page.get_by_role("img", name="Domain pop: 1 outside")
    expect(pop).to_contain_text("51.2 kpps, CPU 61 %")


def test_the_packet_log_goes_on_and_is_filtered(page: Look, agents: Agents) -> None:
    agents.saw("no-telnet", 7)
    agents.saw("web-log", 8)
    page.open("/project/shop/packets")
    seen = page.page
    rows = seen.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("192.0.2.8:40000")
    expect(rows.nth(1)).to_contain_text("198.51.100.20:23")
    agents.saw("no-telnet", 9)
    expect(rows.nth(0)).to_contain_text("192.0.2.9:40000")
    expect(rows.nth(0)).to_contain_text("deny")
    seen.get_by_role("button", name="Permitted").click()
    expect(rows).to_have_count(1)
    expect(rows.nth(0)).to_contain_text("web-log")
    seen.get_by_label("Rule").click()
    seen.get_by_role("option", name="no-telnet").click()
    expect(seen.get_by_text("No reported packet is of that rule and verdict")).to_be_visible()
    seen.get_by_role("button", name="Denied").click()
    expect(rows).to_have_count(2)
    seen.get_by_role("link", name="no-telnet").first.click()
    expect(seen.get_by_text("1 of 9 rules")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/admin/firewalls", "/admin/edge", "/admin/domains", "/project/shop/packets", "/project/mail/hits"]
)
def test_pages_fit_a_phone_in_the_dark(page: Look, agents: Agents, path: str) -> None:
    """Nothing is wider than the window, tables neither; their rows are cards, each as high as what is in it."""
    agents.saw("web-log", 10)
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.page.evaluate("localStorage.setItem('aclflow-theme', 'dark')")
    page.open(path)
    expect(page.page.locator("body.body--dark")).to_be_visible()
    expect(page.page.locator(".page .panel, .page .q-table").first).to_be_visible()
    expect(page.page.locator(".stacks tbody td").first).to_be_visible()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.page.evaluate(CRAMPED) == []


def test_what_a_firewall_server_drops_is_seen_by_the_project(page: Look) -> None:
    """No host saw a packet of the rule that drops them: the overview, the list and the hits say where they ended."""
    seen = page.page
    page.open("/project/mail")
    denied = seen.locator(".tile", has_text="Denied")
    expect(denied).to_contain_text("321")
    expect(denied).to_contain_text("321 at firewalls")
    expect(seen.locator(".panel", has_text="Busiest rules")).to_contain_text("telnet")
    page.open("/project/mail/acl")
    expect(seen.locator("tr", has_text="telnet")).to_contain_text("321 at firewalls")
    page.open("/project/mail/hits")
    expect(seen.get_by_role("columnheader", name="At hosts")).to_be_visible()
    expect(seen.get_by_role("columnheader", name="At firewalls")).to_be_visible()
    expect(seen.get_by_role("columnheader", name="At the edge")).to_be_visible()
    cells = seen.get_by_role("row", name="telnet").get_by_role("cell")
    expect(cells.nth(1)).to_have_text("0")
    expect(cells.nth(2)).to_have_text("321")
    page.open("/project/shop/hits")
    expect(seen.get_by_role("columnheader", name="At firewalls")).to_be_visible()
    expect(seen.get_by_role("columnheader", name="At the edge")).to_have_count(0)


def test_placement_tells_what_lifted_rules_saved_over_time(page: Look, agents: Agents) -> None:
    """A rule that was lifted for a while, and is no more."""
    said = {"tenant": "video", "rule": "web", "because": "a test"}
    with opened_store(Settings(state_dir=agents.town.directory)) as store, store.write() as unit:
        unit.events.append("placement.lifted", "metro", {**said, "saves_us_per_s": 4200})
        unit.events.append("placement.lowered", "metro", said)
    page.open("/admin/placement")
    drawn = page.page.get_by_role("img", name="Lifted rules 0 now, 1 at most; Saved of a core 0 % now, 0.42 % at most")
    expect(drawn).to_be_visible()
    expect(page.page.get_by_text("chosen by what they save, looked at every").first).to_be_visible()
    page.page.set_viewport_size({"width": 390, "height": 844})
    newest = "(drawn) => drawn.getBoundingClientRect().right <= innerWidth"
    page.page.wait_for_function(newest, arg=drawn.element_handle())
