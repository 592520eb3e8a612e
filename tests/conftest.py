"""Settings of every test: which examples the laws try, that interrupts are heard, and how faults are logged."""

from __future__ import annotations

import os
import signal

import structlog
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores interrupts, and so would every process that a test interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
"""`fixed` tries the same examples each time: a verdict belongs to the code. `search` (`make search`) draws new ones."""

# drawn with every variable, as by default, the traceback of one fault that a program survives takes ten seconds
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
