"""iptables in plain Python: the kernel's filter table, and the programs that write it.

walk.py      a packet through the FORWARD chain
programs.py  `iptables-restore` and `iptables-save`: what the driver runs
"""

from orchestrator.enforce.drivers.iptables.fake.programs import FakeIptables, table_of
from orchestrator.enforce.drivers.iptables.fake.walk import Journey, Table

__all__ = ["FakeIptables", "Journey", "Table", "table_of"]
