"""A controller process for tests: URL, state directory, port, name, seconds between looks, enrolment token if any."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.enforce.controller import ControllerSettings, run_controller
from orchestrator.enforce.drivers.openflow.launcher import Listen
from orchestrator.enforce.enrolment import Membership
from orchestrator.enforce.standing import Timing
from orchestrator.enforce.watch import Patience


def main() -> None:
    url, state_dir, port, name, look_s, *token = sys.argv[1:]
    patience = Patience(watch_s=5.0, longest_retry_s=0.5)
    run_controller(
        ControllerSettings(
            membership=Membership(
                url, Path(state_dir), name, token="".join(token) or f"once-{name}", patience=patience
            ),
            listen=Listen("0.0.0.0", int(port)),
            timing=Timing(observe_every_s=float(look_s), count_every_s=0.5, absent_after_s=3600),
            hosts_every_s=0.5,
        )
    )


if __name__ == "__main__":
    main()
