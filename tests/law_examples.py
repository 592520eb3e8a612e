"""How many examples a law is tried on: all in a search, a share where they are the same at each run."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int, fixed: int = 0) -> int:
    """Return how many examples to draw; `most` where each run draws others.

    Those of each run alike, `fixed` or two fifths of them, tell only of what changed in the code.
    """
    is_search = settings.get_current_profile_name() == "search"
    return most if is_search else fixed or max(most * 2 // 5, 10)
