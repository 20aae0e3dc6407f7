"""ReplicationControllers against the API server: what a ReplicaSet does, with the older kind's words."""

from controller_cluster import Kubelet, pod_body, template

from haru.controllers.objects import DISRUPTION_BUDGETS, PODS, REPLICATION_CONTROLLERS
from haru.kube.kinds import known_kind
from haru.kube.meta import get_condition

NAME = "replicationcontroller-controller"
EVENTS = known_kind("v1", "Event")
APP = {"app": "x"}


def replication_controller(replicas, name="web", **spec):
    spec = {"replicas": replicas, "selector": APP, "template": template(APP), **spec}
    return {"metadata": {"name": name}, "spec": spec}


async def live_pods(cluster):
    return [p for p in await cluster.items(PODS) if not p["metadata"].get("deletionTimestamp")]


async def status_is(cluster, **expected):
    async def holds():
        status = (await cluster.get(REPLICATION_CONTROLLERS, "web")).get("status") or {}
        return all(status.get(key, 0) == value for key, value in expected.items())

    await cluster.eventually(holds)


async def test_replication_controller_keeps_replica_count(cluster):
    created = await cluster.create(REPLICATION_CONTROLLERS, replication_controller(3))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)
    await status_is(cluster, replicas=3, readyReplicas=3, availableReplicas=3, fullyLabeledReplicas=3)
    pods = await live_pods(cluster)
    (reference,) = pods[0]["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": created["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    await cluster.client.delete(PODS, pods[0]["metadata"]["name"], "ns")

    async def replaced():
        now = {p["metadata"]["name"] for p in await live_pods(cluster)}
        return len(now) == 3 and pods[0]["metadata"]["name"] not in now

    await cluster.eventually(replaced)
    await cluster.client.patch(REPLICATION_CONTROLLERS, "web", {"spec": {"replicas": 1}}, "ns")
    await status_is(cluster, replicas=1, observedGeneration=2)
    assert len(await live_pods(cluster)) == 1


async def test_replication_controller_without_selector_uses_template_labels(cluster):
    body = replication_controller(1)
    del body["spec"]["selector"]
    await cluster.create(REPLICATION_CONTROLLERS, body)
    await cluster.start(NAME)
    await status_is(cluster, replicas=1, fullyLabeledReplicas=1)


async def test_matching_orphan_is_adopted_and_pod_with_other_labels_released(cluster):
    body = pod_body("mine")
    body["metadata"]["labels"] = APP
    await cluster.create(PODS, body)
    await cluster.create(REPLICATION_CONTROLLERS, replication_controller(2))
    await cluster.start(NAME)
    await status_is(cluster, replicas=2)
    mine = await cluster.get(PODS, "mine")
    assert mine["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"
    assert len(await live_pods(cluster)) == 2
    await cluster.client.patch(PODS, "mine", {"metadata": {"labels": {"app": "other"}}}, "ns")

    async def released():
        mine = await cluster.get(PODS, "mine")
        return not mine["metadata"].get("ownerReferences") and len(await live_pods(cluster)) == 3

    await cluster.eventually(released)


async def test_refused_pods_give_condition_and_event(cluster):
    body = replication_controller(2)
    body["spec"]["template"]["spec"]["priorityClassName"] = "there-is-none"
    await cluster.create(REPLICATION_CONTROLLERS, body)
    await cluster.start(NAME)

    async def told():
        return get_condition(await cluster.get(REPLICATION_CONTROLLERS, "web"), "ReplicaFailure")

    condition = await cluster.eventually(told)
    assert (condition["status"], condition["reason"]) == ("True", "FailedCreate")

    async def event():
        return [e for e in await cluster.items(EVENTS) if e["reason"] == "FailedCreate"]

    event, *_ = await cluster.eventually(event)
    assert event["involvedObject"]["kind"] == "ReplicationController"
    assert event["source"]["component"] == "replication-controller"


async def test_replication_controller_pods_count_for_disruption_budget(cluster):
    await cluster.create(REPLICATION_CONTROLLERS, replication_controller(3))
    budget = {"selector": {"matchLabels": APP}, "maxUnavailable": 1}
    await cluster.create(DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": budget})
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME, "disruption-controller")

    async def counted():
        status = (await cluster.get(DISRUPTION_BUDGETS, "b")).get("status") or {}
        return (status.get("expectedPods"), status.get("disruptionsAllowed")) == (3, 1)

    await cluster.eventually(counted)
