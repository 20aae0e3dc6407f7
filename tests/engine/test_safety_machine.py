"""The engine is safe in random histories with faults: short always, ten thousand of them at night."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from safety_machine import SafetyMachine


def histories(examples: int, steps: int, *, derandomize: bool) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def test_random_histories_keep_safety_properties() -> None:
    run_state_machine_as_test(SafetyMachine, settings=histories(20, 20, derandomize=True))


@pytest.mark.nightly
def test_ten_thousand_random_histories_keep_safety_properties() -> None:
    run_state_machine_as_test(SafetyMachine, settings=histories(10_000, 25, derandomize=False))
