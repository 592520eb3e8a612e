"""Switches over TLS: certificates for both ends, a launcher that wants them, the end of a fake switch."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from enforce.launched import HOME, Observer
from patience import PATIENCE_S

from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.fake.session import Session
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.stream import (
    Tls,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates signed by it for the controller and for a switch."""
    folder = Path(tmp_path_factory.mktemp("tls"))

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    try:
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
        for name in ("controller", "switch"):
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key")
            openssl(
                "req", "-x509", *key, *signed, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"
            )
        openssl("req", "-x509", *key, "-keyout", "stranger.key", "-out", "stranger.pem", "-subj", "/CN=stranger")
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return folder


@pytest.fixture
def tls(certificates: Path) -> Tls:
    return Tls(certificates / "controller.key", certificates / "controller.pem", certificates / "ca.pem")


@pytest.fixture
def tls_launcher(tls: Tls, observer: Observer) -> Iterator[Launcher]:
    launcher = Launcher(Listen(HOME, 0, tls), observer)
    launcher.start()
    yield launcher
    launcher.stop()


def client_context(folder: Path, name: str) -> ssl.SSLContext:
    """Who a switch believes, and the certificate that it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "ca.pem")
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


class TlsLink:
    """A fake switch's end of a connection over TLS. Its own reading and writing share a thread."""

    def __init__(self, switch: FakeSwitch, port: int, folder: Path, name: str) -> None:
        plain = socket.create_connection((HOME, port), timeout=PATIENCE_S)
        self._plain = plain.dup()
        self._socket = client_context(folder, name).wrap_socket(plain)
        self._socket.settimeout(None)
        self._session = Session(switch)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(self._session.hello())
            while data := self._socket.recv(1 << 16):
                self._socket.sendall(self._session.feed(data))
        self._session.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._plain.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._plain.close()
