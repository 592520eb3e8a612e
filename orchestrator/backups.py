"""Backing a service up and putting it back: its store and its certificate authority, where its settings say they are.

Without its authority's key a service that was put back would be believed by no machine, and every one of them would
have to enrol by hand. So the key is in the backup unless it is left out, and a backup is to be kept like the key.
"""

from __future__ import annotations

import datetime as dt
from importlib.metadata import version
from pathlib import Path

from orchestrator.bootstrap import alone
from orchestrator.errors import Conflict
from orchestrator.identity.files import AuthorityDir, encoded_key
from orchestrator.settings import Settings
from orchestrator.store.backups.backup import AuthorityFiles, Contents, Progress, back_up, open_backup
from orchestrator.store.backups.restore import Restored, restore


def back_up_service(
    settings: Settings, file: Path, *, authority: bool, now: dt.datetime, progress: Progress
) -> Contents:
    """Write a backup; the service may be running. `authority`: with the certificate authority, where there is one.

    Raises what `back_up` raises, and BadInput where the authority's files are damaged or readable to others.
    """
    found = AuthorityDir(settings.authority_dir)
    kept = None
    if authority and found.exists:
        loaded = found.load()
        kept = AuthorityFiles(encoded_key(loaded.key).decode(), loaded.pem)
    return back_up(settings.database_url, file, program=version("aclflow"), made=now, authority=kept, progress=progress)


def restore_service(settings: Settings, file: Path, *, replace: bool, now: dt.datetime, progress: Progress) -> Restored:
    """Put a backup back: the store, then the authority; cut off between the two, it is repeated with `replace`.

    Raises what `restore` raises, and Conflict while a service has the store or where there is another authority (unless
    it is to be replaced).
    """
    place = AuthorityDir(settings.authority_dir)
    with alone(settings):
        with open_backup(file) as (contents, _):
            authority = contents.authority
        if authority is not None and not replace:
            _check_same(place, authority)
        done = restore(settings.database_url, file, replace=replace, now=now, progress=progress)
        if authority is not None:
            place.keep(authority.key.encode(), authority.certificate.encode())
    return done


def _check_same(place: AuthorityDir, authority: AuthorityFiles) -> None:
    if place.exists and place.load().pem != authority.certificate:
        raise Conflict("there is another authority already: say --yes to lose it", place=str(place.path))
