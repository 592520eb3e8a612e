"""The alternatives: conntrackd beside kernel tracking, and a store that firewalls share.

conntrack      the kernel's connection tracking alone, in member 1: what the others add to
ftfw, notrack  conntrackd in members 1 and 2, which tells of connections reliably, or without asking back
redis          packets that open or close wait in NFQUEUE until Redis and two copies of it have the state
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench.benchlab import processor_s
from orchestrator.bench.state_sync.syncworld import World
from orchestrator.bench.traffic.ccompiler import compile_source
from orchestrator.bench.traffic.downloads import Downloads, Web
from orchestrator.errors import Missing
from orchestrator.lab.processes import wait_until

FIREWALLS = (1, 2, 3)
_QUIET_S = 0.3
_REDIS_PORT = 6379
_SOURCE = Path(__file__).with_name("_native") / "store.c"
_TRACKED = """
table inet peers { chain f { type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ct state new tcp flags & (fin | syn | rst | ack) == syn accept
}; }
"""
_QUEUED = """*filter
:FORWARD DROP [0:0]
-A FORWARD -p tcp --tcp-flags SYN,FIN,RST NONE -j ACCEPT
-A FORWARD -p tcp -j NFQUEUE --queue-num 0
COMMIT
"""
_CONNTRACKD = """
Sync {{ Mode {mode} {{ }}
  UDP {{ IPv4_address {own}
    IPv4_Destination_Address {other}
    Port 3780
    Interface {interface}
    SndSocketBuffer 4194304
    RcvSocketBuffer 4194304
    Checksum on
  }}
}}
General {{ HashSize 65536
  HashLimit 262144
  LockFile {folder}/{own}.lock
  UNIX {{ Path {folder}/{own}.ctl }}
  NetlinkBufferSize 8388608
  NetlinkBufferSizeMaxGrowth 16777216
  Filter From Userspace {{ Protocol Accept {{ TCP }} }}
}}
"""


class Peers:
    """The ways of others, in a world of three firewalls that has nothing of ours."""

    def __init__(self, world: World, web: Web, folder: Path) -> None:
        self._world, self._web, self._folder = world, web, folder
        self.ways: Mapping[str, Callable[[], object]] = MappingProxyType(
            {
                "conntrack": partial(self._run_conntrackd, ""),
                "ftfw": partial(self._run_conntrackd, "FTFW"),
                "notrack": partial(self._run_conntrackd, "NOTRACK"),
                "redis": self._run_stores,
            }
        )

    def download(self, way: str, count: int, at_once: int) -> Downloads:
        """Download one way, and count its processes. Raises Missing where its program is not installed."""
        with ExitStack() as stack:
            processes: Sequence[subprocess.Popen[str]] = stack.enter_context(self.ways[way]())  # type: ignore[arg-type]
            before = _sum_run_us(processes)
            found = self._web.download(count, at_once)
            _wait_quiet(processes)
            return replace(found, cpu_us=found.cpu_us + _sum_run_us(processes) - before)

    @contextmanager
    def _run_conntrackd(self, mode: str) -> Iterator[Sequence[subprocess.Popen[str]]]:
        with ExitStack() as stack:
            for number in FIREWALLS[:2]:
                self._world.run(number, "nft", "-f", "-", text=_TRACKED)
                stack.callback(self._world.run, number, "nft", "flush", "ruleset")
            yield [self._start_conntrackd(stack, mode, *ends) for ends in ((1, 2), (2, 1)) if mode]

    def _start_conntrackd(self, stack: ExitStack, mode: str, number: int, other: int) -> subprocess.Popen[str]:
        own, interface = self._world.address(number), f"x{other}"
        settings = self._folder / f"conntrackd-{number}.conf"
        text = _CONNTRACKD.format(
            mode=mode, own=own, other=self._world.address(other), interface=interface, folder=self._folder
        )
        settings.write_text(text)
        process = self._start_member(stack, number, "conntrackd", "-C", str(settings))
        control = self._folder / f"{own}.ctl"
        wait_until(control.exists, "conntrackd does not start")
        stack.callback(control.unlink, missing_ok=True)
        return process

    @contextmanager
    def _run_stores(self) -> Iterator[Sequence[subprocess.Popen[str]]]:
        with ExitStack() as stack:
            processes = [self._start_store(stack, number) for number in FIREWALLS]
            first = self._world.address(1)
            command = ["redis-cli", "-h", first, "WAIT", str(len(FIREWALLS) - 1), "1000"]
            wait_until(lambda: self._world.run(1, *command).strip() == str(len(FIREWALLS) - 1), "Redis has no copies")
            program = compile_source(_SOURCE, self._folder / "store")
            words = [str(program), "0", first, str(_REDIS_PORT), str(len(FIREWALLS) - 1)]
            processes.append(self._start_member(stack, 1, *words))
            if processes[-1].stdout is None or processes[-1].stdout.readline().strip() != "ready":
                raise Missing("the firewall with a store did not start")
            self._world.run(1, "iptables-restore", text=_QUEUED)
            stack.callback(self._world.run, 1, "iptables-restore", text="*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n")
            yield processes

    def _start_store(self, stack: ExitStack, number: int) -> subprocess.Popen[str]:
        address, first = self._world.address(number), self._world.address(FIREWALLS[0])
        words = [
            "redis-server", "--bind", address, "--port", str(_REDIS_PORT), "--protected-mode", "no", "--save", "",
            "--appendonly", "no", "--dir", str(self._folder), "--dbfilename", f"{number}.rdb", "--loglevel", "warning",
            "--repl-diskless-sync-delay", "0",
        ]  # fmt: skip
        if number != FIREWALLS[0]:
            words += ["--replicaof", f"{first} {_REDIS_PORT}"]
        process = self._start_member(stack, number, *words)
        wait_until(lambda: self._is_responding(number, address), "Redis does not answer")
        return process

    def _is_responding(self, number: int, address: str) -> bool:
        command = ["redis-cli", "-h", address, "ping"]
        done = self._world.inside(number, lambda: subprocess.run(command, capture_output=True, text=True, check=False))
        return done.stdout.strip() == "PONG"

    def _start_member(self, stack: ExitStack, number: int, *command: str) -> subprocess.Popen[str]:
        try:
            process = self._world.inside(
                number,
                lambda: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True),
            )
        except FileNotFoundError:
            raise Missing(f"there is no {command[0]} here") from None
        stack.callback(_end_process, process)
        return process


def _end_process(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate()


def _sum_run_us(processes: Sequence[subprocess.Popen[str]]) -> float:
    return sum(processor_s(each.pid) for each in processes) * 1e6


def _wait_quiet(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Return when the processes have done what the last connections left them to do."""
    before = -1.0
    while (now := _sum_run_us(processes)) - before > _QUIET_S * 1e4:
        before = now
        time.sleep(_QUIET_S)
