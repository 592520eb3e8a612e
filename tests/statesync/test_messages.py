"""Messages between members: SipHash's published vectors, round trips, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statesync.messages import (
    KEY_BYTES,
    MESSAGE_BYTES,
    Key,
    Message,
    MessageKind,
    Word,
    open_sealed,
    siphash,
)
from orchestrator.statesync.states import State

SECRET = bytes(range(16))
words = st.builds(Word, st.sampled_from(State), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1), st.booleans())
keys = st.builds(
    Key, st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1),
    st.sampled_from([1, 6, 17, 58]),
)  # fmt: skip
counts = st.integers(0, 2**64 - 1)
small = st.integers(0, 255)
messages = st.builds(
    Message, st.sampled_from(MessageKind), small, small, counts, keys.map(Key.pack), words.map(Word.pack), counts,
    small, small,
)  # fmt: skip


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "310e0edd47db6f72"),
        (1, "fd67dc93c539f874"),
        (8, "6224939a79f5f593"),
        (15, "e545be4961ca29a1"),
        (63, "724506eb4c328a95"),
    ],
)
def test_siphash_has_its_published_values(length: int, expected: str) -> None:
    assert siphash(SECRET, bytes(range(length))).to_bytes(8, "little").hex() == expected


@given(keys)
def test_a_key_comes_back(key: Key) -> None:
    assert len(key.pack()) == KEY_BYTES
    assert Key.unpack(key.pack()) == key


@given(words)
def test_a_word_comes_back(word: Word) -> None:
    assert Word.unpack(word.pack()) == word


@given(messages)
def test_a_message_comes_back(message: Message) -> None:
    sealed = message.seal(SECRET)
    assert len(sealed) == MESSAGE_BYTES
    assert open_sealed(sealed + b"a held packet", SECRET) == message


@given(messages, st.integers(0, MESSAGE_BYTES * 8 - 1))
def test_a_changed_bit_is_noticed(message: Message, bit: int) -> None:
    sealed = bytearray(message.seal(SECRET))
    sealed[bit // 8] ^= 1 << bit % 8
    assert open_sealed(bytes(sealed), SECRET) is None


@given(messages)
def test_another_key_and_a_short_message_are_refused(message: Message) -> None:
    sealed = message.seal(SECRET)
    assert open_sealed(sealed, SECRET[::-1]) is None
    assert open_sealed(sealed[:-1], SECRET) is None


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        siphash(b"short", b"")
