"""How the engine decides for whoever asks: reproducibly, under feature gates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from haru.engine import Features, Options
from haru.engine.framework import PreemptionOptions, SchedulerGates


def options_of(enabled: Mapping[str, bool]) -> Options:
    """How a round decides under feature gates: reproducibly, shares being numbered."""
    numbers = itertools.count(1)
    return Options(
        features=Features.from_gates(enabled),
        new_share_id=lambda: f"00000000-0000-0000-0000-{next(numbers):012x}",
        gates=SchedulerGates.from_gates(enabled),
        preemption=PreemptionOptions(preempt_for_pods=True, preempt_for_groups=enabled["WorkloadAwarePreemption"]),
    )
