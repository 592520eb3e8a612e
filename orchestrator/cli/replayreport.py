"""What came of a replay: tables for people, JSON for programs, plots."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from orchestrator.classify.deciding import Decider, Deciding
from orchestrator.classify.flows import Count, Flow, Flows
from orchestrator.classify.packets import Unread
from orchestrator.classify.replay import Changed, Listed, Replay
from orchestrator.classify.timeline import MOST_BINS, Interval
from orchestrator.cli.terminal import AsTheyCome, remark, say, say_table
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


def say_replay(found: Replay, most: int, *, by_time: bool) -> None:
    """Write tables: packets by fate, by rule, by flow, and by time where that is wanted; `most` lines each."""
    say_table(("fate", "packets", "octets"), _fates(found))
    _say_rules(found.deciding, found.of_list, most)
    _say_denied(found, most)
    if found.against is not None and found.of_other is not None:
        _say_changed(found, found.against, most)
    if by_time:
        _say_times(found)


def _fates(found: Replay) -> Iterator[tuple[str, str, str]]:
    listed = found.of_list
    yield _counted("permitted", listed.permitted)
    yield _counted("denied", listed.denied)
    if found.nobodys.packets:
        yield _counted("neither from the tenant nor to it", found.nobodys)
    for why, words in _WORDS.items():
        if why in found.unread:
            yield _counted(words, found.unread[why])
    yield _counted("all", found.all)


def _counted(words: str, count: Count) -> tuple[str, str, str]:
    return words, *_numbers(count)


def _say_rules(deciding: Deciding, listed: Listed, most: int) -> None:
    """The lines that decided something, the most packets first, and the rules that did not."""
    met = sorted(
        (number for number in range(len(deciding.deciders)) if listed.packets[number]),
        key=lambda number: -listed.packets[number],
    )
    if met:
        say("")
        rows = ((*_line(deciding.deciders[number]), *_numbers(listed.decided(number))) for number in met)
        say_table(("direction", "rule", "action", "packets", "octets"), _first(rows, most))
        _more(len(met), most, "lines of the list decided something")
    never = [each.id for each in _never_met(deciding, listed)]
    if never:
        say("")
        names = ", ".join(_first(never, most)) + (", ..." if most and len(never) > most else "")
        rules = several(sum(map(_is_rule, deciding.deciders)), "rule")
        say(f"{len(never)} of {rules} {'was' if len(never) == 1 else 'were'} never met: {names}")


def _never_met(deciding: Deciding, listed: Listed) -> list[Decider]:
    """The rules of the list that decided nothing."""
    return [each for number, each in enumerate(deciding.deciders) if _is_rule(each) and not listed.packets[number]]


def _is_rule(decider: Decider) -> bool:
    """Whether somebody wrote it; ids that start with _ are of the default and of the domain's return traffic."""
    return not decider.id.startswith("_")


def _say_denied(found: Replay, most: int) -> None:
    flows = [*_first(found.denied_flows.largest(), most)]
    if not flows:
        return
    say("")
    say_table(
        ("denied", "packets", "octets", "by", "first"),
        ((str(flow), *_numbers(flow.count), _by(found.deciding, flow.decider), _place(flow, found)) for flow in flows),
    )
    _more(len(found.denied_flows), most, "flows were denied")
    _say_forgotten(found.denied_flows)


def _say_changed(found: Replay, against: Deciding, most: int) -> None:
    changed = found.changed
    say("")
    if not changed:
        say("nothing that the captures hold would be decided otherwise", colour="green")
        return
    permitted, denied = changed.permitted.packets, changed.denied.packets
    say(
        f"{several(permitted, 'packet')} more {are(permitted)} permitted, "
        f"{several(denied, 'packet')} more {are(denied)} denied",
        bold=True,
    )
    for flows, fate, sign, colour in (
        (changed.permitted_flows, "permitted", "+", "green"),
        (changed.denied_flows, "denied", "-", "red"),
    ):
        for flow in _first(flows.largest(), most):
            what = f"{flow}: {several(flow.count.packets, 'packet')}, first {_place(flow, found)}"
            by = f"({_by(against, flow.before)} before, {_by(found.deciding, flow.decider)} after)"
            say(f"{sign} {what}  {by}", colour=colour)
        _more(len(flows), most, f"flows would be {fate} now")
        _say_forgotten(flows)


def _say_times(found: Replay) -> None:
    """The intervals that have packets, and what became of these."""
    shown = _fates_shown(found)
    rows = [(_time(each.begin), *(f"{getattr(each, name):,}" for name in shown)) for each in found.timeline.intervals()]
    if rows:
        say("")
        say_table((f"from, {_width(found)} each", *(name.replace("_", " ") for name in shown)), rows)


def _fates_shown(found: Replay) -> tuple[str, ...]:
    newly = () if found.against is None else ("newly_permitted", "newly_denied")
    return "permitted", "denied", *newly, "undecided"


_NANOSECONDS = 1_000_000_000


def _time(nanoseconds: int) -> str:
    """A time in UTC, with milliseconds where it has some. One that no calendar has is a number of seconds."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    try:
        shown = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"
    return f"{shown}.{rest // 1_000_000:03}Z" if rest else f"{shown}Z"


def _width(found: Replay) -> str:
    seconds = found.timeline.width / _NANOSECONDS
    return f"{seconds:g} s" if seconds < 60 else str(dt.timedelta(seconds=seconds))


def draw_times(found: Replay, folder: Path) -> list[Path]:
    """Draw packets by time and fate. Raises Missing without matplotlib, or where the folder cannot be made."""
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
    x_label, y_label = f"seconds after {_time(begin)}", f"packets in {_width(found)}"
    series = [
        Series(name.replace("_", " "), at_s, tuple(float(getattr(each, name)) for each in intervals), x_label, y_label)
        for name in _fates_shown(found)
    ]
    return draw_plots(series, (), folder)


def _with_gaps(found: Replay) -> list[Interval]:
    """The intervals from first to last, also those without packets where they are not too many."""
    there = {each.begin: each for each in found.timeline.intervals()}
    if not there:
        return []
    every = range(min(there), max(there) + 1, found.timeline.width)
    begins = every if len(every) <= MOST_BINS else there
    return [there.get(begin, Interval(begin, 0, 0, 0, 0, 0)) for begin in begins]


def _say_forgotten(flows: Flows) -> None:
    if flows.forgotten:
        remark(f"{flows.forgotten} small flows were forgotten on the way: what is shown of flows may be too little")


def _more(there: int, most: int, what: str) -> None:
    if most and there > most:
        first = "the first is" if most == 1 else f"the first {most:,} are"
        remark(f"{there:,} {what}; {first} shown, --most 0 shows all")


def _first(items: Iterable[T], most: int) -> Iterator[T]:
    return itertools.islice(items, most or None)


def _line(decider: Decider) -> tuple[str, str, str]:
    return decider.direction.value, "the default" if decider.is_default else decider.id, decider.action.value


def _by(deciding: Deciding, number: int) -> str:
    """Who decided, with the direction where both are asked."""
    direction, name, _ = _line(deciding.deciders[number])
    return name if deciding.one_way else f"{direction}: {name}"


def _numbers(count: Count) -> tuple[str, str]:
    return f"{count.packets:,}", f"{count.octets:,}"


def several(count: int, what: str) -> str:
    """A count and its noun, as in `2 packets`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def are(count: int) -> str:
    """The verb of a count."""
    return "is" if count == 1 else "are"


def _place(flow: Flow, found: Replay) -> str:
    """Its first packet, and of which capture that is where there are several."""
    packet = f"packet {flow.first.packet}"
    return packet if len(found.captures) == 1 else f"{packet} of {flow.first.capture}"


def replay_json(found: Replay, most: int) -> dict[str, object]:
    """The replay as one object, with `most` of each kind of flows."""
    told: dict[str, object] = {
        "captures": found.captures,
        "remarks": found.remarks,
        "all": asdict(found.all),
        **_listed_json(found.deciding, found.of_list),
        "nobodys": asdict(found.nobodys),
        "undecided": {why.name.lower(): asdict(found.unread.get(why, Count())) for why in _WORDS},
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


def _listed_json(deciding: Deciding, listed: Listed) -> dict[str, object]:
    """What a list made of the captures: every line of it, also those that decided nothing."""
    rules = [{**_decider_json(each), **asdict(listed.decided(number))} for number, each in enumerate(deciding.deciders)]
    return {"permitted": asdict(listed.permitted), "denied": asdict(listed.denied), "rules": rules}


def _decider_json(decider: Decider) -> dict[str, object]:
    """A line of a list; `rule` is null for a default."""
    rule = None if decider.is_default else decider.id
    return {"direction": decider.direction.value, "rule": rule, "action": decider.action.value}


def _changed_json(changed: Changed, most: int, deciding: Deciding, against: Deciding) -> dict[str, object]:
    return {
        "permitted": asdict(changed.permitted),
        "denied": asdict(changed.denied),
        "permitted_flows": _flows_json(changed.permitted_flows, most, deciding, against),
        "denied_flows": _flows_json(changed.denied_flows, most, deciding, against),
    }


def _flows_json(flows: Flows, most: int, deciding: Deciding, against: Deciding | None) -> dict[str, object]:
    shown = (_flow_json(flow, deciding, against) for flow in _first(flows.largest(), most))
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
        **asdict(flow.count),
        "first": asdict(flow.first),
        "decided_by": _decider_json(deciding.deciders[flow.decider]),
    }
    if against is not None:
        told["before"] = _decider_json(against.deciders[flow.before])
    return told
