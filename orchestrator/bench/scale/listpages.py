"""Pages and searches of a large domain's lists, hits and events, over HTTPS.

A whole service is started on a world's database (`scaledomain.py`), to which counts of every rule and events of every
tenant are added before. The first search of a service that was just started is measured once; every page and search is
read once to warm up, then some times more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.bench.scale.scaledomain import AT_ONCE, DOMAIN, Size, address_store, name_tenant
from orchestrator.bench.scale.serviceprocesses import WholeService, make_authority, make_token, start_service
from orchestrator.client.transport import Asked, Transport, trust_of
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.program.counts import Counts
from orchestrator.program.program import Tier
from orchestrator.store import open_store
from orchestrator.store.hits.history import HitHistory

_EVENTS = 5
"""So many events of each tenant there are."""
_TIMES = 5
_READY_WITHIN_S = 900.0
_PATIENCE_S = 120.0

Asking = tuple[str, Mapping[str, Asked]]
"""A path, and the parameters of a request."""


@dataclass(frozen=True, slots=True)
class PageCost:
    """Milliseconds of a page and a search: of each kind the slowest request's median.

    `first_search_s` is the first search of a service that was just started, for a part of a rule's name.
    """

    page_lists_ms: float
    page_hits_ms: float
    page_events_ms: float
    search_lists_ms: float
    search_hits_ms: float
    search_events_ms: float
    first_search_s: float


def measure(folder: Path, size: Size) -> PageCost:
    """Measure with the database that a world left in a folder.

    Raises Unreachable where the service does not start or answer.
    """
    url = address_store(folder)
    _add_history(url, size)
    make_authority(folder)
    with start_service(folder, url, within_s=_READY_WITHIN_S) as service:
        reader = _Reader(service, make_token(url))
        try:
            first_search_s = reader.time_request(_search_names("none-such"))
            pages, searches = _list_pages(size), _list_searches(size)
            return PageCost(
                page_lists_ms=reader.find_slowest_ms(pages["lists"]),
                page_hits_ms=reader.find_slowest_ms(pages["hits"]),
                page_events_ms=reader.find_slowest_ms(pages["events"]),
                search_lists_ms=reader.find_slowest_ms(searches["lists"]),
                search_hits_ms=reader.find_slowest_ms(searches["hits"]),
                search_events_ms=reader.find_slowest_ms(searches["events"]),
                first_search_s=first_search_s,
            )
        finally:
            reader.close()


def _add_history(url: str, size: Size) -> None:
    """Add events of every tenant and counts of every rule to a world's database."""
    store = open_store(url)
    try:
        for first in range(0, size.tenants, AT_ONCE):
            with store.write() as unit:
                for number in range(first, min(first + AT_ONCE, size.tenants)):
                    for turn in range(_EVENTS):
                        unit.events.append("rule.changed", name_tenant(number), {"rule": f"r{turn}", "version": 1})
        with store.write() as unit:
            rules = np.arange(1, size.tenants * size.rules + 1)
            cookies = rules.astype(np.uint64) | np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())
            counts = Counts(cookies, rules % 1000 + 1, rules * 100, np.zeros_like(rules), rules)
            HitHistory(unit.transaction, DOMAIN).append(counts)
    finally:
        store.close()


class _Reader:
    """Reads pages of a service, and times that."""

    def __init__(self, service: WholeService, token: str) -> None:
        self._transport = Transport(service.url, token, _PATIENCE_S, None, trust_of(service.authority))

    def close(self) -> None:
        """Give the connections back."""
        self._transport.close()

    def time_request(self, asking: Asking) -> float:
        """Return the seconds until a page is there."""
        path, query = asking
        started = time.perf_counter()
        self._transport.read(path, **query)
        return time.perf_counter() - started

    def find_slowest_ms(self, askings: Iterable[Asking]) -> float:
        """Return the median time of the slowest request, each made once before it is timed."""
        return max(map(self._find_median_ms, askings))

    def _find_median_ms(self, asking: Asking) -> float:
        self.time_request(asking)
        return statistics.median(self.time_request(asking) for _ in range(_TIMES)) * 1000


def _list_pages(size: Size) -> Mapping[str, list[Asking]]:
    """Return first, middle and newest pages by what they show."""
    middle = name_tenant(size.tenants // 2)
    in_the_middle = size.tenants * _EVENTS // 2
    sorts = ("list", "rate", "packets", "bytes", "last_hit")
    return {
        "lists": [
            ("/v1/tenants", {}),
            ("/v1/tenants", {"marker": middle}),
            (f"/v1/tenants/{middle}/acl/rules", {}),
            (f"/v1/tenants/{middle}/acl/rules", {"marker": f"r{size.rules // 2}"}),
            (f"/v1/tenants/{middle}/acl/versions", {}),
            (f"/v1/domains/{DOMAIN}/endpoints", {}),
            (f"/v1/domains/{DOMAIN}/endpoints", {"marker": "e5"}),
        ],
        "hits": [
            *((f"/v1/domains/{DOMAIN}/hits", {"sort": sort}) for sort in sorts),
            *((f"/v1/tenants/{middle}/acl/hits", {"sort": sort}) for sort in sorts),
        ],
        "events": [
            ("/v1/events", {}),
            ("/v1/events", {"marker": in_the_middle}),
            ("/v1/events", {"newest": True}),
            ("/v1/events", {"newest": True, "marker": in_the_middle}),
        ],
    }


def _list_searches(size: Size) -> Mapping[str, list[Asking]]:
    """Return searches by what they look through: for few, for many and for none."""
    middle = name_tenant(size.tenants // 2)
    parts = ("none-such", f"r{size.rules * 3 // 4}", "r1", "r", middle)
    return {
        "lists": [
            (f"/v1/tenants/{middle}/acl/rules", {"find": words})
            for words in ("tcp", ":1000", "192.1.0.1", "deny", "none-such")
        ],
        "hits": [_search_names(part, sort) for part in parts for sort in ("rate", "packets", "list")],
        "events": [
            ("/v1/events", {"tenant": middle}),
            ("/v1/events", {"tenant": middle, "newest": True}),
        ],
    }


def _search_names(part: str, sort: str = "rate") -> Asking:
    """Return the search of a domain's rules for a part of a name."""
    return f"/v1/domains/{DOMAIN}/hits", {"contains": part, "sort": sort}
