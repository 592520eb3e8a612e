"""Back a service up and restore it: its store and its certificate authority.

The store is where the settings say.

    store ──▶ gzip of lines, with a digest ──▶ signed by the authority's key ──▶ encrypted for recipients ──▶ file

The authority's key is everybody, so it is not in a backup unless that is asked for: keep a copy of its folder apart.
Without that key a service that was put back is believed by no machine, and every one has to enrol anew. A backup that
the authority signed is known to be this service's. Where an authority is known, a restore takes no other backup unless
it is told to; what it cannot verify it says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from orchestrator.errors import BadInput, Conflict
from orchestrator.identity.agefile import Sealing, is_sealed, read_identities, read_recipient, unseal_stream
from orchestrator.identity.authority import Authority, fingerprint_of
from orchestrator.identity.files import AuthorityDir, encoded_key, read_certificate
from orchestrator.settings import Settings
from orchestrator.statedir import alone
from orchestrator.store.backups.backup import (
    AuthorityFiles,
    Backup,
    Contents,
    Progress,
    Signature,
    back_up,
    note_backup,
    open_backup,
)
from orchestrator.store.backups.restore import Restored, restore

_ABOUT = b"aclflow backup\n"
"""The text before a digest that is signed: the key signs other things as well."""


@dataclass(frozen=True, slots=True)
class Written:
    """A written backup: its content, and how it is kept from others."""

    contents: Contents
    is_signed: bool
    recipients: int
    is_noted: bool
    """Whether the store itself says from now on when it was backed up."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """The result of a restore.

    `unverified` says what could not be known of the backup, a sentence each.
    """

    restored: Restored
    unverified: tuple[str, ...]


def back_up_service(
    settings: Settings,
    file: Path,
    *,
    authority: bool,
    recipients: Sequence[str] = (),
    now: dt.datetime,
    progress: Progress,
) -> Written:
    """Write a backup; the service may be running.

    `authority`: with the key of the authority, where there is one.

    `recipients` (``age1...``) are those who can open it, besides those of the settings; none: everybody. Raises what
    `back_up` raises, and BadInput for what is no recipient and where the authority's files are damaged or readable to
    others.
    """
    named = [*recipients, *settings.backup_recipients.replace(",", " ").split()]
    keys = [_read_named_recipient(each) for each in dict.fromkeys(named)]
    place = AuthorityDir(settings.authority_dir)
    found = place.load() if place.exists else None
    kept = AuthorityFiles(encoded_key(found.key).decode(), found.pem) if found is not None and authority else None
    contents = back_up(
        settings.database_url,
        file,
        program=version("aclflow"),
        made=now,
        authority=kept,
        progress=progress,
        wrap=partial(_seal_stream, keys=keys),
        sign=partial(_sign_digest, authority=found),
    )
    return Written(contents, found is not None, len(keys), note_backup(settings.database_url, now))


def restore_service(
    settings: Settings,
    file: Path,
    *,
    replace: bool,
    identity: Path | None = None,
    signed_by: Path | None = None,
    unsigned: bool = False,
    now: dt.datetime,
    progress: Progress,
) -> PutBack:
    """Restore a backup: the store, then the authority.

    If it is cut off between the two, it is repeated with `replace`.

    `identity` is the file with the key that opens it, `signed_by` a certificate of the authority that must have signed
    it. `unsigned` takes a backup that no authority known here has signed. Raises what `restore` raises, BadInput for a
    signature that is wrong, or missing where an authority is known, and Conflict while a service has the store or where
    there is another authority (unless it is to be replaced).
    """
    place = AuthorityDir(settings.authority_dir)
    identities = read_identities(identity) if identity is not None else ()
    with alone(settings), open_backup(file, partial(_open_sealed, identities=identities)) as backup:
        unverified = _list_unverified(backup, settings, signed_by, unsigned=unsigned)
        authority = backup.contents.authority
        if authority is not None and not replace:
            _check_same(place, authority)
        done = restore(settings.database_url, backup, replace=replace, now=now, progress=progress)
        if authority is not None:
            place.keep(authority.key.encode(), authority.certificate.encode())
    return PutBack(done, unverified)


def _check_same(place: AuthorityDir, authority: AuthorityFiles) -> None:
    if place.exists and place.load().pem != authority.certificate:
        raise Conflict("there is another authority already: say --yes to lose it", place=str(place.path))


# ---------------------------------------------------------------------------------------------------- encryption


def _read_named_recipient(text: str) -> X25519PublicKey:
    try:
        return read_recipient(text)
    except BadInput as error:
        raise BadInput(f"'{text[:80]}': {error.reason}", place="recipient") from None


def _seal_stream(raw: BinaryIO, keys: Sequence[X25519PublicKey]) -> BinaryIO:
    return cast("BinaryIO", Sealing(raw, keys)) if keys else raw


def _open_sealed(raw: BinaryIO, identities: Sequence[X25519PrivateKey]) -> BinaryIO:
    if not is_sealed(raw):
        return raw
    if not identities:
        raise BadInput("the backup is encrypted: name the file with your key (--identity)")
    return unseal_stream(raw, identities)


# ----------------------------------------------------------------------------------------------------- signature


def _sign_digest(digest: bytes, authority: Authority | None) -> Signature | None:
    if authority is None:
        return None
    signature = authority.key.sign(_ABOUT + digest, ec.ECDSA(hashes.SHA256()))
    return Signature(authority.fingerprint.hex(), signature)


def _list_unverified(backup: Backup, settings: Settings, signed_by: Path | None, *, unsigned: bool) -> tuple[str, ...]:
    """Return what cannot be verified of a backup.

    Raises BadInput where what was asked for, or what is claimed, is not so.
    """
    signature = backup.signature
    known = _known_authorities(settings, signed_by)
    must_be_known = bool(known) and (signed_by is not None or not unsigned)
    if signature is None:
        if must_be_known:
            raise BadInput(f"the backup is not signed{_say_way_out(signed_by)}")
        return ("it is not signed: nothing shows who made it",)
    certificate = next((each for each in known if fingerprint_of(each).hex() == signature.signer), None)
    if certificate is None:
        if must_be_known:
            raise BadInput(f"the backup is signed by another authority ({signature.signer}){_say_way_out(signed_by)}")
        return (
            f"it is signed by the authority {signature.signer}, which this machine does not know: nothing shows who "
            "made it (--signed-by names a certificate to hold it to)",
        )
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise BadInput("the authority's certificate bears no key that signs backups")
        key.verify(signature.value, _ABOUT + backup.digest, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise BadInput("the backup was changed after it was signed, or forged") from None
    return ()


def _say_way_out(signed_by: Path | None) -> str:
    """Return what may be done about a backup that nothing shows the maker of."""
    if signed_by is not None:
        return ""
    return (
        ", and this machine knows an authority: if it is of an earlier one, name its certificate (--signed-by); "
        "if you know who made it, and who had it since, say --unsigned"
    )


def _known_authorities(settings: Settings, signed_by: Path | None) -> list[x509.Certificate]:
    """Return the authorities that may have signed: the named one, or those believed here."""
    if signed_by is not None:
        return [read_certificate(signed_by)]
    place = AuthorityDir(settings.authority_dir)
    paths = [
        path
        for path in (place.certificate, place.former_certificate, settings.authority)
        if path is not None and path.exists()
    ]
    return [read_certificate(path) for path in paths]
