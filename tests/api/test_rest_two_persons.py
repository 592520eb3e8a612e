"""Two persons: what a domain marks goes out only when another person has approved it, whichever way it was asked."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from patience import until
from served import Served

from api.app import openapi_document
from orchestrator.client import Client
from orchestrator.client.proposals import ProposedAbout
from orchestrator.errors import Conflict, Forbidden, NotFound, Stale, TooLarge, Unauthenticated
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, acl_to_json, rule_from_json
from orchestrator.policy.model import Acl, Endpoint, ReturnTraffic, TenantId
from orchestrator.store.records import Role
from orchestrator.wire.common import Approvals, Proposal

_numbers = itertools.count(1)


def rules(*names: str, **more: Any) -> Acl:
    """A list of permits."""
    permits = [{"id": name, "action": "permit", "protocol": "tcp", "destination_ports": "80"} for name in names]
    return acl_from_json({"rules": permits, **more})


@dataclass(frozen=True)
class World:
    """A domain with a marked tenant, two members of it and two administrators, all of them other persons."""

    served: Served
    domain: str
    tenant: str
    number: int
    admin: Client
    other_admin: Client
    member: Client
    other_member: Client
    member_token: str

    @property
    def about(self) -> ProposedAbout:
        return ProposedAbout(tenant=self.tenant)

    @property
    def about_domain(self) -> ProposedAbout:
        return ProposedAbout(domain=self.domain)

    def ids(self) -> list[str]:
        return [rule.id for rule in self.admin.acls.read(self.tenant).acl.rules]

    def state(self) -> object:
        """All that must not change before somebody else has approved it."""
        seen = self.admin.domains.read(self.domain)
        return (
            self.admin.acls.read(self.tenant),
            self.admin.domains.read_operator_rules_with_etag(self.domain),
            self.admin.proposals.read_approvals(self.domain),
            self.admin.tenants.read(self.tenant).prefixes,
            [each.name for each in self.admin.domains.read_endpoints(self.domain)],
            (seen.generation, seen.return_traffic),
        )

    def open(self, about: ProposedAbout) -> list[Proposal]:
        return [each for each in self.admin.proposals.read_all(about) if each.state == "open"]


@pytest.fixture
def world(service: Served, admin: Client) -> Iterator[World]:
    number = next(_numbers)
    domain, tenant = f"pop{number}", f"t{number}"
    admin.domains.create(domain)
    admin.tenants.create(tenant, domain=domain, prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    admin.acls.put(tenant, rules("web", groups={"g": {"prefixes": ["192.0.2.0/24"]}}))
    endpoint = Endpoint(f"db{number}", TenantId(tenant), f"p{number}", 0x020000000000 + number, prefixes_of(number, 5))
    admin.domains.put_endpoint(domain, endpoint)
    admin.acls.insert_rule(
        tenant, rule_from_json({"id": "db", "action": "permit", "destination": f"@endpoint:{endpoint.name}"})
    )
    admin.domains.set_operator_rules(domain, [rule_from_json({"id": "o1", "action": "deny", "protocol": "udp"})])
    admin.proposals.set_approvals(domain, operator_rules=True, tenants=[tenant])
    tokens = [service.make_token(Role.ADMIN), *(service.make_token(Role.MEMBER, tenant) for _ in range(2))]
    clients = [service.client(token) for token in tokens]
    yield World(service, domain, tenant, number, admin, *clients, tokens[1])
    for client in clients:
        client.close()


def prefixes_of(number: int, host: int) -> tuple[Prefix, ...]:
    return (Prefix.parse(f"10.{number}.0.{host}/32"),)


def test_a_change_waits_until_another_person_has_approved_it(world: World) -> None:
    before = world.state()
    written = world.member.acls.put(world.tenant, rules("web", "more"), comment="because of more")
    assert written.proposal is not None
    assert not written.changed
    assert world.state() == before
    found = world.other_member.proposals.read(world.about, written.proposal.id)
    assert (found.state, found.has_moved, found.comment, found.kind) == ("open", False, "because of more", "list")
    changed = world.other_member.proposals.approve(world.about, found.id)
    assert (world.ids(), changed.changed) == (["web", "more"], True)
    assert world.admin.proposals.read(world.about, found.id).state == "approved"
    (newest, *_) = world.admin.acls.read_versions(world.tenant)
    assert (newest.author, newest.comment) == (found.author, "because of more")


def test_the_trail_tells_of_both_persons(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules()).proposal
    assert made is not None
    world.other_member.proposals.approve(world.about, made.id)
    entries = {
        entry.kind: entry
        for entry in world.admin.audit.read_entries({"subject": world.tenant})
        if entry.kind in ("proposal.made", "proposal.approved", "acl.replaced")
    }
    author, approver = made.author, entries["proposal.approved"].who
    assert entries["proposal.made"].who == author != approver
    said = entries["acl.replaced"]
    assert (said.detail["proposed_by"], said.detail["approved_by"]) == (author, approver)


# ---------------------------------------------------------------------------------------------------- who approves


def test_the_author_approves_nothing_of_his_own(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules()).proposal
    assert made is not None
    with pytest.raises(Forbidden, match="another person must approve"):
        world.member.proposals.approve(world.about, made.id)
    assert world.ids() == ["web", "db"]


def test_nor_by_another_token_of_his(world: World) -> None:
    """One that he made, with or without another's name on it, one that replaced his, and one that bears his name."""
    made = world.admin.acls.put(world.tenant, rules()).proposal
    assert made is not None
    secrets = [
        world.admin.tokens.create("admin")[1],
        world.admin.tokens.create("admin", person="somebody else")[1],
        world.admin.tokens.create("member", tenant=world.tenant, person="a member")[1],
    ]
    own = world.other_admin.tokens.read_own().id
    secrets.append(world.admin.tokens.rotate(own, overlap=dt.timedelta(hours=1))[1])
    for secret in secrets:
        with world.served.client(secret) as client, pytest.raises(Forbidden, match="another person"):
            client.proposals.approve(world.about, made.id)
    assert world.ids() == ["web", "db"]
    world.other_member.proposals.approve(world.about, made.id)


def test_nor_does_he_propose_by_a_token_that_he_made_and_approve_as_himself(world: World) -> None:
    _, secret = world.admin.tokens.create("member", tenant=world.tenant, person="a member")
    with world.served.client(secret) as client:
        made = client.acls.put(world.tenant, rules()).proposal
    assert made is not None
    with pytest.raises(Forbidden, match="made by"):
        world.admin.proposals.approve(world.about, made.id)


def test_one_person_has_several_tokens_by_name(world: World) -> None:
    named = [world.other_admin.tokens.create("admin", person=name)[1] for name in ("Ann Lee", "ann  lee", "Bob")]
    ann, again, bob = (world.served.client(secret) for secret in named)
    made = ann.acls.put(world.tenant, rules()).proposal
    assert made is not None
    assert made.person == "Ann Lee"
    with pytest.raises(Forbidden, match=r"ann {2}lee"):
        again.proposals.approve(world.about, made.id)
    bob.proposals.approve(world.about, made.id)
    for client in (ann, again, bob):
        client.close()


def test_nor_by_the_successor_of_a_token_that_he_made(world: World) -> None:
    """He may have asked for it himself, with the secret of the old one."""
    _, secret = world.admin.tokens.create("member", tenant=world.tenant, person="Ann")
    made = world.admin.acls.put(world.tenant, rules()).proposal
    assert made is not None
    for _ in range(2):
        with world.served.client(secret) as ann:
            _, secret = ann.tokens.rotate(ann.tokens.read_own().id, overlap=dt.timedelta())
            with pytest.raises(Unauthenticated):
                ann.tokens.read_own()
        with world.served.client(secret) as ann, pytest.raises(Forbidden, match="made by"):
            ann.proposals.approve(world.about, made.id)
    assert world.ids() == ["web", "db"]
    with world.served.client(secret) as ann:
        number = ann.tokens.read_own().id
    _, secret = world.other_admin.tokens.rotate(number, overlap=dt.timedelta())
    with world.served.client(secret) as ann:  # whose first maker has not seen this one
        ann.proposals.approve(world.about, made.id)
    assert world.ids() == []


def test_readers_and_strangers_decide_nothing(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules()).proposal
    assert made is not None
    world.admin.tenants.create(f"{world.tenant}x", domain=world.domain)
    tokens = [
        (world.served.make_token(Role.READER, world.tenant), Forbidden),
        (world.served.make_token(Role.MEMBER, f"{world.tenant}x"), NotFound),
    ]
    for token, error in tokens:
        with world.served.client(token) as client:
            for decide in (client.proposals.approve, client.proposals.reject, client.proposals.withdraw):
                with pytest.raises(error):
                    decide(world.about, made.id)
    for decide in (world.member.proposals.approve, world.member.proposals.reject):
        with pytest.raises(NotFound):
            decide(world.about_domain, made.id)
    with pytest.raises(NotFound):
        world.other_admin.proposals.approve(world.about_domain, made.id)


# ---------------------------------------------------------------------------------------------------- no way around


Change = Callable[[World, Client, httpx.Client], Any]


def _list_of(world: World, http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    at = f"/v1/tenants/{world.tenant}/acl{path}"
    return http.request(method, at, headers={"If-Match": "*"}, **more)


def _moved(world: World) -> Endpoint:
    """The endpoint that a rule names, with another address."""
    mac = 0x020000000000 + world.number
    return Endpoint(f"db{world.number}", TenantId(world.tenant), f"p{world.number}", mac, prefixes_of(world.number, 6))


_RULE = {"id": "new", "action": "permit", "protocol": "udp"}
_MEMBERS, _ADDED = {"prefixes": ["192.0.2.1/32"]}, {"add": ["192.0.3.0/24"]}
PROPOSED: dict[str, Change] = {
    "the list": lambda world, client, _: client.acls.put(world.tenant, rules("x")),
    "the list, to be confirmed": lambda world, client, _: client.acls.put(world.tenant, rules("x"), confirm_s=60),
    "the list, despite expectations": lambda world, client, _: client.acls.put(world.tenant, rules("x"), despite=True),
    "a new rule": lambda world, _, http: _list_of(world, http, "POST", "/rules", json=_RULE),
    "a rule": lambda world, _, http: _list_of(world, http, "PUT", "/rules/web", json={**_RULE, "id": "web"}),
    "a rule's place": lambda world, _, http: _list_of(world, http, "PUT", "/rules/db/place", params={"position": 0}),
    "a rule goes": lambda world, _, http: _list_of(world, http, "DELETE", "/rules/web"),
    "a new group": lambda world, _, http: _list_of(world, http, "PUT", "/groups/h", json=_MEMBERS),
    "a group": lambda world, _, http: _list_of(world, http, "PUT", "/groups/g", json=_MEMBERS),
    "a group goes": lambda world, _, http: _list_of(world, http, "DELETE", "/groups/g"),
    "members": lambda world, _, http: _list_of(world, http, "POST", "/groups/g/members", json=_ADDED),
    "a member goes": lambda world, _, http: _list_of(world, http, "DELETE", "/groups/g/members/192.0.2.0/24"),
    "an older version": lambda world, client, _: client.acls.restore(world.tenant, 1),
}  # fmt: skip
"""Every way to change a list over HTTP."""


@pytest.mark.parametrize("way", PROPOSED)
@pytest.mark.parametrize("who", ["member", "admin"])
def test_every_change_of_a_marked_list_is_proposed(world: World, way: str, who: str) -> None:
    token = world.member_token if who == "member" else world.served.token
    before = world.state()
    with world.served.http(token) as http, world.served.client(token) as client:
        answered = PROPOSED[way](world, client, http)
    if isinstance(answered, httpx.Response):
        assert answered.status_code == 202, answered.text
        proposal = answered.json()["proposal"]["id"]
        assert answered.headers["Location"] == f"/v1/tenants/{world.tenant}/proposals/{proposal}"
    assert world.state() == before
    (made,) = world.open(world.about)
    world.other_admin.proposals.approve(world.about, made.id)
    assert world.admin.acls.read(world.tenant).version == made.base_version + 1


MACHINE = {
    "name": "host1",
    "machine": {"address": "local"},
    "uplink": "eth1",
    "controllers": ["tcp:192.0.2.1:6653"],
    "essential_services": {"dns": ["192.0.2.53"]},
}
REFUSED: dict[str, Callable[[World], Any]] = {
    "the tenant goes": lambda world: world.admin.tenants.delete(world.tenant),
    "it gets a prefix": lambda world: world.admin.tenants.add_prefix(world.tenant, Prefix.parse("172.16.0.0/16")),
    "it loses a prefix": lambda world: world.admin.tenants.set_prefixes(world.tenant, []),
    "an endpoint that is named moves": lambda world: world.admin.domains.put_endpoint(
        world.domain, _moved(world), etag="*"
    ),
    "a machine whose services need operator rules": lambda world: world.admin.onboarding.begin(world.domain, MACHINE),
    "how replies get in": lambda world: world.admin.domains.set_return_traffic(world.domain, ReturnTraffic.EXPLICIT),
    "the domain goes": lambda world: world.admin.domains.delete(world.domain),
}  # fmt: skip
"""Ways to the same end that cannot be proposed."""


@pytest.mark.parametrize("way", REFUSED)
def test_what_cannot_be_proposed_is_refused(world: World, way: str) -> None:
    before = world.state()
    with pytest.raises(Conflict, match="another person must approve"):
        REFUSED[way](world)
    assert world.state() == before


def test_no_way_to_write_a_list_is_left_out() -> None:
    """Each answers what it wrote, or a proposal; those two settle a change that was approved."""
    settles = {"/v1/tenants/{tenant}/acl/confirm", "/v1/tenants/{tenant}/acl/revert"}
    writes = {
        (method, path)
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/tenants/{tenant}/acl") and path not in settles
        if any("WrittenList" in str(operation["responses"].get(code)) for code in ("200", "201"))
        or "Restored" in str(operation["responses"].get("200"))
    }
    proposes = {
        (method, path)
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/tenants/{tenant}/acl") and "202" in operation["responses"]
    }
    assert proposes == writes
    assert len(writes) == len({*PROPOSED} - {"the list, to be confirmed", "the list, despite expectations", "a group"})


def test_operator_rules_are_proposed(world: World) -> None:
    before = world.state()
    wanted = [rule_from_json({"id": "o2", "action": "permit", "protocol": "tcp"})]
    made = world.admin.domains.set_operator_rules(world.domain, wanted).proposal
    assert made is not None
    assert world.state() == before
    changes = world.other_admin.proposals.read_changes(world.about_domain, made.id)
    assert [(each["id"], each["kind"]) for each in changes["rules"]] == [("o1", "removed"), ("o2", "added")]
    assert {each["becomes"] for each in changes["packets"]} == {"permit"}
    assert {each["becomes"] for each in changes["left"]} == {"permit"}
    with pytest.raises(Forbidden):
        world.admin.proposals.approve(world.about_domain, made.id)
    world.other_admin.proposals.approve(world.about_domain, made.id)
    assert [rule.id for rule in world.admin.domains.read_operator_rules(world.domain)] == ["o2"]


@pytest.mark.parametrize("left", [(False, True), (True, False), (False, False)])
def test_marks_are_taken_away_by_two_persons(world: World, left: tuple[bool, bool]) -> None:
    rules_too, tenant_too = left
    before = world.state()
    made = world.admin.proposals.set_approvals(
        world.domain, operator_rules=rules_too, tenants=[world.tenant] if tenant_too else []
    ).proposal
    assert made is not None
    assert world.state() == before
    assert (
        world.other_admin.proposals.read_changes(world.about_domain, made.id)["approvals"]["operator_rules"]
        is rules_too
    )
    world.other_admin.proposals.approve(world.about_domain, made.id)
    wanted = Approvals(operator_rules=rules_too, tenants=(world.tenant,) if tenant_too else ())
    assert world.admin.proposals.read_approvals(world.domain) == wanted
    if not tenant_too:
        assert world.member.acls.put(world.tenant, rules()).changed


def test_members_and_readers_set_no_marks(world: World) -> None:
    for role in (Role.MEMBER, Role.READER):
        with world.served.client(world.served.make_token(role, world.tenant)) as client:
            with pytest.raises(NotFound):
                client.proposals.read_approvals(world.domain)
            with pytest.raises(NotFound):
                client.proposals.set_approvals(world.domain, operator_rules=False, tenants=[])


# ---------------------------------------------------------------------------------------------------- what time does


def test_a_proposal_whose_base_moved_says_so_and_is_not_carried_out(world: World) -> None:
    first = world.member.acls.put(world.tenant, rules("a")).proposal
    second = world.member.acls.put(world.tenant, rules("b")).proposal
    assert first is not None
    assert second is not None
    world.other_member.proposals.approve(world.about, second.id)
    assert world.admin.proposals.read(world.about, first.id).has_moved
    with pytest.raises(Stale, match="newer"):
        world.other_member.proposals.approve(world.about, first.id)
    assert world.ids() == ["b"]


def test_a_proposal_ends(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules()).proposal
    assert made is not None
    world.served.clock.ahead += dt.timedelta(days=7, minutes=1)
    assert world.admin.proposals.read(world.about, made.id).state == "ended"
    with pytest.raises(Conflict, match="ended"):
        world.other_member.proposals.approve(world.about, made.id)
    assert world.ids() == ["web", "db"]


def test_what_was_decided_is_decided(world: World) -> None:
    decided = {}
    for state, decide in (
        ("rejected", lambda made: world.other_member.proposals.reject(world.about, made, reason="too wide")),
        ("withdrawn", lambda made: world.member.proposals.withdraw(world.about, made)),
        ("approved", lambda made: world.other_member.proposals.approve(world.about, made)),
    ):
        made = world.member.acls.put(world.tenant, rules(state)).proposal
        assert made is not None
        decide(made.id)
        decided[state] = made.id
        for again in (world.other_member.proposals.approve, world.other_member.proposals.reject):
            with pytest.raises(Conflict, match=state):
                again(world.about, made.id)
    assert world.admin.proposals.read(world.about, decided["rejected"]).reason == "too wide"
    assert world.ids() == ["approved"]


def test_only_the_author_withdraws(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules()).proposal
    assert made is not None
    with pytest.raises(Forbidden, match="author"):
        world.other_member.proposals.withdraw(world.about, made.id)


def test_a_change_that_is_to_be_confirmed_goes_back_by_itself(world: World) -> None:
    """Nobody needs to approve that: it was approved with its time."""
    made = world.member.acls.put(world.tenant, rules("x"), confirm_s=10).proposal
    assert made is not None
    world.other_member.proposals.approve(world.about, made.id)
    assert world.ids() == ["x"]
    world.served.clock.ahead += dt.timedelta(seconds=11)
    until(lambda: world.ids() == ["web", "db"])


def test_a_change_that_is_to_be_confirmed_is_taken_back_at_once(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules("x"), confirm_s=60).proposal
    assert made is not None
    world.other_member.proposals.approve(world.about, made.id)
    assert world.member.acls.revert(world.tenant).changed
    assert world.ids() == ["web", "db"]


def test_rules_that_were_approved_with_an_end_expire(world: World) -> None:
    ends = (dt.datetime.now(dt.UTC) + world.served.clock.ahead + dt.timedelta(minutes=5)).isoformat()
    acl = acl_from_json({"rules": [{"id": "x", "action": "permit", "expires": ends}]})
    made = world.member.acls.put(world.tenant, acl).proposal
    assert made is not None
    world.other_member.proposals.approve(world.about, made.id)
    world.served.clock.ahead += dt.timedelta(minutes=6)
    until(lambda: world.ids() == [])


# ---------------------------------------------------------------------------------------------------- limits


def test_what_cannot_be_enforced_is_not_proposed(world: World) -> None:
    acl = {"rules": [{"id": "x", "action": "permit", "destination": "203.0.113.0/24"}]}
    with world.served.http(world.member_token) as http:
        answered = _list_of(world, http, "PUT", "", json=acl)
    assert answered.status_code == 422
    assert not world.open(world.about)


def test_only_so_many_wait(world: World) -> None:
    for number in range(16):
        world.member.acls.put(world.tenant, rules(f"r{number}"))
    with pytest.raises(TooLarge, match="16 proposals"):
        world.member.acls.put(world.tenant, rules("one-more"))


def test_a_request_with_a_key_is_proposed_once(world: World) -> None:
    with world.served.http(world.member_token) as http:
        answers = [
            http.post(f"/v1/tenants/{world.tenant}/acl/rules", json=_RULE, headers={"Idempotency-Key": "k"})
            for _ in range(2)
        ]
    assert [each.status_code for each in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert len(world.open(world.about)) == 1


def test_what_would_change_is_shown(world: World) -> None:
    made = world.member.acls.put(world.tenant, rules("web", "more")).proposal
    assert made is not None
    changes = world.other_member.proposals.read_changes(world.about, made.id)
    assert [(each["id"], each["kind"]) for each in changes["rules"]] == [("db", "removed"), ("more", "added")]
    assert changes["packets"]
    with world.served.http(world.member_token) as http:
        kept = http.get(f"/v1/tenants/{world.tenant}/proposals/{made.id}/acl").json()
    assert kept == acl_to_json(rules("web", "more"))
