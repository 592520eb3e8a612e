"""What Tab offers: commands, options and names from the service; quick, and silent when it has nothing to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, served

from orchestrator.cli import shell
from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.lazy import load
from orchestrator.cli.tree import TREE
from orchestrator.client import Host
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.formats.registry import FORMATS
from orchestrator.policy.model import Endpoint, TenantId

WEB1 = Endpoint("web1", TenantId("red"), "tap1", 0x020000000001, (Prefix.parse("203.0.113.7"),))
PATIENT = "from orchestrator.cli import complete; complete.PATIENCE_S = 60; "
"""So that a name is not missed because the machine is busy: a person at a busy one misses it, and presses Tab again."""
ASK = "import sys; sys.argv[0] = 'aclflow'; from orchestrator.cli import main; code = main(); {then}; sys.exit(code)"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service")) as here:
        with here.client() as admin:
            for name in ("pop1", "pop2"):
                admin.domains.create(name)
            for name in ("blue", "black", "red"):
                owned = [Prefix.parse("203.0.113.0/24")] if name == "red" else []
                admin.tenants.create(name, domain="pop1", prefixes=owned)
            admin.domains.put_endpoint("pop1", WEB1)
            admin.pops.add("pop1", "pop1", ("uplink",))
            admin.pops.add_edge("pop1", Host("edge1", 0xE1, "uplink"))
            groups = {"office": {"prefixes": [str(Prefix.parse("192.0.2.1"))]}, "other": {"prefixes": []}}
            rules = [{"id": name, "action": "permit"} for name in ("web", "web-again", "mail")]
            admin.acls.put("blue", acl_from_json({"groups": groups, "rules": rules}))
        yield here


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def completed(
    words: str, cache: Path, here: Served | None = None, *, shell: str = "bash", then: str = "0"
) -> list[str]:
    """What is offered for the last of the words."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACLFLOW")}
    environment |= {"XDG_CACHE_HOME": str(cache), "_ACLFLOW_COMPLETE": f"complete_{shell}"}
    environment |= {"COMP_WORDS": words.replace(" ", "\n"), "COMP_CWORD": str(words.count(" "))}  # as the script does
    environment |= {"_TYPER_COMPLETE_ARGS": words}
    environment |= {
        "ACLFLOW_URL": here.url if here else "http://127.0.0.1:1",
        "ACLFLOW_TOKEN": here.token if here else "none",
    }
    command = [sys.executable, "-c", (PATIENT if here else "") + ASK.format(then=then)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_commands_and_options(cache: Path) -> None:
    assert completed("aclflow ten", cache) == ["tenant"]
    assert completed("aclflow group ", cache) == ["list", "show", "put", "add", "remove", "delete"]
    assert completed("aclflow acl check --dir", cache) == ["--direction"]
    assert completed("aclflow acl check --direction ", cache) == ["ingress", "egress"]


def test_names_come_from_the_service(town: Served, cache: Path) -> None:
    for _ in range(2):  # by the command itself, and by what stands for it
        assert completed("aclflow tenant quota show bl", cache, town) == ["black", "blue"]
        assert completed("aclflow domain show pop", cache, town) == ["pop1", "pop2"]
        assert completed("aclflow acl show --format cis", cache, town) == [f for f in FORMATS if f.startswith("cis")]
        assert completed("aclflow group show blue o", cache, town) == ["office", "other"]
        assert completed("aclflow events --kind acl.en", cache, town) == ["acl.enforced"]
        assert completed("aclflow acl trace bl", cache, town) == ["black", "blue"]
        assert completed("aclflow acl rule set blue web-", cache, town) == ["web-again"]
        assert completed("aclflow acl restore blue ", cache, town)[-1] == "0"
        assert completed("aclflow token revoke ", cache, town)
        assert completed("aclflow group remove blue office 192", cache, town) == ["192.0.2.1/32"]
        assert completed("aclflow tenant prefix delete red ", cache, town) == ["203.0.113.0/24"]
        assert completed("aclflow tenant create new --domain ", cache, town) == ["pop1", "pop2"]
        assert completed("aclflow acl log --domain ", cache, town) == ["pop1", "pop2"]
        assert completed("aclflow pop show ", cache, town) == ["pop1"]
        assert completed("aclflow pop edge remove pop1 ", cache, town) == ["edge1"]
        assert completed("aclflow domain placement pin pop1 blue we", cache, town) == ["web", "web-again"]
        assert completed("aclflow acl rule add blue new --before web", cache, town) == ["web", "web-again"]
        assert completed("aclflow acl rule add red new --destination w", cache, town) == ["web1"]
        assert completed("aclflow acl trace red -s ", cache, town) == ["web1"]
        assert completed("aclflow acl log blue --rule m", cache, town) == ["mail"]
        assert completed("aclflow acl show blue@", cache, town) == ["blue@1", "blue@0"]
        assert completed("aclflow acl diff blue@", cache, town) == ["blue@1", "blue@0"]
        assert completed("aclflow proposal show do", cache, town) == ["domain/pop1", "domain/pop2"]
        assert completed("aclflow domain approval set pop1 --add bl", cache, town) == ["black", "blue"]


def test_bash_is_offered_what_follows_the_sign_that_ends_its_words(town: Served, cache: Path) -> None:
    """Bash gives `blue@1` as three words, and replaces the last of them."""
    assert completed("aclflow acl show blue @", cache, town) == ["1", "0"]
    assert completed("aclflow acl diff blue @ 0 blue @ 1", cache, town) == ["1"]
    assert completed("aclflow acl diff blue @ 0 bl", cache, town) == ["black", "blue"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_without_a_service_there_are_no_names_and_no_words(cache: Path, shell: str) -> None:
    nothing = {"bash": [], "zsh": ["_files"]}[shell]  # zsh then offers files by itself
    for _ in range(2):
        assert completed("aclflow tenant quota show b", cache, shell=shell) == nothing


def test_zsh_is_offered_the_same(town: Served, cache: Path) -> None:
    assert "blue" in " ".join(completed("aclflow tenant quota show blu", cache, town, shell="zsh"))


def test_the_second_time_nothing_that_a_command_works_with_is_loaded(town: Served, cache: Path) -> None:
    modules = ("numpy", "sqlalchemy", "orchestrator.client", "orchestrator.cli.connection")
    heavy = f"print(*(each for each in {modules} if each in sys.modules))"
    first = completed("aclflow tenant quota show re", cache, town, then=heavy)
    second = completed("aclflow tenant quota show re", cache, town, then=heavy)
    assert first[0] == second[0] == "red"
    assert "orchestrator.cli.connection" in first
    assert second[1:] == []


def test_a_cache_that_cannot_be_used_is_none(town: Served, cache: Path) -> None:
    kept = cache / "aclflow" / "completion.json"
    kept.parent.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"stamp": "of another", "commands": {}}'):
        kept.write_text(content)
        assert completed("aclflow tenant quota show re", cache, town) == ["red"]
    assert json.loads(kept.read_text())["commands"]
    assert completed("aclflow tenant quota show re", Path("/proc/nowhere"), town) == ["red"]


def leaves(branch: Branch = TREE) -> Iterator[Leaf]:
    for child in branch.children:
        yield from leaves(child) if isinstance(child, Branch) else [child]


def test_what_stands_for_a_command_takes_what_it_takes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    tried = 0
    for leaf in leaves():
        monkeypatch.setenv(shell.COMPLETING, "complete_bash")
        real, stands = load(leaf), load(leaf)
        if shell.standing_for(leaf.target) is None:
            continue  # an application with commands of its own, which is loaded each time
        tried += 1
        assert [taken(each) for each in real.params] == [taken(each) for each in stands.params], leaf.name
    assert tried > 40


IDS = {
    *("tenant", "domain", "host", "rule", "group", "token", "waiver", "version", "draft", "pop", "edge", "server"),
    *("firewall", "vnf", "serial", "endpoint", "context"),
}
"""How parameters are called that take an id of something."""
NEW = {
    ("tenant create", "tenant"), ("domain create", "domain"), ("host add", "host"), ("firewall add", "firewall"),
    ("pop add", "pop"), ("pop edge add", "edge"), ("pop server add", "server"), ("domain host add", "host"),
    ("domain endpoint add", "endpoint"), ("domain group invite", "group"), ("certificates console", "host"),
    ("certificates issue", "host"), ("serve", "host"), ("console", "host"),
    ("statesync run", "context"), ("statesync set", "context"),
}  # fmt: skip
"""Commands that give a new id, or mean something else by the word."""


def test_every_id_is_completed() -> None:
    """An argument for an id of something that is there has its completion, wherever it is taken."""
    missing = [
        (path, parameter.name)
        for path, leaf in paths()
        if not leaf.target.startswith("orchestrator.")
        for parameter in load(leaf).params
        if parameter.name in IDS and getattr(parameter, "_custom_shell_complete", None) is None
    ]
    assert set(missing) - NEW == set()
    assert len(missing) < 20


def paths(branch: Branch = TREE, before: str = "") -> Iterator[tuple[str, Leaf]]:
    for child in branch.children:
        here = f"{before} {child.name}".strip()
        if isinstance(child, Leaf):
            yield here, child
        else:
            yield from paths(child, here)


def taken(parameter: object) -> tuple[object, ...]:
    names = (parameter.name, tuple(parameter.opts), tuple(parameter.secondary_opts))  # type: ignore[attr-defined]
    return *names, parameter.param_type_name, bool(getattr(parameter, "is_flag", False))  # type: ignore[attr-defined]
