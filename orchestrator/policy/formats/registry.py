"""The formats, declared: how each is called, known by sight, read and written.

imported = read(text, None, name="web.cisco")        # the format is guessed from the first lines, then the name
exported = write(imported.acl, "iptables")
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.formats.aerleon.read import read_aerleon, read_all_aerleon
from orchestrator.policy.formats.aerleon.source import looks_like_pol
from orchestrator.policy.formats.aerleon.write import write_aerleon
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.aws.acls import read_all_network_acls, read_network_acl
from orchestrator.policy.formats.aws.groups import read_all_security_groups, read_security_groups
from orchestrator.policy.formats.aws.write import write_network_acl, write_security_group
from orchestrator.policy.formats.azure.read import read_all_azure, read_azure
from orchestrator.policy.formats.azure.write import write_azure
from orchestrator.policy.formats.cisco.read import SHOWN_LIST, read_all_cisco, read_cisco
from orchestrator.policy.formats.cisco.write import write_asa, write_cisco
from orchestrator.policy.formats.classbench import looks_like_classbench, read_classbench
from orchestrator.policy.formats.iptables.read import read_ip6tables, read_iptables
from orchestrator.policy.formats.iptables.write import write_ip6tables, write_iptables
from orchestrator.policy.formats.kubernetes.read import read_all_kubernetes, read_kubernetes
from orchestrator.policy.formats.kubernetes.write import write_kubernetes
from orchestrator.policy.formats.native_text import read_native, read_native_yaml, write_native, write_native_yaml
from orchestrator.policy.formats.nftables.read import read_nftables
from orchestrator.policy.formats.nftables.write import write_nftables
from orchestrator.policy.formats.openstack import groups as openstack_groups
from orchestrator.policy.formats.openstack import write as openstack_write
from orchestrator.policy.formats.openstack.firewalls import read_all_firewalls, read_firewalls
from orchestrator.policy.formats.recognition import Sight, origin_of, sight_of, stated_in
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Exported, Imported, Options, TakenFrom
from orchestrator.policy.model import Acl

_T = TypeVar("_T")
Reader = Callable[[str, str, Options], Imported]
ListsReader = Callable[[str, str, Options], Mapping[str, Imported]]
Writer = Callable[[Acl], Exported]

_LONGEST_REASON = 2500

_ACCESS_LIST = re.compile(
    r"^[ \t]*(ip access-list (standard|extended) \S|ipv6 access-list \S|access-list \d+ )", re.MULTILINE
)
_OTHER_ACCESS_LIST = re.compile(r"^[ \t]*(ip|ipv4|mac)?\s?access-list \S", re.MULTILINE)
_ASA = re.compile(r"^((ASA|PIX|FWSM) Version \d|access-list \S+ (line \d+ )?extended (permit|deny) )", re.MULTILINE)
_TABLE = re.compile(r"^\*(filter|nat|mangle|raw|security)\s*$", re.MULTILINE)
_IPV6_ADDRESS = re.compile(r"^-A .*(-[sd] [0-9a-f]*:[0-9a-f:]|-p (ipv6-icmp|icmpv6))", re.MULTILINE)
_NFT_TABLE = re.compile(r"^table (ip6?|inet|arp|bridge|netdev) \S+ \{\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, description, file endings, recognition of a text, and functions.

    `options`   the fields of `Options` that its reader looks at
    `write`     None: it is only read
    `read_all`  reads every list of a text by itself, by name; None: a text is one list
    `comment`   begins a comment; empty: a text is one JSON object
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    looks_like: Callable[[Sight], bool]
    read: Reader
    write: Writer | None
    options: tuple[str, ...] = ()
    read_all: ListsReader | None = None
    comment: str = ""


def _looks_like_iptables(sight: Sight) -> bool:
    return _TABLE.search(sight.text) is not None


def _looks_like_ip6tables(sight: Sight) -> bool:
    text = sight.text
    return _looks_like_iptables(sight) and ("ip6tables" in text[:400] or _IPV6_ADDRESS.search(text) is not None)


def _looks_like_cisco(sight: Sight) -> bool:
    return any(one.search(sight.text) is not None for one in (_ACCESS_LIST, _OTHER_ACCESS_LIST, SHOWN_LIST))


def _looks_like_security_groups(sight: Sight) -> bool:
    keys = ("security_groups", "security_group", "security_group_rules", "ethertype", "ether_type")
    return sight.json and (any(sight.has(key) for key in keys) or sight.has("rules", "project_id"))


_FORMATS = (
    Format(
        name="ip6tables",
        summary="ip6tables-save: IPv6 only",
        suffixes=(".ip6tables", ".v6"),
        looks_like=_looks_like_ip6tables,
        read=read_ip6tables,
        write=write_ip6tables,
        options=("chains", "stateless", "interfaces"),
        comment="#",
    ),
    Format(
        name="iptables",
        summary="iptables-save: IPv4 only; chains are followed",
        suffixes=(".iptables", ".v4"),
        looks_like=_looks_like_iptables,
        read=read_iptables,
        write=write_iptables,
        options=("chains", "stateless", "interfaces"),
        comment="#",
    ),
    Format(
        name="classbench",
        summary="ClassBench filter sets: IPv4, no actions",
        suffixes=(".rules",),
        looks_like=lambda sight: looks_like_classbench(sight.text.lstrip().split("\n", 1)[0]),
        read=read_classbench,
        write=None,
        options=("direction", "classbench_action"),
        comment="#",
    ),
    Format(
        name="aerleon",
        summary="Aerleon (Capirca) policies, `.pol` or YAML, with the networks and services that they name",
        suffixes=(".pol", ".aerleon"),
        looks_like=lambda sight: not sight.json and (sight.has("filters") or looks_like_pol(sight.text)),
        read=read_aerleon,
        write=write_aerleon,
        options=("lists", "direction", "stateless", "definitions", "includes"),
        read_all=read_all_aerleon,
        comment="#",
    ),
    Format(
        name="aws-sg",
        summary="AWS security groups, as `aws ec2 describe-security-groups` gives them: permits only",
        suffixes=(".aws-sg",),
        looks_like=lambda sight: sight.json and (sight.has("SecurityGroups") or sight.has("GroupId", "IpPermissions")),
        read=read_security_groups,
        write=write_security_group,
        options=("lists", "addresses"),
        read_all=read_all_security_groups,
    ),
    Format(
        name="aws-nacl",
        summary="AWS network ACLs, as `aws ec2 describe-network-acls` gives them",
        suffixes=(".aws-nacl",),
        looks_like=lambda sight: sight.json and (sight.has("NetworkAcls") or sight.has("NetworkAclId", "Entries")),
        read=read_network_acl,
        write=write_network_acl,
        options=("lists",),
        read_all=read_all_network_acls,
    ),
    Format(
        name="azure-nsg",
        summary="Azure network security groups, as `az network nsg show`, REST and ARM templates give them",
        suffixes=(".azure-nsg",),
        looks_like=lambda sight: sight.json and '"securityRules"' in sight.text,
        read=read_azure,
        write=write_azure,
        options=("lists", "addresses"),
        read_all=read_all_azure,
    ),
    Format(
        name="asa",
        summary="Cisco ASA access lists with their objects, alone or in a firewall's configuration",
        suffixes=(".asa",),
        looks_like=lambda sight: _ASA.search(sight.text) is not None,
        read=read_cisco,
        write=write_asa,
        options=("lists", "direction"),
        read_all=read_all_cisco,
        comment="!",
    ),
    Format(
        name="cisco",
        summary="Cisco IOS, IOS-XR, NX-OS and Arista EOS access lists, alone or in a configuration; written for IOS",
        suffixes=(".cisco", ".ios", ".cfg"),
        looks_like=_looks_like_cisco,
        read=read_cisco,
        write=write_cisco,
        options=("lists", "direction"),
        read_all=read_all_cisco,
        comment="!",
    ),
    Format(
        name="openstack-sg",
        summary="OpenStack security groups, as Neutron and openstacksdk give them: permits only",
        suffixes=(".openstack-sg",),
        looks_like=_looks_like_security_groups,
        read=openstack_groups.read_security_groups,
        write=openstack_write.write_security_group,
        options=("lists", "addresses"),
        read_all=openstack_groups.read_all_security_groups,
    ),
    Format(
        name="openstack-fwaas",
        summary="OpenStack FWaaS v2 groups, policies and rules",
        suffixes=(".openstack-fwaas",),
        looks_like=lambda sight: sight.json and (sight.has("firewall_rules") or sight.has("action", "ip_version")),
        read=read_firewalls,
        write=openstack_write.write_firewalls,
        options=("lists", "direction"),
        read_all=read_all_firewalls,
    ),
    Format(
        name="kubernetes",
        summary="Kubernetes NetworkPolicy, YAML or JSON: permits only",
        suffixes=(".k8s.yaml", ".k8s.yml"),
        looks_like=lambda sight: sight.has("apiVersion", "kind"),
        read=read_kubernetes,
        write=write_kubernetes,
        options=("lists", "addresses"),
        read_all=read_all_kubernetes,
        comment="#",
    ),
    Format(
        name="nftables",
        summary="nftables rulesets as JSON, `nft -j list ruleset`; chains, sets and maps are followed",
        suffixes=(".nft.json",),
        looks_like=lambda sight: sight.has("nftables") if sight.json else _NFT_TABLE.search(sight.text) is not None,
        read=read_nftables,
        write=write_nftables,
        options=("chains", "stateless", "interfaces"),
    ),
    Format(
        name="native",
        summary="JSON, as the REST interface speaks it; carries everything",
        suffixes=(".json",),
        looks_like=lambda sight: sight.json and sight.text.lstrip()[:1] == "{",
        read=read_native,
        write=write_native,
    ),
    Format(
        name="native-yaml",
        summary="YAML with the keys and values of `native`; carries everything",
        suffixes=(".yaml", ".yml"),
        looks_like=lambda sight: not sight.json and sight.has("rules"),
        read=read_native_yaml,
        write=write_native_yaml,
        comment="#",
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({found.name: found for found in _FORMATS})
"""Every format, in the order in which a text is tried against them: what could be taken for another comes before it."""


def read(
    text: str | bytes, format_name: str | None = None, *, name: str = "-", options: Options = DEFAULT_OPTIONS
) -> Imported:
    """Read a list from text.

    `format_name` None guesses the format.

    `name` is the file's, for errors and losses.

    Raises BadInput, BadPolicy or TooLarge for a text that cannot be read at all, with the file and the line as its
    place. The losses of single rules are in the result.
    """
    whole = decode(text, name=name, max_bytes=options.max_bytes)
    found = format_named(format_name) if format_name else guess(whole, name)
    return _read_in_file(name, lambda: _add_origin(found, whole, found.read(whole, name, options)))


def _add_origin(found: Format, text: str, imported: Imported) -> Imported:
    return imported if imported.taken_from else replace(imported, taken_from=origin_of(text, found.comment))


def read_all(
    text: str | bytes, format_name: str | None = None, *, name: str = "-", options: Options = DEFAULT_OPTIONS
) -> Mapping[str, Imported]:
    """Read every list of a text by itself, by name.

    A text that is one list gives it under "". Raises as `read`.
    """
    whole = decode(text, name=name, max_bytes=options.max_bytes)
    found = format_named(format_name) if format_name else guess(whole, name)
    reader = found.read_all
    if reader is None:
        return {"": _read_in_file(name, lambda: found.read(whole, name, options))}
    return _read_in_file(name, lambda: reader(whole, name, options))


def write(acl: Acl, format_name: str, taken_from: TakenFrom | None = None) -> Exported:
    """Write a list, with its origin where that is known; `read` gives that back.

    Raises BadInput for a format that is not known or that cannot be written.
    """
    found = format_named(format_name)
    if found.write is None:
        writable = ", ".join(other.name for other in _FORMATS if other.write is not None)
        raise BadInput(f"{found.name} can only be read; these can be written: {writable}")
    exported = found.write(acl)
    if taken_from is None:
        return exported
    return replace(exported, text=stated_in(exported.text, taken_from, found.comment))


def format_named(format_name: str) -> Format:
    """The format of this name. Raises BadInput."""
    found = FORMATS.get(format_name)
    if found is None:
        raise BadInput(f"'{format_name}' is not a format: {', '.join(FORMATS)}")
    return found


_GZIP = b"\x1f\x8b"
_UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def refuse_empty(text: str, name: str) -> None:
    """Raise BadInput for a text without a word.

    It may be of a file that was not written to its end.
    """
    if not text.strip():
        raise BadInput('it is empty: a list without rules is written {"rules": []}', place=name)


def guess(text: str, name: str) -> Format:
    """Return the format of a text by its content, else by its file's name.

    Raises BadInput, also for an empty text.
    """
    refuse_empty(text, name)
    sight = sight_of(text)
    by_sight = next((found for found in _FORMATS if found.looks_like(sight)), None)
    by_name = next((found for found in _FORMATS if name.endswith(found.suffixes)), None)
    found = by_sight or by_name
    if found is None:
        raise BadInput(
            f"the format cannot be told from the text or the name; name it: {', '.join(FORMATS)}", place=name
        )
    return found


def decode(text: str | bytes, *, name: str, max_bytes: int) -> str:
    """Return the text of a file.

    Raises TooLarge or BadInput, for binary content too, before any reader sees it.
    """
    if len(text) > max_bytes:
        raise TooLarge(f"it is larger than {max_bytes} bytes", place=name)
    text = _text_of(text, name) if isinstance(text, bytes) else _check_characters(text, name)
    zero = text.find("\0")
    if zero >= 0:
        raise BadInput("a byte of zero is no text", place=f"{name}, line {text.count(chr(10), 0, zero) + 1}")
    return text


def _text_of(data: bytes, name: str) -> str:
    """Decode the bytes of a file as UTF-8, or as UTF-16, which Windows writes."""
    if data.startswith(_GZIP):
        raise BadInput("it is compressed: unpack it first (gunzip)", place=name)
    if data.startswith(_UTF_16):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise BadInput("it begins as UTF-16 text and does not go on so", place=name) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"the byte 0x{data[error.start]:02x} is not UTF-8 text", place=f"{name}, line {line}") from None


def _check_characters(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise BadInput("half of a surrogate pair is no text", place=f"{name}, line {line}") from None
    return text


def _read_in_file(name: str, work: Callable[[], _T]) -> _T:
    try:
        return work()
    except AclflowError as error:
        error.place = f"{name}, {shown(error.place)}" if error.place else name
        error.reason = shown(error.reason, _LONGEST_REASON)  # it may quote what the text holds
        raise
