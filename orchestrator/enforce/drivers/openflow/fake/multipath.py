"""The hashes of Open vSwitch's multipath action, version 3.1 without SSE 4.2.

A symmetric hash takes in the two addresses and the two ports exclusive-or'ed, so that it is the same for both
directions: MurmurHash3's mixing over 32-bit words in this machine's (little-endian) order of bytes. Of a single field
it is Bob Jenkins' hash, as in `orchestrator/edge/hashing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.edge import hashing
from orchestrator.policy.protocols import SCTP, TCP

ETH_SRC, SYMMETRIC_L3L4 = 0, 2
MODULO_N = 0
KNOWN = frozenset({ETH_SRC, SYMMETRIC_L3L4})

_IPV4, _IPV6 = 0x0800, 0x86DD
_ONES = 0xFFFFFFFF


def hash_fields(fields: int, basis: int, values: Mapping[str, int]) -> int:
    """The hash of a packet with these header values."""
    if fields == ETH_SRC:
        return int(hashing.hash_keys(np.array([values.get("eth_src", 0)], np.uint64), basis)[0])
    return _symmetric_l3l4(basis, values)


def _symmetric_l3l4(basis: int, values: Mapping[str, int]) -> int:
    """`flow_hash_symmetric_l3l4` of Open vSwitch's lib/flow.c; of what is no IP packet, the basis alone."""
    kind, protocol = values.get("eth_type", 0), values.get("ip_proto", 0)
    if kind == _IPV4:
        words = _words(values.get("ipv4_src", 0) ^ values.get("ipv4_dst", 0), 4)
    elif kind == _IPV6:
        words = _words(values.get("ipv6_src", 0) ^ values.get("ipv6_dst", 0), 16)
    else:
        return basis
    words.append(protocol)
    for number, name in ((TCP, "tcp"), (SCTP, "sctp")):
        if protocol == number:
            words += _words(values.get(f"{name}_src", 0) ^ values.get(f"{name}_dst", 0), 2)
    state = basis
    for word in words:
        state = _mix_word(state, word)
    return _finish_hash(state ^ basis)


def _words(value: int, size: int) -> list[int]:
    """A field's bytes, which lie in network order, as words of this machine."""
    data = value.to_bytes(size, "big")
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, size, 4)]


def _mix_word(state: int, word: int) -> int:
    word = _rotate_word(word * 0xCC9E2D51 & _ONES, 15) * 0x1B873593 & _ONES
    return (_rotate_word(state ^ word, 13) * 5 + 0xE6546B64) & _ONES


def _finish_hash(state: int) -> int:
    state ^= state >> 16
    state = state * 0x85EBCA6B & _ONES
    state ^= state >> 13
    state = state * 0xC2B2AE35 & _ONES
    return state ^ state >> 16


def _rotate_word(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _ONES
