"""What modules of members of a domain (hosts, firewalls) take."""

from __future__ import annotations


class ModuleDocFragment:
    """A member, and whether it is to be there."""

    DOCUMENTATION = r"""
options:
  domain:
    description: The domain.
    type: str
    required: true
  name:
    description: The name in the domain, which certificates bear, too.
    type: str
    required: true
  wait_s:
    description:
      - How long to wait until it enforces the domain's newest generation, in seconds; 0 does not wait.
    type: int
    default: 0
  state:
    description: Whether it is to belong to the domain.
    type: str
    choices: [present, absent]
    default: present
"""
