"""What a playbook does, one JSON object a line: for programs that follow it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: steps
type: stdout
short_description: One JSON object for each task of each machine
description:
  - Prints C({"task", "host", "state", "message"}) for each task that is done, C(state) being one of C(ok), C(changed),
    C(failed) and C(unreachable). Skipped tasks are passed over.
author: [aclflow (@aclflow)]
"""

import json

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """The callback plugin."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "aclflow.cloud.steps"

    def v2_runner_on_ok(self, result):
        """A task is done."""
        self._say(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """A task has failed."""
        self._say(result, "ok" if ignore_errors else "failed")

    def v2_runner_on_unreachable(self, result):
        """A machine does not answer."""
        self._say(result, "unreachable")

    def _say(self, result, state):
        message = "" if state in ("ok", "changed") else _words(result.result)
        task = result.task.get_name().rpartition(" : ")[2]  # without its role
        line = {"task": task, "host": result.host.get_name(), "state": state, "message": message}
        self._display.display(json.dumps(line))


def _words(result):
    """Why a task failed: what a program said, what its module says, and what was said instead of a module's answer; of
    a loop, why the first of its items did."""
    items = [item for item in result.get("results") or () if item.get("failed") or item.get("unreachable")]
    why = items[0] if items else result
    said = " ".join(str(why.get(key) or "") for key in ("stderr", "msg", "module_stderr", "module_stdout")).split()
    return " ".join(said)[:2000]
