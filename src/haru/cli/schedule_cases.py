"""Run scheduling cases: decide one round on a small cluster, in the format of the test vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.api.decision_options import options_of
from haru.api.rounds import reason_of
from haru.engine import RoundResult, SchedulerCache, run_round

Obj = dict[str, Any]

_RESULT_FIELDS = ("request", "driver", "pool", "device")


def answer_case(case: Obj, gates: Mapping[str, bool]) -> Obj:
    """The outcome of one case under these gates, but for those that the case itself switches."""
    cluster = SchedulerCache.of(case["objects"])
    enabled = {**gates, **(case.get("gates") or {})}
    return {"name": case["name"], **answer(run_round(cluster, options_of(enabled)))}


def answer(result: RoundResult) -> Obj:
    """The result of a round in the form of the test vectors."""
    return {
        "bindings": result.bindings,
        "allocations": {
            path: [{name: entry[name] for name in _RESULT_FIELDS} for entry in given.allocation["devices"]["results"]]
            for path, given in result.allocations.items()
            if given.new_claim is None
        },
        "nominations": result.nominations,
        "evictions": [eviction.pod.path for eviction in result.evictions],
        "pending": {path: {"reason": reason_of(result, path)} for path in result.pending},
        "groups": result.groups,
    }
