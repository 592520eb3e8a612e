"""The collection's modules and inventory plugin against a real service: check mode, diff, and nothing done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
import yaml
from deployment.image import ROOT
from deployment.site import ANSIBLE
from patience import until
from served import Served, served

from orchestrator.bootstrap import create_token
from orchestrator.client import Client, Host
from orchestrator.client.proposals import ProposedAbout
from orchestrator.errors import NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.scaling.lifecycle import MemberState, Step
from orchestrator.store.records import Role
from orchestrator.wire.firewalls import Plane

pytestmark = pytest.mark.skipif(not (ANSIBLE / ".ready").exists(), reason="needs Ansible: `make ansible` installs it")

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": "443"}
SSH = {"id": "ssh", "action": "permit", "protocol": "tcp", "source": "@office", "destination_ports": 22}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Served) -> Iterator[Client]:
    with service.client() as client:
        yield client


def ansible(program: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{ANSIBLE}/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
    }
    return subprocess.run([program, *words], env=environment, cwd=home, capture_output=True, text=True, check=False)


class Modules:
    """Runs tasks of one playbook after the other, and remembers what each task came to."""

    def __init__(self, service: Served, home: Path) -> None:
        self._home = home
        self._service = {"url": service.url, "token": service.token}

    def run(self, *tasks: tuple[str, dict[str, object]], check: bool = False) -> list[dict[str, object]]:
        """What each task came to: modules by name with their arguments, in one play."""
        written = [
            {f"aclflow.cloud.{name}": {**self._service, **given}, "ignore_errors": True} for name, given in tasks
        ]
        play = [{"hosts": "localhost", "gather_facts": False, "tasks": written}]
        book = self._home / "play.yml"
        book.write_text(yaml.safe_dump(play))
        callback = self._home / "callback_plugins"
        callback.mkdir(exist_ok=True)
        (callback / "whole.py").write_text(_WHOLE)
        (self._home / "ansible.cfg").write_text(
            "[defaults]\nstdout_callback = whole\ncallback_plugins = callback_plugins\n"
        )
        words = (str(book), "--diff", *(["--check"] if check else []))
        done = ansible("ansible-playbook", *words, home=self._home)
        results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(results) == len(tasks), done.stdout + done.stderr
        return results


_WHOLE = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "whole"

    def v2_runner_on_ok(self, result):
        self._display.display(json.dumps(result.result))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._display.display(json.dumps({**result.result, "failed": True}))
"""


@pytest.fixture
def modules(service: Served, tmp_path: Path) -> Modules:
    return Modules(service, tmp_path)


def test_domain_prefixes_and_list_are_checked_written_and_left_alone(modules: Modules, admin: Client) -> None:
    dns = {"id": "dns", "action": "permit", "protocol": "udp", "destination": "192.0.2.53", "destination_ports": 53}
    story = (
        ("aclflow_domain", {"name": "one", "operator_rules": [dns], "path_mtu_rate": 7}),
        ("aclflow_prefix", {"tenant": "shop", "domain": "one", "prefixes": ["198.51.100.0/24", "2001:db8:1::/48"]}),
        (
            "aclflow_acl",
            {"tenant": "shop", "rules": [WEB, SSH], "groups": {"office": {"prefixes": ["203.0.113.0/28"]}}},
        ),
    )
    tried = modules.run(*story[:2], check=True)
    assert [each["changed"] for each in tried] == [True, True]
    assert tried[0]["diff"]["after"]["return_traffic"] == "established"
    with pytest.raises(NotFound):
        admin.domains.read("one")
    done = modules.run(*story)
    assert [each["changed"] for each in done] == [True, True, True], done
    assert [rule.id for rule in admin.domains.read_operator_rules("one")] == ["dns"]
    assert [rule.id for rule in admin.acls.read_rules("shop")] == ["web", "ssh"]
    assert done[2]["generation"] == admin.domains.read("one").generation
    again = modules.run(*story)
    assert [each["changed"] for each in again] == [False, False, False], again
    assert [each["changed"] for each in modules.run(*story, check=True)] == [False, False, False]


def test_quotas_are_checked_written_left_alone_and_taken_away(modules: Modules, admin: Client) -> None:
    admin.domains.create("full")
    admin.tenants.create("big", domain="full")
    set_all = ("aclflow_quota", {"tenant": "big", "rules": 20, "streams": 2, "analysis_seconds": 5})
    (tried,) = modules.run(set_all, check=True)
    assert tried["changed"]
    assert admin.tenants.read_quota("big").rules is None
    done, again, moved = modules.run(set_all, set_all, ("aclflow_quota", {"tenant": "big", "rules": -1, "streams": 3}))
    assert [each["changed"] for each in (done, again, moved)] == [True, False, True]
    assert done["diff"]["after"]["analysis_seconds"] == 5  # type: ignore[index]
    found = admin.tenants.read_quota("big")
    assert (found.rules, found.streams, found.analysis_seconds) == (None, 3, 5), "what is left out stays"
    assert moved["quota"] == {
        "rules": None, "flows": None, "stored_bytes": None, "versions": None, "streams": 3, "analysis_seconds": 5,
    }  # fmt: skip
    below, both, nobody, gone = modules.run(
        ("aclflow_quota", {"tenant": "big", "flows": -2}),
        ("aclflow_quota", {"tenant": "big", "flows": 3, "state": "absent"}),
        ("aclflow_quota", {"tenant": "nobody", "flows": 3}),
        ("aclflow_quota", {"tenant": "big", "state": "absent"}),
    )
    assert [each.get("failed", False) for each in (below, both, nobody, gone)] == [True, True, True, False]
    assert "flows: -2 is no limit" in str(below["msg"])
    assert "nobody" in str(nobody["msg"])
    found = admin.tenants.read_quota("big")
    assert (found.streams, found.analysis_seconds) == (None, None)


def test_a_dry_run_of_a_list_is_reviewed_and_changes_nothing(modules: Modules, admin: Client) -> None:
    admin.domains.create("dry")
    admin.tenants.create("careful", domain="dry")
    shadowed = {"id": "again", "action": "deny", "protocol": "tcp", "destination_ports": "443"}
    (seen,) = modules.run(("aclflow_acl", {"tenant": "careful", "rules": [WEB, shadowed]}), check=True)
    assert seen["changed"]
    assert sum(seen["counts"].values()) > 0, "a rule that never decides is found before it is written"
    assert [rule["id"] for rule in seen["diff"]["after"]["rules"]] == ["web", "again"]
    assert list(admin.acls.read_rules("careful")) == []
    wide, absent = modules.run(
        ("aclflow_acl", {"tenant": "careful", "rules": [WEB]}),
        ("aclflow_acl", {"tenant": "careful", "state": "absent"}),
    )
    assert wide["changed"]
    assert absent["changed"]
    assert list(admin.acls.read_rules("careful")) == []


def test_prefixes_come_and_go(modules: Modules, admin: Client) -> None:
    admin.domains.create("addresses")
    mine = {"tenant": "mover", "domain": "addresses"}
    first, same, more, only, gone = modules.run(
        ("aclflow_prefix", {**mine, "prefixes": ["203.0.113.0/28"]}),
        ("aclflow_prefix", {**mine, "prefixes": ["203.0.113.0/28"]}),
        ("aclflow_prefix", {**mine, "prefixes": ["203.0.113.16/28"]}),
        ("aclflow_prefix", {**mine, "prefixes": ["203.0.113.32/28"], "exclusive": True}),
        ("aclflow_prefix", {**mine, "prefixes": ["203.0.113.32/28"], "state": "absent"}),
    )
    assert [each["changed"] for each in (first, same, more, only, gone)] == [True, False, True, True, True]
    assert more["prefixes"] == ["203.0.113.0/28", "203.0.113.16/28"]
    assert only["prefixes"] == ["203.0.113.32/28"]
    assert gone["prefixes"] == []


def test_hosts_and_firewalls_come_and_go(modules: Modules, admin: Client) -> None:
    admin.domains.create("members")
    host = {"domain": "members", "name": "host1", "datapath_id": "00000000000000c1", "uplink": "eth1"}
    wall = {"domain": "members", "name": "fw1"}
    results = modules.run(
        ("aclflow_host", host), ("aclflow_host", host), ("aclflow_host", {**host, "uplink": "eth2"}),
        ("aclflow_firewall", wall), ("aclflow_firewall", wall),
        ("aclflow_host", {"domain": "members", "name": "host1", "state": "absent"}),
        ("aclflow_firewall", {**wall, "state": "absent"}), ("aclflow_firewall", {**wall, "state": "absent"}),
    )  # fmt: skip
    assert [each["changed"] for each in results] == [True, False, True, True, False, True, True, False]
    assert admin.domains.read_hosts("members") == ()


def test_endpoints_of_a_shared_leg_come_move_and_go(modules: Modules, admin: Client) -> None:
    admin.domains.create("legs")
    admin.tenants.create("leg", domain="legs", prefixes=[Prefix.parse("198.18.7.0/24")])
    first = {
        "domain": "legs", "name": "web1", "tenant": "leg", "port": "tenants", "mac": "02:00:00:00:00:1A",
        "prefixes": ["198.18.7.11"], "shared": True,
    }  # fmt: skip
    second = {**first, "name": "web2", "mac": "02:00:00:00:00:12", "prefixes": ["198.18.7.12/32"]}
    (tried,) = modules.run(("aclflow_endpoint", first), check=True)
    assert tried["changed"]
    assert admin.domains.read_endpoints("legs") == ()
    spelt = {**first, "mac": "02:00:00:00:00:1a", "prefixes": ["198.18.7.11/32"]}
    done, again, beside, moved, alone, gone, twice = modules.run(
        ("aclflow_endpoint", first), ("aclflow_endpoint", spelt), ("aclflow_endpoint", second),
        ("aclflow_endpoint", {**second, "port": "inside"}),
        ("aclflow_endpoint", {**second, "shared": False}),
        ("aclflow_endpoint", {"domain": "legs", "name": "web1", "state": "absent"}),
        ("aclflow_endpoint", {"domain": "legs", "name": "web1", "state": "absent"}),
    )  # fmt: skip
    assert [each["changed"] for each in (done, again, beside, moved)] == [True, False, True, True]
    assert done["diff"]["after"]["shared"] is True  # type: ignore[index]
    assert alone["failed"], "one that shares with nobody has its port to itself"
    assert [each["changed"] for each in (gone, twice)] == [True, False]
    (left,) = admin.domains.read_endpoints("legs")
    assert (left.name, left.port, left.shared) == ("web2", "inside", True)


def test_an_endpoint_that_lacks_something_is_refused_with_its_place(modules: Modules, admin: Client) -> None:
    admin.domains.create("lacking")
    admin.tenants.create("owner", domain="lacking", prefixes=[Prefix.parse("203.0.113.0/28")])
    whole = {
        "domain": "lacking", "name": "e", "tenant": "owner", "port": "veth1", "mac": "02:00:00:00:00:21",
        "prefixes": ["203.0.113.1"],
    }  # fmt: skip
    without, prefix, mac, others = modules.run(
        ("aclflow_endpoint", {key: value for key, value in whole.items() if key != "port"}),
        ("aclflow_endpoint", {**whole, "prefixes": ["203.0.113.1/28"]}),
        ("aclflow_endpoint", {**whole, "mac": "nothing"}),
        ("aclflow_endpoint", {**whole, "prefixes": ["192.0.2.1"]}),
    )
    assert all(each["failed"] for each in (without, prefix, mac, others))
    assert "port" in str(without["msg"])
    assert "has host bits set" in str(prefix["msg"])
    assert "mac" in str(mac["msg"])
    assert "192.0.2.1" in str(others["msg"])
    assert admin.domains.read_endpoints("lacking") == ()


def test_a_fleet_is_made_changed_drained_and_ended(modules: Modules, admin: Client, service: Served) -> None:
    admin.domains.create("clouded")
    fleet = {"domain": "clouded", "size": 2, "limits": {"fewest": 1, "most": 4}, "patience": {"build_s": 1800}}
    (tried,) = modules.run(("aclflow_fleet", fleet), check=True)
    assert tried["changed"]
    with pytest.raises(NotFound):
        admin.fleet.read("clouded")
    done, again, more = modules.run(
        ("aclflow_fleet", fleet), ("aclflow_fleet", fleet),
        ("aclflow_fleet", {"domain": "clouded", "spread": False, "limits": {"most": 5}}),
    )  # fmt: skip
    assert [each["changed"] for each in (done, again, more)] == [True, False, True]
    found = admin.fleet.read("clouded").settings
    assert (found["size"], found["spread"], found["patience"]["build_s"]) == (2, False, 1800)
    assert (found["limits"]["fewest"], found["limits"]["most"]) == (1, 5), "what is left out stays"
    assert more["settings"] == found
    auto, alarms, counted = modules.run(
        *(("aclflow_fleet", {"domain": "clouded", "size": size}) for size in ("auto", "alarms", 2))
    )
    assert [each["changed"] for each in (auto, alarms, counted)] == [True, True, True], "it has no VNF yet"
    assert alarms["settings"]["alarms"] is True  # type: ignore[index]
    assert (counted["settings"]["alarms"], counted["settings"]["size"]) == (False, 2)  # type: ignore[index]
    with service.service.parts.store.write() as unit:
        unit.fleets.ask("clouded", 2, Plane.NFTABLES, "a test")
    drain = ("aclflow_fleet", {"domain": "clouded", "drain": ["fw-1", "fw-9"]})
    (tried,) = modules.run(drain, check=True)
    assert tried["drained"] == ["fw-1"]
    assert {each.state for each in admin.fleet.read("clouded").members} == {"requested"}
    gone, twice = modules.run(drain, drain)
    assert [(each["changed"], each["drained"]) for each in (gone, twice)] == [(True, ["fw-1"]), (False, [])]
    assert {each.name: each.state for each in admin.fleet.read("clouded").members}["fw-1"] == "leaving"
    (off,) = modules.run(("aclflow_fleet", {"domain": "clouded", "size": 0}))
    assert (off["changed"], off["settings"]["size"]) == (True, 0)  # type: ignore[index]
    (held,) = modules.run(("aclflow_fleet", {"domain": "clouded", "state": "absent"}))
    assert held["failed"]
    assert "still has" in str(held["msg"])
    with service.service.parts.store.write() as unit:
        for state in (MemberState.FAILED, MemberState.GONE):
            for member in unit.fleets.members("clouded"):
                unit.fleets.advance(member, Step(state, "a test"))
    ended, over = modules.run(*[("aclflow_fleet", {"domain": "clouded", "state": "absent"})] * 2)
    assert [each["changed"] for each in (ended, over)] == [True, False]


def test_settings_of_a_fleet_that_are_none_are_refused_with_their_place(modules: Modules, admin: Client) -> None:
    admin.domains.create("odd")
    words, most, key = modules.run(
        ("aclflow_fleet", {"domain": "odd", "size": "many"}),
        ("aclflow_fleet", {"domain": "odd", "limits": {"fewest": 3, "most": 2}}),
        ("aclflow_fleet", {"domain": "odd", "limits": {"nothing": 1}}),
    )
    assert all(each["failed"] for each in (words, most, key))
    assert "size: 'many' is no number" in str(words["msg"])
    assert "limits.most" in str(most["msg"])
    assert "nothing" in str(key["msg"])


def test_what_is_wrong_is_said_with_its_place(modules: Modules, admin: Client) -> None:
    admin.domains.create("wrong")
    admin.tenants.create("clumsy", domain="wrong")
    admin.domains.add_host("wrong", Host("silent", 0xC9, "up"))
    rule, nobody, prefix, waits = modules.run(
        ("aclflow_acl", {"tenant": "clumsy", "rules": [{**WEB, "source": "10.0.0.0/33"}]}),
        ("aclflow_acl", {"tenant": "nobody", "rules": []}),
        ("aclflow_prefix", {"tenant": "clumsy", "prefixes": ["10.0.0.1/8"]}),
        ("aclflow_acl", {"tenant": "clumsy", "rules": [WEB], "wait_s": 1}),
    )
    assert "rules[0].source" in rule["msg"]
    assert "no tenant 'nobody'" in nobody["msg"]
    assert "has host bits set" in prefix["msg"]
    assert "silent" in waits["msg"]
    assert "never reported" in waits["msg"]


@pytest.fixture(scope="module")
def marked(admin: Client, service: Served) -> Iterator[Client]:
    """A domain in which another person must approve operator rules and the list of `watched`: that person."""
    admin.domains.create("guarded")
    admin.tenants.create("watched", domain="guarded")
    admin.proposals.set_approvals("guarded", operator_rules=True, tenants=["watched"])
    other = create_token(service.settings, Role.ADMIN, person="other", description="the other").secret
    with service.client(other) as client:
        yield client


def test_a_change_that_waits_for_approval_is_reported_waited_for_or_a_failure(
    modules: Modules, admin: Client, marked: Client
) -> None:
    dns = {"id": "dns", "action": "permit", "protocol": "udp", "destination": "192.0.2.53", "destination_ports": 53}
    of_list, of_domain = ProposedAbout(tenant="watched"), ProposedAbout(domain="guarded")
    acl = ("aclflow_acl", {"tenant": "watched", "rules": [WEB]})
    domain = ("aclflow_domain", {"name": "guarded", "operator_rules": [dns]})
    results = modules.run(acl, domain, acl, domain)
    assert [each["changed"] for each in results] == [True, True, False, False], "the second time both wait already"
    for each, about in zip(results, (of_list, of_domain, of_list, of_domain), strict=True):
        (waits,) = [one for one in admin.proposals.read_all(about) if one.state == "open"]
        assert f"another person must approve proposal {waits.id[:8]}" in str(each["msg"])
        assert each["proposal"]["id"] == waits.id  # type: ignore[index]
    assert list(admin.acls.read_rules("watched")) == []
    (fails,) = modules.run((acl[0], {**acl[1], "approval": "fail"}))
    assert fails["failed"]
    assert "nothing has changed yet" in str(fails["msg"])
    (late,) = modules.run((acl[0], {**acl[1], "approval": "wait", "approval_s": 1}))
    assert late["failed"]
    assert "not decided within 1 s" in str(late["msg"])
    marked.proposals.reject(of_list, next(one.id for one in admin.proposals.read_all(of_list) if one.state == "open"))


def test_what_is_decided_while_a_module_waits_is_its_result(modules: Modules, admin: Client, marked: Client) -> None:
    about = ProposedAbout(tenant="watched")
    task = ("aclflow_acl", {"tenant": "watched", "rules": [WEB], "approval": "wait", "wait_s": 30})

    def decide(verb: Callable[[str], object]) -> dict[str, object]:
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(modules.run, task)
            until(
                lambda: any(one.state == "open" for one in admin.proposals.read_all(about)),
                what=lambda: "nothing waits",
            )
            verb(next(one.id for one in admin.proposals.read_all(about) if one.state == "open"))
            (result,) = asked.result()
            return result

    refused = decide(lambda one: marked.proposals.reject(about, one, reason="too early"))
    assert refused["failed"]
    assert "is rejected by" in str(refused["msg"])
    assert "too early" in str(refused["msg"])
    done = decide(lambda one: marked.proposals.approve(about, one))
    assert (done["changed"], done["version"]) == (True, admin.tenants.read("watched").in_force.version)
    decided = cast("dict[str, str]", done["proposal"])
    token = decided["decided_by"].removeprefix("admin:")
    assert (decided["decided_by_name"], done["msg"]) == ("the other", f"approved by the other (admin {token})")
    assert [rule.id for rule in admin.acls.read_rules("watched")] == ["web"]


def test_the_inventory_knows_every_machine(service: Served, admin: Client, tmp_path: Path) -> None:
    admin.domains.create("pop-2")
    admin.domains.add_host("pop-2", Host("node1", 0xC5, "eth7"))
    admin.firewalls.add("pop-2", "wall1", "iptables")
    said = {
        "plugin": "aclflow.cloud.aclflow", "url": service.url, "token": service.token, "domains": ["pop-2"],
        "addresses": {"node1": "192.0.2.77"},
    }  # fmt: skip
    file = tmp_path / "pop.aclflow.yml"
    file.write_text(yaml.safe_dump(said))
    done = ansible("ansible-inventory", "-i", str(file), "--list", home=tmp_path)
    found = json.loads(done.stdout)
    assert found["hosts"]["hosts"] == ["node1"]
    assert found["firewalls"]["hosts"] == ["wall1"]
    assert sorted(found["domain_pop_2"]["hosts"]) == ["node1", "wall1"]
    node, wall = (found["_meta"]["hostvars"][name] for name in ("node1", "wall1"))
    assert (_text(node["ansible_host"]), _text(node["aclflow_uplink"])) == ("192.0.2.77", "eth7")
    assert (_text(wall["ansible_host"]), _text(wall["aclflow_firewall_plane"])) == ("wall1", "iptables")
    file.write_text(yaml.safe_dump({**said, "token": "wrong"}))
    assert "401" in ansible("ansible-inventory", "-i", str(file), "--list", home=tmp_path).stderr


def test_a_token_is_not_sent_in_clear_off_this_machine_unless_told_to(service: Served, tmp_path: Path) -> None:
    far = {"url": "http://192.0.2.1:8420", "timeout": 1, "name": "pop-9"}
    refused, allowed = Modules(service, tmp_path).run(
        ("aclflow_domain", far), ("aclflow_domain", {**far, "plain_http": True})
    )
    assert "plain_http" in str(refused["msg"])
    assert "http://192.0.2.1:8420" in str(refused["msg"])
    assert "does not answer" in str(allowed["msg"])
    file = tmp_path / "pop.aclflow.yml"
    file.write_text(yaml.safe_dump({"plugin": "aclflow.cloud.aclflow", "url": far["url"], "token": "x"}))
    assert "plain_http" in ansible("ansible-inventory", "-i", str(file), "--list", home=tmp_path).stderr


class _Cloud(BaseHTTPRequestHandler):
    """As much of Keystone and Nova as an inventory asks: a token, then servers, one a page."""

    NAMES: tuple[str, ...]

    def do_POST(self) -> None:
        nova = {"type": "compute", "endpoints": [{"interface": "public", "url": self._here("/compute")}]}
        self._answer({"token": {"catalog": [nova]}})

    def do_GET(self) -> None:
        number = int(self.path.partition("marker=")[2] or 0)
        addresses = {"management": [{"addr": f"192.0.2.{number}"}]}
        page: dict[str, object] = {"servers": [{"name": self.NAMES[number], "addresses": addresses}]}
        if number + 1 < len(self.NAMES):
            following = self._here(f"/compute/servers/detail?marker={number + 1}")
            page["servers_links"] = [{"rel": "next", "href": following}]
        self._answer(page)

    def _here(self, path: str) -> str:
        return f"http://{self.headers['Host']}{path}"

    def _answer(self, document: object) -> None:
        self.send_response(200)
        self.send_header("X-Subject-Token", "told")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


def test_the_inventory_takes_addresses_from_openstacks_servers(service: Served, admin: Client, tmp_path: Path) -> None:
    """By the machine's name, or by what the templates call it: the domain's name in front of it."""
    admin.domains.create("pop-3")
    for name in ("node1", "node2"):
        admin.domains.add_host("pop-3", Host(name, 0xD0 + int(name[-1]), "eth7"))
    admin.firewalls.add("pop-3", "wall1", "iptables")
    kind = type("Named", (_Cloud,), {"NAMES": ("pop-3-node1", "node2", "wall1")})
    with ThreadPoolExecutor(1) as running, ThreadingHTTPServer(("127.0.0.1", 0), kind) as cloud:
        running.submit(cloud.serve_forever)
        sky = {"auth_url": f"http://127.0.0.1:{cloud.server_port}/v3", "username": "a", "password": "b"}
        said = {
            "plugin": "aclflow.cloud.aclflow", "url": service.url, "token": service.token, "domains": ["pop-3"],
            "openstack": {**sky, "project": "infrastructure", "network": "management"},
        }  # fmt: skip
        file = tmp_path / "pop.aclflow.yml"
        file.write_text(yaml.safe_dump(said))
        done = ansible("ansible-inventory", "-i", str(file), "--list", home=tmp_path)
        cloud.shutdown()
    about = json.loads(done.stdout)["_meta"]["hostvars"]
    found = {name: _text(said["ansible_host"]) for name, said in about.items()}
    assert found == {"node1": "192.0.2.0", "node2": "192.0.2.1", "wall1": "192.0.2.2"}


def _text(value: object) -> object:
    """What comes from a service is marked as such, and no template is looked for in it."""
    return value["__ansible_unsafe"] if isinstance(value, dict) else value


@pytest.mark.parametrize("module", ["acl", "domain", "firewall", "host", "prefix", "quota"])
def test_the_documentation_is_complete(module: str, tmp_path: Path) -> None:
    done = ansible("ansible-doc", "--json", "-t", "module", f"aclflow.cloud.aclflow_{module}", home=tmp_path)
    (page,) = json.loads(done.stdout).values()
    assert page["doc"]["attributes"]["check_mode"]["support"] == "full"
    assert {"url", "token", "state"} <= page["doc"]["options"].keys()
    assert page["examples"].strip()


def test_the_reference_page_says_what_the_collection_says() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "ansible/reference.py"], capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "docs/ansible.md").read_text() == made, "make docs"


def test_the_collection_holds_all_that_it_needs(tmp_path: Path) -> None:
    """Built as a whole: the units, which are linked to from it, come along as files."""
    built = ansible("ansible-galaxy", "collection", "build", str(ROOT / "ansible"), home=tmp_path)
    assert built.returncode == 0, built.stderr
    with tarfile.open(next(tmp_path.glob("aclflow-cloud-*.tar.gz"))) as archive:
        unit = archive.extractfile("roles/unit/files/aclflow.service")
        assert unit is not None
        assert unit.read() == (ROOT / "packaging/systemd/aclflow.service").read_bytes()


def test_what_a_failure_is_put_down_to(tmp_path: Path) -> None:
    """The program that failed is quoted; of a loop, the item that did."""
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = aclflow.cloud.steps\n")
    loop = {"command": "{{ item }}", "loop": ["true", "cat /nothing-here", "true"]}
    for task in ({"command": "cat /nothing-here"}, loop):
        (tmp_path / "play.yml").write_text(
            yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}])
        )
        done = ansible("ansible-playbook", "play.yml", home=tmp_path)
        (step,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert step["state"] == "failed"
        assert "/nothing-here: No such file or directory" in step["message"], step


def test_what_was_said_instead_of_a_modules_answer(tmp_path: Path) -> None:
    interpreter = tmp_path / "python3"
    interpreter.write_text("#!/bin/sh\necho sudo: not found\nexit 127\n")
    interpreter.chmod(0o755)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = aclflow.cloud.steps\n")
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"command": "true"}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = ansible("ansible-playbook", "-e", f"ansible_python_interpreter={interpreter}", "play.yml", home=tmp_path)
    assert "sudo: not found" in done.stdout
