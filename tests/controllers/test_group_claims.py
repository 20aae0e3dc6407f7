"""Claims that the members of a PodGroup share, from their making to their release."""

from types import SimpleNamespace

import pytest
from controller_cluster import pod_body
from test_resource_claim import NAME, PROTECTED, REQUESTS, TEMPLATE, USES, recorded, recorded_claim, use

from haru.controllers.objects import CLAIM_TEMPLATES, CLAIMS, POD_GROUPS, PODS
from haru.kube import kinds
from haru.kube.gates import FeatureGates

EVENTS = kinds.lookup("", "v1", "events")
GROUPED = {"schedulingGroup": {"podGroupName": "g"}}
GROUP = {
    "metadata": {"name": "g"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": USES["resourceClaims"]},
}


async def _recorded(cluster, kind, name, entry):
    return recorded(await cluster.get(kind, name)).get(entry)


async def shared_claim(cluster):
    return await cluster.eventually(lambda: _recorded(cluster, POD_GROUPS, "g", "gpu"))


def consumer(group):
    metadata = group["metadata"]
    of = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
    return {**of, "name": metadata["name"], "uid": metadata["uid"]}


def owned_by(group, name):
    metadata = group["metadata"]
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": metadata["uid"]}
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    references = [{**owner, "controller": True}]
    return {"metadata": {"name": name, "annotations": annotations, "ownerReferences": references}, "spec": REQUESTS}


async def test_pods_of_group_share_group_claim(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(CLAIM_TEMPLATES, {**TEMPLATE, "metadata": {"name": "other"}})
    grouped = {"schedulingGroup": {"podGroupName": "g"}}
    other = [{"name": "gpu", "resourceClaimTemplateName": "other"}]
    await cluster.start(NAME)
    for name, spec in {"a": USES, "b": USES, "c": {"resourceClaims": other}}.items():
        await cluster.create(PODS, pod_body(name, **spec, **grouped))

    async def nothing():
        return not await cluster.items(CLAIMS)

    await cluster.always(nothing)  # the group is not there: nobody can know whose the claims are
    await cluster.create(POD_GROUPS, GROUP)
    shared = await cluster.eventually(lambda: _recorded(cluster, POD_GROUPS, "g", "gpu"))
    assert shared.startswith("g-gpu-")
    assert await recorded_claim(cluster, "a") == shared
    assert await recorded_claim(cluster, "b") == shared
    own = await recorded_claim(cluster, "c")
    assert own.startswith("c-gpu-")
    assert {c["metadata"]["name"] for c in await cluster.items(CLAIMS)} == {shared, own}
    (owner,) = (await cluster.get(CLAIMS, shared))["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "g")


async def test_group_claim_stays_reserved_until_group_is_deleted(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    group = await cluster.create(POD_GROUPS, GROUP)
    await cluster.create(PODS, pod_body("a", **USES, schedulingGroup={"podGroupName": "g"}))
    await cluster.start(NAME, "podgroup-protection-controller")
    shared = await recorded_claim(cluster, "a")
    await use(cluster, shared, group)
    await cluster.set_status(PODS, "a", {"phase": "Succeeded"})

    async def reserved():
        return (await cluster.get(CLAIMS, shared))["status"]["reservedFor"]

    await cluster.always(reserved)
    await cluster.client.delete(POD_GROUPS, "g", "ns")

    async def released():
        return not (await cluster.get(CLAIMS, shared)).get("status")

    await cluster.eventually(released)


async def test_controller_restarts_create_one_group_claim(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    group = await cluster.create(POD_GROUPS, GROUP)
    await cluster.create(CLAIMS, owned_by(group, "mine"))  # made, and then it died before it could be recorded
    for _ in range(3):
        await cluster.start(NAME)
        assert await shared_claim(cluster) == "mine"
        await cluster.kill()
    assert len(await cluster.items(CLAIMS)) == 1


async def test_unrecorded_second_group_claim_is_deleted(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    group = await cluster.create(POD_GROUPS, GROUP)
    await cluster.start(NAME)
    name = await shared_claim(cluster)
    await cluster.create(CLAIMS, owned_by(group, "late"))

    async def one():
        return [c["metadata"]["name"] for c in await cluster.items(CLAIMS)] == [name]

    await cluster.eventually(one)


async def test_deleted_group_claim_is_created_again_for_all_pods(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(POD_GROUPS, GROUP)
    for name in ("a", "b"):
        await cluster.create(PODS, pod_body(name, **USES, **GROUPED))
    await cluster.start(NAME)
    first = await recorded_claim(cluster, "a")
    await cluster.client.delete(CLAIMS, first, "ns")

    async def again():
        names = {await _recorded(cluster, PODS, name, "gpu") for name in ("a", "b")}
        return len(names) == 1 and first not in names and await cluster.get(CLAIMS, *names)

    await cluster.eventually(again)


async def test_missing_template_is_reported_on_group(cluster):
    await cluster.create(POD_GROUPS, GROUP)
    await cluster.create(PODS, pod_body("a", **USES, **GROUPED))
    await cluster.start(NAME)

    async def told():
        return [e for e in await cluster.items(EVENTS) if e["reason"] == "FailedResourceClaimCreation"]

    (event,) = await cluster.eventually(told)
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("PodGroup", "g")
    assert 'gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found' in event["message"]
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    assert await recorded_claim(cluster, "a") == await shared_claim(cluster)


async def test_feature_gate_off_gives_every_pod_its_own_claim(cluster):
    cluster.gates = FeatureGates.accelerator_defaults({"DRAWorkloadResourceClaims": False})
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(POD_GROUPS, GROUP)
    for name in ("a", "b"):
        await cluster.create(PODS, pod_body(name, **USES, **GROUPED))
    await cluster.start(NAME)
    assert (await recorded_claim(cluster, "a")).startswith("a-gpu-")
    assert (await recorded_claim(cluster, "b")).startswith("b-gpu-")
    assert not recorded(await cluster.get(POD_GROUPS, "g"))


@pytest.mark.parametrize("length", [49, 50, 200])
async def test_claim_names_of_long_group_names_are_valid(cluster, length):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    await cluster.create(POD_GROUPS, {**GROUP, "metadata": {"name": "g" * length}})
    await cluster.start(NAME)
    name = await cluster.eventually(lambda: _recorded(cluster, POD_GROUPS, "g" * length, "gpu"))
    claim = await cluster.get(CLAIMS, name)
    assert (name[:3], claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"]) == ("ggg", "gpu")
    assert len(name) <= 63


async def test_claim_of_pods_bound_by_hand_is_reserved_for_group(cluster):
    """Also a claim of the user's own is the group's, where the group names it as its pods do."""
    uses = [{"name": "own", "resourceClaimName": "c"}]
    group = await cluster.create(POD_GROUPS, {**GROUP, "spec": {**GROUP["spec"], "resourceClaims": uses}})
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    await use(cluster, "c")
    await cluster.start(NAME)
    for name in ("a", "b"):
        await cluster.create(PODS, pod_body(name, nodeName="n1", resourceClaims=uses, **GROUPED))

    async def reserved():
        return (await cluster.get(CLAIMS, "c"))["status"].get("reservedFor")

    assert await cluster.eventually(reserved) == [consumer(group)]
    await cluster.always(reserved)
    assert await reserved() == [consumer(group)]


async def test_group_claim_is_deleted_with_its_group(cluster):
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    group = await cluster.create(POD_GROUPS, GROUP)
    await cluster.create(PODS, pod_body("a", nodeName="n1", **USES, **GROUPED))
    await cluster.start(NAME, "podgroup-protection-controller", "garbage-collector-controller")
    shared = await recorded_claim(cluster, "a")
    await use(cluster, shared, group)
    await cluster.client.delete(POD_GROUPS, "g", "ns")

    async def held():
        claim = await cluster.get(CLAIMS, shared)
        return claim["status"]["reservedFor"] == [consumer(group)] and claim["metadata"]["finalizers"] == [PROTECTED]

    await cluster.always(held)
    await cluster.set_status(PODS, "a", {"phase": "Failed"})

    async def gone():
        return await cluster.get(CLAIMS, shared) is None and await cluster.get(POD_GROUPS, "g") is None

    await cluster.eventually(gone)


async def test_recreated_group_gets_new_claim_and_old_claim_is_released(cluster):
    """Somebody took the finalizer off: the new group neither has the old one's claim nor its devices."""
    await cluster.create(CLAIM_TEMPLATES, TEMPLATE)
    first = await cluster.create(POD_GROUPS, GROUP)
    await cluster.start(NAME)
    old = await shared_claim(cluster)
    await use(cluster, old, first)
    await cluster.client.patch(POD_GROUPS, "g", {"metadata": {"finalizers": None}}, "ns")
    await cluster.client.delete(POD_GROUPS, "g", "ns")
    await cluster.create(POD_GROUPS, GROUP)
    new = await shared_claim(cluster)
    assert new != old

    async def released():
        return not (await cluster.get(CLAIMS, old)).get("status")

    await cluster.eventually(released)


async def test_stale_group_in_cache_does_not_release_claim(cluster, monkeypatch):
    """The scheduler may know the new group of a name before this controller does."""
    first = await cluster.create(POD_GROUPS, {**GROUP, "spec": {"schedulingPolicy": {"basic": {}}}})
    manager = await cluster.start(NAME)
    controller = manager.running[NAME]
    await cluster.client.patch(POD_GROUPS, "g", {"metadata": {"finalizers": None}}, "ns")
    await cluster.client.delete(POD_GROUPS, "g", "ns")
    second = await cluster.create(POD_GROUPS, {**GROUP, "spec": {"schedulingPolicy": {"basic": {}}}})
    monkeypatch.setattr(controller, "groups", SimpleNamespace(get=lambda name, namespace: first))
    await cluster.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    await use(cluster, "c", second)

    async def seen():
        claim = controller.claims.get("c", "ns")
        return claim and claim.get("status")

    await cluster.eventually(seen)
    await controller.sync("claim:ns/c")
    assert (await cluster.get(CLAIMS, "c"))["status"]["reservedFor"] == [consumer(second)]
