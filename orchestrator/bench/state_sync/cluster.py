"""Members of a firewall cluster in a world, as threads of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from orchestrator.bench.state_sync.world import DATA, World, wait_until
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import Settings
from orchestrator.statesync.member import Member

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
        """Other settings for all members."""
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
