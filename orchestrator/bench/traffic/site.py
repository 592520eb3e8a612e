"""A place to build lines: a run directory and a prefix, removed completely afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.bench.benchlab import PREFIX
from orchestrator.bench.traffic import servers
from orchestrator.bench.traffic.line import Line
from orchestrator.lab import pop
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import Layout
from orchestrator.lab.namespaces import need_root


@contextmanager
def site(layout: Layout | None = None) -> Iterator[Layout]:
    """Provide names and folders during the block; remove everything at its end, or at Ctrl-C.

    To be used in the main thread. Raises Missing for anybody but root.
    """
    need_root()
    place = Layout(PREFIX) if layout is None else layout
    with Interrupts() as interrupts:
        try:
            pop.down(place)
            place.run_dir.mkdir(mode=0o700)
            place.logs.mkdir()
            yield place
        finally:
            interrupts.ignore()
            pop.down(place)


@contextmanager
def serve_line(layout: Layout, name: str, also: Sequence[int] = ()) -> Iterator[Line]:
    """Provide a line whose server answers all tools, and HTTP on further ports.

    Raises Missing, Unreachable.
    """
    with Line(layout, name) as line:
        servers.start(line, also)
        yield line
