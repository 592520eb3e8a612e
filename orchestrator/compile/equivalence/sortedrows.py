"""Sort a program's rows by cookie and check them against their kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import COOKIE_MASK, NUMBER_BITS, Kind
from orchestrator.compile.equivalence.chain import DECIDING, STAGES, STANDING, Chain, Ends, is_limited
from orchestrator.compile.equivalence.rowdecoder import FAMILY, PROTOCOL, REGISTERS, Decoded, Items, decode
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Action, Rule
from orchestrator.program.flows import U64, FlowTable

_HOST = COOKIE_MASK | 1 << 52
_ALL_32 = np.uint32(0xFFFFFFFF)
_FROM_RULES = (Kind.RULE, Kind.OPERATOR_RULE, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN)
_VERDICTS = {(action, log): 2 * log + (action is Action.PERMIT) for action in Action for log in (False, True)}
_LIMITED = 4
"""The verdict that permits up to a rate."""
_NEITHER = 5
_OF_RULES = np.isin(np.arange(16), [int(kind) for kind in _FROM_RULES])
_DECIDES = np.isin(np.arange(256), list(DECIDING))
_HAS_A_LIST = np.isin(np.arange(256), list(STAGES))
_KIND_AT, _KIND = np.uint64(NUMBER_BITS + 8), np.uint64(0xF)

NO_ROWS = FlowTable.of(())

Verdicts = npt.NDArray[np.uint8]
"""Numbers of `_VERDICTS`."""


class Deciding(NamedTuple):
    """The deciding rows: of the lists and their ends, and ahead of the lists."""

    lists: FlowTable
    lifted: FlowTable


def deciding(flows: FlowTable) -> Deciding:
    """Sort out the rows of the tables that decide.

    Raises NotEquivalent where another table has a row that is not structure.
    """
    if not len(flows) or _HAS_A_LIST[flows.table].all():
        return Deciding(flows, NO_ROWS)
    inside = _DECIDES[flows.table]
    strange = np.flatnonzero(~inside & (flows.cookie >> np.uint64(NUMBER_BITS) != _HOST >> NUMBER_BITS))
    if len(strange):
        raise _refuse_row(flows, int(strange[0]), "is no part of the pipeline in a table that is")
    ahead = (flows.table == Table.LIFTED) & (kinds(flows) != Kind.STRUCTURE)
    return Deciding(flows.take(inside & ~ahead), flows.take(ahead))


def kinds(flows: FlowTable) -> U64:
    """Return each row's kind (`Kind`), from its cookie."""
    return flows.cookie >> _KIND_AT & _KIND


def kind_of(cookie: int) -> int:
    """Return the kind in one row's cookie."""
    return cookie >> NUMBER_BITS + 8 & 0xF


def is_of_rules(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Return which rows belong to rules or return traffic.

    The others end lists and tables.
    """
    found: npt.NDArray[np.bool_] = _OF_RULES[kinds(flows)]
    return found


def is_a_rules(cookie: int) -> bool:
    """Whether one row's cookie is of a rule."""
    return kind_of(cookie) in _FROM_RULES


def checked_rows(flows: FlowTable, chain: Chain) -> Items:
    """Return the items of a chain's rules: with its tenant, register and priorities.

    Raises NotEquivalent. Their matches and verdicts are still to be checked (`verdicts`).
    """
    decoded = decode(flows)
    _require(flows, flows.tenant == chain.tenant, "bears another tenant's number", chain)
    for table in sorted({*flows.table.tolist()}):
        stage = STAGES.get(table)
        here = flows.table == table
        if stage is None or (stage.register is None) is bool(chain.tenant):
            raise _refuse_row(flows, int(here.argmax()), "is in a table that has no rules of this list", chain.place)
        asked = _asks(decoded, stage.register, chain.tenant)
        _require(flows, asked | ~here, "does not ask for its tenant in the right register", chain)
    within = (flows.priority >= chain.lowest) & (flows.priority <= chain.highest)
    _require(flows, within, "has a priority that is not a rule's", chain)
    return decoded.items


def check_verdicts(flows: FlowTable, verdicts: Verdicts, chain: Chain) -> None:
    """Hold the rows' instructions to what their rules say. Raises NotEquivalent."""
    used, places = np.unique(flows.instructions, return_inverse=True)  # the set may be of the whole program
    known = np.full((256, len(used) + 1), _NEITHER, np.uint8)
    for table, doings in _doings(chain.tenant).items():
        for number, instructions in enumerate(used.tolist()):
            known[table, number] = doings.get(flows.instruction_set[instructions], _NEITHER)
    done = known[flows.table, places.reshape(-1)]
    _require(flows, done == verdicts, "does not do what its rule says", chain)


@lru_cache(maxsize=1024)
def _doings(tenant: int) -> Mapping[int, Mapping[bytes, int]]:
    """Map each table's instructions to the verdict they mean for a tenant."""
    found: dict[int, dict[bytes, int]] = {
        table: {stage.does(action, tenant, log=log): verdict for (action, log), verdict in _VERDICTS.items()}
        for table, stage in STAGES.items()
    }
    found[Table.INGRESS][STAGES[Table.INGRESS].does(Action.PERMIT, tenant, limited=True)] = _LIMITED
    return found


def verdicts(rules: Iterable[Rule]) -> Verdicts:
    """Return each rule's verdict and whether it reports packets."""
    return np.array([_number_verdict(rule) for rule in rules], np.uint8)


def _number_verdict(rule: Rule) -> int:
    return _LIMITED if is_limited(rule) else _VERDICTS[rule.action, rule.log]


def check_verdict(flows: FlowTable, row: int, rule: Rule, chain: Chain) -> None:
    """Hold one row's instructions to what its rule says. Raises NotEquivalent."""
    done = flows.instruction_set[flows.instructions[row]]
    if _doings(chain.tenant)[int(flows.table[row])].get(done) != _number_verdict(rule):
        raise _refuse_row(flows, row, "does not do what its rule says", chain.place)


def check_ends(flows: FlowTable, wanted: Sequence[tuple[int, Ends]], place: str) -> None:
    """Hold rows to be exactly the `wanted` ones (cookie, row). Raises NotEquivalent."""
    decoded = decode(flows)
    left: dict[tuple[int, Ends], int] = dict.fromkeys(wanted, 1)
    for row in range(len(flows)):
        found = _end(flows, decoded, row)
        if found is None or not left.pop(found, 0):
            raise _refuse_row(flows, row, "is not one that ends a list or a table", place)
    if left:
        (cookie, missing), *_ = left
        raise NotEquivalent(
            f"the row of table {missing.table} at priority {missing.priority} (cookie {cookie:#x}) is missing",
            place=place,
        )


def standing() -> list[tuple[int, Ends]]:
    """The rows of the tables that decide which belong to nobody."""
    return [(_HOST, each) for each in STANDING]


def _end(flows: FlowTable, decoded: Decoded, row: int) -> tuple[int, Ends] | None:
    """A row that matches nothing but at most one register; None if it matches more."""
    item, registers = decoded.items[row], decoded.registers[row]
    matched = np.flatnonzero(registers["mask"]).tolist()
    if not _matches_everything(item) or len(matched) > 1:
        return None
    asked = [(number, int(registers["value"][number]), int(registers["mask"][number])) for number in matched]
    flow = flows.row(row)
    return flow.cookie, Ends(flow.table, flow.priority, asked[0] if asked else None, flow.instructions)


def _matches_everything(item: Any) -> bool:
    small = [(int(item["small_low"][axis]), int(item["small_high"][axis])) for axis in (PROTOCOL, FAMILY)]
    return (
        small == [(0, 255)] * 2
        and not item["low"].any()
        and bool((item["high"] == np.uint64(0xFFFFFFFFFFFFFFFF)).all())
        and not item["port_low"].any()
        and bool((item["port_high"] == 0xFFFF).all())
        and (int(item["small_low"][1]), int(item["small_high"][1])) == (0, 1)
        and not item["word"].any()
    )


def _asks(decoded: Decoded, register: int | None, tenant: int) -> npt.NDArray[np.bool_]:
    """Return which rows match a tenant in one register and nothing of the others.

    None: nothing of any.
    """
    wanted = _register_words(register, tenant)
    found: npt.NDArray[np.bool_] = (decoded.registers.view(np.uint32).reshape(-1, len(wanted)) == wanted).all(axis=1)
    return found


@lru_cache(maxsize=1024)
def _register_words(register: int | None, tenant: int) -> npt.NDArray[np.uint32]:
    """One of `REGISTERS`, as words."""
    wanted = np.zeros(1, REGISTERS)
    if register is not None:
        wanted["mask"][0, register], wanted["value"][0, register] = _ALL_32, tenant
    return wanted.view(np.uint32)


def items_by_cookie(flows: FlowTable, chain: Chain) -> Mapping[int, Items]:
    """Read few rows of a chain's rules as items, by cookie. Raises NotEquivalent."""
    if not len(flows):
        return {}
    items = checked_rows(flows, chain)
    found: dict[int, list[int]] = {}
    for row, cookie in enumerate(flows.cookie.tolist()):
        found.setdefault(cookie, []).append(row)
    return {cookie: items[rows] for cookie, rows in found.items()} if len(found) > 1 else dict.fromkeys(found, items)


def _require(flows: FlowTable, holds: npt.NDArray[np.bool_], what: str, chain: Chain) -> None:
    """Refuse the first row for which something does not hold. Raises NotEquivalent."""
    if not holds.all():
        raise _refuse_row(flows, int(holds.argmin()), what, chain.place)


def _refuse_row(flows: FlowTable, row: int, what: str, place: str | None = None) -> NotEquivalent:
    flow = flows.row(row)
    text = f"table {flow.table}, priority {flow.priority}, cookie {flow.cookie:#x}, match {flow.match.hex()}"
    return NotEquivalent(f"the flow entry of {text} {what}", place=place)


def places_of(cookies: U64, among: U64, flows: FlowTable, place: str) -> npt.NDArray[np.intp]:
    """Return each row's link of the chain.

    Raises NotEquivalent for a row of none.
    """
    order = np.argsort(among, kind="stable")
    ordered = among[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise NotEquivalent("two rules of a list bear the same number", place=place)
    at = np.searchsorted(ordered, cookies)
    at[at == len(ordered)] = 0
    known = ordered[at] == cookies if len(ordered) else np.zeros(len(cookies), np.bool_)
    if not known.all():
        raise _refuse_row(flows, int(known.argmin()), "is of no rule of the list", place)
    return order[at]
