"""TLS handshakes in memory: what two contexts make of each other, without a network."""

from __future__ import annotations

import ssl
from pathlib import Path

from orchestrator.identity.authority import Issued
from orchestrator.identity.files import encoded_key
from orchestrator.identity.requests import PrivateKey


def written(folder: Path, name: str, key: PrivateKey, issued: Issued) -> Path:
    """Key and certificate in one file, as an enforcement point keeps them."""
    path = folder / name
    path.write_bytes(encoded_key(key) + issued.pem.encode())
    path.chmod(0o600)
    return path


def shake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> dict[str, object]:
    """Shake hands and say one word each way; what the server saw of the client. Raises ssl.SSLError of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname=host)
    answerer = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (caller, answerer):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    caller.write(b"?")
    assert answerer.read(1) == b"?"
    answerer.write(b"!")
    assert caller.read(1) == b"!"
    return dict(answerer.getpeercert() or {})
