"""TLS contexts: whom the service believes, and whom its clients do.

Sessions are not resumed: what costs is setting a connection up, and connections stay. Nobody is asked for the common
name of a certificate where names of hosts are compared: it is for people to read.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

from orchestrator.errors import BadInput, Missing


def service_context(certificate: Path, key: Path, authority: str) -> ssl.SSLContext:
    """Return the service's context: callers may show a certificate of our authority (PEM).

    Raises Missing for files that cannot be used.
    """
    context = server_context(certificate, key)
    context.load_verify_locations(cadata=authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.num_tickets = 0
    return context


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the console's context: callers show no certificate.

    Raises Missing for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_chain(context, certificate, key)
    return context


def client_context(authority: str | None) -> ssl.SSLContext:
    """Return a client's context that trusts one authority (PEM) or the machine's.

    Raises BadInput.
    """
    try:
        context = ssl.create_default_context(cadata=authority)
    except ssl.SSLError:
        raise BadInput("not a certificate in PEM", place="authority") from None
    context.hostname_checks_common_name = False
    return context


def bare_context() -> ssl.SSLContext:
    """Return a context without trust.

    It is for asking for the authority's certificate, and for nothing secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Show this certificate on every connection from now on. Raises Missing."""
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise Missing(f"the certificate or its key cannot be used: {error}", place=str(certificate)) from None


def is_loopback(host: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
