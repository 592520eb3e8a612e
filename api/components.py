"""The published names of OpenAPI's components, which outlive our classes' names.

Generated clients know them.
"""

from __future__ import annotations

import re
from typing import Any

NAMES = {
    "AclVersion": "VersionBody",
    "Authority": "AuthorityBody",
    "CapacityVersion": "CapacityBody",
    "CapacityVersions": "CapacityList",
    "Certificate": "CertificateBody",
    "Cost": "CostBody",
    "Domain": "DomainBody",
    "EndpointSeen": "EndpointBody",
    "Enforced": "GenerationBody",
    "Enforcer": "EnforcerBody",
    "EnrolmentGroup": "GroupBody",
    "Event": "EventBody",
    "Events": "EventsBody",
    "Firewall": "FirewallBody",
    "FirewallCost": "FirewallCostBody",
    "Fleet": "FleetBody",
    "FleetDecision": "DecisionBody",
    "FleetMember": "MemberBody",
    "FleetSample": "SampleBody",
    "FleetSamples": "Samples",
    "Group": "AddressGroupBody",
    "HitStretch": "StretchBody",
    "HitSummary": "SummaryBody",
    "Hits": "HitsBody",
    "Lagging": "LaggardBody",
    "Lapse": "LapseBody",
    "Limits": "LimitsBody",
    "ListCost": "ListCostBody",
    "MachineOnboarding": "OnboardingBody",
    "NewToken": "NewTokenBody",
    "OwnedPrefixes": "PrefixesBody",
    "Prediction": "PredictionBody",
    "Quota": "QuotaBody",
    "RefusedHosts": "CountsTaken",
    "RuleHits": "RuleHitsBody",
    "TcamCost": "TcamCostBody",
    "Tenant": "TenantBody",
    "Token": "TokenBody",
    "Unused": "UnusedBody",
    "Used": "UsedBody",
    "VerdictStretch": "VerdictStretchBody",
}
"""The component of each document whose class has another name."""

_REFERENCE = "#/components/schemas/"
_PAGE = re.compile(r"Page_(\w+)_")


def rename_components(document: dict[str, Any]) -> None:
    """Give an OpenAPI document's components their published names, also where they are referenced."""
    schemas = document["components"]["schemas"]
    for name in NAMES.keys() & schemas.keys():
        schemas[name]["title"] = NAMES[name]
    for name in schemas:
        if page := _PAGE.fullmatch(name):
            schemas[name]["title"] = f"Page[{_known_name(page[1])}]"
    document["components"]["schemas"] = {_known_name(name): schema for name, schema in schemas.items()}
    _rename_references(document)


def _known_name(name: str) -> str:
    page = _PAGE.fullmatch(name)
    return f"Page_{_known_name(page[1])}_" if page else NAMES.get(name, name)


def _rename_references(part: Any) -> None:
    for key, each in part.items() if isinstance(part, dict) else enumerate(part):
        if key == "$ref":
            part[key] = _REFERENCE + _known_name(each.removeprefix(_REFERENCE))
        elif isinstance(each, dict | list):
            _rename_references(each)
