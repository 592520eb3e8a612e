"""Lifted rules in both databases: settings under a version, rounds that are had once, wishes, what goes with a rule."""

from __future__ import annotations

import datetime as dt

import pytest
from store.scenes import acl, populate, rule

from orchestrator.errors import NotFound, Stale
from orchestrator.placement.choice import Algorithm, Choice, Settings, Verdict, Wish
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import RuleId, TenantId
from orchestrator.store import Store
from orchestrator.store.placements import Stands
from orchestrator.store.unit import Unit

WEB, DNS = (LiftedRule(TenantId("blue"), RuleId(name)) for name in ("web", "dns"))
NOTHING = Choice((), (), (), 0.5, 0.25)


@pytest.fixture(autouse=True)
def _blue(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("web"), rule("dns", 53)), author="test")


def lifting(*rules: LiftedRule) -> Choice:
    return Choice(tuple(Verdict(each, "busy", 123.4) for each in rules), (), (), 0.5, 0.25)


def decide(store: Store, choice: Choice) -> None:
    """A round, and what the compiler says after it: that every rule has a form."""
    with store.write() as unit:
        assert unit.placements.decide("pop", choice, unit.placements.settings("pop").since)
        settle(unit)


def settle(unit: Unit, *formless: LiftedRule) -> None:
    snapshot = unit.domains.policy("pop")
    outcome = [
        Stands(each, each not in formless, "it is shadowed" if each in formless else "") for each in snapshot.lifted
    ]
    unit.placements.settle("pop", snapshot, outcome)


def listed(store: Store) -> dict[str, tuple[bool, bool]]:
    """By rule: whether it is wanted above its list, and whether it stands there."""
    with store.read() as unit:
        return {each.rule.rule: (each.wanted, each.lifted is not None) for each in unit.placements.list("pop")}


def test_settings_have_defaults_and_versions(store: Store) -> None:
    with store.read() as unit:
        seen = unit.placements.settings("pop")
        created = unit.domains.get("pop").created
    assert (seen.version, seen.settings, seen.since, seen.idle_share) == (1, Settings(), created, None)
    paper = Settings(Algorithm.PAPER, interval_s=60.0, as_printed=True)
    with store.write() as unit:
        assert unit.placements.set_settings("pop", paper, expected_version=1) == 2
        assert unit.placements.set_settings("pop", paper) == 2
        assert unit.generations == {}, "how rules are chosen is in no program"
    with store.write() as unit, pytest.raises(Stale):
        unit.placements.set_settings("pop", Settings(), expected_version=1)
    with store.read() as unit:
        assert unit.placements.settings("pop").settings == paper
        assert [(domain, state.version) for domain, state in unit.placements.every_domain()] == [("pop", 2)]
        with pytest.raises(NotFound):
            unit.placements.settings("nowhere")


def test_a_round_is_had_once(store: Store) -> None:
    with store.read() as unit:
        since = unit.placements.settings("pop").since
    with store.write() as unit:
        assert unit.placements.decide("pop", lifting(WEB), since)
        assert list(unit.generations) == ["pop"]
    with store.write() as unit:
        assert not unit.placements.decide("pop", lifting(DNS), since)
    with store.read() as unit:
        seen = unit.placements.settings("pop")
        assert seen.since > since
        assert (seen.idle_share, seen.never_used_share) == (0.5, 0.25)
        assert unit.domains.policy("pop").lifted == (WEB,)
        (placement,) = unit.placements.list("pop")
        assert (placement.because, placement.saves_us_per_s, placement.lifted) == ("busy", 123, None)


def test_a_round_that_moves_nothing_moves_no_generation(store: Store) -> None:
    with store.write() as unit:
        assert unit.placements.decide("pop", NOTHING, unit.placements.settings("pop").since)
        assert unit.generations == {}


def test_the_snapshot_follows_lists_and_lifts(store: Store) -> None:
    decide(store, lifting(WEB, DNS))
    with store.read() as unit:
        before = unit.domains.policy("pop")
    assert (before.lifted, before.standing) == ((DNS, WEB), {DNS, WEB})
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("web"), rule("dns", 5353)), author="test")
        assert unit.domains.policy("pop").lifted == (DNS, WEB), "an edit of a list leaves them as they are"
    with store.write() as unit:
        unit.placements.wish("pop", WEB, Wish.FORBIDDEN)
        after = unit.domains.policy("pop")
    assert (after.lifted, after.standing) == ((DNS,), {DNS, WEB})


def test_what_has_no_form_is_wanted_no_more_unless_it_is_pinned(store: Store) -> None:
    decide(store, lifting(WEB))
    with store.write() as unit:
        unit.placements.wish("pop", DNS, Wish.PINNED)
        settle(unit, WEB, DNS)
    assert listed(store) == {"dns": (True, False)}
    with store.read() as unit:
        (placement,) = unit.placements.list("pop")
        told = [each for each in unit.events.since(0, limit=100).events if each.kind.startswith("placement.")]
    assert placement.because == "it is shadowed"
    assert [(each.kind, each.detail["because"], each.detail.get("saves_us_per_s")) for each in told] == [
        ("placement.lifted", "busy", 123),
        ("placement.lowered", "it is shadowed", None),
    ]


def test_a_wish_takes_the_choosers_place_and_gives_it_back(store: Store) -> None:
    decide(store, lifting(WEB))
    with store.write() as unit:
        placement = unit.placements.wish("pop", WEB, Wish.PINNED)
        assert placement is not None
        assert (placement.wanted, placement.chosen) == (True, None)
        assert unit.generations == {}, "it was wanted, and is"
    decide(store, Choice((), (Verdict(WEB, "cooled"),), (), 0.0, 0.0))
    assert listed(store) == {"web": (True, True)}, "the chooser has no say while the operator has"
    with store.write() as unit:
        assert unit.placements.wish("pop", WEB, None) is not None
        settle(unit)
    assert listed(store) == {}


def test_placements_go_with_their_tenant_and_their_domain(store: Store) -> None:
    decide(store, lifting(WEB))
    with store.write() as unit:
        unit.tenants.delete("blue")
    assert listed(store) == {}
    with store.write() as unit:
        unit.placements.set_settings("pop", Settings(Algorithm.OFF))
        unit.domains.delete("pop")
        assert unit.placements.every_domain() == ()


def test_tenants_learn_which_of_their_rules_are_lifted(store: Store) -> None:
    decide(store, lifting(WEB))
    with store.read() as unit:
        lifted = unit.placements.lifted_of("blue")
        assert list(lifted) == ["web"]
        assert unit.now - lifted[RuleId("web")] < dt.timedelta(minutes=1)


def test_a_round_passes_over_rules_that_are_gone(store: Store) -> None:
    gone = LiftedRule(TenantId("blue"), RuleId("gone"))
    nobody = LiftedRule(TenantId("nobody"), RuleId("web"))
    decide(store, lifting(gone, nobody, WEB))
    assert listed(store) == {"web": (True, True)}
    with store.write() as unit, pytest.raises(NotFound):
        unit.placements.wish("pop", gone, Wish.PINNED)
