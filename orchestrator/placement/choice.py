"""Choosing which rules to lift, by one of two algorithms behind one interface.

    paper     ACLFLOW's Algorithm 1 (`popularity.py`): by packets, one rule a round
    savings   by the CPU that lifting saves: the best set under the budget, in one round

Both take down what has cooled, and neither swaps rules that are about as good as each other. Rules that the operator
pinned are lifted whatever their counts, and do not use up the budget; what the operator forbade is never lifted.

A lift's savings are estimated from the rule's packets and the tables on their way. A switch remembers what it found out
about a packet in a cache entry that holds every bit that was looked at on the way. A packet that no entry holds is an
upcall, which costs many times as much as one that is held. So two things cost:

    regions   the entries that the rule's packets fall into: as many as there are values of the bits of the other side
              that some shape on the way looks at. A rule for all sources behind shapes that look at sources needs
              an entry for nearly every connection, lifted it needs one.
    visits    the shapes that an upcall looks through before it finds the rule.

The expected upcalls follow from the regions. Let n connections come in the time that an unused entry is kept, each into
one of r regions: a region is hit in that time with probability p = 1 - (1 - 1/r)^n, and costs an upcall if it was not
hit in the time before: r p (1 - p). For one region that is none, for regions without number it is n.

Measured with Open vSwitch 3.1 and 20,000 rules of 30 shapes: 0.996 upcalls a connection against 0.0003 after lifting,
132 against 85 us of CPU a connection; and where no rule looks at sources, no difference.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.placement.lifting import LiftedRule
from orchestrator.placement.popularity import Sample, Thresholds, prioritise
from orchestrator.policy.model import RuleId
from orchestrator.program.counts import READ_EVERY_S
from orchestrator.wire.domains import MAX_IDLE_MS

UPCALL_US = 47.0
"""CPU of an upcall, installing its entry included: (132 - 85) us for 0.996 of them a connection."""
VISIT_US = 0.04
"""CPU of looking into one more shape during an upcall."""
ENTRY_IDLE_S = MAX_IDLE_MS / 1000
"""How long a switch keeps a cache entry that is not used."""
PACKETS_A_CONNECTION = 10.0
"""Of a short HTTP connection, both ways; a rule counts those of one way."""


@dataclass(frozen=True, slots=True)
class Look:
    """The cost of finding a line: regions of the other side, and shapes searched."""

    regions: float = 1.0
    visits: int = 1

    def __post_init__(self) -> None:
        if not self.regions >= 1.0 or self.visits < 0:
            raise ValueError(f"{self.regions} regions and {self.visits} shapes cannot be")

    def cost_us(self, connections_per_s: float) -> float:
        """Microseconds of CPU a second that upcalls cost."""
        upcalls = expected_upcalls(connections_per_s * ENTRY_IDLE_S, self.regions) / ENTRY_IDLE_S
        return upcalls * (UPCALL_US + VISIT_US * self.visits)


@dataclass(frozen=True, slots=True)
class Prospect:
    """A rule's packets and replies: their look-ups in the lists, and their look-ups if lifted."""

    now: Look
    lifted: Look
    replies_now: Look = Look()
    replies_lifted: Look = Look()

    def saves_us_per_s(self, packets_per_s: float) -> float:
        """CPU microseconds a second that the lift saves on each switch on the packets' way."""
        connections = 2 * packets_per_s / PACKETS_A_CONNECTION
        before = self.now.cost_us(connections) + self.replies_now.cost_us(connections)
        return before - self.lifted.cost_us(connections) - self.replies_lifted.cost_us(connections)


def expected_upcalls(connections: float, regions: float) -> float:
    """Estimate upcalls of `connections` within a cache entry's idle time, spread evenly over `regions`."""
    if connections <= 0 or regions <= 1:
        return 0.0
    missed = math.exp(connections * math.log1p(-1 / regions))
    return regions * (1 - missed) * missed if regions < 1e15 else connections


MOST_LIFTED = 256
"""No budget may be larger: lifted rules are looked at before all others."""
LEAST_INTERVAL_S = 1.5 * READ_EVERY_S
"""In a shorter one there may be no report of counts at all, however busy the rules are: none would stay up."""
LEAST_SAVED_US_PER_S = 100.0
"""A rule that does not save a ten-thousandth of a core is not worth a lift."""
_SHORTLIST = 4
"""Of each place in the budget, so many rules are looked at in detail."""


class Algorithm(enum.Enum):
    """How rules are chosen; OFF lifts only what is pinned."""

    OFF = "off"
    PAPER = "paper"
    SAVINGS = "savings"


class Wish(enum.Enum):
    """The operator's wish for a rule."""

    PINNED = "pinned"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a domain chooses. Raises BadInput with the field's name.

    Every `interval_s` (the paper's T). `upper` and `lower` (UT, LT) are packets in that time: what a rule needs to be
    lifted, and what it must not fall below to stay. `most_lifted` is the budget; 0 lifts nothing. `hysteresis` is by
    how large a part something must be better to take another's place.
    """

    algorithm: Algorithm = Algorithm.SAVINGS
    interval_s: float = 300.0
    upper: int = 2000
    lower: int = 500
    most_lifted: int = 16
    hysteresis: float = 0.25
    as_printed: bool = False

    def __post_init__(self) -> None:
        self.thresholds()
        if not 1.0 <= self.interval_s <= 86_400.0:
            raise BadInput(f"{self.interval_s} s is not between a second and a day", place="interval_s")
        if self.most_lifted > MOST_LIFTED:
            raise BadInput(f"{self.most_lifted} rules are more than {MOST_LIFTED}", place="most_lifted")
        if not 0.0 <= self.hysteresis <= 10.0:
            raise BadInput(f"{self.hysteresis} is not between 0 and 10", place="hysteresis")

    def check_that_counts_keep_up(self) -> None:
        """Raises BadInput for an interval in which enforcement points may not have reported yet."""
        if self.interval_s < LEAST_INTERVAL_S:
            raise BadInput(
                f"{self.interval_s:g} s is less than {LEAST_INTERVAL_S:g} s: counts come every {READ_EVERY_S:g} s, so "
                "a round would often find none, and take down what is busy",
                place="interval_s",
            )

    def thresholds(self) -> Thresholds:
        """The settings of Algorithm 1. Raises BadInput."""
        return Thresholds(self.interval_s, self.upper, self.lower, self.most_lifted, self.as_printed)


@dataclass(frozen=True, slots=True)
class Subject:
    """A rule to choose from: packets since the last round, idle seconds, its place.

    The idle seconds are infinite if no packet was ever seen.

    `lifted` is whether it was chosen before; a rule that is only pinned is not.
    """

    rule: LiftedRule
    packets_since: int
    idle_s: float
    lifted: bool = False
    wish: Wish | None = None

    @property
    def was_used(self) -> bool:
        return self.packets_since > 0 or self.idle_s < math.inf

    def sample(self, name: RuleId) -> Sample:
        """Return the rule as Algorithm 1 sees it, with counts since its first use."""
        packets = max(self.packets_since, int(self.was_used))
        return Sample(name, packets, packets - self.packets_since, self.idle_s, self.lifted)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule that goes up or down, the reason, and CPU saved, if known.

    The saving is in CPU microseconds a second.
    """

    rule: LiftedRule
    because: str
    saves_us_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision of a round; `stays` gives the reason for each rule that remains lifted."""

    lift: tuple[Verdict, ...]
    lower: tuple[Verdict, ...]
    stays: tuple[Verdict, ...]
    idle_share: float
    never_used_share: float


Prospects = Callable[[LiftedRule], Prospect | str]
"""Returns the effect of lifting a rule, or why it cannot be lifted."""


def choose(subjects: Sequence[Subject], settings: Settings, elapsed_s: float, prospects: Prospects) -> Choice:
    """Decide one round.

    `subjects` are all rules of a domain; `elapsed_s` is the time since the last round.
    """
    free = [each for each in subjects if each.wish is None]
    barred = [Verdict(each.rule, f"it is {each.wish.value}") for each in subjects if each.wish and each.lifted]
    if settings.algorithm is Algorithm.SAVINGS:
        chosen = _by_savings(free, settings, elapsed_s, prospects)
    elif settings.algorithm is Algorithm.PAPER:
        chosen = _by_packets(free, settings, prospects)
    else:
        chosen = _Chosen([], [Verdict(each.rule, "choosing is switched off") for each in free if each.lifted], [])
    idle = sum(each.packets_since == 0 for each in subjects)
    unused = sum(not each.was_used for each in subjects)
    of = max(len(subjects), 1)
    return Choice(tuple(chosen.up), (*barred, *chosen.down), tuple(chosen.stays), idle / of, unused / of)


@dataclass(frozen=True, slots=True)
class _Chosen:
    up: Sequence[Verdict]
    down: Sequence[Verdict]
    stays: Sequence[Verdict]


# ------------------------------------------------------------------------------------------------------------- packets


def _by_packets(subjects: Sequence[Subject], settings: Settings, prospects: Prospects) -> _Chosen:
    """Choose by Algorithm 1; skip rules that cannot be lifted."""
    names = {RuleId(str(each.rule)): each for each in subjects}
    samples = {name: each.sample(name) for name, each in names.items()}
    while True:
        found = prioritise(list(samples.values()), settings.thresholds())
        refused = [name for name in found.lift if name in names and isinstance(prospects(names[name].rule), str)]
        if not refused:
            break
        for name in refused:
            del samples[name]
    lowered = [names[name] for name in found.lower if name in names]
    down = [Verdict(each.rule, _explain_cooled(each, settings)) for each in lowered]
    up = [Verdict(names[name].rule, found.because) for name in found.lift if name in names and not names[name].lifted]
    moved = {each.rule for each in (*up, *down)}
    stays = [Verdict(each.rule, _explain_warm(each)) for each in subjects if each.lifted and each.rule not in moved]
    return _Chosen(up, down, stays)


def _explain_warm(subject: Subject) -> str:
    return f"{subject.packets_since} packets in the last round"


def _explain_cooled(subject: Subject, settings: Settings) -> str:
    if subject.packets_since < settings.lower:
        return f"{subject.packets_since} packets, below {settings.lower}"
    return f"{subject.packets_since} packets: another rule has more"


# ------------------------------------------------------------------------------------------------------------- savings


@dataclass(frozen=True, slots=True)
class _Worth:
    """The savings of a lift a second, and a ranking value that favours lifted rules."""

    subject: Subject
    saves: float
    weight: float


def _by_savings(subjects: Sequence[Subject], settings: Settings, elapsed_s: float, prospects: Prospects) -> _Chosen:
    """The best set: savings of rules add up, so it is those that save most."""
    down: dict[LiftedRule, str] = {
        each.rule: _explain_cooled(each, settings)
        for each in subjects
        if each.lifted and each.packets_since < settings.lower
    }
    worth: list[_Worth] = []
    for each in _shortlist(subjects, settings):
        found = _worth(each, settings, elapsed_s, prospects)
        if isinstance(found, _Worth):
            worth.append(found)
        elif each.lifted:
            down[each.rule] = found
    worth.sort(key=lambda each: (-each.weight, each.subject.rule))
    taken, left = worth[: settings.most_lifted], worth[settings.most_lifted :]
    down |= {each.subject.rule: f"{_explain_saving(each)}; others save more" for each in left if each.subject.lifted}
    return _Chosen(
        _make_verdicts(each for each in taken if not each.subject.lifted),
        [Verdict(rule, because) for rule, because in down.items()],
        _make_verdicts(each for each in taken if each.subject.lifted),
    )


def _shortlist(subjects: Iterable[Subject], settings: Settings) -> list[Subject]:
    """Return lifted rules that have not cooled, and the busiest rules that may be lifted."""
    up = [each for each in subjects if each.lifted and each.packets_since >= settings.lower]
    others = [
        each
        for each in subjects
        if not each.lifted and each.packets_since >= settings.upper and each.idle_s <= settings.interval_s
    ]
    others.sort(key=lambda each: (-each.packets_since, each.rule))
    return up + others[: _SHORTLIST * settings.most_lifted]


def _worth(subject: Subject, settings: Settings, elapsed_s: float, prospects: Prospects) -> _Worth | str:
    """Estimate the worth of lifting a rule, or return why it has none."""
    found = prospects(subject.rule)
    if isinstance(found, str):
        return found
    saves = found.saves_us_per_s(subject.packets_since / max(elapsed_s, 1e-3))
    least = LEAST_SAVED_US_PER_S / (1 + settings.hysteresis if subject.lifted else 1)
    if saves < least:
        return f"a lift would save {saves:.0f} us a second, below {least:.0f}"
    return _Worth(subject, saves, saves * (1 + settings.hysteresis if subject.lifted else 1))


def _explain_saving(worth: _Worth) -> str:
    return f"{worth.subject.packets_since} packets, saves {worth.saves:.0f} us of CPU a second"


def _make_verdicts(worth: Iterable[_Worth]) -> list[Verdict]:
    return [Verdict(each.subject.rule, _explain_saving(each), round(each.saves, 1)) for each in worth]
