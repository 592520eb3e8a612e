"""Read a poll's counters from the parts of a flow-desc reply.

`flowdesc` takes whole flow entries apart, to compare them with a program; here only names and counters are read, in C
(`_native/flowstats.c`), for this is done every few seconds with every entry of a switch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.enforce import _flowstats
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow.messages import MULTIPART_BODY
from orchestrator.errors import Drifted

_KINDS = (np.uint64, np.uint64, np.uint64, np.uint64, np.uint32, np.float64)


def read_counters(replies: Sequence[bytes]) -> Hits:
    """Return the counters of every entry in flow-desc replies.

    Raises Drifted for other bytes.
    """
    try:
        columns = _flowstats.counters(list(replies), MULTIPART_BODY)
    except ValueError as error:
        raise Drifted(f"the switch's flow description is {error}") from None
    key, cookie, packets, byte_counts, idle_s, age_s = map(np.frombuffer, columns, _KINDS)
    return Hits(key, cookie, packets, byte_counts, idle_s, np.where(age_s < 0, np.nan, age_s))
