"""The pages about the pipelines, written from their declarations."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.compile.openflow.oxm import Field
from orchestrator.compile.pipelines.edge import EDGE_BANDS, EDGE_REGISTERS, EDGE_STAGES
from orchestrator.compile.pipelines.host import (
    ALL_REGISTERS,
    BANDS,
    GATEWAY_MAC,
    RULE_FIELDS,
    STAGES,
    Band,
    Register,
    Stage,
)
from orchestrator.compile.pipelines.spread import SPREAD_BANDS, SPREAD_REGISTERS, SPREAD_STAGES

_HEAD = """# The host tier's pipeline

This page is written from `orchestrator/compile/pipelines/host.py`; change it there. Every switch of a security domain
runs these tables. A packet starts in the first and goes on until a table sends it out or drops it; a table whose rows
all miss does what the last column says.
"""

_EDGE_HEAD = """# The edge switch's pipeline

This page is written from `orchestrator/compile/pipelines/edge.py`; change it there. Every edge switch of a PoP runs
these tables ([edge-switch.md](edge-switch.md) has the why). A packet starts in the first and goes on until a table
sends it out or drops it; a table whose rows all miss does what the last column says.
"""

_SPREAD_HEAD = """# The spreading switch's pipeline

This page is written from `orchestrator/compile/pipelines/spread.py`; change it there. The switch that spreads a
domain's traffic over its firewalls runs these tables ([spreading.md](spreading.md) has the why), and two groups of 256
buckets in place of all but the first where the firewalls are stateless.
"""

_FRAGMENTS = """## Fragments

Switches run in Open vSwitch's `nx-match` mode, in which first fragments show their ports and later fragments none. A
rule that looks past the IP header matches only where that header is: whole packets and first fragments (`ip_frag` 0
under mask 2). A rule for fragments matches later ones (`ip_frag` 3). Other rules do not look. The protocol of an IPv6
later fragment is 44, for what it carries cannot be known. A first fragment too short for its transport header would
show ports 0 and 0, and is dropped on admission.
"""


def pipeline_page() -> str:
    """Return the text of `docs/pipeline.md`."""
    return "\n".join(
        (
            _HEAD,
            *_declared_sections(STAGES, ALL_REGISTERS, BANDS),
            "## The gateway\n",
            f"Endpoints see one router, `{_spell_mac(GATEWAY_MAC)}`, on every switch alike; so an endpoint may move "
            "and keep its neighbour table. The same address stands for a host towards the edge.\n",
            _FRAGMENTS,
        )
    )


def edge_page() -> str:
    """Return the text of `docs/edge-pipeline.md`."""
    return "\n".join((_EDGE_HEAD, *_declared_sections(EDGE_STAGES, EDGE_REGISTERS, EDGE_BANDS)))


def spread_page() -> str:
    """Return the text of `docs/spread-pipeline.md`."""
    return "\n".join((_SPREAD_HEAD, *_declared_sections(SPREAD_STAGES, SPREAD_REGISTERS, SPREAD_BANDS)))


def _declared_sections(
    stages: Sequence[Stage], registers: Sequence[Register], bands: Sequence[Band]
) -> tuple[str, ...]:
    """Tables, registers and priorities."""
    return (
        _write_table(("table", "name", "goes on to", "else"), (_make_row(stage) for stage in stages)),
        *map(_describe_stage, stages),
        *_fields_of_rules(stages),
        "## Registers\n",
        _write_table(
            ("register", "bits", "name", "meaning"),
            ((each.field.name, each.bits, f"`{each.name}`", each.meaning) for each in registers),
        ),
        "## Priorities\n",
        _write_table(("priority", "holds"), ((each.priorities, each.holds) for each in bands)),
    )


def _fields_of_rules(stages: Sequence[Stage]) -> Iterator[str]:
    """Explain the fields of rules, where some table matches them."""
    if any(set(RULE_FIELDS) <= set(stage.looks_at) for stage in stages):
        yield f"*The fields of rules* are {', '.join(_list_names(RULE_FIELDS))}.\n"


def _describe_stage(stage: Stage) -> str:
    own = [field for field in stage.looks_at if field not in RULE_FIELDS]
    looks_at = stage.looks_at if set(RULE_FIELDS) - set(stage.looks_at) else own
    words = [] if looks_at is stage.looks_at else ["the fields of rules"]
    listed = ", ".join([*words, *_list_names(looks_at)]) or "nothing"
    return f"**{_name_table(stage.table)}.** {stage.purpose}\n\nLooks at: {listed}.\n"


def _make_row(stage: Stage) -> tuple[str, ...]:
    return (
        str(stage.table.value),
        _name_table(stage.table),
        ", ".join(map(_name_table, stage.goes_to)) or "-",
        stage.miss,
    )


def _name_table(table: enum.IntEnum) -> str:
    return table.name.lower()


def _list_names(fields: Iterable[Field]) -> list[str]:
    return [f"`{field.name}`" for field in fields]


def _spell_mac(address: int) -> str:
    return address.to_bytes(6, "big").hex(":")


def _write_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(lines) + "\n"
