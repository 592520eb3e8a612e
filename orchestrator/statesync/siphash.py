"""SipHash-2-4 (Aumasson and Bernstein, 2012): the keyed 64-bit hash under every message between members."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def siphash(key: bytes, data: bytes) -> int:
    """Return the hash of bytes under a 16-byte key.

    Raises ValueError for a key of another length.
    """
    if len(key) != 16:
        raise ValueError(f"a SipHash key has 16 bytes, not {len(key)}")
    first, second = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261, second ^ 0x7465646279746573,
    ]  # fmt: skip
    whole = len(data) & ~7
    last = len(data) << 56 & _MASK | int.from_bytes(data[whole:], "little")
    for word in (*(int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)), last):
        v[3] ^= word
        _mix(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _mix(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _mix(v: list[int], rounds: int) -> None:
    """Do so many SipHash rounds on the state."""
    v0, v1, v2, v3 = v
    for _ in range(rounds):
        v0 = v0 + v1 & _MASK
        v1 = (v1 << 13 | v1 >> 51) & _MASK ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = v2 + v3 & _MASK
        v3 = (v3 << 16 | v3 >> 48) & _MASK ^ v2
        v0 = v0 + v3 & _MASK
        v3 = (v3 << 21 | v3 >> 43) & _MASK ^ v0
        v2 = v2 + v1 & _MASK
        v1 = (v1 << 17 | v1 >> 47) & _MASK ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    v[:] = v0, v1, v2, v3
