"""A tenant with two rules, and its list as tests write and read it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
SSH = {**WEB, "id": "ssh", "source": "192.0.2.0/24", "destination_ports": 22}
DNS = {**WEB, "id": "dns", "protocol": "udp", "destination_ports": 53}


Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant with two rules, in a domain without hosts."""
    name = f"a-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    assert run("acl", "apply", name, "-", "--yes", stdin=listed(WEB, SSH)).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


def listed(*rules: object) -> str:
    return json.dumps({"rules": rules})


def rules_of(run: Run, tenant: str) -> list[str]:
    return [rule["id"] for rule in run("acl", "show", tenant, "--json").json()["rules"]]


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """The file after somebody edited it."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return str(path)
