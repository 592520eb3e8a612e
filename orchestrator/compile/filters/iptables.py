"""The iptables compiler: a policy as `iptables-restore` and `ip6tables-restore` text, one line a match, linear.

    (its leg's?)
    FORWARD ─┬─▶ whole ── operator's lines ── -s prefix ──▶ egress_7 ── -d prefix ──▶ ingress_9 ── -s prefix ACCEPT
             └─▶ later ── ...                 (a permit RETURNs)        (a permit ACCEPTs)         to nobody of ours

What gets to an end is dropped. The text replaces the whole filter table in one transaction; INPUT and OUTPUT let
everything pass, for the filter speaks of forwarded packets only. Mode `full` (see `filterlists`): every list is
enforced. Where connections are tracked, lists are asked about the packet that opened the connection
(`filtertracking.py`), and later fragments, of which the kernel leaves none, are dropped.

Later fragments have chains of their own (`_later`), in which only lines stand that can match them. ip6tables has no
other way to say "not a later fragment" of any protocol; and iptables over nftables takes the bytes of a later fragment
for a header (seen with 1.8.9 on Linux 6.18), where the kernel's own iptables does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.compile.filters import filtertracking
from orchestrator.compile.filters import limits as filterlimits
from orchestrator.compile.filters.filterlists import (
    WORLDS,
    FilterList,
    Line,
    Part,
    Stage,
    World,
    filter_lists,
    hollow_lists,
)
from orchestrator.compile.filters.legs import INSIDE, OUTSIDE
from orchestrator.compile.filters.limits import Limits
from orchestrator.errors import NotExpressible
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.dscp import HIGHEST_CODE_POINT
from orchestrator.policy.formats.iptables.options import PROTOCOL_ZERO
from orchestrator.policy.maskedword import split_word
from orchestrator.policy.model import Action, Policy, ReturnTraffic
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

_NAMES = {ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPV6: "icmpv6", SCTP: "sctp"}
_SIX_FLAGS = 0x3F
"""The flags that iptables has words for; the other two are looked at as numbers, which it can do in IPv4 only."""
_ANY_TYPE = 255
"""The ICMP type that iptables takes for every type."""
_TARGETS = {
    Stage.OPERATOR: ("ACCEPT", "DROP"),
    Stage.EGRESS: ("RETURN", "DROP"),
    Stage.INGRESS: ("ACCEPT", "DROP"),
}
"""The targets of permit and deny: the sender's list passes a packet on to the receiver's."""


def iptables_texts(policy: Policy) -> Mapping[Family, str]:
    """The text for `iptables-restore` (IPv4) and the one for `ip6tables-restore` (IPv6).

    Raises TooLarge and BadPolicy as `filter_lists` does, NotExpressible where an IPv6 rule looks at the flags ECE or
    CWR.
    """
    return {family: _write_table(family, chains) for family, chains in iptables_chains(policy).items()}


def iptables_chains(policy: Policy, part: Part = Part.WHOLE) -> Mapping[Family, Mapping[str, tuple[str, ...]]]:
    """Return the rules, or a part of them, by family and chain.

    The chains are FORWARD and those of ours. Raises as `iptables_texts`.
    """
    lists, limits = filter_lists(policy) if Part.LISTS in part else hollow_lists(policy), Limits.of_policy(policy)
    make = _tracked_chains if policy.return_traffic is ReturnTraffic.TRACKED else _make_chains
    return {family: make(lists, family, limits, part) for family in Family}


def iptables_lines(lists: Sequence[FilterList]) -> int:
    """Count the lines of lists for both IP versions.

    A line a match, one more where it logs or is limited, and one for each default.
    """
    found = 0
    for each in lists:
        for world in WORLDS:
            rows = each.rows(world)
            found += len(rows.rules) + int((rows.rules.log == 1).sum()) + int(rows.limited.sum())
            found += each.default is not None
    return found


_HEADERS = {
    Family.IPV4: ("-p tcp -m tcp", "-p udp -m udp", "-p sctp -m sctp", "-p icmp -m icmp --icmp-type any"),
    Family.IPV6: ("-p tcp -m tcp", "-p udp -m udp", "-p sctp -m sctp", "-p icmpv6 -m icmp6 --icmpv6-type 1"),
}
"""Lines without a target: the kernel's match of a header drops the packet if the header is cut short, and that is all
they are for. Ports behind it could not be told, and a line that asks for them might be passed by."""

_HEADS = {
    Family.IPV4: ["# aclflow: IPv4 half of a policy; load with iptables-restore", "*filter"],
    Family.IPV6: ["# aclflow: IPv6 half of a policy; load with ip6tables-restore", "*filter"],
}
FORWARD = "FORWARD"
"""The kernel's own chain that every forwarded packet meets; what gets to its end is dropped."""
_FIRST_RULES = {
    Family.IPV4: ("-f -g later", "-g whole"),
    Family.IPV6: ("-m frag --fragfirst -g whole", "-m frag -g later", "-g whole"),
}


def _write_table(family: Family, chains: Mapping[str, tuple[str, ...]]) -> str:
    declared = [":INPUT ACCEPT [0:0]", ":FORWARD DROP [0:0]", ":OUTPUT ACCEPT [0:0]"]
    declared += [f":{chain} - [0:0]" for chain in chains if chain != FORWARD]
    rules = [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
    return "\n".join([*_HEADS[family], *declared, *rules, "COMMIT", ""])


def _make_chains(
    lists: Sequence[FilterList], family: Family, limits: Limits, part: Part
) -> Mapping[str, tuple[str, ...]]:
    chains: dict[str, tuple[str, ...]] = {}
    if Part.FRAME in part:
        chains[FORWARD] = (*_by_leg(lists, family), *_FIRST_RULES[family])
    for world in (World(family, later=False), World(family, later=True)):
        if Part.FRAME in part:
            chains["later" if world.later else "whole"] = tuple(_way(lists, world, limits))
        for each in lists if Part.LISTS in part else ():
            if each.stage is not Stage.OPERATOR:
                chains[_name_chain(each, world)] = tuple(_write_list_rules(each.rows(world), world, limits))
    return chains


def _tracked_chains(
    lists: Sequence[FilterList], family: Family, limits: Limits, part: Part
) -> Mapping[str, tuple[str, ...]]:
    """Return the chains where connections are tracked: nothing comes back from `later`, so it drops."""
    world = World(family, later=False)
    owned: dict[int, list[Prefix]] = {}
    for each, prefix in _list_owned_prefixes(lists, Stage.EGRESS, family):
        owned.setdefault(each.tenant, []).append(prefix)
    chains: dict[str, tuple[str, ...]] = {}
    if Part.FRAME in part:
        way = _way(lists, world, limits, first=True)
        chains |= {FORWARD: (*_by_leg(lists, family), *_FIRST_RULES[family]), "later": ()}
        chains["whole"] = (*_HEADERS[family], *filtertracking.iptables_rules(), *way)
        chains |= filtertracking.iptables_chains(family, owned)
    if Part.LISTS in part:
        chains |= filtertracking.iptables_errors(owned)
        for each in lists:
            if each.stage is not Stage.OPERATOR:
                chains[each.name] = tuple(_write_list_rules(each.rows(world), world, limits, first=True))
    return chains


def _by_leg(lists: Sequence[FilterList], family: Family) -> Iterator[str]:
    """Yield rules that drop source addresses which the packet's leg does not have.

    None where one tenant owns every address.
    """
    owned = [prefix for _, prefix in _list_owned_prefixes(lists, Stage.EGRESS, family)]
    if any(not prefix.length for prefix in owned):
        return
    for prefix in owned:
        yield f"-s {prefix} -i {OUTSIDE} -j DROP"
        yield from (f"-s {prefix} -i {INSIDE} {rule}" for rule in _FIRST_RULES[family])
    yield f"-i {INSIDE} -j DROP"


def _name_chain(each: FilterList, world: World) -> str:
    return f"{each.name}_later" if world.later else each.name


def _way(lists: Sequence[FilterList], world: World, limits: Limits, *, first: bool = False) -> Iterator[str]:
    """Yield a packet's path: operator rules, the lists of its addresses, then accept."""
    owned = {stage: list(_list_owned_prefixes(lists, stage, world.family)) for stage in (Stage.EGRESS, Stage.INGRESS)}
    if not (world.later or first):
        yield from _HEADERS[world.family]
    for each in lists:
        if each.stage is Stage.OPERATOR:
            yield from _write_list_rules(each.rows(world), world, limits, first=first)
    for stage, option in ((Stage.EGRESS, "-s"), (Stage.INGRESS, "-d")):
        for each, prefix in owned[stage]:
            yield _join_words(*_owner(option, prefix, first=first), f"-j {_name_chain(each, world)}")
    for _, prefix in owned[Stage.EGRESS]:
        yield _join_words(*_owner("-s", prefix, first=first), "-j ACCEPT")


def _owner(option: str, prefix: Prefix, *, first: bool) -> tuple[str, ...]:
    """Return the match of one address of the packet, or of its connection's first packet."""
    if not first:
        return _match_address(option, prefix)
    return tuple(f"-m conntrack {each}" for each in _match_address(_OF_FIRST[option], prefix))


_OF_FIRST = {"-s": "--ctorigsrc", "-d": "--ctorigdst"}


def _list_owned_prefixes(
    lists: Sequence[FilterList], stage: Stage, family: Family
) -> Iterator[tuple[FilterList, Prefix]]:
    for each in lists:
        if each.stage is stage:
            yield from ((each, prefix) for prefix in each.prefixes if prefix.family is family)


def _write_list_rules(each: FilterList, world: World, limits: Limits, *, first: bool = False) -> Iterator[str]:
    permit, deny = _TARGETS[each.stage]
    for line in each.lines():
        matches = tuple(_matches_of_first(line) if first else _matches(line, world.family))
        target = permit if line.permit else deny
        if line.log:
            yield _join_words(*matches, filterlimits.iptables_report(each.tenant, limits.log, line.comment))
        if line.limited:
            measure = filterlimits.iptables_messages(each.tenant, limits.path_mtu_rate)
            yield _join_words(*matches, measure, _write_comment(line.comment), f"-j {permit}")
            target = deny
        yield _join_words(*matches, _write_comment(line.comment), f"-j {target}")
    if each.default is not None:
        target = permit if each.default is Action.PERMIT else deny
        yield _join_words(_write_comment(each.default_comment), f"-j {target}")


def _join_words(*words: str) -> str:
    return " ".join(words)


def _write_comment(text: str) -> str:
    return f'-m comment --comment "{text}"'


def _match_address(option: str, prefix: Prefix) -> tuple[str, ...]:
    return (f"{option} {prefix}",) if prefix.length else ()


def _matches(line: Line, family: Family) -> Iterator[str]:
    """The matches of a line."""
    yield from _match_address("-s", line.source)
    yield from _match_address("-d", line.destination)
    if line.protocol == 0:
        yield f'-m u32 --u32 "{PROTOCOL_ZERO}"'
    elif line.protocol > 0:
        yield f"-p {_NAMES.get(line.protocol, line.protocol)}"
    if line.icmp_type >= 0:
        yield from _match_icmp(line, family)
    ports = (*_match_ports("--sport", line.source_ports), *_match_ports("--dport", line.destination_ports))
    (flags, of_flags), (dscp, of_dscp) = split_word(line.word_value, line.word_mask)
    if ports or of_flags:
        named = (each & _SIX_FLAGS for each in (flags, of_flags))
        yield " ".join([f"-m {_NAMES[line.protocol]}", *ports, *_match_flags(*named)])
    if of_dscp:
        yield _match_dscp(dscp, of_dscp)
    if of_flags & ~_SIX_FLAGS:
        if family is Family.IPV6:
            raise NotExpressible(
                f"{line.comment}: ip6tables cannot look at the TCP flags ECE and CWR", place="tcp_flags"
            )
        yield _u32(f"12>>16&{of_flags:#x}={flags:#x}")


def _matches_of_first(line: Line) -> Iterator[str]:
    """Yield the matches of a line about the packet that opened the connection.

    They are in the order of iptables-save. An ICMP type and its code are one number there, in the place of the
    destination's port.
    """
    asked = [f"--ctproto {line.protocol}"] if line.protocol > 0 else []
    asked += [*_match_address("--ctorigsrc", line.source), *_match_address("--ctorigdst", line.destination)]
    if line.icmp_type >= 0:
        asked += _match_ports("--ctorigdstport", line.opening_icmp)
    else:
        asked += _match_ports("--ctorigsrcport", line.source_ports) + _match_ports(
            "--ctorigdstport", line.destination_ports
        )
    if asked:
        yield " ".join(["-m conntrack", *asked])


def _match_icmp(line: Line, family: Family) -> Iterator[str]:
    code = "" if line.icmp_code < 0 else f"/{line.icmp_code}"
    if family is Family.IPV6:
        yield f"-m icmp6 --icmpv6-type {line.icmp_type}{code}"
    elif line.icmp_type != _ANY_TYPE:
        yield f"-m icmp --icmp-type {line.icmp_type}{code}"
    else:
        yield _u32("0>>24=0xff" if line.icmp_code < 0 else f"0>>16=0xff{line.icmp_code:02x}")


def _u32(test: str) -> str:
    """Return a test of the words behind the IPv4 header.

    Its length is in its first byte.
    """
    return f'-m u32 --u32 "0>>22&0x3c@{test}"'


def _match_ports(option: str, ports: tuple[int, int]) -> tuple[str, ...]:
    low, high = ports
    if (low, high) == (0, HIGHEST_PORT):
        return ()
    return (f"{option} {low}" if low == high else f"{option} {low}:{high}",)


def _match_dscp(value: int, mask: int) -> str:
    """Return a test of DSCP, or of its octet under a mask."""
    if mask == HIGHEST_CODE_POINT:
        return f"-m dscp --dscp {value:#04x}"
    return f"-m tos --tos {value << 2:#04x}/{mask << 2:#04x}"


def _match_flags(value: int, mask: int) -> tuple[str, ...]:
    return (f"--tcp-flags {_spell_flags(mask)} {_spell_flags(value)}",) if mask else ()


def _spell_flags(flags: int) -> str:
    return ",".join(flag.name for flag in TcpFlag if flag & flags and flag.name) or "NONE"
