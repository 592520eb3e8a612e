"""Ports of virtual machines beside the endpoints that are known: what is written, what is forgotten, who is outside."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cloud.endpoints import Legs, MachinePort, compare_behind_legs, compare_endpoints, device_of
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Endpoint, TenantId

SHOP, OTHER = TenantId("shop"), TenantId("other")
HOSTS = ("one", "two")
IDS = tuple(f"{number}0a1b2c3-d4e5-4f60-8a7b-00000000000{number}" for number in range(4))


def port(number: int, host: str | None = "one", addresses: int = 1) -> MachinePort:
    prefixes = tuple(Prefix.parse(f"10.0.{number}.{index + 1}/32") for index in range(addresses))
    return MachinePort(IDS[number], f"server-{number}", 0xFA163E000000 + number, prefixes, host)


PORTS = st.lists(
    st.builds(port, st.integers(0, 3), st.sampled_from([*HOSTS, "elsewhere", None]), st.integers(0, 2)),
    unique_by=lambda each: each.id,
)


def known(ports: list[MachinePort], *, called: str = "") -> dict[str, Endpoint]:
    made = (each.endpoint(SHOP, called + each.id[:4] if called else None) for each in ports)
    return {each.name: each for each in made}


@given(PORTS, PORTS, st.booleans())
def test_what_is_written_makes_them_the_same_and_nothing_else_is_touched(
    before: list[MachinePort], ports: list[MachinePort], named_by_hand: bool
) -> None:
    by_hand = {
        "veth": Endpoint("veth", SHOP, "veth7", 1, (Prefix.parse("10.9.0.1/32"),)),
        "theirs": Endpoint("theirs", OTHER, device_of(IDS[0]), 2, (Prefix.parse("10.9.0.2/32"),)),
    }
    there = known([each for each in before if each.prefixes], called="web-" if named_by_hand else "") | by_hand
    found = compare_endpoints(ports, SHOP, there.values(), HOSTS)
    after = {name: each for name, each in there.items() if name not in found.gone}
    after |= {each.name: each for each in found.written}
    assert {name: after.get(name) for name in by_hand} == by_hand
    assert compare_endpoints(ports, SHOP, after.values(), HOSTS).is_same
    mine = {each.port: each for each in after.values() if each.tenant == SHOP and each.name not in by_hand}
    assert {device: (each.mac, set(each.prefixes)) for device, each in mine.items()} == {
        device_of(each.id): (each.mac, set(each.prefixes)) for each in ports if each.prefixes
    }
    assert len({each.port for each in after.values() if each.tenant == SHOP}) == len(mine) + 1
    is_known = {each.port: each.name for each in there.values() if each.tenant == SHOP}
    assert all(is_known.get(each.port, each.name) == each.name for each in mine.values())


@given(PORTS, st.data())
def test_a_migration_changes_where_they_are_and_nothing_else(ports: list[MachinePort], data: st.DataObject) -> None:
    there = known([each for each in ports if each.prefixes])
    moved = [replace(each, host=data.draw(st.sampled_from([*HOSTS, "elsewhere", None]))) for each in ports]
    found = compare_endpoints(moved, SHOP, there.values(), HOSTS)
    assert found.is_same
    assert {each.endpoint.name: each.host for each in found.where} == {
        each.id: each.host for each in moved if each.prefixes
    }
    assert {each.endpoint.name for each in found.outside} == {
        each.id for each in moved if each.prefixes and each.host == "elsewhere"
    }


LEGS = Legs({"one": "tenants-0", "two": "tenants-1"})


@given(PORTS, PORTS)
def test_ports_behind_legs_share_them_and_are_told_apart_by_mac_address(
    before: list[MachinePort], ports: list[MachinePort]
) -> None:
    others = {
        "veth": Endpoint("veth", SHOP, "veth7", 1, (Prefix.parse("10.9.0.1/32"),)),
        "tap": replace(port(0).endpoint(SHOP), name="tap"),
        "router": Endpoint("router", SHOP, "tenants-0", 3, (Prefix.parse("10.9.0.3/32"),), shared=True),
        "theirs": Endpoint("theirs", OTHER, "tenants-0", 0xFA163E000000, (Prefix.parse("10.9.0.2/32"),), shared=True),
    }
    known = {each.id: each.endpoint(SHOP, leg=LEGS.find_leg(each.host)) for each in before if each.prefixes}
    there = {name: each for name, each in known.items() if each.shared} | others
    found = compare_behind_legs(ports, SHOP, there.values(), LEGS)
    after = {name: each for name, each in there.items() if name not in found.gone}
    after |= {each.name: each for each in found.written}
    assert {name: after[name] for name in others} == others, "what is no port of that network stays"
    again = compare_behind_legs(ports, SHOP, after.values(), LEGS)
    assert again.is_same
    behind = [each for each in ports if each.prefixes and LEGS.find_leg(each.host)]
    assert {(each.mac, each.port) for name, each in after.items() if name not in others} >= {
        (each.mac, LEGS.find_leg(each.host)) for each in behind
    }
    assert {each.mac for name, each in after.items() if name not in others} <= {
        each.mac for each in ports if each.prefixes
    }
    assert {each.endpoint.mac for each in found.outside} == {
        each.mac for each in ports if each.prefixes and each.host == "elsewhere"
    }
    assert all(each.shared for name, each in after.items() if name not in ("veth", "tap"))


def test_a_machine_that_moves_behind_the_next_vnf_acl_gets_its_leg_and_nothing_else() -> None:
    here, there = (port(1, host).endpoint(SHOP, leg=LEGS.find_leg(host)) for host in ("one", "two"))
    found = compare_behind_legs([port(1, "two")], SHOP, [here], LEGS)
    assert found.written == (there,)
    assert replace(there, port=here.port) == here
    assert (found.gone, found.outside) == ((), ())


def test_one_leg_is_enough_where_there_is_one_vnf_acl() -> None:
    only = Legs({}, "tenants")
    found = compare_behind_legs([port(1, None), port(2, "elsewhere")], SHOP, [], only)
    assert {each.port for each in found.written} == {"tenants"}
    assert not found.outside


def test_an_endpoint_behind_a_leg_that_does_not_say_so_is_written_again() -> None:
    alone = replace(port(1).endpoint(SHOP, leg="tenants-0"), shared=False)
    found = compare_behind_legs([port(1)], SHOP, [alone], LEGS)
    assert found.written == (port(1).endpoint(SHOP, leg="tenants-0"),)
