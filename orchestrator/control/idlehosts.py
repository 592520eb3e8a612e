"""Skip compiling host programs of domains that have neither hosts nor watchers.

Where firewall servers hold a domain's lists, and there is neither a host nor who follows the hosts' program, making and
proving that program would be half of what a change costs. It is made again when somebody could hold it, or asks:

    the first host ─────── comes with a generation of its own, so the program is compiled, proven, and if need be
                           refused in the transaction that adds the host
    who follows it ─────── is noted for good, and the control loop catches up
    quotas, lifted rules ─ are told from the program: with these it is made at every change
"""

from __future__ import annotations

from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit


class IdleHosts:
    """Which domains' hosts' programs are followed, and which are behind. Safe between threads."""

    def __init__(self) -> None:
        self._followed: set[str] = set()
        self._behind: set[str] = set()

    def follow(self, domain: str) -> bool:
        """Record a watcher of a domain's host program.

        Returns whether there was none before, so that it may be behind.
        """
        is_new = domain not in self._followed
        self._followed.add(domain)
        return is_new

    def is_idle(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> bool:
        """Return whether nobody needs a domain's host program, inside a changing transaction."""
        if domain in self._followed or snapshot.lifted:
            return False
        pop = unit.pops.of_domain(domain)
        if pop is None or not pop.servers or unit.domains.has_hosts(domain):
            return False
        quotas = [unit.tenants.quota(tenant) for tenant in unit.changed_lists]
        return all(quota.flows is quota.rules is None for quota in quotas)

    def left(self, domain: str) -> bool:
        """Note a generation without the hosts' program; return whether somebody came to follow it."""
        self._behind.add(domain)
        return domain in self._followed

    def note_published(self, domain: str) -> None:
        """The hosts' program was published."""
        self._behind.discard(domain)

    def is_behind(self, domain: str) -> bool:
        """Return whether the last published host program is older than the domain."""
        return domain in self._behind

    def forget(self, domain: str) -> None:
        """Forget a domain that was deleted."""
        self._followed.discard(domain)
        self._behind.discard(domain)
