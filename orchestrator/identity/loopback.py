"""Addresses of this machine itself: nobody reads on the way what is sent there."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
