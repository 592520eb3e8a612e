"""Which machines are measured: the groups `bench_clients` and `bench_servers` of an inventory of Ansible's.

An inventory, and none of our own kind, for the machines stand in one already: the one that they were deployed with. It
is read as YAML, or as what `ansible-inventory --list` prints, which has whatever else Ansible reads (INI, scripts,
plugins, group_vars). Of a machine count

    ansible_host, ansible_port, ansible_user, ansible_ssh_private_key_file, ansible_ssh_common_args    how it is reached
    aclflow_bench_address       the address its traffic has, in the domain; by default that of ansible_host
    aclflow_bench_port          of iperf3 (TCP and UDP), and aclflow_bench_http_port, of HTTP: permitted by the policy
    aclflow_bench_refused_port  TCP, refused by the policy; without it nobody tries
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.bench.yamlfiles import read_yaml
from orchestrator.errors import BadInput

CLIENTS, SERVERS = "bench_clients", "bench_servers"
_PORTS: Mapping[str, int] = {"ansible_port": 22, "aclflow_bench_port": 5201, "aclflow_bench_http_port": 8080}
_REFUSED = "aclflow_bench_refused_port"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: its SSH access and its traffic.

    Port 0 of `refused_port`: none.
    """

    name: str
    address: str
    port: int = 22
    user: str = "root"
    key: str | None = None
    options: tuple[str, ...] = ()
    traffic: str = ""
    iperf_port: int = 5201
    http_port: int = 8080
    refused_port: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """The senders and the answering machines."""

    clients: tuple[Host, ...]
    servers: tuple[Host, ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts of all pairs, each once."""
        return tuple({host.name: host for host in (*self.clients, *self.servers)}.values())


@dataclass(slots=True)
class _Group:
    """A group, of all places where the inventory speaks of it."""

    hosts: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    variables: dict[str, Any] = field(default_factory=dict)


def read(path: Path) -> Inventory:
    """The machines of an inventory. Raises BadInput with file and place, and Missing."""
    return read_yaml(path, "inventory", parse, instead="give YAML, or what `ansible-inventory -i FILE --list` prints")


def parse(document: object) -> Inventory:
    """The machines of a document. Raises BadInput with the place."""
    groups, variables = _read_listing(document) if _is_list(document) else _read_groups(document)
    for name in (CLIENTS, SERVERS):
        if name not in groups or not _list_members(groups, name):
            raise BadInput(f"has no machine in it: the suite needs {CLIENTS} and {SERVERS}", place=name)
    names = {group: sorted(_list_members(groups, group)) for group in (CLIENTS, SERVERS)}
    hosts = {
        name: _host(name, _merge_variables(groups, name) | variables.get(name, {}))
        for each in names.values()
        for name in each
    }
    return Inventory(*(tuple(hosts[name] for name in names[group]) for group in (CLIENTS, SERVERS)))


def _is_list(document: object) -> bool:
    return isinstance(document, dict) and "_meta" in document


def _read_listing(document: Any) -> tuple[dict[str, _Group], Mapping[str, dict[str, Any]]]:
    """Read the output of `ansible-inventory --list`: it has merged the variables."""
    groups = {
        name: _Group(set(_check_mapping(body, name).get("hosts", ())), set(body.get("children", ())))
        for name, body in document.items()
        if name != "_meta"
    }
    return groups, _check_mapping(_check_mapping(document["_meta"], "_meta").get("hostvars"), "_meta.hostvars")


def _read_groups(document: object) -> tuple[dict[str, _Group], Mapping[str, dict[str, Any]]]:
    """Read an inventory as people write it."""
    groups: dict[str, _Group] = {}
    variables: dict[str, dict[str, Any]] = {}
    for name, body in _check_mapping(document, "inventory").items():
        _collect_groups(str(name), body, str(name), groups, variables)
    groups.setdefault("all", _Group()).children.update(set(groups) - {"all"})
    return groups, variables


def _collect_groups(
    name: str, body: object, place: str, groups: dict[str, _Group], variables: dict[str, dict[str, Any]]
) -> None:
    said = _check_mapping(body, place)
    if unknown := sorted(set(map(str, said)) - {"hosts", "children", "vars"}):
        raise BadInput("a group has hosts, children and vars", place=f"{place}.{unknown[0]}")
    group = groups.setdefault(name, _Group())
    group.variables |= _check_mapping(said.get("vars"), f"{place}.vars")
    for host, own in _check_mapping(said.get("hosts"), f"{place}.hosts").items():
        group.hosts.add(str(host))
        variables.setdefault(str(host), {}).update(_check_mapping(own, f"{place}.hosts.{host}"))
    for child, inner in _check_mapping(said.get("children"), f"{place}.children").items():
        group.children.add(str(child))
        _collect_groups(str(child), inner, f"{place}.children.{child}", groups, variables)


def _check_mapping(value: object, place: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{value!r} is no mapping of names to values", place=place)
    return value


def _list_members(groups: Mapping[str, _Group], name: str) -> set[str]:
    return {host for group in _below(groups, name, ()) for host in groups[group].hosts}


def _below(groups: Mapping[str, _Group], name: str, way: tuple[str, ...]) -> Iterator[str]:
    """A group and all in it. Raises BadInput for one that is in itself."""
    if name in way:
        raise BadInput("the group is in itself", place=name)
    if name in groups:
        yield name
        for child in groups[name].children:
            yield from _below(groups, child, (*way, name))


def _merge_variables(groups: Mapping[str, _Group], host: str) -> dict[str, Any]:
    """Merge the variables of a machine's groups.

    Inner ones count more than outer ones, of neighbours the later name.
    """
    depth = {name: max(map(len, _ways(groups, name)), default=0) for name in groups}
    mine = [name for name in groups if host in _list_members(groups, name)]
    found: dict[str, Any] = {}
    for name in sorted(mine, key=lambda each: (depth[each], each)):
        found |= groups[name].variables
    return found


def _ways(groups: Mapping[str, _Group], name: str) -> Iterator[tuple[str, ...]]:
    """Every way from an outermost group down to one."""
    parents = [each for each, group in groups.items() if name in group.children]
    for parent in parents:
        for way in _ways(groups, parent):
            yield (*way, parent)
    if not parents:
        yield ()


def _host(name: str, said: Mapping[str, Any]) -> Host:
    """A machine of its variables. Raises BadInput with machine and variable."""
    try:
        address = _read_text(said, "ansible_host", name)
        ports = {each: _read_port(said, each, default) for each, default in _PORTS.items()}
        return Host(
            name,
            address,
            ports["ansible_port"],
            _read_text(said, "ansible_user", "root"),
            _read_text(said, "ansible_ssh_private_key_file", "") or None,
            tuple(shlex.split(_read_text(said, "ansible_ssh_common_args", ""))),
            _check_address(_read_text(said, "aclflow_bench_address", address)),
            ports["aclflow_bench_port"],
            ports["aclflow_bench_http_port"],
            _read_port(said, _REFUSED, 0) if _REFUSED in said else 0,
        )
    except BadInput as error:
        raise error.within(name) from None


def _read_text(said: Mapping[str, Any], name: str, default: str) -> str:
    text = str(said.get(name, default))
    if "{{" in text:
        raise BadInput("is a template, which only Ansible fills in: give the value itself", place=name)
    return text


def _check_address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise BadInput(
            f"'{text}' is no IPv4 address, and httperf knows no others", place="aclflow_bench_address"
        ) from None


def _read_port(said: Mapping[str, Any], name: str, default: int) -> int:
    text = _read_text(said, name, str(default))
    if not text.isdecimal() or not 0 < int(text) <= 65535:
        if name not in said:
            return default
        raise BadInput(f"'{text}' is no port: 1 to 65535", place=name)
    return int(text)
