"""Search for the lists under the ceiling that take longest to carry out.

A `Shape` is a kind of list with three sizes. The search times known slow shapes, and goes on from the slowest of each
kind: twice as much of one thing, or half as much. A list over the ceiling does not count, for it is refused before its
turn. Properties that make a list slow: rules that cross each other in both directions, whose actions and order turn
around, so that what must be held back is looked for; as many flow entries as the ceiling allows; hundreds of
conjunctions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.control.ceilings import Ceilings
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP

_FIRST = Prefix.parse("64.0.0.1/32").network


class Kind(Enum):
    """The properties that make a list slow."""

    CROSSING = "rules in both directions that share packets, each of many ports"
    PORT_PAIRS = "rules of many source and many destination ports"
    ADDRESS_PAIRS = "rules of many sources, many destinations and many ports"


@dataclass(frozen=True, slots=True)
class Shape:
    """A list and its opposite: the same rules with actions and order turned around."""

    kind: Kind
    rules: int
    ports: int
    addresses: int = 1

    def lists(self) -> tuple[Acl, Acl]:
        """Return the list and its opposite."""
        made = {Kind.CROSSING: _crossing, Kind.PORT_PAIRS: _make_port_pairs, Kind.ADDRESS_PAIRS: _make_address_pairs}[
            self.kind
        ]
        return Acl(tuple(made(self, is_turned=False))), Acl(tuple(made(self, is_turned=True))[::-1])

    @property
    def passes(self) -> bool:
        """Return whether its lists are under the ceiling."""
        try:
            Ceilings().check_list(self.lists()[0])
        except TooLarge:
            return False
        return True

    def neighbours(self) -> Iterator[Shape]:
        """Yield the shapes with twice or half as much of one thing."""
        for name in ("rules", "ports", "addresses"):
            size = getattr(self, name)
            if name == "addresses" and self.kind is not Kind.ADDRESS_PAIRS:
                continue
            for other in (size * 2, size // 2):
                if other > 0:
                    yield replace(self, **{name: other})


SLOW = (
    Shape(Kind.CROSSING, 4_000, 16),
    Shape(Kind.CROSSING, 1_000, 60),
    Shape(Kind.PORT_PAIRS, 200, 30),
    Shape(Kind.ADDRESS_PAIRS, 200, 30, 100),
)
"""Where a search begins: the slowest shapes that earlier ones found."""


def find_worst(seconds: Callable[[Shape], float], trials: int, keep: int = 3) -> dict[Shape, float]:
    """Return the slowest of `trials` shapes that pass, with their seconds."""
    taken: dict[Shape, float] = {}
    over: set[Shape] = set()
    waiting = list(SLOW)
    while waiting and len(taken) < trials:
        shape = waiting.pop(0)
        if shape.passes:
            taken[shape] = seconds(shape)
        else:
            over.add(shape)
        if not waiting:
            slowest = sorted(taken, key=lambda each: -taken[each])
            waiting = [each for shape in slowest for each in shape.neighbours() if each not in taken.keys() | over]
            waiting = list(dict.fromkeys(waiting))[:4]
    return {shape: taken[shape] for shape in sorted(taken, key=lambda each: -taken[each])[:keep]}


def _crossing(shape: Shape, *, is_turned: bool) -> Iterator[Rule]:
    """Yield rules whose port ranges cross: every pair of them shares packets.

    Some have many source ports, some many destination ports.
    """
    for number in range(shape.rules // 2):
        some = _ports(shape.ports, number * shape.ports)
        for way in Direction:
            is_permit = (number + (way is Direction.EGRESS)) % 2 == is_turned
            side = "source_ports" if number % 2 else "destination_ports"
            yield make_rule(f"r{number}{way.value}", is_permit=is_permit, direction=way, **{side: some})


def _make_port_pairs(shape: Shape, *, is_turned: bool) -> Iterator[Rule]:
    some = _ports(shape.ports)
    for at in range(shape.rules):
        side = Addresses((Prefix(Family.IPV4, _FIRST + 2 * at, 32),))
        yield make_rule(f"r{at}", is_permit=not is_turned, source=side, source_ports=some, destination_ports=some)


def _make_address_pairs(shape: Shape, *, is_turned: bool) -> Iterator[Rule]:
    sides = [
        Addresses(tuple(Prefix(Family.IPV4, _FIRST + 2 * each + at, 32) for each in range(shape.addresses)))
        for at in (0, 1)
    ]
    for at in range(shape.rules):
        ports = _ports(shape.ports, at)
        is_permit = at % 2 == is_turned
        yield make_rule(f"r{at}", is_permit=is_permit, source=sides[0], destination=sides[1], destination_ports=ports)


def _ports(how_many: int, first: int = 0) -> tuple[PortRange, ...]:
    """Return odd ports, which no range joins."""
    numbers = sorted({(first + each) * 2 % 65_535 + 1 for each in range(how_many)})
    return tuple(PortRange(number, number) for number in numbers)


def make_rule(
    name: str, *, is_permit: bool = True, direction: Direction = Direction.INGRESS, **matches: object
) -> Rule:
    """Return a TCP rule."""
    action = Action.PERMIT if is_permit else Action.DENY
    return Rule(RuleId(name), action, direction, protocol=TCP, **matches)  # type: ignore[arg-type]
