"""Judge a VNF's health: sick at once, well only after a while. Pure.

    well ──looks bad──▶ sick ──looks good for `steady_s`──▶ well
                          ▲  └──looks bad meanwhile: the while begins anew
                          └── each time it falls sick counts as a relapse

So a VNF whose health flaps does not get its traffic back and lose it again at every turn, and one that does so too
often is told from one that fell sick once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """Times of a VNF's health: sick since, looking well since, and recent failures.

    Sick since is None while it is well.
    """

    sick_since_s: float | None = None
    looks_well_since_s: float | None = None
    fell_sick_s: tuple[float, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.sick_since_s is None

    def sick_for_s(self, now_s: float) -> float:
        """Return how long it was sick, without the present time of looking well."""
        if self.sick_since_s is None:
            return 0.0
        until_s = now_s if self.looks_well_since_s is None else self.looks_well_since_s
        return max(until_s - self.sick_since_s, 1e-6)


def look_again(health: Health, looks_well: bool, now_s: float, *, steady_s: float, window_s: float) -> Health:
    """How a VNF is after another look at it."""
    lately = tuple(time for time in health.fell_sick_s if now_s - time <= window_s)
    if health.sick_since_s is None:
        return Health(None, None, lately) if looks_well else Health(now_s, None, (*lately, now_s))
    if not looks_well:
        return Health(health.sick_since_s, None, lately)
    since_s = now_s if health.looks_well_since_s is None else health.looks_well_since_s
    if now_s - since_s >= steady_s:
        return Health(None, None, lately)
    return Health(health.sick_since_s, since_s, lately)
