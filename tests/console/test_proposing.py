"""Changes that another person must approve, in a real browser: proposed, looked at, approved, rejected, withdrawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.client.proposals import ProposedAbout
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.settings import Settings
from orchestrator.store.records import Role

from .conftest import SHOP, Look, Town
from .test_accessible import violations
from .test_confirming import remove_dns

_ABOUT, _OF_DOMAIN = ProposedAbout(tenant="shop"), ProposedAbout(domain="pop")
_SHOP = acl_from_json(SHOP)
_WITHOUT_DNS = Acl(tuple(rule for rule in _SHOP.rules if rule.id != "dns"), _SHOP.groups)


@pytest.fixture(scope="module")
def settings(town: Town) -> Settings:
    return Settings(state_dir=town.directory)


@pytest.fixture(scope="module")
def ann(settings: Settings) -> str:
    """Another administrator, who made no token of anybody and whose token nobody else made."""
    return create_token(settings, Role.ADMIN, description="Ann", person="ann").secret


@pytest.fixture(scope="module")
def bob(settings: Settings) -> str:
    return create_token(settings, Role.MEMBER, tenant="shop", person="bob").secret


@pytest.fixture(scope="module")
def carol(settings: Settings) -> str:
    return create_token(settings, Role.MEMBER, tenant="shop", description="Carol", person="carol").secret


@pytest.fixture(autouse=True)
def marked(town: Town, ann: str) -> Iterator[Client]:
    """The list of shop and the operator rules need approval; afterwards nothing does, and nothing waits."""
    with town.client() as one, town.client(ann) as other:
        one.acls.put("shop", _SHOP)
        one.proposals.set_approvals("pop", operator_rules=True, tenants=["shop"])
        yield one
        for about in (_ABOUT, _OF_DOMAIN):
            for each in one.proposals.read_all(about):
                if each.state == "open":
                    other.proposals.reject(about, each.id)
        unmark = one.proposals.set_approvals("pop", operator_rules=False, tenants=[]).proposal
        assert unmark is not None
        other.proposals.approve(_OF_DOMAIN, unmark.id)
        one.acls.put("shop", _SHOP)


def propose(look: Look, token: str, comment: str = "") -> str:
    """Propose the list without the rule `dns`; return the proposal's id."""
    with look.town.client(token) as client:
        made = client.acls.put("shop", _WITHOUT_DNS, comment=comment).proposal
    assert made is not None
    return made.id


def panel(look: Look, proposal: str) -> Locator:
    return look.page.locator(f"[data-proposal='{proposal}']")


def rules(look: Look) -> list[str]:
    with look.town.client() as client:
        return [rule.id for rule in client.acls.read_rules("shop")]


def test_a_commit_of_a_marked_list_is_proposed(look: Look, bob: str, marked: Client) -> None:
    page = look.page
    look.sign_in(bob, "/project/shop/acl")
    remove_dns(page)
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("nothing has changed yet")).to_be_visible()
    assert "dns" in rules(look)
    (made,) = [each for each in marked.proposals.read_all(_ABOUT) if each.state == "open"]
    expect(page.get_by_text(f"aclflow proposal approve shop {made.id[:8]}")).to_be_visible()
    page.get_by_role("button", name="See what waits").click()
    expect(panel(look, made.id)).to_contain_text("It is yours: another person must approve it.")
    expect(panel(look, made.id).get_by_role("button", name="Approve")).to_have_count(0)


def test_an_approver_sees_what_would_change_and_approves_it(look: Look, bob: str, carol: str) -> None:
    page = look.page
    made = propose(look, bob, "the name server moves")
    look.sign_in(carol, "/project/shop")
    page.get_by_role("link", name="Approvals").click()
    shown = panel(look, made)
    for text in ("by bob (member ", "the name server moves", "Closes rule 'dns'", "Newly denied", "198.51.100.53"):
        expect(shown).to_contain_text(text)
    assert violations(look) == []
    look.picture("project-shop-approvals")
    shown.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Approve it").click()
    expect(page.get_by_role("dialog").get_by_text("In force on every host")).to_be_visible()
    assert "dns" not in rules(look)
    page.get_by_role("button", name="Done").click()
    expect(panel(look, made)).to_contain_text("approved")


def test_the_author_sees_without_a_reload_that_and_why_it_was_rejected(look: Look, bob: str, carol: str) -> None:
    made = propose(look, bob)
    look.sign_in(bob, "/project/shop/approvals")
    expect(panel(look, made)).to_contain_text("waits")
    with look.town.client(carol) as client:
        client.proposals.reject(_ABOUT, made, reason="not before Monday")
    expect(panel(look, made)).to_contain_text("rejected")
    expect(panel(look, made)).to_contain_text("not before Monday")
    expect(panel(look, made)).to_contain_text("by Carol (member ")
    assert "dns" in rules(look)


def test_it_is_rejected_with_a_reason_and_withdrawn_by_its_author(look: Look, bob: str, carol: str) -> None:
    page = look.page
    first, second = propose(look, bob), propose(look, carol)
    look.sign_in(carol, "/project/shop/approvals")
    panel(look, first).get_by_role("button", name="Reject").click()
    page.get_by_label("Why? Its author reads it.").fill("too early")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(panel(look, first)).to_contain_text("too early")
    panel(look, second).get_by_role("button", name="Withdraw").click()
    page.get_by_role("button", name="Withdraw it").click()
    expect(panel(look, second)).to_contain_text("withdrawn")
    assert "dns" in rules(look)


def test_one_that_was_overtaken_cannot_be_approved(look: Look, bob: str, carol: str) -> None:
    first, second = propose(look, bob), propose(look, bob)
    look.sign_in(carol, "/project/shop/approvals")
    expect(panel(look, second)).to_contain_text("Newly denied")
    with look.town.client(carol) as client:
        client.proposals.approve(_ABOUT, first)
    expect(panel(look, second)).to_contain_text("There is a newer version than it was made from")
    expect(panel(look, second).get_by_role("button", name="Approve")).to_have_count(0)


def test_a_reader_looks_and_decides_nothing(look: Look, bob: str) -> None:
    made = propose(look, bob)
    look.sign_in(look.town.reader, "/project/shop/approvals")
    expect(panel(look, made)).to_contain_text("by bob")
    expect(panel(look, made).get_by_role("button")).to_have_count(0)


def test_the_maker_of_the_authors_token_is_refused_and_told_why(look: Look) -> None:
    """The operator of the town made the token of dave, so it may have been the operator who proposed."""
    page = look.page
    with look.town.client() as client:
        _, dave = client.tokens.create("member", tenant="shop", person="dave")
    made = propose(look, dave)
    look.sign_in(look.town.admin, "/project/shop/approvals")
    panel(look, made).get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Approve it").click()
    expect(page.get_by_text("another person must approve it").last).to_be_visible()
    look.was_cut_off()
    assert "dns" in rules(look)


def test_an_operator_sees_marks_lists_that_wait_and_approves_operator_rules(look: Look, bob: str, ann: str) -> None:
    page = look.page
    made = propose(look, bob)
    with look.town.client() as client:
        asked = client.domains.set_operator_rules("pop", _WITHOUT_DNS.rules[-1:]).proposal
    assert asked is not None
    look.sign_in(ann, "/admin/approvals")
    expect(
        page.get_by_text("Another person must approve changes of: the operator rules and the lists of shop.")
    ).to_be_visible()
    expect(panel(look, asked.id)).to_contain_text("The operator rules")
    expect(panel(look, asked.id)).to_contain_text("db-out")
    assert violations(look) == []
    panel(look, asked.id).get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Approve it").click()
    expect(page.get_by_role("dialog").get_by_text("In force on every host")).to_be_visible()
    page.get_by_role("button", name="Done").click()
    expect(panel(look, asked.id)).to_contain_text("approved")
    page.get_by_role("link", name="1 change of the list of shop waits for approval").click()
    expect(panel(look, made)).to_contain_text("by bob")
    with look.town.client() as one, look.town.client(ann) as other:
        back = one.domains.set_operator_rules("pop", ()).proposal
        assert back is not None
        other.proposals.approve(_OF_DOMAIN, back.id)
