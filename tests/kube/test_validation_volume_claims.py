"""What may change of a PersistentVolumeClaim, and what its status may say."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import REMOVE, Obj, put, status_problems, update_problems
from test_validation_kinds import VOLUME_CLAIM

BOUND = put(VOLUME_CLAIM, "status", {"phase": "Bound", "capacity": {"storage": "1Gi"}})
SPEC = "spec: Forbidden: spec is immutable after creation"
SMALLER = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
REQUESTS = "spec.resources.requests"


@pytest.mark.parametrize(
    ("old", "path", "value", "expected"),
    [
        (VOLUME_CLAIM, f"{REQUESTS}.storage", "2Gi", [SPEC]),
        (BOUND, f"{REQUESTS}.storage", "2Gi", []),
        (put(BOUND, f"{REQUESTS}.storage", "3Gi"), f"{REQUESTS}.storage", "2Gi", []),
        (BOUND, f"{REQUESTS}.storage", "1Mi", [SMALLER]),
        (BOUND, REQUESTS, REMOVE, ["spec.resources[storage]: Required value", SPEC, SMALLER]),
        (BOUND, "spec.volumeAttributesClassName", "gold", []),
        (VOLUME_CLAIM, "spec.volumeAttributesClassName", "gold", [SPEC]),
        (VOLUME_CLAIM, "spec.volumeName", "v", []),
        (put(VOLUME_CLAIM, "spec.volumeName", "v"), "spec.volumeName", "w", [SPEC]),
        (VOLUME_CLAIM, "spec.storageClassName", "fast", []),
        (put(VOLUME_CLAIM, "spec.storageClassName", "fast"), "spec.storageClassName", "slow", [SPEC]),
        (VOLUME_CLAIM, "spec.selector", {}, [SPEC]),
    ],
)
def test_claim_keeps_its_spec_but_for_what_may_change(old: Obj, path: str, value: Any, expected: list[str]) -> None:
    found = update_problems(put(old, path, value), old)
    assert len(found) == len(expected), found
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ({"capacity": {"storage": "1Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}, []),
        ({"capacity": {"storage": "-1"}}, ["status.capacity[storage]"]),
        ({"allocatedResources": {"cpu": "1"}}, ["status.allocatedResources"]),
        ({"allocatedResourceStatuses": {"storage": "Other"}}, ["status.allocatedResourceStatuses"]),
    ],
)
def test_status_of_claim_has_amounts_and_known_states(status: Obj, fields: list[str]) -> None:
    found = status_problems(put(VOLUME_CLAIM, "status", status), VOLUME_CLAIM)
    assert [text.split(":")[0] for text in found] == fields
