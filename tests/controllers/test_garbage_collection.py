"""Garbage collection, namespaces and service accounts against the API server."""

import asyncio

import pytest
from controller_cluster import in_virtual_time, pod_body

from haru.client.discovery import served_kinds, served_resources
from haru.controllers.objects import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from haru.kube import kinds

DEFINITIONS = kinds.known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
CONFIG_MAPS = kinds.lookup("", "v1", "configmaps")
GC = "garbage-collector-controller"


def reference(owner, **extra):
    kind, api_version = owner["kind"], owner["apiVersion"]
    metadata = owner["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], **extra}


async def config_map(cluster, name, *owners, finalizers=()):
    metadata = {"name": name, "ownerReferences": list(owners)}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return await cluster.create(CONFIG_MAPS, {"metadata": metadata})


async def names(cluster):
    return {c["metadata"]["name"] for c in await cluster.items(CONFIG_MAPS)} - {"kube-root-ca.crt"}


async def become(cluster, expected):
    async def holds():
        return await names(cluster) == expected

    await cluster.eventually(holds)


@pytest.mark.parametrize("before", [True, False])
async def test_background_deletion_removes_dependents(cluster, before):
    """Whether the owner goes while the collector runs, or before it starts."""
    owner = await config_map(cluster, "owner")
    child = await config_map(cluster, "child", reference(owner))
    await config_map(cluster, "grandchild", reference(child))
    await config_map(cluster, "other")
    if before:
        await cluster.start(GC)
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns")
    if not before:
        await cluster.start(GC)
    await become(cluster, {"other"})


async def test_reference_of_another_kind_or_name_does_not_keep_dependent_though_its_uid_is_there(cluster):
    owner = await config_map(cluster, "owner")
    await config_map(cluster, "child", reference(owner))
    await config_map(cluster, "other-kind", {**reference(owner), "kind": "Secret"})
    await config_map(cluster, "other-name", {**reference(owner), "name": "else"})
    await cluster.start(GC)
    await become(cluster, {"owner", "child"})


async def test_owner_with_same_name_and_other_uid_does_not_keep_dependent(cluster):
    owner = await config_map(cluster, "owner")
    wrong = {**reference(owner), "uid": "11111111-2222-3333-4444-555555555555"}
    await config_map(cluster, "child", wrong)
    await cluster.start(GC)
    await become(cluster, {"owner"})


async def test_dependent_with_one_living_owner_loses_only_dead_reference(cluster):
    one, two = await config_map(cluster, "one"), await config_map(cluster, "two")
    await config_map(cluster, "child", reference(one), reference(two))
    await cluster.start(GC)
    await cluster.client.delete(CONFIG_MAPS, "one", "ns")

    async def reduced():
        references = (await cluster.get(CONFIG_MAPS, "child"))["metadata"]["ownerReferences"]
        return [r["name"] for r in references] == ["two"]

    await cluster.eventually(reduced)


async def test_foreground_deletion_waits_for_blocking_dependents(cluster):
    owner = await config_map(cluster, "owner")
    await config_map(cluster, "blocks", reference(owner, blockOwnerDeletion=True), finalizers=["test/hold"])
    await config_map(cluster, "follows", reference(owner))
    await cluster.start(GC)
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation_policy="Foreground")

    async def going():
        blocks = await cluster.get(CONFIG_MAPS, "blocks")
        return blocks["metadata"].get("deletionTimestamp")

    await cluster.eventually(going)
    owner = await cluster.get(CONFIG_MAPS, "owner")
    assert owner["metadata"]["finalizers"] == ["foregroundDeletion"]
    await cluster.client.patch(CONFIG_MAPS, "blocks", {"metadata": {"finalizers": None}}, "ns")
    await become(cluster, set())


async def test_chain_of_dependents_is_deleted_from_its_end(cluster):
    owner = await config_map(cluster, "owner")
    child = await config_map(cluster, "child", reference(owner, blockOwnerDeletion=True))
    await config_map(cluster, "grandchild", reference(child, blockOwnerDeletion=True), finalizers=["test/hold"])
    await cluster.start(GC)
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation_policy="Foreground")

    async def all_going():
        going = [c["metadata"].get("deletionTimestamp") for c in await cluster.items(CONFIG_MAPS)]
        return len(going) >= 3 and sum(bool(g) for g in going) == 3

    await cluster.eventually(all_going)
    await cluster.client.patch(CONFIG_MAPS, "grandchild", {"metadata": {"finalizers": None}}, "ns")
    await become(cluster, set())


async def owned_by(cluster, name, *owners, kind=CONFIG_MAPS):
    """Gives an object these owners, which all block their deletion."""
    references = [reference(owner, blockOwnerDeletion=True) for owner in owners]
    return await cluster.client.patch(kind, name, {"metadata": {"ownerReferences": references}}, "ns")


async def circle(cluster, size=3):
    """Objects c0, c1, … of which each is owned by the next, the last by the first."""
    made = [await config_map(cluster, f"c{number}") for number in range(size)]
    for number in range(size):
        await owned_by(cluster, f"c{number}", made[(number + 1) % size])
    return made


async def delete_in_foreground(cluster, *names, kind=CONFIG_MAPS):
    for name in names:
        await cluster.client.delete(kind, name, "ns", propagation_policy="Foreground")


@pytest.mark.parametrize("size", [1, 2, 3, 6])
async def test_circle_of_owners_is_deleted_when_one_is_deleted_in_foreground(cluster, size):
    await circle(cluster, size)
    await config_map(cluster, "other")
    await cluster.start(GC)
    await delete_in_foreground(cluster, "c0")
    await become(cluster, {"other"})


@pytest.mark.parametrize("before", [True, False])
async def test_circle_of_owners_is_deleted_when_all_are_deleted_in_foreground(cluster, before):
    """Then nobody finds one that is not yet being deleted: the reference gets stuck here."""
    await circle(cluster)
    if before:
        await cluster.start(GC)
    await delete_in_foreground(cluster, "c0", "c1", "c2")
    if not before:
        await cluster.start(GC)
    await become(cluster, set())


async def test_circles_with_shared_members_are_deleted(cluster):
    first, second, third = await circle(cluster)
    fourth = await config_map(cluster, "d", reference(first, blockOwnerDeletion=True))
    await owned_by(cluster, "c0", second, fourth)
    await owned_by(cluster, "c1", third, fourth)
    await cluster.start(GC)
    await delete_in_foreground(cluster, "c0", "c1", "c2", "d")
    await become(cluster, set())


async def test_circle_of_several_kinds_is_deleted(cluster):
    owner = await config_map(cluster, "owner")
    pod = await cluster.create(PODS, pod_body("pod"))
    await owned_by(cluster, "owner", pod)
    await owned_by(cluster, "pod", owner, kind=PODS)
    await cluster.start(GC)
    await delete_in_foreground(cluster, "pod", kind=PODS)
    await become(cluster, set())

    async def gone():
        return not await cluster.items(PODS)

    await cluster.eventually(gone)


async def test_circle_waits_for_blocking_dependent_outside_it(cluster):
    first, *_ = await circle(cluster)
    await config_map(cluster, "outside", reference(first, blockOwnerDeletion=True), finalizers=["test/hold"])
    await cluster.start(GC)
    await delete_in_foreground(cluster, "c0")

    async def broken():
        """One of the circle has stopped to block, or is gone already."""
        found = await cluster.items(CONFIG_MAPS)
        blocks = [r["blockOwnerDeletion"] for c in found for r in c["metadata"].get("ownerReferences") or ()]
        return len(found) < 4 or not all(blocks)

    async def held():
        return {"c0", "outside"} <= await names(cluster)

    await cluster.eventually(broken)
    await cluster.always(held)
    await cluster.client.patch(CONFIG_MAPS, "outside", {"metadata": {"finalizers": None}}, "ns")
    await become(cluster, set())


@pytest.mark.parametrize("how", ["released", "does not block any more"])
async def test_foreground_deletion_ends_when_last_dependent_stops_blocking(cluster, how):
    owner = await config_map(cluster, "owner")
    await config_map(cluster, "blocks", reference(owner, blockOwnerDeletion=True), finalizers=["test/hold"])
    await cluster.start(GC)
    await delete_in_foreground(cluster, "owner")

    async def going():
        return (await cluster.get(CONFIG_MAPS, "blocks"))["metadata"].get("deletionTimestamp")

    await cluster.eventually(going)
    references = None if how == "released" else [reference(owner, blockOwnerDeletion=False)]
    await cluster.client.patch(CONFIG_MAPS, "blocks", {"metadata": {"ownerReferences": references}}, "ns")
    await become(cluster, {"blocks"})


async def test_foreground_deletion_also_removes_non_blocking_dependents(cluster):
    owner = await config_map(cluster, "owner")
    await config_map(cluster, "blocks", reference(owner, blockOwnerDeletion=True), finalizers=["test/hold"])
    await config_map(cluster, "follows", reference(owner))
    await cluster.start(GC)
    await delete_in_foreground(cluster, "owner")
    await become(cluster, {"owner", "blocks"})


async def test_orphan_deletion_keeps_dependents_and_removes_reference(cluster):
    owner = await config_map(cluster, "owner")
    await config_map(cluster, "child", reference(owner))
    await cluster.start(GC)
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation_policy="Orphan")
    await become(cluster, {"child"})
    assert not (await cluster.get(CONFIG_MAPS, "child"))["metadata"].get("ownerReferences")


async def test_owner_in_another_namespace_does_not_keep_dependent(cluster):
    await cluster.create(NAMESPACES, {"metadata": {"name": "other"}})
    owner = await cluster.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, "other"
    )
    await config_map(cluster, "child", reference(owner))
    await cluster.start(GC)
    await become(cluster, set())


async def test_cluster_scoped_owner_keeps_dependent(cluster):
    node = await cluster.get(NODES, "n1")
    await config_map(cluster, "child", reference({"apiVersion": "v1", "kind": "Node", **node}))
    await cluster.start(GC)

    async def stays():
        return await names(cluster) == {"child"}

    await cluster.always(stays)
    await cluster.client.delete(NODES, "n1")
    await become(cluster, set())


async def test_dependent_of_unknown_kind_is_not_deleted(cluster):
    unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "u"}
    await config_map(cluster, "child", unknown)
    await cluster.start(GC)

    async def stays():
        return await names(cluster) == {"child"}

    await cluster.always(stays)


async def test_owner_of_kind_that_is_defined_later_is_known_at_once(cluster):
    await cluster.start(GC)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "lab.example.com", "scope": "Namespaced", "versions": [version]}
    spec["names"] = {"plural": "trainers", "kind": "Trainer"}
    await cluster.create(DEFINITIONS, {"metadata": {"name": "trainers.lab.example.com"}, "spec": spec})
    (trainers,) = [kind for kind in await served_kinds(cluster.client) if kind.kind == "Trainer"]
    owner = await cluster.create(trainers, {"metadata": {"name": "t"}})
    await config_map(cluster, "child", reference(owner))
    await config_map(cluster, "grandchild", reference(await config_map(cluster, "other", reference(owner))))
    await cluster.client.delete(trainers, "t", "ns")
    await become(cluster, set())


async def trainers_in(cluster, *versions):
    """Define Trainers, or change their definition; the kind in the last of the versions, in which it is stored."""
    name = "trainers.lab.example.com"
    body = {"schema": {"openAPIV3Schema": {"type": "object"}}}
    of_each = [{"name": version, "served": True, "storage": version == versions[-1], **body} for version in versions]
    spec = {"group": "lab.example.com", "scope": "Namespaced", "versions": of_each}
    spec["names"] = {"plural": "trainers", "kind": "Trainer"}
    if await cluster.get(DEFINITIONS, name, "") is None:
        await cluster.create(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
    else:
        await cluster.client.patch(DEFINITIONS, name, {"spec": spec})
    served = [kind for kind in await served_resources(cluster.client) if kind.kind == "Trainer"]
    return next(kind for kind in served if kind.version == versions[-1])


async def test_kind_whose_older_version_is_served_no_longer_is_still_collected(cluster):
    older = await trainers_in(cluster, "v1alpha1")
    await cluster.start(GC)
    owner = await config_map(cluster, "owner")
    await cluster.create(older, {"metadata": {"name": "before", "ownerReferences": [reference(owner)]}})
    await trainers_in(cluster, "v1alpha1", "v1beta1")
    newer = {"status": {"storedVersions": ["v1beta1"]}}
    await cluster.client.patch(DEFINITIONS, "trainers.lab.example.com", newer, subresource="status")
    trainers = await trainers_in(cluster, "v1beta1")
    await cluster.create(trainers, {"metadata": {"name": "child", "ownerReferences": [reference(owner)]}})
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns")

    async def collected():
        return not await cluster.items(trainers)

    await cluster.eventually(collected)


def test_kind_that_is_gone_is_asked_for_no_more_until_it_comes_back(caplog):
    quotas, count = kinds.lookup("", "v1", "resourcequotas"), "count/trainers.lab.example.com"

    async def scenario(cluster):
        async def counted(expected):
            async def holds():
                quota = await cluster.get(quotas, "quota")
                return (quota.get("status") or {}).get("used") == {count: expected}

            await cluster.eventually(holds)

        trainers = await trainers_in(cluster, "v1")
        await cluster.start(GC, "resourcequota-controller")
        await cluster.create(quotas, {"metadata": {"name": "quota"}, "spec": {"hard": {count: "5"}}})
        await counted("0")
        await cluster.create(trainers, {"metadata": {"name": "before"}})
        await cluster.client.delete(DEFINITIONS, "trainers.lab.example.com")
        await counted("0")
        await asyncio.sleep(90)
        caplog.clear()
        await asyncio.sleep(600)
        assert [each for each in caplog.messages if "trainers" in each] == []
        trainers = await trainers_in(cluster, "v1")
        owner = await cluster.create(trainers, {"metadata": {"name": "t"}})
        await counted("1")
        await config_map(cluster, "child", reference(owner))
        await cluster.client.delete(trainers, "t", "ns")
        await become(cluster, set())
        await counted("0")

    in_virtual_time(scenario)


# -- namespaces -------------------------------------------------------------------------------------------------------


async def test_namespace_is_emptied_before_it_is_deleted(cluster):
    await config_map(cluster, "a")
    await config_map(cluster, "held", finalizers=["test/hold"])
    await cluster.create(PODS, pod_body("p"))
    await cluster.start("namespace-controller")
    await cluster.client.delete(NAMESPACES, "ns")

    async def told():
        namespace = await cluster.get(NAMESPACES, "ns")
        return {c["type"]: c for c in namespace["status"].get("conditions", ())}

    conditions = await cluster.eventually(told)
    assert conditions["NamespaceContentRemaining"]["status"] == "True"
    assert "test/hold in 1 resource instances" in conditions["NamespaceFinalizersRemaining"]["message"]
    assert conditions["NamespaceDeletionContentFailure"]["status"] == "False"
    assert await names(cluster) == {"held"}
    await cluster.client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, "ns")

    async def gone():
        return await cluster.get(NAMESPACES, "ns") is None

    await cluster.eventually(gone)


async def test_nothing_of_a_namespace_goes_before_its_pods(cluster):
    """KEP-5080: what pods use stays until they are gone."""
    await config_map(cluster, "used")
    await cluster.create(PODS, {**pod_body("p"), "metadata": {"name": "p", "finalizers": ["test/hold"]}})
    await cluster.start("namespace-controller")
    await cluster.client.delete(NAMESPACES, "ns")

    async def told():
        namespace = await cluster.get(NAMESPACES, "ns")
        return [c for c in namespace["status"].get("conditions", ()) if c["type"] == "NamespaceContentRemaining"]

    (condition,) = await cluster.eventually(told)
    assert condition["message"] == "Some resources are remaining: pods. has 1 resource instances"
    assert await names(cluster) == {"used"}
    await cluster.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "ns")

    async def gone():
        return await cluster.get(NAMESPACES, "ns") is None

    await cluster.eventually(gone)


async def test_what_is_in_a_deleted_namespace_can_be_deleted_after_it(cluster):
    """As `kubectl delete -f` does, whose manifest begins with the namespace."""
    await config_map(cluster, "a")
    await cluster.start("namespace-controller")
    began = asyncio.get_running_loop().time()
    await cluster.client.delete(NAMESPACES, "ns")

    async def gone():
        return await cluster.get(CONFIG_MAPS, "a", "ns") is None

    await cluster.eventually(gone)
    assert asyncio.get_running_loop().time() - began >= 0.9


async def test_every_namespace_gets_default_service_account(cluster):
    await cluster.start("serviceaccount-controller")
    await cluster.create(NAMESPACES, {"metadata": {"name": "fresh"}})

    async def there():
        return await cluster.get(SERVICE_ACCOUNTS, "default", "fresh")

    first = await cluster.eventually(there)
    await cluster.client.delete(SERVICE_ACCOUNTS, "default", "fresh")

    async def again():
        account = await there()
        return account and account["metadata"]["uid"] != first["metadata"]["uid"]

    await cluster.eventually(again)
