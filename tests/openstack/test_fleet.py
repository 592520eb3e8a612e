"""The contract of a fleet in Heat, over a real one, and what only a real one can do to us."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from allinone.stack import AllInOne
from cloud.contract_heat import FLEET, NUMBERS, HeatContract, named, order, states
from realbench import REAL, RealBench, settings_for, until

from orchestrator.cloud.base import VnfState
from orchestrator.errors import Refused, Unauthenticated, Unreachable
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.decide import Fleet, History, Limits, Load, Sample, decide

pytestmark = REAL


@pytest.fixture(scope="module")
def bench(all_in_one: AllInOne, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBench]:
    """A fleet with one VNF; at the end nothing is left of it."""
    made = RealBench(all_in_one.place, settings_for(all_in_one.place, tmp_path_factory.mktemp("heat")))
    made.cloud.create([order(0)])
    assert states(made.settle()) == {"fw-0": VnfState.RUNNING}
    yield made
    made.cloud.delete(FLEET, ["fw-0"])
    until("an empty cloud", lambda: made.cloud.list() == () and made.is_empty())
    made.cloud.close()


class TestReal(HeatContract):
    """Heat itself."""

    def test_a_load_that_rises_and_falls_makes_it_grow_and_shrink(self, bench: RealBench) -> None:
        limits = Limits(most=3, cooldown_down_s=0, peak_s=0)
        model = CapacityModel(1, base_s=1e-5, per_rule_s=0, per_octet_s=0, error=None, most_rules=100)
        names = ["fw-0"]
        for now_s, pps, size in ((0.0, 100_000, 2), (600.0, 10_000, 1)):
            load = Load((Sample(now_s, pps),), packet_bytes=500, rules=10)
            decision = decide(load, Fleet(serving=len(names)), model, limits, History(), now_s)
            assert decision.size == size, decision.because
            if decision.size > len(names):
                new = [order(next(NUMBERS)) for _ in range(decision.size - len(names))]
                bench.cloud.create(new)
                names += [each.name for each in new]
            else:
                bench.cloud.delete(FLEET, names[decision.size :])
                names = names[: decision.size]
            assert states(bench.settle()) == dict.fromkeys(names, VnfState.RUNNING)

    def test_the_api_goes_away_in_the_middle(self, bench: RealBench, all_in_one: AllInOne) -> None:
        number = next(NUMBERS)
        bench.cloud.create([order(number)])
        all_in_one.stop("heat-api")
        try:
            with pytest.raises(Unreachable, match="got no answer"):
                bench.cloud.list(FLEET)
            with pytest.raises(Unreachable):
                bench.cloud.create([order(number)])
            with pytest.raises(Unreachable):
                bench.cloud.delete(FLEET, [f"fw-{number}"])
        finally:
            all_in_one.start("heat-api")
            all_in_one.wait("heat-api")
        bench.cloud.create([order(number)])
        assert states(bench.settle()) == {"fw-0": VnfState.RUNNING, f"fw-{number}": VnfState.RUNNING}
        bench.cloud.delete(FLEET, [f"fw-{number}"])

    def test_a_token_that_is_not_valid_any_more_is_made_anew(self, bench: RealBench) -> None:
        before = bench.cloud.list(FLEET)
        session = bench.openstack.session
        session.invalidate()
        token = session.get_token()  # one that no service has seen, and so none remembers as good
        mine = {"X-Auth-Token": token, "X-Subject-Token": token}
        assert httpx.delete(f"{bench.place.keystone}/auth/tokens", headers=mine).status_code == 204
        assert bench.cloud.list(FLEET) == before
        assert session.get_token() != token

    def test_nova_away_is_not_taken_for_no_vnfs(self, bench: RealBench, all_in_one: AllInOne) -> None:
        all_in_one.stop("nova-api")
        try:
            with pytest.raises(Unreachable, match="Nova"):
                bench.cloud.list(FLEET)
        finally:
            all_in_one.start("nova-api")
            all_in_one.wait("nova-api")

    def test_what_heat_does_not_take_is_refused_with_its_place(
        self, bench: RealBench, all_in_one: AllInOne, tmp_path: Path
    ) -> None:
        wrong = RealBench(all_in_one.place, settings_for(all_in_one.place, tmp_path, left_network="nowhere"), "pop2")
        with pytest.raises(Refused, match=r"left_network.*nowhere"):
            wrong.cloud.create([order(0, "pop2")])
        assert wrong.cloud.list("pop2") == ()

    def test_a_wrong_password_is_said_to_be_one(self, bench: RealBench, all_in_one: AllInOne, tmp_path: Path) -> None:
        settings = settings_for(all_in_one.place, tmp_path)
        file = tmp_path / "clouds.yaml"
        file.write_text(file.read_text().replace("only-on-loopback", "not-this"))
        with pytest.raises(Unauthenticated, match=r"clouds\.yaml"):
            RealBench(all_in_one.place, settings).cloud.list()

    def test_a_vnf_that_nova_migrates_stays_the_same_one(self, bench: RealBench, all_in_one: AllInOne) -> None:
        all_in_one.add_host("two")
        until("a second host", lambda: len(list(bench.admin.compute.hypervisors())) == 2)
        vnf = named(bench.settle(), "fw-0")

        def host() -> str:
            return str(bench.admin.compute.get_server(vnf.instance_id).compute_host)

        def is_on(wanted: str) -> bool:
            return named(bench.cloud.list(FLEET), "fw-0") == vnf and host() == wanted

        first = host()
        for wanted in ("two" if first == "one" else "one", first):
            bench.admin.compute.live_migrate_server(vnf.instance_id, host=None, block_migration="auto")
            until(f"fw-0 on {wanted}", partial(is_on, wanted))
