"""The agent of a firewall VNF over a fake nftables: what it lets through when, and what it says of itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from enforce.contract_filters import MEDDLINGS, POLICIES, Meddling, corner_packets, in_force
from enforce.stub_service import StubService
from patience import until

from orchestrator.client import Client
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import agent as agent_module
from orchestrator.enforce import gap
from orchestrator.enforce.agent import DAMAGED, NOTHING_YET, Agent, AgentSettings
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.enrolment import Membership, obtain_credentials
from orchestrator.enforce.standing import Timing
from orchestrator.enforce.state import StateDir
from orchestrator.enforce.watch import Patience
from orchestrator.errors import Missing
from orchestrator.policy.model import Policy
from orchestrator.policy.oracle import decide
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

PACKETS = corner_packets()
WHOLE, LESS = POLICIES["whole"], POLICIES["without a rule"]
TIMING = Timing(observe_every_s=0.05, count_every_s=0.05, absent_after_s=3600)


def program(policy: Policy, generation: int) -> Program:
    return filter_program(policy, [Plane.NFTABLES], domain="pop1", generation=generation)


def passing(machine: FakeNft) -> list[bool]:
    ruleset = machine.ruleset  # of one moment
    return [ruleset.send(packet, size=100).accepted for packet in PACKETS]


def permitted(policy: Policy) -> list[bool]:
    return [decide(policy, packet).permitted for packet in PACKETS]


NOBODY = [False] * len(PACKETS)


class Vnf:
    """A VNF: its machine, its disk, and the agents that live there one after the other."""

    def __init__(self, directory: Path, url: str) -> None:
        self.machine = FakeNft()
        self.directory = directory
        self.url = url
        self.agent: Agent | None = None

    def start(self, state: StateDir | None = None) -> Agent:
        state = state or StateDir(self.directory)
        patience = Patience(watch_s=0.5, retry_s=0.01, longest_retry_s=0.05)
        membership = Membership(self.url, self.directory, "fw1", token="once", patience=patience)
        credentials = obtain_credentials(
            membership, "nftables", state, lambda url, _: Client(url).enrolment, threading.Event()
        )
        assert credentials is not None
        settings = AgentSettings(
            membership, "nftables", partial(nftables_driver, self.machine.run), timing=TIMING, load_every_s=0.05
        )
        self.agent = Agent(settings, state, credentials, Client(self.url, credentials.token).points)
        self.agent.start()
        return self.agent

    def stop(self) -> None:
        if self.agent is not None:
            self.agent.stop()
            self.agent = None

    def reboot(self) -> None:
        """The machine forgets; the disk does not."""
        self.stop()
        self.machine = FakeNft()


@pytest.fixture
def service() -> Iterator[StubService]:
    stub = StubService([])
    yield stub
    stub.close()


@pytest.fixture
def vnf(tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vnf]:
    vnf = Vnf(tmp_path / "state", service.url)
    monkeypatch.setattr(agent_module, "switch_forwarding_on", lambda: None)
    yield vnf
    vnf.stop()


def holds(machine: FakeNft, wanted: Program) -> bool:
    driver = nftables_driver(machine.run)
    return gap.mismatch(driver.observe(), driver.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is None


def troubled(service: StubService, words: str) -> bool:
    return any(words in str(load["trouble"]) for load in service.loads)


def test_the_filter_is_closed_before_anything_is_forwarded(vnf: Vnf, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[bool]] = []
    monkeypatch.setattr(agent_module, "switch_forwarding_on", lambda: seen.append(passing(vnf.machine)))
    assert any(passing(vnf.machine))
    vnf.start()
    assert seen == [NOBODY]


def test_without_any_program_it_denies_and_says_so(vnf: Vnf, service: StubService) -> None:
    vnf.start()
    until(lambda: troubled(service, NOTHING_YET))
    assert passing(vnf.machine) == NOBODY


def test_it_follows_the_program_and_tells_what_it_read_back(vnf: Vnf, service: StubService) -> None:
    vnf.start()
    for generation, policy in enumerate((WHOLE, LESS, WHOLE), 5):
        wanted = program(policy, generation)
        service.publish(wanted)
        service.wait_enforced(generation, "fw1")
        assert passing(vnf.machine) == permitted(policy)
        assert service.points["fw1"]["digest"] == wanted.digest.hex()
    until(lambda: service.loads[-1]["trouble"] is None)


def test_after_a_reboot_without_the_service_it_enforces_what_it_knew(vnf: Vnf, service: StubService) -> None:
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.publish(program(LESS, 6))
    service.wait_enforced(6, "fw1")
    vnf.reboot()
    service.close()
    vnf.start()
    until(lambda: passing(vnf.machine) == permitted(LESS))


def test_an_agent_that_dies_leaves_the_filter_and_its_successor_finds_it(vnf: Vnf, service: StubService) -> None:
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.wait_enforced(5, "fw1")
    vnf.stop()
    assert passing(vnf.machine) == permitted(WHOLE)
    service.publish(program(LESS, 6))
    seen = {tuple(passing(vnf.machine))}
    before, after = tuple(permitted(WHOLE)), tuple(permitted(LESS))
    vnf.start()
    while not service.is_enforced(6, "fw1"):
        seen.add(tuple(passing(vnf.machine)))
    assert tuple(passing(vnf.machine)) == after
    assert seen <= {before, after, _both(before, after)}  # and at no time closed


def _both(one: tuple[bool, ...], other: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(here and there for here, there in zip(one, other, strict=True))


@pytest.mark.parametrize("copy", ["garbage", "flipped", "cut"])
def test_a_damaged_copy_is_not_enforced_and_it_says_so(vnf: Vnf, service: StubService, copy: str) -> None:
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.wait_enforced(5, "fw1")
    vnf.reboot()
    kept = vnf.directory / "program"
    sound = program(WHOLE, 5)
    lying = Program(sound.domain, sound.tier, 5, sound.digest, program(POLICIES["empty lists"], 5).blocks, ())
    if copy == "flipped":
        StateDir(vnf.directory).keep_program(lying)
    else:
        kept.write_bytes({"garbage": b"not a program", "cut": kept.read_bytes()[:-9]}[copy])
    service.published.clear()
    vnf.start()
    until(lambda: troubled(service, DAMAGED))
    assert passing(vnf.machine) == NOBODY
    service.publish(program(LESS, 6))
    service.wait_enforced(6, "fw1")
    assert passing(vnf.machine) == permitted(LESS)


class FullDisk(StateDir):
    """Credentials can still be kept: they were there before."""

    def keep_program(self, program: Program) -> None:
        raise Missing("cannot be written: No space left on device", place="program")

    def keep_deltas(self, deltas: object, *, flush: bool = True) -> bool:
        raise Missing("cannot be written: No space left on device", place="deltas")


def comes_to_less(vnf: Vnf, service: StubService, disk: type[FullDisk]) -> None:
    """The agent has kept a program when its disk takes no more, and another comes."""
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.wait_enforced(5, "fw1")
    vnf.stop()
    assert (vnf.directory / "program").exists()
    vnf.start(disk(vnf.directory))
    service.publish(program(LESS, 6))
    service.wait_enforced(6, "fw1")
    assert passing(vnf.machine) == permitted(LESS)


def test_on_a_full_disk_it_enforces_says_so_and_will_not_begin_with_an_old_program(
    vnf: Vnf, service: StubService
) -> None:
    comes_to_less(vnf, service, FullDisk)
    until(lambda: troubled(service, "No space left"))
    assert not (vnf.directory / "program").exists()
    vnf.reboot()
    service.close()
    vnf.start()
    assert passing(vnf.machine) == NOBODY


class ReadOnlyDisk(FullDisk):
    """What is there can be neither replaced nor removed."""

    def drop_program(self) -> None:
        raise Missing("cannot be removed: Read-only file system", place="program")


def test_where_an_older_program_cannot_be_removed_it_says_what_a_restart_would_begin_with(
    vnf: Vnf, service: StubService
) -> None:
    comes_to_less(vnf, service, ReadOnlyDisk)
    until(lambda: troubled(service, "a restart would begin with an older one"))


@pytest.mark.parametrize("meddling", MEDDLINGS, ids=lambda each: each.name)
def test_a_foreign_change_is_put_right_in_time(vnf: Vnf, service: StubService, meddling: Meddling) -> None:
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.wait_enforced(5, "fw1")
    vnf.machine.run(("nft", "-f", "-"), in_force(meddling, vnf.machine.run))
    until(lambda: holds(vnf.machine, program(WHOLE, 5)))
    assert passing(vnf.machine) == permitted(WHOLE)


def test_a_device_that_refuses_keeps_what_it_had_and_the_service_learns_why(vnf: Vnf, service: StubService) -> None:
    vnf.start()
    service.publish(program(WHOLE, 5))
    service.wait_enforced(5, "fw1")
    vnf.machine.fails += ["Device or resource busy"] * 2
    service.publish(program(LESS, 6))
    service.wait(lambda: any("resource busy" in str(point["error"]) for point in service.history))
    service.wait_enforced(6, "fw1")
    assert passing(vnf.machine) == permitted(LESS)
