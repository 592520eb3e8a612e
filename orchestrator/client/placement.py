"""Calls of the client about lifted rules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.client.calls import Calls, domain_path, quote_segment
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, json_of


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule that is lifted, or that the operator wants something of."""

    tenant: str
    rule: str
    wish: str | None
    chosen: dt.datetime | None
    lifted: dt.datetime | None
    because: str
    saves_us_per_s: int | None
    form: str | None
    parts: int
    replies: bool
    no_replies: str

    @classmethod
    def of(cls, body: Json) -> PlacedRule:
        times = {name: dt.datetime.fromisoformat(body[name]) if body[name] else None for name in ("chosen", "lifted")}
        return cls(**{**body, **times})


@dataclass(frozen=True, slots=True)
class PlacementSeen:
    """A domain's lifted rules, and the settings that choose them."""

    settings: Mapping[str, object]
    etag: str
    counting_since: dt.datetime
    idle_share: float | None
    never_used_share: float | None
    rules: tuple[PlacedRule, ...]

    @classmethod
    def of(cls, body: Json) -> PlacementSeen:
        return cls(
            body["settings"],
            f'"{body["version"]}"',
            dt.datetime.fromisoformat(body["counting_since"]),
            body["idle_share"],
            body["never_used_share"],
            tuple(map(PlacedRule.of, body["rules"])),
        )


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of a round for a rule: `move` is lift, lower or stays."""

    move: str
    tenant: str
    rule: str
    because: str
    saves_us_per_s: float | None


class PlacementCalls(Calls):
    """Lifted rules of a domain."""

    def read(self, domain: str) -> PlacementSeen:
        """Return the lifted rules and the reasons.

        Raises NotFound.
        """
        return PlacementSeen.of(self._service.read(f"{domain_path(domain)}/placement"))

    def configure(self, domain: str, settings: Mapping[str, object], *, etag: str = ANY_VERSION) -> None:
        """Set how rules to lift are chosen. Raises BadInput, Stale."""
        self._service.write("PUT", f"{domain_path(domain)}/placement", body=dict(settings), etag=etag)

    def try_settings(self, domain: str, settings: Mapping[str, object] | None = None) -> tuple[Fate, ...]:
        """Return the decision of a round made now.

        Raises BadInput.
        """
        path = f"{domain_path(domain)}/placement/try"
        body = json_of(self._service.write("POST", path, body=None if settings is None else dict(settings)))
        return tuple(Fate(move, **each) for move in ("lift", "lower", "stays") for each in body[move])

    def set_wish(self, domain: str, tenant: str, rule: str, wish: str) -> PlacedRule:
        """Pin a rule above its list, or forbid that it is lifted. Raises NotFound, BadInput."""
        path = f"{domain_path(domain)}/placement/rules/{quote_segment(tenant)}/{quote_segment(rule)}"
        return PlacedRule.of(json_of(self._service.write("PUT", path, body={"wish": wish})))

    def leave_to_chooser(self, domain: str, tenant: str, rule: str) -> None:
        """Take back a wish about a rule. Raises NotFound where nothing was wished."""
        self._service.write(
            "DELETE", f"{domain_path(domain)}/placement/rules/{quote_segment(tenant)}/{quote_segment(rule)}"
        )
