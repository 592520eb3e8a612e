"""The compiled rows stay within what the pipeline declares, and its page is up to date."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from law_examples import examples
from strategies import policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.lists.lists import RETURN_PRIORITY
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.host import (
    ALL_REGISTERS,
    DEFAULT_PRIORITY,
    HIGHEST_RULE_PRIORITY,
    LOWEST_RULE_PRIORITY,
    STAGES,
    STATIC_PRIORITY,
    Table,
)
from orchestrator.compile.pipelines.page import pipeline_page
from orchestrator.policy.model import Policy
from orchestrator.program.flows import Flow

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
STAGE_OF = {stage.table: stage for stage in STAGES}


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=6))
def test_rows_keep_to_the_declaration(policy: Policy) -> None:
    for row in compile_host(policy, domain="d1", generation=1).flows.rows():
        stage = STAGE_OF[Table(row.table)]
        assert {term.field for term in oxm.unpack(row.match)} <= set(stage.looks_at)
        following = _goto(row)
        assert following is None or following in stage.goes_to
        _check_priority(row)


def _check_priority(row: Flow) -> None:
    cookie = Cookie.unpack(row.cookie)
    assert cookie is not None
    if cookie.kind is Kind.RULE:
        assert LOWEST_RULE_PRIORITY <= row.priority <= HIGHEST_RULE_PRIORITY
    elif cookie.kind is Kind.OPERATOR_RULE:
        assert LOWEST_RULE_PRIORITY <= row.priority <= STATIC_PRIORITY
    elif cookie.kind in (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT):
        assert row.priority == DEFAULT_PRIORITY
    elif cookie.kind in (Kind.INGRESS_RETURN, Kind.EGRESS_RETURN):
        assert row.priority == RETURN_PRIORITY
    else:
        assert cookie.kind is Kind.STRUCTURE


def _goto(row: Flow) -> Table | None:
    at = 0
    while at < len(row.instructions):
        kind, length = struct.unpack_from(">HH", row.instructions, at)
        if kind == 1:
            return Table(row.instructions[at + 4])
        at += length
    return None


def test_every_table_and_register_is_declared_once() -> None:
    assert [stage.table for stage in STAGES] == sorted(Table)
    assert len({register.field for register in ALL_REGISTERS}) == len(ALL_REGISTERS)
    for stage in STAGES:
        assert all(following > stage.table for following in stage.goes_to)


def test_the_contract_numbers() -> None:
    assert (DEFAULT_PRIORITY, LOWEST_RULE_PRIORITY, HIGHEST_RULE_PRIORITY, STATIC_PRIORITY) == (300, 301, 30000, 30001)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == pipeline_page()
