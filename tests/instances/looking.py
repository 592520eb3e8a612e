"""Who reaches whom: asked from outside, and typed at instances."""

from __future__ import annotations

from patience import until
from twohosts.addresses import OUTSIDE
from twohosts.cloud import Cloud
from twohosts.example import Instance

LONG_S = 600.0
"""An instance boots without hardware support, on a machine that may do other things."""
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
