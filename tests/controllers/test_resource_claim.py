"""resourceclaim-controller against the API server."""

import asyncio

import pytest
from controller_cluster import in_virtual_time, pod_body

from haru.client.informer import Informer
from haru.controllers.objects import CLAIM_TEMPLATES, CLAIMS, PODS
from haru.kube import kinds

EVENTS = kinds.lookup("", "v1", "events")
NAME = "resourceclaim-controller"
PROTECTED = "resource.kubernetes.io/delete-protection"
REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
TEMPLATE = {
    "metadata": {"name": "t"},
    "spec": {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}, "spec": REQUESTS},
}
USES = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}}


def recorded(obj):
    return {s["name"]: s.get("resourceClaimName") for s in obj.get("status", {}).get("resourceClaimStatuses", ())}


async def recorded_claim(cluster, pod="p", entry="gpu"):
    return await cluster.eventually(lambda: _recorded(cluster, PODS, pod, entry))


async def _recorded(cluster, kind, name, entry):
    return recorded(await cluster.get(kind, name)).get(entry)


async def use(cluster, claim, *consumers, finalizers=(PROTECTED,)):
    """Allocate and reserve, as the scheduler does."""
    live = await cluster.get(CLAIMS, claim)
    live["metadata"]["finalizers"] = list(finalizers)
    live = await cluster.client.update(CLAIMS, live)
    references = [
        {"resource": "pods", "name": c["metadata"]["name"], "uid": c["metadata"]["uid"]}
        if c["kind"] == "Pod"
        else {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": c["metadata"]["name"],
            "uid": c["metadata"]["uid"],
        }
        for c in consumers
    ]
    live["status"] = {"allocation": ALLOCATION, "reservedFor": references}
    return await cluster.client.update_status(CLAIMS, live)


async def test_claim_is_created_from_template_and_recorded_in_pod_status(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    pod = await cluster.create(PODS, pod_body("p", **USES))
    manager = await cluster.start(NAME)
    name = await recorded_claim(cluster)
    claim = await cluster.get(CLAIMS, name)
    metrics = manager.metrics().decode()
    assert 'resourceclaim_controller_creates_total{admin_access="false",status="success"} 1.0' in metrics
    labels = '{admin_access="false",allocated="false",source="resource_claim_template"}'
    assert f"resourceclaim_controller_resource_claims{labels} 1.0" in metrics
    assert f"dynamic_resource_allocation_resource_claims{labels} 1.0" in metrics
    assert 'workqueue_depth{name="resource_claim"}' in metrics
    assert name.startswith("p-gpu-")
    assert claim["metadata"]["labels"] == {"l": "1"}
    assert claim["metadata"]["annotations"] == {"a": "2", "resource.kubernetes.io/pod-claim-name": "gpu"}
    (owner,) = claim["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    managers = {m["manager"]: m["operation"] for m in (await cluster.get(PODS, "p"))["metadata"]["managedFields"]}
    assert managers["ResourceClaimController"] == "Apply"


async def test_controller_restarts_create_no_second_claim(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    for number in range(3):
        await cluster.create(PODS, pod_body(f"p{number}", **USES))
    for _ in range(3):
        await cluster.start(NAME)
        for number in range(3):
            await recorded_claim(cluster, f"p{number}")
        await cluster.kill()
    assert len(await cluster.items(CLAIMS)) == 3


async def test_created_but_unrecorded_claim_is_reused(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    pod = await cluster.create(PODS, pod_body("p", **USES))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    orphan = {"metadata": {"name": "mine", "annotations": annotations, "ownerReferences": [owner]}, "spec": REQUESTS}
    await cluster.create(CLAIMS, orphan)
    await cluster.start(NAME)
    assert await recorded_claim(cluster) == "mine"
    assert len(await cluster.items(CLAIMS)) == 1


async def test_generated_claim_that_is_being_deleted_is_not_taken_for_the_pod(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(PODS, pod_body("p", **USES))
    await cluster.start(NAME)
    first = await recorded_claim(cluster)
    await cluster.kill()
    live = await cluster.get(CLAIMS, first)
    live["metadata"]["finalizers"] = ["example.com/other"]
    await cluster.client.update(CLAIMS, live)
    await cluster.client.delete(CLAIMS, first, "ns")
    await cluster.set_status(PODS, "p", {"resourceClaimStatuses": None})
    await cluster.start(NAME)
    assert await recorded_claim(cluster) != first


async def test_deleted_generated_claim_is_created_again(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(PODS, pod_body("p", **USES))
    await cluster.start(NAME)
    first = await recorded_claim(cluster)
    await cluster.client.delete(CLAIMS, first, "ns")

    async def again():
        name = await _recorded(cluster, PODS, "p", "gpu")
        return name != first and await cluster.get(CLAIMS, name)

    await cluster.eventually(again)


async def test_duplicate_generated_claim_is_deleted(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    pod = await cluster.create(PODS, pod_body("p", **USES))
    await cluster.start(NAME)
    name = await recorded_claim(cluster)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    late = {"metadata": {"name": "late", "annotations": annotations, "ownerReferences": [owner]}, "spec": REQUESTS}
    await cluster.create(CLAIMS, late)

    async def one():
        return [c["metadata"]["name"] for c in await cluster.items(CLAIMS)] == [name]

    await cluster.eventually(one)


async def test_missing_template_is_reported_and_retried(cluster):
    await cluster.create(PODS, pod_body("p", **USES))
    await cluster.start(NAME)

    async def told():
        return [e["message"] for e in await cluster.items(EVENTS) if e["reason"] == "FailedResourceClaimCreation"]

    (message,) = await cluster.eventually(told)
    missing = 'resourceclaimtemplate.resource.k8s.io "t" not found'
    assert message == f'PodResourceClaim gpu: resource claim template "t": {missing}'
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    assert await recorded_claim(cluster)


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "deleted"])
async def test_claim_without_consumers_is_released(cluster, end):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    both = [*USES["resourceClaims"], {"name": "own", "resourceClaimName": "shared"}]
    pod = await cluster.create(PODS, pod_body("p", resourceClaims=both))
    await cluster.start(NAME)
    generated = await recorded_claim(cluster)
    for claim in (generated, "shared"):
        await use(cluster, claim, pod)
    if end == "deleted":
        await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)
    else:
        await cluster.set_status(PODS, "p", {"phase": end})

    async def released():
        claim = await cluster.get(CLAIMS, "shared")
        return not claim.get("status") and not claim["metadata"].get("finalizers")

    await cluster.eventually(released)
    if end != "deleted":  # then it is the garbage collector's work

        async def gone():
            return await cluster.get(CLAIMS, generated) is None

        await cluster.eventually(gone)


@pytest.mark.parametrize("end", ["Succeeded", "deleted"])
async def test_claim_with_device_status_is_deallocated_after_its_pod_ends(cluster, end):
    """What the driver said of the device goes with it, and takes no right that the controller lacks."""
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    pod = await cluster.create(PODS, pod_body("p", resourceClaims=[{"name": "own", "resourceClaimName": "c"}]))
    await cluster.start(NAME)
    await use(cluster, "c", pod)
    since = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": since}
    device = {"driver": "d.example.com", "pool": "p", "device": "x", "conditions": [ready]}
    await cluster.set_status(CLAIMS, "c", {"devices": [device]})
    before = await cluster.forbidden()
    if end == "deleted":
        await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)
    else:
        await cluster.set_status(PODS, "p", {"phase": end})

    async def released():
        claim = await cluster.get(CLAIMS, "c")
        return not claim.get("status") and not claim["metadata"].get("finalizers")

    await cluster.eventually(released, 5)
    assert await cluster.forbidden() == before


async def test_claim_stays_allocated_until_last_consumer_ends(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    entries = [{"name": "own", "resourceClaimName": "shared"}]
    first = await cluster.create(PODS, pod_body("a", resourceClaims=entries))
    second = await cluster.create(PODS, pod_body("b", resourceClaims=entries))
    await cluster.start(NAME)
    await use(cluster, "shared", first, second)
    await cluster.set_status(PODS, "a", {"phase": "Succeeded"})

    async def only_b():
        status = (await cluster.get(CLAIMS, "shared")).get("status") or {}
        return [e["name"] for e in status.get("reservedFor", ())] == ["b"] and status["allocation"]

    await cluster.eventually(only_b)


async def test_consumer_with_other_uid_is_released(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    pod = await cluster.create(PODS, pod_body("p"))
    replaced = {**pod, "metadata": {**pod["metadata"], "uid": "another"}}
    await use(cluster, "c", replaced)
    await cluster.start(NAME)

    async def released():
        return not (await cluster.get(CLAIMS, "c")).get("status")

    await cluster.eventually(released)


async def test_terminating_running_pod_keeps_its_claim(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    entries = [{"name": "own", "resourceClaimName": "c"}]
    pod = await cluster.create(PODS, pod_body("p", nodeName="n1", resourceClaims=entries))
    await cluster.set_status(PODS, "p", {"phase": "Running"})
    await use(cluster, "c", pod)
    await cluster.start(NAME)
    await cluster.client.delete(PODS, "p", "ns")
    await cluster.client.delete(CLAIMS, "c", "ns")

    async def still():
        claim = await cluster.get(CLAIMS, "c")
        return claim["metadata"]["finalizers"] == [PROTECTED] and claim["status"]["allocation"]

    await cluster.always(still)
    await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)

    async def gone():
        return await cluster.get(CLAIMS, "c") is None

    await cluster.eventually(gone)


async def test_deleted_claim_never_reserved_is_deallocated(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    await use(cluster, "c")
    await cluster.start(NAME)

    async def allocated():
        return (await cluster.get(CLAIMS, "c"))["status"]["allocation"]

    await cluster.always(allocated)
    await cluster.client.delete(CLAIMS, "c", "ns")

    async def gone():
        return await cluster.get(CLAIMS, "c") is None

    await cluster.eventually(gone)


async def test_claim_that_something_else_protects_is_deallocated_when_it_is_deleted(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    await use(cluster, "c", finalizers=(PROTECTED, "example.com/other"))
    await cluster.start(NAME)
    await cluster.client.delete(CLAIMS, "c", "ns")

    async def free():
        claim = await cluster.get(CLAIMS, "c")
        return claim["metadata"]["finalizers"] == ["example.com/other"] and not claim.get("status")

    await cluster.eventually(free)


def test_claim_of_a_pod_that_is_not_heard_of_yet_stays_reserved(monkeypatch):
    heard = Informer._hear

    def late(informer, type_, obj):
        if obj["kind"] != "Pod":
            heard(informer, type_, obj)

    async def scenario(cluster):
        await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
        await cluster.start(NAME)
        monkeypatch.setattr(Informer, "_hear", late)
        before = await use(cluster, "c", await cluster.create(PODS, pod_body("p")))
        await asyncio.sleep(60)
        assert await cluster.get(CLAIMS, "c") == before

    in_virtual_time(scenario)


async def test_generated_claim_goes_when_another_pod_has_the_name_of_its_own(cluster):
    """There is no garbage collector here."""
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(PODS, pod_body("p", **USES))
    await cluster.start(NAME)
    name = await recorded_claim(cluster)
    await cluster.kill()
    await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)
    await cluster.create(PODS, pod_body("p"))
    await cluster.start(NAME)

    async def gone():
        return await cluster.get(CLAIMS, name) is None

    await cluster.eventually(gone)


async def test_pod_bound_without_scheduler_is_added_to_reserved_for(cluster):
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    entries = [{"name": "own", "resourceClaimName": "c"}]
    other = await cluster.create(PODS, pod_body("a", resourceClaims=entries))
    await cluster.start(NAME)
    await use(cluster, "c", other)
    await cluster.create(PODS, pod_body("b", nodeName="n1", resourceClaims=entries))

    async def both():
        return [e["name"] for e in (await cluster.get(CLAIMS, "c"))["status"]["reservedFor"]] == ["a", "b"]

    await cluster.eventually(both)
