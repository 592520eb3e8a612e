"""Writers that change rules while services fail, and which of their writes were lost.

A write gives a rule a port above all that the domain's rules have had. So a rule whose port is lower than that of an
acknowledged write says that the write was lost, whatever was written to the rule since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count

from orchestrator.bench.scale.serviceprocesses import WholeService
from orchestrator.bench.scale.services import RULES, make_rule
from orchestrator.client import Client
from orchestrator.errors import TryAgain
from orchestrator.lab.processes import wait_until
from orchestrator.store import open_store

_WRITERS = 4
_PAUSE_S = 0.02
"""Between two writes of a writer."""

Ports = Mapping[str, Mapping[str, int]]
"""The port of each rule, by domain and rule."""


@dataclass(frozen=True, slots=True)
class AcknowledgedWrite:
    """A write that a service acknowledged, sent at `sent_s` of the monotonic clock."""

    domain: str
    rule: str
    port: int
    generation: int
    sent_s: float


def read_ports(url: str, domains: Sequence[str]) -> Ports:
    """Return the ports of all rules of domains, as the database has them."""
    store = open_store(url)
    try:
        with store.read() as unit:
            return {
                name: {rule.id: rule.destination_ports[0].low for rule in unit.acls.current(name).acl.rules}
                for name in domains
            }
    finally:
        store.close()


def count_lost(written: Iterable[AcknowledgedWrite], stored: Ports, held: Mapping[str, int]) -> int:
    """Return how many acknowledged writes are not stored, or not held.

    `held` are the generations that domains' points hold.
    """
    return sum(
        stored[each.domain].get(each.rule, 0) < each.port or held.get(each.domain, 0) < each.generation
        for each in written
    )


class RuleWriters:
    """Threads that change a rule of each domain in turn, at each service in turn.

    A write that a service does not acknowledge is not sent again.
    """

    def __init__(self, services: Sequence[WholeService], token: str, ports: Ports) -> None:
        """Prepare writes to the domains whose rules have these ports."""
        self._services = services
        self._token = token
        self._first = {domain: max(rules.values()) for domain, rules in ports.items()}
        self._stopping = threading.Event()
        self._written: list[AcknowledgedWrite] = []

    @property
    def written(self) -> Sequence[AcknowledgedWrite]:
        """The writes that were acknowledged so far."""
        return tuple(self._written)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Write during the block. Raises what a service refuses other than to be tried again."""
        names = sorted(self._first)
        with ThreadPoolExecutor(_WRITERS) as threads:
            parts = [names[place::_WRITERS] for place in range(min(_WRITERS, len(names)))]
            jobs = [threads.submit(self._write_rules, part) for part in parts]
            try:
                yield
            finally:
                self._stopping.set()
            for job in jobs:
                job.result()

    def wait_for_write(self, domain: str, since_s: float) -> AcknowledgedWrite:
        """Wait for a domain's first acknowledged write that was sent after a time.

        Raises Unreachable where there is none.
        """
        wait_until(lambda: self._find_write(domain, since_s) is not None, f"no write of '{domain}' is acknowledged")
        found = self._find_write(domain, since_s)
        assert found is not None
        return found

    def _find_write(self, domain: str, since_s: float) -> AcknowledgedWrite | None:
        return next((each for each in self.written if each.domain == domain and each.sent_s >= since_s), None)

    def _write_rules(self, names: Sequence[str]) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(each.open_client(self._token)) for each in self._services]
            for number in count():
                if self._stopping.wait(_PAUSE_S):
                    return
                turn, place = divmod(number, len(names))
                client, name = clients[(turn + place) % len(clients)], names[place]
                self._write_rule(client, name, self._first[name] + turn)

    def _write_rule(self, client: Client, name: str, number: int) -> None:
        """Give a domain's rule the port after a number; note it if acknowledged."""
        rule, sent_s = make_rule(number % RULES, number), time.monotonic()
        with suppress(TryAgain):
            generation = client.acls.put_rule(name, rule).generation
            port = rule.destination_ports[0].low
            self._written.append(AcknowledgedWrite(name, rule.id, port, generation, sent_s))
