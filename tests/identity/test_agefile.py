"""Files encrypted for a key, as age writes and reads them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import BadInput, Missing
from orchestrator.identity.agefile import (
    Sealing,
    is_sealed,
    new_identity,
    read_identities,
    read_recipient,
    unseal_stream,
)

SIZES = (0, 1, 65_535, 65_536, 65_537, 131_072, 200_000)
KNOWN = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"
"""The key of age's own test vectors: 32 times the byte 0x42."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file with a secret key, and its recipient."""
    secret, recipient = new_identity()
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(f"# a comment\n{secret}\n")
    return file, recipient


def sealed(data: bytes, *recipients: str) -> bytes:
    file = io.BytesIO()
    with Sealing(file, [read_recipient(each) for each in recipients]) as stream:
        for start in range(0, len(data), 50_000):
            stream.write(data[start : start + 50_000])
    return file.getvalue()


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_is_read_back_from_any_place(size: int, key: tuple[Path, str]) -> None:
    data = os.urandom(size)
    raw = io.BytesIO(sealed(data, new_identity()[1], key[1]))
    assert is_sealed(raw)
    plain = unseal_stream(raw, read_identities(key[0]))
    assert plain.read() == data
    for place in (size // 2, 0):
        plain.seek(place)
        assert plain.read() == data[place:]


@pytest.mark.skipif(shutil.which("age") is None, reason="needs age: apt-get install age")
@pytest.mark.parametrize("size", SIZES)
def test_age_reads_what_we_write_and_we_what_age_writes(size: int, key: tuple[Path, str], tmp_path: Path) -> None:
    data, file = os.urandom(size), tmp_path / "file"
    file.write_bytes(sealed(data, key[1]))
    assert subprocess.run(["age", "-d", "-i", key[0], file], capture_output=True, check=True).stdout == data
    theirs = subprocess.run(["age", "-r", key[1]], input=data, capture_output=True, check=True).stdout
    assert unseal_stream(io.BytesIO(theirs), read_identities(key[0])).read() == data


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_any_change_is_noticed(data: st.DataObject, key: tuple[Path, str]) -> None:
    whole = sealed(os.urandom(data.draw(st.sampled_from((0, 100, 65_536, 70_000)))), key[1])
    changed = bytearray(whole)
    if data.draw(st.booleans()):
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del changed[data.draw(st.integers(0, len(whole) - 1)) :]
    raw = io.BytesIO(changed)
    if is_sealed(raw):
        with pytest.raises(BadInput):
            unseal_stream(raw, read_identities(key[0])).read()


def test_chunks_cannot_change_places(key: tuple[Path, str]) -> None:
    whole = sealed(bytes(3 << 16), key[1])
    start, chunk = len(whole) - 3 * (65_536 + 16), 65_536 + 16
    swapped = whole[:start] + whole[start + chunk : start + 2 * chunk] + whole[start : start + chunk] + whole[-chunk:]
    with pytest.raises(BadInput):
        unseal_stream(io.BytesIO(swapped), read_identities(key[0])).read()


def test_keys_are_those_of_age(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KNOWN)
    (identity,) = read_identities(file)
    assert identity.private_bytes_raw() == b"B" * 32
    for wrong in ("", "age1", KNOWN[:-1], KNOWN[:-1] + "Y", "AGE-SECRET-KEY-1" + "Q" * 58):
        file.write_text(wrong)
        with pytest.raises(BadInput):
            read_identities(file)
        with pytest.raises(BadInput):
            read_recipient(wrong)
    with pytest.raises(Missing):
        read_identities(tmp_path / "none")
