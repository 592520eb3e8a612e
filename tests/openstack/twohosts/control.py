"""aclflow's service, controller and console on this machine, as an operator starts them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from allinone import running
from allinone.place import Place

from orchestrator.client import Client, Host
from orchestrator.hosts.switch import ROUTED_PORT, datapath_of
from orchestrator.identity.files import AuthorityDir
from orchestrator.lab.service import administrators_token
from twohosts.addresses import DOMAIN, HOSTS, MANAGEMENT, OPENFLOW_PORT
from twohosts.hosts import ACLFLOW


def authority_of(directory: Path) -> Path:
    """The certificate of the authority that signs those of everybody in the cloud of a directory."""
    return AuthorityDir(directory / "service" / "authority").certificate


PROCESSES = ("console", "controller", "service")
"""In the order in which they end."""


class Control:
    """The control plane of a place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.url = place.aclflow

    @property
    def token(self) -> str:
        """The administrator's."""
        return (self.place.root / "aclflow.token").read_text()

    @property
    def settings(self) -> dict[str, str]:
        """What the command line of the administrator finds in its environment."""
        return {"ACLFLOW_URL": self.url, "ACLFLOW_TOKEN": self.token, "ACLFLOW_AUTHORITY": str(self.place.authority)}

    def client(self) -> Client:
        """A client of the administrator's; close it when done."""
        return Client(self.url, self.token, authority=Path(self.place.authority))

    def start(self) -> None:
        """Start everything; the first time make the domain with its hosts. Returns when the service is ready."""
        is_new = not (self.place.root / "aclflow.token").exists()
        if is_new:
            (self.place.root / "service").mkdir()
            AuthorityDir(authority_of(self.place.root).parent).create("cloud", dt.datetime.now(dt.UTC))
            file = self.place.root / "aclflow.token"
            file.touch(mode=0o600)
            file.write_text(administrators_token(self.place.root / "service", "the cloud's operator"))
        self.start_service()
        with self.client() as client:
            running.wait_for("aclflow's service", client.is_ready)
            if is_new:
                client.domains.create(DOMAIN)
                for host in HOSTS:
                    client.domains.add_host(DOMAIN, Host(host, datapath_of(DOMAIN, host), ROUTED_PORT))
            self.start_controller(client.enrolment.invite(DOMAIN) if is_new else "")
        port = str(self.place.ports["console"])
        self._start(
            "console", ("console", "--url", self.url, "--port", port), {"ACLFLOW_AUTHORITY": self.place.authority}
        )

    def invite_switch(self, host: str) -> str:
        """A one-time token by which a host's switch gets its certificate."""
        with self.client() as client:
            return client.enrolment.invite(DOMAIN, name=host, kind="switch")

    def start_service(self) -> None:
        """Start the service, or start it again."""
        settings = {
            "ACLFLOW_STATE_DIR": str(self.place.root / "service"), "ACLFLOW_LISTEN_HOST": MANAGEMENT,
            "ACLFLOW_LISTEN_PORT": str(self.place.ports["aclflow"]), "ACLFLOW_TLS": "yes",
            "ACLFLOW_URL": self.url, "ACLFLOW_AUDIT_SYSLOG": "none",
        }  # fmt: skip
        if (cloud := self.place.root / "cloud.yaml").exists():
            settings["ACLFLOW_CLOUD"] = str(cloud)
        self._start("service", ("serve",), settings)

    def start_controller(self, invitation: str = "") -> None:
        """Start the controller, or start it again; the first start needs an invitation."""
        settings = {
            "ACLFLOW_STATE_DIR": str(self.place.root / "controller"), "ACLFLOW_URL": self.url,
            "ACLFLOW_TOKEN": invitation,
        }  # fmt: skip
        listening = ("--listen", f"{MANAGEMENT}:{OPENFLOW_PORT}", "--tls")
        self._start("controller", ("controller", *listening), settings)

    def stop(self, *names: str) -> None:
        """Stop some of the processes, or all."""
        running.stop(self.place, names or PROCESSES)

    def console(self) -> str:
        """Where to sign in to the console."""
        return f"http://127.0.0.1:{self.place.ports['console']}/login#token={self.token}"

    def _start(self, name: str, words: tuple[str, ...], settings: Mapping[str, str]) -> None:
        running.start(self.place, name, (*ACLFLOW, *words), settings)
