"""AWS import and export against an independent reading of the JSON, at the corners of the rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from formats import cloud_walks
from formats.iptables_texts import packets_at, seeds, some_corners
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import ANY, Family
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, families
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import EVERY_PORT

Walk = Callable[[str, Direction, Packet], bool]
WALKS: dict[str, Walk] = {"aws-sg": cloud_walks.security_group, "aws-nacl": cloud_walks.network_acl}
BLOCKS = {
    Family.IPV4: ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.0/24"),
    Family.IPV6: ("::/0", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::5/128"),
}
SERVICES = (
    *(("-1", None, None), ("6", 22, 22), ("6", 20, 25), ("6", 0, 65535), ("17", 53, 53), ("6", 1024, 65535)),
    *(("1", -1, -1), ("1", 8, -1), ("1", 3, 4), ("58", 128, -1), ("58", 1, 4), ("50", None, None), ("132", None, None)),
)


@st.composite
def permissions(draw) -> dict[str, object]:
    protocol, low, high = draw(st.sampled_from(SERVICES))
    names = {number: name for name, number in cloud_walks.AWS_NAMES.items()}
    ends = {} if low is None else {"FromPort": low, "ToPort": high}
    four, six = (draw(st.lists(st.sampled_from(BLOCKS[family]), max_size=2)) for family in Family)
    words = draw(st.sampled_from(("", "[web] the shop", "office")))
    return {
        "IpProtocol": names.get(protocol, protocol),
        **ends,
        "IpRanges": [{"CidrIp": block, "Description": words} for block in four],
        "Ipv6Ranges": [{"CidrIpv6": block} for block in six],
        "PrefixListIds": [],
        "UserIdGroupPairs": [],
    }


@st.composite
def groups(draw) -> str:
    both = [draw(st.lists(permissions(), max_size=4)) for _ in Direction]
    body = {"GroupId": "sg-1", "IpPermissions": both[0], "IpPermissionsEgress": both[1]}
    return json.dumps({"SecurityGroups": [body]})


@st.composite
def entries(draw) -> dict[str, object]:
    protocol, low, high = draw(st.sampled_from((*SERVICES, *SERVICES[:3] * 4)))
    further = {}
    if protocol in ("6", "17"):
        further = {"PortRange": {"From": low, "To": high}}
    elif low is not None:
        further = {"IcmpTypeCode": {"Type": low, "Code": high}}
    family = draw(st.sampled_from((Family.IPV4, Family.IPV4, Family.IPV6)))
    block = {"CidrBlock" if family is Family.IPV4 else "Ipv6CidrBlock": draw(st.sampled_from(BLOCKS[family]))}
    action = draw(st.sampled_from(("allow", "deny")))
    egress = draw(st.sampled_from((False, False, True)))
    return {"Egress": egress, "Protocol": protocol, "RuleAction": action, **block, **further}


@st.composite
def network_acls(draw) -> str:
    found = draw(st.lists(entries(), min_size=3, max_size=9))
    numbers = draw(st.permutations(range(1, len(found) + 1)))
    numbered = [{"RuleNumber": 10 * number, **entry} for number, entry in zip(numbers, found, strict=True)]
    last = {"RuleNumber": 32767, "Egress": False, "Protocol": "-1", "RuleAction": "deny", "CidrBlock": "0.0.0.0/0"}
    return json.dumps({"NetworkAcls": [{"NetworkAclId": "acl-1", "Entries": [last, *numbered]}]})


def far_only(acl: Acl) -> Acl:
    """The list as far as AWS can say it: about the far side and destination ports only."""
    rules = [
        replace(rule, source_ports=EVERY_PORT, established=False, tcp_flags=None, fragments=False)
        for rule in acl.rules
        if rule.protocol not in (44, 132)
    ]
    mended = [
        replace(rule, **{"destination" if rule.direction is Direction.INGRESS else "source": ANY}) for rule in rules
    ]
    return replace(acl, rules=tuple(rule for rule in mended if families(rule, acl.groups)))


TEXTS = {"aws-sg": groups(), "aws-nacl": network_acls()}
slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(st.sampled_from(sorted(TEXTS)).flatmap(lambda name: st.tuples(st.just(name), TEXTS[name])), seeds)
def test_lists_are_read_exactly(drawn: tuple[str, str], seed: int) -> None:
    name, text = drawn
    imported = read(text)
    assert imported.exact, imported.losses
    for family in Family:
        for packet in packets_at(imported, family, seed):
            for direction in Direction:
                if not packet.later_fragment:
                    ours = ask(imported.acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
                    assert ours is WALKS[name](text, direction, packet), (direction, packet)


@slow
@given(st.sampled_from(sorted(TEXTS)).flatmap(lambda name: st.tuples(st.just(name), TEXTS[name])))
def test_reading_writing_and_reading_gives_the_same_list(drawn: tuple[str, str]) -> None:
    name, text = drawn
    once = read(text)
    exported = write(once.acl, name)
    again = read(exported.text)
    assert (exported.losses, again.losses) == ((), ())
    assert again.acl == once.acl


@pytest.mark.parametrize("name", sorted(WALKS))
@slow
@given(acl=st.one_of(acls(max_rules=4), acls(max_rules=5).map(far_only)))
def test_what_is_written_decides_as_the_list_does(name: str, acl: Acl) -> None:
    """And never permits more, where it could not be written exactly; denies are taken out of a security group."""
    exported = write(acl, name)
    again = read(exported.text)
    assert again.exact, again.losses
    for packet in some_corners(acl):
        for direction in Direction:
            ours, theirs = (
                ask(one, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT for one in (acl, again.acl)
            )
            if not packet.later_fragment:
                assert WALKS[name](exported.text, direction, packet) is theirs, (packet, direction)
                assert theirs is ours if exported.exact else theirs <= ours, (packet, direction)
