"""The digest of a program's content: a Merkle tree, so that one changed row costs one bucket and not every row.

        root ── H(ports, tenant digests)
         ├── tenant 0 ── H(bucket digests)          (0: structure)
         ├── tenant 7 ─┬─ bucket 00 ── H(row digests, sorted)
         │             ├─ bucket 3f
         │             └─ bucket ff
         └── ...

H is BLAKE2b with 16 bytes of output. A row's digest covers its key and its value; the row lies in the bucket that the
first byte of its digest names, under the tenant it was made for. Row order, padding and the numbering of instruction
lists do not count. `digest` works from scratch; `MerkleDigest` keeps the tree and replaces rows in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from orchestrator.errors import Stale
from orchestrator.program.flows import FlowTable

DIGEST_BYTES = 16


def digest(flows: FlowTable, ports: tuple[str, ...]) -> bytes:
    """The 16-byte digest of a program's rows and symbols."""
    return MerkleDigest(flows).root(ports)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The sorted digests of a bucket's rows, and the digest over them."""

    rows: tuple[bytes, ...]
    digest: bytes

    @classmethod
    def of(cls, rows: Iterable[bytes]) -> _Bucket:
        ordered = tuple(rows)
        return cls(ordered, _hash(b"".join(ordered)))

    def replaced(self, removed: Iterable[bytes], added: Iterable[bytes]) -> _Bucket:
        rows = list(self.rows)
        for row in removed:
            position = bisect_left(rows, row)
            if position == len(rows) or rows[position] != row:
                raise Stale("a row to be removed is not among the rows of this digest")
            del rows[position]
        for row in added:
            insort(rows, row)
        return _Bucket.of(rows)


@dataclass(frozen=True, slots=True)
class _Branch:
    """A tenant's buckets, none of them empty, and the digest over theirs."""

    buckets: Mapping[int, _Bucket]
    digest: bytes

    @classmethod
    def of(cls, buckets: Mapping[int, _Bucket]) -> _Branch:
        leaves = (bytes((number,)) + buckets[number].digest for number in sorted(buckets))
        return cls(buckets, _hash(b"".join(leaves)))

    def replaced(self, removed: Mapping[int, list[bytes]], added: Mapping[int, list[bytes]]) -> _Branch:
        buckets = dict(self.buckets)
        for number in removed.keys() | added.keys():
            old = buckets.pop(number, _NO_ROWS)
            new = old.replaced(removed.get(number, ()), added.get(number, ()))
            if new.rows:
                buckets[number] = new
        return _Branch.of(buckets)


class MerkleDigest:
    """The tree over a set of rows. It never changes: `replaced` gives another one, which shares what stayed."""

    def __init__(self, flows: FlowTable) -> None:
        self._branches = {
            tenant: _Branch.of({number: _Bucket.of(sorted(rows)) for number, rows in buckets.items()})
            for tenant, buckets in _sorted_out(flows).items()
        }

    def replaced(self, removed: FlowTable, added: FlowTable) -> MerkleDigest:
        """The tree without some rows and with others. Raises Stale if a row to go is not there."""
        going, coming = _sorted_out(removed), _sorted_out(added)
        twin = MerkleDigest.__new__(MerkleDigest)
        twin._branches = self._branches.copy()
        for tenant in going.keys() | coming.keys():
            old = twin._branches.pop(tenant, _NO_BUCKETS)
            new = old.replaced(going.get(tenant, {}), coming.get(tenant, {}))
            if new.buckets:
                twin._branches[tenant] = new
        return twin

    def root(self, ports: tuple[str, ...]) -> bytes:
        """The digest of the rows together with `ports`."""
        branches = (tenant.to_bytes(4, "big") + self._branches[tenant].digest for tenant in sorted(self._branches))
        return _hash(_hash("\0".join(ports).encode()) + b"".join(branches))


def _hash(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


_NO_ROWS = _Bucket.of(())
_NO_BUCKETS = _Branch.of({})


def _sorted_out(flows: FlowTable) -> dict[int, dict[int, list[bytes]]]:
    """The digests of the rows by tenant and bucket."""
    found: dict[int, dict[int, list[bytes]]] = {}
    for tenant, row in zip(flows.tenant.tolist(), _row_digests(flows), strict=True):
        buckets = found.setdefault(tenant, {})
        bucket = buckets.get(row[0])
        if bucket is None:
            buckets[row[0]] = [row]
        else:
            bucket.append(row)
    return found


def _row_digests(flows: FlowTable) -> list[bytes]:
    """The digest of every row. Instruction lists count by their own digest, and the match without its padding."""
    width = flows.match.shape[1]
    layout = np.dtype(
        [
            ("instructions", np.uint8, (DIGEST_BYTES,)),
            ("cookie", ">u8"),
            ("tenant", ">u4"),
            ("priority", ">u2"),
            ("table", np.uint8),
            ("match_length", np.uint8),
            ("match", np.uint8, (width,)),
        ]
    )
    rows = np.empty(len(flows), layout)
    for name in ("cookie", "tenant", "priority", "table", "match_length", "match"):
        rows[name] = getattr(flows, name)
    if len(flows):
        lists = np.frombuffer(b"".join(map(_hash, flows.instruction_set)), np.uint8).reshape(-1, DIGEST_BYTES)
        rows["instructions"] = lists[flows.instructions]
    whole = memoryview(rows.tobytes())
    starts = range(0, len(whole), layout.itemsize)
    ends = np.arange(len(flows)) * layout.itemsize + (layout.itemsize - width) + flows.match_length
    return [_hash(whole[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)]
