"""How captures are read: runs of packets by the extension, or each packet alone."""

from __future__ import annotations

import pytest
from classify.recorded import ReadsNothing

from orchestrator.classify import records


@pytest.fixture(params=["native", "python"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs of packets by the extension, then each packet alone."""
    name: str = request.param
    if name == "python":
        monkeypatch.setattr(records, "_records", ReadsNothing)
    return name
