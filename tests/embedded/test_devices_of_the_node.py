"""Devices that take of their node's memory, in a whole cluster (KEP-5517): decided, recorded, counted, given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.kinds import known_kind
from waiting import until

Obj = dict[str, Any]
NS = "default"
PODS, CLAIMS = known_kind("v1", "Pod"), known_kind("resource.k8s.io/v1", "ResourceClaim")
CLASSES = known_kind("resource.k8s.io/v1", "DeviceClass")
PROFILE = """
node: {cpu: 8, memory: 16Gi}
driver: cards.example.com
devices:
- {name: card-0, nodeAllocatableResourceMappings: {memory: {allocationMultiplier: 9Gi}}}
- {name: card-1, nodeAllocatableResourceMappings: {memory: {allocationMultiplier: 9Gi}}}
"""


def using(name: str) -> Obj:
    container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "card"}]}}
    entry = {"name": "card", "resourceClaimName": name}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "resourceClaims": [entry]}}


async def test_memory_of_one_shared_card_is_not_allocated_twice(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(PROFILE)
    cluster = EmbeddedCluster(UpOptions(profiles=parse_profiles(f"{file}:1"), listen=("127.0.0.1", 0)), tmp_path)
    try:
        await cluster.start()
        client = cluster.client(ADMIN)
        await client.create(CLASSES, {"metadata": {"name": "card"}, "spec": {}})
        request = {"name": "card", "exactly": {"deviceClassName": "card"}}
        for name in ("a", "b"):
            spec = {"devices": {"requests": [request]}}
            await client.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, NS)
            await client.create(PODS, using(name), NS)

        async def runs() -> Obj | None:
            pods = [await client.get(PODS, name, NS) for name in ("a", "b")]
            return next((p for p in pods if p["status"].get("phase") == "Running"), None)

        first = await until(runs)
        name = first["metadata"]["name"]
        taken = {"resourceClaimName": name, "containers": ["main"], "resources": {"memory": "9Gi"}}
        assert first["status"]["nodeAllocatableResourceClaimStatuses"] == [taken]
        other = "b" if name == "a" else "a"

        async def refused() -> str:
            conditions = (await client.get(PODS, other, NS))["status"].get("conditions") or ()
            return next((str(c.get("message")) for c in conditions if c["status"] == "False"), "")

        assert (await until(refused)).startswith("0/1 nodes are available: 1 Insufficient memory.")
        await client.delete(PODS, name, NS, grace_period_seconds=0)

        async def follows() -> bool:
            return bool((await client.get(PODS, other, NS))["status"].get("phase") == "Running")

        await until(follows)
    finally:
        await cluster.stop()
