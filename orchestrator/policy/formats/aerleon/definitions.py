"""Check the network and service names that a policy uses before the library reads them.

The library passes over values that it does not understand, which would make a deny narrower than it says. Here every
value is looked at: a prefix, a port with its protocol, or a name that is defined.

    .net    RFC1918 = 10.0.0.0/8 172.16.0.0/12     # a value a word; lines go on until the next name
    .svc    WEB = 80/tcp 443/tcp
    .yaml   networks: {RFC1918: {values: [{address: 10.0.0.0/8}, {name: OTHER}]}}
            services: {WEB: [{protocol: tcp, port: 80}, {name: OTHER}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.yaml_text import load_yaml

_NAME = re.compile(r"[-_A-Za-z0-9]+\Z")
_PORTS = re.compile(r"\d{1,5}(-\d{1,5})?/\w+\Z")


def naming_of(definitions: Mapping[str, str], document: Mapping[str, object]) -> Any:
    """Build the library's Naming from definition files and from a document's own definitions.

    `definitions` holds their texts by name.

    Raises BadInput, with the file as its place.
    """
    from aerleon.lib.naming import Naming  # noqa: PLC0415 - the library is optional

    naming = Naming()
    for name, text in sorted(definitions.items()):
        try:
            _add_definitions(naming, name, text)
        except AclflowError as error:
            raise error.within(name) from None
    own = {key: document[key] for key in ("networks", "services") if key in document}
    if own:
        _check_shape(Node(own))
        naming.ParseDefinitionsObject(own, "the policy")
    _check_values(naming)
    return naming


def _add_definitions(naming: Any, name: str, text: str) -> None:
    if name.endswith(".net"):
        naming.ParseNetworkList(text.splitlines())
    elif name.endswith(".svc"):
        naming.ParseServiceList(text.splitlines())
    elif name.endswith((".yaml", ".yml")):
        document = load_yaml(text)
        _check_shape(Node(document))
        naming.ParseDefinitionsObject(document, name)
    else:
        raise BadInput("definitions are read from .net, .svc and .yaml files")


def _check_shape(document: Node) -> None:
    """Refuse what the library would take for nothing."""
    networks, services = document.member("networks"), document.member("services")
    for name, node in _list_members(networks):
        for item in node.needed("values").items():
            _check_item(item, name, ("name", "address", "fqdn"))
    for name, node in _list_members(services):
        for item in node.items():
            _check_item(item, name, ("name", "port"))


def _list_members(node: Node | None) -> Iterable[tuple[str, Node]]:
    if node is None:
        return []
    return [(name, node.needed(name)) for name in node.object()]


def _check_item(item: Node, name: str, keys: tuple[str, ...]) -> None:
    if isinstance(item.value, str):
        return
    if item.member(*keys) is None or item.unknown((*keys, "protocol", "comment")):
        raise item.fault(f"a value of {name[:80]} needs one of {', '.join(keys)}, and nothing that is not known here")


def _check_values(naming: Any) -> None:
    """Refuse values that are neither literals nor defined names, and names that define themselves."""
    for kind, units, plain in (("network", naming.networks, _is_prefix), ("service", naming.services, _is_ports)):
        inner = {name: [item.split("#")[0].strip() for item in unit.items] for name, unit in units.items()}
        for name, values in inner.items():
            for value in values:
                if not (plain(value) or (_NAME.match(value) and value in units)):
                    raise BadInput(f"the {kind} {shown(name)} has a value that is not known: '{shown(value)}'")
        _refuse_circles(kind, inner)


def _refuse_circles(kind: str, inner: Mapping[str, list[str]]) -> None:
    """Refuse names that are defined in a circle.

    Names that stand for values only are removed, step by step; the rest is a circle.
    """
    waiting = {name: {value for value in values if value in inner} for name, values in inner.items()}
    while waiting:
        plain = {name for name, names in waiting.items() if not names & waiting.keys()}
        if not plain:
            raise BadInput(f"the {kind} {shown(min(waiting))} is defined by itself")
        for name in plain:
            del waiting[name]


def _is_prefix(value: str) -> bool:
    try:
        prefix_spans(value, Family.IPV6 if ":" in value else Family.IPV4)
    except AclflowError:
        return False
    return True


def _is_ports(value: str) -> bool:
    return _PORTS.match(value) is not None
