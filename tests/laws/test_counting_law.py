"""What is counted against what was hit: a device, enforcement points and a service, with everything that goes wrong.

The model knows every packet. Steps come in any order: packets, polls, changes read before or not, restarts of the
device and of the enforcement point, letters lost, doubled and late, somebody who puts the same entries back. Three laws
hold: sums never go down; they never exceed what was hit; and when all letters have arrived they lack no more than what
was unread when it went (`lost`), so nothing at all where everything was read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from law_examples import examples

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce.bookmark import Marks, replay_chunks
from orchestrator.enforce.counting import Change, Letter, Tally
from orchestrator.enforce.driver import Hits
from orchestrator.program.counts import NO_COUNTS, Counts, counts_of, join_counts
from orchestrator.program.program import Tier

RULES, ENTRIES = 2, 4
"""Entry i counts for rule i % RULES."""

names = st.integers(0, ENTRIES - 1)
Traffic = tuple[int, ...]
traffic = st.tuples(*[st.integers(0, 9)] * ENTRIES)
COOKIES = np.array([Cookie(Tier.HOST, Kind.RULE, number + 1).pack() for number in range(RULES)], np.uint64)


def keys(of: list[int]) -> npt.NDArray[np.uint64]:
    return np.array([name + 77 for name in of], np.uint64)


def begun(of: list[int]) -> Marks:
    """Entries that were put in just now."""
    return Marks.new_marks(keys(of), COOKIES[[name % RULES for name in of]])


@dataclass
class Entry:
    """A flow entry: when it came, its count, and what of that our tally has counted."""

    born_s: float
    packets: int = 0
    seen: int = 0
    foreign: bool = False
    took_over: tuple[int, float] | None = None
    """Of one of the same name that went unseen: what of it was counted, and its age then."""
    looked_s: float = 0.0
    number: int = field(default_factory=count().__next__)


@dataclass
class Switch:
    """A device with a clock of its own."""

    entries: dict[int, Entry] = field(default_factory=dict)
    now_s: float = 1000.0
    tells_ages: bool = True

    def read(self, wanted: set[int]) -> Hits:
        rows = sorted(wanted & set(self.entries))
        found = [self.entries[name] for name in rows]
        return Hits(
            keys(rows),
            COOKIES[[name % RULES for name in rows]],
            np.array([entry.packets for entry in found], np.uint64),
            np.array([entry.packets * 100 for entry in found], np.uint64),
            np.zeros(len(rows), np.uint32),
            np.array([self.now_s - each.born_s if self.tells_ages else np.nan for each in found], np.float64),
        )


@dataclass
class Service:
    """What the service does with letters, in a few lines: each once, in order, the bookmark beside the sums."""

    epoch: int = 0
    sequence: int = 0
    sums: Counts = NO_COUNTS
    chunks: list[bytes] | None = None

    def claim(self, epoch: int) -> Marks | None:
        self.epoch = epoch
        return None if self.chunks is None else replay_chunks(self.chunks)

    def take(self, epoch: int, sequence: int, letter: Letter) -> bool:
        """Whether the letter is new and counts."""
        if epoch != self.epoch or sequence != self.sequence + 1:
            return False
        self.sequence = sequence
        self.sums = join_counts((self.sums, counts_of(letter.counts.to_bytes())))
        self.chunks = [letter.chunk] if letter.whole else [*(self.chunks or []), letter.chunk]
        return True


@dataclass
class Sent:
    """A letter under way, and which entries were counted how far when it was taken: name -> entry, packets."""

    epoch: int
    sequence: int
    letter: Letter
    marks: dict[int, tuple[int, int]]
    bookmark: dict[int, int]
    """What the bookmark must say with it: key -> packets."""


class Counting(RuleBasedStateMachine):
    """One device; enforcement points come and go. `lost` is what may be missing, by rule."""

    def __init__(self) -> None:
        super().__init__()
        self.switch, self.service = Switch(), Service()
        self.tally, self.epoch = Tally(), 1
        self.sent: list[Sent] = []
        self.waiting: Sent | None = None
        self.bookmark: dict[int, tuple[int, int]] = {}
        self.hit: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.counted: Counter[int] = Counter()
        """Of entries that are gone."""
        self.written: set[int] = set()
        self.shown = np.zeros(RULES, np.int64)
        for name in range(2):
            self.switch.entries[name] = Entry(self.switch.now_s - 50, packets=5, foreign=True)  # met before us

    # ------------------------------------------------------------------------------------------------ packets, time

    @initialize(claims=st.booleans(), tells_ages=st.booleans())
    def begin(self, claims: bool, tells_ages: bool) -> None:
        self.switch.tells_ages = tells_ages
        if claims:
            self.we_claim()
            self.we_poll_and_write(0.0)

    @rule(packets=traffic, seconds=st.floats(0.5, 60))
    def packets_come(self, packets: Traffic, seconds: float) -> None:
        self.switch.now_s += seconds
        for name in self.switch.entries:
            self._hit(name, packets[name])

    def _hit(self, name: int, packets: int) -> None:
        self.switch.entries[name].packets += packets
        self.hit[name % RULES] += packets

    def _look(self, name: int) -> None:
        """An entry is read: whether it may be taken for the one whose place it took, of which nothing is left then."""
        entry = self.switch.entries[name]
        if entry.took_over is not None:
            counted, age_s = entry.took_over
            as_old = not self.switch.tells_ages or self.switch.now_s - entry.born_s >= age_s
            self.lost[name % RULES] += counted if entry.packets >= counted and as_old else 0
        entry.took_over, entry.looked_s, entry.seen = None, self.switch.now_s, entry.packets

    def _die(self, name: int) -> None:
        entry = self.switch.entries.pop(name)
        self.lost[name % RULES] += entry.packets - entry.seen
        self.counted[name % RULES] += entry.seen

    # ------------------------------------------------------------------------------------------------ changes

    @rule(remove=st.sets(names), add=st.sets(names), packets=traffic, reads=st.booleans(), between=st.booleans())
    def we_change(self, remove: set[int], add: set[int], packets: Traffic, reads: bool, between: bool) -> None:
        """A bundle: entries go and come, under the same name too; packets may come between reading and removing."""
        self.packets_come(packets, 1.0)
        gone = sorted(remove & set(self.switch.entries))
        rules = {name % RULES for name in gone}
        last = self.switch.read({name for name in self.switch.entries if name % RULES in rules}) if reads else None
        for name in gone:
            entry = self.switch.entries[name]
            if reads and not entry.foreign:
                self._look(name)
            if between:
                self._hit(name, 1)
            self._die(name)
        fresh = sorted(add - set(self.switch.entries))
        for name in fresh:
            self.switch.entries[name] = Entry(self.switch.now_s)
        self.written |= set(fresh)
        self.tally.note_change(Change(last, keys(gone), begun(fresh)), self.switch.now_s)

    @rule(of=st.sets(names, min_size=1), before=traffic, after=traffic, reads=st.booleans(), fell=st.booleans())
    def we_replace(
        self, of: set[int], before: tuple[int, ...], after: tuple[int, ...], reads: bool, fell: bool
    ) -> None:
        """Entries that were counted are replaced by others of the same name, which count before anybody looks again."""
        self.we_poll_and_write(0.0, before)
        if fell:
            self.the_device_restarts(again=False, packets=0, seconds=0.0)
        self.we_change(remove=of, add=of, packets=(0,) * ENTRIES, reads=reads, between=False)
        self.packets_come(after, 1.0)

    @rule(again=st.booleans(), packets=st.integers(0, 9), seconds=st.floats(0.0, 30))
    def the_device_restarts(self, again: bool, packets: int, seconds: float) -> None:
        """Everything is gone; somebody may put the same entries back before we look."""
        before = dict(self.switch.entries)
        for name in before:
            self._die(name)
        self.switch.now_s += 3.0
        for name, old in before.items() if again else ():
            self.switch.entries[name] = Entry(self.switch.now_s, foreign=old.foreign)
            self._hit(name, packets)
            took_over = old.took_over or (old.seen, old.looked_s - old.born_s)
            self.switch.entries[name].took_over = took_over
        self.switch.now_s += seconds

    # ------------------------------------------------------------------------------------------------ counting

    @rule(took_s=st.floats(0, 0.2))
    def we_poll(self, took_s: float) -> None:
        self.tally.poll(self.switch.read(set(range(ENTRIES))), self.switch.now_s, took_s)
        for name, entry in self.switch.entries.items() if self.tally.is_claimed else ():
            if entry.foreign:
                self.lost[name % RULES] += entry.packets  # it was there before anybody counted
                self.counted[name % RULES] -= entry.packets
                entry.foreign = False
            self._look(name)

    @rule(arrives=st.booleans(), answered=st.booleans())
    def we_write(self, arrives: bool, answered: bool) -> None:
        """Send the letter that is under way still, or the next one."""
        if self.waiting is None and self.tally.is_claimed and (letter := self.tally.take()) is not None:
            marks = self.tally.marks.take(self.tally.marks.packets > 0)
            known = dict(zip(marks.key.tolist(), marks.packets.tolist(), strict=True))
            seen = {name: (each.number, each.seen) for name, each in self.switch.entries.items() if not each.foreign}
            self.waiting = Sent(self.epoch, self.service.sequence + 1, letter, seen, known)
            self.sent.append(self.waiting)
        if self.waiting is not None and arrives:
            self._arrive(self.waiting)
            self.waiting = None if answered else self.waiting

    @rule(took_s=st.floats(0, 0.2), packets=traffic)
    def we_poll_and_write(self, took_s: float, packets: Traffic = (0,) * ENTRIES) -> None:
        self.packets_come(packets, 5.0)
        self.we_poll(took_s)
        self.we_write(arrives=True, answered=True)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def an_old_letter_arrives(self, data: st.DataObject) -> None:
        self._arrive(data.draw(st.sampled_from(self.sent)))

    def _arrive(self, sent: Sent) -> None:
        if self.service.take(sent.epoch, sent.sequence, sent.letter):
            self.bookmark = sent.marks
            marks = replay_chunks(self.service.chunks or [])
            known = zip(marks.key.tolist(), marks.packets.tolist(), strict=True)
            assert {key: packets for key, packets in known if packets} == sent.bookmark

    @rule(claims=st.booleans())
    def we_are_killed(self, claims: bool) -> None:
        """And start anew, with a higher epoch; letters may still be under way."""
        self.tally, self.waiting, self.written = Tally(), None, set()
        self.epoch += 1
        for entry in self.switch.entries.values():
            entry.seen = 0
        if claims:
            self.we_claim()

    @precondition(lambda self: not self.tally.is_claimed)
    @rule()
    def we_claim(self) -> None:
        before = self.service.claim(self.epoch)
        for name, entry in self.switch.entries.items():
            number, packets = self.bookmark.get(name, (-1, 0))
            entry.seen = packets if number == entry.number else 0
            entry.foreign = before is None and name not in self.written
            entry.took_over = None
            if number not in (-1, entry.number) and name not in self.written:
                entry.took_over = packets, 0.0
        for number in range(RULES):
            sure = sum(entry.seen for name, entry in self.switch.entries.items() if name % RULES == number)
            short = self.counted[number] + sure - int(self._sums()[number])
            self.lost[number] += max(0, short)
            self.counted[number] -= short
        self.tally.claim(before, self.switch.now_s)

    # ------------------------------------------------------------------------------------------------ laws

    def _sums(self) -> npt.NDArray[np.int64]:
        return self.service.sums.at(COOKIES).packets

    @invariant()
    def sums_never_go_down(self) -> None:
        sums = self._sums()
        assert (sums >= self.shown).all()
        assert (self.service.sums.at(COOKIES).byte_counts == sums * 100).all()
        self.shown = sums

    @invariant()
    def sums_never_exceed_what_was_hit(self) -> None:
        assert all(self._sums()[number] <= self.hit[number] for number in range(RULES))

    @rule()
    def all_letters_arrive(self) -> None:
        """Then nothing is missing but what may be."""
        if not self.tally.is_claimed:
            self.we_claim()
        self.we_write(arrives=True, answered=True)
        self.we_poll(took_s=0.0)
        self.we_write(arrives=True, answered=True)
        missing = {number: self.hit[number] - int(self._sums()[number]) for number in range(RULES)}
        assert all(missing[number] <= self.lost[number] for number in range(RULES)), (missing, self.lost)

    def teardown(self) -> None:
        """Whatever happened: once it is quiet, and everything was polled twice, the laws hold."""
        self.all_letters_arrive()
        self.switch.now_s += 5
        self.all_letters_arrive()
        self.sums_never_exceed_what_was_hit()


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=examples(300), stateful_step_count=20)
