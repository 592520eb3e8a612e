"""A journal of measurements, so that an interrupted run continues where it stopped.

A file of JSON lines: the first says what is measured, each other one is a measurement by its name. Without a file
nothing is written, and everything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.bench.traffic.gauges import Metric, Sample
from orchestrator.errors import BadInput


class Journal:
    """Measurements by name. Raises BadInput for a file that is none, or of something else."""

    def __init__(self, path: Path | None, measured: Mapping[str, object]) -> None:
        self._path = path
        self._known: dict[str, Sample] = {}
        if path is None:
            return
        head = json.loads(json.dumps(measured))
        if path.exists() and path.stat().st_size:
            self._known = _read(path, head)
        else:
            self._append(head)

    def sample(self, name: str, measure: Callable[[], Sample]) -> Sample:
        """Return a recorded measurement, or measure and record it now."""
        if name not in self._known:
            self._known[name] = measure()
            self._append([name, {metric.name: value for metric, value in self._known[name].items()}])
        return self._known[name]

    def _append(self, line: object) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _read(path: Path, head: object) -> dict[str, Sample]:
    """Read a file's measurements; remove a last line that was cut off."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    try:
        first, *lines = map(json.loads, whole.splitlines())
        found: dict[str, Sample] = {
            str(name): {Metric[metric]: float(value) for metric, value in sample.items()} for name, sample in lines
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(f"{path} is no journal of a suite", place="--journal") from None
    if first != head:
        raise BadInput(f"{path} is of another run: name another file, or remove it", place="--journal")
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return found
