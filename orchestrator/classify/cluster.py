"""Replay archives of captures on the workers of a Dask cluster.

    client ──▶ marks of a capture ──▶ share since mark 0 ──▶ sums ──┐
               (an index pass)        share since mark 1 ──▶ sums ──┼──▶ added up in order
           ──▶ a gzip file whole ──────────────────────────▶ sums ──┘

Workers read the captures by the same paths as the client, and make the lists ready once. A share of a worker that died
is given to another one. Shares are added up in the order of captures, so the answer is that of one machine, to the last
count and to each flow's first packet. (Where flows are forgotten, as of more than a million, others may be.)
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.classify.captures import BEGINNING, Mark, open_capture
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.records import GZIP
from orchestrator.classify.replay import Replay, Sums, replay
from orchestrator.errors import AclflowError, Refused, Unreachable
from orchestrator.extras import needs_extra
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Direction, ReturnTraffic

SHARE = 256 << 20
"""Bytes of a plain capture that a worker reads at once."""

_RETRIES = 5
"""So often a share is given to another worker when one died with it."""
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Question:
    """The lists of a replay and their settings, as sent to workers."""

    acl: Acl
    against: Acl | None
    own: tuple[Prefix, ...] = ()
    way: Direction = Direction.INGRESS
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT

    def lists(self) -> tuple[Deciding, Deciding | None]:
        """The lists, ready to be asked."""
        deciding, *others = (
            Deciding(acl, own=self.own, way=self.way, returns=self.returns)
            for acl in (self.acl, self.against)
            if acl is not None
        )
        return deciding, others[0] if others else None

    def __reduce__(self) -> tuple[object, ...]:
        """Send lists as their parts: views of groups and rules in pieces cannot be pickled."""
        lists = [
            None if acl is None else (acl.rules, dict(acl.groups), acl.ingress_default, acl.egress_default)
            for acl in (self.acl, self.against)
        ]
        return _make_question, (*lists, self.own, self.way, self.returns)


def _make_question(acl: tuple[Any, ...], against: tuple[Any, ...] | None, *asked: Any) -> Question:
    return Question(Acl(*acl), None if against is None else Acl(*against), *asked)


@dataclass(frozen=True, slots=True)
class _Share:
    """A part of a capture: name, path, begin and end, and its bytes.

    The bytes are counted in the file.
    """

    name: str
    path: str
    since: Mark
    until: int | None
    size: int


def replay_on(
    scheduler: str,
    captures: Sequence[str],
    question: Question,
    *,
    share_bytes: int = SHARE,
    told: Callable[[int], None] = lambda _: None,
) -> Replay:
    """Replay captures by name on a scheduler's cluster.

    `told` is given how many bytes are done.

    Raises Missing where Dask or a capture is not there, Unreachable where the cluster is lost, Refused where a worker
    cannot do it, and what `Capture.pieces` raises.
    """
    found = Replay.of(*question.lists())
    with _connect_scheduler(scheduler) as client:
        paths = [str(Path(name).absolute()) for name in captures]
        marks = [client.submit(_marks, path, share_bytes, pure=False, retries=_RETRIES) for path in paths]
        shares = [
            share
            for name, path, cut in zip(captures, paths, _in_order(client, marks, captures), strict=True)
            for share in _shares(name, path, *cut)
        ]
        asked = client.submit(bytes, pickle.dumps(question), pure=False)
        work = [client.submit(_sums, share, asked, pure=False, retries=_RETRIES) for share in shares]
        done = 0
        for share, sums in zip(shares, _in_order(client, work, [each.name for each in shares]), strict=True):
            found.absorb(sums)
            done += share.size
            told(done)
    return found


@contextmanager
def _connect_scheduler(scheduler: str) -> Iterator[Any]:
    """A client of a scheduler. Raises Missing without Dask, and Unreachable."""
    with needs_extra("dask", "a cluster of Dask"):
        from distributed import Client  # noqa: PLC0415 -- optional
    try:
        client = Client(scheduler, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise Unreachable(f"no scheduler of Dask answers: {error}", place=scheduler) from None
    try:
        yield client
    except CancelledError:
        raise Unreachable("the connection to the scheduler was lost", place=scheduler) from None
    finally:
        client.close(timeout=_PATIENCE_S)


def _in_order(client: Any, futures: Sequence[Any], names: Sequence[str]) -> Iterator[Any]:
    """Yield the results of futures, and let each go.

    Raises what a task raised, Unreachable, Refused.
    """
    from distributed import KilledWorker  # noqa: PLC0415 -- it is there if there is a client

    for future, name in zip(futures, names, strict=True):
        error, tries = future.exception(), 1
        while isinstance(error, KilledWorker) and tries < _RETRIES:
            client.retry([future])
            error, tries = future.exception(), tries + 1
        if isinstance(error, KilledWorker):
            raise Unreachable(f"workers died with it {_RETRIES} times", place=name)
        if isinstance(error, AclflowError):
            raise error
        if error is not None:
            raise Refused(f"a worker cannot replay it: {type(error).__name__}: {error}", place=name)
        yield future.result()
        future.release()


def _shares(name: str, path: str, marks: Sequence[Mark], size: int) -> Iterator[_Share]:
    """The shares of a capture of `size` bytes between its marks."""
    begins = [BEGINNING, *marks]
    ends = [mark.offset for mark in marks]
    for begin, end in zip(begins, [*ends, None], strict=True):
        yield _Share(name, path, begin, end, (size if end is None else end) - begin.offset)


# ---- on workers


def _marks(path: str, share_bytes: int) -> tuple[list[Mark], int]:
    """Where shares of a capture begin, but for the first, and its size."""
    with open_capture(path) as capture:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as file:
            is_packed = file.read(len(GZIP)) == GZIP
        return ([] if is_packed or size <= share_bytes else [*capture.marks(share_bytes)]), size


def _sums(share: _Share, question: bytes) -> Sums:
    """Replay one share and return its sums."""
    with open_capture(share.path, since=share.since, until=share.until) as capture:
        capture.name = share.name
        return replay([capture], *_lists(question), threads=1).sums()


@lru_cache(maxsize=2)
def _lists(question: bytes) -> tuple[Deciding, Deciding | None]:
    """The lists of a question, made ready once on each worker."""
    asked: Question = pickle.loads(question)  # noqa: S301 -- from the scheduler, which gives out the code as well
    return asked.lists()
