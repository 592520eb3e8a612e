"""Settings of every test: which examples the laws try, that interrupts are heard, and how faults are logged."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
import structlog
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores interrupts, and so would every process that a test interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = [HealthCheck.too_slow]
"""Drawing takes as long as it does on a machine that does other things, too."""
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, suppress_health_check=SLOW)
settings.register_profile("search", deadline=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
"""`fixed` tries the same examples each time: a verdict belongs to the code. `search` (`make search`) draws new ones."""

# drawn with every variable, as by default, the traceback of one fault that a program survives takes ten seconds
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds that each folder of tests took, setups and teardowns included."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.split("/")[:2])] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        terminalreporter.line("  ".join(f"{folder} {spent:.0f}" for folder, spent in seconds.most_common()))
