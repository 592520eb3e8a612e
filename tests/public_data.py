"""Where public data sets lie that are not part of the project: `classbench/`, `pcap/`, configurations.

`ACLFLOW_DATA` names the folder; without it, it is `shared/data` beside the project.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("ACLFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
CAPTURES = tuple(sorted((DATA / "pcap").rglob("*.pcap*")))
"""Recorded packets, in files of whatever kind."""
