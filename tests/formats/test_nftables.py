"""nftables, case by case: what a ruleset comes to, what it loses, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Effect, Imported, Interfaces, Options
from orchestrator.policy.model import Action, Direction

FIXTURE = (Path(__file__).parent / "fixtures" / "web.nftables").read_text()
Json = dict[str, Any]


def payload(protocol: str, field: str) -> Json:
    return {"payload": {"protocol": protocol, "field": field}}


def match(left: Any, right: Any, op: str = "==") -> Json:
    return {"match": {"op": op, "left": left, "right": right}}


WEB = match(payload("tcp", "dport"), 80)
PLACE = {"family": "ip", "table": "t"}


def chain(name: str = "forward", hook: str | None = "forward", policy: str = "drop", **place: Any) -> Json:
    base = {"type": "filter", "hook": hook, "prio": 0, "policy": policy} if hook else {}
    return {"chain": {**PLACE, "name": name, **base, **place}}


def rule(*statements: Json | str, at: str = "forward", **further: Any) -> Json:
    return {"rule": {**PLACE, "chain": at, "expr": list(statements), **further}}


def text_of(*objects: Json) -> str:
    return json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *objects]})


def imported(*objects: Json, **options: Any) -> Imported:
    return read(text_of(*objects), "nftables", name="f", options=Options(**options))


def said(found: Imported, direction: Direction = Direction.INGRESS) -> list[str]:
    return [
        f"{rule.action.value} {rule.protocol} {rule.source}>{rule.destination} "
        + ",".join(map(str, rule.destination_ports))
        for rule in found.acl.rules
        if rule.direction is direction
    ]


def test_a_listing_of_the_real_nft() -> None:
    """The fixture was listed by nft 1.0.6: sets, concatenations, maps of verdicts, two tables on one hook."""
    found = read(FIXTURE, options=Options(stateless=True))
    ids = [rule.id for rule in found.acl.rules]
    assert "web-in" in ids
    notes = " ".join(found.notes)
    assert "ingress of IPv4 is inet filter forward, ip later forward" in notes
    assert "the hook input (inet filter input) is left out" in notes
    reasons = {loss.reason.split(" (")[0] for loss in found.losses}
    assert reasons == {
        "established packets cannot be told from others",
        "rates are not counted here",
        "ip6 nexthdr sees the first header only, which need not be that of the protocol",
        "the interface a packet takes cannot be seen here; --in-interface and --out-interface tell it",
    }


def test_both_base_chains_of_a_hook_must_accept() -> None:
    second = chain("later", prio=5, policy="accept")
    deny = rule(match(payload("ip", "saddr"), "10.0.0.1"), {"drop": None}, at="later")
    found = imported(chain(), rule(WEB, {"accept": None}), second, deny)
    assert said(found) == ["deny 6 10.0.0.1/32>any 80", "permit 6 0.0.0.0/0>any 80"]


def test_a_table_that_sleeps_is_not_there() -> None:
    table = {"table": {"family": "ip", "name": "t", "flags": ["dormant"]}}
    with pytest.raises(BadInput, match="no chain filters at the hooks"):
        imported(table, chain(), rule(WEB, {"accept": None}))


def test_a_file_may_start_by_removing_what_it_replaces() -> None:
    old = [chain(policy="accept"), rule({"accept": None})]
    new = [{"add": chain()}, {"add": rule(WEB, {"accept": None})}]
    expected = imported(*new)
    assert imported(*old, {"flush": {"ruleset": None}}, *new).acl == expected.acl
    assert imported(*old, {"delete": {"table": {"family": "ip", "name": "t"}}}, *new).acl == expected.acl
    for command in ({"insert": rule(WEB, {"drop": None})}, {"delete": chain()}, {"add": rule(WEB, position=4)}):
        with pytest.raises(BadInput):
            imported(*new, command)


@pytest.mark.parametrize(
    ("key", "op", "right", "arrives", "leaves", "is_read"),
    [
        ("iifname", "==", "eth0", "eth0", "", True),
        ("iifname", "==", "eth0", "eth1", "", False),
        ("iif", "!=", "lo", "eth0", "", True),
        ("oifname", "==", {"set": ["eth1", "tun*"]}, "eth1", "tun7", True),
        ("oifname", "!=", {"set": ["eth1", "tun*"]}, "eth1", "tun7", False),
        ("oif", "==", "@inner", "", "eth1", True),
        ("oif", "==", "@inner", "", "eth2", False),
    ],
)
def test_rules_of_interfaces_are_read_where_it_is_said_which_packets_take(
    key: str, op: str, right: object, arrives: str, leaves: str, *, is_read: bool
) -> None:
    inner = {"set": {**PLACE, "name": "inner", "type": "ifname", "elem": ["eth1", "lo"]}}
    statement = match({"meta": {"key": key}}, right, op)
    found = imported(inner, chain(), rule(statement, WEB, {"accept": None}), interfaces=Interfaces(arrives, leaves))
    assert (said(found), found.exact) == (["permit 6 0.0.0.0/0>any 80"] if is_read else [], True)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (match({"meta": {"key": "mark"}}, 1), "meta mark: interfaces, marks and times"),
        (match({"meta": {"key": "iifname"}}, "eth0"), "the interface a packet takes cannot be seen here"),
        (match({"ct": {"key": "mark"}}, 1), "ct mark: connections are not tracked"),
        (match({"ct": {"key": "state"}}, ["new"], "in"), "connections are not tracked here; --stateless"),
        (match(payload("ip", "ttl"), 64), "ip ttl: this field cannot"),
        (match({"payload": {"base": "th", "offset": 16, "len": 16}}, 80), "this field cannot"),
        (match({"surprise": {"key": "x"}}, 1), "surprise x: this field cannot"),
        (match(payload("tcp", "dport"), "@elsewhere"), "the set @elsewhere is not in the file"),
        (match(payload("tcp", "dport"), "@seen"), "what is in the set @seen changes with time"),
        (match(payload("tcp", "dport"), {"set": [{"elem": {"val": 80, "timeout": 5}}]}), "goes with time"),
        (match(payload("tcp", "dport"), 80, "~"), "the test '~' is not known"),
        (match(payload("th", "dport"), 80), "this protocol's header cannot be looked into"),
        ({"limit": {"rate": 1, "per": "second"}}, "rates are not counted"),
        ({"quota": {"val": 1}}, "bytes are not counted"),
        ({"ct count": {"val": 10}}, "connections are not counted"),
        ({"set": {"op": "add", "elem": 1, "set": "@seen"}}, "a set that rules fill"),
        ({"xt": {"type": "match", "name": "bpf"}}, "what an extension of iptables looks at"),
    ],
)
def test_what_cannot_be_seen_permits_nothing_and_is_denied_whole(statement: Json, reason: str) -> None:
    seen = {"set": {**PLACE, "name": "seen", "type": "inet_service", "flags": ["dynamic"], "elem": [80]}}
    permit = imported(seen, chain(), rule(statement, {"accept": None}))
    assert said(permit) == []
    assert [loss.effect for loss in permit.losses] == [Effect.NARROWER]
    assert reason in permit.losses[0].reason
    deny = imported(seen, chain(policy="accept"), rule(statement, {"drop": None}))
    assert deny.acl.rules[0].action is Action.DENY
    assert {loss.effect for loss in deny.losses} == {Effect.WIDER}


@pytest.mark.parametrize("verdict", [{"queue": {"num": 0}}, {"dnat": {"addr": "10.0.0.1"}}, {"surprise": None},
                                     {"mangle": {"key": payload("ip", "daddr"), "value": "10.0.0.1"}},
                                     {"vmap": {"key": payload("tcp", "dport"), "data": "@elsewhere"}},
                                     {"vmap": {"key": {"meta": {"key": "mark"}},
                                               "data": {"set": [[1, {"accept": None}]]}}}])  # fmt: skip
def test_what_decides_in_a_way_that_is_not_known_is_a_deny(verdict: Json) -> None:
    found = imported(chain(policy="accept"), rule(WEB, verdict))
    assert found.acl.rules[0].action is Action.DENY
    assert [loss.effect for loss in found.losses][:1] == [Effect.WIDER]


def test_the_rest_of_a_verdict_map_is_the_rest() -> None:
    """An element that decides nothing is not left to the one that stands for all others."""
    pairs = [[22, {"continue": None}], [{"range": [80, 90]}, {"drop": None}], ["*", {"accept": None}]]
    found = imported(chain(), rule({"vmap": {"key": payload("tcp", "dport"), "data": {"set": pairs}}}))
    assert said(found) == ["deny 6 0.0.0.0/0>any 80-90", "permit 6 0.0.0.0/0>any 0-21,23-79,91-65535"]


def test_marks_and_counters_decide_nothing() -> None:
    mark = {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}
    found = imported(
        chain(), rule(WEB, {"counter": None}, mark, {"counter": {"packets": 1, "bytes": 2}}, {"accept": None})
    )
    assert (len(found.acl.rules), found.losses) == (1, ())


def test_drops_at_other_hooks_are_told() -> None:
    raw = chain("raw", "prerouting", policy="accept")
    found = imported(chain(), rule(WEB, {"accept": None}), raw, rule({"drop": None}, at="raw"))
    assert [(loss.effect, loss.reason) for loss in found.losses] == [
        (Effect.REFUSED, "a drop at the hook prerouting is not carried over")
    ]
    assert imported(chain(), rule(WEB, {"accept": None}), raw).exact


def test_what_nft_says_in_its_own_words_may_decide_either_way() -> None:
    """A jump to a chain without a name is text within the JSON; it may drop wherever it stands."""
    words = "jump {\n\t\tip saddr 10.0.0.0/8 accept\n\t}"
    found = imported(chain(), rule(WEB, words), rule({"accept": None}))
    assert said(found) == ["deny 6 0.0.0.0/0>any 80", "permit None 0.0.0.0/0>any 0-65535"]
    assert [loss.effect for loss in found.losses] == [Effect.WIDER]
    early = chain("early", hook="prerouting", policy="accept")
    beside = imported(chain(), rule({"accept": None}), early, rule(words, at="early"))
    assert [loss.reason for loss in beside.losses] == ["a drop at the hook prerouting is not carried over"]


def test_chains_are_chosen_by_name() -> None:
    objects = [chain("in", "input"), rule(WEB, {"accept": None}, at="in"), chain(), rule({"accept": None})]
    assert said(imported(*objects, chains=("in",)))[0].startswith("permit 6")
    assert said(imported(*objects, chains=("ip t in=egress",)), Direction.EGRESS)[0].startswith("permit 6")
    with pytest.raises(BadInput, match="there is no chain out; there are ip t in, ip t forward"):
        imported(*objects, chains=("out",))
    with pytest.raises(BadInput, match="are not chains of one hook"):
        imported(*objects, chains=("in", "forward=ingress"))


def test_what_a_table_does_not_see_is_denied() -> None:
    found = imported(chain(policy="accept"))
    assert "no chain for ingress sees IPv6: it is denied here" in found.notes
    assert [rule.source.prefixes[0].length for rule in found.acl.rules] == [0]
    assert found.acl.ingress_default is Action.DENY


def test_jumps_that_never_end_are_refused() -> None:
    jump = {"jump": {"target": "a"}}
    with pytest.raises(BadInput, match="the chains jump in a circle: ip t/a -> ip t/a"):
        imported(chain(), chain("a", None), rule(jump), rule(WEB, jump, at="a"))
    with pytest.raises(BadInput, match="is a chain of the kernel"):
        imported(chain(), chain("in", "input"), rule({"jump": {"target": "in"}}))
    with pytest.raises(BadInput, match="jumps to ip t/b, which is not there"):
        imported(chain(), rule({"jump": {"target": "b"}}))


def test_alternatives_without_end_are_refused() -> None:
    """Each combination of several sets of pairs would be a rule of its own."""
    pairs = {"set": [{"concat": [f"10.0.0.{n}", 80]} for n in range(200)]}
    several = [match({"concat": [payload("ip", "saddr"), payload("tcp", "dport")]}, pairs)] * 3
    with pytest.raises(AclflowError, match="combinations of what it lists"):
        imported(chain(), rule(*several, {"accept": None}))


def test_sets_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rules make much work where each looks at a large set, or at a large verdict map."""
    nets = {"set": {**PLACE, "name": "s", "type": "ipv4_addr", "elem": [f"10.0.0.{n}" for n in range(0, 200, 2)]}}
    ask = rule(match(payload("ip", "saddr"), "@s"), {"accept": None})
    monkeypatch.setattr("orchestrator.policy.formats.nftables.values.MOST_ELEMENTS", 500)
    assert imported(nets, chain(), *[ask] * 5).exact
    with pytest.raises(AclflowError, match=r"nftables\[8\].rule.* more than 500 elements"):
        imported(nets, chain(), *[ask] * 6)
    verdicts = {"vmap": {"key": payload("tcp", "dport"), "data": {"set": [[n, {"drop": None}] for n in range(90)]}}}
    monkeypatch.setattr("orchestrator.policy.formats.nftables.read.MOST_LINES", 100)
    assert imported(chain(), rule(verdicts)).exact
    with pytest.raises(AclflowError, match="more than 100 lines"):
        imported(chain(), rule(verdicts), rule(verdicts))
    monkeypatch.setattr("orchestrator.policy.formats.chains.MOST_STEPS", 100)
    with pytest.raises(AclflowError, match=r"nftables\[\d+\]: .* too often to be followed"):
        imported(nets, chain(), *[ask] * 4)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([rule(WEB)], "f, nftables[1].rule: its chain does not stand before it"),
        ([chain(policy="perhaps")], "f, nftables[1].chain.policy: a policy is accept or drop"),
        ([chain(prio="first")], "f, nftables[1].chain.prio: a priority is a whole number"),
        ([chain(), rule([])], "f, nftables[2].rule.expr[0]: an object with one member must stand here"),
        ([chain(), rule({"accept": None}, WEB)], "f, nftables[2].rule.expr[1]: nothing can follow a verdict"),
        ([chain(), rule({"jump": None})], "f, nftables[2].rule.expr[0]: a jump names its target"),
        ([{"table": {"family": "ipx", "name": "t"}}], "f, nftables[1].table.family: 'ipx' is no family of tables"),
        ([{"surprise": {}}], "f, nftables[1]: 'surprise' is no object of a ruleset"),
    ],
)
def test_faults_name_their_place(objects: list[Json], message: str) -> None:
    with pytest.raises(AclflowError) as caught:
        imported(*objects)
    assert str(caught.value).startswith(message)


def test_what_cannot_be_written_is_told() -> None:
    native = {"rules": [{"id": "gre", "action": "deny", "protocol": "gre"},
                        {"id": "soon", "action": "permit", "expires": "2030-01-01T00:00:00Z"}]}  # fmt: skip
    exported = write(read(json.dumps(native), "native").acl, "nftables")
    assert [(loss.text, loss.effect) for loss in exported.losses] == [("gre", Effect.WIDER), ("soon", Effect.NARROWER)]
