"""A machine as the service knows it: by a certificate, over real TLS."""

from __future__ import annotations

import ssl
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from served import Served

from orchestrator.client import Client
from orchestrator.identity.files import encoded_key
from orchestrator.identity.requests import EnrolmentToken, PrivateKey, new_key, request_of
from orchestrator.identity.trust import client_context, load_chain
from orchestrator.wire.enrolment import Enrolment


def secret_of(token: str) -> str:
    return EnrolmentToken.parse(token).secret


@dataclass
class Machine:
    """Somebody with a key, who may have got a certificate for it."""

    service: Served
    folder: Path
    name: str = field(default_factory=lambda: f"m-{uuid.uuid4().hex[:8]}")
    key: PrivateKey = field(default_factory=new_key)
    file: Path | None = None

    def enrol(self, token: str, **more: str) -> Enrolment:
        said = {"name": self.name, "kind": "nftables", "csr": request_of(self.key, more.get("name", self.name))} | more
        with self.service.client("") as anybody:
            found = anybody.enrolment.enrol(secret_of(token), **said)
        self.keep(found.certificate)
        return found

    def keep(self, certificate: str, key: PrivateKey | None = None) -> None:
        self.file = self.folder / f"{uuid.uuid4().hex}.pem"
        self.file.write_bytes(encoded_key(key or self.key) + certificate.encode())
        self.file.chmod(0o600)

    def trust(self) -> ssl.SSLContext:
        assert self.service.authority is not None
        context = client_context(self.service.authority.read_text())
        if self.file is not None:
            load_chain(context, self.file, self.file)
        return context

    def client(self, token: str = "") -> Client:
        return Client(self.service.url, token, trust=self.trust())


def another(machine: Machine) -> Machine:
    return Machine(machine.service, machine.folder)
