"""Under ryu, threads are eventlet's: the shim must be imported before anything that starts one."""

from __future__ import annotations

import importlib.util

collect_ignore_glob: list[str] = []

if importlib.util.find_spec("os_ken") is None:
    from orchestrator.enforce.drivers.openflow import compat

    assert compat.PROJECT == "ryu"
else:
    collect_ignore_glob.append("*")  # `make test-ryu` runs these in their own environment
