"""Following chains: from the chains of a filter table to one ordered list of clauses.

A packet walks a chain line by line; a jump sends it into another chain and, if nothing there decides, back to the line
after the jump. A list of rules has no way back, so every chain is written out at each jump to it, with the jump's own
match put before each of its lines:

    -A FORWARD -p tcp -j WEB           tcp, from 10/8       accept
    -A WEB -s 10.0.0.0/8 -j ACCEPT     tcp, to port 80      accept
    -A WEB --dport 80 -j ACCEPT        (and on after the jump)

RETURN, and falling off the end of a chain reached by goto, leave a chain early: what left is subtracted from the
rest of that chain. At the bottom, a packet that leaves the kernel's own chain meets its policy.

Where several chains of the kernel's own stand one after the other (nftables: base chains of one hook), a packet that
one accepts goes on to the next; the last one's answer is the answer.

All of this happens twice at once, for what surely matches and for what may (see `assemble`): a line that asks for
something unseen matches nothing surely, and what may leave a chain is not surely in the rest of it.

Sets of packets on their way through chains: certain ones, possible ones, and reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Clause, Doubt
from orchestrator.policy.formats.lineboxes import HIDDEN_FRAGMENTS
from orchestrator.policy.formats.results import Notes
from orchestrator.policy.formats.tables import ACTIONS, LOGGING, NOT_GIVEN, PASSING, Chain, Line, Match, refuse_circles
from orchestrator.policy.model import Action
from orchestrator.policy.protocols import TCP
from orchestrator.policy.space import WHOLE, Box, everything, remaining
from orchestrator.policy.tcpflags import ESTABLISHED_SET

Region = tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """The packets that come to a place, surely and perhaps, and why the two differ."""

    sure: Region
    maybe: Region
    doubts: tuple[Doubt, ...] = ()

    @property
    def exact(self) -> bool:
        return self.sure is self.maybe or self.sure == self.maybe


NOWHERE = Way((), ())


def both(way: Way, own: Way) -> Way:
    """The packets on a way that are also on another."""
    maybe = cross(way.maybe, own.maybe)
    if way.exact and own.exact:
        return Way(maybe, maybe)
    sure = cross(way.sure, own.sure)
    return Way(maybe, maybe) if sure == maybe else Way(sure, maybe, _unite_doubts(way.doubts, own.doubts))


def without(here: Way, gone: Way) -> Way:
    """The packets on a way that have not gone another."""
    if here.exact and gone.exact:
        maybe = remaining(here.maybe, gone.maybe)
        return Way(maybe, maybe)
    doubts = here.doubts if gone.exact else _unite_doubts(here.doubts, gone.doubts)
    return Way(remaining(here.sure, gone.maybe), remaining(here.maybe, gone.sure), doubts)


def work(left: Region, right: Region) -> int:
    """Return the steps to compare two regions.

    One for each pair of boxes, more where these list many addresses.
    """
    return (len(right) * _count_spans(left) + len(left) * _count_spans(right)) // 4


def _count_spans(region: Region) -> int:
    return sum(len(box.source) + len(box.destination) for box in region)


def cross(left: Region, right: Region) -> Region:
    """The packets in both regions."""
    pieces = (one.intersect(other) for one in left for other in right)
    return tuple(piece for piece in pieces if piece is not None)


def _unite_doubts(first: tuple[Doubt, ...], second: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    return tuple(dict.fromkeys((*first, *second)))


DEEPEST = 200
"""Chains may jump so many levels deep."""

MOST_STEPS = 2_000_000
"""Comparisons of boxes that following the chains of one file may take (`ways.work`); beyond that it is refused."""

MOST_PIECES = 4096
"""The rest of a chain may fall into so many boxes."""


def follow(
    chains: Mapping[str, Chain], bases: Sequence[Chain], family: Family, notes: Notes, *, stateless: bool
) -> tuple[Clause, ...]:
    """Return the clauses that a packet may meet on its way through `bases`, in order.

    Packets that no clause decides are denied.

    Raises BadInput for jumps that come back to their own chain, TooLarge beyond DEEPEST, MOST_STEPS or MOST_PIECES.
    """
    for base in bases:
        refuse_circles(chains, base)
    walk = _Walk(chains, bases, notes, stateless)
    all_of_it = (everything(family),)
    walk.base(0, Way(all_of_it, all_of_it), 0)
    last = walk.clauses[-1] if walk.clauses else None
    if last and last.action is Action.DENY and last.marker == _mark_policy(bases[0]) and not last.may_permit:
        walk.clauses.pop()  # the list denies by itself what is left
    return tuple(walk.clauses)


@dataclass(slots=True)
class _Walk:
    chains: Mapping[str, Chain]
    bases: Sequence[Chain]
    notes: Notes
    stateless: bool
    clauses: list[Clause] = field(default_factory=list)
    established: list[Box] = field(default_factory=list)  # packets accepted before, if their connection is
    steps: int = 0

    def base(self, at: int, way: Way, depth: int) -> None:
        """Walk the kernel's chain number `at`, and those after it, with the packets of `way`."""
        base = self.bases[at]
        self.chain(base, way, depth, at)
        if base.policy == "ACCEPT" and at + 1 < len(self.bases):
            self.base(at + 1, way, depth + 1)
            return
        if base.policy == NOT_GIVEN and any(set(way.maybe) <= set(clause.sure) for clause in self.clauses):
            return  # nothing comes to the end of this chain
        action, way, is_open = _at_the_end(base, way)
        self.clauses.append(
            Clause(
                action=action,
                sure=way.sure,
                maybe=way.maybe,
                doubts=way.doubts,
                line=base.number,
                text=_write_policy(base),
                label=base.label,
                marker=_mark_policy(base),
                description=f"the policy of the chain {base.label}",
                may_permit=is_open,
            )
        )

    def chain(self, chain: Chain, way: Way, depth: int, at: int) -> None:
        """Follow a chain with the packets of `way`, on behalf of base chain number `at`."""
        if depth > DEEPEST:
            raise TooLarge(f"chains jump more than {DEEPEST} levels deep", place=f"line {chain.number}")
        left: list[Way] = []
        for index, line in enumerate(chain.lines):
            if not line.target or line.target in PASSING:
                self._note_passed(chain, index)
                continue
            own = self._own(line, way)
            here = self._both(way, own, line) if own is not None else NOWHERE
            at_the_bottom = chain is self.bases[at]
            if line.target != "RETURN" or at_the_bottom:
                here = self._without(here, left, line)
            if not here.maybe:
                continue
            if line.target in self.chains:
                self._follow_jump(line, here, depth, at)
            elif line.target == "ACCEPT" and at + 1 < len(self.bases):
                self.base(at + 1, here, depth + 1)
            elif line.target != "RETURN":
                self._decide_line(chain, index, here)
                if line.target == "ACCEPT" and "ESTABLISHED" in (line.match.states or ()):
                    self.established += self._without(self._both(way, _of_match(line), line), left, line).sure
            if line.target == "RETURN" or line.goto:
                if at_the_bottom:
                    self._leave_base(line, here, depth, at)
                else:  # for what is left, permits lose as well
                    left.append(replace(here, doubts=tuple(replace(doubt, only=None) for doubt in here.doubts)))

    def _follow_jump(self, line: Line, here: Way, depth: int, at: int) -> None:
        target = self.chains[line.target]
        if target.policy is not None:
            raise BadInput(
                f"{target.name} is a chain of the kernel: no rule can jump there", place=f"line {line.number}"
            )
        self.chain(target, here, depth + 1, at)

    def _leave_base(self, line: Line, here: Way, depth: int, at: int) -> None:
        """A packet leaves the kernel's own chain early: it meets the policy."""
        base = self.bases[at]
        if base.policy == "ACCEPT" and at + 1 < len(self.bases):
            self.base(at + 1, here, depth + 1)
        else:
            action, here, is_open = _at_the_end(base, here)
            self._add_clause(action, here, line, base.label, may_permit=is_open)

    def _decide_line(self, chain: Chain, index: int, here: Way) -> None:
        line = chain.lines[index]
        action = ACTIONS.get(line.target, Action.DENY)
        is_open = line.target not in ACTIONS
        if is_open:
            reason = f"the target {line.target[:40]} decides in a way that is not known here"
            here = replace(here, sure=(), doubts=(*here.doubts, Doubt(line.number, line.text, reason)))
        if line.target == "REJECT":
            self.notes.add("REJECT becomes deny: nothing is sent back", line.number)
        self._add_clause(action, here, line, chain.label, log=_logged_before(chain, index), may_permit=is_open)

    def _add_clause(
        self, action: Action, here: Way, line: Line, label: str, *, log: bool = False, may_permit: bool = False
    ) -> None:
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
                may_permit=may_permit,
            )
        )

    def _note_passed(self, chain: Chain, index: int) -> None:
        line = chain.lines[index]
        if line.target in LOGGING:
            if index + 1 == len(chain.lines) or not _logged_before(chain, index + 1):
                self.notes.add(f"{line.target} by itself logs nothing here: a rule that decides can log", line.number)
        elif line.target:
            self.notes.add(f"{line.target} decides nothing and is left out", line.number)

    def _own(self, line: Line, way: Way) -> Way | None:
        """Return the packets that a line matches, or None to leave it out.

        On request, lines about packets of no valid connection are left out.
        """
        if line.match.states is None:
            return _of_match(line)
        if not self.stateless:
            return _make_doubtful_way(
                line, "connections are not tracked here; --stateless reads what a stateless list can say"
            )
        return self._own_stateless(line, way)

    def _own_stateless(self, line: Line, way: Way) -> Way | None:
        """The reading of connection states that `Options.stateless` asks for; see docs/formats.md."""
        match, states = line.match, line.match.states or frozenset()
        if {"NEW", "ESTABLISHED"} <= states:
            self.notes.add("connection states are ignored: new and established are both asked for", line.number)
            return _of_match(line)
        if "NEW" in states:
            if not self._follows_established(way, match):
                return _make_doubtful_way(
                    line, "new connections cannot be told from others, which no line before has accepted"
                )
            self.notes.add("NEW is ignored: established connections were accepted before", line.number)
            return _of_match(line)
        if "ESTABLISHED" in states:
            self.notes.add("established is told by TCP's ACK and RST flags; replies of no other protocol", line.number)
            return self._own_established(line)
        if states == {"INVALID"}:
            self.notes.add("left out: which packets belong to no valid connection is not known here", line.number)
            return None
        return _make_doubtful_way(line, f"the states {','.join(sorted(states))} cannot be told from a packet")

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
            return _make_doubtful_way(line, "replies cannot be told from other packets of this protocol")
        excuse = Doubt(line.number, line.text, "established packets cannot be told from others", only=Action.DENY)
        return Way(() if match.doubts else replies, match.boxes + match.hidden, (*match.doubts, excuse))

    def _follows_established(self, way: Way, match: Match) -> bool:
        asked = cross(way.sure, match.boxes)
        self._count_steps(work(asked, tuple(self.established)), 0)
        return all(any(accepted.contains(box) for accepted in self.established) for box in asked)

    def _both(self, way: Way, own: Way, line: Line) -> Way:
        """The packets on a way that a line speaks of."""
        self._count_steps(work(way.maybe, own.maybe), line.number)
        return both(way, own)

    def _without(self, here: Way, left: list[Way], line: Line) -> Way:
        """The packets that have not left the chain before."""
        for gone in left:
            self._count_steps(work(here.maybe, gone.maybe), line.number)
            if not any(box.overlaps(other) for box in here.maybe for other in gone.maybe):
                continue
            here = without(here, gone)
            if len(here.maybe) > MOST_PIECES or len(here.sure) > MOST_PIECES:
                raise TooLarge("what is left of this chain falls into too many pieces", place=f"line {line.number}")
        return here

    def _count_steps(self, steps: int, number: int) -> None:
        self.steps += steps + 1
        if self.steps > MOST_STEPS:
            raise TooLarge("its chains jump to one another too often to be followed", place=f"line {number}")


def _at_the_end(base: Chain, way: Way) -> tuple[Action, Way, bool]:
    """Return a base chain's policy, its packets, and whether it is unknown."""
    if base.policy != NOT_GIVEN:
        return (Action.PERMIT if base.policy == "ACCEPT" else Action.DENY), way, False
    reason = f"the policy of the chain {base.label} is not in the file: what no rule decides is taken for denied"
    doubt = Doubt(base.number, _write_policy(base), reason)
    return Action.DENY, replace(way, sure=(), doubts=(*way.doubts, doubt)), True


def _mark_policy(base: Chain) -> str:
    return f"{base.label}.policy"


def _write_policy(base: Chain) -> str:
    return f":{base.name} {base.policy or 'DROP'}"


def _of_match(line: Line) -> Way:
    """Return the packets that a line's own match describes."""
    match = line.match
    if not match.hidden:
        return Way(() if match.doubts else match.boxes, match.boxes, match.doubts)
    hidden = Doubt(line.number, line.text, HIDDEN_FRAGMENTS, only=Action.DENY)
    return Way(() if match.doubts else match.boxes, match.boxes + match.hidden, (*match.doubts, hidden))


def _make_doubtful_way(line: Line, reason: str) -> Way:
    match = line.match
    return Way((), match.boxes + match.hidden, (*match.doubts, Doubt(line.number, line.text, reason)))


def _logged_before(chain: Chain, index: int) -> bool:
    """Whether the line before logs just what this line decides about."""
    if index == 0:
        return False
    before, line = chain.lines[index - 1], chain.lines[index]
    same = (before.match.boxes, before.match.states) == (line.match.boxes, line.match.states)
    return before.target in LOGGING and line.target in ACTIONS and same
