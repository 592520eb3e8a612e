"""A controller is killed while another lives: operators are told which, and that within ten seconds."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from patience import PATIENCE_S, until
from served import ServiceProcess

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.store.records import Role

LATE_S = 30
"""A killed controller is told 8 to 10 s after it was heard, as tests of the timekeeper show; here on a busy machine."""


@contextmanager
def controller(directory: Path, name: str, url: str, invitation: str) -> Iterator[subprocess.Popen[bytes]]:
    """A controller of the domain in a process of its own, which listens for switches and has none."""
    own = {"ACLFLOW_URL": url, "ACLFLOW_TOKEN": invitation, "ACLFLOW_STATE_DIR": str(directory / name)}
    command = [sys.executable, "-m", "orchestrator.cli", "controller", "--name", name, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)


def test_a_killed_controller_is_told_and_its_neighbour_is_not(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path)
    token = create_token(service.settings, Role.ADMIN).secret
    service.start()
    with ExitStack() as stack:
        stack.callback(service.kill)
        client = stack.enter_context(Client(service.url, token))
        client.domains.create("pop")
        running = {
            name: stack.enter_context(controller(tmp_path, name, service.url, client.enrolment.invite("pop")))
            for name in ("killed", "lives")
        }
        until(lambda: {each.name for each in client.points.read_all("pop") if each.last_seen} == set(running))
        assert "silent" not in {each.kind for each in client.read_status().concerns}

        running["killed"].send_signal(signal.SIGKILL)
        until(lambda: [each for each in client.events.read().items if each.kind == "enforcer.down"])
        down = next(each for each in client.events.read().items if each.kind == "enforcer.down")
        assert down.detail["name"] == "killed"
        silent = down.time - dt.datetime.fromisoformat(str(down.detail["last_seen"]))
        assert dt.timedelta(seconds=8) <= silent < dt.timedelta(seconds=LATE_S)

        said = [each.text for each in client.read_status().concerns if each.kind == "silent"]
        assert any("killed" in text for text in said)
        (seen,) = (each.last_seen for each in client.points.read_all("pop") if each.name == "lives")
        assert seen is not None
        assert running["lives"].poll() is None
        metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
        assert "killed" not in metrics, "who reaches the service may read this"
