"""Who reaches whom: asked from outside, and typed at instances."""

from __future__ import annotations

import socket

from patience import until
from twohosts.addresses import DOMAIN, OUTSIDE
from twohosts.cloud import Cloud
from twohosts.example import Instance

from orchestrator.policy.model import Endpoint

LONG_S = 600.0
"""An instance boots without hardware support, on a machine that may do other things."""
_HEADERS = 28
"""Bytes of an echo request before what it carries."""
_SILENT = ("timed out", "No route to host", "unreachable")
_FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=float(sys.argv[2])).read())"


def fetches(cloud: Cloud, address: str, port: int = 80, patience_s: float = 2.0) -> bool:
    """Whether somebody outside gets the page of an instance."""
    url = f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"
    return "page" in cloud.run_in(OUTSIDE, "/usr/bin/python3", "-c", _FETCH, url, str(patience_s)).stdout


def typed(cloud: Cloud, instance: Instance, command: str) -> str:
    """What a command prints in an instance."""
    with cloud.terminal(instance.host, instance.server.instance_name) as terminal:
        return terminal.run(command)


def ask(cloud: Cloud, instance: Instance, address: str, port: int = 80) -> str:
    """What an instance hears from a web server; the last line is the page, or why there is none."""
    request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {port}"
    return (typed(cloud, instance, request).splitlines() or [""])[-1]


def hears(cloud: Cloud, instance: Instance, said: str, address: str, port: int = 80) -> None:
    """Wait until an instance gets a page that is open to it."""
    until(lambda: ask(cloud, instance, address, port) == said, what=lambda: (instance.name, address, port))


def is_shut_out(cloud: Cloud, instance: Instance, address: str, port: int = 80) -> bool:
    """Whether nothing answers an instance, not even with a refusal."""
    return ask(cloud, instance, address, port) == "nc: timed out"


def answers(cloud: Cloud, instance: Instance, address: str, port: int) -> bool:
    """Whether an address answers an instance, with a refusal at least; routers may say that it is unreachable."""
    said = ask(cloud, instance, address, port)
    return not any(each in said for each in _SILENT)


def endpoints(cloud: Cloud) -> dict[str, Endpoint]:
    """The endpoints that aclflow's service knows, by name."""
    with cloud.control.client() as client:
        return {each.name: each for each in client.domains.read_endpoints(DOMAIN)}


def tap_of(instance: Instance) -> str:
    """The interface by which an instance is plugged into its host's switch."""
    return f"tap{instance.project.port(instance.server).id}"[:14]


def open_for_pings() -> socket.socket:
    """A socket that hears the ICMP messages which reach its namespace."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    opened.settimeout(60.0)
    return opened


def pings_of(heard: socket.socket, address: str, last: int) -> set[int]:
    """How many bytes the pings of an address carried, up to one with so many as `last`."""
    sizes: set[int] = set()
    while last not in sizes:
        packet, (sender, _) = heard.recvfrom(2048)
        if sender == address:
            sizes.add(len(packet) - _HEADERS)
    return sizes
