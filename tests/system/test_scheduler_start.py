"""`haru scheduler` that starts before a long queue of pods which name claims: ready soon, never held up for long."""

from __future__ import annotations

import pytest
from benchmarks.scheduler_start import measure

READY = 10.0


# The short form runs beside other tests on the same cores: they hold its loop up for some tenths of a second.
@pytest.mark.parametrize(("pods", "pause"), [(1_000, 1.0), pytest.param(10_000, 0.5, marks=pytest.mark.nightly)])
def test_first_of_many_pods_with_claims_is_bound_within_ten_seconds(pods: int, pause: float) -> None:
    seconds = measure(pods, 1.0 if pods > 1000 else 0.1)
    print(f"{pods} pods that name claims:", ", ".join(f"{what} {value:.2f} s" for what, value in seconds.items()))
    assert seconds["scheduler ready"] <= READY, seconds
    assert seconds["first pod bound"] <= READY, seconds
    assert seconds["longest pause of the scheduler's loop"] <= pause, seconds
