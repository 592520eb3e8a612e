"""Both kinds of firewall of a line behind one interface: load, check verdicts.

A list's compiled form is kept, so that loading it again costs only the loading.
"""

from __future__ import annotations

import abc

from orchestrator.bench.traffic import filters, netcat
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED_ADDRESS, UNSERVED, Clients, alone, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import RIGHT, Line
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import Drifted
from orchestrator.placement.lifting import LiftedRule
from orchestrator.program.program import Program


class Plane(abc.ABC):
    """A firewall on a line."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def load(self, listed: Listed) -> None:
        """Hold this list and nothing else, installed afresh.

        Raises Drifted where something passes that no rule permits, Unreachable where what is permitted does not.
        """
        self.put(listed)
        unserved, excluded = (Clients.ONE.address, UNSERVED), (EXCLUDED_ADDRESS, ECHO)
        passes = netcat.reached_sources(self.line, [unserved, excluded])
        if passes != [not listed.rules] * 2:
            wrong = f"a port that no rule permits: {passes[0]}, a client that is shut out: {passes[1]}"
            raise Drifted(
                f"{self.line.name}, {listed.rules} rules: what gets through is not what the list says: {wrong}"
            )

    @abc.abstractmethod
    def put(self, listed: Listed) -> None:
        """Compile and load."""


class KernelPlane(Plane):
    """A kernel that routes, with a packet filter for one tenant.

    Other tenants' lists would only be more lines to pass.
    """

    def __init__(self, line: Line, kind: Filter) -> None:
        super().__init__(line)
        self._kind = kind
        self._texts: dict[Listed, str] = {}

    def put(self, listed: Listed) -> None:
        if not listed.rules:
            filters.clear(self.line, self._kind)
            return
        if listed not in self._texts:
            self._texts[listed] = filters.text_of(self._kind, alone(listed.acl()))
        filters.load(self.line, self._kind, self._texts[listed])


class SwitchPlane(Plane):
    """A VNF-ACL; `lifted` is what stands above the list when it is loaded."""

    def __init__(self, line: Line, vnf: VnfAcl, lifted: tuple[LiftedRule, ...] = ()) -> None:
        super().__init__(line)
        self.vnf = vnf
        self._lifted = lifted
        self._programs: dict[Listed, Program] = {}

    def put(self, listed: Listed) -> None:
        if listed not in self._programs:
            wanted = policy(listed.acl(), server_port=RIGHT)
            generation = len(self._programs) + 1
            self._programs[listed] = compile_host(wanted, domain="bench", generation=generation, lifted=self._lifted)
        self.vnf.load(self._programs[listed])
