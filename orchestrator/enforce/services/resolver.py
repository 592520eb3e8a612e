"""A dnsmasq process that forwards names of endpoints to the host's resolvers.

It serves nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.enforce.services.wanted import NAMES_A_SECOND, RESOLVER, HostServices
from orchestrator.errors import Missing

_PROGRAM = "/usr/sbin/dnsmasq"
_UNPRIVILEGED = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+net_bind_service",
    "--ambient-caps=+net_bind_service", "--pdeathsig=KILL",
)  # fmt: skip
"""It reads what tenants send, so it may do nothing but listen; and it ends when we do, however that is."""
_PENDING = 100 * NAMES_A_SECOND
"""Names asked for and not answered yet: one endpoint at its limit, and silent resolvers, do not use them up."""

_CONNECTIONS = 500
"""Connections at once; dnsmasq ends one that is silent after two and a half minutes, and makes 20 by default."""


def command(services: HostServices) -> Iterator[str]:
    """Yield the words of the command that starts dnsmasq.

    It reads no file of the machine but /etc/resolv.conf, if that.
    """
    yield from _UNPRIVILEGED
    yield from (_PROGRAM, "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--pid-file=")
    yield from (f"--listen-address={address}" for address in RESOLVER.values())
    yield from ("--bind-interfaces", "--no-hosts", "--no-dhcp-interface=*", "--cache-size=2000")
    yield from (f"--dns-forward-max={_PENDING}", f"--max-tcp-connections={_CONNECTIONS}")
    if services.servers:
        yield "--no-resolv"
        yield from (f"--server={server}" for server in services.servers)


@dataclass(slots=True)
class Resolver:
    """One dnsmasq, started again whenever it is not there."""

    services: HostServices
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def look(self) -> bool:
        """Start it if it does not run; return whether it did not. Raises Missing."""
        if self._process is not None and self._process.poll() is None:
            return False
        if not Path(_PROGRAM).exists():
            raise Missing("the program 'dnsmasq' is not installed: apt-get install dnsmasq-base")
        try:
            self._process = subprocess.Popen(list(command(self.services)), stdin=subprocess.DEVNULL)
        except OSError as error:
            raise Missing(f"the program 'setpriv' cannot be run: {error.strerror}") from None
        return True

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
