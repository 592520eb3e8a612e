"""The suites of the edge at their smallest, with a real switch, real servers and a real tunnel: they measure, and tidy
up."""

from __future__ import annotations

from system.leftovers import leftovers

from orchestrator.bench.attack import suite as attack
from orchestrator.bench.attack import tuples
from orchestrator.bench.edge import suite as edge
from orchestrator.bench.edge.suite import Sizes as EdgeSizes
from orchestrator.bench.firewall_server import suite as firewall_server
from orchestrator.bench.firewall_server.general import figures
from orchestrator.bench.firewall_server.serversizes import Sizes as ServerSizes
from orchestrator.bench.firewall_server.streams import CHARON
from orchestrator.bench.pop.edge import edge_switch
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import datagram, fire
from orchestrator.bench.pop.world import Sizes as WorldSizes
from orchestrator.bench.pop.world import World
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.line import site
from orchestrator.lab.layout import Layout

_NARROW = WorldSizes(tenants=8, chunks=16, width=64, functions=4, per_line=8)


def quiet(_text: str, *, done: int = 0, total: int = 0) -> None:
    assert 0 <= done <= total


def median(results: Results, name: str) -> float:
    return results.figures[name].median


def test_the_edge_counts_as_the_model_says_and_leaks_nothing(layout: Layout) -> None:
    sizes = EdgeSizes((_NARROW,), (1,), rounds=1, seconds=0.2, draws=64_000, build=1_000, hosts=400, every=20)
    results = edge.measure(sizes, quiet, layout)
    for of in ("", "ipv6_"):
        assert median(results, f"{of}lines_off_model") == 0
        assert median(results, f"{of}lines_compared") == 16
        assert median(results, f"{of}upcalls_per_chunk") == 1
        assert median(results, f"{of}leaked_rehome") == median(results, f"{of}leaked_drop") == 0
        leaked = results.figures[f"{of}leaked_wan_vs_theory"]
        assert leaked.low == leaked.high == 1
        for mode in ("wan", "rehome"):
            assert median(results, f"{of}permitted_arrive_{mode}_unrepaired") == 1
        assert median(results, f"{of}permitted_arrive_drop_unrepaired") < 1
        assert 0.9 < median(results, f"{of}bypass_share") < 1
    assert median(results, "packets_s_system_ports") > 0
    assert ("packets_s_af_xdp" in results.figures) is not ("packets_s_af_xdp" in results.absent)
    assert not leftovers(layout)


def test_an_emptied_cache_takes_entries_at_once(layout: Layout) -> None:
    world = World(_NARROW, 1)
    grid = world.grid
    owned = [prefix for tenant in world.tenants for prefix in tenant.prefixes]
    with site(layout) as place, Links(place, "pop", world.sizes.servers, owned) as links, edge_switch(links) as switch:
        switch.load(world, links)
        for _ in range(4):
            fire(links, switch, [datagram(grid, address) for address in grid.addresses(grid.every)])
            assert switch.count_cached() > len(world.allocation)
            switch.forget()
            before = switch.upcalls()
            fire(links, switch, [datagram(grid, address) for address in grid.addresses(world.allocation.key)] * 2)
            assert switch.upcalls() - before == switch.count_cached() == len(world.allocation)
    assert not leftovers(layout)


def test_floods_reach_the_wan_as_theory_says(layout: Layout) -> None:
    sizes = attack.Sizes(rounds=1, seconds=0.5, per_s=2_000, world=_NARROW, tuples=tuples.Sizes(1, 0.1, 0.3))
    results = attack.measure(sizes, quiet, layout)
    for flood in ("sweep", "one_target", "one_tenant"):
        for mode in ("rehome", "drop"):
            assert median(results, f"wan_octets_s_{flood}_{mode}") == 0
    assert median(results, "wan_share_sweep_wan") > 0
    assert median(results, "wan_share_sweep_wan_vs_theory") <= 1
    assert median(results, "others_answered_no_attack_rehome") > 0
    for lever in ("", "_comes_first", "_ordinary", "_endpoint_without_whole_ports", "_varied_signature_cache"):
        assert median(results, f"pps_of_others_under_tse{lever}") > 0
    assert not leftovers(layout)


def test_a_firewall_server_is_measured_beside_a_tunnel(layout: Layout) -> None:
    sizes = ServerSizes(
        (200, 2_000),
        (100,),
        loads=1,
        rounds=1,
        lookups=2,
        seconds=1,
        singles=5,
        batch=20,
        typed=1,
        spread=50,
        general=50,
        changes=3,
        held=50,
        burst=40,
        tenants=8,
        sixes=(100, 1_000),
    )
    results = firewall_server.measure(sizes, quiet, layout)
    assert {
        "gb_2000",
        "add_one_us_2000",
        "lookup_cpu_2000_vs_200",
        "interval_set_add_one_ms_100",
        "add_one_rest_ms",
        "burst_s",
        "ipv6_lookup_cpu_1000_vs_100",
    } <= results.figures.keys()
    assert median(results, "hash_set_of_2000_mbit_s") > 0
    assert ("cpu_per_byte_vs_ipsec" in results.figures) is CHARON.exists()
    assert all((name in results.figures) is not (name in results.absent) for name in figures(50))
    assert not leftovers(layout)
