"""The last policy of every domain in memory.

The transaction that moves the generation on and changes nothing but access lists takes over the rest of it
(`Domains.policy`).
"""

from __future__ import annotations

from orchestrator.store.newest import Newest
from orchestrator.store.records import PolicySnapshot


class PolicyCache(Newest[PolicySnapshot]):
    """The shared memory of policies."""
