"""Address groups of an access list: named sets of prefixes that its rules point to."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import Incoming, Outgoing, PrefixText, read_prefix
from orchestrator.policy.addresses import Prefix
from orchestrator.store.acls.grouprows import MOST_MEMBERS
from orchestrator.store.records import GroupRecord

Members = list[PrefixText]


class GroupBody(Outgoing):
    """An address group without its members, which have pages of their own."""

    name: str
    description: str
    members: int = Field(description="how many")
    rules: list[str] = Field(description="the rules that name it, in the list's order")

    @classmethod
    def of(cls, record: GroupRecord) -> GroupBody:
        group = record.group
        return cls(
            name=group.name, description=group.description, members=len(group.prefixes), rules=list(record.rules)
        )


class MembersChange(Incoming):
    """Members that come and members that go, in one change."""

    add: Members = Field(default=[], max_length=MOST_MEMBERS, description="those that are there already stay")
    remove: Members = Field(default=[], max_length=MOST_MEMBERS, description="each must be there")

    def added(self) -> tuple[Prefix, ...]:
        """Raises BadInput with the place."""
        return tuple(read_prefix(text, f"add[{index}]") for index, text in enumerate(self.add))

    def removed(self) -> tuple[Prefix, ...]:
        """Raises BadInput with the place."""
        return tuple(read_prefix(text, f"remove[{index}]") for index, text in enumerate(self.remove))
