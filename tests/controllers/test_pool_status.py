"""The controller of ResourcePoolStatusRequests against the API server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from controller_cluster import Cluster

from haru.client.api import ApiClient
from haru.controllers.objects import CLAIMS, POOL_STATUS_REQUESTS, SLICES, TAINT_RULES
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.meta import get_condition
from haru.kube.names import format_time

NAME = "resourcepoolstatusrequest-controller"
DRIVER = "gpu.example.com"


async def publish(cluster, name, pool, *devices, generation=1, count=1):
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": of_pool, "nodeName": "n1", "devices": [{"name": d} for d in devices]}
    await cluster.create(SLICES, {"metadata": {"name": name}, "spec": spec})


async def hold(cluster, name, pool, device):
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    created = await cluster.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
    result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
    await cluster.client.update_status(
        CLAIMS, {**created, "status": {"allocation": {"devices": {"results": [result]}}}}
    )


async def ask(cluster, name="ask", **spec):
    return await cluster.create(POOL_STATUS_REQUESTS, {"metadata": {"name": name}, "spec": {"driver": DRIVER, **spec}})


async def answered(cluster, name="ask"):
    async def has_status():
        return (await cluster.get(POOL_STATUS_REQUESTS, name)).get("status")

    return await cluster.eventually(has_status)


async def test_pool_status_request_is_answered_once(cluster):
    await publish(cluster, "a", "pool-a", "d0", "d1", "d2")
    await publish(cluster, "b", "pool-b", "d0")
    await hold(cluster, "c", "pool-a", "d1")
    spec = {"deviceSelector": {"pool": "pool-b"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    await cluster.create(TAINT_RULES, {"metadata": {"name": "r"}, "spec": spec})
    manager = await cluster.start(NAME)
    await ask(cluster)
    status = await answered(cluster)
    numbers = {"resourceSliceCount": 1, "generation": 1, "nodeName": "n1", "driver": DRIVER}
    counts = [(3, 1, 2, 0), (1, 0, 0, 1)]
    words = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")
    assert status["poolCount"] == 2
    assert status["pools"] == [
        {**numbers, "poolName": name, **dict(zip(words, count, strict=True))}
        for name, count in zip(("pool-a", "pool-b"), counts, strict=True)
    ]
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Complete", "True", "CalculationComplete")
    # What changes later changes no answer, and nobody may change it.
    await hold(cluster, "d", "pool-a", "d0")
    await cluster.client.patch(POOL_STATUS_REQUESTS, "ask", {"metadata": {"labels": {"a": "b"}}})
    await ask(cluster, "again", poolName="pool-a")
    assert (await answered(cluster, "again"))["pools"][0]["allocatedDevices"] == 2
    assert (await answered(cluster)) == status
    with pytest.raises(StatusError, match="field is immutable"):
        await cluster.client.patch(POOL_STATUS_REQUESTS, "ask", {"status": {"poolCount": 7}}, subresource="status")
    text = manager.metrics().decode()
    label = f'{{driver_name="{DRIVER}"}}'
    assert f"resourcepoolstatusrequest_controller_requests_processed_total{label} 2.0" in text
    assert f"resourcepoolstatusrequest_controller_request_processing_duration_seconds_count{label} 2.0" in text
    assert "resourcepoolstatusrequest_controller_request_processing_errors_total{" not in text


async def test_pools_above_limit_are_left_out_of_status(cluster):
    for name in ("c", "a", "b"):
        await publish(cluster, name, f"pool-{name}", "d0")
    await cluster.start(NAME)
    await ask(cluster, limit=2)
    status = await answered(cluster)
    assert (status["poolCount"], [pool["poolName"] for pool in status["pools"]]) == (3, ["pool-a", "pool-b"])


async def test_request_without_matching_pools_completes_with_zero(cluster):
    await cluster.start(NAME)
    await ask(cluster)
    status = await answered(cluster)
    assert status["poolCount"] == 0 and not status.get("pools")
    assert get_condition(status["conditions"], "Complete")["status"] == "True"


async def test_incomplete_pool_is_reported_after_five_retries(cluster, monkeypatch):
    pauses = []
    manager = await cluster.start(NAME)
    queue = manager.running[NAME].queue
    original = queue.add_after

    def add_after(key, delay):
        pauses.append(delay)
        original(key, delay / 100)

    monkeypatch.setattr(queue, "add_after", add_after)
    await publish(cluster, "whole", "a", "d0")
    await publish(cluster, "part", "b", "d0", count=2)
    await ask(cluster)
    status = await answered(cluster)
    assert len(pauses) == 5 and pauses == sorted(pauses)
    whole, part = status["pools"]
    assert whole["totalDevices"] == 1
    assert part["validationError"] == "incomplete: 1 of 2 slices of generation 1 are there"
    assert not {"resourceSliceCount", "totalDevices", "availableDevices"} & part.keys()
    assert "1 of them incomplete" in status["conditions"][0]["message"]


async def test_pool_completed_before_retries_end_is_counted(cluster, monkeypatch):
    manager = await cluster.start(NAME)
    queue = manager.running[NAME].queue
    looked = asyncio.Event()
    held_back = []
    monkeypatch.setattr(queue, "add_after", lambda key, delay: (held_back.append(key), looked.set()))
    await publish(cluster, "first", "p", "d0", count=2)
    await ask(cluster)
    await looked.wait()
    await publish(cluster, "second", "p", "d1", count=2)
    slices = manager.running[NAME].slices

    async def seen():
        return len(slices.store) == 2

    await cluster.eventually(seen)
    queue.add(held_back[0])
    assert (await answered(cluster))["pools"][0]["totalDevices"] == 2


async def test_calculation_error_sets_failed_condition(cluster):
    """Such slices no API server stores; another server's might be beyond what is known here."""
    manager = await cluster.start(NAME)
    slices = manager.running[NAME].slices
    await publish(cluster, "s", "p", "d0")

    async def seen():
        return slices.get("s")

    (await cluster.eventually(seen))["spec"]["pool"]["resourceSliceCount"] = "two"
    await ask(cluster)
    status = await answered(cluster)
    [condition] = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Failed", "CalculationFailed")
    assert "invalid literal" in condition["message"]
    assert status["poolCount"] == 0


async def test_failing_status_updates_stop_after_retries_and_count_errors(cluster, monkeypatch):
    manager = await cluster.start(NAME)
    original, refused = ApiClient.update, []

    async def update(self, kind, obj, subresource="", field_manager=""):
        if kind == POOL_STATUS_REQUESTS:
            refused.append(obj)
            raise StatusError(500, "InternalError", "disk full")
        return await original(self, kind, obj, subresource, field_manager)

    monkeypatch.setattr(ApiClient, "update", update)
    monkeypatch.setattr(manager.running[NAME].queue, "_base_delay", 0.001)
    await ask(cluster)

    async def given_up():
        return len(refused) == 6

    await cluster.eventually(given_up)
    await cluster.always(given_up)
    text = manager.metrics().decode()
    label = f'{{driver_name="{DRIVER}"}}'
    assert f"resourcepoolstatusrequest_controller_request_processing_errors_total{label} 6.0" in text
    assert f"resourcepoolstatusrequest_controller_requests_processed_total{label} 6.0" in text


async def test_expired_requests_are_deleted(cluster):
    await ask(cluster, "unanswered")
    for name, minutes in (("old", 61), ("young", 59)):
        created = await ask(cluster, name)
        when = format_time(datetime.now(UTC) - timedelta(minutes=minutes))
        condition = {"type": "Complete", "status": "True", "reason": "R", "message": "", "lastTransitionTime": when}
        status = {"poolCount": 0, "conditions": [condition]}
        await cluster.client.update_status(POOL_STATUS_REQUESTS, {**created, "status": status})
    await cluster.start(NAME)

    async def left():
        return {r["metadata"]["name"] for r in await cluster.items(POOL_STATUS_REQUESTS)} == {"unanswered", "young"}

    await cluster.eventually(left)


async def test_controller_does_not_run_without_its_gate(cluster):
    other = Cluster(cluster.server, cluster.client, FeatureGates())
    assert (await other.start(NAME)).running == {}
    await other.kill()
