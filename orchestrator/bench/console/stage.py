"""The measured set-up: a service with a long list and moving counters, and a console.

Both are processes of their own, in a directory that goes when the stage does; nothing of it needs root. The reports of
a switch's controller are made here, once a second: a part of all rules has decided packets since.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client, Host
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import Unreachable
from orchestrator.lab.processes import free_port, wait_until_up
from orchestrator.lab.service import COMMAND, administrators_token
from orchestrator.policy.addresses import Prefix
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import U64, sum_rows
from orchestrator.program.program import Program, Tier

DOMAIN, TENANT, HOST = "bench", "lab", "host1"
_PATIENCE_S = 60.0
_REPORT_S = 1.0
_MOVED = 0.05
"""Which part of all rules decides packets between two reports."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running processes: addresses, process ids, and an administrator's token."""

    url: str
    console: str
    token: str
    service_pid: int
    console_pid: int

    def client(self) -> Client:
        """An administrator's client; close it when done."""
        return Client(self.url, self.token)


@contextmanager
def stage(rules: int) -> Iterator[Stage]:
    """Run a stage whose tenant has `rules` rules, during the block.

    Raises Unreachable.
    """
    with TemporaryDirectory(prefix="aclflow-console-") as folder, ExitStack() as stack:
        token = administrators_token(Path(folder), "the suite")
        url, console = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        service = stack.enter_context(_running(["serve", "--port", url.rpartition(":")[2]], Path(folder)))
        with Client(url, token) as client:
            wait_until_up(service, client.is_ready)
            _fill_domain(client, rules)
        arguments = ["console", "--url", url, "--port", console.rpartition(":")[2]]
        shown = stack.enter_context(_running(arguments, Path(folder)))
        wait_until_up(shown, lambda: _is_listening(int(console.rpartition(":")[2])))
        stack.enter_context(_counting(url, token))
        yield Stage(url, console, token, service.pid, shown.pid)


def _fill_domain(client: Client, rules: int) -> None:
    client.domains.create(DOMAIN)
    client.tenants.create(TENANT, domain=DOMAIN, prefixes=[Prefix.parse("0.0.0.0/0"), Prefix.parse("::/0")])
    client.domains.add_host(DOMAIN, Host(HOST, 0xB1, "up0"))
    client.acls.put(TENANT, synthetic(rules))


@contextmanager
def _running(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of aclflow's processes; its words go to a file of the folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
    ours = {"ACLFLOW_STATE_DIR": str(folder), "ACLFLOW_PLAIN_HTTP": "yes", "ACLFLOW_AUDIT_SYSLOG": "none"}
    settings = {**own, **ours}
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, *arguments], env=settings, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _counting(url: str, token: str) -> Iterator[None]:
    """Report once a second what the rules decided, during the block."""
    with Client(url, token) as admin:
        enrolment = admin.enrolment.enrol(admin.enrolment.invite(DOMAIN), name="controller-1", kind="openflow")
    stop = threading.Event()
    with Client(url, enrolment.token) as enforcer:
        enforcer.points.begin_epoch(DOMAIN, enrolment.enforcer)
        reporter = threading.Thread(target=_report_counts, args=(enforcer, enrolment.enforcer, stop), daemon=True)
        reporter.start()
        try:
            yield
        finally:
            stop.set()
            reporter.join()


def _report_counts(enforcer: Client, number: int, stop: threading.Event) -> None:
    cookies = _cookies(enforcer)
    dice = np.random.default_rng(1)
    sequence = enforcer.points.claim_counts(DOMAIN, number, HOST).sequence
    while not stop.wait(_REPORT_S):
        moved = np.sort(dice.choice(cookies, max(1, int(len(cookies) * _MOVED)), replace=False))
        packets = dice.integers(1, 100, len(moved))
        now = time.monotonic_ns() // 1000
        sequence += 1
        counts = sum_rows(moved, packets, packets * 100, packets * 0, packets * 0 + now)
        frame = CountFrame(HOST, sequence, counts, (), b"chunk", whole=False)
        enforcer.points.report_counts(DOMAIN, number, encode_frames([frame], now))


def _cookies(enforcer: Client) -> U64:
    """The cookies of every rule of the list."""
    program = enforcer.points.watch_program(DOMAIN)
    if not isinstance(program, Program):
        raise Unreachable("the service gives no program")
    rule = Cookie(Tier.HOST, Kind.RULE).pack() >> 48
    found = {row.cookie for row in program.flows.rows() if row.table == Table.INGRESS and row.cookie >> 48 == rule}
    return np.array(sorted(found), np.uint64)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
