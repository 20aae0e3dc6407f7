"""ServiceCIDRs say whether they give addresses out, and stay while Services need them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from haru.controllers.objects import IP_ADDRESSES, SERVICE_CIDRS, SERVICES

Obj = dict[str, Any]
CONTROLLER = "service-cidr-controller"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = ("True", "", "Kubernetes Service CIDR is ready")
IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


async def has(cluster: Any, name: str, *networks: str) -> None:
    """Make a ServiceCIDR, and wait until it is ready."""
    await cluster.create(SERVICE_CIDRS, {"metadata": {"name": name}, "spec": {"cidrs": list(networks)}})
    await becomes(cluster, name, READY)


async def said(cluster: Any, name: str) -> tuple[str, str, str] | None:
    found = await cluster.get(SERVICE_CIDRS, name) or {}
    ready = next(iter((found.get("status") or {}).get("conditions") or ()), None)
    return (ready["status"], ready["reason"], ready["message"]) if ready else None


async def becomes(cluster: Any, name: str, wanted: tuple[str, str, str] | None) -> None:
    async def holds() -> bool:
        return await said(cluster, name) == wanted

    await cluster.eventually(holds, 20)


async def delete(cluster: Any, name: str) -> None:
    await cluster.client.delete(SERVICE_CIDRS, name)


async def serve(cluster: Any, name: str, address: str) -> None:
    await cluster.create(
        SERVICES, {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}}
    )


async def test_new_network_gets_a_finalizer_and_is_ready(cluster: Any) -> None:
    await cluster.start(CONTROLLER)
    await has(cluster, "more", "10.200.0.0/28", "fd00::/112")
    assert (await cluster.get(SERVICE_CIDRS, "more"))["metadata"]["finalizers"] == [FINALIZER]
    assert (await cluster.get(SERVICE_CIDRS, "kubernetes"))["metadata"]["finalizers"] == [FINALIZER]
    assert await cluster.forbidden() == 0


async def test_network_without_addresses_goes_after_ten_seconds(cluster: Any) -> None:
    await cluster.start(CONTROLLER)
    await has(cluster, "more", "10.200.0.0/28")
    began = cluster.server.objects.clock()
    await delete(cluster, "more")
    await becomes(cluster, "more", None)
    assert cluster.server.objects.clock() - began >= timedelta(seconds=9)


async def test_network_in_use_stays_and_says_so_until_the_last_service_is_gone(cluster: Any) -> None:
    await cluster.start(CONTROLLER)
    await has(cluster, "more", "10.200.0.0/28")
    await serve(cluster, "web", "10.200.0.5")
    await delete(cluster, "more")
    await becomes(cluster, "more", ("False", "Terminating", IN_USE))
    await cluster.client.delete(SERVICES, "web", "ns")
    await becomes(cluster, "more", None)
    assert await cluster.forbidden() == 0


async def test_network_goes_when_another_one_has_its_addresses(cluster: Any) -> None:
    await cluster.start(CONTROLLER)
    await has(cluster, "small", "10.210.0.0/28")
    await serve(cluster, "web", "10.210.0.3")
    await delete(cluster, "small")
    await becomes(cluster, "small", ("False", "Terminating", IN_USE))
    await has(cluster, "large", "10.210.0.0/24")
    await becomes(cluster, "small", None)


async def test_address_at_the_edge_of_another_network_still_needs_its_own(cluster: Any) -> None:
    """10.210.0.16 is the first address of the other network, which no Service gets of it."""
    await cluster.start(CONTROLLER)
    await has(cluster, "large", "10.210.0.0/24")
    await has(cluster, "part", "10.210.0.16/28")
    await serve(cluster, "web", "10.210.0.16")
    await delete(cluster, "large")
    await becomes(cluster, "large", ("False", "Terminating", IN_USE))


async def test_address_of_somebody_else_keeps_no_network(cluster: Any) -> None:
    await cluster.start(CONTROLLER)
    await has(cluster, "more", "10.200.0.0/28")
    parent = {"group": "gateway.example.com", "resource": "gateways", "name": "g"}
    await cluster.create(IP_ADDRESSES, {"metadata": {"name": "10.200.0.5"}, "spec": {"parentRef": parent}})
    await delete(cluster, "more")
    await becomes(cluster, "more", None)
