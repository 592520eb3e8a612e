"""A table of nftables that an enforcement point keeps unchanged beside a data plane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.errors import Refused

_WRITE = ("nft", "-f", "-")
_NO_TABLE = "No such file or directory"


def set_of_names(names: Iterable[str]) -> str:
    """Interfaces as an anonymous set of nftables, each once."""
    return f"{{ {', '.join(f'{chr(34)}{name}{chr(34)}' for name in dict.fromkeys(names))} }}"


@dataclass(slots=True)
class GuardTable:
    """One table of nftables in this network namespace, of the family `inet` or another.

    `chains` are the lines between its braces; without any there is to be no table.
    """

    name: str
    chains: Sequence[str]
    run: Run = run
    family: str = "inet"
    is_counting: bool = False
    """Whether packets write into its sets, which are then no part of what it must be."""
    _listed: str | None = field(default=None, init=False)
    """The table as nft listed it when it was written; None: it was not written yet."""

    @property
    def script(self) -> str:
        """The text that puts the table in the place of any other, in one transaction."""
        there = f"table {self.family} {self.name}"
        declared = (f"{there} {{", *self.chains, "}") if self.chains else ()
        return "\n".join([there, f"delete {there}", *declared, ""])

    def close(self) -> None:
        """Write it, or take away one that is not wanted any more.

        Raises as a filter's tool does.
        """
        if self.chains or self._read():
            self.run(_WRITE, self.script)
        self._listed = self._read()

    def look(self) -> bool:
        """Check the table and rewrite it if it changed; return whether it had."""
        if self._read() == self._listed:
            return False
        self.close()
        return True

    def _read(self) -> str:
        """The table as nft lists it; nothing where there is none."""
        try:
            terse = ("-t",) if self.is_counting else ()
            return self.run(("nft", "-nn", *terse, "list", "table", self.family, self.name), "")
        except Refused as error:
            if _NO_TABLE not in str(error):
                raise
            return ""
