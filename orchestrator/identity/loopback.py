"""Which addresses are this machine's own: what is sent to them is read by nobody on the way."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
