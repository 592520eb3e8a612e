"""The command line: `aclflow`.

`tree.py` lists its commands; each command's module does one thing with it. Modules are loaded when their command is
called, so a check of a file does not wait for databases and switches.
"""

from __future__ import annotations

from orchestrator.cli.run import main

__all__ = ["main"]
