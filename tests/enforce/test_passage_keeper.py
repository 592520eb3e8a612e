"""The declaration and the loop of a passage, with a kernel and nft in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.uplink.passage import Passage
from orchestrator.enforce.uplink.passagekeeper import PassageKeeper
from orchestrator.errors import BadInput, Refused, Unreachable
from orchestrator.policy.addresses import Prefix

RANGES = (Prefix.parse("198.51.100.0/24"), Prefix.parse("198.51.100.64/26"), Prefix.parse("2001:db8::/48"))
PASSAGE = Passage(("eth0",), ("eth1", "eth2"), RANGES)


@dataclass
class World:
    """A kernel and nft in one: each as it is now."""

    table: str = ""
    nft_error: Exception | None = None
    kernel_error: Exception | None = None
    order: list[str] = field(default_factory=list)

    def follow(self) -> tuple[str, ...]:
        self.order.append("follow")
        if self.kernel_error is not None:
            raise self.kernel_error
        return ()

    def shut(self) -> None:
        self.order.append("shut")

    def run(self, command: Sequence[str], text: str = "") -> str:
        if self.nft_error is not None:
            raise self.nft_error
        if command[1] == "-f":
            self.order.append("guard")
            self.table = text
        return self.table


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def keeper(world: World) -> PassageKeeper:
    return PassageKeeper(world, GuardTable("aclflow_passage", ("chain here { }",), world.run))


def test_the_guard_stands_before_anything_is_led(world: World, keeper: PassageKeeper) -> None:
    assert keeper.step() == ("the guard's table",)
    assert world.order == ["guard", "follow"]
    assert keeper.step() == ()


def test_without_its_guard_nothing_passes(world: World, keeper: PassageKeeper) -> None:
    keeper.step()
    world.nft_error = Refused("no")
    with pytest.raises(Refused):
        keeper.step()
    assert world.order == ["guard", "follow", "shut"]


def test_a_guard_that_somebody_changed_is_written_again(world: World, keeper: PassageKeeper) -> None:
    keeper.step()
    world.table = "something else"
    assert keeper.step() == ("the guard's table",)


def test_a_port_that_lacks_ends_nothing(world: World, keeper: PassageKeeper) -> None:
    world.kernel_error = Unreachable("there is no interface 'sp-out' here")
    keeper.log_step()
    world.kernel_error = None
    keeper.log_step()
    assert world.order == ["guard", "follow", "follow"]


def test_what_is_for_endpoints_goes_in_on_one_side_and_all_that_hosts_send_on_the_other() -> None:
    outside, inside = PASSAGE.ways
    assert (outside.came_by, outside.port, set(map(str, outside.prefixes))) == (
        ("eth0",), "sp-out", {"198.51.100.0/24", "2001:db8::/48"},
    )  # fmt: skip
    assert (inside.came_by, inside.port, set(map(str, inside.prefixes))) == (
        ("eth1", "eth2"), "sp-in", {"0.0.0.0/0", "::/0"},
    )  # fmt: skip
    assert outside.table != inside.table


def test_the_guard_forwards_on_four_ways_and_no_other() -> None:
    lines = list(PASSAGE.guard().chains)
    across = lines[lines.index("chain across {") :]
    assert [line for line in across if line.endswith("accept")] == [
        'iifname { "eth0" } oifname "sp-out" accept',
        'iifname "sp-out" oifname { "eth0" } accept',
        'iifname { "eth1", "eth2" } oifname "sp-in" accept',
        'iifname "sp-in" oifname { "eth1", "eth2" } accept',
    ]
    assert "policy drop" in across[1]
    assert 'iifname { "eth0" } ip saddr { 198.51.100.0/24 } drop' in across


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        ({"outside": ()}, "--outside", "name the interface"),
        ({"inside": ("eth0",)}, "--inside", "both sides"),
        ({"inside": ("sp-in",)}, "--inside", "own port"),
        ({"inside_port": "sp-out"}, "--inside-port", "both sides"),
        ({"outside": ("no such name!",)}, "--outside", "no such name!"),
        ({"ranges": ()}, "--range", "name the addresses"),
        ({"ranges": (Prefix.parse("::/0"),)}, "--range", "every address"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(change: dict[str, object], place: str, said: str) -> None:
    wanted = {"outside": ("eth0",), "inside": ("eth1",), "ranges": RANGES} | change
    with pytest.raises(BadInput, match=said) as refused:
        Passage(**wanted)  # type: ignore[arg-type]
    assert refused.value.place == place
