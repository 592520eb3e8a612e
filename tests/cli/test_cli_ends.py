"""How the command line ends: the exit codes, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import PATIENCE_S

from orchestrator.cli import exitcodes, run
from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.lazy import load
from orchestrator.cli.tree import TREE
from orchestrator.errors import AclflowError, BadInput, Missing, Stale, Unreachable
from orchestrator.policy.formats import registry

COMMAND = (sys.executable, "-m", "orchestrator.cli")
ROOT = Path(__file__).parents[2]


def leaves(branch: Branch = TREE, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    for child in branch.children:
        here = (*path, child.name)
        if isinstance(child, Leaf):
            yield here, child
        else:
            yield from leaves(child, here)


# -------------------------------------------------------------------------------------------------------------- the map


@pytest.mark.parametrize(("path", "leaf"), [pytest.param(*each, id=" ".join(each[0])) for each in leaves()])
def test_every_command_loads_and_explains_itself(path: tuple[str, ...], leaf: Leaf) -> None:
    ended = aclflow(*path, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert load(leaf).help, "it says what it does"
    assert "aclflow " + " ".join(path) in " ".join(ended.out.split())


def test_help_is_the_map() -> None:
    ended = aclflow("--help")
    assert ended.code == 0
    shown = " ".join(ended.out.replace("│", " ").split())
    for child in TREE.children:
        assert child.summary in shown
    order = [shown.index(child.summary) for child in TREE.children]
    assert order == sorted(order)


@pytest.mark.parametrize("extension", ["orchestrator.compile._index", "orchestrator.compile._columns"])
def test_a_checkout_that_was_not_built_says_so_at_once(extension: str) -> None:
    program = f"""
import sys
from importlib.machinery import FileFinder
find = FileFinder.find_spec
FileFinder.find_spec = lambda self, name, target=None: None if name == '{extension}' else find(self, name, target)
from orchestrator.cli.run import main
sys.exit(main())"""
    cost = ("acl", "cost", "orchestrator/lab/policies/bank.iptables")
    ended = subprocess.run(
        [sys.executable, "-c", program, *cost], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == exitcodes.NOT_THERE
    assert "extension modules are not built: run `make`" in ended.stderr


def test_the_version_is_the_distributions() -> None:
    ended = aclflow("--version")
    assert (ended.code, ended.out) == (0, f"aclflow {run.installed_version()}\n")


# ----------------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Usage: aclflow"),
        (("acl",), 2, "Usage: aclflow acl"),
        (("acl", "chek"), 2, "Did you mean 'check'?"),
        (("acl", "check"), 2, "Missing argument"),
        (("acl", "check", "-", "--nonsense"), 2, "No such option"),
        (("acl", "check", "-", "-f", "dbase"), 2, "'dbase' is not a format"),
        (("acl", "check", "-"), 2, "standard input"),
        (("acl", "check", "-", "-"), 2, "only once"),
        (("acl", "check", "-", "--own", "10.0.0.0/33"), 2, "aclflow: --own: '10.0.0.0/33' is not a prefix"),
        (("acl", "check", "-", "--now", "soon"), 2, "aclflow: --now: 'soon' is not a time"),
        (("acl", "check", "/no/such/file"), 3, "aclflow: /no/such/file: it cannot be read: No such file"),
        (("acl", "check", "/"), 2, "aclflow: /: it is a directory"),
        (("acl", "check", "a\0b"), 3, "cannot be read"),
        (("acl", "check", "/dev/zero"), 1, "larger than"),
        (("acl", "trace", "-", "-s", "192.0.2.1"), 2, "Missing option"),
        (
            ("acl", "trace", "-", "-s", "192.0.2", "-d", "192.0.2.1"),
            2,
            "aclflow: --source: '192.0.2' is not an address",
        ),
        (("acl", "trace", "-", "-s", "::1", "-d", "192.0.2.1"), 2, "aclflow: --destination"),
        (("acl", "trace", "-", "-s", "192.0.2.1", "-d", "192.0.2.1"), 2, "aclflow: --port"),
        (("tenant", "list"), 3, "aclflow: ACLFLOW_TOKEN: the service wants a token"),
        (("controller", "--listen", "nowhere"), 2, "aclflow: --listen: 'nowhere' is not ADDRESS:PORT"),
        (("bench", "edge", "--out", "/proc/here"), 3, "aclflow: /proc/here: nothing can be written there"),
        (("bench", "nonsense"), 2, "aclflow: SUITE: 'nonsense' is no suite"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_the_code(arguments: tuple[str, ...], code: int, said: str) -> None:
    ended = aclflow(*arguments)
    assert ended.code == code, ended
    assert said in " ".join((ended.out + ended.err).split())
    assert_no_traceback(ended)


def test_a_rule_that_says_what_no_policy_may_say_is_refused_with_its_place() -> None:
    listed = '{"rules": [{"id": "a", "action": "permit", "destination_ports": 80}]}'
    ended = aclflow("acl", "check", "-", stdin=listed)
    assert ended.code == 1
    assert ended.err.startswith(
        "aclflow: standard input, rules[0].destination_ports: only tcp, udp and sctp have ports"
    )


def test_a_file_that_is_no_list_is_a_wrong_call() -> None:
    ended = aclflow("acl", "check", "-", stdin='{"rules": [{"id": "a", "action": "permit", "source": "10.0.0.0/33"}]}')
    assert ended.code == 2
    assert ended.err.startswith("aclflow: standard input, rules[0].source: '10.0.0.0/33'")


def every_error(kind: type[AclflowError] = AclflowError) -> Iterator[type[AclflowError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from every_error(each)


@pytest.mark.parametrize("kind", list(every_error()), ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code(kind: type[AclflowError], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("of this reason", place="here")

    monkeypatch.setattr("orchestrator.cli.files.decode", fail)
    ended = aclflow("acl", "check", "-")
    expected = {BadInput: 2, Missing: 3, Unreachable: 3, Stale: 1}
    assert ended.code == expected.get(kind, ended.code)
    assert ended.code in (1, 2, 3)
    assert ended.err == "aclflow: here: of this reason\n"


# --------------------------------------------------------------------------------------------------------- no traceback


def assert_no_traceback(ended: Ended) -> None:
    assert "Traceback" not in ended.out + ended.err
    assert "a fault of the program itself" not in ended.err


FRAGMENTS = st.sampled_from(
    [
        "permit ", "deny ", "tcp ", "ip ", "any ", "eq 80\n", "access-list 101 ", "ip access-list extended x\n",
        "host ", "10.0.0.1 ", "0.0.0.255 ", "*filter\n", ":INPUT DROP [0:0]\n", "-A INPUT ", "-p tcp ", "--dport 80 ",
        "-j ACCEPT\n",
        "COMMIT\n", "{", "}", "[", "]", '"rules"', '"id"', ":", ",", "null", "1e999", "@1.2.3.4/32\t", "0 : 65535\t",
        "\ufeff", "\x00", "\x1b[2J", "\U0001f600", "\n", " " * 50, "9" * 400,
    ]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=25).map(lambda parts: "".join(parts).encode())),
    st.sampled_from([(), *(("-f", name) for name in registry.FORMATS)]),
    st.sampled_from(("check", "import")),
)
def test_no_content_of_a_file_brings_a_traceback(data: bytes, chosen: tuple[str, ...], command: str) -> None:
    ended = aclflow("acl", command, "-", *chosen, stdin=data)
    assert ended.code in (0, 1, 2)
    assert_no_traceback(ended)
    assert "\x1b" not in ended.out + ended.err


def test_a_fault_of_the_program_is_one_line_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("orchestrator.cli.files.decode", fail)
    ended = aclflow("acl", "check", "-")
    assert ended.code == 3
    assert ended.err.startswith("aclflow: a fault of the program itself: ZeroDivisionError: oops")
    with pytest.raises(ZeroDivisionError):
        aclflow("acl", "check", "-", environment={"ACLFLOW_TRACEBACK": "1"})


# ---------------------------------------------------------------------------------------------------------- the process


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_checking_a_file_loads_neither_database_nor_web_nor_switches() -> None:
    code = (
        "import sys; from orchestrator.cli import main; main(['acl', 'check', '-']);"
        "print(*[m for m in ('sqlalchemy', 'fastapi', 'os_ken', 'pyroute2', 'orchestrator.client', 'uvicorn')"
        " if m in sys.modules])"
    )
    ended = subprocess.run(
        (sys.executable, "-c", code),
        input=b'{"rules": []}',
        capture_output=True,
        env=environment(),
        check=True,
        timeout=60,
    )
    assert ended.stdout == b"\n"


def test_the_controller_loads_neither_database_nor_web_service() -> None:
    code = (
        "import sys; import orchestrator.cli.controller;"
        "print(*[m for m in ('sqlalchemy', 'fastapi', 'uvicorn', 'alembic', 'api', 'orchestrator.store') "
        "if m in sys.modules])"
    )
    ended = subprocess.run((sys.executable, "-c", code), capture_output=True, env=environment(), check=True, timeout=60)
    assert ended.stdout == b"\n"


def test_an_interrupt_ends_with_130_and_is_quiet() -> None:
    command = (*COMMAND, "acl", "check", "-")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 130
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def wait_until_it_reads(pid: int) -> None:
    """Wait until a process sleeps in read() of its standard input."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        time.sleep(0.05)
        if Path(f"/proc/{pid}/wchan").read_text().startswith(("pipe_read", "anon_pipe_read")):
            return
        if Path(f"/proc/{pid}/syscall").exists() and os.geteuid() == 0:
            words = Path(f"/proc/{pid}/syscall").read_text().split()
            if words[:2] == ["0", "0x0"]:
                return
    pytest.skip("cannot see what the process waits for")


RULES = ",".join(f'{{"id": "r{n}", "action": "permit", "protocol": "tcp"}}' for n in range(3000))


def redirected(redirection: str, arguments: str = "acl check -", text: str = RULES) -> Ended:
    """A command of a shell's, some of whose streams lead elsewhere or nowhere."""
    ended = subprocess.run(
        ("sh", "-c", f'"$0" -m orchestrator.cli {arguments} {redirection}', sys.executable),
        input=f'{{"rules": [{text}]}}',
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=PATIENCE_S,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("text", [RULES, ",".join(RULES.split(",")[:6])])
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_an_output_that_takes_nothing_is_said_once(text: str, redirection: str, reason: str) -> None:
    ended = redirected(redirection, text=text)
    assert ended == Ended(3, "", f"aclflow: the output cannot be written: {reason}\n")


def test_an_input_that_is_closed_is_empty() -> None:
    ended = redirected("<&-")
    assert ended.code == 2
    assert ended.err.startswith("aclflow: standard input: it is empty")


def test_where_complaints_go_nowhere_results_are_what_they_are() -> None:
    usual, found = redirected(""), redirected("2>&-")
    assert usual.err
    assert found == Ended(usual.code, usual.out, "")
    assert redirected("2>&- >&-") == Ended(3, "", "")
    assert redirected("2>&-", "acl check /nowhere") == Ended(3, "", "")


def test_a_reader_that_goes_away_is_no_fault() -> None:
    command = (*COMMAND, "acl", "check", "-")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(f'{{"rules": [{RULES}]}}'.encode())
        process.stdin.close()
        process.wait(timeout=60)
        assert process.stderr.read() == b""
        assert process.returncode == 1
