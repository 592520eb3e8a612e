"""From one policy to another, whatever the two are and wherever it is cut off: nothing passes that neither permits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest
from compiled_filter import carried
from enforce.contract_filters import POLICIES
from hypothesis import given, settings
from law_examples import examples
from strategies import policies

from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.iptables.fake import FakeIptables
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables import scripts, tool
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.scripts import incremental
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.errors import NotExpressible, Refused
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

Machine = FakeNft | FakeIptables
PLANES: dict[Plane, Callable[[Machine], FilterDriver]] = {
    Plane.NFTABLES: lambda machine: nftables_driver(machine.run),
    Plane.IPTABLES: lambda machine: iptables_driver("", machine.run),
}


class Killed(BaseException):
    """The process is gone: nobody handles that."""


class Mortal:
    """Runs commands on a machine, and dies before the one of a number; `after`: when it was done, but not answered."""

    def __init__(self, machine: Machine, dies_at: int, *, after: bool) -> None:
        self.machine = machine
        self.left = dies_at
        self.after = after

    def run(self, command: Sequence[str], text: str) -> str:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        answer = self.machine.run(command, text)
        if self.left < 0:
            raise Killed
        return answer


def fresh(plane: Plane) -> Machine:
    return FakeNft() if plane is Plane.NFTABLES else FakeIptables()


def bring(driver: FilterDriver, wanted: Program) -> None:
    change = gap.correction(driver.observe(), wanted, driver.resolve)
    driver.apply(change, gap.stamp_of(wanted))


def holds(driver: FilterDriver, wanted: Program) -> bool:
    return gap.mismatch(driver.observe(), driver.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is None


def compiled(policy: Policy, plane: Plane, generation: int) -> Program | None:
    try:
        return filter_program(policy, [plane], domain="pop1", generation=generation)
    except NotExpressible:
        return None


def packets_of(*both: Policy) -> list[Packet]:
    found = [packet for policy in both for packet in policy_packets(policy) if carried(packet)]
    return [packet for packet in dict.fromkeys(found) if not packet.later_fragment][::7]


def change_law(plane: Plane, old: Policy, new: Policy) -> None:
    machine = fresh(plane)
    driver = PLANES[plane](machine)
    for generation, policy in enumerate((old, new, old), 1):
        wanted = compiled(policy, plane, generation)
        if wanted is None:
            return
        bring(driver, wanted)
        assert holds(driver, wanted)
        for packet in packets_of(policy):
            assert machine.forward(packet) == decide(policy, packet).permitted


@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane.value)
def test_an_object_is_brought_into_its_normal_form_once(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a program is compared, written and read back; after a change, only what the change brings."""
    here, there = (compiled(POLICIES[name], plane, at) for at, name in enumerate(("whole", "another order"), 1))
    assert here is not None
    assert there is not None
    driver = PLANES[plane](fresh(plane))
    normal, asked = driver.tool.normal, list[str]()

    def note(name: str, text: str) -> str:
        asked.append(name)
        return normal(name, text)

    monkeypatch.setattr(driver.tool, "normal", note)
    bring(driver, here)
    assert holds(driver, here)
    assert len(asked) == len(here.flows)
    asked.clear()
    step = gap.step(here, there, (), driver.resolve)
    driver.apply(step, gap.stamp_of(there))
    assert holds(driver, there)
    assert len(asked) == len(step.added)


@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane.value)
@settings(max_examples=examples(25))
@given(old=policies(max_rules=6), new=policies(max_rules=6))
def test_every_change_ends_at_the_new_policy(plane: Plane, old: Policy, new: Policy) -> None:
    change_law(plane, old, new)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane.value)
@settings(max_examples=12)
@given(old=policies(max_rules=5), new=policies(max_rules=5))
def test_killed_at_any_step_it_ends_at_the_goal_and_lets_nothing_new_through(
    plane: Plane, after: bool, old: Policy, new: Policy
) -> None:
    here, there = compiled(old, plane, 1), compiled(new, plane, 2)
    if here is None or there is None:
        return
    packets = packets_of(old, new)
    for step in count():
        machine = fresh(plane)
        bring(PLANES[plane](machine), here)
        mortal = Mortal(machine, step, after=after)
        try:
            bring(PLANES[plane](mortal), there)  # type: ignore[arg-type]
            survived = True
        except Killed:
            survived = False
        for packet in packets:
            permitted = decide(old, packet).permitted, decide(new, packet).permitted
            assert machine.forward(packet) in permitted
        successor = PLANES[plane](machine)
        bring(successor, there)
        assert holds(successor, there)
        if survived:
            return


def test_two_at_once_never_take_the_last_tables_away() -> None:
    """A second agent begins while the first waits between the new table and the end of the old one."""
    old, new = (compiled(POLICIES[name], Plane.NFTABLES, at) for at, name in enumerate(("whole", "no tenants"), 1))
    assert old is not None
    assert new is not None
    machine = FakeNft()
    bring(nftables_driver(machine.run), old)
    ran: list[str] = []

    def run(command: Sequence[str], text: str) -> str:
        if "delete table" in text and "chain" in text and len(ran) == 1:
            bring(nftables_driver(machine.run), old)
        ran.extend([text] if "-f" in command else [])
        return machine.run(command, text)

    with pytest.raises(Refused):
        bring(nftables_driver(run), new)
    left = nftables_driver(machine.run)
    assert holds(left, old)


@pytest.mark.parametrize("refused", ["iptables-restore", "ip6tables-restore"])
def test_iptables_changes_no_half_where_either_text_is_refused(refused: str) -> None:
    """Each text is read once more only where the other half is written first."""
    old, new = (compiled(POLICIES[name], Plane.IPTABLES, at) for at, name in enumerate(("whole", "empty lists"), 1))
    assert old is not None
    assert new is not None
    machine, ran = FakeIptables(), list[str]()
    bring(iptables_driver("", machine.run), old)

    def run(command: Sequence[str], text: str) -> str:
        ran.append(" ".join((command[0], *(each for each in command if each == "--test"))))
        if command[0] == refused:
            raise Refused("a text that is not taken")
        return machine.run(command, text)

    with pytest.raises(Refused):
        bring(iptables_driver("", run), new)
    assert holds(iptables_driver("", machine.run), old)
    restores = [each for each in ran if "-restore" in each]
    assert restores == ["ip6tables-restore --test", "iptables-restore"][: 1 + refused.startswith("iptables")]


# ------------------------------------------------------------------------------------------- the laws find planted bugs


def _without_flush(
    name: str, before: scripts.Tables, after: scripts.Tables, stamp: Stamp
) -> scripts.Incremental | None:
    found = incremental(name, before, after, stamp)
    if found is None:
        return None
    kept = [line for line in found.change.splitlines() if "ingress" not in line or not line.startswith("flush chain")]
    return scripts.Incremental(found.coming, "\n".join(kept), found.going)


@pytest.mark.parametrize(
    ("where", "name", "planted", "other"),
    [(tool, "incremental", _without_flush, "without a rule"), (scripts, "removal", lambda name: "", "no tenants")],
    ids=["chains not flushed", "old tables not removed"],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, planted: object, other: str
) -> None:
    change_law(Plane.NFTABLES, POLICIES["whole"], POLICIES[other])
    monkeypatch.setattr(where, name, planted)
    with pytest.raises(AssertionError):
        change_law(Plane.NFTABLES, POLICIES["whole"], POLICIES[other])
