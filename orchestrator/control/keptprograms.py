"""Programs kept in files, from which a start takes what did not change since.

    at rest   ── save ──▶ STATE_DIR/programs/NAME    a domain's program, and a mark for each of its tenants
    a start   ◀─ restore ── tenants with the same mark: their rows as they are; all others are compiled, and proven

A mark names all that a tenant's rows are made from: its number, the version of its list with the generation and time at
which that came (which no restored store gives out again), its endpoints with their symbols, and what holds in the whole
domain. The rows that belong to nobody are compiled and proven at every start. So a program that was kept long ago is as
good as a new one; it only leaves more to be compiled.

A kept program was proven by the service that kept it, with the same code: the file names a digest of all code that has
to do with programs. It has a checksum, and the program's own digest is computed anew. It is in a file of this service
and not in the database: whoever may write to the database can change lists, which everybody sees; a program in it could
differ from its list and nobody would see that.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
import structlog

from orchestrator.compile.pipelines.sites import Sites
from orchestrator.control.publisher import Publisher
from orchestrator.errors import AclflowError, BadInput
from orchestrator.identity.files import write_file
from orchestrator.policy.model import Policy
from orchestrator.program.program import Program
from orchestrator.program.wire import decode_program, encode_program
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_HEAD = b"aclflow program 1\n"
_SUM_BYTES, _LENGTH_BYTES, _MARK_BYTES = 32, 8, 16
_ROOMS = ("compile", "placement", "policy", "program", "store/acls")
"""The folders whose code decides what a program is."""
_LOOK_S = 5.0
_REST_S = 30.0
"""So long a domain must not have changed before its program is kept."""
_SHARE = 100
"""Keeping a program takes at most one second in so many."""

Marks = Mapping[str, str]
"""By tenant, what its rows are made from."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A kept program, and the tenants whose rows in it still hold."""

    program: Program
    same: Set[str]


@cache
def digest_code() -> str:
    """Return a digest of the code that makes programs.

    Versions of Python and NumPy are part of it.
    """
    root = Path(__file__).parents[1]
    files = [file for room in _ROOMS for file in (root / room).rglob("*") if file.suffix in (".py", ".so")]
    found = hashlib.blake2b(f"{sys.version} {np.__version__}".encode(), digest_size=_MARK_BYTES)
    for file in sorted(files):
        found.update(f"{file.relative_to(root)} {file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()


def marks_of(policy: Policy, lists: Mapping[str, str]) -> Marks:
    """Return the marks of a policy's tenants, whose lists are named by `lists` (`Domains.list_marks`)."""
    sites = Sites.of(policy)
    common = f"{policy.return_traffic} {policy.path_mtu_rate} {policy.log_limit}"
    marks = {}
    for tenant in policy.tenants:
        endpoints = sites.of_tenant(tenant.id)
        symbols = [sites.symbols[each.port] for each in endpoints]
        text = f"{common} {tenant.number} {lists[tenant.id]} {endpoints} {symbols}"
        marks[str(tenant.id)] = hashlib.blake2b(text.encode(), digest_size=_MARK_BYTES).hexdigest()
    return marks


class Snapshots(Protocol):
    """Where policies are read: the store."""

    def read(self) -> AbstractContextManager[Unit]:
        """A unit of work that sees one state of the store, and changes nothing."""
        ...


class KeptPrograms:
    """The files of kept programs. Safe between threads."""

    def __init__(self, store: Snapshots, folder: Path, *, refused: Callable[[], None], code: str | None = None) -> None:
        self._store = store
        self._folder = folder
        self._refused = refused
        self._code = code or digest_code()

    def save(self, program: Program) -> bool:
        """Keep a domain's program; return whether that was done.

        It is not where the program is not that of the newest policy, or has lifted rules. Raises NotFound and Missing.
        """
        with self._store.read() as unit:
            snapshot = unit.domains.policy(program.domain)
            lists = unit.domains.list_marks(program.domain)
        if snapshot.generation != program.generation or snapshot.lifted:
            return False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        head = orjson.dumps(
            {"code": self._code, "domain": program.domain, "tenants": dict(marks_of(snapshot.policy, lists))}
        )
        body = len(head).to_bytes(_LENGTH_BYTES, "big") + head + encode_program(program)
        write_file(self._name_file(program.domain), _HEAD + _checksum(body) + body, 0o600)
        return True

    def restore(self, domain: str, snapshot: PolicySnapshot) -> Restored | None:
        """Return a domain's kept program; None where there is none that is of use.

        A file that is damaged is told of and counted.
        """
        if snapshot.lifted:
            return None
        try:
            found = self._read(domain, self._name_file(domain).read_bytes())
        except FileNotFoundError:
            return None
        except (AclflowError, OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            self.refuse(domain, error)
            return None
        if found is None:
            return None
        marks, program = found
        with self._store.read() as unit:
            if unit.domains.get(domain).generation != snapshot.generation:
                return None
            lists = unit.domains.list_marks(domain)
        now = marks_of(snapshot.policy, lists)
        return Restored(program, frozenset(name for name, mark in now.items() if marks.get(name) == mark))

    def drop(self, domain: str) -> None:
        """Remove the file of a domain that is no more."""
        self._name_file(domain).unlink(missing_ok=True)

    def refuse(self, domain: str, error: Exception) -> None:
        """Tell of a kept program that cannot be used."""
        self._refused()
        log.warning("a kept program is not used, the domain is compiled", domain=domain, error=str(error))

    def _read(self, domain: str, data: bytes) -> tuple[Marks, Program] | None:
        """Return what a file holds; None where other code wrote it.

        Raises BadInput, and what a head that is no head raises.
        """
        start = len(_HEAD) + _SUM_BYTES
        body = data[start:]
        if not data.startswith(_HEAD) or data[len(_HEAD) : start] != _checksum(body):
            raise BadInput("the file is damaged", place=str(self._name_file(domain)))
        end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "big")
        head = orjson.loads(body[_LENGTH_BYTES:end])
        if head["code"] != self._code:
            return None
        program = decode_program(body[end:])
        if (head["domain"], program.domain) != (domain, domain):
            raise BadInput(f"the file is of domain '{program.domain}'", place=str(self._name_file(domain)))
        if program.blocks.digest(program.ports) != program.digest:
            raise BadInput("the program's digest is not that of its rows", place=str(self._name_file(domain)))
        return head["tenants"], program

    def _name_file(self, domain: str) -> Path:
        return self._folder / hashlib.blake2b(domain.encode(), digest_size=_MARK_BYTES).hexdigest()


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_SUM_BYTES).digest()


class ProgramKeeper:
    """A thread that keeps the programs of domains at rest."""

    def __init__(
        self, kept: KeptPrograms, publisher: Publisher, *, rest_s: float = _REST_S, look_s: float = _LOOK_S
    ) -> None:
        self._kept = kept
        self._publisher = publisher
        self._rest_s = rest_s
        self._look_s = look_s
        self._seen: dict[str, tuple[int, float]] = {}
        """By domain: a generation, and since when it is the newest."""
        self._saved: dict[str, int] = {}
        self._not_before = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="programs", daemon=True)

    def start(self) -> None:
        """Begin to keep programs."""
        self._thread.start()

    def stop(self) -> None:
        """End after the program that is being written."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._look_s):
            programs = self._publisher.programs()
            for program in programs:
                if self._stopping.is_set():
                    return
                self._look_at_program(program)
            for domain in self._seen.keys() - {program.domain for program in programs}:
                del self._seen[domain]
                self._saved.pop(domain, None)
                self._kept.drop(domain)

    def _look_at_program(self, program: Program) -> None:
        now = time.monotonic()
        generation, since = self._seen.get(program.domain, (-1, now))
        if generation != program.generation:
            self._seen[program.domain] = program.generation, now
        elif not self._publisher.is_proven(program.domain):
            return
        elif self._saved.get(program.domain) != generation and now >= max(since + self._rest_s, self._not_before):
            try:
                if self._kept.save(program):
                    self._saved[program.domain] = generation
            except (AclflowError, OSError) as error:  # it is for the next start only, and a full disk may stop nothing
                log.warning("a program is not kept", domain=program.domain, error=str(error))
            self._not_before = time.monotonic() + _SHARE * (time.monotonic() - now)
