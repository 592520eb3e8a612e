"""A journal of measurements, so that an interrupted run continues where it stopped.

A file of JSON lines: the first says what is measured, each other one is a measurement by its name: numbers by their
names. Without a file nothing is written, and everything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from orchestrator.bench.traffic.measured import Metric, Sample
from orchestrator.errors import BadInput

_METRICS = frozenset(Metric.__members__)


class Journal:
    """Measurements by name. Raises BadInput for a file that is none, or of something else.

    `numbers` are the names that a measurement's numbers may have.
    """

    def __init__(self, path: Path | None, measured: Mapping[str, object], numbers: Collection[str] = _METRICS) -> None:
        self._path = path
        self._known: dict[str, Mapping[str, float]] = {}
        if path is None:
            return
        head = json.loads(json.dumps(measured))
        if path.exists() and path.stat().st_size:
            self._known = _read(path, head, numbers)
        else:
            self._append_line(head)

    def sample(self, name: str, measure: Callable[[], Sample]) -> Sample:
        """Return a recorded measurement, or measure and record it now."""
        row = self.row(name, lambda: {metric.name: value for metric, value in measure().items()})
        return {Metric[metric]: value for metric, value in row.items()}

    def row(self, name: str, measure: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Return recorded numbers by their names, or measure and record them now."""
        if name not in self._known:
            self._known[name] = dict(measure())
            self._append_line([name, self._known[name]])
        return self._known[name]

    def has(self, name: str) -> bool:
        """Return whether a measurement is recorded."""
        return name in self._known

    def _append_line(self, line: object) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _read(path: Path, head: object, numbers: Collection[str]) -> dict[str, Mapping[str, float]]:
    """Read a file's measurements; remove a last line that was cut off."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    known = {each: each for each in numbers}
    try:
        first, *lines = map(json.loads, whole.splitlines())
        found: dict[str, Mapping[str, float]] = {
            str(name): {known[each]: float(value) for each, value in row.items()} for name, row in lines
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(f"{path} is no journal of a suite", place="--journal") from None
    if first != head:
        raise BadInput(f"{path} is of another run: name another file, or remove it", place="--journal")
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return found
