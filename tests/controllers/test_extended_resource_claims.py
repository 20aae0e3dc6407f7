"""Controllers and the claims that the scheduler creates for extended resources (KEP-5004)."""

import pytest
from controller_cluster import pod_body

from haru.controllers.objects import CLAIMS, PODS, SLICES
from haru.kube.meta import get_condition

PROTECTED = "resource.kubernetes.io/delete-protection"
RESOURCE = "example.com/gpu"
LIMITS = {"resources": {"limits": {RESOURCE: "1"}}}
REQUEST = "container-0-request-0"


async def served(cluster, name):
    """A running pod whose extended resource is served by a claim, as the scheduler leaves it."""
    pod = await cluster.create(PODS, pod_body(name, nodeName="n1", containers=[{"name": "c", "image": "i", **LIMITS}]))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = await cluster.create(
        CLAIMS,
        {
            "metadata": {
                "generateName": f"{name}-extended-resources-",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [owner],
                "finalizers": [PROTECTED],
            },
            "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}},
        },
    )
    result = {"request": REQUEST, "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    await cluster.client.update_status(CLAIMS, claim)
    mapping = {"containerName": "c", "resourceName": RESOURCE, "requestName": REQUEST}
    recorded = {"resourceClaimName": claim["metadata"]["name"], "requestMappings": [mapping]}
    condition = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [condition], "extendedResourceClaimStatus": recorded}
    await cluster.set_status(PODS, name, status)
    return claim["metadata"]["name"]


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "deleted"])
async def test_extended_resource_claim_is_deleted_when_pod_ends(cluster, end):
    name = await served(cluster, "p")
    manager = await cluster.start("resourceclaim-controller", "garbage-collector-controller")
    labels = '{admin_access="false",allocated="true",source="extended_resource"}'
    assert f"resourceclaim_controller_resource_claims{labels} 1.0" in manager.metrics().decode()
    if end == "deleted":
        await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)
    else:
        await cluster.set_status(PODS, "p", {"phase": end})

    async def gone():
        return await cluster.get(CLAIMS, name) is None

    await cluster.eventually(gone)
    assert (await cluster.get(PODS, "p") is None) == (end == "deleted")


async def test_extended_resource_claim_is_kept_while_pod_runs(cluster):
    name = await served(cluster, "p")
    await cluster.start("resourceclaim-controller", "garbage-collector-controller")

    async def kept():
        claim = await cluster.get(CLAIMS, name)
        return bool(claim["status"].get("allocation")) and not claim["metadata"].get("deletionTimestamp")

    await cluster.always(kept)


async def test_device_taint_evicts_pod_with_extended_resource(cluster):
    await served(cluster, "p")
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", "taints": [{"key": "bad", "effect": "NoExecute"}]}]
    spec = {"driver": "d.example.com", "pool": pool, "nodeName": "n1", "devices": devices}
    await cluster.create(SLICES, {"metadata": {"name": "s"}, "spec": spec})
    await cluster.start("device-taint-eviction-controller")

    async def marked():
        return (await cluster.get(PODS, "p"))["metadata"].get("deletionTimestamp")

    await cluster.eventually(marked)
    condition = get_condition(await cluster.get(PODS, "p"), "DisruptionTarget")
    assert condition["reason"] == "DeletionByDeviceTaintManager"
