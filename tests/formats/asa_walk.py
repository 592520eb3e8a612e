"""A second, independent reading of an ASA's access lists: one whole packet against the lines of one list.

It knows the lines that the tests draw and that our writer writes. Objects and groups are expanded word by word, as
`show access-list` does, before anything is compared.
"""

from __future__ import annotations

import ipaddress
import itertools

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

NUMBERS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmp6": 58, "gre": 47, "esp": 50}
PORTS = {"https": 443, "www": 80, "domain": 53, "ssh": 22}
ICMP = {"echo": 8, "unreachable": 3}
ICMP6 = {"echo": 128, "neighbor-solicitation": 135}
OPERATORS = {
    "eq": lambda port, low, _: port == low,
    "neq": lambda port, low, _: port != low,
    "lt": lambda port, low, _: port < low,
    "gt": lambda port, low, _: port > low,
    "range": lambda port, low, high: low <= port <= high,
}


def permits(text: str, name: str, packet: Packet, active: frozenset[str] = frozenset()) -> bool:
    """Whether the list of this name permits a packet that is no later fragment, while some time ranges are active."""
    blocks = blocks_of(text)
    for line in text.split("\n"):
        words = line.split()
        if words[:3] != ["access-list", name, "extended"] or words[-1] == "inactive":
            continue
        if "time-range" in words:
            if words[words.index("time-range") + 1] not in active:
                continue
            words = words[: words.index("time-range")]
        words = words[: words.index("log")] if "log" in words else words
        if any(matches(plain, packet) for plain in expanded(words[4:], blocks)):
            return words[3] == "permit"
    return False


def blocks_of(text: str) -> dict[str, list[list[str]]]:
    """The lines below each object and group, by name."""
    blocks: dict[str, list[list[str]]] = {}
    inside: list[list[str]] = []
    for line in text.split("\n"):
        words = line.split()
        if line.startswith("object"):
            inside = blocks.setdefault(words[2], [])
        elif line.startswith(" "):
            inside.append(words)
    return blocks


def expanded(words: list[str], blocks: dict[str, list[list[str]]]) -> list[list[str]]:
    """A line with every object replaced by what it stands for: one line for each way to do so."""
    place = next((at for at, word in enumerate(words) if word in ("object", "object-group")), None)
    if place is None:
        return [words]
    before, after = words[:place], words[place + 2 :]
    ways = [member(line, blocks) for line in blocks[words[place + 1]]]
    return [plain for way in itertools.chain.from_iterable(ways) for plain in expanded([*before, *way, *after], blocks)]


def member(line: list[str], blocks: dict[str, list[list[str]]]) -> list[list[str]]:
    """What one line of an object or group puts into the line that names it."""
    if line[0] == "group-object" or line[1:2] == ["object"]:
        return [found for inner in blocks[line[-1]] for found in member(inner, blocks)]
    if line[0] in ("service", "service-object"):
        protocols = ["tcp", "udp"] if line[1] == "tcp-udp" else [line[1]]
        return [["service", protocol, *line[2:], "end"] for protocol in protocols]
    if line[0] in ("subnet", "network-object", "port-object", "protocol-object", "icmp-object"):
        return [line[1:]]
    return [["span", *line[1:]] if line[0] == "range" else line]


def matches(words: list[str], packet: Packet) -> bool:
    left = list(words)
    six = packet.family is Family.IPV6
    service: list[str] = []
    name = left.pop(0)
    if name == "service":
        end = left.index("end")
        service, left = left[:end], left[end + 1 :]
        name = service.pop(0)
    number = NUMBERS.get(name, int(name) if name.isdigit() else -1)
    answers = [name == "ip" or number == packet.protocol]
    answers.append(address(left, packet.source, six))
    answers.append(port(left, packet.source_port))
    answers.append(address(left, packet.destination, six))
    answers.append(port(left, packet.destination_port))
    answers.append(icmp(left, name, packet))
    if service[:1] == ["source"]:
        service.pop(0)
        answers.append(port(service, packet.source_port))
    if service[:1] == ["destination"]:
        service.pop(0)
    answers.append(port(service, packet.destination_port))
    answers.append(icmp(service, name, packet))
    assert not left, words
    assert not service, words
    return all(answers)


def address(left: list[str], value: int, six: bool) -> bool:
    word = left.pop(0)
    if word.startswith("any"):
        return word == "any" or word.endswith("6") is six
    if word == "host":
        host = ipaddress.ip_address(left.pop(0))
        return (host.version == 6) is six and int(host) == value
    if word == "span":
        low, high = (ipaddress.ip_address(left.pop(0)) for _ in range(2))
        return (low.version == 6) is six and int(low) <= value <= int(high)
    text = word if "/" in word else f"{word}/{left.pop(0)}"
    network = ipaddress.ip_network(text, strict=False)
    return (network.version == 6) is six and int(network.network_address) <= value <= int(network.broadcast_address)


def port(left: list[str], value: int) -> bool:
    if not left or left[0] not in OPERATORS:
        return True
    operator = left.pop(0)
    low = number_of(left.pop(0))
    high = number_of(left.pop(0)) if operator == "range" else low
    return OPERATORS[operator](value, low, high)


def number_of(word: str) -> int:
    return PORTS[word] if word in PORTS else int(word)


def icmp(left: list[str], name: str, packet: Packet) -> bool:
    names = {"icmp": ICMP, "icmp6": ICMP6}.get(name, {})
    if not left or not (left[0].isdigit() or left[0] in names):
        return True
    word = left.pop(0)
    code = int(left.pop(0)) if left and left[0].isdigit() else None
    return packet.icmp_type == (names[word] if word in names else int(word)) and code in (None, packet.icmp_code)
