"""A commit that another person must approve, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from orchestrator.bootstrap import create_token
from orchestrator.client.proposals import ProposedAbout
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.settings import Settings
from orchestrator.store.records import Role

from .conftest import SHOP, Look
from .test_confirming import remove_dns

_ABOUT = ProposedAbout(tenant="shop")


def test_a_commit_of_a_marked_list_is_proposed(look: Look) -> None:
    town = look.town
    another = create_token(Settings(state_dir=town.directory), Role.ADMIN).secret
    with town.client() as one, town.client(another) as other:
        one.put_acl("shop", acl_from_json(SHOP))
        domain = one.tenant("shop").domain
        one.set_approvals(domain, operator_rules=False, tenants=["shop"])
        try:
            look.sign_in(town.member)
            look.open("/project/shop/acl")
            remove_dns(look.page)
            look.page.get_by_role("button", name="Commit", exact=True).click()
            expect(look.page.get_by_role("dialog").get_by_text("nothing has changed yet")).to_be_visible()
            assert "dns" in [rule.id for rule in one.rules("shop")]
            (made,) = [each for each in one.proposals(_ABOUT) if each.state == "open"]
            expect(look.page.get_by_text(f"aclflow proposal approve shop {made.id[:8]}")).to_be_visible()
            other.approve_proposal(_ABOUT, made.id)
            assert "dns" not in [rule.id for rule in one.rules("shop")]
        finally:
            unmark = one.set_approvals(domain, operator_rules=False, tenants=[]).proposal
            assert unmark is not None
            other.approve_proposal(ProposedAbout(domain=domain), unmark.id)
            one.put_acl("shop", acl_from_json(SHOP))
