"""Kept programs: what a start makes of them is what it would compile, and damaged ones are told of and compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compile.test_structural_steps import NAMES, steps
from compiled_domain import populated
from flow_tables import content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import until
from policy_edits import edits
from store.postgres_cluster import Cluster
from strategies import policies

from orchestrator.compile.equivalence import prove, prove_rest
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.keptprograms import KeptPrograms, ProgramKeeper, marks_of
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Acl, Action, Endpoint, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.program.delta import between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program
from orchestrator.program.wire import decode_program, encode_program
from orchestrator.store import Store, open_store
from orchestrator.store.unit import Unit

LAWS = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
DOMAINS = ("d0",)


class Lists:
    """Names for lists as a store gives them: another list has another one."""

    def __init__(self) -> None:
        self._known: list[object] = []

    def of(self, policy: Policy) -> dict[str, str]:
        """Return the names of a policy's lists."""
        return {str(each.id): self._name((each.acl, each.rule_numbers)) for each in policy.tenants}

    def _name(self, content: object) -> str:
        if content not in self._known:
            self._known.append(content)
        return str(self._known.index(content))


@st.composite
def other_steps(draw: st.DrawFn, policy: Policy, pool: tuple[Tenant, ...]) -> Policy:
    """A following policy, in which a list, an endpoint or the limit of logging may be another one, too."""
    kind = draw(st.sampled_from(("list", "list", "endpoint", "limit", "structure")))
    if kind == "limit":
        return replace(policy, log_limit=LogLimit(rate=policy.log_limit.rate + 1))
    if kind == "list" and policy.tenants:
        at = draw(st.integers(0, len(policy.tenants) - 1))
        edited = draw(edits(policy.tenants[at]))
        return replace(policy, tenants=(*policy.tenants[:at], edited, *policy.tenants[at + 1 :]))
    if kind == "endpoint" and policy.endpoints:
        at = draw(st.integers(0, len(policy.endpoints) - 1))
        other = replace(policy.endpoints[at], mac=policy.endpoints[at].mac + 100)
        return replace(policy, endpoints=(*policy.endpoints[:at], other, *policy.endpoints[at + 1 :]))
    return draw(steps(policy, pool))


@LAWS
@given(policies(max_tenants=3, max_rules=4).map(populated), st.data())
def test_a_restored_program_is_what_would_be_compiled_and_goes_on_as_that(policy: Policy, data: st.DataObject) -> None:
    pool, lists = policy.tenants, Lists()
    kept, marks = compile_host(policy, domain="d", generation=1), marks_of(policy, lists.of(policy))
    for _ in range(data.draw(st.integers(0, 3))):
        policy = data.draw(other_steps(policy, pool))
    try:
        scratch = compile_host(policy, domain="d", generation=2)
    except BadPolicy:  # some lists cannot be had together with tracked connections
        return
    now = marks_of(policy, lists.of(policy))
    same = {name for name, mark in now.items() if marks.get(name) == mark}
    cache = CompileCache()
    before = cache.restore_program(policy, kept, same, generation=2)
    assert encode_program(before) == encode_program(scratch)
    proof = prove_rest(policy, same, before.blocks.tenants, before.blocks.of_tenant)
    for generation in range(3, 3 + data.draw(st.integers(0, 4))):
        policy = data.draw(other_steps(policy, pool))
        try:
            scratch = compile_host(policy, domain="d", generation=generation)
        except BadPolicy:
            return
        after = cache.compile_program(policy, domain="d", generation=generation)
        assert encode_program(after) == encode_program(scratch)
        assert cache.change is not None
        right = between(before, scratch)
        assert content(cache.change.removed) == content(right.removed)
        assert content(cache.change.added) == content(right.added)
        rows = cache.change.removed, cache.change.added
        if proof.must_begin_anew(policy, *rows):
            proof = prove(policy, after.flows)
        else:
            proof = proof.after(policy, *rows, after.blocks.of_tenant)
        assert {*proof.lists, *proof.kept} == {*prove(policy, scratch.flows).lists}
        assert not proof.lists.keys() & proof.kept.keys(), "a list that changed is proven by what it is now"
        before = after


def others_of(policy: Policy) -> Iterator[Policy]:
    """Policies that differ in one setting, endpoint or list."""
    yield policy
    yield replace(policy, log_limit=LogLimit(rate=99))
    for returns in (ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT, ReturnTraffic.TRACKED):
        yield replace(policy, return_traffic=returns)
    for number, name in enumerate(NAMES, 1):
        new = Endpoint(f"e-{name}", policy.tenants[0].id, name, number, (Prefix.parse(f"10.250.0.{number}/32"),))
        yield replace(policy, endpoints=(*policy.endpoints, new))
    many = [
        Endpoint(f"m{n}", policy.tenants[0].id, f"m{n}", n, (Prefix(Family.IPV4, (10 << 24) + (249 << 16) + n, 32),))
        for n in range(1, 300)
    ]
    yield replace(policy, endpoints=(*policy.endpoints, *many))  # all ports have other symbols then
    for each in policy.endpoints:
        left = tuple(other for other in policy.endpoints if other is not each)
        yield replace(policy, endpoints=left)
        yield replace(policy, endpoints=(*left, replace(each, mac=each.mac + 100)))
    first, *rest = policy.tenants
    yield replace(policy, tenants=(replace(first, acl=Acl()), *rest))
    yield replace(policy, tenants=(replace(first, acl=replace(first.acl, ingress_default=Action.PERMIT)), *rest))


def test_whatever_changed_since_is_found() -> None:
    listed = acl_from_json({"rules": [{"id": "a", "action": "permit", "protocol": "tcp", "log": True}]})
    tenants = tuple(
        Tenant(TenantId(f"t{n}"), n, (Prefix.parse(f"10.{n}.0.0/16"),), listed, RuleNumbers({"a": n}))
        for n in (1, 2, 3)
    )
    ends = tuple(Endpoint(f"e{t.number}", t.id, f"p{t.number}", t.number, t.prefixes) for t in tenants)
    policy, lists = Policy(tenants, endpoints=ends), Lists()
    kept, marks = compile_host(policy, domain="d", generation=1), marks_of(policy, lists.of(policy))
    for other in others_of(policy):
        now = marks_of(other, lists.of(other))
        same = {name for name, mark in now.items() if marks.get(name) == mark}
        program = CompileCache().restore_program(other, kept, same, generation=2)
        assert encode_program(program) == encode_program(compile_host(other, domain="d", generation=2))


# ------------------------------------------------------------------------------------------------------- in a service


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.create_database(f"kept_{abs(hash(request.node.name))}")


def ports(*numbers: int) -> Callable[[str], Callable[[Unit], object]]:
    rules = [{"id": f"p{n}", "action": "permit", "protocol": "tcp", "destination_ports": n} for n in numbers]
    return lambda tenant: lambda unit: unit.acls.replace(tenant, acl_from_json({"rules": rules}), author="x")


class Service:
    """The parts of a service that compile and publish, over a folder of kept programs."""

    def __init__(self, url: str, folder: Path, code: str = "this") -> None:
        self.store: Store = open_store(url)
        self.metrics, self.publisher = Metrics(), Publisher()
        self.kept = KeptPrograms(self.store, folder, refused=self.metrics.refused_kept, code=code)
        self.control = Control(self.store, Compiler(self.metrics, self.kept), self.publisher)

    def start(self) -> Program:
        """Start, and return the program that is given out first."""
        self.control.start()
        until(lambda: self.publisher.program("d0") is not None)
        return self.program

    @property
    def program(self) -> Program:
        program = self.publisher.program("d0")
        assert program is not None
        return program

    def scratch(self) -> Program:
        """The program as it is from scratch."""
        snapshot = self.control.read(lambda unit: unit.domains.policy("d0"))
        return compile_host(snapshot.policy, domain="d0", generation=snapshot.generation)

    def count(self, name: str) -> float:
        value = self.metrics.registry.get_sample_value(name)
        assert value is not None
        return value

    def close(self) -> None:
        self.publisher.close()
        self.control.stop()
        self.store.close()


def filled(url: str, folder: Path, first_port: int = 80, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> None:
    """A domain of three tenants, with its program kept."""
    service = Service(url, folder)
    service.control.write(lambda unit: unit.domains.create("d0", return_traffic=returns))
    for number in range(3):
        name, owned = f"t{number}", Prefix.parse(f"10.{number}.0.0/16")
        service.control.write(lambda unit, n=name, p=owned: unit.tenants.create(n, name="", domain="d0", prefixes=[p]))  # type: ignore[misc]
        end = Endpoint(f"e{number}", TenantId(name), f"p{number}", number + 1, (Prefix.parse(f"10.{number}.0.5/32"),))
        service.control.write(lambda unit, e=end: unit.domains.put_endpoint("d0", e))  # type: ignore[misc]
        service.control.write(ports(first_port + number)(name))
    service.start()
    until(lambda: service.program.generation == service.scratch().generation)
    assert service.kept.save(service.program)
    service.close()


def kept_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_a_start_compiles_nothing_that_did_not_change(store_url: str, tmp_path: Path) -> None:
    filled(store_url, tmp_path / "kept")
    service = Service(store_url, tmp_path / "kept")
    assert service.start().digest == service.scratch().digest
    assert service.count("aclflow_compile_seconds_count") == 0
    assert service.count("aclflow_kept_programs_refused_total") == 0
    for change in (ports(1, 2, 3)("t1"), lambda unit: unit.domains.set_return_traffic("d0", ReturnTraffic.TRACKED)):
        service.control.write(change)
        until(lambda: service.program.digest == service.scratch().digest)
    service.close()


def test_a_start_compiles_lists_that_changed_since(store_url: str, tmp_path: Path) -> None:
    filled(store_url, tmp_path / "kept")
    other = Service(store_url, tmp_path / "elsewhere")
    other.control.write(ports(443)("t1"))
    other.close()
    service = Service(store_url, tmp_path / "kept")
    found = service.kept.restore("d0", service.control.read(lambda unit: unit.domains.policy("d0")))
    assert found is not None
    assert found.same == {"t0", "t2"}
    program = service.start()
    assert encode_program(program) == encode_program(service.scratch())
    assert service.count("aclflow_compile_seconds_count") == 0
    service.close()


def test_a_start_follows_a_rate_of_messages_about_path_mtu_that_changed_since(store_url: str, tmp_path: Path) -> None:
    filled(store_url, tmp_path / "kept", returns=ReturnTraffic.PATH_MTU)
    other = Service(store_url, tmp_path / "elsewhere")
    other.control.write(lambda unit: unit.domains.set_return_traffic("d0", path_mtu_rate=7))
    other.close()
    service = Service(store_url, tmp_path / "kept")
    assert encode_program(service.start()) == encode_program(service.scratch())
    service.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("place", [0, 20, 60, 70, 200, -1])
def test_a_damaged_file_is_counted_and_the_domain_compiled(store_url: str, tmp_path: Path, place: int) -> None:
    filled(store_url, tmp_path / "kept")
    file = kept_file(tmp_path / "kept")
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    service = Service(store_url, tmp_path / "kept")
    assert service.start().digest == service.scratch().digest
    assert service.count("aclflow_compile_seconds_count") == 1
    assert service.count("aclflow_kept_programs_refused_total") == 1
    service.close()


def forge(file: Path, forged: Callable[[Program], Program]) -> None:
    """Put another program into a file, with the checksum that belongs to it."""
    name, rest = file.read_bytes().split(b"\n", 1)
    body = rest[32:]
    end = 8 + int.from_bytes(body[:8], "big")
    body = body[:end] + encode_program(forged(decode_program(body[end:])))
    file.write_bytes(name + b"\n" + hashlib.blake2b(body, digest_size=32).digest() + body)


def without_a_tenant(program: Program) -> Program:
    """A program that lacks the rows of its first tenant, under the digest of the whole."""
    first = program.blocks.of_tenant(min(program.blocks.tenants))
    return replace(program, blocks=program.blocks.replace_rows(first, FlowTable.of(())))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("forged", [without_a_tenant, lambda program: replace(program, domain="d1")])
def test_a_forged_file_is_counted_and_the_domain_compiled(
    store_url: str, tmp_path: Path, forged: Callable[[Program], Program]
) -> None:
    filled(store_url, tmp_path / "kept")
    forge(kept_file(tmp_path / "kept"), forged)
    service = Service(store_url, tmp_path / "kept")
    assert encode_program(service.start()) == encode_program(service.scratch())
    assert service.count("aclflow_kept_programs_refused_total") == 1
    service.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_of_another_stores_program_no_list_is_taken(store_url: str, tmp_path: Path) -> None:
    filled(store_url, tmp_path / "kept")
    theirs = f"sqlite:///{tmp_path / 'other.db'}"
    filled(theirs, tmp_path / "theirs", first_port=443)
    service = Service(theirs, tmp_path / "kept")
    snapshot = service.control.read(lambda unit: unit.domains.policy("d0"))
    found = service.kept.restore("d0", snapshot)
    assert found is not None
    assert found.program.generation == snapshot.generation, "the two stores differ by their lists alone"
    assert not found.same
    assert encode_program(service.start()) == encode_program(service.scratch())
    service.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_other_code_has_kept_is_compiled(store_url: str, tmp_path: Path) -> None:
    filled(store_url, tmp_path / "kept")
    service = Service(store_url, tmp_path / "kept", code="another")
    assert service.start().digest == service.scratch().digest
    assert service.count("aclflow_compile_seconds_count") == 1
    assert service.count("aclflow_kept_programs_refused_total") == 0
    service.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_domain_at_rest_is_kept_and_one_that_is_deleted_is_not(store_url: str, tmp_path: Path) -> None:
    service = Service(store_url, tmp_path / "kept")
    service.control.write(lambda unit: unit.domains.create("d0"))
    program = service.start()
    keeper = ProgramKeeper(service.kept, service.publisher, rest_s=0.0, look_s=0.01)
    keeper.start()

    def restored() -> bool:
        snapshot = service.control.read(lambda unit: unit.domains.policy("d0"))
        found = service.kept.restore("d0", snapshot)
        return found is not None and found.program.digest == program.digest

    until(restored)
    service.control.delete_domain("d0", lambda unit: unit.domains.delete("d0"))
    until(lambda: not list((tmp_path / "kept").iterdir()))
    keeper.stop()
    service.close()


def test_a_program_that_was_not_proven_here_is_not_kept(store_url: str, tmp_path: Path) -> None:
    """As one that came by another service's step (`sealedsteps.py`)."""
    service = Service(store_url, tmp_path / "kept")
    for name in ("d0", "d1"):
        service.control.write(lambda unit, name=name: unit.domains.create(name))  # type: ignore[misc]
    program = service.start()
    until(lambda: service.publisher.program("d1") is not None)
    service.control.stop()  # else it might prove it now
    assert service.publisher.publish(program, again=True, is_proven=False)

    def is_kept(name: str) -> bool:
        return service.kept.restore(name, service.control.read(lambda unit: unit.domains.policy(name))) is not None

    keeper = ProgramKeeper(service.kept, service.publisher, rest_s=0.0, look_s=0.01)
    keeper.start()
    until(lambda: is_kept("d1"))
    assert not is_kept("d0")
    assert service.publisher.confirm(program)
    until(lambda: is_kept("d0"))
    keeper.stop()
    service.close()
