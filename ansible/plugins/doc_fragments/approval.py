"""What modules take whose change another person may have to approve."""

from __future__ import annotations


class ModuleDocFragment:
    """What to do where a change was proposed only."""

    DOCUMENTATION = r"""
options:
  approval:
    description:
      - What to do where the service answers that another person must approve the change first, and so keeps it as a
        proposal. Nothing has changed then.
      - V(report) goes on, with C(changed) and the proposal; V(wait) waits for the decision, and fails where it is not
        an approval; V(fail) fails at once, and the proposal stays.
      - A change that waits already is not proposed again.
    type: str
    choices: [report, wait, fail]
    default: report
  approval_s:
    description: How long V(approval=wait) waits, in seconds.
    type: int
    default: 600
"""
