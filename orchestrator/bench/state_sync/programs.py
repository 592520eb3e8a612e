"""The replicator's programs in every firewall of a world, without the processes of their members.

A member's process does nothing for a connection but send lost messages again, and there are none on these cables. So
the programs alone are measured, in clusters of any size: only the owner's settings say who is a member.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from types import TracebackType

from orchestrator.bench.state_sync.syncworld import DATA, World
from orchestrator.lab.processes import wait_until
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import LANES, Settings, Stream
from orchestrator.statesync.member import Member
from orchestrator.statesync.states import Confirmation, Context, Level

SECRET = bytes(range(100, 116))


@dataclass(frozen=True, slots=True)
class Node:
    """A member and its programs."""

    kernel: Replicator
    member: Member

    def close(self) -> None:
        """End it; what its programs hold goes with its namespace."""
        self.member.stop()
        self.kernel.close()


class Cluster:
    """Members by number. Use it with `with`; it is whole when that begins."""

    def __init__(self, world: World, *, silent_s: float = 1.0, **settings: object) -> None:
        self.world = world
        self._silent_s = silent_s
        self._settings = settings
        self.nodes: dict[int, Node] = {}

    def __enter__(self) -> Cluster:
        for number in self.world.members:
            self.start(number)
        self.wait_whole()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self.nodes):
            self.stop(number)

    def start(self, number: int, secret: bytes = SECRET) -> Node:
        """Start a member with empty tables."""
        settings = Settings(number, self.world.address(number), secret, **self._settings)  # type: ignore[arg-type]
        peers = {other: self.world.address(other) for other in self.world.members if other != number}
        self.nodes[number] = self.world.inside(number, lambda: self._make_node(settings, peers))
        self.nodes[number].member.start()
        return self.nodes[number]

    def _make_node(self, settings: Settings, peers: Mapping[int, str]) -> Node:
        kernel = Replicator.new()
        dial = self.world.dialler(settings.number)
        member = Member(settings, peers, kernel, silent_s=self._silent_s, dial=dial)
        kernel.attach(DATA, self.world.messages(settings.number))
        return Node(kernel, member)

    def stop(self, number: int) -> None:
        """End a member, with its programs."""
        node = self.nodes.pop(number)
        self.world.inside(number, lambda: node.kernel.detach(DATA, self.world.messages(number)))
        node.close()

    def change(self, **settings: object) -> None:
        """Give all members other settings."""
        self._settings.update(settings)
        for node in self.nodes.values():
            node.member.change(**settings)

    def wait_whole(self) -> None:
        """Return when every member follows and is followed by all others. Raises Unreachable."""
        others = len(self.nodes) - 1
        wait_until(
            lambda: all(
                node.member.is_whole and len(node.member.following) == others == len(node.member.followers)
                for node in self.nodes.values()
            ),
            "a cluster does not become whole",
        )

    def forget_all(self) -> None:
        """Empty every member's tables, once all members have told of what closed."""
        members = [node.member for node in self.nodes.values()]
        wait_until(lambda: all(each.has_told_all for each in members), "a member does not tell what closed")
        for node in self.nodes.values():
            node.kernel.forget_all()


OWNER = 1
_STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True, slots=True, order=True)
class Sharing:
    """How much is shared, and how surely, in a cluster of so many members."""

    level: Level
    context: Context
    confirmation: Confirmation
    members: int

    def __str__(self) -> str:
        context, confirmation = self.context.name.lower(), self.confirmation.name.lower()
        return f"{self.level.name.lower()}, {context}, {confirmation}, {self.members} members"


@dataclass(frozen=True, slots=True)
class Spent:
    """Microseconds that the programs ran, on the owner and on all other members."""

    owner_us: float
    others_us: float

    def less(self, before: Spent) -> Spent:
        """Return the CPU time spent since `before`."""
        return Spent(self.owner_us - before.owner_us, self.others_us - before.others_us)


class Programs:
    """The programs. Use it with `with`; member 1 owns all connections."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernels: dict[int, Replicator] = {}

    def __enter__(self) -> Programs:
        for number in self._world.members:
            self._kernels[number] = self._world.inside(number, partial(self._make_replicator, number))
        for one, other in combinations(self._world.members, 2):  # the way to a neighbour has to be known beforehand
            self._world.run(one, "ping", "-c", "1", "-W", "5", self._world.address(other))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, kernel in self._kernels.items():
            interfaces = self._world.messages(number)
            self._world.inside(number, partial(kernel.detach, DATA, interfaces))
            kernel.close()

    def share(self, sharing: Sharing) -> None:
        """Share like this from the next packet on."""
        others = frozenset(range(OWNER + 1, sharing.members + 1))
        owner = self._kernels[OWNER]
        settings = replace(
            owner.settings(), level=sharing.level, context=sharing.context, confirmation=sharing.confirmation,
            members=others, waited=others,
        )  # fmt: skip
        owner.configure(settings)

    def counters(self) -> dict[str, int]:
        """Return the owner's counters."""
        return self._kernels[OWNER].counters()

    def spent(self) -> Spent:
        """Return the programs' run time while statistics were on."""
        owner = _run_us(self._kernels[OWNER])
        return Spent(owner, sum(map(_run_us, self._kernels.values())) - owner)

    def _make_replicator(self, number: int) -> Replicator:
        world, kernel = self._world, Replicator.new()
        others = frozenset(world.members) - {number}
        for other in others:
            kernel.set_member(other, world.address(other))
            for lane in range(LANES):
                kernel.set_stream(other, lane, Stream(True, 0, 0))
        kernel.begin_sequences(0)
        kernel.configure(Settings(number, world.address(number), SECRET, level=Level.FULL, members=others))
        kernel.attach(DATA, world.messages(number))
        return kernel


class Statistics:
    """The kernel's statistics of programs, on for as long as a `with` block runs."""

    def __enter__(self) -> Statistics:
        self._before = _STATISTICS.read_text()
        _STATISTICS.write_text("1")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _STATISTICS.write_text(self._before)


def _run_us(kernel: Replicator) -> float:
    """Microseconds that a member's programs have run."""
    texts = [Path(f"/proc/self/fdinfo/{kernel.program(name)}").read_text() for name in ("watch", "hear")]
    found = [re.search(r"^run_time_ns:\s+(\d+)", text, re.MULTILINE) for text in texts]
    return sum(int(each[1]) for each in found if each is not None) / 1000
