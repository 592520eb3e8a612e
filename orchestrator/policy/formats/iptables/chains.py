"""Following chains: from the chains of a filter table to one ordered list of clauses.

A packet walks a chain line by line; a jump sends it into another chain and, if nothing there decides, back to the line
after the jump. A list of rules has no way back, so every chain is written out at each jump to it, with the jump's own
match put before each of its lines:

    -A FORWARD -p tcp -j WEB           tcp, from 10/8       accept
    -A WEB -s 10.0.0.0/8 -j ACCEPT     tcp, to port 80      accept
    -A WEB --dport 80 -j ACCEPT        (and on after the jump)

RETURN, and falling off the end of a chain reached by goto, leave a chain early: what left is subtracted from the
rest of that chain. At the bottom, a packet that leaves the kernel's own chain meets its policy.

All of this happens twice at once, for what surely matches and for what may (see `assemble`): a line that asks for
something unseen matches nothing surely, and what may leave a chain is not surely in the rest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Clause, Doubt
from orchestrator.policy.formats.axes import HIDDEN_FRAGMENTS
from orchestrator.policy.formats.express import ESTABLISHED_SET
from orchestrator.policy.formats.iptables.matches import Line, Match
from orchestrator.policy.formats.iptables.parse import Chain
from orchestrator.policy.formats.results import Notes
from orchestrator.policy.model import Action
from orchestrator.policy.protocols import TCP
from orchestrator.policy.space import WHOLE, Box, everything

Region = tuple[Box, ...]

ACTIONS: Mapping[str, Action] = {"ACCEPT": Action.PERMIT, "DROP": Action.DENY, "REJECT": Action.DENY}

PASSING = frozenset(
    {
        "LOG", "ULOG", "NFLOG", "MARK", "CONNMARK", "CONNSECMARK", "SECMARK", "TCPMSS", "CLASSIFY", "SET", "TRACE",
        "DSCP", "TOS", "TTL", "HL", "CHECKSUM", "AUDIT", "CT",
    }
)  # fmt: skip
"""Targets that do something to a packet and let it go on to the next line."""

LOGGING = frozenset({"LOG", "ULOG", "NFLOG"})

DEEPEST = 200
"""Chains may jump so many levels deep."""

MOST_STEPS = 2_000_000
"""Comparisons of boxes that following the chains of one file may take; beyond that it is refused."""


MOST_PIECES = 4096
"""What is left of a chain may fall into so many boxes."""


@dataclass(frozen=True, slots=True)
class Way:
    """The packets that come to a place, surely and perhaps, and why the two differ."""

    sure: Region
    maybe: Region
    doubts: tuple[Doubt, ...] = ()

    @property
    def exact(self) -> bool:
        return self.sure is self.maybe or self.sure == self.maybe


def follow(
    chains: Mapping[str, Chain], base: Chain, family: Family, notes: Notes, *, stateless: bool
) -> tuple[Clause, ...]:
    """All that a packet may meet from `base` on, in order; what no clause decides is denied.

    Raises BadInput for jumps that come back to their own chain, TooLarge beyond DEEPEST, MOST_STEPS or MOST_PIECES.
    """
    _refuse_circles(chains, base)
    walk = _Walk(chains, base, notes, stateless)
    all_of_it = (everything(family),)
    walk.chain(base, Way(all_of_it, all_of_it), 0)
    if base.policy == "ACCEPT":
        walk.clauses.append(_policy_clause(base, all_of_it))
    return tuple(walk.clauses)


def decides(chains: Mapping[str, Chain], base: Chain) -> bool:
    """Whether some line that can be reached from a chain decides about packets."""
    return any(
        line.target and line.target not in PASSING and line.target != "RETURN" and line.target not in chains
        for chain in _reachable(chains, base)
        for line in chain.lines
    )


def _policy_clause(base: Chain, region: Region) -> Clause:
    return Clause(
        action=Action.PERMIT,
        sure=region,
        maybe=region,
        doubts=(),
        line=base.number,
        text=f":{base.name} ACCEPT",
        label=base.name,
        marker=f"{base.name}.policy",
        description=f"the policy of the chain {base.name}",
    )


@dataclass(slots=True)
class _Walk:
    chains: Mapping[str, Chain]
    base: Chain
    notes: Notes
    stateless: bool
    clauses: list[Clause] = field(default_factory=list)
    established: list[Box] = field(default_factory=list)
    steps: int = 0

    def chain(self, chain: Chain, way: Way, depth: int) -> None:
        """Walk a chain with the packets of `way`."""
        if depth > DEEPEST:
            raise TooLarge(f"chains jump more than {DEEPEST} levels deep", place=f"line {chain.number}")
        left: list[Way] = []
        for index, line in enumerate(chain.lines):
            if not line.target or line.target in PASSING:
                self._pass(chain, index)
                continue
            own = self._own(line, way)
            here = self._both(way, own, line) if own is not None else _NOWHERE
            if line.target != "RETURN" or chain is self.base:
                here = self._without(here, left, line)
            if not here.maybe:
                continue
            if line.target in self.chains:
                self._jump(line, here, depth)
            elif line.target != "RETURN":
                self._decide(chain, index, here)
            if line.target == "RETURN" or line.goto:
                self._leave(line, here, left, at_the_bottom=chain is self.base)

    def _jump(self, line: Line, here: Way, depth: int) -> None:
        target = self.chains[line.target]
        if target.policy is not None:
            raise BadInput(
                f"{target.name} is a chain of the kernel: no rule can jump there", place=f"line {line.number}"
            )
        self.chain(target, here, depth + 1)

    def _leave(self, line: Line, here: Way, left: list[Way], *, at_the_bottom: bool) -> None:
        """A packet leaves its chain early: it goes back to where it came from, or meets the policy."""
        if not at_the_bottom:
            doubts = tuple(replace(doubt, only=None) for doubt in here.doubts)  # for what is left, permits lose as well
            left.append(replace(here, doubts=doubts))
            return
        action = Action.PERMIT if self.base.policy == "ACCEPT" else Action.DENY
        self._add(action, here, line, self.base.name, log=False)

    def _decide(self, chain: Chain, index: int, here: Way) -> None:
        line = chain.lines[index]
        action = ACTIONS.get(line.target)
        if action is None:
            reason = f"the target {line.target[:40]} decides in a way that is not known here"
            here = replace(here, sure=(), doubts=(*here.doubts, Doubt(line.number, line.text, reason)))
            action = Action.DENY
        if line.target == "REJECT":
            self.notes.add("REJECT becomes deny: nothing is sent back", line.number)
        if (
            action is Action.PERMIT
            and line.match.states
            and "ESTABLISHED" in line.match.states
            and not line.match.doubts
        ):
            self.established += here.maybe
        self._add(action, here, line, chain.name, log=_logged_before(chain, index))

    def _add(self, action: Action, here: Way, line: Line, label: str, *, log: bool) -> None:
        self.clauses.append(
            Clause(
                action=action,
                sure=here.sure,
                maybe=here.maybe,
                doubts=here.doubts,
                line=line.number,
                text=line.text,
                label=label,
                marker=line.marker,
                description=line.description,
                log=log,
            )
        )

    def _pass(self, chain: Chain, index: int) -> None:
        line = chain.lines[index]
        if line.target in LOGGING:
            if index + 1 == len(chain.lines) or not _logged_before(chain, index + 1):
                self.notes.add(f"{line.target} by itself logs nothing here: a rule that decides can log", line.number)
        elif line.target:
            self.notes.add(f"{line.target} decides nothing and is left out", line.number)

    def _own(self, line: Line, way: Way) -> Way | None:
        """The packets a line speaks of; None if it is to be left out (packets in no valid connection, on request)."""
        if line.match.states is None:
            return _of_match(line)
        if not self.stateless:
            return _doubted(line, "connections are not tracked here; --stateless reads what a stateless list can say")
        return self._own_stateless(line, way)

    def _own_stateless(self, line: Line, way: Way) -> Way | None:
        """The reading of connection states that `Options.stateless` asks for; see docs/formats.md."""
        match, states = line.match, line.match.states or frozenset()
        if {"NEW", "ESTABLISHED"} <= states:
            self.notes.add("connection states are ignored: new and established are both asked for", line.number)
            return _of_match(line)
        if "NEW" in states:
            if not self._follows_established(way, match):
                return _doubted(line, "new connections cannot be told from others, which no line before has accepted")
            self.notes.add("NEW is ignored: established connections were accepted before", line.number)
            return _of_match(line)
        if "ESTABLISHED" in states:
            self.notes.add("established is told by TCP's ACK and RST flags; replies of no other protocol", line.number)
            return self._own_established(line)
        if states == {"INVALID"}:
            self.notes.add("left out: which packets belong to no valid connection is not known here", line.number)
            return None
        return _doubted(line, f"the states {','.join(sorted(states))} cannot be told from a packet")

    def _own_established(self, line: Line) -> Way:
        match = line.match
        replies = tuple(
            box
            for box in (
                whole.intersect(whole._replace(protocols=1 << TCP, fragments=WHOLE, tcp_flags=ESTABLISHED_SET))
                for whole in match.boxes
                if whole.protocols >> TCP & 1
            )
            if box is not None
        )
        if not replies:
            return _doubted(line, "replies cannot be told from other packets of this protocol")
        excuse = Doubt(line.number, line.text, "established packets cannot be told from others", only=Action.DENY)
        return Way(() if match.doubts else replies, match.boxes + match.hidden, (*match.doubts, excuse))

    def _follows_established(self, way: Way, match: Match) -> bool:
        asked = _cross(way.maybe, match.boxes)
        self._count(len(asked) * len(self.established), 0)
        return all(any(accepted.contains(box) for accepted in self.established) for box in asked)

    def _both(self, way: Way, own: Way, line: Line) -> Way:
        """The packets on a way that a line speaks of."""
        self._count(len(way.maybe) * len(own.maybe), line.number)
        maybe = _cross(way.maybe, own.maybe)
        if way.exact and own.exact:
            return Way(maybe, maybe)
        sure = _cross(way.sure, own.sure)
        return Way(maybe, maybe) if sure == maybe else Way(sure, maybe, _each_once(way.doubts, own.doubts))

    def _without(self, here: Way, left: list[Way], line: Line) -> Way:
        """The packets that have not left the chain before."""
        for gone in left:
            self._count(len(here.maybe) * len(gone.maybe), line.number)
            if not any(box.overlaps(other) for box in here.maybe for other in gone.maybe):
                continue
            if here.exact and gone.exact:
                maybe = _minus(here.maybe, gone.maybe)
                here = Way(maybe, maybe)
            else:
                doubts = here.doubts if gone.exact else _each_once(here.doubts, gone.doubts)
                here = Way(_minus(here.sure, gone.maybe), _minus(here.maybe, gone.sure), doubts)
            if len(here.maybe) > MOST_PIECES or len(here.sure) > MOST_PIECES:
                raise TooLarge("what is left of this chain falls into too many pieces", place=f"line {line.number}")
        return here

    def _count(self, steps: int, number: int) -> None:
        self.steps += steps + 1
        if self.steps > MOST_STEPS:
            raise TooLarge("its chains jump to one another too often to be followed", place=f"line {number}")


_NOWHERE = Way((), ())


def _of_match(line: Line) -> Way:
    """What a line's match says by itself."""
    match = line.match
    if not match.hidden:
        return Way(() if match.doubts else match.boxes, match.boxes, match.doubts)
    hidden = Doubt(line.number, line.text, HIDDEN_FRAGMENTS, only=Action.DENY)
    return Way(() if match.doubts else match.boxes, match.boxes + match.hidden, (*match.doubts, hidden))


def _doubted(line: Line, reason: str) -> Way:
    match = line.match
    return Way((), match.boxes + match.hidden, (*match.doubts, Doubt(line.number, line.text, reason)))


def _cross(left: Region, right: Region) -> Region:
    pieces = (one.intersect(other) for one in left for other in right)
    return tuple(piece for piece in pieces if piece is not None)


def _minus(left: Region, right: Region) -> Region:
    pieces = list(left)
    for other in right:
        pieces = [piece for whole in pieces for piece in whole.minus(other)]
    return tuple(pieces)


def _each_once(first: tuple[Doubt, ...], second: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _logged_before(chain: Chain, index: int) -> bool:
    """Whether the line before logs just what this line decides about."""
    if index == 0:
        return False
    before, line = chain.lines[index - 1], chain.lines[index]
    same = (before.match.boxes, before.match.states) == (line.match.boxes, line.match.states)
    return before.target in LOGGING and line.target in ACTIONS and same


def _reachable(chains: Mapping[str, Chain], base: Chain) -> list[Chain]:
    found = {base.name: base}
    waiting = [base]
    while waiting:
        for line in waiting.pop().lines:
            target = chains.get(line.target)
            if target is not None and target.name not in found:
                found[target.name] = target
                waiting.append(target)
    return list(found.values())


def _refuse_circles(chains: Mapping[str, Chain], base: Chain) -> None:
    """Refuse jumps that come back to a chain on the way: depth first, with a stack of our own."""
    finished: set[str] = set()
    on_the_way: dict[str, int] = {base.name: base.number}
    stack = [(base.name, iter(base.lines))]
    while stack:
        name, lines = stack[-1]
        line = next((line for line in lines if line.target in chains and line.target not in finished), None)
        if line is None:
            stack.pop()
            finished.add(name)
            del on_the_way[name]
        elif line.target in on_the_way:
            circle = " -> ".join([*list(on_the_way)[list(on_the_way).index(line.target) :], line.target])
            raise BadInput(f"the chains jump in a circle: {circle[:200]}", place=f"line {line.number}")
        else:
            on_the_way[line.target] = line.number
            stack.append((line.target, iter(chains[line.target].lines)))
