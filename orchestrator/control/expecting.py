"""Hold tenants' lists to expectations, on request and before each commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.control.workbench import read_list
from orchestrator.errors import BadInput, BadPolicy, NotFound, TooLarge
from orchestrator.policy.cover import Limits
from orchestrator.policy.describe import judged_expectations
from orchestrator.policy.expectations import Expectation, Outcome, Setting, judge, newly_broken
from orchestrator.policy.expectationtext import Expectations, read_expectations
from orchestrator.policy.model import Acl
from orchestrator.policy.ownership import check_ownership
from orchestrator.store.unit import Unit
from orchestrator.wire.expectations import JudgedExpectation

IN_COMMIT = Limits(question=400_000, total=20_000_000)
"""Work for the expectations of one commit, some tenths of a second: other writes wait meanwhile."""

KEPT = "expectations"
"""How places name the text that a tenant keeps."""


def setting_of(unit: Unit, tenant: str, found: Expectations) -> Setting:
    """Return a list's setting: prefixes, endpoints by name, operator rules.

    Raises NotFound.

    Names that the text itself explains come first.
    """
    owner = unit.tenants.get(tenant)
    policy = unit.domains.policy(owner.domain).policy
    endpoints = {each.name: each.prefixes for each in policy.endpoints if each.tenant == tenant}
    return Setting(owner.prefixes, {**endpoints, **found.names}, policy.operator, policy.return_traffic)


@dataclass(frozen=True, slots=True)
class Question:
    """A list, and its expectations.

    `text` is a list in its native form that was sent.
    """

    sentences: tuple[Expectation, ...]
    setting: Setting
    acl: Acl
    text: bytes | None = None


def answer(question: Question) -> tuple[JudgedExpectation, ...]:
    """How a list fares, for the workbench. Raises BadInput, BadPolicy, TooLarge."""
    acl = question.acl
    if question.text is not None:
        acl = read_list(question.text)
        check_ownership(acl, question.setting.own)
    return judged_expectations(judge(question.sentences, acl, question.setting))


def check_readable(unit: Unit, tenant: str, text: str) -> None:
    """Refuse expectations that cannot be held against the list as it is. Raises BadInput, TooLarge."""
    found = read_expectations(text, KEPT)
    judge(found.sentences, unit.acls.current(tenant).acl, setting_of(unit, tenant, found), IN_COMMIT)


def broken_by(unit: Unit, tenant: str, version: int) -> Sequence[Outcome]:
    """Return kept expectations that a version breaks and its predecessor did not.

    Raises BadInput where one of them cannot be judged any more, TooLarge where it is too much work.
    """
    text = unit.expectations.get(tenant).text
    if not text:
        return ()
    found = read_expectations(text, KEPT)
    setting, after = setting_of(unit, tenant, found), unit.acls.current(tenant).acl
    try:
        before = unit.acls.at(tenant, version - 1).acl
    except NotFound:
        return [each for each in judge(found.sentences, after, setting, IN_COMMIT) if not each.kept]
    return newly_broken(found.sentences, before, after, setting, IN_COMMIT)


def refuse_broken(unit: Unit, tenant: str, version: int) -> None:
    """Refuse a change that breaks a kept expectation, with the packet.

    Also one that leaves an expectation that cannot be judged.

    Raises BadPolicy.
    """
    try:
        broken = broken_by(unit, tenant, version)
    except (BadInput, TooLarge) as error:
        raise BadPolicy(
            f"what is expected of the list cannot be judged any more ({error}). Change the expectation, or write it "
            "with `despite_expectations`",
            place=f"tenants[{tenant}].acl.expectations",
        ) from None
    if not broken:
        return
    first = judged_expectations(broken[:1])[0]
    step = first.decided[-1]
    more = f"; {len(broken) - 1} more are broken" if len(broken) > 1 else ""
    raise BadPolicy(
        f"it breaks the expectation `{first.text}` ({first.place}): {first.witness} would get "
        f"{step.action} by {f'rule {step.rule!r}' if step.rule else 'the default'}{more}. Change the list or the "
        "expectation, or write it with `despite_expectations`",
        place=f"tenants[{tenant}].acl.expectations",
    )
