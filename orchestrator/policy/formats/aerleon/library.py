"""The `aerleon` library, held at arm's length: a policy's text in, plain values out.

The library keeps its state in globals, logs what it ignores, prints the characters that it skips, and opens files. Here
it is given texts only; whatever it would pass over in silence is an error; and one policy is parsed at a time.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from orchestrator.errors import AclflowError, BadInput
from orchestrator.extras import needs_extra
from orchestrator.policy.formats.aerleon.definitions import naming_of
from orchestrator.policy.formats.assemble import shown

_READ = {
    *(
        "name",
        "action",
        "protocol",
        "protocol_except",
        "icmp_type",
        "icmp_code",
        "option",
        "platform",
        "platform_exclude",
    ),
    *("source_address", "destination_address", "address", "source_address_exclude", "destination_address_exclude"),
    *(
        "address_exclude",
        "source_port",
        "destination_port",
        "port",
        "restrict_address_family",
        "expiration",
        "verbatim",
    ),
}
_DECIDES_NOTHING = {
    *("comment", "owner", "counter", "logging", "log_limit", "log_name", "traffic_class_count", "dscp_set"),
    *("translated", "flattened", "flattened_addr", "flattened_saddr", "flattened_daddr"),
}
_HARMLESS = re.compile(r"Term \S+ has service \S+ which is not defined with protocol")
"""A warning that the same service is matched under another protocol too, as the generators do."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term. Addresses are prefixes as text, ports are pairs of ends, both included.

    `others`: what it says besides, by the library's names; `verbatim`: the platforms for which it brings lines.
    """

    name: str
    actions: tuple[str, ...]
    protocols: tuple[str, ...]
    protocols_except: tuple[str, ...]
    addresses: Mapping[str, tuple[str, ...]]
    ports: Mapping[str, tuple[tuple[int, int], ...]]
    icmp_types: tuple[str, ...]
    icmp_codes: tuple[int, ...]
    options: tuple[str, ...]
    platforms: tuple[str, ...]
    platforms_except: tuple[str, ...]
    family: str | None
    expiration: dt.date | None
    comment: str
    log: bool
    verbatim: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A header's targets, by platform with their options, and the terms below it."""

    targets: tuple[tuple[str, tuple[str, ...]], ...]
    terms: tuple[Term, ...]


def parse_pol(text: str, definitions: Mapping[str, str]) -> tuple[Filter, ...]:
    """Parse a `.pol` text whose includes are already inserted.

    Raises BadInput, and Missing without the library.
    """
    return _parse_policy(lambda policy: policy.ParsePolicy(text, naming_of(definitions, {}), False))


def parse_document(document: Any, definitions: Mapping[str, str]) -> tuple[Filter, ...]:
    """Parse a YAML policy whose includes are already inserted.

    Raises BadInput, and Missing without the library.
    """

    def parse_with(policy: ModuleType) -> object:
        from aerleon.lib.policy_builder import PolicyBuilder  # noqa: PLC0415 - the library is optional

        return policy.FromBuilder(PolicyBuilder(document, naming_of(definitions, document), False, False))

    return _parse_policy(parse_with)


def _parse_policy(work: Callable[[Any], Any]) -> tuple[Filter, ...]:
    policy = _import_library()
    try:
        with _nothing_ignored(policy):
            found = work(policy)
            empty = policy.Term([])
            return tuple(_make_filter(header, terms, vars(empty)) for header, terms in found.filters)
    except AclflowError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises whatever its code happens to stumble over
        raise BadInput(f"aerleon cannot read it: {shown(str(error) or type(error).__name__)}") from None


def _import_library() -> Any:
    with needs_extra("aerleon", "reading a policy of Aerleon"):
        from aerleon.lib import policy  # noqa: PLC0415 - the library is optional
    return policy


@contextmanager
def _nothing_ignored(policy: Any) -> Iterator[None]:
    """Raise BadInput inside this context for everything that the library only logs or prints."""
    from absl import logging  # noqa: PLC0415 - comes with the library

    warnings: list[str] = []

    def take_record(record: Any) -> bool:
        warnings.append(str(record.getMessage()))
        return False

    def refuse_token(token: Any) -> None:
        raise BadInput(f"{token.value[0]!r} means nothing here", place=f"line {token.lineno}")

    logger, skip = logging.get_absl_logger(), policy.t_error
    logger.addFilter(take_record)
    policy.t_error = refuse_token
    try:
        yield
    finally:
        logger.removeFilter(take_record)
        policy.t_error = skip
    serious = [warning for warning in warnings if not _HARMLESS.match(warning)]
    if serious:
        raise BadInput(f"aerleon would ignore some of it: {shown(serious[0])}")


def _make_filter(header: Any, terms: Any, defaults: Mapping[str, object]) -> Filter:
    targets = tuple((target.platform, tuple(map(str, target.options or ()))) for target in header.target)
    return Filter(targets, tuple(_make_term(term, defaults) for term in terms))


def _make_term(term: Any, defaults: Mapping[str, object]) -> Term:
    known = _READ | _DECIDES_NOTHING
    return Term(
        name=str(term.name),
        actions=_make_texts(term.action),
        protocols=_make_texts(term.protocol),
        protocols_except=_make_texts(term.protocol_except),
        addresses={key: _make_texts(getattr(term, key)) for key in _READ if "address" in key and key != _FAMILY},
        ports={key: tuple(getattr(term, key)) for key in ("source_port", "destination_port", "port")},
        icmp_types=_make_texts(term.icmp_type),
        icmp_codes=tuple(map(int, term.icmp_code)),
        options=_make_texts(term.option),
        platforms=_make_texts(term.platform),
        platforms_except=_make_texts(term.platform_exclude),
        family=None if term.restrict_address_family is None else str(term.restrict_address_family),
        expiration=_read_date(term.expiration),
        comment=" ".join(_make_texts(term.comment)),
        log=any(str(word).lower() not in ("disable", "false") for word in term.logging),
        verbatim=tuple(str(platform) for platform, _ in term.verbatim),
        others=tuple(key for key, value in vars(term).items() if key not in known and value != defaults[key]),
    )


_FAMILY = "restrict_address_family"


def _make_texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


def _read_date(value: object) -> dt.date | None:
    if value is None or isinstance(value, dt.date):
        return value
    return dt.date.fromisoformat(str(value))
