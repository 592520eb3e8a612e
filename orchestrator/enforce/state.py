"""An enforcement point's disk: credentials and last program, for starts without the service.

    credentials.json   who we are: written once at enrolment, after all that proves it, and when epoch or token change
    token.ends         until when our token is valid, where we have no certificate
    credentials.old    who we were, while we enrol again: it is taken back where that is refused
    identity.pem       our key and our certificate, in one file so that they always belong together
    pending.key        the key that a certificate was asked for last: who asks again asks with the same key
    authority.pem      the authority that signed it: switches are believed by it, and the service where a token said so
    hosts.json         the domain's hosts
    refused.json       switches whose certificates were revoked
    program            a program, in its wire form, with a checksum behind it
    deltas             what came after it: one such delta after the other, each behind its length (4 bytes, big-endian)

Every file is for its owner alone and is replaced whole: written beside, flushed to the disk, renamed. So after a crash
at any moment there is the old file or the new one. Only deltas are appended, so that remembering one changed rule costs
as little as the rule; a delta that was cut off, or does not follow, ends the replay, and one that is damaged before
others makes all of it worthless. Unreadable files are treated as missing, except credentials.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from orchestrator.client import Host
from orchestrator.errors import AclflowError, BadInput, Conflict, Missing
from orchestrator.identity.files import write_file
from orchestrator.program.delta import Delta, apply
from orchestrator.program.program import Program
from orchestrator.program.wire import decode_delta, decode_program, encode_delta, encode_program

log = structlog.get_logger()

_SUM_BYTES = 4
LEAST_JOURNAL = 1 << 20
"""Bytes of deltas that may pile up behind a small program; behind a large one, as many as it has itself."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """An enforcement point's credentials for its service."""

    domain: str
    enforcer: int
    token: str
    epoch: int
    name: str = ""
    """The service's name for us; empty where it is our own."""
    pinned: bool = False
    """Whether the service must show a certificate of the authority that we enrolled with, and of no other."""


class StateDir:
    """The directory of one enforcement point. Raises Missing where it cannot be made or written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changing = threading.Lock()
        self._journal_room = 0  # what a predecessor left is not continued: the next program is kept as a whole
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Missing(f"cannot be made: {error.strerror}", place=str(path)) from None

    def hold(self) -> None:
        """Lock the directory for this process.

        Raises Conflict where another one has it, Missing.
        """
        try:
            held = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)  # until this process ends
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another process that runs is who this directory says", place=str(self._path)) from None
        except OSError as error:
            raise Missing(f"cannot be held: {error.strerror}", place=str(self._path)) from None

    def credentials(self) -> Credentials | None:
        """Return the credentials; None before enrolment.

        Raises BadInput when the file is there but says nothing sensible.
        """
        text = self._read_file("credentials.json")
        if text is None:
            return None
        try:
            return Credentials(**json.loads(text))
        except (ValueError, TypeError) as error:
            place = str(self._path / "credentials.json")
            raise BadInput("is damaged: remove it and enrol again with a new token", place=place) from error

    @property
    def identity_file(self) -> Path:
        """Our key and our certificate."""
        return self._path / "identity.pem"

    @property
    def pending_file(self) -> Path:
        """The key that a certificate was asked for."""
        return self._path / "pending.key"

    @property
    def authority_file(self) -> Path:
        """The authority that we enrolled with."""
        return self._path / "authority.pem"

    def check(self) -> None:
        """Raises Missing unless files can be written here now."""
        self.write(".probe", b"probe")
        (self._path / ".probe").unlink(missing_ok=True)

    def keep_credentials(self, credentials: Credentials) -> None:
        """Remember who we are."""
        self.write("credentials.json", json.dumps(asdict(credentials)).encode())
        (self._path / "credentials.old").unlink(missing_ok=True)

    def change_credentials(self, known: Credentials, **changes: Any) -> None:
        """Change some of the credentials on the disk; `known` are ours where there are none.

        A change that came meanwhile stays: epoch and token change in different threads. Raises Missing.
        """
        with self._changing:
            self.keep_credentials(replace(self.credentials() or known, **changes))

    def token_ends(self) -> dt.datetime | None:
        """Until when our token is valid; None where that is not known."""
        text = self._read_file("token.ends")
        try:
            return dt.datetime.fromisoformat(text.decode()) if text else None
        except ValueError as error:
            log.warning("state.damaged", file="token.ends", error=str(error))
            return None

    def keep_token_ends(self, ends: dt.datetime | None) -> None:
        """Remember until when our token is valid. Raises Missing."""
        if ends is not None:
            self.write("token.ends", ends.isoformat().encode())
        else:
            (self._path / "token.ends").unlink(missing_ok=True)

    def forget_who_we_were(self) -> None:
        """Forget credentials and pending key, to enrol again.

        The program stays.
        """
        self.pending_file.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            (self._path / "credentials.json").replace(self._path / "credentials.old")

    def be_who_we_were(self) -> None:
        """Take back the credentials that were forgotten after a refusal, if any."""
        with suppress(FileNotFoundError):
            (self._path / "credentials.old").replace(self._path / "credentials.json")

    def hosts(self) -> tuple[Host, ...]:
        """The hosts of the domain when last asked for."""
        text = self._read_file("hosts.json")
        try:
            return tuple(map(Host.of, json.loads(text))) if text else ()
        except (ValueError, TypeError, KeyError) as error:
            log.warning("state.damaged", file="hosts.json", error=str(error))
            return ()

    def keep_hosts(self, hosts: Iterable[Host]) -> None:
        """Remember the hosts."""
        self.write("hosts.json", json.dumps([host.to_json() for host in hosts]).encode())

    def refused_serials(self) -> frozenset[str]:
        """The serials of switches' certificates that were revoked when last asked for."""
        text = self._read_file("refused.json")
        try:
            return frozenset(map(str, json.loads(text))) if text else frozenset()
        except (ValueError, TypeError) as error:
            log.warning("state.damaged", file="refused.json", error=str(error))
            return frozenset()

    def keep_refused(self, serials: Iterable[str]) -> None:
        """Remember which switches are refused."""
        self.write("refused.json", json.dumps(sorted(serials)).encode())

    def program(self) -> Program | None:
        """Return the last program stored; None where there is none that is whole."""
        try:
            data = self._read_file("program")
            return self._replay_deltas(decode_program(_open_sealed(data))) if data else None
        except AclflowError as error:
            log.warning("state.damaged", file="program", error=str(error))
            return None

    def keep_program(self, program: Program) -> None:
        """Remember a program as a whole."""
        whole = _seal_bytes(encode_program(program))
        self.write("program", whole)
        (self._path / "deltas").unlink(missing_ok=True)
        self._journal_room = max(LEAST_JOURNAL, len(whole))

    @property
    def has_program(self) -> bool:
        """Whether there is something where a program is kept, sound or not."""
        return (self._path / "program").exists()

    def drop_program(self) -> None:
        """Forget the program.

        It needs no room, so it can be done on a full disk. Raises Missing.
        """
        for name in ("program", "deltas"):
            try:
                (self._path / name).unlink(missing_ok=True)
            except OSError as error:
                raise Missing(f"cannot be removed: {error.strerror}", place=str(self._path / name)) from None

    def keep_deltas(self, deltas: Iterable[Delta], *, flush: bool = True) -> bool:
        """Append deltas to the stored program.

        False, and nothing is done, when it is time for a whole one.

        Without `flush` it outlives this process, but not the machine before `flush_deltas`. Raises Missing where the
        disk does not take it; from then on it is time for a whole one.
        """
        frames = [_seal_bytes(encode_delta(delta)) for delta in deltas]
        added = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        if len(added) > self._journal_room:
            return False
        try:
            with os.fdopen(os.open(self._path / "deltas", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
                file.write(added)
                if flush:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            self._journal_room = 0  # half a delta may stand there: nothing must follow it
            raise Missing(f"cannot be written: {error.strerror}", place=str(self._path / "deltas")) from None
        self._journal_room -= len(added)
        return True

    def flush_deltas(self) -> None:
        """Have what was remembered on the disk itself. Raises Missing."""
        try:
            with (self._path / "deltas").open("rb") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            return  # a whole program took their place
        except OSError as error:
            raise Missing(f"cannot be written: {error.strerror}", place=str(self._path / "deltas")) from None

    def _replay_deltas(self, program: Program) -> Program:
        """Return a program after the stored deltas.

        The last may be cut off, as by a loss of power. Raises BadInput for one that is damaged before others: then what
        was in force is not known any more.
        """
        journal = self._read_file("deltas") or b""
        at = 0
        while at < len(journal):
            behind = at + 4 + int.from_bytes(journal[at : at + 4], "big")
            try:
                delta = decode_delta(_open_sealed(journal[at + 4 : behind]))
            except BadInput as error:
                if behind < len(journal) and any(journal[at:]):
                    raise
                log.warning("state.cut_off", file="deltas", error=str(error), generation=program.generation)
                break
            try:
                program = apply(program, delta) if _is_behind(program, delta) else program
            except AclflowError as error:
                log.warning("state.damaged", file="deltas", error=str(error), generation=program.generation)
                break
            at = behind
        return program

    def _read_file(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Missing(f"cannot be read: {error.strerror}", place=str(self._path / name)) from None

    def write(self, name: str, data: bytes) -> None:
        write_file(self._path / name, data, 0o600)


def _seal_bytes(data: bytes) -> bytes:
    """Append a checksum to bytes.

    A digest is of rows, and not of a generation.
    """
    return data + zlib.crc32(data).to_bytes(_SUM_BYTES, "big")


def _open_sealed(sealed: bytes) -> bytes:
    """The bytes without their checksum. Raises BadInput where they are not what was written."""
    data = sealed[:-_SUM_BYTES]
    if _seal_bytes(data) != sealed:
        raise BadInput("the checksum is not that of what was written")
    return data


def _is_behind(program: Program, delta: Delta) -> bool:
    """Return whether a delta was stored after a program.

    It may have been stored before the program was written whole: a generation may come to another program than before.
    """
    if delta.generation == program.generation:
        return delta.base == program.digest
    return delta.generation > program.generation
