"""Limits of figures, read from a file:

tcp_mbit_s:       {at_least: 900}
requests_per_s:   {at_least: 5000}
connect_ms:       {at_most: 2}
refused_answered: {at_most: 0}

A limit holds for each pair of machines by itself.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path

from orchestrator.bench.results import Target
from orchestrator.bench.yamlfiles import read_yaml
from orchestrator.errors import BadInput


class Measure(enum.Enum):
    """A measured quantity from a client to a server, with its unit."""

    TCP = "tcp_mbit_s"
    PACKETS = "packets_per_s"
    LOST = "packets_lost_percent"
    REQUESTS = "requests_per_s"
    CONNECT = "connect_ms"
    CONNECTION = "connection_ms"
    REFUSED = "refused_answered"

    @property
    def unit(self) -> str:
        """Behind the number in a report."""
        return _ABOUT[self][0]

    @property
    def tool(self) -> str:
        """The measuring tool."""
        return _ABOUT[self][1]

    @property
    def what(self) -> str:
        """The measure, in words."""
        return _ABOUT[self][2]


TCP, UDP, HTTP, KNOCK = "iperf3 over TCP", "iperf3 over UDP", "httperf", "a refused port"
_ABOUT: Mapping[Measure, tuple[str, str, str]] = {
    Measure.TCP: ("Mbit/s", TCP, "one TCP stream by iperf3, what the server received"),
    Measure.PACKETS: ("1/s", UDP, "datagrams by iperf3 as fast as the client sends, counted at the server's interface"),
    Measure.LOST: ("%", UDP, "of these datagrams, how many did not reach the server's interface"),
    Measure.REQUESTS: ("1/s", HTTP, "HTTP requests by httperf, one a connection, in a closed loop"),
    Measure.CONNECT: ("ms", HTTP, "from a SYN to its answer, under that load"),
    Measure.CONNECTION: ("ms", HTTP, "from a SYN to the end of the connection, under that load"),
    Measure.REFUSED: ("1", KNOCK, "whether a port answers that the server listens on and the policy refuses"),
}
Limits = Mapping[Measure, Target]


def read(path: Path) -> Limits:
    """The limits of a file. Raises BadInput with file and place, and Missing."""
    return read_yaml(path, "limits", parse)


def parse(document: object) -> Limits:
    """The limits of a document. Raises BadInput with the place."""
    if not isinstance(document, dict):
        raise BadInput("holds `figure: {at_least: number}` or `figure: {at_most: number}` lines")
    return dict(_read_limit(str(name), said) for name, said in document.items())


def _read_limit(name: str, said: object) -> tuple[Measure, Target]:
    try:
        measure = Measure(name)
    except ValueError:
        known = ", ".join(each.value for each in Measure)
        raise BadInput(f"is no figure; they are {known}", place=name) from None
    if not isinstance(said, dict) or len(said) != 1 or not {*said} < {"at_least", "at_most"}:
        raise BadInput("say either {at_least: number} or {at_most: number}", place=name)
    [(kind, bound)] = said.items()
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise BadInput(f"{bound!r} is no number", place=f"{name}.{kind}")
    return measure, Target(float(bound), at_most=kind == "at_most")
