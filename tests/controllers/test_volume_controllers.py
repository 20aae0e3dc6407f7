"""Volumes and claims through their phases: bound, lost, released, protected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from volume_objects import storage_class, volume, volume_claim

from haru.controllers.objects import PODS, STORAGE_CLASSES, VOLUME_ATTRIBUTES_CLASSES, VOLUME_CLAIMS, VOLUMES
from haru.controllers.volume_binder import free_volume, mismatch, reserved_volume
from haru.kube.kinds import known_kind

Obj = dict[str, Any]
BINDER = "persistentvolume-binder-controller"
PROTECTION = ("persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller")
EVENTS = known_kind("v1", "Event")
IMMEDIATE = storage_class(volumeBindingMode="Immediate")


def bare(obj: Obj) -> Obj:
    """As a user would send it."""
    metadata = {name: value for name, value in obj["metadata"].items() if name in ("name", "labels", "annotations")}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}


async def phase(cluster: Any, kind: Any, name: str) -> str:
    found = await cluster.get(kind, name)
    return found["status"]["phase"] if found is not None else ""


async def becomes(cluster: Any, kind: Any, name: str, wanted: str) -> Obj:
    async def holds() -> Obj | None:
        found = await cluster.get(kind, name)
        return found if found is not None and found["status"]["phase"] == wanted else None

    found: Obj = await cluster.eventually(holds, 20)
    return found


async def reasons(cluster: Any, name: str) -> set[str]:
    return {event["reason"] for event in await cluster.items(EVENTS) if event["involvedObject"]["name"] == name}


# -- pure rules


def test_free_volume_with_fewest_access_modes_and_then_the_smallest_is_chosen() -> None:
    claim = volume_claim("c")
    both = volume("both", size="1Gi", accessModes=["ReadWriteOnce", "ReadWriteMany"])
    chosen = free_volume(
        claim, [both, volume("big", size="9Gi"), volume("small", size="2Gi"), volume("tiny", size="1M")]
    )
    assert chosen is not None
    assert chosen["metadata"]["name"] == "small"
    assert free_volume(claim, [volume("x", class_name="other"), volume("y", phase="Released")]) is None


def test_reserved_volume_that_is_too_small_serves_nobody() -> None:
    claim = volume_claim("c", "2Gi")
    assert reserved_volume(claim, [volume("v", size="1Gi", claim=claim)]) is None
    kept = volume("w", size="3Gi", claim=claim)
    assert reserved_volume(claim, [volume("v", size="1Gi", claim=claim), kept]) is kept


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"capacity": {"storage": "1M"}}, "requested PV is too small"),
        ({"storageClassName": "x"}, "storageClassName does not match"),
        ({"volumeAttributesClassName": "gold"}, "volumeAttributesClassName does not match"),
        ({"volumeMode": "Block"}, "incompatible volumeMode"),
        ({"accessModes": ["ReadWriteMany"]}, "incompatible accessMode"),
    ],
)
def test_volume_asked_for_by_name_is_refused_for_what_it_lacks(change: Obj, why: str) -> None:
    assert mismatch(volume("v", **change), volume_claim("c")) == why


def test_volume_that_is_being_deleted_is_refused_whatever_it_has() -> None:
    leaving = volume("v")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert mismatch(leaving, volume_claim("c")) == 'the volume is marked for deletion "v"'


# -- on an API server


async def test_claim_of_a_class_without_a_provisioner_waits_for_a_volume_in_1_36s_words(cluster: Any) -> None:
    await cluster.start(BINDER)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))

    async def told() -> str:
        events = await cluster.items(EVENTS)
        return next((event["message"] for event in events if event["reason"] == "ProvisioningFailed"), "")

    assert await cluster.eventually(told) == "no volume plugin matched name: kubernetes.io/no-provisioner"


async def test_volume_for_a_claim_of_another_mode_stays_unbound_and_both_say_so(cluster: Any) -> None:
    await cluster.start(BINDER)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    claim = await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))
    await cluster.create(VOLUMES, bare(volume("v", volumeMode="Block", claim=claim)))

    async def told() -> bool:
        of_volume = {event["reason"] for event in await cluster.items(EVENTS, "default")}
        return "VolumeMismatch" in of_volume & await reasons(cluster, "c")

    await cluster.eventually(told, 20)
    assert await phase(cluster, VOLUME_CLAIMS, "c") == "Pending"


async def test_immediate_claim_is_bound_and_marked_on_both_sides(cluster: Any) -> None:
    await cluster.start(BINDER, *PROTECTION)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    await cluster.create(VOLUMES, bare(volume("v", size="5Gi")))
    await becomes(cluster, VOLUMES, "v", "Available")
    await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))
    claim = await becomes(cluster, VOLUME_CLAIMS, "c", "Bound")
    assert claim["spec"]["volumeName"] == "v"
    assert claim["status"]["capacity"] == {"storage": "5Gi"}
    marks = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    assert claim["metadata"]["annotations"] == marks
    bound = await becomes(cluster, VOLUMES, "v", "Bound")
    assert bound["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert bound["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert await cluster.forbidden() == 0


async def test_late_claim_is_bound_only_to_a_volume_that_names_it(cluster: Any) -> None:
    await cluster.start(BINDER, *PROTECTION)
    await cluster.create(STORAGE_CLASSES, storage_class())
    await cluster.create(VOLUMES, bare(volume("free")))
    await becomes(cluster, VOLUMES, "free", "Available")
    await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))

    async def told() -> bool:
        return "WaitForFirstConsumer" in await reasons(cluster, "c")

    await cluster.eventually(told, 20)
    assert await phase(cluster, VOLUME_CLAIMS, "c") == "Pending"
    named = bare(volume("named"))
    named["spec"]["claimRef"] = {"namespace": "ns", "name": "c"}
    await cluster.create(VOLUMES, named)
    claim = await becomes(cluster, VOLUME_CLAIMS, "c", "Bound")
    assert claim["spec"]["volumeName"] == "named"
    assert await phase(cluster, VOLUMES, "free") == "Available"


async def test_claim_whose_volume_is_gone_is_lost(cluster: Any) -> None:
    await cluster.start(BINDER)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    await cluster.create(VOLUMES, bare(volume("v")))
    await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))
    await becomes(cluster, VOLUME_CLAIMS, "c", "Bound")
    await cluster.client.patch(VOLUMES, "v", {"metadata": {"finalizers": None}})
    await cluster.client.delete(VOLUMES, "v")
    await becomes(cluster, VOLUME_CLAIMS, "c", "Lost")

    async def told() -> bool:
        return "ClaimLost" in await reasons(cluster, "c")

    await cluster.eventually(told, 20)


async def test_released_volume_is_kept_or_fails_by_its_reclaim_policy(cluster: Any) -> None:
    await cluster.start(BINDER, *PROTECTION)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    for name, policy in (("kept", "Retain"), ("unloved", "Delete")):
        made = bare(volume(name, persistentVolumeReclaimPolicy=policy))
        made["spec"]["claimRef"] = {"namespace": "ns", "name": name}
        await cluster.create(VOLUMES, made)
        await cluster.create(VOLUME_CLAIMS, bare(volume_claim(name)))
        await becomes(cluster, VOLUME_CLAIMS, name, "Bound")
        await cluster.client.delete(VOLUME_CLAIMS, name, "ns")
    await becomes(cluster, VOLUMES, "kept", "Released")
    failed = await becomes(cluster, VOLUMES, "unloved", "Failed")
    assert "no deletable volume plugin matched" in failed["status"]["message"]


async def test_claim_without_a_class_gets_the_default_class_that_comes_later(cluster: Any) -> None:
    await cluster.start(BINDER, *PROTECTION)
    made = bare(volume_claim("c"))
    del made["spec"]["storageClassName"]
    await cluster.create(VOLUME_CLAIMS, made)

    async def told() -> bool:
        return "FailedBinding" in await reasons(cluster, "c")

    await cluster.eventually(told, 20)
    default = storage_class("d", "volumes.example.com")
    default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    await cluster.create(STORAGE_CLASSES, default)

    async def classed() -> bool:
        return (await cluster.get(VOLUME_CLAIMS, "c"))["spec"].get("storageClassName") == "d"

    await cluster.eventually(classed, 20)


async def test_claim_in_use_and_bound_volume_are_protected(cluster: Any) -> None:
    await cluster.start(BINDER, *PROTECTION)
    await cluster.create(STORAGE_CLASSES, IMMEDIATE)
    await cluster.create(VOLUMES, bare(volume("v")))
    await cluster.create(VOLUME_CLAIMS, bare(volume_claim("c")))
    await becomes(cluster, VOLUME_CLAIMS, "c", "Bound")
    source = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": source}
    await cluster.create(PODS, {"metadata": {"name": "p"}, "spec": spec})

    async def protected() -> bool:
        both = [await cluster.get(VOLUME_CLAIMS, "c"), await cluster.get(VOLUMES, "v")]
        return all(obj["metadata"].get("finalizers") for obj in both)

    await cluster.eventually(protected, 20)
    await cluster.client.delete(VOLUMES, "v")
    await cluster.client.delete(VOLUME_CLAIMS, "c", "ns")
    assert await cluster.get(VOLUME_CLAIMS, "c")
    assert await cluster.get(VOLUMES, "v")
    await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)

    async def gone() -> bool:
        return not await cluster.get(VOLUME_CLAIMS, "c") and not await cluster.get(VOLUMES, "v")

    await cluster.eventually(gone, 20)
    assert await cluster.forbidden() == 0


async def finalizers(cluster: Any, kind: Any, name: str) -> list[str]:
    found: list[str] = (await cluster.get(kind, name))["metadata"].get("finalizers") or []
    return found


async def test_object_that_was_there_before_admission_gave_finalizers_is_protected_too(cluster: Any) -> None:
    await cluster.create(VOLUMES, bare(volume("v")))
    await cluster.client.patch(VOLUMES, "v", {"metadata": {"finalizers": None}})
    assert await finalizers(cluster, VOLUMES, "v") == []
    await cluster.start(PROTECTION[0])

    async def protected() -> bool:
        return await finalizers(cluster, VOLUMES, "v") == ["kubernetes.io/pv-protection"]

    await cluster.eventually(protected, 20)


@pytest.mark.parametrize("user", [VOLUMES, VOLUME_CLAIMS])
async def test_volume_attributes_class_stays_while_a_volume_or_claim_names_it(cluster: Any, user: Any) -> None:
    await cluster.start("volumeattributesclass-protection-controller")
    attributes = {"driverName": "volumes.example.com", "parameters": {"a": "b"}}
    await cluster.create(VOLUME_ATTRIBUTES_CLASSES, {"metadata": {"name": "fast"}, **attributes})
    csi = {"driver": "volumes.example.com", "volumeHandle": "v"}
    made = volume("v", csi=csi) if user is VOLUMES else volume_claim("v")
    made["spec"] = {**made["spec"], "volumeAttributesClassName": "fast"}
    made["spec"].pop("hostPath", None)
    made["metadata"].pop("finalizers", None)
    await cluster.create(user, bare(made))
    await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, "fast")
    await asyncio.sleep(1)
    assert await finalizers(cluster, VOLUME_ATTRIBUTES_CLASSES, "fast") == ["kubernetes.io/vac-protection"]
    namespace = "ns" if user is VOLUME_CLAIMS else ""
    await cluster.client.patch(user, "v", {"metadata": {"finalizers": None}}, namespace)
    await cluster.client.delete(user, "v", namespace)

    async def gone() -> bool:
        return not await cluster.get(VOLUME_ATTRIBUTES_CLASSES, "fast")

    await cluster.eventually(gone, 20)
    assert await cluster.forbidden() == 0
