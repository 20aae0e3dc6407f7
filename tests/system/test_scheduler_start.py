"""`haru scheduler` that starts before a long queue of pods which name claims: ready soon, never held up for long."""

from __future__ import annotations

import pytest
from benchmarks.scheduler_start import measure


# The short form runs beside other tests on the same cores: it finds what grows with the square of the queue, at most.
@pytest.mark.parametrize(
    ("pods", "ready", "pause"), [(500, 60.0, 5.0), pytest.param(10_000, 10.0, 0.5, marks=pytest.mark.nightly)]
)
def test_first_of_many_pods_with_claims_is_bound_soon(pods: int, ready: float, pause: float) -> None:
    seconds = measure(pods, 1.0 if pods > 1000 else 0.1)
    print(f"{pods} pods that name claims:", ", ".join(f"{what} {value:.2f} s" for what, value in seconds.items()))
    # Of the scheduler's own time: what a busy machine adds is not its fault.
    assert seconds["its processor time until then"] <= ready, seconds
    assert seconds["its processor time until the first pod is bound"] <= ready, seconds
    assert seconds["longest pause of the scheduler's loop"] - seconds["pauses by a busy machine"] <= pause, seconds
