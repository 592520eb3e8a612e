"""The console's places as data: paths, titles, and the menu's order."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from orchestrator.wire.enrolment import Token


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the tree. `path` may name ``{tenant}``: the project that was picked."""

    key: str
    title: str
    icon: str
    path: str
    in_tree: bool = True
    """Whether the tree leads there; to others, pages do."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the tree, and who sees it."""

    title: str
    places: tuple[Place, ...]
    only_admins: bool = False


SECTIONS = (
    Section(
        "Project",
        (
            Place("overview", "Overview", "space_dashboard", "/project/{tenant}"),
            Place("acl", "Access list", "list_alt", "/project/{tenant}/acl"),
            Place("review", "Review and commit", "publish", "/project/{tenant}/review", in_tree=False),
            Place("trace", "Trace a packet", "route", "/project/{tenant}/trace"),
            Place("check", "Check", "fact_check", "/project/{tenant}/check"),
            Place("expectations", "Expectations", "rule", "/project/{tenant}/expectations"),
            Place("draft", "A shared draft", "share", "/project/{tenant}/draft", in_tree=False),
            Place("hits", "Hits", "bar_chart", "/project/{tenant}/hits"),
            Place("packets", "Packet log", "receipt_long", "/project/{tenant}/packets"),
            Place("groups", "Address groups", "workspaces", "/project/{tenant}/groups"),
            Place("history", "History", "history", "/project/{tenant}/history"),
            Place("proposals", "Approvals", "how_to_reg", "/project/{tenant}/approvals"),
        ),
    ),
    Section(
        "Admin",
        (
            Place("status", "Home", "monitor_heart", "/admin"),
            Place("topology", "Topology", "hub", "/admin/topology"),
            Place("domains", "Domains and enforcers", "dns", "/admin/domains"),
            Place("operator-rules", "Operator rules", "gavel", "/admin/operator-rules"),
            Place(
                "operator-review",
                "Review operator rules",
                "publish",
                "/admin/operator-rules/review",
                in_tree=False,
            ),
            Place("domain-proposals", "Approvals", "how_to_reg", "/admin/approvals"),
            Place("placement", "Placement", "vertical_align_top", "/admin/placement"),
            Place("firewalls", "Firewalls and scaling", "security", "/admin/firewalls"),
            Place("edge", "Edge", "settings_input_component", "/admin/edge"),
            Place("events", "Events", "notifications", "/admin/events"),
        ),
        only_admins=True,
    ),
    Section(
        "Identity",
        (
            Place("tenants", "Tenants", "groups", "/identity/tenants"),
            Place("tokens", "Tokens", "key", "/identity/tokens"),
        ),
        only_admins=True,
    ),
)


def sections_for(who: Token) -> tuple[Section, ...]:
    """Return the sections that a bearer sees."""
    return tuple(section for section in SECTIONS if who.role == "admin" or not section.only_admins)


def path_of(key: str, tenant: str | None = None) -> str:
    """The path of a place. A place of a project needs its tenant."""
    place = next(place for section in SECTIONS for place in section.places if place.key == key)
    return place.path.replace("{tenant}", tenant or "")


def approvals_path(domain: str, tenant: str | None) -> str:
    """Return the path of the proposals page of a tenant's list or a domain.

    Without a tenant, it is the page of proposals about what is the domain's.
    """
    if tenant is not None:
        return path_of("proposals", quote(tenant, safe=""))
    return f"{path_of('domain-proposals')}?domain={quote(domain, safe='')}"
