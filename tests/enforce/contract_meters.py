"""What every switch must be to its driver where rows report packets by meters: over the fake and over Open vSwitch."""

from __future__ import annotations

from enforce.contract_driver import STAMP, Bench, change, held, placed, table
from patience import PATIENCE_S

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow.encoder import meter_of
from orchestrator.compile.openflow.instructions import instructions, reporting
from orchestrator.compile.openflow.meters import Meter, meter_in, meter_row
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import messages, meters
from orchestrator.enforce.gap import correction
from orchestrator.policy.loglimit import LogLimit
from orchestrator.program.flows import Flow
from orchestrator.program.program import Program, Tier

TENANT = 70_000
METER = meter_of(TENANT)
USUAL, MORE = meter_row(TENANT, LogLimit(10, 20)), meter_row(TENANT, LogLimit(30, 40))
REPORTING = Flow(50, 5, b"", reporting(instructions(goto=60), METER), Cookie(Tier.HOST, Kind.RULE, 9).pack(), TENANT)
PLAIN = Flow(50, 4, b"", b"", Cookie(Tier.HOST, Kind.RULE, 8).pack(), TENANT)


def there(bench: Bench) -> dict[int, Meter]:
    """The meters of the switch, as another controller reads them."""
    xids = bench.stranger.reserve(2)
    asked = meters.request(xids[0]) + messages.barrier_request(xids[-1])
    return meters.read(bench.stranger.exchange(asked, xids, timeout_s=PATIENCE_S)[:-1])


def meddle(bench: Bench, message: bytes) -> None:
    xids = bench.stranger.reserve(1)
    bench.stranger.exchange(message + messages.barrier_request(xids[-1]), xids, timeout_s=PATIENCE_S)


class MeterContract:
    def test_a_meter_is_there_with_the_rows_that_use_it(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(REPORTING, USUAL, PLAIN)), STAMP)
        assert held(bench) == placed(bench, REPORTING, USUAL, PLAIN)
        assert there(bench) == {METER: Meter(METER, 10, 20)}

    def test_a_meter_is_changed_in_place(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(REPORTING, USUAL)), STAMP)
        bench.driver.apply(change(removed=table(USUAL), added=table(MORE)), Stamp(8, bytes(16)))
        assert held(bench) == placed(bench, REPORTING, MORE)
        assert there(bench) == {METER: Meter(METER, 30, 40)}

    def test_a_meter_goes_with_the_last_row_that_uses_it(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(REPORTING, USUAL, PLAIN)), STAMP)
        bench.driver.apply(change(removed=table(REPORTING, USUAL)), STAMP)
        assert held(bench) == placed(bench, PLAIN)
        assert there(bench) == {}

    def test_rows_whose_meter_was_lost_are_written_again(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(REPORTING, USUAL, PLAIN)), STAMP)
        meddle(bench, meters.deletion(METER, 1))
        assert held(bench) == placed(bench, PLAIN)
        self._repaired(bench)

    def test_a_meter_that_somebody_has_changed_is_put_right(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(REPORTING, USUAL, PLAIN)), STAMP)
        declared = meter_in(MORE.match)
        assert declared is not None
        meddle(bench, b"".join(meters.changes([declared], there(bench), [1])))
        assert there(bench) == {METER: Meter(METER, 30, 40)}
        assert held(bench) == placed(bench, PLAIN)
        self._repaired(bench)

    def _repaired(self, bench: Bench) -> None:
        program = Program.of("pop", Tier.HOST, 7, table(REPORTING, USUAL, PLAIN), ())
        bench.driver.apply(correction(bench.driver.observe(), program, bench.driver.resolve), STAMP)
        assert held(bench) == placed(bench, REPORTING, USUAL, PLAIN)
        assert there(bench) == {METER: Meter(METER, 10, 20)}
