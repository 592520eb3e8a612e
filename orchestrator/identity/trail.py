"""The audit trail: the key that signs its anchors, and verification.

The key is Ed25519, of this service alone:

    STATE_DIR/audit/key.pem   the private key, for the service's user alone
    STATE_DIR/audit/key.pub   the public key in hexadecimal, a line: what `aclflow audit verify --key` is given

It is no key of the authority: services without TLS have none, of several services only one has it, and a key that says
who machines are should say nothing else. A copy of the public key that is kept elsewhere makes an anchor believable.

Verification reads each chain's entries, and anchors kept outside the database:

    changed     an entry's hash is not that of its words after the entry before it
    deleted     numbers are missing between two entries
    reordered   an entry stands before one with a lower number
    truncated   an anchor names an entry that is not there any more
    rewritten   an anchor names another hash than the entry has: all up to it may have been written anew

The oldest entries of a chain may be missing where an anchor vouches for the last of them, and an entry `audit.pruned`
says that entries as old as that anchor were taken out. An anchor must vouch for that entry, too: whoever has the
database can add entries to a chain whose process has ended. Entries after the newest anchor of a chain could be cut off
without a trace.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orchestrator.errors import BadInput, Missing
from orchestrator.wire.audit import AuditAnchor, AuditEntry, genesis, signed_bytes

PRUNED = "audit.pruned"
"""The kind of entry that says up to which time older ones were taken out."""


@dataclass(frozen=True, slots=True)
class AuditKey:
    """A key that signs anchors."""

    private: Ed25519PrivateKey

    @classmethod
    def open(cls, folder: Path) -> AuditKey:
        """Return the key of a folder, made there if there is none.

        Of two processes one makes it.

        Raises Missing, BadInput.
        """
        file = folder / "key.pem"
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                made = Ed25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
                _put(file, made, 0o600)
            key = cls(_read(file.read_bytes(), file))
            _put(folder / "key.pub", f"{key.public}\n".encode(), 0o644)
        except OSError as error:
            raise Missing(f"the key of the audit trail cannot be kept: {error.strerror}", place=str(file)) from None
        return key

    @property
    def public(self) -> str:
        """The public key in hexadecimal."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return self.private.public_key().public_bytes(*raw).hex()

    def anchor(self, chain: str, number: int, hashed: str, time: dt.datetime) -> AuditAnchor:
        """Return a signed anchor."""
        signature = self.private.sign(signed_bytes(chain, number, hashed, time)).hex()
        return AuditAnchor(chain=chain, number=number, hash=hashed, time=time, key=self.public, signature=signature)


def is_signed(anchor: AuditAnchor) -> bool:
    """Return whether an anchor's signature is by the key that it names."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(anchor.key))
        key.verify(bytes.fromhex(anchor.signature), anchor.signed_bytes())
    except (InvalidSignature, ValueError):
        return False
    return True


def _put(file: Path, data: bytes, mode: int) -> None:
    """Make a file as a whole, unless there is one."""
    descriptor, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileExistsError):
            os.link(beside, file)
    finally:
        os.unlink(beside)


def _read(pem: bytes, file: Path) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput("this is no Ed25519 key in PEM", place=str(file))
    return key


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with a chain, and at which of its entries."""

    chain: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The result: entries checked, faults, and each chain's last anchored entry."""

    entries: int
    chains: int
    anchors: int
    faults: tuple[Fault, ...]
    keys: frozenset[str]
    """Keys of anchors that are signed, and that nobody has said to be right."""
    unanchored: int
    """Entries after the newest anchor of their chain: they could be cut off without a trace."""


@dataclass(slots=True)
class _ChainState:
    """A chain as far as it was read."""

    first: int
    before: AuditAnchor | None
    """The anchor of the entry before the first; None: there is none, or the chain is whole."""
    number: int = 0
    hash: bytes = b""


@dataclass(slots=True)
class Verifier:
    """Reads a trail once, from its oldest entry on.

    `keys` are the public keys to believe; none: any.
    """

    anchors: Iterable[AuditAnchor]
    keys: Collection[str] = ()
    _faults: list[Fault] = field(default_factory=list)
    _anchored: dict[str, dict[int, list[AuditAnchor]]] = field(default_factory=dict)
    _chains: dict[str, _ChainState] = field(default_factory=dict)
    _pruned: dt.datetime | None = None
    _unknown: set[str] = field(default_factory=set)
    _entries: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        for anchor in self.anchors:
            self._count += 1
            if not is_signed(anchor):
                self._fault(anchor.chain, anchor.number, "an anchor of it has a wrong signature")
            elif self.keys and anchor.key not in self.keys:
                self._fault(anchor.chain, anchor.number, "an anchor of it is signed by a key that is not believed")
            else:
                self._unknown.update([] if self.keys else [anchor.key])
                self._anchored.setdefault(anchor.chain, {}).setdefault(anchor.number, []).append(anchor)

    def read(self, entry: AuditEntry) -> None:
        """Take the next entry."""
        self._entries += 1
        chain = self._chains.get(entry.chain)
        if chain is None:
            chain = self._chains[entry.chain] = self._begin_chain(entry)
        elif entry.number <= chain.number:
            self._fault(entry.chain, entry.number, f"stands after entry {chain.number}: moved, or there twice")
            return
        elif entry.number > chain.number + 1:
            self._fault(entry.chain, chain.number + 1, f"is missing, up to entry {entry.number - 1}")
            chain.hash = b""
        is_linked = not chain.hash or entry.link(chain.hash).hex() == entry.hash
        if not is_linked:
            self._fault(entry.chain, entry.number, "was changed: its hash is another one")
        elif entry.kind == PRUNED and chain.hash and entry.number <= max(self._anchored.get(entry.chain, (0,))):
            self._take_pruned(entry)
        chain.number, chain.hash = entry.number, bytes.fromhex(entry.hash)
        for anchor in self._anchored.get(entry.chain, {}).get(entry.number, ()):
            if anchor.hash != entry.hash:
                when = anchor.time.isoformat()
                self._fault(entry.chain, entry.number, f"is not what was anchored at {when}: it was written anew")

    def result(self) -> Verified:
        """Return what was found, when all entries were read."""
        unanchored = 0
        for name, chain in self._chains.items():
            if chain.first > 1:
                self._check_beginning(name, chain.first, chain.before)
            newest = max(self._anchored.get(name, {0: []}))
            unanchored += max(0, chain.number - max(newest, chain.first - 1))
        for name, numbers in self._anchored.items():
            self._check_end(name, numbers)
        return Verified(
            self._entries, len(self._chains), self._count, tuple(self._faults), frozenset(self._unknown), unanchored
        )

    def _begin_chain(self, entry: AuditEntry) -> _ChainState:
        if entry.number == 1:
            return _ChainState(1, None, 0, genesis(entry.chain))
        anchors = self._anchored.get(entry.chain, {}).get(entry.number - 1, [])
        before = anchors[0] if anchors else None
        return _ChainState(
            entry.number, before, entry.number - 1, bytes.fromhex(before.hash) if before is not None else b""
        )

    def _take_pruned(self, entry: AuditEntry) -> None:
        try:
            before = dt.datetime.fromisoformat(str(entry.detail.get("before")))
        except ValueError:
            return
        self._pruned = before if self._pruned is None else max(before, self._pruned)

    def _check_beginning(self, chain: str, first: int, before: AuditAnchor | None) -> None:
        """Whether the entries before a chain's first were taken out because they were old."""
        missing = f"is missing, up to entry {first - 1}"
        if before is None:
            self._fault(chain, 1, f"{missing}: no anchor vouches for what stood before entry {first}")
        elif self._pruned is None or before.time > self._pruned:
            self._fault(chain, 1, f"{missing}: nothing says that so young entries were taken out")

    def _check_end(self, chain: str, numbers: dict[int, list[AuditAnchor]]) -> None:
        """Whether the newest entry that was anchored is there."""
        last, state = max(numbers), self._chains.get(chain)
        when = numbers[last][0].time
        if state is None:
            if self._pruned is None or when > self._pruned:
                self._fault(chain, 1, f"is missing, up to entry {last}, anchored at {when.isoformat()}: all of it")
        elif state.number < last:
            self._fault(
                chain,
                state.number + 1,
                f"is missing, up to entry {last}, anchored at {when.isoformat()}: the end is cut",
            )

    def _fault(self, chain: str, number: int, reason: str) -> None:
        """Note what is wrong with an entry of a chain."""
        self._faults.append(Fault(chain, number, reason))
