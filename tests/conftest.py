"""Settings of every test: which examples the laws try."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
"""`fixed` tries the same examples each time: a verdict belongs to the code. `search` (`make search`) draws new ones."""
