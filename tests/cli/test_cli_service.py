"""The commands that talk to a service, against a real one on a loopback port; and those that work on its database."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from interleaving import happen_before
from patience import PATIENCE_S
from served import Served

from orchestrator.client import PointReport
from orchestrator.hosts.switch import datapath_of
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Role
from orchestrator.wire.common import author_in_words

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 80, "destination": "198.51.100.0/24"}
LISTED = json.dumps({"rules": [WEB]})

Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant in a domain of its own without hosts, so that everything is enforced at once."""
    name = f"t-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    yield name
    run("tenant", "delete", name, "--yes")


def test_a_tenants_life(run: Run) -> None:
    assert run("domain", "create", "life").code == 0
    made = run("tenant", "create", "blue", "--domain", "life", "--prefix", "203.0.113.0/24", "--json")
    assert (made.code, made.json()["prefixes"]) == (0, ["203.0.113.0/24"])
    assert run("tenant", "prefix", "add", "blue", "2001:db8::/32").code == 0
    assert "2001:db8::/32" in run("tenant", "list").out
    assert run("tenant", "prefix", "delete", "blue", "2001:db8::/32").code == 0
    assert [one["prefixes"] for one in run("tenant", "list", "--json").json() if one["id"] == "blue"] == [
        ["203.0.113.0/24"]
    ]
    taken = run("tenant", "create", "red", "--domain", "life", "--prefix", "203.0.113.0/25")
    assert taken.code == 1, "somebody owns it: the answer is no"
    assert taken.err.startswith("aclflow: ")
    refused = run("tenant", "delete", "blue")
    assert (refused.code, "--yes" in refused.err) == (2, True), "nobody can be asked"
    assert "blue of domain life owns 203.0.113.0/24; with it go 0 rules" in refused.out
    assert run("tenant", "delete", "blue", "--yes").code == 0
    assert run("tenant", "delete", "blue", "--yes").code == 1


def test_a_tenant_goes_after_its_rules_are_shown_and_not_while_it_has_endpoints(
    run: Run, tenant: str, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("acl", "apply", tenant, "-", "--yes", stdin=LISTED).code == 0
    asked = run("tenant", "delete", tenant)
    assert f"{tenant} of domain d-{tenant} owns 198.51.100.0/24; with it go 1 rule" in asked.out
    assert "  - web  ingress permit tcp" in asked.out
    with service.client() as client:
        end = Endpoint("web1", TenantId(tenant), "tap1", 0x020000000001, (Prefix.parse("198.51.100.7"),))
        client.domains.put_endpoint(f"d-{tenant}", end)
        refused = run("tenant", "delete", tenant, "--yes")
        assert refused.code == 1
        assert refused.err == (
            f"aclflow: the tenant still has endpoints (web1): first `aclflow domain endpoint remove d-{tenant} web1`\n"
        )
        client.domains.remove_endpoint(f"d-{tenant}", "web1")

    def change(_: object) -> None:
        assert run("tenant", "set", tenant, "--name", "Shop").code == 0

    happen_before(monkeypatch, "tenants.delete", change)
    assert "run it again" in run("tenant", "delete", tenant, "--yes").err


def test_the_tenants_of_a_file_are_made_together(run: Run) -> None:
    assert run("domain", "create", "imported").code == 0
    text = "# ours\nimp-1 10.92.1.0/24 2001:dead:92::/48\n\nimp-2  # later\n"
    ended = run("tenant", "import", "-", "--domain", "imported", stdin=text)
    assert (ended.code, ended.out.startswith("2 tenants of domain imported")) == (0, True)
    owned = {one["id"]: one["prefixes"] for one in run("tenant", "list", "--json").json()}
    assert (owned["imp-1"], owned["imp-2"]) == (["10.92.1.0/24", "2001:dead:92::/48"], [])
    for wrong, words in (
        ("imp-3 10.92.1.0/33", "standard input:1"),
        ("imp-3\nimp-3", "standard input:2"),
        ("# nobody", "no tenant"),
        ("imp-3\nimp-1", "tenants[1].id"),
    ):
        ended = run("tenant", "import", "-", "--domain", "imported", stdin=wrong)
        assert ended.code in (1, 2)
        assert words in ended.err, ended.err
    assert run("tenant", "import", "/nowhere", "--domain", "imported").code == 3
    assert "imp-3" not in run("tenant", "list").out


def test_apply_waits_until_it_is_enforced(run: Run, tenant: str) -> None:
    ended = run("acl", "apply", tenant, "-", "--yes", "--json", stdin=LISTED)
    assert ended.code == 0
    assert (ended.json()["enforced"], ended.json()["changed"]) == (True, True)
    again = run("acl", "apply", tenant, "-", "--yes", stdin=LISTED)
    assert (again.code, "as it was" in again.out) == (0, True)
    shown = run("acl", "show", tenant)
    assert "web\tingress\tpermit\ttcp\tany\t198.51.100.0/24\tport 80" in shown.out
    back = run("acl", "diff", "-", "/dev/null", "-f", "native", stdin=run("acl", "show", tenant, "--json").out)
    assert back.code == 2, "an empty file is no list"
    assert run("acl", "show", tenant, "--format", "iptables").out.count("--dport 80") == 1
    assert run("acl", "versions", tenant, "--json").json()[0]["rules"] == 1
    assert run("acl", "hits", tenant).out.splitlines()[1].startswith("web\t0\t0\t")


def test_a_refused_list_changes_nothing(run: Run, tenant: str) -> None:
    run("acl", "apply", tenant, "-", "--yes", stdin=LISTED)
    foreign = json.dumps({"rules": [{**WEB, "destination": "192.0.2.0/24"}]})
    ended = run("acl", "apply", tenant, "-", "--yes", stdin=foreign)
    assert ended.code == 1
    assert "aclflow: rules[0].destination: 192.0.2.0/24 is not among the tenant's own prefixes" in ended.err
    assert run("acl", "show", tenant, "--json").json()["rules"] == [{**WEB, "direction": "ingress"}]


def test_review_changes_nothing_and_shows_all(run: Run, tenant: str) -> None:
    run("acl", "apply", tenant, "-", "--yes", stdin=LISTED)
    twice = json.dumps({"rules": [WEB, {**WEB, "id": "again"}]})
    ended = run("acl", "review", tenant, "-", "--json", stdin=twice)
    assert ended.code == 1
    assert [(one["kind"], one["rules"]) for one in ended.json()["findings"]] == [("duplicate", ["again", "web"])]
    assert ended.json()["difference"] == []
    more = run("acl", "review", tenant, "-", stdin=LISTED.replace("80", "81"))
    assert "+ ingress: tcp" in more.out
    assert "- ingress: tcp" in more.out
    assert run("acl", "review", tenant, "-", stdin=LISTED).code == 0
    assert len(run("acl", "show", tenant, "--json").json()["rules"]) == 1


def test_trace_asks_the_service(run: Run, tenant: str) -> None:
    run("acl", "apply", tenant, "-", "--yes", stdin=LISTED)
    packet = ("-s", "192.0.2.1", "-d", "198.51.100.7", "--port")
    permitted = run("acl", "trace", tenant, *packet, "80")
    assert (permitted.code, "permit, by rule 'web'" in permitted.out) == (0, True)
    denied = run("acl", "trace", tenant, *packet, "22", "--json")
    assert (denied.code, denied.json()["action"]) == (1, "deny")


def test_a_host_is_known_by_what_its_machine_is_given_or_what_is_said(run: Run, service: Served) -> None:
    """A machine that is configured later, by its cloud say, has the datapath id that follows from its name."""
    run("domain", "create", "known")
    assert run("domain", "host", "add", "known", "acl-0", "--uplink", "up0").code == 0
    assert run("domain", "host", "add", "known", "acl-1", "--uplink", "up0", "--datapath-id", "0xB1").code == 0
    wrong = run("domain", "host", "add", "known", "acl-2", "--uplink", "up0", "--datapath-id", "a1b2c3d4e5f6a7b8c")
    assert (wrong.code, "--datapath-id" in wrong.err) == (2, True)
    with service.client() as client:
        assert {host.name: host.datapath_id for host in client.domains.read_hosts("known")} == {
            "acl-0": datapath_of("known", "acl-0"),
            "acl-1": 0xB1,
        }


def test_hosts_that_lag_are_named_and_the_answer_is_no(run: Run, service: Served) -> None:
    run("domain", "create", "slow")
    run("tenant", "create", "waiting", "--domain", "slow", "--prefix", "192.0.2.0/24")
    assert run("domain", "host", "add", "slow", "h1", "--datapath-id", "00000000000000a1", "--uplink", "up0").code == 0
    listed = '{"rules": [{"id": "all", "action": "permit"}]}'
    ended = run("acl", "apply", "waiting", "-", "--yes", "--timeout", "0.2", stdin=listed)
    assert ended.code == 1
    assert "generation" in ended.out, "it is the tenant's list all the same"
    assert run("acl", "apply", "waiting", "-", "--yes", "--no-wait", stdin=listed).code == 0
    assert run("domain", "wait", "slow", "--timeout", "0.2").code == 1
    assert "h1 never reported" in ended.err
    assert "is not in force on every host after 0.2 s" in ended.err
    token = run("domain", "invite", "slow").out.strip()
    with service.client() as client:
        who = client.enrolment.enrol(token, name="c1", kind="openflow")
        goal = client.domains.read("slow").generation
    with service.client(who.token) as enforcer:
        enforcer.points.report("slow", who.enforcer, points=[PointReport("h1", goal, b"\0" * 16, "enforced")])
    shown = run("domain", "show", "slow", "--json").json()
    assert ([one["name"] for one in shown["hosts"]], [one["name"] for one in shown["enforcers"]]) == (["h1"], ["c1"])
    assert run("domain", "show", "slow").code == 0


def test_endpoints_come_and_go(run: Run, tenant: str) -> None:
    domain = f"d-{tenant}"
    where = ("--tenant", tenant, "--port", "tap1", "--mac", "02:00:00:00:00:01")
    assert run("domain", "endpoint", "add", domain, "vm1", *where, "--prefix", "198.51.100.7/32").code == 0
    (endpoint,) = run("domain", "show", domain, "--json").json()["endpoints"]
    assert (endpoint["mac"], endpoint["prefixes"]) == ("02:00:00:00:00:01", ["198.51.100.7/32"])
    assert not endpoint["shared"]
    assert run("domain", "endpoint", "remove", domain, "vm1").code == 0
    bad = run(
        "domain", "endpoint", "add", domain, "vm1", "-t", tenant, "--port", "x", "--mac", "nonsense", "--prefix", "::/0"
    )
    assert (bad.code, bad.err.startswith("aclflow: --mac: 'nonsense'")) == (2, True)


def test_a_port_leads_to_several_endpoints_where_each_says_so(run: Run, tenant: str) -> None:
    domain, at = f"d-{tenant}", ("--tenant", tenant, "--port", "inside")
    one = ("vm1", "--mac", "02:00:00:00:00:01", "--prefix", "198.51.100.7/32")
    other = ("vm2", "--mac", "02:00:00:00:00:02", "--prefix", "198.51.100.8/32")
    assert run("domain", "endpoint", "add", domain, *one, *at, "--shared").code == 0
    refused = run("domain", "endpoint", "add", domain, *other, *at)
    assert refused.code == 1
    assert "endpoint 'vm1' has port 'inside' already: each must be declared shared" in refused.err
    assert run("domain", "endpoint", "add", domain, *other, *at, "--shared").code == 0
    shown = run("domain", "show", domain, "--json").json()["endpoints"]
    assert [(each["name"], each["port"], each["shared"]) for each in shown] == [
        ("vm1", "inside", True), ("vm2", "inside", True)
    ]  # fmt: skip
    for name in ("vm1", "vm2"):
        assert run("domain", "endpoint", "remove", domain, name).code == 0


def test_a_wrong_token_and_a_tenant_that_is_not_there_are_a_no(run: Run) -> None:
    assert run("tenant", "list", token="aclflow_wrong").code == 1
    assert run("acl", "show", "nobody").code == 1


def test_a_reader_may_look_and_not_write(run: Run, service: Served, tenant: str) -> None:
    reader = service.make_token(Role.READER, tenant)
    assert run("acl", "show", tenant, token=reader).code == 0
    assert run("acl", "apply", tenant, "-", "--yes", stdin=LISTED, token=reader).code == 1


def test_a_service_that_does_not_answer_is_not_there(service: Served) -> None:
    environment = {"ACLFLOW_URL": "http://127.0.0.1:1", "ACLFLOW_TOKEN": "x"}
    ended = aclflow("tenant", "list", environment=environment)
    assert ended.code == 3
    assert ended.err.startswith("aclflow: the service at http://127.0.0.1:1 does not answer")
    assert aclflow("tenant", "list", "--url", service.url, environment={"ACLFLOW_TOKEN": service.token}).code == 0


# ------------------------------------------------------------------------------------------------------- the database


def test_the_database_is_made_once_and_tokens_come_from_it(tmp_path: Path) -> None:
    environment = {"ACLFLOW_STATE_DIR": str(tmp_path)}
    first = aclflow("db", "upgrade", environment=environment)
    again = aclflow("db", "upgrade", environment=environment)
    assert (first.code, again.code) == (0, 0)
    assert "was none" in first.out
    assert "as it was" in again.out
    token = aclflow("db", "token", "--role", "admin", "--days", "1", "--json", environment=environment).json()
    assert token["token"].startswith("aclflow_")
    assert token["expires"] is not None
    both = ("--days", "1", "--expires", "2030-01-01")
    assert aclflow("db", "token", "--role", "admin", *both, environment=environment).code == 2
    nobody = aclflow("db", "token", "--role", "member", "--tenant", "nobody", environment=environment)
    assert (nobody.code, nobody.out) == (1, "")


def test_a_state_directory_that_cannot_be_made_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = aclflow("db", "token", "--role", "admin", environment={"ACLFLOW_STATE_DIR": str(tmp_path / "file" / "x")})
    assert ended.code == 3


def test_tokens_are_listed_and_revoked(run: Run, service: Served) -> None:
    secret = service.make_token(Role.ADMIN)
    listed = run("token", "list", "--json").json()
    newest = max(listed, key=lambda one: one["id"])
    assert newest["role"] == "admin"
    assert not any(secret in str(one) for one in listed), "no secret is shown again"
    assert f"{newest['id']}\tadmin" in run("token", "list").out
    assert run("tenant", "list", token=secret).code == 0
    assert run("token", "revoke", str(newest["id"])).code == 0
    assert run("tenant", "list", token=secret).code == 1
    assert run("token", "revoke", str(newest["id"])).code == 1
    assert run("token", "revoke", "x").code == 2


def test_a_domain_is_deleted_once_it_is_empty(run: Run) -> None:
    run("domain", "create", "brief")
    run("tenant", "create", "guest", "--domain", "brief")
    refused = run("domain", "delete", "brief")
    assert (refused.code, refused.err) == (
        1,
        "aclflow: the domain still has tenants: first `aclflow tenant delete guest`\n",
    )
    assert run("tenant", "delete", "guest", "--yes").code == 0
    assert run("domain", "delete", "brief").code == 0
    assert run("domain", "show", "brief").code == 1


# ---------------------------------------------------------------------------------------------------- groups, quotas


def test_a_groups_life(run: Run, tenant: str) -> None:
    assert run("group", "put", tenant, "office", "192.0.2.0/24", "--description", "desks").code == 0
    assert run("group", "add", tenant, "office", "203.0.113.7", "2001:db8::/32").code == 0
    assert run("group", "show", tenant, "office").out.split() == ["192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32"]
    assert run("group", "remove", tenant, "office", "192.0.2.0/24").code == 0
    assert run("group", "remove", tenant, "office", "192.0.2.0/24").code == 1
    assert run("group", "list", tenant, "--json").json() == [
        {"name": "office", "description": "desks", "members": 2, "rules": []}
    ]
    listed = run("acl", "show", tenant, "--json").json()
    del listed["taken_from"]
    using = json.dumps({**listed, "rules": [{**WEB, "source": "@office"}]})
    assert run("acl", "apply", tenant, "-", "--yes", stdin=using).code == 0
    refused = run("group", "delete", tenant, "office")
    assert (refused.code, "web" in refused.err) == (1, True)
    assert run("acl", "apply", tenant, "-", "--yes", stdin=json.dumps(listed)).code == 0
    assert run("group", "delete", tenant, "office").code == 0
    assert run("group", "show", tenant, "office").code == 1
    assert run("group", "add", tenant, "office", "nonsense").code == 2


def test_a_quota_is_set_shown_and_held(run: Run, tenant: str) -> None:
    assert run("tenant", "quota", "set", tenant, "--rules", "1").code == 0
    assert run("acl", "apply", tenant, "-", "--yes", stdin=LISTED).code == 0
    two = json.dumps({"rules": [WEB, {**WEB, "id": "second"}]})
    refused = run("acl", "apply", tenant, "-", "--yes", stdin=two)
    assert (refused.code, "the quota is 1" in refused.err) == (1, True)
    shown = run("tenant", "quota", "show", tenant, "--json").json()
    assert (shown["rules"], shown["flows"], shown["used"]["rules"]) == (1, None, 1)
    assert run("tenant", "quota", "set", tenant, "--flows", "5").code == 0
    assert run("tenant", "quota", "show", tenant).out.splitlines()[1:] == [
        "rules\t1\t1",
        f"flow entries\t5\t{shown['used']['flows']}",
        f"stored bytes\tno limit\t{shown['used']['stored_bytes']}",
        "streams\tno limit\t0",
        f"analysis seconds a minute\tno limit\t{shown['used']['analysis_seconds']}",
    ]
    assert "no limit" in run("tenant", "quota", "set", tenant, "--rules", "none", "--flows", "none").out
    assert run("tenant", "quota", "set", tenant, "--rules", "few").code == 2


def test_versions_are_compared_blamed_and_taken_back(run: Run, tenant: str) -> None:
    packet = ("-s", "192.0.2.1", "-d", "198.51.100.1", "--port", "80")
    for document in (LISTED, json.dumps({"rules": []})):
        assert run("acl", "apply", tenant, "-", "--yes", stdin=document).code == 0
    compared = run("acl", "diff", f"{tenant}@1", tenant)
    assert (compared.code, compared.out.startswith("- ingress: tcp ")) == (1, True)
    assert run("acl", "diff", f"{tenant}@1", f"{tenant}@1").code == 0
    blamed = run("acl", "blame", tenant, *packet, "--json").json()
    assert (blamed["after"]["version"], blamed["before"]["rule"]) == (2, "web")
    assert "since: version 2: deny, by the default" in run("acl", "blame", tenant, *packet).out
    assert run("acl", "restore", tenant, "1", "--yes").code == 0
    halved = run("acl", "bisect", tenant, *packet)
    assert (halved.code, "after: version" in halved.out) == (0, True)
    assert run("acl", "show", tenant, "--json").json()["rules"][0]["id"] == "web"


def test_events_are_shown_and_followed(run: Run, tenant: str, service: Served) -> None:
    assert run("acl", "apply", tenant, "-", "--yes", stdin=LISTED).code == 0
    shown = run("events", "--tenant", tenant, "--json").json()
    assert [each["kind"] for each in shown] == ["tenant.created", "acl.replaced"]
    assert "acl.replaced" in run("events", "--tenant", tenant, "--kind", "acl.replaced").out
    detail = shown[1]["detail"]
    assert f"by {author_in_words(detail['by'], detail.get('by_name', ''))}, version 1" in run("events").out
    assert run("events", "--last", "0").out == ""
    command = [sys.executable, "-m", "orchestrator.cli", "events", "--follow", "--json", "--last", "1", "-t", tenant]
    environment = os.environ | {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["kind"] == "acl.replaced"
        run("acl", "apply", tenant, "-", "--yes", stdin=json.dumps({"rules": []}))
        assert json.loads(following.stdout.readline())["detail"]["version"] == 2
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=PATIENCE_S) == 130


def test_what_a_list_costs_is_shown(run: Run) -> None:
    told = run("acl", "cost", "-", stdin=LISTED)
    assert (told.code, "tcam: " in told.out, "iptables: " in told.out) == (0, True, True)
    assert run("acl", "cost", "-", "--json", stdin=LISTED).json()["files"][0]["ingress"]["rules"] == 1


def test_traffic_is_spread_as_a_file_says(run: Run, tenant: str, tmp_path: Path) -> None:
    domain, file = f"d-{tenant}", tmp_path / "spread.json"
    assert run("spread", "show", domain).code == 1, "it never was"
    links = [{"port": f"p{index}", "mac": f"0a:00:00:00:00:0{index}"} for index in range(4)]
    described = [
        {"name": f"fw{number}", "number": number, "left": links[2 * number], "right": links[2 * number + 1]}
        for number in range(2)
    ]
    file.write_text(json.dumps({"firewalls": described}))
    assert "is spread over 2 firewalls from" in run("spread", "set", domain, str(file)).out
    shown = run("spread", "show", domain)
    assert shown.code == 0
    assert shown.out.count("50.0%") == 2
    seen = run("spread", "show", domain, "--json").json()
    assert [each["buckets"] for each in seen["firewalls"]] == [128, 128]
    file.write_text(json.dumps({"firewalls": described[:1]}))
    refused = run("spread", "set", domain, str(file))
    assert (refused.code, "- fw1" in refused.out, "--yes" in refused.err) == (2, True, True), refused
    for wrong in ("[]", "{", '{"firewalls": [{"name": "x"}]}'):
        file.write_text(wrong)
        refused = run("spread", "set", domain, str(file))
        assert refused.code == 2
        assert str(file) in refused.err
    assert run("spread", "show", domain, "--json").json() == seen
    file.write_text(json.dumps({"firewalls": described[:1]}))
    assert "is spread over 1 firewall from" in run("spread", "set", domain, str(file), "--yes").out
