"""Headers of recorded packets are encrypted at rest where there is a key, and bound to their domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bootstrap import read_packets_key
from orchestrator.errors import BadInput, Missing
from orchestrator.store.packetlog import open_headers, seal

KEY, OTHER = bytes(range(32)), bytes(32)
TEXT = b'{"source":"192.0.2.1"}'


def test_what_was_sealed_is_opened_with_its_key_alone() -> None:
    kept = seal(KEY, "pop", TEXT)
    assert b"192.0.2.1" not in kept.encode()
    assert open_headers(KEY, "pop", kept) == TEXT
    assert seal(KEY, "pop", TEXT) != kept, "no nonce is used twice"
    changed = (kept[:-4] + "AAA=", kept[:-1], "sealed:", "sealed:AAAA", kept[:30], f"sealed:?{kept[8:]}")
    for key, domain, found in ((OTHER, "pop", kept), (KEY, "other", kept), *((KEY, "pop", each) for each in changed)):
        with pytest.raises(Missing, match="another key, or were changed"):
            open_headers(key, domain, found)
    with pytest.raises(Missing, match="a key that this service does not have"):
        open_headers(None, "pop", kept)


def test_what_was_kept_before_there_was_a_key_is_still_read() -> None:
    assert open_headers(KEY, "pop", TEXT.decode()) == TEXT
    assert open_headers(None, "pop", TEXT.decode()) == TEXT


def test_a_key_is_a_file_of_64_digits(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY.hex() + "\n")
    assert read_packets_key(path) == KEY
    assert read_packets_key(None) is None
    path.write_text("short")
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        read_packets_key(path)
    with pytest.raises(Missing, match="cannot be read"):
        read_packets_key(tmp_path / "none")
