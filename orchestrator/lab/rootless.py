"""The demonstration without root, in a user namespace.

Its root owns nothing but the namespaces made in it.

    aclflow demo (nobody) ── unshare ──▶ user, network, mount and process namespaces ── aclflow demo (root in there)

Network namespaces, links and Open vSwitch in user space work there, for the kernel lets the namespace's root make what
belongs to it. BPF does not: it takes privileges of the machine, so the firewall servers of the point of presence are
left out. Nothing outside is seen or changed, and nothing is left: the last process takes the namespaces with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.errors import Missing

LEFT_OUT = (
    "without root there is no BPF: the firewall servers at the edge are left out, and packets go straight to the hosts"
)
_TUN = Path("/dev/net/tun")
_PROGRAMS = (
    ("unshare", "util-linux"), ("ip", "iproute2"), ("ovs-vswitchd", "openvswitch-switch"), ("bird", "bird2"),
)  # fmt: skip
_UID_MAP = Path("/proc/self/uid_map")
_WHOLE_MACHINE = ["0", "0", "4294967295"]
_NAMESPACES = ("--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_INSIDE = 'mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip link set lo up && "$@"'
"""The shell stays: as the first process it reaps those whose parents ended."""
_SWITCHES = (
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
)
"""Kernel settings that may forbid user namespaces to users."""


def is_confined() -> bool:
    """Return whether this process is in a user namespace, so its root is confined."""
    return _UID_MAP.read_text(encoding="ascii").split() != _WHOLE_MACHINE


def reenter(arguments: Sequence[str]) -> NoReturn:
    """Become the same program as the root of a user namespace.

    Raises Missing, with what stands in the way.
    """
    check_possible()
    os.environ["PATH"] = _search_path()
    command = [
        *_make_unshare_command(),
        "sh",
        "-c",
        _INSIDE,
        "sh",
        sys.executable,
        "-m",
        "orchestrator.cli",
        *arguments,
    ]
    os.execvp(command[0], command)  # noqa: S606 - the words are ours, and go to no shell


def check_possible() -> None:
    """Try what a demonstration without root needs.

    Raises Missing that names it, and what would allow it.
    """
    for program, package in _PROGRAMS:
        if shutil.which(program, path=_search_path()) is None:
            raise _make_missing(f"the program '{program}' is missing (Debian: {package})")
    if not os.access(_TUN, os.R_OK | os.W_OK):
        raise _make_missing(
            f"Open vSwitch in user space must open {_TUN}, which you may not (`chmod 666 {_TUN}` as root)"
        )
    tried = subprocess.run(
        [*_make_unshare_command(), "sh", "-c", _INSIDE, "sh", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if tried.returncode != 0:
        said = tried.stderr.strip().splitlines()
        settings = ", ".join(f"{name} is {value}" for name in _SWITCHES if (value := _read_setting(name)) is not None)
        raise _make_missing(f"no user namespace can be made: {said[-1] if said else 'no reason given'} ({settings})")


def _search_path() -> str:
    """Return where programs are looked for, root's folders included."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _make_missing(reason: str) -> Missing:
    return Missing(f"without root the demonstration runs in a user namespace; {reason}. Or run it as root")


def _make_unshare_command() -> list[str]:
    return ["unshare", *_NAMESPACES]


def _read_setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name.replace(".", "/")).read_text(encoding="ascii").strip()
    except OSError:
        return None
