"""Who may speak for what: every kind of principal, on every route of enforcement, about everybody's objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import httpx
import pytest
from served import Served

from orchestrator.client import Client, Host
from orchestrator.errors import BadInput
from orchestrator.identity.names import FILTERS, OPENFLOW
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import join_counts
from orchestrator.store.records import Role

DOMAIN, OTHER = "town", "village"
HOSTS = ("host1", "host2")
FIREWALLS = {"fw1": "nftables", "fw2": "iptables", "fw3": "queue", "fw4": "queue", "fs1": "nftables"}
DEVICES = (*HOSTS, "edge1", *FIREWALLS)


@dataclass(frozen=True)
class Speaker:
    """A principal, the domain and the number that it speaks under, and the devices that are its own."""

    http: httpx.Client
    domain: str = DOMAIN
    number: int = 1
    epoch: int = 1
    devices: frozenset[str] = frozenset()
    spreads: bool = False
    tiers: frozenset[str] = frozenset()
    server: str | None = None


Speakers = Mapping[str, Speaker]

SWITCHES = frozenset({*HOSTS, "edge1"})
ENFORCERS: Mapping[str, dict[str, object]] = {
    "controller": {"kind": "openflow", "devices": SWITCHES, "spreads": True, "tiers": frozenset({"host", "edge"})},
    "controller of host1": {"kind": "openflow", "hosts": ("host1",), "devices": frozenset({"host1"}),
                            "tiers": frozenset({"host", "edge"})},
    "controller of the edge": {"kind": "openflow", "hosts": ("edge1",), "devices": frozenset({"edge1"}),
                               "tiers": frozenset({"host", "edge"})},
    "controller of the spread": {"kind": "openflow", "hosts": ("spread",), "spreads": True,
                                 "tiers": frozenset({"host", "edge"})},
    "fw1": {"kind": "nftables", "devices": frozenset({"fw1"}), "tiers": frozenset({"server"})},
    "fw2": {"kind": "iptables", "devices": frozenset({"fw2"}), "tiers": frozenset({"server"})},
    "fw4": {"kind": "queue", "devices": frozenset({"fw4"}), "tiers": frozenset({"server"})},
    "fs1": {"kind": "nftables", "devices": frozenset({"fs1"}), "tiers": frozenset({"server"}), "server": "fs1"},
    "host1": {"kind": "nftables", "tiers": frozenset({"server"})},
    "fw3": {"kind": "openflow", "hosts": ("host1",), "devices": frozenset({"host1"}),
            "tiers": frozenset({"host", "edge"})},
    "host2": {"kind": "openflow", "domain": OTHER},
}  # fmt: skip
"""By name; each enrols with a token of its own. `host1` is an agent that took the name of a switch, `fw3` a controller
that took the name of a firewall, `host2` the controller of another domain."""
PEOPLE = ("nobody", "admin", "member", "reader")
EVERYBODY = (*PEOPLE, *ENFORCERS)
PACKET = {"source": "192.0.2.9", "destination": "10.2.0.1", "protocol": "tcp"}
NO_COUNTS = join_counts([])


@pytest.fixture(scope="module")
def speakers(service: Served, admin: Client) -> Iterator[Speakers]:
    for domain in (DOMAIN, OTHER):
        admin.domains.create(domain)
    for number, name in enumerate(HOSTS, 1):
        admin.domains.add_host(DOMAIN, Host(name, number, "up0"))
    admin.pops.add("exchange", DOMAIN, ("up0",))
    admin.pops.add_edge("exchange", Host("edge1", 9, "up0"))
    for name, plane in FIREWALLS.items():
        admin.firewalls.add(DOMAIN, name, plane)
    admin.pops.add_server("exchange", "fs1", "to-fs1", "0a:00:00:00:00:01")
    admin.tenants.create("shop", domain=DOMAIN)
    found = {
        "nobody": Speaker(service.http("")),
        "admin": Speaker(service.http()),
        "member": Speaker(service.http(service.make_token(Role.MEMBER, "shop"))),
        "reader": Speaker(service.http(service.make_token(Role.READER, "shop"))),
    }
    for name, said in ENFORCERS.items():
        more = dict(said)
        kind, domain, hosts = str(more.pop("kind")), str(more.pop("domain", DOMAIN)), more.pop("hosts", ())
        called = name.replace(" ", "-")
        token = admin.enrolment.invite(domain, name=called, kind=kind, hosts=hosts)  # type: ignore[arg-type]
        with service.client("") as anybody:
            new = anybody.enrolment.enrol(token, name=called, kind=kind)
        found[name] = Speaker(service.http(new.token), domain, new.enforcer, new.epoch, **more)  # type: ignore[arg-type]
    yield found
    for each in found.values():
        each.http.close()


def ask(
    speaker: Speaker, method: str, path: str, *, domain: str = DOMAIN, number: int | None = None, **more: object
) -> int:
    """The status that an enforcement point's route gives a principal; under its own number unless another is said."""
    under = speaker.number if number is None else number
    url = f"/v1/domains/{domain}/enforcers/{under}/{path}"
    return speaker.http.request(method, url, headers={"X-Aclflow-Epoch": str(speaker.epoch)}, **more).status_code  # type: ignore[arg-type]


def point(host: str, generation: int = 1) -> dict[str, object]:
    return {"points": [{"host": host, "generation": generation, "digest": "00" * 16, "state": "enforced"}]}


def sighting(host: str) -> dict[str, object]:
    return {"number": 1, "seen": [{"host": host, "cookie": "0" * 16, "at": 0, "octets": 60, "packet": PACKET}]}


def impostor(host: str) -> dict[str, object]:
    return {"impostors": [{"host": host, "address": "192.0.2.9"}]}


OF_A_DEVICE: Mapping[str, Callable[[Speaker, str], int]] = {
    "report": lambda who, host: ask(who, "POST", "report", json=point(host)),
    "impostor": lambda who, host: ask(who, "POST", "report", json=impostor(host)),
    "claim": lambda who, host: ask(who, "POST", f"counts/{host}/claim"),
    "counts": lambda who, host: ask(
        who, "POST", "counts", content=encode_frames([CountFrame(host, 1, NO_COUNTS, (), b"", True)], 0)
    ),
    "log": lambda who, host: ask(who, "POST", "log", json=sighting(host)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("route", OF_A_DEVICE)
@pytest.mark.parametrize("name", EVERYBODY)
def test_a_device_is_spoken_for_by_its_own_enforcer_alone(
    speakers: Speakers, name: str, route: str, device: str
) -> None:
    who = speakers[name]
    status = OF_A_DEVICE[route](who, device)
    if device in who.devices:
        assert status < 300
    else:
        assert status in (401, 403, 404)


@pytest.mark.parametrize("server", [None, "fs1", "fw1"])
@pytest.mark.parametrize("tier", ["host", "server", "edge"])
@pytest.mark.parametrize("path", ["program", "program/stream"])
@pytest.mark.parametrize("name", EVERYBODY)
def test_a_program_is_followed_by_those_whose_it_is(
    speakers: Speakers, name: str, path: str, tier: str, server: str | None
) -> None:
    who = speakers[name]
    query = {"tier": tier, "wait": "0"} | ({"server": server} if server else {})
    status = who.http.get(f"/v1/domains/{DOMAIN}/{path}", params=query).status_code
    own = server == who.server if server else tier in who.tiers
    if name == "admin" or (own and who.number != 1) or (own and who.devices):
        assert status in (200, 204, 404)
    else:
        assert status in (401, 403, 404)


@pytest.mark.parametrize("name", EVERYBODY)
def test_the_spreading_switch_is_spoken_for_by_its_controller(speakers: Speakers, name: str) -> None:
    who = speakers[name]
    for path, body in (("spread", {"generation": 1}), ("spread/links", {"down": ["l1"]})):
        status = ask(who, "PUT", path, json=body)
        assert status == 204 if who.spreads else status in (401, 403, 404)
    alarm = ask(who, "POST", "report", json=impostor("spread"))
    assert alarm == 204 if who.spreads else alarm in (401, 403, 404)
    followed = who.http.get(f"/v1/domains/{DOMAIN}/spread/stream", params={"wait": "0"}).status_code
    assert followed == 200 if who.spreads or name == "admin" else followed in (401, 403, 404)


LOAD = {"packets_pps": 1, "bits_bps": 1, "cpu_permille": 500, "connections": 1}


@pytest.mark.parametrize("name", EVERYBODY)
def test_a_load_and_a_trial_are_of_the_firewall_of_that_name(speakers: Speakers, name: str) -> None:
    who = speakers[name]
    load = ask(who, "PUT", "load", json=LOAD)
    trial = ask(who, "GET", "trial"), ask(who, "PUT", "trial", json={"generation": 1, "came": [], "held": 1})
    if who.devices & FIREWALLS.keys():
        assert (load, *trial) == (204, 204, 204)
    else:
        assert load in (401, 403, 404)
        is_controller = name.startswith("controller")  # no firewall bears its name: nothing is due
        assert {*trial} <= ({204} if is_controller else {401, 403, 404})


OWN: Mapping[tuple[str, str], dict[str, object]] = {
    ("POST", "epoch"): {},
    ("GET", "leading"): {},
    ("GET", "token"): {},
    ("POST", "token"): {},
    ("POST", "certificate"): {"json": {"csr": ""}},
    ("DELETE", "certificates"): {},
    ("POST", "report"): {"json": {}},
    ("POST", "log"): {"json": {"number": 1, "seen": []}},
    ("POST", "counts"): {"content": b""},
    ("POST", "counts/host1/claim"): {},
    ("PUT", "load"): {"json": LOAD},
    ("GET", "trial"): {},
    ("PUT", "trial"): {"json": {"generation": 1, "came": [], "held": 1}},
    ("PUT", "spread"): {"json": {"generation": 1}},
    ("PUT", "spread/links"): {"json": {"down": []}},
}
"""Every route under an enforcement point's number, with a body that its owner may send."""


def test_every_route_of_an_enforcer_is_tried(service: Served) -> None:
    paths = json.loads(httpx.get(f"{service.url}/v1/openapi.json").content)["paths"]
    under = "/v1/domains/{domain}/enforcers/{enforcer}/"
    declared = {(verb.upper(), path.removeprefix(under)) for path, verbs in paths.items() if path.startswith(under)
                for verb in verbs if verb in ("get", "put", "post", "patch", "delete")}  # fmt: skip
    assert declared == {(verb, path.replace("host1", "{host}")) for verb, path in OWN}


@pytest.mark.parametrize("other", ENFORCERS)
@pytest.mark.parametrize("name", EVERYBODY)
def test_nobody_speaks_under_the_number_of_another(speakers: Speakers, name: str, other: str) -> None:
    who, victim = speakers[name], speakers[other]
    for (method, path), body in OWN.items():
        if who is not victim:
            status = ask(who, method, path, domain=victim.domain, number=victim.number, **body)
            assert status in (401, 403, 404), path


# ------------------------------------------------------------------------------------------------------- generations


def generation(speakers: Speakers) -> int:
    return int(speakers["admin"].http.get(f"/v1/domains/{DOMAIN}").json()["generation"])


def test_a_report_raises_the_domain_by_one_change_at_most(speakers: Speakers) -> None:
    who, before = speakers["controller"], generation(speakers)
    for ahead in (3, 1 << 20, 1 << 32, (1 << 53) - 1 - before):
        assert ask(who, "POST", "report", json=point("host2", before + ahead)) == 204
        assert generation(speakers) == before
        found = speakers["admin"].http.get(f"/v1/domains/{DOMAIN}/generations/{before}").json()
        [host] = [each for each in found["laggards"] if each["host"] == "host2"]
        assert (host["state"], "was put back" in host["error"]) == ("drifted", True)
    assert ask(who, "POST", "report", json=point("host2", before + 2)) == 204
    assert before + 2 < generation(speakers) <= before + 4


def test_a_watch_raises_nothing(speakers: Speakers) -> None:
    who, before = speakers["controller"], generation(speakers)
    for path in ("program", "program/stream"):
        for ahead in (1, 1 << 20, 1 << 50):
            query = {"have": "00" * 16, "generation": str(before + ahead), "wait": "0"}
            answer = who.http.get(f"/v1/domains/{DOMAIN}/{path}", params=query)
            assert (answer.status_code, answer.json()["place"]) == (409, "query.generation")
    assert generation(speakers) == before


@pytest.mark.parametrize("name", EVERYBODY)
def test_nobody_raises_a_domain_over_rest(speakers: Speakers, name: str) -> None:
    """An administrator neither: `aclflow db restore` goes on far above its backup, while no service runs."""
    before, url = generation(speakers), f"/v1/domains/{DOMAIN}"
    assert speakers[name].http.post(f"{url}/raise", json={"above": before + 5000}).status_code in (401, 403, 404, 405)
    refused = speakers[name].http.patch(url, json={"generation": before + 5000}).status_code
    assert refused in (400, 401, 403, 404, 422)
    assert generation(speakers) == before


def test_an_epoch_that_was_never_given_is_nobodys(speakers: Speakers) -> None:
    """Else a claim under it would be the last that anybody makes."""
    who = speakers["controller"]
    with_epoch = {"X-Aclflow-Epoch": str(who.epoch + 1)}
    url = f"/v1/domains/{DOMAIN}/enforcers/{who.number}"
    assert who.http.post(f"{url}/counts/host2/claim", headers=with_epoch).status_code == 409
    assert who.http.post(f"{url}/report", headers=with_epoch, json=point("host2")).status_code == 409


# --------------------------------------------------------------------------------------------------------- enrolment


def test_every_kind_of_enforcement_point_is_tried() -> None:
    assert {each["kind"] for each in ENFORCERS.values()} == {OPENFLOW, *FILTERS}


def test_only_a_controllers_token_names_hosts(admin: Client) -> None:
    for kind in (None, "nftables", "switch"):
        with pytest.raises(BadInput, match="only a controller"):
            admin.enrolment.invite(DOMAIN, kind=kind, hosts=("host1",))
    with pytest.raises(BadInput):
        admin.enrolment.invite(DOMAIN, kind="openflow", hosts=("not a name",))


@pytest.mark.parametrize("kind", ["root", "switches", "Openflow"])
def test_there_are_no_other_kinds(service: Served, admin: Client, kind: str) -> None:
    with pytest.raises(BadInput, match="no kind of enforcement point"):
        admin.enrolment.invite(DOMAIN, kind=kind)
    with service.client("") as anybody, pytest.raises(BadInput, match="no kind of enforcement point"):
        anybody.enrolment.enrol(admin.enrolment.invite(DOMAIN), name="x", kind=kind)


def test_who_is_bound_is_shown(admin: Client, speakers: Speakers) -> None:
    found = {
        each["name"]: each["hosts"]
        for each in speakers["admin"].http.get(f"/v1/domains/{DOMAIN}/enforcers").json()["items"]
    }
    assert (found["controller-of-host1"], found["controller"]) == (["host1"], [])
