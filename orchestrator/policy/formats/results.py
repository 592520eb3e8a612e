"""The result of reading or writing a format: the list, and its losses.

The principle of every reader and writer here: nothing is silently dropped or widened. A rule that says something our
model (or the other format) cannot say is a `Loss`: the caller refuses the file and prints the losses, or, asked to,
goes on with the *safe approximation*, which never permits a packet that the original denies:

    a permit   is kept only where it surely holds, so it is narrower or left out
    a deny     covers all that it may cover, so it denies more

A `Note` of the other kind, plain text, says what was decided on the way and changes no verdict (which chain was taken,
that REJECT became deny), or what an option that the caller gave has changed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Direction

MEBIBYTE = 1 << 20


class Effect(enum.Enum):
    """The effect on a rule in the safe approximation."""

    REFUSED = "rule refused"
    NARROWER = "permit left out (narrower)"
    WIDER = "deny widened (denies more)"


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that a line says and that could not be carried over exactly."""

    file: str
    line: int
    text: str
    reason: str
    effect: Effect

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.effect.value}: {self.reason}: {self.text}"


@dataclass(frozen=True, slots=True)
class TakenFrom:
    """The tenant and version that a file was written from: the base of its edits."""

    tenant: str
    version: int


@dataclass(frozen=True, slots=True)
class Imported:
    """A list read from a foreign text.

    It means exactly the same as the text if `losses` is empty.
    """

    acl: Acl
    losses: tuple[Loss, ...] = ()
    notes: tuple[str, ...] = ()
    taken_from: TakenFrom | None = None

    @property
    def exact(self) -> bool:
        return not self.losses


@dataclass(frozen=True, slots=True)
class RuleNote:
    """A note on some or all rules of a list that was written."""

    text: str
    rules: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{_spell_lines(self.rules, 'rule')}{self.text}"


@dataclass(frozen=True, slots=True)
class Exported:
    """A list written as a foreign text.

    It means exactly the same as the list if `losses` is empty.

    A loss' `line` is the number of the rule in the list, counted from 1, and its `text` the rule's id; 0 stands for a
    default.
    """

    text: str
    losses: tuple[Loss, ...] = ()
    notes: tuple[RuleNote, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.losses

    def with_numbers(self, numbers: Sequence[int]) -> Exported:
        """Number the rules as the list that they were taken from.

        Rule n is number `numbers[n - 1]` there.
        """
        renumbered = (0, *numbers)
        return replace(
            self,
            losses=tuple(replace(loss, line=renumbered[loss.line]) for loss in self.losses),
            notes=tuple(replace(note, rules=tuple(renumbered[each] for each in note.rules)) for note in self.notes),
        )


def rule_of(loss: Loss) -> str:
    """Name the rule, or the default, that an export could not say exactly."""
    return f"rule {loss.line}, '{loss.text}'" if loss.line else loss.text


def account(title: str, exported: Exported) -> str:
    """Write a line for each loss and each note of an export."""
    places = f"{len(exported.losses)} place{'' if len(exported.losses) == 1 else 's'}"
    lines = [f"{title}: {places} could not be said exactly; less is permitted, more is denied"]
    lines += [f"{rule_of(loss)}: {loss.effect.value}: {loss.reason}" for loss in exported.losses]
    lines += [f"note: {note}" for note in exported.notes]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Interfaces:
    """The interfaces by which packets enter and leave.

    Empty if unknown; then a match on interfaces is a loss.
    """

    arrives: str = ""
    leaves: str = ""

    def notes(self) -> Iterator[str]:
        """Yield the assumptions made."""
        for name, way in ((self.arrives, "come in"), (self.leaves, "leave")):
            if name:
                yield f"every packet is taken to {way} by the interface {name}"


NOT_SAID = Interfaces()


@dataclass(frozen=True, slots=True)
class Options:
    """A caller's choices for reading a text.

    Each format uses its own options only (`Format.options`).

    lists               the lists to read of a text that holds several, as `NAME`, `NAME=ingress` or `NAME=egress`
    chains              iptables, nftables: the chains to read, as `NAME=ingress` or `NAME=egress`
    stateless           iptables, nftables: read state matches as what a stateless list can say, with a note for each
    direction           of a list that does not say
    interfaces          those that every packet is taken to come in by and to leave by
    addresses           what names stand for that the text uses and does not explain: selectors, groups, service tags
    definitions         Aerleon: the files that define its networks and services, texts by name
    includes            Aerleon: the files that policies include, texts by the names that they are included by
    classbench_action   ClassBench: the action of every rule, for its sets have none; None alternates permit and deny
    """

    lists: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    stateless: bool = False
    interfaces: Interfaces = NOT_SAID
    direction: Direction = Direction.INGRESS
    addresses: Mapping[str, tuple[Prefix, ...]] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    definitions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    includes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    classbench_action: Action | None = Action.PERMIT
    max_bytes: int = 64 * MEBIBYTE
    max_rules: int = 250_000


DEFAULT_OPTIONS = Options()


@dataclass(slots=True)
class Notes:
    """Collects notes; lines, or rules of a list that is written, share a note."""

    _lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, text: str, line: int | None = None) -> None:
        lines = self._lines.setdefault(text, [])
        if line is not None and line not in lines[-1:]:
            lines.append(line)

    def taken_notes(self) -> tuple[str, ...]:
        """Return the notes on lines of a text that was read."""
        return tuple(f"{_spell_lines(lines, 'line')}{text}" for text, lines in self._lines.items())

    def on_rules(self) -> tuple[RuleNote, ...]:
        """Return the notes on rules of a list that was written."""
        return tuple(RuleNote(text, tuple(sorted(set(rules)))) for text, rules in self._lines.items())


def _spell_lines(lines: Sequence[int], unit: str) -> str:
    if not lines:
        return ""
    found = sorted(set(lines))
    shown = ", ".join(map(str, found[:5])) + (f", ... ({len(found)} {unit}s)" if len(found) > 5 else "")
    return f"{unit}{'s' if len(found) > 1 else ''} {shown}: "
