"""nftables rulesets to draw, as the JSON that `nft -j list ruleset` gives."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

CHAINS = ("forward", "a", "b", "c")
IPV4 = ("10.1.2.3", {"prefix": {"addr": "192.0.2.0", "len": 24}}, {"range": ["10.0.0.200", "10.1.2.2"]})
IPV6 = ("2001:db8:2::5", {"prefix": {"addr": "fe80::", "len": 10}}, {"range": ["2001:db8::f", "2001:db8:1::5"]})
PORTS = (22, 80, {"range": [1024, 65534]}, {"range": [23, 79]}, 65535)
ELEVEN = {"prefix": {"addr": "11.0.0.0", "len": 8}}
PROTOCOLS = ("tcp", "udp", "icmp", "ipv6-icmp", "gre", 132)
STATES = ("new", "established", "related", "invalid")
Json = dict[str, Any]


def payload(protocol: str, field: str) -> Json:
    return {"payload": {"protocol": protocol, "field": field}}


def match(left: Any, op: str, right: Any) -> Json:
    return {"match": {"op": op, "left": left, "right": right}}


def some(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One value, or a set of values that exclude one another well enough for the test."""
    several = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=repr).map(lambda held: {"set": held})
    return st.sampled_from(values) | several


equality = st.sampled_from(("==", "==", "!="))
address = st.one_of(
    st.builds(match, st.sampled_from((payload("ip", "saddr"), payload("ip", "daddr"))), equality, some(IPV4)),
    st.builds(match, st.sampled_from((payload("ip6", "saddr"), payload("ip6", "daddr"))), equality, some(IPV6)),
    st.builds(match, st.just(payload("ip", "saddr")), equality, st.just("@nets")),
    st.just(match({"&": [payload("ip", "daddr"), "255.255.0.255"]}, "==", "10.1.0.3")),
)
headers = st.sampled_from(("tcp", "udp", "sctp"))
ports = st.one_of(
    st.builds(lambda name, side, op, right: match(payload(name, side), op, right),
              headers, st.sampled_from(("sport", "dport")), equality, some(PORTS)),
    st.builds(lambda name, op: match(payload(name, "dport"), op, 80), headers, st.sampled_from(("<", "<=", ">", ">="))),
    st.just(match({"concat": [payload("ip", "saddr"), payload("tcp", "dport")]}, "==", "@pairs")),
)  # fmt: skip
flags = st.sampled_from(
    (
        match(payload("tcp", "flags"), "in", "syn"),
        match(payload("tcp", "flags"), "in", ["syn", "ack"]),
        match(payload("tcp", "flags"), "==", "syn"),
        match(payload("tcp", "flags"), "!=", "syn"),
        match(payload("tcp", "flags"), "!", "rst"),
        match({"&": [payload("tcp", "flags"), ["syn", "ack"]]}, "==", "syn"),
        match({"&": [payload("tcp", "flags"), 0x16]}, "!=", 2),
        match(payload("tcp", "flags"), "==", {"set": ["syn", 18]}),
    )
)
service = st.sampled_from(
    (
        match(payload("ip", "dscp"), "==", "ef"),
        match(payload("ip", "dscp"), "!=", {"set": [8, "af11"]}),
        match(payload("ip6", "dscp"), "==", {"range": [8, 46]}),
        match({"&": [payload("ip", "dscp"), 0x38]}, "==", 40),
    )
)
icmp = st.sampled_from(
    (
        match(payload("icmp", "type"), "==", "echo-request"),
        match(payload("icmp", "type"), "!=", {"set": ["echo-request", "destination-unreachable"]}),
        match(payload("icmp", "code"), "==", "net-unreachable"),
        match(payload("icmpv6", "type"), "==", {"set": ["nd-neighbor-solicit", 128]}),
    )
)
protocol = st.one_of(
    st.builds(match, st.just({"meta": {"key": "l4proto"}}), st.just("=="), some(PROTOCOLS)),
    st.builds(match, st.just(payload("ip", "protocol")), st.just("=="), some(PROTOCOLS[:3])),
    st.builds(match, st.just({"meta": {"key": "nfproto"}}), equality, st.sampled_from(("ipv4", "ipv6"))),
)
fragment = st.sampled_from(
    (
        match({"&": [payload("ip", "frag-off"), 8191]}, "!=", 0),
        match({"&": [payload("ip", "frag-off"), 8191]}, "==", 0),
        match({"exthdr": {"name": "frag", "field": "frag-off"}}, "!=", 0),
        match({"payload": {"base": "th", "offset": 0, "len": 24}}, ">=", 0),
    )
)
pair = st.sampled_from(("tcp", "udp")).map(lambda name: match({"meta": {"key": "l4proto"}}, "==", name))
any_port = st.sampled_from(("sport", "dport")).map(lambda side: match(payload("th", side), "==", 22))
unseen = st.sampled_from(
    (
        match({"meta": {"key": "iifname"}}, "==", "eth0"),
        match({"meta": {"key": "mark"}}, "!=", 5),
        match({"fib": {"result": "type", "flags": ["saddr"]}}, "==", "local"),
        match(payload("ip", "ttl"), "==", 64),
        match(payload("ip6", "nexthdr"), "==", "tcp"),
        {"limit": {"rate": 5, "per": "second"}},
    )
)
states = st.builds(
    lambda op, named: match({"ct": {"key": "state"}}, op, named),
    st.sampled_from(("in", "!")),
    st.lists(st.sampled_from(STATES), min_size=1, max_size=2, unique=True),
)


@st.composite
def rule(draw: st.DrawFn, place: int, with_unseen: bool, with_states: bool) -> list[Json]:
    """The statements of a rule of the chain at a place; jumps go to later chains only."""
    kinds = [address, address, ports, ports, flags, icmp, protocol, fragment, service]
    kinds += [unseen, unseen] * with_unseen + [states] * with_states
    found = [draw(kind) for kind in draw(st.lists(st.sampled_from(kinds), max_size=2))]
    if draw(st.integers(0, 5)) == 0:
        found = [draw(pair), draw(any_port)]
    later = CHAINS[place + 1 :]
    verdicts: list[Json] = [{"accept": None}, {"accept": None}, {"drop": None}, {"reject": None}, {"return": None}]
    verdicts += [{"jump": {"target": name}} for name in later] * 2 + [{"goto": {"target": name}} for name in later]
    end = draw(st.integers(0, 6))
    if end == 0:
        return [*found, {"counter": None}]
    if end == 1:
        return [*found, draw(verdict_map([one for one in verdicts if "reject" not in one]))]
    return [*found, *[{"log": None}] * (end == 2), draw(st.sampled_from(verdicts))]


@st.composite
def verdict_map(draw: st.DrawFn, verdicts: list[Json]) -> Json:
    key, values = draw(
        st.sampled_from(
            (
                (payload("tcp", "dport"), (22, {"range": [80, 90]}, "*")),
                (payload("ip", "saddr"), (IPV4[0], {"prefix": {"addr": "192.0.2.0", "len": 24}})),
                ({"meta": {"key": "l4proto"}}, ("tcp", "udp")),
                ({"concat": [payload("ip", "daddr"), payload("udp", "dport")]}, ({"concat": ["10.1.2.3", 53]},)),
            )
        )
    )
    chosen = [draw(st.sampled_from([*verdicts, {"continue": None}])) for _ in values]
    return {"vmap": {"key": key, "data": {"set": list(map(list, zip(values, chosen, strict=True)))}}}


@st.composite
def rulesets(draw: st.DrawFn, with_unseen: bool = False, with_states: bool = False) -> str:
    """A table of one base chain and three others, and at times a second base chain behind it."""
    with_second = draw(st.sampled_from((True, False, False)))
    place = {"family": "inet", "table": "t"}
    base = {"type": "filter", "hook": "forward", "prio": 0, "policy": draw(st.sampled_from(("accept", "drop")))}
    interval = {"flags": ["interval"]}
    objects: list[Json] = [{"metainfo": {"json_schema_version": 1}}, {"table": {"family": "inet", "name": "t"}}]
    objects.append(
        {
            "set": {
                **place,
                "name": "nets",
                "type": "ipv4_addr",
                **interval,
                "elem": [*IPV4[1:], ELEVEN],
            }
        }
    )
    pairs = [{"concat": [IPV4[0], 22]}, {"concat": [ELEVEN, {"range": [80, 90]}]}]
    objects.append(
        {"set": {**place, "name": "pairs", "type": ["ipv4_addr", "inet_service"], **interval, "elem": pairs}}
    )
    objects += [{"chain": {**place, "name": name, **(base if name == "forward" else {})}} for name in CHAINS]
    for index, name in enumerate(CHAINS):
        for _ in range(draw(st.integers(1 if index == 0 else 0, 4))):
            expr = draw(rule(index, with_unseen, with_states))
            objects.append({"rule": {**place, "chain": name, "expr": expr}})
    if with_second:
        second = {"family": draw(st.sampled_from(("inet", "ip", "ip6"))), "table": "u"}
        policy = draw(st.sampled_from(("accept", "drop")))
        objects.append({"table": {"family": second["family"], "name": "u"}})
        objects.append({"chain": {**second, "name": "later", **base, "prio": 5, "policy": policy}})
        for _ in range(draw(st.integers(0, 2))):
            expr = [*draw(rule(len(CHAINS), with_unseen, with_states))]
            objects.append({"rule": {**second, "chain": "later", "expr": [one for one in expr if "@" not in str(one)]}})
    return json.dumps({"nftables": objects})
