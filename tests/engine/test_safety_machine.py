"""The engine is safe in random histories with faults: short always, thousands of new ones each night."""

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
@pytest.mark.parametrize("block", range(5))
def test_thousand_new_random_histories_keep_safety_properties(block: int) -> None:
    run_state_machine_as_test(SafetyMachine, settings=histories(1000, 25, derandomize=False))
