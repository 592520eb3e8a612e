"""The report of a replay: tables for people, JSON for programs, plots."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from orchestrator.classify.flows import Count, Flow, Flows
from orchestrator.classify.listdecider import Decider, Deciding
from orchestrator.classify.packets import Unread
from orchestrator.classify.replay import Changed, Listed, Replay
from orchestrator.classify.timeline import MOST_BINS, Interval
from orchestrator.cli.tables import Line, Table
from orchestrator.cli.terminal import AsTheyCome, are, several
from orchestrator.errors import Missing
from orchestrator.policy.addresses import format_address
from orchestrator.policy.protocols import format_protocol

T = TypeVar("T")

_WORDS = {
    Unread.NOT_IP: "not decided: not IP",
    Unread.CUT_OFF: "not decided: cut off before its ports",
    Unread.BROKEN: "not decided: headers that contradict one another",
    Unread.OTHER_LINK: "not decided: of a kind of link that is not read",
    Unread.UNSAID: "not decided: a flow record does not say what a rule asks",
}


TABLES = ("fates", "rules", "denied", "changes", "times")
"""The tables of a replay, by their names."""


def replay_parts(found: Replay, most: int, *, by_time: bool) -> Iterator[Line | Table]:
    """Yield tables of packets: by fate, rule, flow, and time on request.

    Each has `most` lines.
    """
    yield Table("fates", ("fate", "packets", "bytes"), _make_fate_rows(found))
    yield from _rule_parts(found.deciding, found.of_list, most)
    yield from _denied_parts(found, most)
    yield from _change_parts(found, most)
    yield from _time_parts(found, is_shown=by_time)


def _make_fate_rows(found: Replay) -> Iterator[tuple[str, str, str]]:
    listed = found.of_list
    yield _count_row("permitted", listed.permitted)
    yield _count_row("denied", listed.denied)
    if found.nobodys.packets:
        yield _count_row("neither from the tenant nor to it", found.nobodys)
    for why, words in _WORDS.items():
        if why in found.unread:
            yield _count_row(words, found.unread[why])
    yield _count_row("all", found.all)


def _count_row(words: str, count: Count) -> tuple[str, str, str]:
    return words, *_spell_count(count)


def _rule_parts(deciding: Deciding, listed: Listed, most: int) -> Iterator[Line | Table]:
    """The lines that decided something, the most packets first, and the rules that did not."""
    met = sorted(
        (number for number in range(len(deciding.deciders)) if listed.packets[number]),
        key=lambda number: -listed.packets[number],
    )
    if met:
        yield Line()
    rows = ((*_name_line(deciding.deciders[number]), *_spell_count(listed.count_of(number))) for number in met)
    yield Table("rules", ("direction", "rule", "action", "packets", "bytes"), _take_first(rows, most), is_extra=not met)
    yield from _say_how_many_more(len(met), most, "lines of the list decided something")
    never = [each.id for each in _never_met(deciding, listed)]
    if never:
        yield Line()
        names = ", ".join(_take_first(never, most)) + (", ..." if most and len(never) > most else "")
        rules = several(sum(map(_is_rule, deciding.deciders)), "rule")
        yield Line(f"{len(never)} of {rules} {'was' if len(never) == 1 else 'were'} never met: {names}")


def _never_met(deciding: Deciding, listed: Listed) -> list[Decider]:
    """The rules of the list that decided nothing."""
    return [each for number, each in enumerate(deciding.deciders) if _is_rule(each) and not listed.packets[number]]


def _is_rule(decider: Decider) -> bool:
    """Return whether a decider is a rule that somebody wrote.

    Ids that start with _ are of the default and of the domain's return traffic.
    """
    return not decider.id.startswith("_")


def _denied_parts(found: Replay, most: int) -> Iterator[Line | Table]:
    flows = [*_take_first(found.denied_flows.largest(), most)]
    if flows:
        yield Line()
    rows = [
        (str(each), *_spell_count(each.count), _by(found.deciding, each.decider), _place(each, found)) for each in flows
    ]
    yield Table("denied", ("denied", "packets", "bytes", "by", "first"), rows, is_extra=not flows)
    yield from _say_how_many_more(len(found.denied_flows), most, "flows were denied")
    yield from _describe_forgotten(found.denied_flows)


def _change_parts(found: Replay, most: int) -> Iterator[Line | Table]:
    if found.against is None or found.of_other is None:
        yield Table("changes", _CHANGES, (), is_extra=True)
        return
    against, changed = found.against, found.changed
    newly = (("permitted", changed.permitted_flows, "+", "green"), ("denied", changed.denied_flows, "-", "red"))
    rows = [
        (fate, str(flow), *_spell_count(flow.count), _place(flow, found), *_before_and_after(found, against, flow))
        for fate, flows, _, _ in newly
        for flow in _take_first(flows.largest(), most)
    ]
    yield Table("changes", _CHANGES, rows, is_extra=True)
    yield Line()
    if not changed:
        yield Line("nothing that the captures hold would be decided otherwise", colour="green")
        return
    permitted, denied = changed.permitted.packets, changed.denied.packets
    more = f"{several(permitted, 'packet')} more {are(permitted)} permitted, "
    yield Line(f"{more}{several(denied, 'packet')} more {are(denied)} denied", bold=True)
    for fate, flows, sign, colour in newly:
        for flow in _take_first(flows.largest(), most):
            what = f"{flow}: {several(flow.count.packets, 'packet')}, first {_place(flow, found)}"
            before, after = _before_and_after(found, against, flow)
            yield Line(f"{sign} {what}  ({before} before, {after} after)", colour=colour)
        yield from _say_how_many_more(len(flows), most, f"flows would be {fate} now")
        yield from _describe_forgotten(flows)


_CHANGES = ("now", "flow", "packets", "bytes", "first", "before", "after")


def _before_and_after(found: Replay, against: Deciding, flow: Flow) -> tuple[str, str]:
    """The rules that decided a flow and that would decide it."""
    return _by(against, flow.before), _by(found.deciding, flow.decider)


def _time_parts(found: Replay, *, is_shown: bool) -> Iterator[Line | Table]:
    """The intervals that have packets, and what became of these."""
    shown = _list_fates(found)
    rows = [(_time(each.begin), *(f"{getattr(each, name):,}" for name in shown)) for each in found.timeline.intervals()]
    is_shown = is_shown and bool(rows)
    if is_shown:
        yield Line()
    columns = (f"from, {_spell_width(found)} each", *(name.replace("_", " ") for name in shown))
    yield Table("times", columns, rows, is_extra=not is_shown)


def _list_fates(found: Replay) -> tuple[str, ...]:
    newly = () if found.against is None else ("newly_permitted", "newly_denied")
    return "permitted", "denied", *newly, "undecided"


_NANOSECONDS = 1_000_000_000


def _time(nanoseconds: int) -> str:
    """Return a time in UTC, with milliseconds where it has some.

    A time that no calendar has is shown as a number of seconds.
    """
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    try:
        shown = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"
    return f"{shown}.{rest // 1_000_000:03}Z" if rest else f"{shown}Z"


def _spell_width(found: Replay) -> str:
    seconds = found.timeline.width / _NANOSECONDS
    return f"{seconds:g} s" if seconds < 60 else str(dt.timedelta(seconds=seconds))


def draw_times(found: Replay, folder: Path) -> list[Path]:
    """Draw packets by time and fate.

    Raises Missing without matplotlib, or where the folder cannot be made.
    """
    from orchestrator.bench.plots import draw_plots  # noqa: PLC0415  (only a plot needs it)
    from orchestrator.bench.results import Series  # noqa: PLC0415

    intervals = _with_gaps(found)
    if not intervals:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Missing(f"no folder can be made: {error.strerror}", place=str(folder)) from None
    begin = intervals[0].begin
    at_s = tuple((each.begin - begin) / _NANOSECONDS for each in intervals)
    x_label, y_label = f"seconds after {_time(begin)}", f"packets in {_spell_width(found)}"
    series = [
        Series(name.replace("_", " "), at_s, tuple(float(getattr(each, name)) for each in intervals), x_label, y_label)
        for name in _list_fates(found)
    ]
    return draw_plots(series, (), folder)


def _with_gaps(found: Replay) -> list[Interval]:
    """Return the intervals from first to last, also those without packets.

    The latter are left out where they are too many.
    """
    there = {each.begin: each for each in found.timeline.intervals()}
    if not there:
        return []
    every = range(min(there), max(there) + 1, found.timeline.width)
    begins = every if len(every) <= MOST_BINS else there
    return [there.get(begin, Interval(begin, 0, 0, 0, 0, 0)) for begin in begins]


def _describe_forgotten(flows: Flows) -> Iterator[Line]:
    if flows.forgotten:
        text = f"{flows.forgotten} small flows were forgotten on the way: what is shown of flows may be too little"
        yield Line(text, beside=True)


def _say_how_many_more(there: int, most: int, what: str) -> Iterator[Line]:
    if most and there > most:
        first = "the first is" if most == 1 else f"the first {most:,} are"
        yield Line(f"{there:,} {what}; {first} shown, --most 0 shows all", beside=True)


def _take_first(items: Iterable[T], most: int) -> Iterator[T]:
    return itertools.islice(items, most or None)


def _name_line(decider: Decider) -> tuple[str, str, str]:
    return decider.direction.value, "the default" if decider.is_default else decider.id, decider.action.value


def _by(deciding: Deciding, number: int) -> str:
    """The line that decided, with the direction where both are asked."""
    direction, name, _ = _name_line(deciding.deciders[number])
    return name if deciding.one_way else f"{direction}: {name}"


def _spell_count(count: Count) -> tuple[str, str]:
    return f"{count.packets:,}", f"{count.bytes:,}"


def _place(flow: Flow, found: Replay) -> str:
    """Return where a flow's first packet is, with its capture if there are several."""
    packet = f"packet {flow.first.packet}"
    return packet if len(found.captures) == 1 else f"{packet} of {flow.first.capture}"


def replay_json(found: Replay, most: int) -> dict[str, object]:
    """The replay as one object, with `most` of each kind of flows."""
    told: dict[str, object] = {
        "captures": found.captures,
        "remarks": found.remarks,
        "all": _count_json(found.all),
        **_listed_json(found.deciding, found.of_list),
        "nobodys": _count_json(found.nobodys),
        "undecided": {why.name.lower(): _count_json(found.unread.get(why, Count())) for why in _WORDS},
        "denied_flows": _flows_json(found.denied_flows, most, found.deciding, None),
        "times": {
            "width_ns": found.timeline.width,
            "intervals": [asdict(each) for each in found.timeline.intervals()],
        },
    }
    if found.against is not None and found.of_other is not None:
        told["against"] = _listed_json(found.against, found.of_other)
        told["changed"] = _changed_json(found.changed, most, found.deciding, found.against)
    return told


def _count_json(count: Count) -> dict[str, int]:
    return {"packets": count.packets, "octets": count.bytes}


def _listed_json(deciding: Deciding, listed: Listed) -> dict[str, object]:
    """Return the results of a list on the captures, line by line.

    Lines that decided nothing are there, too.
    """
    rules = [
        {**_decider_json(each), **_count_json(listed.count_of(number))} for number, each in enumerate(deciding.deciders)
    ]
    return {"permitted": _count_json(listed.permitted), "denied": _count_json(listed.denied), "rules": rules}


def _decider_json(decider: Decider) -> dict[str, object]:
    """A line of a list; `rule` is null for a default."""
    rule = None if decider.is_default else decider.id
    return {"direction": decider.direction.value, "rule": rule, "action": decider.action.value}


def _changed_json(changed: Changed, most: int, deciding: Deciding, against: Deciding) -> dict[str, object]:
    return {
        "permitted": _count_json(changed.permitted),
        "denied": _count_json(changed.denied),
        "permitted_flows": _flows_json(changed.permitted_flows, most, deciding, against),
        "denied_flows": _flows_json(changed.denied_flows, most, deciding, against),
    }


def _flows_json(flows: Flows, most: int, deciding: Deciding, against: Deciding | None) -> dict[str, object]:
    shown = (_flow_json(flow, deciding, against) for flow in _take_first(flows.largest(), most))
    return {"known": len(flows), "forgotten": flows.forgotten, "largest": AsTheyCome(shown)}


def _flow_json(flow: Flow, deciding: Deciding, against: Deciding | None) -> dict[str, object]:
    told: dict[str, object] = {
        "source": format_address(flow.family, flow.source),
        "destination": format_address(flow.family, flow.destination),
        "protocol": format_protocol(flow.protocol),
        "source_port": flow.port if flow.has_ports and flow.answers else None,
        "destination_port": flow.port if flow.has_ports and not flow.answers else None,
        "icmp_type": flow.icmp_type if flow.is_icmp else None,
        "icmp_code": flow.icmp_code if flow.is_icmp else None,
        "later_fragment": flow.later_fragment,
        **_count_json(flow.count),
        "first": asdict(flow.first),
        "decided_by": _decider_json(deciding.deciders[flow.decider]),
    }
    if against is not None:
        told["before"] = _decider_json(against.deciders[flow.before])
    return told
