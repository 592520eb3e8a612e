"""One small text of every format, from which the fuzzers start, and the options with which it is read whole."""

from __future__ import annotations

from pathlib import Path

from orchestrator.policy.formats.registry import FORMATS
from orchestrator.policy.formats.results import Options

FIXTURES = Path(__file__).parent / "fixtures"
SET = "@192.0.2.0/24\t198.51.100.7/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1200\n"
_FILES = {"native": "web.iptables.json"}
_OPTIONS = {
    "aerleon": Options(lists=("juniper:edge-in",)),
    "asa": Options(lists=("outside_in=ingress", "inside_out=egress")),
    "cisco": Options(lists=("shop-in", "shop-in6", "shop-out=egress")),
}


def sample_of(name: str) -> str:
    """The text of a format; empty if nobody has written one."""
    path = FIXTURES / _FILES.get(name, f"web.{name}")
    return path.read_text() if path.exists() else ""


def options_of(name: str, *, stateless: bool = False) -> Options:
    """Options that choose among the lists of the text."""
    return _OPTIONS.get(name, Options(stateless=stateless))


SAMPLES = {name: SET if name == "classbench" else sample_of(name) for name in FORMATS}
WRITABLE = [name for name, found in FORMATS.items() if found.write is not None]
JSON = [name for name, text in SAMPLES.items() if text.lstrip()[:1] in ("{", "[")]
