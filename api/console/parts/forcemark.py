"""Whether a project's list is in force, in one line that follows what happens."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.parts.view import View
from orchestrator.errors import AclflowError

_LIVE_S = 2.0


class ForceMark:
    """A line such as ``Version 7: in force since 12:04:05``; red while a host is behind."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._label = ui.label().classes("chip none").props("role=status data-part=in-force")
        ui.timer(_LIVE_S, self.refresh)

    async def refresh(self) -> None:
        """Show it as it is."""
        tenant = self._view.tenant
        try:
            seen = await self._view.read(
                "in force", lambda client: client.tenant(tenant).in_force, fresh_s=_LIVE_S - 0.5
            )
        except AclflowError:
            return
        since = words.moment(seen.since, self._view.session.zone)
        is_behind = seen.state == "behind"
        what = (
            seen.state if not is_behind else f"behind: {words.named(seen.behind or ()) or words.of(seen.late, 'host')},"
        )
        self._label.text = f"Version {seen.version}: {what} since {since}"
        self._label.classes(replace=f"chip {'bad' if is_behind else 'good'}")
