"""A second, independent reading of IOS access lists: one packet against the lines of one list, as a router does it.

It knows the lines that the tests draw and that our writer writes, and one thing that rules of ours do not do: a later
fragment meets a line that looks at ports or flags by its addresses alone, passes if that line permits, and goes on if
it denies.
"""

from __future__ import annotations

import functools
import ipaddress

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

NUMBERS = {"tcp": 6, "udp": 17, "icmp": 1, "sctp": 132, "gre": 47, "esp": 50, "ahp": 51}
BITS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32}
PORTS = {"www": 80, "telnet": 23, "smtp": 25, "domain": 53, "ntp": 123}
ICMP = {"echo": (8, None), "echo-reply": (0, None), "port-unreachable": (3, 3), "unreachable": (3, None)}
CODE_POINTS = {"ef": 46, "af11": 10, "cs1": 8, "default": 0}
ICMP6 = {"echo-request": (128, None), "nd-ns": (135, None), "port-unreachable": (1, 4)}


def permits(text: str, name: str, packet: Packet, hidden_protocol: int = 6) -> bool:
    """Whether the list of this name permits a packet. `hidden_protocol` is what a later IPv6 fragment hides."""
    for words in lines_of(text, name):
        verdict = one_line(words, packet, hidden_protocol)
        if verdict is not None:
            return verdict
    return False


@functools.lru_cache(maxsize=64)
def lines_of(text: str, name: str) -> list[list[str]]:
    found: list[tuple[int, list[str]]] = []
    inside = False
    for raw in text.split("\n"):
        words = raw.split()
        if raw[:1] not in ("", " "):
            inside = words[-1] == name and words[1] == "access-list"
        elif inside and words and "remark" not in words[:2]:
            place = int(words.pop(0)) if words[0].isdigit() else (found[-1][0] if found else 0) + 10
            found.append((place, words))
    return [words for _, words in sorted(found, key=lambda item: item[0])]


def one_line(words: list[str], packet: Packet, hidden_protocol: int) -> bool | None:
    """True or False where the line decides, None where the next one is asked."""
    left = list(words)
    permit = left.pop(0) == "permit"
    six = packet.family is Family.IPV6
    name = left.pop(0)
    protocol = hidden_protocol if six and packet.later_fragment else packet.protocol
    wanted = 58 if six and name == "icmp" else NUMBERS.get(name, int(name) if name.isdigit() else -1)
    header = name in ("ip", "ipv6") or protocol == wanted
    header = address(left, packet.source) and header
    answers = [port(left, packet.source_port)]
    header = address(left, packet.destination) and header
    answers.append(port(left, packet.destination_port))
    answers += [icmp(left, name, packet), flags(left, packet.tcp_flags)]
    header = service(left, packet.dscp) and header
    fragments = left[:1] == ["fragments"]
    asked = [answer for answer in answers if answer is not None]
    if not header or (fragments and not packet.later_fragment):
        return None
    if packet.later_fragment and asked:
        return True if permit else None
    return permit if all(asked) else None


def address(left: list[str], value: int) -> bool:
    word = left.pop(0)
    if word == "any":
        return True
    if word == "host":
        return number(left.pop(0)) == value
    base, slash, length = word.partition("/")
    if slash:
        return (number(base) ^ value) >> (128 - int(length)) == 0
    return (number(base) ^ value) & ~number(left.pop(0)) & 0xFFFFFFFF == 0


@functools.lru_cache(maxsize=1024)
def number(text: str) -> int:
    return int(ipaddress.ip_address(text))


def port(left: list[str], value: int) -> bool | None:
    if not left or left[0] not in ("eq", "neq", "gt", "lt", "range"):
        return None
    operator = left.pop(0)
    numbers = [number_of(left.pop(0))]
    while left and (left[0].isdigit() or left[0] in PORTS):
        numbers.append(number_of(left.pop(0)))
    return {
        "eq": value in numbers,
        "neq": value not in numbers,
        "gt": value > numbers[0],
        "lt": value < numbers[0],
        "range": numbers[0] <= value <= numbers[-1],
    }[operator]


def number_of(word: str) -> int:
    return PORTS[word] if word in PORTS else int(word)


def icmp(left: list[str], name: str, packet: Packet) -> bool | None:
    names = ICMP6 if packet.family is Family.IPV6 else ICMP
    if name != "icmp" or not left or not (left[0].isdigit() or left[0] in names):
        return None
    word = left.pop(0)
    kind, code = names[word] if word in names else (int(word), None)
    if left and left[0].isdigit():
        code = int(left.pop(0))
    return packet.icmp_type == kind and code in (None, packet.icmp_code)


def service(left: list[str], value: int) -> bool:
    """DSCP by number or name, or the precedence in its upper bits."""
    if left[:1] == ["dscp"]:
        word = left[1]
        del left[:2]
        return value == (CODE_POINTS[word] if word in CODE_POINTS else int(word))
    if left[:1] == ["precedence"]:
        word = left[1]
        del left[:2]
        return value >> 3 == (5 if word == "critical" else int(word))
    return True


def flags(left: list[str], value: int) -> bool | None:
    if left[:1] == ["established"]:
        left.pop(0)
        return bool(value & 20)
    if left[:1] not in (["match-all"], ["match-any"]):
        return None
    together = all if left.pop(0) == "match-all" else any
    asked = []
    while left and left[0][0] in "+-":
        word = left.pop(0)
        asked.append(bool(value & BITS[word[1:]]) is (word[0] == "+"))
    return together(asked)
