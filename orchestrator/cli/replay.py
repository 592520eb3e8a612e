"""`aclflow replay`: what an access list would have decided about recorded traffic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from orchestrator.classify.captures import STDIN, Capture, open_capture
from orchestrator.classify.deciding import Decider, Deciding
from orchestrator.classify.devices.choice import C, choose_device
from orchestrator.classify.devices.guarded import OnDevice
from orchestrator.classify.flows import Count, Flow, Flows
from orchestrator.classify.live import LiveCapture
from orchestrator.classify.overlay import MakeSearch
from orchestrator.classify.packets import Unread
from orchestrator.classify.replay import Changed, Listed, Replay
from orchestrator.classify.replay import replay as replayed
from orchestrator.classify.search import Search
from orchestrator.cli.files import Read, read_files, whole
from orchestrator.cli.options import AsJson, Reading, prefix_of, refuse_tracked, taking
from orchestrator.cli.terminal import AsTheyCome, at_work, counting, remark, say, say_json, say_table
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Prefix, format_address
from orchestrator.policy.model import Acl, Direction, ReturnTraffic
from orchestrator.policy.protocols import format_protocol

T = TypeVar("T")

_ANSWER_IS_NO = 1

_WORDS = {
    Unread.NOT_IP: "not decided: not IP",
    Unread.CUT_OFF: "not decided: cut off before its ports",
    Unread.BROKEN: "not decided: headers that contradict one another",
    Unread.OTHER_LINK: "not decided: of a kind of link that is not read",
}


@dataclass(frozen=True, slots=True)
class ListReading(Reading):
    """How lists are read, where `--acl` names the list itself."""

    access_list: Annotated[
        list[str] | None,
        typer.Option("--list", help="Of several lists in a file, one to read, as NAME or NAME=egress."),
    ] = None


@dataclass(frozen=True, slots=True)
class Asking:
    """Whose traffic it is, and how lists are asked about it."""

    own: Annotated[
        list[str] | None,
        typer.Option("--for", "--own", help="A prefix of the tenant's: packets to it are ingress, from it egress."),
    ] = None
    way: Annotated[
        Direction | None,
        typer.Option("--way", help="Of all packets, where no prefix of the tenant's is given; by default ingress."),
    ] = None
    return_traffic: Annotated[
        ReturnTraffic,
        typer.Option(
            "--return-traffic",
            callback=refuse_tracked,
            help="How the domain lets replies in; `explicit` judges the list by itself.",
        ),
    ] = ReturnTraffic.EXPLICIT

    def prefixes(self) -> tuple[Prefix, ...]:
        """The tenant's own. Raises BadInput."""
        return tuple(prefix_of(text, "--for") for text in self.own or ())

    def check(self) -> None:
        """Raises BadInput."""
        if self.prefixes() and self.way is not None:
            raise BadInput("--for tells which way each packet goes: give one of the two", place="--way")

    def not_asked(self, read: Read) -> Iterator[str]:
        """What there is to say of rules that no packet is put to."""
        way = self.way or Direction.INGRESS
        left = [] if self.own else [rule for rule in read.acl.rules if rule.direction is not way]
        if left:
            other = left[0].direction.value
            rules = f"{_several(len(left), f'{other} rule')} {_are(len(left))} not asked"
            yield f"{read.name}: {rules} without --for or --way {other}"

    def of(self, acl: Acl, searching: MakeSearch) -> Deciding:
        return Deciding(
            acl,
            own=self.prefixes(),
            way=self.way or Direction.INGRESS,
            returns=self.return_traffic,
            searching=searching,
        )


@dataclass(frozen=True, slots=True)
class Live:
    """Traffic as it comes."""

    interface: Annotated[
        str | None,
        typer.Option("--interface", help="Listen to this interface instead of reading captures; needs root."),
    ] = None
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long to listen; Ctrl-C ends it before.")] = (
        10.0
    )

    def check(self, captures: Sequence[str]) -> None:
        """Raises BadInput unless either captures are named or an interface."""
        if bool(captures) is (self.interface is not None):
            raise BadInput("name captures, or an interface to listen to", place="CAPTURE")


@taking
def replay(
    acl: Annotated[str, typer.Option("--acl", help="The access list; - is standard input.")],
    reading: ListReading,
    asking: Asking,
    live: Live,
    captures: Annotated[
        list[str] | None,
        typer.Argument(metavar="CAPTURE", help="pcap or pcapng, packed with gzip or not; - is standard input."),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The list that is in force: show what --acl would change.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=0, help="Lines of each table, 0 for all.")] = 20,
    device: Annotated[
        str, typer.Option("--device", help="What searches: c, opencl, cuda or auto; `aclflow devices` lists them.")
    ] = C,
    as_json: AsJson = False,
) -> None:
    """Show what a list would have decided about recorded traffic, or decides about an interface's.

    Counts packets and octets that it permits and denies, by rule, and the flows that it denies. A frame that is not IP,
    or of which too little was captured, is not decided, but counted apart. With --against it shows what would change,
    and ends with 1 if any packet's fate does.
    """
    names = [acl] if against is None else [acl, against]
    if [*names, *(captures or ())].count(STDIN) > 1:
        raise BadInput("standard input can be read only once")
    asking.check()
    live.check(captures or ())
    read = read_files(names, reading)
    lists = [whole(each, reading) for each in read]
    on_device = _on_device(device)
    searching = Search if on_device is None else on_device.search
    with at_work(f"making {' and '.join(_several(len(each.rules), 'rule') for each in lists)} ready"):
        deciding, *others = [asking.of(each, searching) for each in lists]
    against_it = others[0] if others else None
    if live.interface is None:
        found = _replayed(captures or (), deciding, against_it)
    else:
        with at_work(f"listening to {live.interface} for {live.seconds:g} s"):
            found = replayed([LiveCapture(live.interface, live.seconds)], deciding, against_it)
    found.remarks += [f"{device}: {why}" for why in (on_device.reasons() if on_device else ())]
    found.remarks[:0] = [text for each in read for text in asking.not_asked(each)]
    for each in found.remarks:
        remark(each)
    if as_json:
        say_json(_json(found, most))
    else:
        _say(found, most)
    if found.changed:
        raise typer.Exit(_ANSWER_IS_NO)


def _on_device(name: str) -> OnDevice | None:
    """What makes rows ready on the device of a name; None for C. Raises BadInput and Missing."""
    if name == C:
        return None
    device = choose_device(name)
    return None if device is None else OnDevice(device)


def _replayed(names: Sequence[str], deciding: Deciding, against: Deciding | None) -> Replay:
    sizes = [_size(name) for name in names]
    whole = sum(sizes)
    with counting("replaying", total=100) if all(sizes) else _at_work("replaying") as told:

        def captures() -> Iterator[Capture]:
            for number, name in enumerate(names):
                behind = sum(sizes[:number])
                with open_capture(name, partial(_tell, told, behind, whole)) as capture:
                    yield capture

        return replayed(captures(), deciding, against)


@contextmanager
def _at_work(what: str) -> Iterator[Callable[[int], None]]:
    """Where it is not known how much there is, as of a pipe: no more than that something goes on."""
    with at_work(what):
        yield lambda _: None


def _tell(told: Callable[[int], None], behind: int, whole: int, read: int) -> None:
    """How far the replay is, in percent."""
    if whole:
        told(100 * (behind + read) // whole)


def _size(name: str) -> int:
    """Octets of a file for the progress bar; 0 where that is not known."""
    try:
        return 0 if name == STDIN else Path(name).stat().st_size
    except (OSError, ValueError):
        return 0


def _say(found: Replay, most: int) -> None:
    say_table(("fate", "packets", "octets"), _fates(found))
    _say_rules(found.deciding, found.of_list, most)
    _say_denied(found, most)
    if found.against is not None and found.of_other is not None:
        _say_changed(found, found.against, most)


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
        rules = _several(sum(map(_is_rule, deciding.deciders)), "rule")
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
        f"{_several(permitted, 'packet')} more {_are(permitted)} permitted, "
        f"{_several(denied, 'packet')} more {_are(denied)} denied",
        bold=True,
    )
    for flows, fate, sign, colour in (
        (changed.permitted_flows, "permitted", "+", "green"),
        (changed.denied_flows, "denied", "-", "red"),
    ):
        for flow in _first(flows.largest(), most):
            what = f"{flow}: {_several(flow.count.packets, 'packet')}, first {_place(flow, found)}"
            by = f"({_by(against, flow.before)} before, {_by(found.deciding, flow.decider)} after)"
            say(f"{sign} {what}  {by}", colour=colour)
        _more(len(flows), most, f"flows would be {fate} now")
        _say_forgotten(flows)


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


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _place(flow: Flow, found: Replay) -> str:
    """Its first packet, and of which capture that is where there are several."""
    packet = f"packet {flow.first.packet}"
    return packet if len(found.captures) == 1 else f"{packet} of {flow.first.capture}"


def _json(found: Replay, most: int) -> dict[str, object]:
    told: dict[str, object] = {
        "captures": found.captures,
        "remarks": found.remarks,
        "all": asdict(found.all),
        **_listed_json(found.deciding, found.of_list),
        "nobodys": asdict(found.nobodys),
        "undecided": {why.name.lower(): asdict(found.unread.get(why, Count())) for why in _WORDS},
        "denied_flows": _flows_json(found.denied_flows, most, found.deciding, None),
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
