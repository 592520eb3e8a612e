"""Settings of every test: examples of the laws, interrupts, how faults are logged, and where files are."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores interrupts, and so would every process that a test interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)

for _name in ("CI", "BUILD_NUMBER"):
    # where they are set, pytest works out every difference of two tables that are not equal: minutes a failed assertion
    os.environ.pop(_name, None)

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


_SLOWEST = 60
"""How many files are named at the end."""
_MEMORY, _ROOM_BYTES, _MINE = Path("/dev/shm"), 8 << 30, "aclflow-tests-"


def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of tests in memory, where there is room.

    Databases sync every commit, and a fifth of the tests' time is the disk's. Long tests write more than memory holds.
    """
    if hasattr(config, "workerinput") or config.option.basetemp is not None:
        return
    if "not long" not in config.option.markexpr or not _MEMORY.is_dir():
        return
    for each in _MEMORY.glob(f"{_MINE}*"):
        if not Path("/proc", each.name.removeprefix(_MINE)).exists():  # its run has ended, and kept what failed
            shutil.rmtree(each, ignore_errors=True)
    runs_programs = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    if runs_programs and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
        config.option.basetemp = str(_MEMORY / f"{_MINE}{os.getpid()}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Give the memory back; what a failed test has written is kept until the next run."""
    used = session.config.option.basetemp
    if used is not None and not hasattr(session.config, "workerinput") and exitstatus == pytest.ExitCode.OK:
        folder = Path(used)
        if folder.parent == _MEMORY and folder.name.startswith(_MINE):
            shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds that each folder and the slowest files took, setups and teardowns included."""
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                folders["/".join(file.split("/")[:2])] += report.duration
                files[file] += report.duration
    if len(folders) > 1:
        for title, seconds, most in (("folder", folders, None), ("file, the slowest", files, _SLOWEST)):
            terminalreporter.section(f"seconds by {title}")
            terminalreporter.line("  ".join(f"{name} {spent:.0f}" for name, spent in seconds.most_common(most)))
