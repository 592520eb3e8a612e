"""Coming to a controller as a switch would: in clear, or over TLS with some identity."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

from orchestrator.identity.files import write_file, write_key
from orchestrator.identity.requests import new_key, request_of
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane

_PATIENCE_S = 60.0
_HELLO = bytes([6, 0, 0, 8, 0, 0, 0, 1])
"""OpenFlow 1.5, hello, 8 bytes."""


def is_answered(there: tuple[str, int], trust: ssl.SSLContext | None) -> bool:
    """Whether a controller says anything to a switch that comes like this; None: in clear."""
    with socket.create_connection(there, timeout=_PATIENCE_S) as bare:
        try:
            with contextlib.nullcontext(bare) if trust is None else trust.wrap_socket(bare) as sock:
                sock.sendall(_HELLO)
                return bool(sock.recv(64))
        except TimeoutError:
            raise
        except OSError:
            return False


def showing(identity: Path | None) -> ssl.SSLContext:
    """TLS with a key and its certificate in one file, or with none; whoever answers is believed."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(identity)
    return context


def identity_of_switches(lab: Lab) -> Path:
    """What the lab's Open vSwitch shows, as one file."""
    folder = lab.ovs_of(lab.spec.hosts[0].name).run_dir
    files = folder / "switches.pem", folder / "switches.key"
    both = lab.layout.run_dir / "both.pem"
    write_file(both, b"".join(path.read_bytes() for path in files), 0o600)
    return both


def give_switches(plane: ControlPlane, lab: Lab, name: str, *also: str) -> None:
    """Have the lab's Open vSwitch prove to be the switches of these names, and no others."""
    key, certificate = (lab.layout.run_dir / f"{name}{len(also)}{ending}" for ending in (".key", ".pem"))
    made = new_key()
    with plane.client() as client:
        issued = client.certificates.issue_for_switch(lab.spec.domain, name, request_of(made, name), also=also)
    write_key(key, made)
    write_file(certificate, issued.certificate.encode(), 0o644)
    assert plane.authority is not None
    believe(lab, plane.authority, key, certificate)


def believe(lab: Lab, authority: Path, key: Path, certificate: Path) -> None:
    """Have the lab's Open vSwitch believe controllers of the authorities in a file, and show this certificate."""
    for daemon in lab.daemons:
        daemon.vsctl("--no-wait", "set-ssl", str(key), str(certificate), str(authority))
    lab.redial()
