"""The service's own certificate, renewed by its authority before it ends.

It is made anew when its names change, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from orchestrator.errors import AclflowError
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.files import AuthorityDir, read_certificate, read_key, write_file, write_key
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key

RENEWED_AFTER = MACHINE_LASTS * 2 / 3


def ensure(place: AuthorityDir, authority: Authority, names: Sequence[str], now: dt.datetime) -> bool:
    """Make sure the service has a certificate for these names; return whether it is new.

    Raises BadInput for what is no name of a host, Missing where it cannot be kept.
    """
    if _is_good(place, authority, names, now):
        return False
    key = new_key()
    subject = Subject(Usage.SERVICE, "service", names[0] if names else "service")
    issued = authority.issue(subject, key.public_key(), now, MACHINE_LASTS, hosts=names)
    write_key(place.service_key, key)  # between the two files nobody finds a pair: then this is done again
    write_file(place.service_certificate, issued.pem.encode(), 0o644)
    return True


def _is_good(place: AuthorityDir, authority: Authority, names: Sequence[str], now: dt.datetime) -> bool:
    try:
        held = read_certificate(place.service_certificate)
        key = read_key(place.service_key)
        held.verify_directly_issued_by(authority.certificate)
    except (AclflowError, ValueError, TypeError, InvalidSignature):
        return False
    said = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = {str(each.value) for each in said if not isinstance(each, x509.UniformResourceIdentifier)}
    renewed_at = held.not_valid_after_utc - (MACHINE_LASTS - RENEWED_AFTER)
    return held.public_key() == key.public_key() and hosts == set(names) and now < renewed_at
