"""`haru scheduler` that starts before a long queue of pods which name claims: ready soon, never held up for long."""

from __future__ import annotations

import pytest
from benchmarks.scheduler_start import measure

READY, PAUSE = 10.0, 0.5


@pytest.mark.parametrize("pods", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_first_of_many_pods_with_claims_is_bound_within_ten_seconds(pods: int) -> None:
    seconds = measure(pods, 1.0 if pods > 1000 else 0.1)
    print(f"{pods} pods that name claims:", ", ".join(f"{what} {value:.2f} s" for what, value in seconds.items()))
    assert seconds["scheduler ready"] <= READY, seconds
    assert seconds["first pod bound"] <= READY, seconds
    assert seconds["longest pause of the scheduler's loop"] <= PAUSE, seconds
