"""Fleets over REST and on the command line: settings with their places, members, trials, capacity, simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from served import Served, served

from orchestrator.client import Client
from orchestrator.errors import BadInput, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Packet
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.lifecycle import COMING, MemberState, Step
from orchestrator.store.firewalls.fleetrecords import TrialSheet
from orchestrator.wire.firewalls import Load, Plane, Prediction

MEASURED = [
    Measured(rules, octets, 1e6 / (5 + rules / 200 + octets / 1000))
    for rules in (0, 500, 2000)
    for octets in (64, 1024)
]


ENVIRONMENT: dict[str, str] = {}


def run(*arguments: str) -> Ended:
    """The command line as somebody at the service calls it."""
    return aclflow(*arguments, environment=ENVIRONMENT)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def admin(service: Served) -> Iterator[Client]:
    with service.client() as client:
        client.domains.create("pop")
        client.tenants.create("shop", domain="pop", prefixes=[Prefix.parse("198.51.100.0/24")])
        client.acls.put("shop", acl_from_json({"rules": [{"id": "all", "action": "permit"}]}))
        yield client
        with service.service.parts.store.write() as unit:
            for state in (MemberState.FAILED, MemberState.GONE):
                for member in unit.fleets.members("pop"):
                    unit.fleets.advance(member, Step(state, "the test is over"))
            with suppress(NotFound):
                unit.fleets.remove("pop")
        client.tenants.delete("shop")
        client.domains.delete("pop")


def asked(service: Served, count: int = 1) -> None:
    with service.service.parts.store.write() as unit:
        unit.fleets.ask("pop", count, Plane.NFTABLES, "a test")


def test_a_fleet_is_made_changed_and_forgotten(admin: Client, service: Served) -> None:
    with pytest.raises(NotFound, match="has no fleet: set its limits first"):
        admin.fleet.read("pop")
    first = admin.fleet.configure("pop", {"size": 2})
    assert (first.version, first.settings["size"], first.cloud, first.members) == (1, 2, None, ())
    changed = admin.fleet.configure("pop", {"size": None, "limits": {"most": 4}, "patience": {"sick_s": 3.5}})
    assert changed.version == 2
    assert changed.settings["size"] is None
    assert changed.settings["limits"]["most"] == 4
    assert changed.settings["limits"]["target"] == first.settings["limits"]["target"]
    assert changed.settings["patience"]["sick_s"] == 3.5
    assert admin.fleet.configure("pop", {"limits": {"most": 4}}).version == 2  # nothing changed
    asked(service)
    with pytest.raises(Conflict, match="still has 1 VNFs: set its size to 0"):
        admin.fleet.remove("pop")
    with pytest.raises(Conflict, match="still has"):
        admin.domains.delete("pop")
    told = [event.kind for event in admin.events.read(limit=1000).items if event.kind.startswith("fleet.")]
    assert told == ["fleet.changed"] * 2


BAD = [
    ({"size": 99}, "size: 99 VNFs, where at most 8 are allowed"),
    ({"limits": {"most": 0}}, "limits.most: at most 0, where 1 are the fewest"),
    ({"limits": {"target": 1.5}}, "limits.target: 1.5 is no share"),
    ({"patience": {"build_s": 0}}, "patience.build_s: 0.0 is not a number above zero"),
    ({"limits": {"mots": 3}}, "mots"),
    ({"decide_every_s": 0.0}, "decide_every_s: 0.0 is not in 0.1..3600"),
]


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_what_cannot_be_is_refused_with_its_place(admin: Client, changes: dict[str, object], words: str) -> None:
    admin.fleet.configure("pop", {"size": 1})
    with pytest.raises(BadInput, match=words.replace("(", "\\(")):
        admin.fleet.configure("pop", changes)
    assert admin.fleet.read("pop").version == 1


def test_two_who_change_it_at_once_are_told_apart(admin: Client, service: Served) -> None:
    admin.fleet.configure("pop", {"size": 1})
    with service.http() as http:
        assert http.patch("/v1/domains/pop/fleet", json={"size": 2}).status_code == 428
        tag = http.get("/v1/domains/pop/fleet").headers["etag"]
        assert http.patch("/v1/domains/pop/fleet", json={"size": 2}, headers={"If-Match": tag}).status_code == 200
        again = http.patch("/v1/domains/pop/fleet", json={"size": 3}, headers={"If-Match": tag})
    assert again.status_code == 412


def test_members_are_shown_and_drained(admin: Client, service: Served) -> None:
    admin.fleet.configure("pop", {"size": 2})
    asked(service, 2)
    assert [(each.name, each.state, each.well) for each in admin.fleet.read("pop").members] == [
        ("fw-0", "requested", True), ("fw-1", "requested", True)
    ]  # fmt: skip
    with service.http() as http:
        assert 'aclflow_fleet_vnfs{domain="pop",state="requested"} 2.0' in http.get("/metrics").text
    assert admin.fleet.drain_member("pop", "fw-0").state == "leaving"
    with pytest.raises(NotFound, match="no VNF 'fw-7'"):
        admin.fleet.drain_member("pop", "fw-7")
    assert [each.name for each in admin.firewalls.read_all("pop")] == ["fw-1"]


def test_how_busy_vnfs_are_is_told_beside_what_the_model_says(admin: Client, service: Served) -> None:
    admin.fleet.configure("pop", {"size": 1})
    asked(service)
    admin.fleet.add_capacity("nftables", [Measured(1, 500, 100_000)], "one only")
    assert admin.fleet.read("pop").prediction is None  # nobody serves
    enrolled = admin.enrolment.enrol(
        admin.enrolment.invite("pop", name="fw-0", kind="nftables"), name="fw-0", kind="nftables"
    )
    with service.service.parts.store.write() as unit:
        for state in (*COMING[1:], MemberState.SERVING):
            unit.fleets.advance(unit.fleets.member("pop", "fw-0"), Step(state, "a test"))
        unit.firewalls.report_load(enrolled.enforcer, Load(50_000, 50_000 * 4000, 400, 7))
    told = admin.fleet.read("pop").prediction
    assert told is not None
    assert (told.busy, told.predicted, told.error) == (0.4, pytest.approx(0.5), pytest.approx(0.25))
    with service.service.parts.store.write() as unit:
        unit.firewalls.report_load(enrolled.enforcer, Load(100, 100 * 4000, 30, 7))
    idle = admin.fleet.read("pop").prediction
    assert idle is not None
    assert (idle.busy, idle.error) == (0.03, None)


def test_a_prediction_says_in_words_how_wrong_it_is() -> None:
    said = "processors: 40% in use, 50% by the capacity model, which is 25% too high"
    assert Prediction(0.4, 0.5, 0.25).in_words() == said
    assert Prediction(0.5, 0.4, -0.2).in_words().endswith("by the capacity model, which is 20% too low")
    assert Prediction(0.03, 0.001, None).in_words().endswith("too idle to compare")


def test_a_trial_is_asked_for_and_answered_once_by_who_it_is_about(admin: Client, service: Served) -> None:
    admin.fleet.configure("pop", {"size": 1})
    asked(service)
    enrolment = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="fw-0", kind="nftables")
    other = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="someone", kind="nftables")
    store = service.service.parts.store
    with service.client(enrolment.token) as agent:
        assert agent.points.read_trial("pop", enrolment.enforcer) is None
        with store.write() as unit:
            for state in (MemberState.BUILDING, MemberState.ENROLLED, MemberState.LOADED):
                unit.fleets.advance(unit.fleets.member("pop", "fw-0"), Step(state, "a test"))
            packet = Prefix.parse("198.51.100.1/32")
            sheet = TrialSheet(7, (Packet(packet.family, 1 << 24, packet.network, 17, 5, 53),), (True,))
            unit.fleets.set_trial("pop", "fw-0", sheet)
        asked_for = agent.points.read_trial("pop", enrolment.enforcer)
        assert asked_for is not None
        assert (asked_for.generation, asked_for.packets) == (7, sheet.packets)
        agent.points.answer_trial("pop", enrolment.enforcer, 6, [True], 9)  # another trial
        agent.points.answer_trial("pop", enrolment.enforcer, 7, [True], 6)  # of an older program
        with pytest.raises(BadInput, match="came: 1 packets were to be sent"):
            agent.points.answer_trial("pop", enrolment.enforcer, 7, [], 7)
        assert agent.points.read_trial("pop", enrolment.enforcer) is not None
        agent.points.answer_trial("pop", enrolment.enforcer, 7, [False], 8)
        agent.points.answer_trial("pop", enrolment.enforcer, 7, [True], 8)  # the first one counts
        assert agent.points.read_trial("pop", enrolment.enforcer) is None
    with store.read() as unit:
        answered = unit.fleets.member("pop", "fw-0").trial
    assert answered is not None
    assert (answered.answer, answered.held) == ((False,), 8)
    with service.client(other.token) as stranger, pytest.raises(NotFound):
        stranger.points.read_trial("pop", enrolment.enforcer)


def test_capacity_has_versions_and_says_how_far_it_can_be_trusted(admin: Client) -> None:
    first = admin.fleet.add_capacity("nftables", MEASURED[:1], "one only")
    assert (first.error, first.current) == (None, True)
    second = admin.fleet.add_capacity("nftables", MEASURED, "a bench")
    assert second.error is not None
    assert second.error < 1e-6
    assert (second.most_rules, second.measurements) == (2000, 6)
    admin.fleet.add_capacity("iptables", MEASURED[:2], "another plane")
    newest = [(each.version - first.version, each.plane, each.current) for each in admin.fleet.read_capacities()[:3]]
    assert newest == [(2, "iptables", True), (1, "nftables", True), (0, "nftables", False)]


# ------------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def told(service: Served, admin: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setitem(ENVIRONMENT, "ACLFLOW_URL", service.url)
    monkeypatch.setitem(ENVIRONMENT, "ACLFLOW_TOKEN", service.token)
    return admin


def test_the_command_line_sets_grows_shrinks_drains(told: Client, service: Served, tmp_path: Path) -> None:
    done = run("fleet", "set", "pop", "--size", "2", "--limit", "most=5", "--patience", "sick_s=4", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["settings"]["limits"]["most"] == 5
    asked(service, 2)
    shown = run("fleet", "show", "pop").out
    assert "fw-1" in shown
    assert "(--patience order_s=300)" in shown
    assert "capacity model" not in run("fleet", "show", "pop").out  # nobody serves
    assert run("fleet", "grow", "pop").code == 0
    assert told.fleet.read("pop").settings["size"] == 3
    assert run("fleet", "shrink", "pop", "2").code == 0
    assert told.fleet.read("pop").settings["size"] == 0
    assert run("fleet", "drain", "pop", "fw-0").out.strip() == "fw-0 is leaving"
    assert run("fleet", "set", "pop", "--size", "auto").code == 0
    assert told.fleet.read("pop").settings["size"] is None
    assert json.loads(run("fleet", "history", "pop", "--json").out) == []
    assert told.fleet.read("pop").settings["alarms"] is False
    file = tmp_path / "measured.json"
    file.write_text(json.dumps([{"rules": each.rules, "octets": each.octets, "pps": each.pps} for each in MEASURED]))
    listed = json.loads(run("fleet", "capacity", str(file), "--json").out)
    assert (listed[0]["source"], listed[0]["current"]) == ("measured.json", True)


def test_the_command_line_leaves_the_size_to_the_clouds_alarms_and_takes_it_back(told: Client) -> None:
    assert run("fleet", "set", "pop", "--size", "2").code == 0
    assert run("fleet", "set", "pop", "--size", "alarms").code == 0
    settings = told.fleet.read("pop").settings
    assert (settings["alarms"], settings["size"]) == (True, None)
    grown = run("fleet", "grow", "pop")
    assert grown.code == 2
    assert "size: the cloud's alarms decide how many there are" in grown.err
    assert run("fleet", "set", "pop", "--size", "0").code == 0
    settings = told.fleet.read("pop").settings
    assert (settings["alarms"], settings["size"]) == (False, 0)


WRONG = [
    (("fleet", "set", "pop", "--size", "many"), 2, "--size: 'many' is not a whole number"),
    (("fleet", "set", "pop", "--limit", "mots=3"), 2, "--limit: 'mots=3' is none of them"),
    (("fleet", "set", "pop", "--size", "99"), 2, "size: 99 VNFs, where at most 8 are allowed"),
    (("fleet", "show", "nowhere"), 1, "there is no domain 'nowhere'"),
    (("fleet", "capacity", "/no/such/file"), 3, "/no/such/file: cannot be read"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG)
def test_what_is_wrong_is_said(told: Client, words: tuple[str, ...], code: int, said: str) -> None:
    done = run(*words)
    assert said in done.err
    assert done.code == code


def test_a_load_is_simulated_without_a_service_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    file.write_text(json.dumps([{"rules": each.rules, "octets": each.octets, "pps": each.pps} for each in MEASURED]))
    ramp = ("--ramp", "0:0,100000:60,100000:60,0:10,0:60")
    words = ("fleet", "simulate", "--capacity", str(file), *ramp, "--limit", "cooldown_down_s=5", "--limit", "peak_s=5")
    done = run(*words, "--plot", str(tmp_path / "plots"), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert max(found["size"]) == 3
    assert found["size"][-1] == 1
    assert found["lost_share"] == 0.0
    assert {Path(each).suffix for each in found["plots"]} == {".svg"}
    assert len(found["plots"]) == 3
    assert run("fleet", "simulate", "--capacity", str(file), "--ramp", "1:x").code == 2
