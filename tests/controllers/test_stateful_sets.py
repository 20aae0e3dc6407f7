"""StatefulSets against the API server, with a kubelet that plays along."""

from __future__ import annotations

from controller_cluster import Kubelet, template

from haru.controllers.objects import PODS, STATEFUL_SETS, VOLUME_CLAIMS
from haru.controllers.revisions import REVISIONS

APP = {"app": "s"}


def stateful_set(replicas, image="i", **spec):
    pods = template(APP)
    pods["spec"]["containers"][0]["image"] = image
    body = {"replicas": replicas, "selector": {"matchLabels": APP}, "serviceName": "db", "template": pods, **spec}
    return {"metadata": {"name": "db"}, "spec": body}


async def names(cluster):
    found = [p["metadata"]["name"] for p in await cluster.items(PODS) if not p["metadata"].get("deletionTimestamp")]
    return sorted(found)


async def status_is(cluster, **expected):
    async def holds():
        status = (await cluster.get(STATEFUL_SETS, "db")).get("status") or {}
        return all(status.get(key, 0) == value for key, value in expected.items())

    await cluster.eventually(holds)


async def test_ordered_stateful_set_creates_pods_one_by_one_with_volume_claims(cluster):
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await cluster.create(STATEFUL_SETS, stateful_set(3, volumeClaimTemplates=[claim]))
    await cluster.start("statefulset-controller")

    async def first():
        return await names(cluster) == ["db-0"]

    await cluster.eventually(first)
    await cluster.always(first)  # it is not ready
    await cluster.play(Kubelet(cluster.client).run())
    await status_is(cluster, replicas=3, readyReplicas=3, availableReplicas=3, currentReplicas=3, updatedReplicas=3)
    assert await names(cluster) == ["db-0", "db-1", "db-2"]
    claims = sorted(c["metadata"]["name"] for c in await cluster.items(VOLUME_CLAIMS))
    assert claims == ["data-db-0", "data-db-1", "data-db-2"]
    pod = await cluster.get(PODS, "db-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}} in pod["spec"]["volumes"]
    await cluster.client.delete(PODS, "db-1", "ns")

    async def back():
        again = await cluster.get(PODS, "db-1")
        return again is not None and again["metadata"]["uid"] != pod["metadata"]["uid"]

    await cluster.eventually(back)
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, "ns")
    await status_is(cluster, replicas=1)
    assert await names(cluster) == ["db-0"]
    assert len(await cluster.items(VOLUME_CLAIMS)) == 3


async def test_retention_policy_deletes_claims_of_scaled_down_pods(cluster):
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    body = stateful_set(2, volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy)
    await cluster.create(STATEFUL_SETS, body)
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(
        "statefulset-controller", "garbage-collector-controller", "persistentvolumeclaim-protection-controller"
    )
    await status_is(cluster, readyReplicas=2)
    owners = (await cluster.get(VOLUME_CLAIMS, "data-db-0"))["metadata"]["ownerReferences"]
    assert [owner["kind"] for owner in owners] == ["StatefulSet"]
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, "ns")

    async def gone():
        return await cluster.get(VOLUME_CLAIMS, "data-db-1") is None

    await cluster.eventually(gone)
    assert await cluster.get(VOLUME_CLAIMS, "data-db-0") is not None
    # A set that lets its claims stay after all does not take them along.
    keep = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    change = {"spec": {"persistentVolumeClaimRetentionPolicy": keep}}
    await cluster.client.patch(STATEFUL_SETS, "db", change, "ns")

    async def free():
        return not (await cluster.get(VOLUME_CLAIMS, "data-db-0"))["metadata"].get("ownerReferences")

    await cluster.eventually(free)


async def test_rolling_update_stops_at_partition(cluster):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    await cluster.create(STATEFUL_SETS, stateful_set(3, updateStrategy=rolling))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("statefulset-controller")
    await status_is(cluster, readyReplicas=3, updatedReplicas=3)
    await cluster.client.patch(
        STATEFUL_SETS, "db", {"spec": stateful_set(3, "new", updateStrategy=rolling)["spec"]}, "ns"
    )

    async def images(expected):
        found = {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in await cluster.items(PODS)}
        return found == expected

    await cluster.eventually(lambda: images({"db-0": "i", "db-1": "new", "db-2": "new"}))
    await status_is(cluster, readyReplicas=3, updatedReplicas=2, currentReplicas=1)
    status = (await cluster.get(STATEFUL_SETS, "db"))["status"]
    assert status["currentRevision"] != status["updateRevision"]
    # A pod below the partition comes back as it was.
    await cluster.client.delete(PODS, "db-0", "ns")
    await status_is(cluster, readyReplicas=3, currentReplicas=1)
    await cluster.eventually(lambda: images({"db-0": "i", "db-1": "new", "db-2": "new"}))
    rolling["rollingUpdate"]["partition"] = 0
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": {"updateStrategy": rolling}}, "ns")
    await cluster.eventually(lambda: images(dict.fromkeys(("db-0", "db-1", "db-2"), "new")))

    async def one_revision():
        status = (await cluster.get(STATEFUL_SETS, "db"))["status"]
        return status["currentRevision"] == status["updateRevision"] and status["currentReplicas"] == 3

    await cluster.eventually(one_revision)


async def test_scale_down_waits_for_pods_that_are_not_ready(cluster):
    await cluster.create(STATEFUL_SETS, stateful_set(3))
    await cluster.start("statefulset-controller")
    await cluster.play(Kubelet(cluster.client).run())
    await status_is(cluster, readyReplicas=3)

    async def set_ready(number, ready):
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {"status": {"conditions": [condition]}}
        await cluster.client.patch(PODS, f"db-{number}", body, "ns", type="strategic", subresource="status")

    async def all_remain():
        return await names(cluster) == ["db-0", "db-1", "db-2"]

    for number in range(3):
        await set_ready(number, "False")
    await status_is(cluster, readyReplicas=0)
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 0}}, "ns")
    await cluster.always(all_remain)
    for number in (2, 1):
        await set_ready(number, "True")
    # The last one that is not ready goes nevertheless: nobody is left to wait for.
    await status_is(cluster, replicas=0)


async def test_parallel_policy_and_start_ordinal_create_all_pods_at_once(cluster):
    body = stateful_set(3, podManagementPolicy="Parallel", ordinals={"start": 5})
    await cluster.create(STATEFUL_SETS, body)
    await cluster.start("statefulset-controller")

    async def all_at_once():
        return await names(cluster) == ["db-5", "db-6", "db-7"]

    await cluster.eventually(all_at_once)


async def test_controller_restarts_create_no_duplicate_pods(cluster):
    await cluster.create(STATEFUL_SETS, stateful_set(4))
    await cluster.play(Kubelet(cluster.client).run())
    for _ in range(3):
        await cluster.start("statefulset-controller")
        await cluster.kill()
        await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("statefulset-controller")
    await status_is(cluster, replicas=4, readyReplicas=4)
    assert await names(cluster) == ["db-0", "db-1", "db-2", "db-3"]


async def test_pods_have_revision_label_equal_to_status(cluster):
    await cluster.create(STATEFUL_SETS, stateful_set(2))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("statefulset-controller")
    await status_is(cluster, readyReplicas=2, updatedReplicas=2, currentReplicas=2)
    (revision,) = await cluster.items(REVISIONS)
    name, labels = revision["metadata"]["name"], revision["metadata"]["labels"]
    assert {p["metadata"]["labels"]["controller-revision-hash"] for p in await cluster.items(PODS)} == {name}
    status = (await cluster.get(STATEFUL_SETS, "db"))["status"]
    assert (status["currentRevision"], status["updateRevision"]) == (name, name)
    # The revision itself has the labels of the template, and the hash under a label of its own.
    assert labels == {**APP, "controller.kubernetes.io/hash": name.removeprefix("db-")}


async def test_on_delete_strategy_uses_new_template_after_manual_deletion(cluster):
    await cluster.create(STATEFUL_SETS, stateful_set(2, updateStrategy={"type": "OnDelete"}))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("statefulset-controller")
    await status_is(cluster, readyReplicas=2, updatedReplicas=2)
    first = (await cluster.get(STATEFUL_SETS, "db"))["status"]["currentRevision"]
    spec = stateful_set(2, "new", updateStrategy={"type": "OnDelete"})["spec"]
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": spec}, "ns")
    await status_is(cluster, readyReplicas=2, updatedReplicas=0, observedGeneration=2)
    for number in (0, 1):
        await cluster.client.delete(PODS, f"db-{number}", "ns")
        await status_is(cluster, readyReplicas=2, updatedReplicas=number + 1)
    assert {p["spec"]["containers"][0]["image"] for p in await cluster.items(PODS)} == {"new"}
    # Nothing rolls: the current revision is the first one until somebody chooses a rolling update.
    assert (await cluster.get(STATEFUL_SETS, "db"))["status"]["currentRevision"] == first


async def test_partition_counts_from_start_ordinal(cluster):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    more = {"updateStrategy": rolling, "ordinals": {"start": 5}}
    await cluster.create(STATEFUL_SETS, stateful_set(2, **more))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("statefulset-controller")
    await status_is(cluster, readyReplicas=2)
    await cluster.client.patch(STATEFUL_SETS, "db", {"spec": stateful_set(2, "new", **more)["spec"]}, "ns")
    await status_is(cluster, readyReplicas=2, updatedReplicas=1, observedGeneration=2)
    before = await cluster.get(PODS, "db-5")
    await cluster.client.delete(PODS, "db-5", "ns")

    async def back():
        pod = await cluster.get(PODS, "db-5")
        return pod is not None and pod["metadata"]["uid"] != before["metadata"]["uid"]

    await cluster.eventually(back)
    found = {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in await cluster.items(PODS)}
    assert found == {"db-5": "i", "db-6": "new"}
