"""The ServiceCIDR of the cluster's own Services is Ready, although a start was cut off before it said so."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller

from haru.apiserver.bootstrap import objects as bootstrap_objects

PATH = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
READY = "Kubernetes default Service CIDR is ready"


async def start_again(api: Caller) -> None:
    await bootstrap_objects.ensure(api.app.components.loopback, api.app.objects.gates)


async def set_conditions(api: Caller, *conditions: dict[str, Any]) -> str:
    """Write the status; the version that it has then."""
    written = {**await api.get(PATH), "status": {"conditions": list(conditions)}}
    answer = await api("PUT", f"{PATH}/status", written)
    assert answer.status == 200, answer.json
    return str(answer.json["metadata"]["resourceVersion"])


async def conditions_of(api: Caller) -> list[tuple[str, str, str]]:
    found = (await api.get(PATH)).get("status") or {}
    return [(each["type"], each["status"], each["message"]) for each in found.get("conditions") or ()]


async def test_ready_condition_that_a_start_did_not_write_is_written_by_the_next_one(api: Caller) -> None:
    assert await conditions_of(api) == [("Ready", "True", READY)]
    await set_conditions(api)
    assert await conditions_of(api) == []
    await start_again(api)
    assert await conditions_of(api) == [("Ready", "True", READY)]
    version = (await api.get(PATH))["metadata"]["resourceVersion"]
    await start_again(api)
    assert (await api.get(PATH))["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("status", ["True", "False"])
async def test_ready_condition_of_somebody_else_stays(api: Caller, status: str) -> None:
    told = {"type": "Ready", "status": status, "reason": "Told", "message": "by somebody"}
    version = await set_conditions(api, {**told, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    await start_again(api)
    assert await conditions_of(api) == [("Ready", status, "by somebody")]
    assert (await api.get(PATH))["metadata"]["resourceVersion"] == version


async def test_other_conditions_stay_beside_the_one_that_is_written(api: Caller) -> None:
    other = {"type": "Routed", "status": "True", "reason": "Told", "message": "by somebody"}
    await set_conditions(api, {**other, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    await start_again(api)
    assert await conditions_of(api) == [("Routed", "True", "by somebody"), ("Ready", "True", READY)]
