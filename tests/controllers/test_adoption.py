"""Who manages which pods: every controller adopts and releases by the same rules."""

import pytest
from controller_cluster import Kubelet, pod_body, template

from haru.controllers.controller_refs import ClaimRule, claim
from haru.controllers.objects import (
    DAEMON_SETS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from haru.controllers.revisions import REVISIONS
from haru.kube.errors import StatusError
from haru.kube.meta import controller_of
from haru.kube.selectors import label_selector_from

APP = {"app": "x"}
TRACKING = "batch.kubernetes.io/job-tracking"
GC = "garbage-collector-controller"
SELECTOR = {"selector": {"matchLabels": APP}}


def body_of(kind, **spec):
    pods = template(APP)
    if kind is JOBS:
        pods["spec"]["restartPolicy"] = "Never"
        return {"metadata": {"name": "owner"}, "spec": {**SELECTOR, "manualSelector": True, "template": pods, **spec}}
    if kind is REPLICATION_CONTROLLERS:
        return {"metadata": {"name": "owner"}, "spec": {"selector": APP, "template": pods, **spec}}
    if kind is STATEFUL_SETS:
        spec = {"serviceName": "s", "updateStrategy": {"type": "OnDelete"}, **spec}
    if kind is DAEMON_SETS:
        spec = {"updateStrategy": {"type": "OnDelete"}, **spec}
    return {"metadata": {"name": "owner"}, "spec": {**SELECTOR, "template": pods, **spec}}


async def orphan(cluster, name, **spec):
    body = pod_body(name, restartPolicy="Never", **spec)
    body["metadata"]["labels"] = APP
    return await cluster.create(PODS, body)


def owner_kind(pod):
    return (controller_of(pod) or {}).get("kind")


def same_pod(cluster, pod, **expected):
    """Whether this very pod is there, with the `owner` and the `finalizers`."""

    async def holds():
        live = await cluster.get(PODS, pod["metadata"]["name"])
        assert live is not None and live["metadata"]["uid"] == pod["metadata"]["uid"]
        found = {"owner": owner_kind(live), "finalizers": live["metadata"].get("finalizers", [])}
        return all(found[key] == value for key, value in expected.items())

    return holds


KINDS = [
    (REPLICA_SETS, "replicaset-controller", []),
    (REPLICATION_CONTROLLERS, "replicationcontroller-controller", []),
    (STATEFUL_SETS, "statefulset-controller", []),
    (DAEMON_SETS, "daemonset-controller", []),
    (JOBS, "job-controller", [TRACKING]),
]


@pytest.mark.parametrize(("kind", "controller", "finalizers"), KINDS, ids=lambda v: getattr(v, "kind", None))
async def test_matching_orphan_is_adopted_and_released_when_labels_change(cluster, kind, controller, finalizers):
    await cluster.client.patch(NODES, "n1", {"spec": {"taints": None}})
    pod = await orphan(cluster, "owner-0", nodeName="n1")
    await cluster.create(kind, body_of(kind))
    await cluster.start(controller)
    await cluster.eventually(same_pod(cluster, pod, owner=kind.kind, finalizers=finalizers))
    assert [owner_kind(p) for p in await cluster.items(PODS)] == [kind.kind]  # no second one was made
    await cluster.client.patch(PODS, "owner-0", {"metadata": {"labels": {"app": "other"}}}, "ns")
    await cluster.eventually(same_pod(cluster, pod, owner=None, finalizers=[]))


async def test_pod_of_job_without_owner_reference_is_adopted_again(cluster):
    """The conformance test: a Job adopts matching orphans and releases pods that do not match."""
    await cluster.create(JOBS, body_of(JOBS, parallelism=2, completions=2))
    await cluster.start("job-controller")

    async def made():
        pods = await cluster.items(PODS)
        return pods if len(pods) == 2 else None

    first, _ = await cluster.eventually(made)
    await cluster.client.patch(PODS, first["metadata"]["name"], {"metadata": {"ownerReferences": None}}, "ns")
    await cluster.eventually(same_pod(cluster, first, owner="Job", finalizers=[TRACKING]))
    assert len(await cluster.items(PODS)) == 2
    labels = dict.fromkeys(first["metadata"]["labels"])
    await cluster.client.patch(PODS, first["metadata"]["name"], {"metadata": {"labels": labels}}, "ns")
    await cluster.eventually(same_pod(cluster, first, owner=None, finalizers=[]))

    async def replaced():
        return sum(owner_kind(pod) == "Job" for pod in await cluster.items(PODS)) == 2

    await cluster.eventually(replaced)


async def test_adopted_pod_of_job_counts_after_success(cluster):
    pod = await orphan(cluster, "mine")
    await cluster.create(JOBS, body_of(JOBS, completions=1))
    await cluster.play(Kubelet(cluster.client, lambda pod: "Succeeded").run())
    await cluster.start("job-controller")

    async def complete():
        status = (await cluster.get(JOBS, "owner")).get("status") or {}
        return status.get("succeeded") == 1 and status.get("completionTime")

    await cluster.eventually(complete)
    await cluster.eventually(same_pod(cluster, pod, owner="Job", finalizers=[]))
    assert len(await cluster.items(PODS)) == 1


async def test_pods_orphaned_by_job_deletion_lose_finalizers(cluster):
    await cluster.create(JOBS, body_of(JOBS))
    await cluster.start("job-controller", GC)

    async def made():
        return await cluster.items(PODS)

    (pod,) = await cluster.eventually(made)
    await cluster.client.delete(JOBS, "owner", "ns", propagation_policy="Orphan")
    await cluster.eventually(same_pod(cluster, pod, owner=None, finalizers=[]))


@pytest.mark.parametrize("fate", ["another of its name", "being deleted", "gone"])
async def test_deleted_or_replaced_owner_adopts_no_pod(cluster, fate):
    """The owner is read anew before the first adoption: what the cache says may be late."""
    stale = await cluster.create(JOBS, body_of(JOBS, suspend=True))
    manager = await cluster.start("job-controller")
    controller = manager.running["job-controller"]
    if fate == "being deleted":
        await cluster.client.patch(JOBS, "owner", {"metadata": {"finalizers": ["test/hold"]}}, "ns")
    await cluster.client.delete(JOBS, "owner", "ns", propagation_policy="Background")
    if fate == "another of its name":
        await cluster.create(JOBS, body_of(JOBS, suspend=True) | {"metadata": {"name": "owner"}})
        await cluster.kill()  # it would adopt the pod itself
    pod = await orphan(cluster, "mine")
    controller.pods.observe(pod)
    with pytest.raises(StatusError, match=r"it is (gone|being deleted)"):
        await claim(
            controller, controller.sets, stale, controller.pods, ClaimRule(label_selector_from(SELECTOR["selector"]))
        )
    assert owner_kind(await cluster.get(PODS, "mine")) is None


async def test_pod_with_foreign_name_is_not_adopted_by_stateful_set(cluster):
    foreign = await orphan(cluster, "something")
    await cluster.create(STATEFUL_SETS, body_of(STATEFUL_SETS))
    await cluster.start("statefulset-controller")

    async def made():
        return await cluster.get(PODS, "owner-0")

    await cluster.eventually(made)
    assert await same_pod(cluster, foreign, owner=None)()


async def test_terminated_pod_is_not_adopted_by_replica_set(cluster):
    ended = await orphan(cluster, "ended")
    await cluster.set_status(PODS, "ended", {"phase": "Succeeded"})
    await cluster.create(REPLICA_SETS, body_of(REPLICA_SETS))
    await cluster.start("replicaset-controller")

    async def made():
        return len(await cluster.items(PODS)) == 2

    await cluster.eventually(made)
    assert await same_pod(cluster, ended, owner=None)()


@pytest.mark.parametrize(
    ("kind", "controller"), [(STATEFUL_SETS, "statefulset-controller"), (DAEMON_SETS, "daemonset-controller")]
)
async def test_recreated_set_adopts_its_pods_and_revisions(cluster, kind, controller):
    await cluster.client.patch(NODES, "n1", {"spec": {"taints": None}})
    await cluster.create(kind, body_of(kind))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(controller, GC)

    async def made():
        return await cluster.items(PODS)

    (pod,) = await cluster.eventually(made)
    (revision,) = await cluster.items(REVISIONS)
    await cluster.client.delete(kind, "owner", "ns", propagation_policy="Orphan")
    await cluster.eventually(same_pod(cluster, pod, owner=None))

    async def gone():
        return await cluster.get(kind, "owner") is None

    await cluster.eventually(gone)
    again = await cluster.create(kind, body_of(kind))

    async def taken_over():
        (live,) = await cluster.items(REVISIONS)
        assert live["metadata"]["uid"] == revision["metadata"]["uid"]
        return (controller_of(live) or {}).get("uid") == again["metadata"]["uid"]

    await cluster.eventually(taken_over)
    await cluster.eventually(same_pod(cluster, pod, owner=kind.kind))
    assert len(await cluster.items(PODS)) == 1
