"""Explain failures of TLS, with what to do about them."""

from __future__ import annotations

import datetime as dt
import ssl

from orchestrator.errors import AclflowError, Unauthenticated, Unreachable

_NOT_YET, _ENDED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's numbers (X509_V_ERR_...)."""


def tls_fault(url: str, error: ssl.SSLError) -> AclflowError:
    """Unauthenticated where the service does not take our certificate, Unreachable for everything else: whoever does
    answer may not be the service, and the service may come back."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"who answers at {url} is not the service that this machine knows: {_doubt(error)}")
    words = (error.reason or "").lower()
    if "alert" in words and ("certificate" in words or "unknown_ca" in words):
        said = words.rpartition("alert_")[2].replace("_", " ")
        return Unauthenticated(
            f"the service at {url} does not take this machine's certificate ({said}): enrol again with a new token"
        )
    return Unreachable(f"the service at {url} does not speak TLS with us: {words.replace('_', ' ') or error}")


def _doubt(error: ssl.SSLCertVerificationError) -> str:
    match error.verify_code:
        case code if code in (_NOT_YET, _ENDED):
            when = "has ended" if code == _ENDED else "is not valid yet"
            return f"its certificate {when}; this machine's clock says {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
        case code if code in (_OTHER_HOST, _OTHER_ADDRESS):
            return f"its certificate is for others ({error.verify_message}): see the service's --tls-name"
        case _:
            return (
                f"its certificate is not of the authority that is believed here ({error.verify_message}); if the "
                "service's authority was rolled over while this machine was away, enrol it again with a new token"
            )
