"""`python -m orchestrator.cli.standby`: an agent of a lab, loaded before it is wanted (`orchestrator/lab/standby.py`).

Loads what `aclflow agent` needs, waits for one line that says where and how, and is that agent.
"""

from __future__ import annotations

import importlib
import os
import sys

from orchestrator.cli.run import main as run
from orchestrator.lab import namespaces
from orchestrator.lab.standby import Order

_LOADED = "orchestrator.cli.agent"
_LOWEST_PRIORITY = 19


def main() -> int:
    """The agent's exit code; 0 where nobody wants one any more."""
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
    importlib.import_module(_LOADED)
    line = sys.stdin.readline()
    if not line:
        return 0
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    order = Order.of(line)
    _move(order)
    return run(order.arguments)


def _move(order: Order) -> None:
    """Enter the wanted agent's namespace, with its settings and outputs."""
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, stream)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.update(order.settings)
    namespaces.enter(order.namespace)


if __name__ == "__main__":
    sys.exit(main())
