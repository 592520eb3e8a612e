"""Steps of programs that services pass to each other: all give out the same, and nobody without the key is heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import orjson
from patience import until
from store.postgres_cluster import Cluster

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.duties import Duties
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.sealedsteps import MOST_BYTES, SealedSteps
from orchestrator.control.tiers import Tiers
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.program.delta import Delta, apply
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.store import Store, open_store
from orchestrator.store.records import FirewallRecord
from orchestrator.store.sql.notices import CHANNEL
from orchestrator.wire.firewalls import Plane

DOMAINS = ("east", "west")
KEY = b"k" * 32


class Watched(Publisher):
    """Remembers what was published, and which programs are of other services' steps."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled: dict[str, list[int]] = {domain: [] for domain in DOMAINS}
        self.passed: dict[str, list[int]] = {domain: [] for domain in DOMAINS}

    def publish(
        self, program: Program, change: Delta | None = None, *, again: bool = False, is_proven: bool = True
    ) -> bool:
        done = super().publish(program, change, again=again, is_proven=is_proven)
        if done:
            (self.compiled if is_proven else self.passed)[program.domain].append(program.generation)
        return done


@dataclass
class Replica:
    store: Store
    publisher: Watched
    duties: Duties
    tiers: Tiers
    control: Control

    @classmethod
    def on(cls, url: str, key: bytes, seals: Callable[..., SealedSteps]) -> Replica:
        store, publisher = open_store(url), Watched()
        duties, tiers = Duties(store.members, sealed=seals(key, store.members)), Tiers()
        control = Control(store, Compiler(Metrics()), publisher, tiers=tiers, duties=duties)
        return cls(store, publisher, duties, tiers, control)

    def program(self, domain: str) -> Program | None:
        return self.publisher.program(domain)

    def put(self, domain: str, *ports: int) -> int:
        rules = [{"id": f"r{port}", "action": "permit", "protocol": "tcp", "destination_ports": port} for port in ports]
        acl = acl_from_json({"rules": rules})
        return self.control.write(
            lambda unit: unit.acls.replace(f"of-{domain}", acl, author="x").generation, domain=domain
        )

    def holds(self, domain: str, generation: int) -> bool:
        program = self.program(domain)
        return program is not None and program.generation == generation

    def close(self) -> None:
        self.publisher.close()
        self.control.stop()
        self.store.close()


@contextmanager
def replicas(url: str, *keys: bytes, seals: Callable[..., SealedSteps] = SealedSteps) -> Iterator[list[Replica]]:
    """Services that follow every domain; the first one seals by `seals`."""
    made: list[Replica] = []
    try:
        for key in keys:
            made.append(Replica.on(url, key, SealedSteps if made else seals))
            for domain in DOMAINS:
                made[-1].duties.following(domain).__enter__()
            made[-1].control.start()
        until(lambda: all(len(each.store.members.now.living) == len(made) for each in made))  # type: ignore[union-attr]
        until(lambda: all(each.program(domain) is not None for each in made for domain in DOMAINS))
        yield made
    finally:
        for each in made:
            each.close()


def are_alike(made: list[Replica], domain: str, generation: int) -> bool:
    """Whether all services give out a generation's program, and the same."""
    return all(each.holds(domain, generation) for each in made) and len(digests(made, domain)) == 1


def digests(made: list[Replica], domain: str) -> set[bytes]:
    return {each.publisher.program(domain).digest for each in made}  # type: ignore[union-attr]


def test_a_followed_service_publishes_what_another_has_compiled_and_proves_it_at_rest(url: str) -> None:
    with replicas(url, KEY, KEY) as made:
        generation = write_until_passed(made)
        until(partial(are_alike, made, "east", generation))
        until(lambda: made[1].publisher.is_proven("east"))
        assert are_alike(made, "east", generation)


def write_until_passed(made: list[Replica]) -> int:
    """Write at the first service until the second publishes by a step; while it starts, it may compile."""
    ports, generations = iter(range(1, 60_000)), list[int]()

    def is_passed() -> bool:
        generations.append(made[0].put("east", next(ports), 60_000))
        until(lambda: made[1].holds("east", generations[-1]))
        return generations[-1] in made[1].publisher.passed["east"]

    until(is_passed)
    return generations[-1]


def test_services_that_write_in_turns_come_to_the_same_programs(url: str) -> None:
    with replicas(url, KEY, KEY, KEY) as made:
        for turn in range(18):
            domain = DOMAINS[turn % 2]
            generation = made[turn % 3].put(domain, 1 + turn, 2 + turn, 500)
        for domain in DOMAINS:
            with made[0].store.read() as unit:
                generation = unit.domains.get(domain).generation
            until(partial(are_alike, made, domain, generation))
            until(lambda domain=domain: all(each.publisher.is_proven(domain) for each in made))  # type: ignore[misc]
            assert are_alike(made, domain, generation)
        assert any(each.publisher.passed[domain] for each in made for domain in DOMAINS)


def test_a_service_with_another_key_compiles(url: str) -> None:
    with replicas(url, KEY, b"o" * 32) as made:
        generation = made[0].put("east", 80)
        until(partial(are_alike, made, "east", generation))
        assert made[1].publisher.compiled["east"][-1] == generation
        assert made[1].publisher.passed["east"] == []


def test_a_notice_of_somebody_who_may_write_to_the_database_changes_no_program(url: str, cluster: Cluster) -> None:
    with replicas(url, KEY, KEY) as made:
        generation = made[0].put("east", 80)
        until(partial(are_alike, made, "east", generation))
        now = made[0].program("east")
        assert now is not None
        removed, added = now.flows.part(0, 1), FlowTable.of(())
        target = now.blocks.replace_rows(removed, added).digest(now.ports)
        step = Delta(now.digest, target, generation + 1, removed, added, now.ports)
        forged = SealedSteps(b"guessed".ljust(32), None).seal("east", step)
        notice = {
            "from": "x",
            "number": 1,
            "domains": {"east": generation + 1},
            "event": None,
            "steps": {"east": forged},
        }
        with cluster.connect(url.partition("@/")[2].partition("?")[0]) as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, orjson.dumps(notice).decode()))
        following = made[0].put("west", 80)  # notices come in order
        until(partial(are_alike, made, "west", following))
        assert are_alike(made, "east", generation)
        assert generation + 1 not in made[1].publisher.passed["east"]


class Careless(SealedSteps):
    """Passes steps without what they add."""

    base: Callable[[str], Program | None]

    def seal(self, domain: str, step: Delta) -> str | None:
        before = self.base(domain)
        if before is None or before.digest != step.base:
            return None
        less = replace(step, added=FlowTable.of(()))
        rows = apply(before, less).blocks
        return super().seal(domain, replace(less, target=rows.digest(step.ports)))


def test_a_program_that_is_not_the_policys_is_replaced_when_it_is_proven(url: str) -> None:
    with replicas(url, KEY, KEY, seals=Careless) as made:
        Careless.base = made[0].program
        generation = write_until_passed(made)
        until(partial(are_alike, made, "east", generation))
        assert made[1].publisher.is_proven("east")


def test_a_domain_with_firewalls_is_compiled_for_these_too(url: str) -> None:
    with replicas(url, KEY, KEY) as made:
        first, second = made
        first.control.write(
            lambda unit: unit.firewalls.add("east", FirewallRecord("fw", Plane.NFTABLES)), domain="east"
        )
        generation = first.put("east", 80)
        until(partial(are_alike, made, "east", generation))

        def follows() -> bool:
            program = second.tiers.publisher(Tier.SERVER).program("east")
            return program is not None and program.generation == generation

        until(follows)
        assert second.publisher.passed["east"] == []


def test_a_step_that_is_not_sealed_for_this_domain_is_none() -> None:
    sealed = SealedSteps(KEY, None)
    nothing = FlowTable.of(())
    step = Delta(b"b" * 16, b"t" * 16, 7, nothing, nothing, ("p",))
    text = sealed.seal("east", step)
    assert text is not None
    found = sealed.open("east", text)
    assert found is not None
    assert (found.base, found.target, found.generation, found.ports) == (step.base, step.target, 7, ("p",))
    assert sealed.open("west", text) is None
    assert SealedSteps(b"o" * 32, None).open("east", text) is None
    for damaged in ("", "AAAA", "no base64!", text[:-8], text[:50] + ("B" if text[50] == "A" else "A") + text[51:]):
        assert sealed.open("east", damaged) is None
    assert sealed.seal("east", replace(step, ports=tuple(f"port-{n:09}{n * n:09}" for n in range(MOST_BYTES)))) is None
