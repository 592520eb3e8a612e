"""The terminal output of a demo: progress, the table of trials, the API's address.

Packets, rules and lines of lists are said in a few words (`packet_words`, `rule_words`, `line_words`).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from orchestrator.client.pops import share_of, ways
from orchestrator.lab.cluster import Death, Return
from orchestrator.lab.layout import DEFAULT_PREFIX
from orchestrator.lab.pop import Lab
from orchestrator.lab.trials import Line, Report, Trial, Ways
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import RETURN_RULE_ID, Packet, Policy, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, format_protocol
from orchestrator.policy.ruletext import ip_words
from orchestrator.policy.tcpflags import TcpFlag


def packet_words(packet: Packet) -> str:
    """Describe a packet in short: ``tcp 80 syn``, ``icmp 8/0``, ``gre``, ``udp, later fragment``."""
    name = format_protocol(packet.protocol)
    if packet.later_fragment:
        return f"{name}, later fragment"
    if packet.protocol in (ICMP, ICMPV6):
        return "{} {}/{}".format(name, *slot_values(packet))
    if packet.protocol not in WITH_PORTS:
        return name
    words = f"{name} {packet.destination_port}"
    return f"{words} {_spell_flags(packet.tcp_flags)}" if packet.protocol == TCP else words


def line_words(policy: Policy, line: Line) -> str:
    """Describe a line: its tenant, then the rule in short."""
    tenant = next(tenant for tenant in policy.tenants if tenant.id == line.tenant)
    if line.rule is None:
        return f"{line.tenant}: {line.direction.value} default, {tenant.acl.default(line.direction).value}"
    if line.rule == RETURN_RULE_ID:
        return f"{line.tenant}: {line.direction.value} return traffic, permit"
    return f"{line.tenant}: {rule_words(next(rule for rule in tenant.acl.rules if rule.id == line.rule))}"


def rule_words(rule: Rule) -> str:
    """A rule in short: ``permit tcp any -> 198.51.100.10 80,443``."""
    parts = [rule.action.value, "ip" if rule.protocol is None else format_protocol(rule.protocol)]
    parts += [_spell_side(rule.source, rule.source_ports), "->", _spell_side(rule.destination, rule.destination_ports)]
    if rule.icmp:
        parts.append("/".join(map(str, rule.icmp)))
    if rule.established:
        parts.append("established")
    if rule.tcp_flags is not None:
        parts.append(f"{_spell_flags(rule.tcp_flags.value)} of {_spell_flags(rule.tcp_flags.mask)}")
    return " ".join([*parts, *ip_words(rule)])


def _spell_side(addresses: Addresses, ports: tuple[PortRange, ...]) -> str:
    words = _shorten_words(
        [_spell_prefix(str(prefix)) for prefix in addresses.prefixes] + [f"@{name}" for name in addresses.groups]
    )
    return (words or "any") + ("" if ports == EVERY_PORT else f" {_shorten_words([str(each) for each in ports])}")


def _spell_prefix(text: str) -> str:
    return text.removesuffix("/128" if ":" in text else "/32")


def _shorten_words(words: list[str], most: int = 3) -> str:
    shown = ",".join(words[:most])
    return f"{shown},+{len(words) - most}" if len(words) > most else shown


def _spell_flags(flags: int) -> str:
    return "+".join(str(flag.name).lower() for flag in TcpFlag if flag & flags) or "no flags"


_STEPS = 14
"""How often a demo announces something before its table."""

_MOST_NOTES = 12


class Screen:
    """A terminal that follows one demo; used in a `with` statement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("starting", total=_STEPS)

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, what: str) -> None:
        """Show that something begins; what was before is done."""
        self._progress.update(self._task, description=what, advance=1)

    def show(self, report: Report, notes: Sequence[str]) -> None:
        """The table, and what it comes to."""
        self._progress.stop()
        for note in notes[:_MOST_NOTES]:
            self._console.print(f"[dim]note: {escape(note)}[/]")
        if len(notes) > _MOST_NOTES:
            self._console.print(f"[dim]and {len(notes) - _MOST_NOTES} notes more: `aclflow acl import` shows all[/]")
        self._console.print(_make_table(report))
        for line in report.uncounted:
            said = escape(line_words(report.policy, line))
            self._console.print(f"[bold red]DISAGREEMENT[/] '{said}' decided packets that it did not count")
        for trial in report.wrong:
            self._console.print(f"[bold red]DISAGREEMENT[/] {_describe_disagreement(trial, report)}")
        good = len(report.trials) - len(report.wrong)
        self._console.print(f"{good} of {len(report.trials)} trials went as the policy says.")
        if report.ways is not None:
            self._show_ways(report.ways, report)

    def _show_ways(self, gone: Ways, report: Report) -> None:
        """Where packets went in the PoP, and how it was with heavy hitters."""
        for trial in gone.again:
            if not trial.agrees:
                self._console.print(
                    f"[bold red]DISAGREEMENT[/] with heavy hitters: {_describe_disagreement(trial, report)}"
                )
        if gone.strayed:
            self._console.print(f"[bold red]DISAGREEMENT[/] {gone.strayed} packets that no rule permits got somewhere")
        table = Table(box=SIMPLE_HEAD, title="where packets from outside went", title_justify="left")
        for heading in ("way", "packets", "bytes"):
            table.add_column(heading, overflow="fold", justify="left" if heading == "way" else "right")
        for row in ways(gone.traffic):
            table.add_row(*map(escape, row))
        self._console.print(table)
        shares = Table(box=SIMPLE_HEAD, title="what heavy hitters spare the firewall servers", title_justify="left")
        for heading in ("tenant", "server", "past it", "met it", "share past it"):
            shares.add_column(heading)
        for name, each in gone.traffic["tenants"].items():
            counted = (f"{each[which]['packets']:,}" for which in ("bypassed", "served"))
            shares.add_row(escape(name), escape(each["server"] or ""), *counted, share_of(each))
        self._console.print(shares)
        again = sum(trial.agrees for trial in gone.again)
        said = ", ".join(gone.chosen) or "none"
        self._console.print(f"{again} of {len(gone.again)} trials went so again with heavy hitters ({escape(said)}).")

    def show_deaths(self, deaths: Sequence[Death], back: Return, received: int) -> None:
        """Firewalls that died under a download and came back, and what became of it."""
        self._progress.stop()
        table = Table(box=SIMPLE_HEAD, title="firewalls that lost their power", title_justify="left")
        for heading in ("killed", "given up after", "download stood for", "goes on through", "connections alive"):
            table.add_column(heading)
        for each in deaths:
            noticed = "-" if each.noticed_s is None else _spell_ms(each.noticed_s)
            alive = f"{each.alive} of {each.held}"
            style = "bold red" if each.lost else ""
            table.add_row(each.victim, noticed, _spell_ms(each.pause_s), each.successor, alive, style=style)
        self._console.print(table)
        stood = f"the download stood for {_spell_ms(back.pause_s)}"
        self._console.print(f"{' and '.join(back.names)} served again after {back.whole_s:.1f} s; {stood}.")
        lost = max((each.lost for each in deaths), default=0)
        self._console.print(f"One download of {received / 1e6:,.0f} MB, and {lost or 'no'} connections lost.")

    def show_pause(self, pause_s: float, carrier: str) -> None:
        """Say how long the download stood, and who carries it now."""
        self._console.print(f"the download stood for {_spell_ms(pause_s)}; {carrier} carries it")

    def invite(self, url: str, console: str, token: str, lab: Lab, hints: Sequence[str] = ()) -> None:
        """Say where everything is, and commands to try, without the prefix (`hints`)."""
        option = "" if lab.layout.prefix == DEFAULT_PREFIX else f" --prefix {lab.layout.prefix}"
        example = lab.spec.tenants[0].id
        self._console.print()
        self._console.print(f"[bold]console[/]  {console}", soft_wrap=True)
        self._console.print(f"[bold]API[/]      {url}/v1   (described at {url}/v1/openapi.json)")
        self._console.print(f"[bold]token[/]    {token}   (administrator)", soft_wrap=True)
        self._console.print(f"[dim]curl -H 'X-Auth-Token: {token}' {url}/v1/tenants/{example}/acl[/]", soft_wrap=True)
        self._console.print(f"[dim]aclflow lab exec{option} {lab.spec.nodes[0].name} -- bash[/]")
        for each in hints:
            self._console.print(f"[dim]{each}{option}[/]")
        self._console.print(f"[dim]logs in {lab.layout.logs}[/]")
        self._console.print("It stays up until Ctrl-C, which removes everything.")

    def show_restarted(self, name: str) -> None:
        """Show that something had ended and runs again."""
        self._console.print(f"[yellow]{name} had ended and was started again[/]")

    def show_removed(self) -> None:
        """Show that somebody else took the lab away."""
        self._console.print("the lab was removed by somebody else")

    def show_interrupted(self) -> None:
        """Say that the wish to end was heard, and everything is gone."""
        self._progress.stop()
        self._console.print("removed everything")


def _spell_ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _make_table(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, title="real packets through real switches", title_justify="left")
    for heading in ("from", "to", "packet", "IP", "policy", "wire", "decided by", "counter"):
        table.add_column(heading, overflow="fold")
    for trial in report.trials:
        table.add_row(*_make_row(trial, report), style="" if trial.agrees else "bold red")
    return table


def _make_row(trial: Trial, report: Report) -> tuple[str, ...]:
    return (
        trial.sender,
        trial.receiver,
        packet_words(trial.packet),
        str(trial.packet.family.value),
        "[green]permit[/]" if trial.expected else "[magenta]refuse[/]",
        "[green]passed[/]" if trial.seen else "[magenta]nothing[/]",
        escape(line_words(report.policy, trial.line)),
        f"{report.before[trial.line]} -> {report.after[trial.line]}" if trial.met_host else "at its server",
    )


def _describe_disagreement(trial: Trial, report: Report) -> str:
    said, done = ("permits", "did not pass") if trial.expected else ("refuses", "passed")
    what = f"{packet_words(trial.packet)} from {trial.sender} to {trial.receiver}"
    return escape(f"{what}: '{line_words(report.policy, trial.line)}' {said} it, and it {done}")
