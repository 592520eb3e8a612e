"""Address groups of an access list: named sets of prefixes that its rules point to."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import Incoming, PrefixText, read_prefix
from orchestrator.policy.addresses import Prefix
from orchestrator.store.acls.grouprows import MOST_MEMBERS

Members = list[PrefixText]


class MembersChange(Incoming):
    """Members that come and members that go, in one change."""

    add: Members = Field(default=[], max_length=MOST_MEMBERS, description="those that are there already stay")
    remove: Members = Field(default=[], max_length=MOST_MEMBERS, description="each must be there")

    def added_prefixes(self) -> tuple[Prefix, ...]:
        """Raises BadInput with the place."""
        return tuple(read_prefix(text, f"add[{index}]") for index, text in enumerate(self.add))

    def removed_prefixes(self) -> tuple[Prefix, ...]:
        """Raises BadInput with the place."""
        return tuple(read_prefix(text, f"remove[{index}]") for index, text in enumerate(self.remove))
