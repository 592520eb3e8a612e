"""What rulesets of real hosts bring along: extensions of iptables, changed packets, tables beside, sets and maps."""

from __future__ import annotations

from typing import Any

import pytest
from formats.test_nftables import WEB, Json, chain, imported, match, payload, rule, said

from orchestrator.errors import BadInput
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Effect, Interfaces
from orchestrator.policy.model import Action, Direction

OPEN = "permit None 0.0.0.0/0>any 0-65535"
CLOSED = "deny None 0.0.0.0/0>any 0-65535"
SADDR = payload("ip", "saddr")


def extension(kind: str, name: str) -> Json:
    return {"xt": {"type": kind, "name": name}}


def test_targets_of_iptables_decide() -> None:
    """iptables-nft keeps REJECT and others as extensions: at the end of an open chain they are what closes it."""
    reject = rule({"counter": {"packets": 0, "bytes": 0}}, extension("target", "REJECT"))
    found = imported(chain(policy="accept"), rule(WEB, {"accept": None}), reject)
    assert (said(found), found.losses) == (["permit 6 0.0.0.0/0>any 80", CLOSED, OPEN], ())
    assert "line 4: REJECT becomes deny: nothing is sent back" in found.notes


@pytest.mark.parametrize("statement", [extension("target", "NFQUEUE"), {"xt": None}, extension("watcher", "x")])
def test_extensions_that_may_decide_are_a_deny(statement: Json) -> None:
    found = imported(chain(policy="accept"), rule(WEB, statement))
    assert said(found) == ["deny 6 0.0.0.0/0>any 80", OPEN]
    assert {loss.effect for loss in found.losses} == {Effect.WIDER}


def test_extensions_that_decide_nothing_pass() -> None:
    clamp = rule(match(payload("tcp", "flags"), "syn"), extension("target", "TCPMSS"))
    log = rule(WEB, extension("target", "LOG"))
    comment = rule(extension("match", "comment"), WEB, {"drop": None})
    found = imported(chain(policy="accept"), clamp, log, comment)
    assert (said(found), found.losses) == (["deny 6 0.0.0.0/0>any 80", OPEN], ())
    assert [one.log for one in found.acl.rules] == [True, False]


def test_a_target_that_is_not_known_is_told_though_nothing_below_permits() -> None:
    """It may permit: that the list denies what it takes is not what the ruleset says."""
    found = imported(chain(), rule(WEB, {"queue": {"num": 0}}))
    assert [loss.effect for loss in found.losses] == [Effect.WIDER]


@pytest.mark.parametrize(
    "key",
    [
        {"tcp option": {"name": "maxseg", "field": "size"}},
        {"meta": {"key": "nftrace"}},
        payload("ip", "dscp"),
        payload("ip6", "hoplimit"),
    ],
)
def test_changes_that_no_match_looks_at_decide_nothing(key: Json) -> None:
    change = {"mangle": {"key": key, "value": 1}}
    found = imported(chain(), rule(WEB, change, {"counter": None}, {"accept": None}))
    assert (said(found), found.losses) == (["permit 6 0.0.0.0/0>any 80"], ())


@pytest.mark.parametrize(
    "key", [payload("ip", "daddr"), payload("tcp", "dport"), {"payload": {"base": "nh", "offset": 128, "len": 32}}]
)
def test_changes_of_what_matches_look_at_are_a_deny(key: Json) -> None:
    """Whatever stands behind it in the rule."""
    change = {"mangle": {"key": key, "value": 1}}
    found = imported(chain(policy="accept"), rule(WEB, change, {"counter": None}, {"accept": None}))
    assert said(found) == ["deny 6 0.0.0.0/0>any 80", OPEN]
    assert [loss.effect for loss in found.losses] == [Effect.WIDER]


def test_what_another_hook_does_is_no_reason_to_refuse_the_file() -> None:
    before = chain("before", "prerouting", policy="accept")
    proxy = rule(WEB, {"tproxy": {"port": 8080}}, {"accept": None}, at="before")
    assert imported(before, proxy, chain(), rule(WEB, {"accept": None})).exact
    unreadable = rule({"vmap": {"key": payload("ip", "saddr"), "data": "@gone"}}, at="before")
    (loss,) = imported(before, unreadable, chain(), rule(WEB, {"accept": None})).losses
    assert loss.reason == "a drop at the hook prerouting is not carried over"


def test_what_a_tunnel_carries_is_not_the_packet() -> None:
    inner = {"payload": {"tunnel": "vxlan", "protocol": "ip", "field": "saddr"}}
    found = imported(chain(policy="accept"), rule(match(inner, "10.0.0.1"), {"drop": None}))
    assert said(found) == [CLOSED, OPEN]
    assert found.losses[0].reason.startswith("what a tunnel carries cannot be looked at")
    protocol = match({"meta": {"tunnel": "gre", "key": "l4proto"}}, "tcp")
    assert said(imported(chain(), rule(protocol, {"accept": None}))) == []


@pytest.mark.parametrize(
    ("kind", "further", "elements", "is_exact"),
    [
        ("set", {"stmt": [{"counter": None}]}, ["10.0.0.1"], True),
        ("set", {}, [{"elem": {"val": "10.0.0.1", "comment": "a", "counter": {"packets": 1, "bytes": 2}}}], True),
        ("set", {"stmt": [{"limit": {"rate": 1, "per": "second"}}]}, ["10.0.0.1"], False),
        ("set", {"stmt": [{"quota": {"val": 1}}]}, ["10.0.0.1"], False),
        ("set", {}, [{"elem": {"val": "10.0.0.1", "limit": {"rate": 1, "per": "second"}}}], False),
        ("meter", {"flags": ["dynamic"]}, ["10.0.0.1"], False),
    ],
)
def test_elements_that_match_at_a_rate_are_no_members(
    kind: str, further: Json, elements: list[Any], is_exact: bool
) -> None:
    held = {kind: {"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr", "elem": elements, **further}}
    found = imported(held, chain(), rule(match(SADDR, "@s"), {"accept": None}))
    assert (said(found), found.exact) == (["permit None 10.0.0.1/32>any 0-65535"] if is_exact else [], is_exact)


def test_arp_is_not_about_ip_packets() -> None:
    arp = {"family": "arp", "table": "a"}
    outgoing, incoming = chain("output", "output", **arp), chain("input", "input", **arp)
    found = imported(outgoing, incoming, chain(), rule(WEB, {"accept": None}))
    assert (said(found), found.losses) == (["permit 6 0.0.0.0/0>any 80"], ())
    assert found.acl.egress_default is Action.PERMIT
    assert said(found, Direction.EGRESS) == []


def test_a_table_that_slept_and_is_written_anew_is_awake() -> None:
    place = {"family": "ip", "name": "t"}
    asleep, awake = {"add": {"table": {**place, "flags": "dormant"}}}, {"add": {"table": place}}
    for command in ({"delete": {"table": place}}, {"flush": {"ruleset": None}}):
        assert said(imported(asleep, command, awake, chain(policy="accept"))) == [OPEN]


def verdict_map(key: Json, *pairs: list[Any]) -> Json:
    return {"vmap": {"key": key, "data": {"set": list(pairs)}}}


@pytest.mark.parametrize("key", [{"meta": {"key": "nfproto"}}, {"meta": {"key": "protocol"}}])
def test_maps_of_ip_versions_are_followed(key: Json) -> None:
    names = ("ipv4", "ipv6") if key["meta"]["key"] == "nfproto" else ("ip", "ip6")
    place = {"family": "inet", "table": "f"}
    four, six = chain("four", None, **place), chain("six", None, **place)
    verdicts = verdict_map(key, [names[0], {"jump": {"target": "four"}}], [names[1], {"goto": {"target": "six"}}])
    web = match(payload("tcp", "dport"), 443)
    found = imported(
        chain(**place),
        four,
        six,
        rule(verdicts, **place),
        rule(WEB, {"accept": None}, at="four", **place),
        rule(web, {"accept": None}, at="six", **place),
    )
    assert found.exact
    assert said(found) == ["permit 6 0.0.0.0/0>any 80", "permit 6 ::/0>any 443", "deny None ::/0>any 0-65535"]


def test_ip_versions_by_number_are_not_guessed() -> None:
    """10 is IPv6 for `nfproto`; 4 is no version at all."""
    for number in (2, 4, 10):
        found = imported(chain(policy="accept"), rule(match({"meta": {"key": "nfproto"}}, number), {"drop": None}))
        assert (said(found), found.exact) == ([CLOSED, OPEN], False)


@pytest.mark.parametrize(
    ("arrives", "expected"),
    [
        ("lo", [OPEN]),
        ("eth0", ["permit 6 0.0.0.0/0>any 80"]),
        ("eth7", [CLOSED]),
        ("wlan0", ["permit 17 0.0.0.0/0>any 53"]),
    ],
)
def test_maps_of_interfaces_are_followed(arrives: str, expected: list[str]) -> None:
    """The element for all others may have a counter; it does not take what another element passes on."""
    verdicts = verdict_map(
        {"meta": {"key": "iifname"}},
        [{"elem": {"val": "*", "counter": {"packets": 0, "bytes": 0}}}, {"drop": None}],
        ["lo", {"accept": None}],
        ["eth0", {"jump": {"target": "web"}}],
        ["wlan0", {"continue": None}],
    )
    dns = rule(match(payload("udp", "dport"), 53), {"accept": None})
    objects = [
        chain(),
        chain("web", None),
        rule(verdicts),
        dns,
        rule(WEB, {"accept": None}, at="web"),
        rule({"drop": None}, at="web"),
    ]
    found = imported(*objects, interfaces=Interfaces(arrives))
    assert (said(found)[:1], found.exact) == (expected, True)
    unsaid = imported(*objects)
    assert said(unsaid)[0] == CLOSED
    assert not unsaid.exact


def test_combinations_that_name_the_protocol_are_read() -> None:
    key = {"concat": [{"meta": {"key": "l4proto"}}, payload("th", "dport")]}
    pairs = {"set": [{"concat": ["tcp", 80]}, {"concat": ["udp", {"range": [53, 54]}]}]}
    found = imported(chain(), rule(match(key, pairs), {"accept": None}))
    assert (said(found), found.exact) == (["permit 6 0.0.0.0/0>any 80", "permit 17 0.0.0.0/0>any 53-54"], True)
    odd = imported(chain(), rule(match(key, {"set": [{"concat": ["gre", 80]}]}), {"accept": None}))
    assert (said(odd), odd.exact) == ([], False)


def test_flags_may_be_put_together_in_several_steps() -> None:
    """As older versions list them: `fin | syn | ack`."""
    mask = {"|": [{"|": ["fin", "syn"]}, "ack"]}
    found = imported(chain(), rule(match({"&": [payload("tcp", "flags"), mask]}, "syn"), {"accept": None}))
    flags = found.acl.rules[0].tcp_flags
    assert flags is not None
    assert (flags.value, flags.mask) == (0x02, 0x13)


@pytest.mark.parametrize("text", ["table inet f {\n}\n", "#!/usr/sbin/nft -f\nflush ruleset\n\ntable ip f {\n}\n"])
@pytest.mark.parametrize("format_name", [None, "nftables"])
def test_the_words_of_nft_are_refused_by_name(text: str, format_name: str | None) -> None:
    with pytest.raises(BadInput, match="as `nft -j list ruleset` gives it"):
        read(text, format_name)
