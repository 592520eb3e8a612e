"""Which firewall server serves which tenants: consistent hashing with bounded loads.

Every key (a tenant, or a cohort of tenants that share a chunk) has an order of preference over the servers, drawn by a
hash (rendezvous hashing), and goes to the first server in it that has room:

    share of a server   what its weight is among all weights, of the cost of all keys
    room                its keys cost at most (1 + slack) times that share

    key a   s2 s0 s1       s2 has room ────────────────────────────▶ s2
    key b   s2 s1 s0       s2 is full, s1 has room ────────────────▶ s1
    key c   s0 s2 s1       nobody has room: the least loaded ──────▶ s1

A key costs its share of all rules, of all traffic and of all chunks (which make lines at the edge), by weights that are
settings. Keys differ in size: what is never broken is (1 + slack) * share + the dearest key (`Placement.bound`).

Keys stay where they are, unless their server is gone or over its bound; then its dearest keys leave until it is not. So
of a server that is lost only its own keys move, and to a server that comes only what others have too much.
The answer follows from the values alone, not from the order in which they are given.

Mirrokni, Thorup, Zadimoghaddam: Consistent hashing with bounded loads, SODA 2018. Thaler, Ravishankar: Rendezvous
hashing, 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from orchestrator.errors import BadInput


@dataclass(frozen=True, slots=True)
class Server:
    """A firewall server that may serve. `weight`: what it carries, relative to the others."""

    name: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise BadInput(f"a weight of {self.weight} serves nobody", place="weight")


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one key."""

    rules: int = 0
    traffic_pps: float = 0.0
    chunks: int = 1

    def __post_init__(self) -> None:
        for name in ("rules", "traffic_pps", "chunks"):
            if getattr(self, name) < 0:
                raise BadInput(f"{getattr(self, name)} cannot be", place=name)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each kind of load, and a server's tolerated share above average."""

    rules: float = 1.0
    traffic: float = 1.0
    chunks: float = 1.0
    slack: float = 0.25

    def __post_init__(self) -> None:
        for name in ("rules", "traffic", "chunks"):
            if getattr(self, name) < 0:
                raise BadInput("a weight is not below zero", place=name)
        if not self.rules + self.traffic + self.chunks > 0:
            raise BadInput("something must count", place="rules")
        if not self.slack > 0:
            raise BadInput("without slack every change moves many tenants", place="slack")


@dataclass(frozen=True, slots=True)
class Move:
    """A key that changes servers; `source` is None for a new one."""

    key: str
    source: str | None
    target: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The server of every key, server loads and limits as shares, and the moves."""

    server_of: Mapping[str, str]
    load: Mapping[str, float]
    bound: Mapping[str, float]
    moves: tuple[Move, ...] = ()

    def keys_of(self, server: str) -> tuple[str, ...]:
        """Return the keys of a server, in order."""
        return tuple(sorted(key for key, name in self.server_of.items() if name == server))


def place(
    servers: Iterable[Server],
    loads: Mapping[str, Load],
    before: Mapping[str, str] | None = None,
    weights: Weights = Weights(),
) -> Placement:
    """Assign every key; `before` is the present assignment.

    Raises BadInput where a key has no server.
    """
    names = {server.name: server for server in servers}
    if not names and loads:
        raise BadInput("there is no firewall server that serves", place="servers")
    return _Placing(names, _costs(loads, weights), dict(before or {}), weights.slack).place_keys()


@dataclass(slots=True)
class _Placing:
    """A placement under way."""

    servers: Mapping[str, Server]
    cost: Mapping[str, float]
    before: Mapping[str, str]
    slack: float
    _load: dict[str, float] = field(init=False)
    _share: dict[str, float] = field(init=False)
    _bound: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        everything, weights = sum(self.cost.values()), sum(server.weight for server in self.servers.values())
        dearest = max(self.cost.values(), default=0.0)
        self._load = dict.fromkeys(sorted(self.servers), 0.0)
        self._share = {name: everything * server.weight / weights for name, server in self.servers.items()}
        self._bound = {name: share * (1 + self.slack) + dearest for name, share in self._share.items()}

    def place_keys(self) -> Placement:
        at = self._staying()
        left = sorted(self.cost.keys() - at.keys(), key=lambda key: (-self.cost[key], key))
        for key in left:
            at[key] = self._server_for(key)
            self._load[at[key]] += self.cost[key]
        moves = tuple(
            Move(key, self.before.get(key), at[key]) for key in sorted(left) if self.before.get(key) != at[key]
        )
        return Placement(dict(sorted(at.items())), dict(self._load), dict(sorted(self._bound.items())), moves)

    def _staying(self) -> dict[str, str]:
        """The keys that stay where they are."""
        at = {key: name for key, name in self.before.items() if name in self.servers and key in self.cost}
        mine: dict[str, list[str]] = {}
        for key, name in at.items():
            mine.setdefault(name, []).append(key)
        for name, keys in mine.items():
            keys.sort(key=lambda key: (self.cost[key], key))
            load = sum(self.cost[key] for key in keys)
            while load > self._bound[name]:
                load -= self.cost[keys[-1]]
                del at[keys.pop()]
            self._load[name] = load
        return at

    def _server_for(self, key: str) -> str:
        """Return the preferred server with room, or the one with the least weighted load."""
        cost = self.cost[key]
        for name in preference(key, list(self.servers)):
            if self._load[name] + cost <= self._share[name] * (1 + self.slack):
                return name
        return min(self._load, key=lambda name: (self._load[name] / self.servers[name].weight, name))


def preference(key: str, servers: Sequence[str]) -> list[str]:
    """Order servers by a key's preference.

    An added server leaves the order of the others unchanged.
    """
    return sorted(servers, key=lambda name: (blake2b(f"{key}\0{name}".encode(), digest_size=8).digest(), name))


def _costs(loads: Mapping[str, Load], weights: Weights) -> dict[str, float]:
    """Each key's share of everything, between 0 and 1; what nobody has does not count."""
    kinds = (("rules", weights.rules), ("traffic_pps", weights.traffic), ("chunks", weights.chunks))
    totals = [(name, weight, sum(getattr(load, name) for load in loads.values())) for name, weight in kinds]
    counted = [(name, weight / total) for name, weight, total in totals if total > 0 and weight > 0]
    scale = sum(weight for _, weight, total in totals if total > 0) or 1.0
    ordered = sorted(loads)
    return {key: sum(getattr(loads[key], name) * each for name, each in counted) / scale for key in ordered}
