"""Quotas in a running server: what they limit, what they count, and that nobody overdraws them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controller_cluster import in_virtual_time

from haru.client.informer import Informer
from haru.controllers.objects import CLAIMS, DEVICE_CLASSES, PODS, QUOTAS, SERVICES
from haru.controllers.resource_quota import ResourceQuotaController
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind

NAME = "resourcequota-controller"
Obj = dict[str, Any]
MAPS = known_kind("v1", "ConfigMap")


def pod(name: str, cards: int = 0, **spec: Any) -> Obj:
    limits = {"nvidia.com/gpu": str(cards)} if cards else {}
    container = {"name": "main", "image": "i", "resources": {"limits": limits, "requests": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def quota(name: str, spec: Obj | None = None, **hard: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **(spec or {})}}


def claim(name: str, count: int, device_class: str = "gpu") -> Obj:
    request = {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


async def used(cluster, name: str) -> Obj:
    found = await cluster.get(QUOTAS, name)
    return (found.get("status") or {}).get("used") or {}


async def counted(cluster, name: str, **wanted: str) -> None:
    async def holds() -> bool:
        return await used(cluster, name) == wanted

    await cluster.eventually(holds)


async def refused(cluster, kind, obj: Obj) -> str:
    with pytest.raises(StatusError) as caught:
        await cluster.create(kind, obj)
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    return caught.value.message


async def test_full_quota_refuses_pod_until_usage_is_released(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("cards", **{"requests.nvidia.com/gpu": "4", "pods": "3"}))
    await counted(cluster, "cards", **{"requests.nvidia.com/gpu": "0", "pods": "0"})
    await cluster.create(PODS, pod("a", 3))
    # A charge is there when the write is: no controller is waited for.
    assert await used(cluster, "cards") == {"requests.nvidia.com/gpu": "3", "pods": "1"}
    message = await refused(cluster, PODS, pod("b", 2))
    assert message == (
        'pods "b" is forbidden: exceeded quota: cards, requested: requests.nvidia.com/gpu=2, '
        "used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"
    )
    await cluster.client.delete(PODS, "a", "ns", grace_period_seconds=0)
    await counted(cluster, "cards", **{"requests.nvidia.com/gpu": "0", "pods": "0"})
    await cluster.create(PODS, pod("b", 2))


async def test_terminated_pods_count_only_for_object_count_quota(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", **{"pods": "1", "count/pods": "5"}))
    await counted(cluster, "q", **{"pods": "0", "count/pods": "0"})
    await cluster.create(PODS, pod("a"))
    await cluster.set_status(PODS, "a", {"phase": "Succeeded"})
    await counted(cluster, "q", **{"pods": "0", "count/pods": "1"})
    await cluster.create(PODS, pod("b"))


async def test_what_is_deleted_before_deletions_of_its_kind_are_heard_of_is_given_back(cluster, monkeypatch):
    lists, may_list = Informer._list, asyncio.Event()

    async def list_later(informer: Informer) -> None:
        if informer.kind.plural == MAPS.plural:
            await may_list.wait()
        await lists(informer)

    monkeypatch.setattr(Informer, "_list", list_later)
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", **{"count/configmaps": "4"}))
    await counted(cluster, "q", **{"count/configmaps": "0"})
    await cluster.create(MAPS, {"metadata": {"name": "m"}})
    assert await used(cluster, "q") == {"count/configmaps": "1"}
    await cluster.client.delete(MAPS, "m", "ns")
    may_list.set()
    await counted(cluster, "q", **{"count/configmaps": "0"})


def test_quota_that_is_charged_while_it_is_counted_is_counted_again_soon(monkeypatch):
    write, refusals = ResourceQuotaController.update_status, [StatusError(409, "Conflict", "charged")]

    async def update_status(controller, *given):
        if refusals:
            raise refusals.pop()
        return await write(controller, *given)

    async def scenario(cluster):
        monkeypatch.setattr(ResourceQuotaController, "update_status", update_status)
        await cluster.start(NAME)
        await cluster.create(QUOTAS, quota("q", pods="1"))
        await asyncio.sleep(5)
        assert not refusals
        assert await used(cluster, "q") == {"pods": "0"}

    in_virtual_time(scenario)


async def test_claims_count_by_class_and_by_extended_resource(cluster):
    await cluster.start(NAME)
    await cluster.create(
        DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    )
    names = ("gpu.deviceclass.resource.k8s.io/devices", "requests.nvidia.com/gpu")
    await cluster.create(QUOTAS, quota("q", **dict.fromkeys(names, "4")))
    await counted(cluster, "q", **dict.fromkeys(names, "0"))
    await cluster.create(CLAIMS, claim("c", 3))
    assert await used(cluster, "q") == dict.fromkeys(names, "3")
    message = await refused(cluster, CLAIMS, claim("d", 2))
    assert message.startswith('resourceclaims.resource.k8s.io "d" is forbidden: exceeded quota: q, requested: ')
    message = await refused(cluster, PODS, pod("p", 2))
    assert "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3" in message
    await cluster.client.delete(CLAIMS, "c", "ns")
    await counted(cluster, "q", **dict.fromkeys(names, "0"))


async def test_quota_on_cpu_requires_requests_of_every_container(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", **{"requests.cpu": "4", "limits.memory": "8Gi"}))
    await counted(cluster, "q", **{"requests.cpu": "0", "limits.memory": "0"})
    message = await refused(cluster, PODS, pod("a"))
    assert message == (
        'pods "a" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )


async def test_objects_of_any_resource_are_counted_by_quota(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", **{"count/configmaps": "2", "configmaps": "2", "count/unheard.of": "1"}))
    await counted(cluster, "q", **{"count/configmaps": "0", "configmaps": "0"})
    for name in ("a", "b"):
        await cluster.create(MAPS, {"metadata": {"name": name}})
    assert "count/configmaps=1" in await refused(cluster, MAPS, {"metadata": {"name": "c"}})
    await cluster.client.delete(MAPS, "a", "ns")
    await counted(cluster, "q", **{"count/configmaps": "1", "configmaps": "1"})


async def test_service_type_change_is_checked_against_quota(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", **{"services.loadbalancers": "0", "services.nodeports": "1"}))
    await counted(cluster, "q", **{"services.loadbalancers": "0", "services.nodeports": "0"})
    spec = {"ports": [{"port": 80}]}
    await cluster.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    with pytest.raises(StatusError, match=r"exceeded quota: q, requested: services\.loadbalancers=1"):
        await cluster.client.patch(SERVICES, "s", {"spec": {"type": "LoadBalancer"}}, "ns")
    await cluster.client.patch(SERVICES, "s", {"spec": {"type": "NodePort"}}, "ns")
    assert await used(cluster, "q") == {"services.loadbalancers": "0", "services.nodeports": "1"}


async def test_dry_run_is_checked_but_not_counted(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", pods="1"))
    await counted(cluster, "q", pods="0")
    await cluster.client.create(PODS, pod("a"), "ns", dry_run=True)
    assert await used(cluster, "q") == {"pods": "0"}
    await cluster.create(PODS, pod("a"))
    with pytest.raises(StatusError, match="exceeded quota: q"):
        await cluster.client.create(PODS, pod("b"), "ns", dry_run=True)


async def test_request_refused_for_another_reason_is_not_counted(cluster):
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("q", pods="5"))
    await counted(cluster, "q", pods="0")
    await cluster.create(PODS, pod("a"))
    for _ in range(3):
        with pytest.raises(StatusError, match="already exists"):
            await cluster.create(PODS, pod("a"))
    assert await used(cluster, "q") == {"pods": "1"}


async def test_concurrent_clients_never_exceed_quota(cluster):
    """While clients create and delete, the pods there are never ask for more than the quota has."""
    await cluster.start(NAME)
    await cluster.create(QUOTAS, quota("cards", **{"requests.nvidia.com/gpu": "7"}))
    await counted(cluster, "cards", **{"requests.nvidia.com/gpu": "0"})
    most = 0

    async def look() -> None:
        nonlocal most
        pods = await cluster.items(PODS)
        asked = sum(int(p["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]) for p in pods)
        most = max(most, asked)

    async def client(number: int) -> None:
        for turn in range(8):
            name = f"p-{number}-{turn}"
            try:
                await cluster.create(PODS, pod(name, 1 + (number + turn) % 3))
            except StatusError as error:
                assert "exceeded quota" in error.message
                continue
            await look()
            if turn % 2:
                await cluster.client.delete(PODS, name, "ns", grace_period_seconds=0)

    await asyncio.gather(*(client(number) for number in range(12)))
    await look()
    assert 5 <= most <= 7
    pods = await cluster.items(PODS)
    held = sum(int(p["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]) for p in pods)
    await counted(cluster, "cards", **{"requests.nvidia.com/gpu": str(held)})
