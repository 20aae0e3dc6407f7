"""ReplicaSets and Deployments against the API server, with a kubelet that plays along."""

import asyncio

import pytest
from controller_cluster import Kubelet, pod_body, template

from haru.controllers.objects import DEPLOYMENTS, DISRUPTION_BUDGETS, PODS, QUOTAS, REPLICA_SETS
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import get_condition

EVENTS = known_kind("v1", "Event")
BOTH = ("deployment-controller", "replicaset-controller")
APP = {"app": "x"}


def replica_set(replicas, name="web"):
    spec = {"replicas": replicas, "selector": {"matchLabels": APP}, "template": template(APP)}
    return {"metadata": {"name": name}, "spec": spec}


def deployment(replicas, image="v1", **spec):
    pods = template(APP)
    pods["spec"]["containers"][0]["image"] = image
    spec = {"replicas": replicas, "selector": {"matchLabels": APP}, "template": pods, **spec}
    return {"metadata": {"name": "web"}, "spec": spec}


async def live_pods(cluster):
    return [p for p in await cluster.items(PODS) if not p["metadata"].get("deletionTimestamp")]


async def status_is(cluster, kind, name="web", **expected):
    async def holds():
        status = (await cluster.get(kind, name)).get("status") or {}
        return all(status.get(key, 0) == value for key, value in expected.items())

    await cluster.eventually(holds)


async def test_replica_set_keeps_replica_count(cluster):
    await cluster.create(REPLICA_SETS, replica_set(3))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start("replicaset-controller")
    await status_is(cluster, REPLICA_SETS, replicas=3, readyReplicas=3, availableReplicas=3, fullyLabeledReplicas=3)
    pods = await live_pods(cluster)
    assert all(p["metadata"]["name"].startswith("web-") for p in pods)
    await cluster.client.delete(PODS, pods[0]["metadata"]["name"], "ns")

    async def replaced():
        now = {p["metadata"]["name"] for p in await live_pods(cluster)}
        return len(now) == 3 and pods[0]["metadata"]["name"] not in now

    await cluster.eventually(replaced)
    await cluster.client.patch(REPLICA_SETS, "web", {"spec": {"replicas": 1}}, "ns")
    await status_is(cluster, REPLICA_SETS, replicas=1, observedGeneration=2)
    assert len(await live_pods(cluster)) == 1


async def test_refused_replica_set_backs_off(cluster):
    await cluster.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    await cluster.start("replicaset-controller", "resourcequota-controller")
    await cluster.create(REPLICA_SETS, replica_set(3))

    async def refused():
        return get_condition(await cluster.get(REPLICA_SETS, "web"), "ReplicaFailure")

    await cluster.eventually(refused)
    before = int((await cluster.get(REPLICA_SETS, "web"))["metadata"]["resourceVersion"])
    await asyncio.sleep(0.1)
    condition = await refused()
    await asyncio.sleep(0.1)
    assert await refused() == condition
    assert int((await cluster.get(REPLICA_SETS, "web"))["metadata"]["resourceVersion"]) <= before + 5


async def test_controller_restarts_create_no_extra_pods(cluster):
    await cluster.create(REPLICA_SETS, replica_set(8))
    seen = set()
    for _ in range(4):
        manager = await cluster.start("replicaset-controller")
        del manager
        seen |= {p["metadata"]["name"] for p in await cluster.items(PODS)}
        await cluster.kill()
    await cluster.start("replicaset-controller")
    await status_is(cluster, REPLICA_SETS, replicas=8)
    seen |= {p["metadata"]["name"] for p in await cluster.items(PODS)}
    assert len(seen) == 8


async def test_matching_orphan_is_adopted_and_released(cluster):
    body = pod_body("mine")
    body["metadata"]["labels"] = APP
    await cluster.create(PODS, body)
    await cluster.create(REPLICA_SETS, replica_set(2))
    await cluster.start("replicaset-controller")
    await status_is(cluster, REPLICA_SETS, replicas=2)
    mine = await cluster.get(PODS, "mine")
    assert mine["metadata"]["ownerReferences"][0]["name"] == "web"
    assert len(await live_pods(cluster)) == 2
    await cluster.client.patch(PODS, "mine", {"metadata": {"labels": {"app": "other"}}}, "ns")

    async def let_go():
        mine = await cluster.get(PODS, "mine")
        return not mine["metadata"].get("ownerReferences") and len(await live_pods(cluster)) == 3

    await cluster.eventually(let_go)


async def test_failed_creation_sets_replica_failure_condition(cluster):
    body = replica_set(2)
    body["spec"]["template"]["spec"]["priorityClassName"] = "there-is-none"
    await cluster.create(REPLICA_SETS, body)
    await cluster.start("replicaset-controller")

    async def told():
        return get_condition(await cluster.get(REPLICA_SETS, "web"), "ReplicaFailure")

    condition = await cluster.eventually(told)
    assert (condition["status"], condition["reason"]) == ("True", "FailedCreate")


async def test_rolling_update_stays_within_surge_and_unavailable_limits(cluster):
    await cluster.create(DEPLOYMENTS, deployment(4))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, replicas=4, updatedReplicas=4, availableReplicas=4, observedGeneration=1)
    conditions = {
        c["type"]: (c["status"], c["reason"]) for c in (await cluster.get(DEPLOYMENTS, "web"))["status"]["conditions"]
    }
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    await cluster.set_spec(DEPLOYMENTS, "web", deployment(4, "v2")["spec"])
    most = 0

    async def done():
        nonlocal most
        pods = await live_pods(cluster)
        most = max(most, len(pods))
        return len(pods) == 4 and all(p["spec"]["containers"][0]["image"] == "v2" for p in pods)

    await cluster.eventually(done)
    assert most <= 5
    await status_is(cluster, DEPLOYMENTS, replicas=4, updatedReplicas=4, availableReplicas=4, unavailableReplicas=0)
    sets = await cluster.items(REPLICA_SETS)
    assert sorted(rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for rs in sets) == ["1", "2"]
    # Back again: the first ReplicaSet takes over under a new number.
    await cluster.set_spec(DEPLOYMENTS, "web", deployment(4, "v1")["spec"])

    async def back():
        return (await cluster.get(DEPLOYMENTS, "web"))["metadata"]["annotations"].get(
            "deployment.kubernetes.io/revision"
        ) == "3" and len(await cluster.items(REPLICA_SETS)) == 2

    await cluster.eventually(back)


async def test_recreate_strategy_deletes_old_pods_first(cluster):
    await cluster.create(DEPLOYMENTS, deployment(2, strategy={"type": "Recreate"}))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=2)
    spec = deployment(2, "v2", strategy={"type": "Recreate"})["spec"]
    await cluster.set_spec(DEPLOYMENTS, "web", spec)

    async def done():
        images = {p["spec"]["containers"][0]["image"] for p in await cluster.items(PODS)}
        assert len(images) <= 1
        return images == {"v2"}

    await cluster.eventually(done)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=2, updatedReplicas=2)


async def test_paused_deployment_scales_without_rollout(cluster):
    await cluster.create(DEPLOYMENTS, deployment(2))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=2)
    spec = deployment(3, "v2", paused=True)["spec"]
    await cluster.set_spec(DEPLOYMENTS, "web", spec)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=3, updatedReplicas=0, observedGeneration=2)
    assert {p["spec"]["containers"][0]["image"] for p in await live_pods(cluster)} == {"v1"}
    condition = get_condition(await cluster.get(DEPLOYMENTS, "web"), "Progressing")
    assert condition["reason"] == "DeploymentPaused"
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, "ns")
    await status_is(cluster, DEPLOYMENTS, availableReplicas=3, updatedReplicas=3, replicas=3)


async def test_revision_history_limit_deletes_old_replica_sets(cluster):
    await cluster.create(DEPLOYMENTS, deployment(1, revisionHistoryLimit=1))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    rolled_out = {"availableReplicas": 1, "updatedReplicas": 1, "replicas": 1}
    for generation, image in enumerate(("v2", "v3", "v4"), 1):
        await status_is(cluster, DEPLOYMENTS, observedGeneration=generation, **rolled_out)
        spec = deployment(1, image, revisionHistoryLimit=1)["spec"]
        await cluster.set_spec(DEPLOYMENTS, "web", spec)

    async def two():
        sets = await cluster.items(REPLICA_SETS)
        revisions = {rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for rs in sets}
        return revisions == {"3", "4"}

    await cluster.eventually(two)


async def test_progress_deadline_sets_condition(cluster):
    await cluster.create(DEPLOYMENTS, deployment(1, progressDeadlineSeconds=1, minReadySeconds=0))
    await cluster.start(*BOTH)  # nobody runs the pod

    async def told():
        condition = get_condition(await cluster.get(DEPLOYMENTS, "web"), "Progressing")
        return condition is not None and condition["reason"] == "ProgressDeadlineExceeded"

    await cluster.eventually(told)


async def progress_since(cluster, version, last):
    """The reasons of the Progressing condition in the order of writing, up to and with `last`."""
    reasons = []
    async for _, obj in cluster.client.watch(DEPLOYMENTS, "ns", resource_version=version, timeout_seconds=20):
        condition = get_condition(obj, "Progressing") or {}
        if condition.get("reason") not in reasons[-1:]:
            reasons.append(condition.get("reason"))
        if condition.get("reason") == last and obj["status"].get("observedGeneration") == obj["metadata"]["generation"]:
            return reasons
    raise AssertionError(reasons)


async def test_rollout_long_after_the_last_one_has_its_whole_deadline(cluster):
    slow = {"progressDeadlineSeconds": 2}
    await cluster.create(DEPLOYMENTS, deployment(2, **slow))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=2, updatedReplicas=2)
    await asyncio.sleep(2.2)
    before = (await cluster.get(DEPLOYMENTS, "web"))["metadata"]["resourceVersion"]
    await cluster.set_spec(DEPLOYMENTS, "web", deployment(2, "v2", **slow)["spec"])
    reasons = await progress_since(cluster, before, "ReplicaSetUpdated")
    assert reasons == ["NewReplicaSetAvailable", "NewReplicaSetCreated", "ReplicaSetUpdated"]


async def test_deployment_that_is_scaled_does_not_begin_to_progress_anew(cluster):
    await cluster.create(DEPLOYMENTS, deployment(2))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, availableReplicas=2, updatedReplicas=2)
    before = (await cluster.get(DEPLOYMENTS, "web"))["metadata"]["resourceVersion"]
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "ns")
    assert await progress_since(cluster, before, "NewReplicaSetAvailable") == ["NewReplicaSetAvailable"]
    await status_is(cluster, DEPLOYMENTS, availableReplicas=3, updatedReplicas=3)
    conditions = (await cluster.get(DEPLOYMENTS, "web"))["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["Progressing", "Available"]


async def test_rollout_continues_after_controller_is_killed(cluster):
    await cluster.create(DEPLOYMENTS, deployment(6))
    for step in range(6):
        await cluster.play(Kubelet(cluster.client).run())
        await cluster.start(*BOTH)
        if step == 2:
            spec = deployment(6, "v2")["spec"]
            await cluster.set_spec(DEPLOYMENTS, "web", spec)
        await cluster.kill()
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH)
    await status_is(cluster, DEPLOYMENTS, replicas=6, updatedReplicas=6, availableReplicas=6, observedGeneration=2)
    assert len(await cluster.items(REPLICA_SETS)) <= 2


@pytest.mark.parametrize(
    ("spec", "allowed", "desired"),
    [
        ({"minAvailable": 2}, 2, 2),
        ({"maxUnavailable": 1}, 1, 3),
        ({"minAvailable": "50%"}, 2, 2),
        ({"minAvailable": 9}, 0, 9),
    ],
)
async def test_disruption_budget_status_has_allowed_and_desired_counts(cluster, spec, allowed, desired):
    await cluster.create(DEPLOYMENTS, deployment(4))
    await cluster.create(
        DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": APP}, **spec}}
    )
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*BOTH, "disruption-controller")
    await status_is(
        cluster, DISRUPTION_BUDGETS, "b", currentHealthy=4, disruptionsAllowed=allowed, desiredHealthy=desired
    )
    condition = get_condition(await cluster.get(DISRUPTION_BUDGETS, "b"), "DisruptionAllowed")
    assert condition["reason"] == ("SufficientPods" if allowed else "InsufficientPods")


async def test_disruption_budget_allows_that_many_evictions(cluster):
    await cluster.create(REPLICA_SETS, replica_set(3))
    budget = {"selector": {"matchLabels": APP}, "minAvailable": 2}
    await cluster.create(DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": budget})
    kubelet = Kubelet(cluster.client)
    await cluster.play(kubelet.run())
    await cluster.start("replicaset-controller", "disruption-controller")
    await status_is(cluster, DISRUPTION_BUDGETS, "b", disruptionsAllowed=1, currentHealthy=3)
    await cluster.kill()  # nobody replaces what is evicted
    await cluster.start("disruption-controller")
    first, second, _ = sorted(p["metadata"]["name"] for p in await live_pods(cluster))
    await evict(cluster, first)
    with pytest.raises(StatusError) as refused:
        await evict(cluster, second)
    assert refused.value.code == 429


async def evict(cluster, name):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "ns"}}
    await cluster.client.create_subresource(PODS, name, "eviction", body, "ns")


async def test_disruption_budget_does_not_expect_pods_that_nobody_controls(cluster):
    body = pod_body("alone")
    await cluster.create(PODS, body)
    await cluster.create(REPLICA_SETS, replica_set(3))
    for name, minimum in (("a", {"maxUnavailable": 1}), ("b", {"minAvailable": 2})):
        spec = {"selector": {}, **minimum}
        await cluster.create(DISRUPTION_BUDGETS, {"metadata": {"name": name}, "spec": spec})
    await cluster.play(Kubelet(cluster.client).run())
    body = pod_body("controlled")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    body["metadata"] |= {"labels": {"of": "job"}, "ownerReferences": [owner]}
    await cluster.start("replicaset-controller", "disruption-controller")
    await status_is(cluster, DISRUPTION_BUDGETS, "a", expectedPods=3, desiredHealthy=2, disruptionsAllowed=2)
    await status_is(cluster, DISRUPTION_BUDGETS, "b", expectedPods=4, desiredHealthy=2, disruptionsAllowed=2)
    await cluster.eventually(lambda: told(cluster, "UnmanagedPods", "MultiplePodDisruptionBudgets"))
    (text,) = {event["message"] for event in await cluster.items(EVENTS) if event["reason"] == "UnmanagedPods"}
    selector = "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
    assert text.startswith(
        f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged."
    )
    # The numbers stay as they were, but for the one that lets pods go.
    await cluster.create(PODS, body)
    await status_is(cluster, DISRUPTION_BUDGETS, "a", expectedPods=3, desiredHealthy=2, disruptionsAllowed=0)
    condition = get_condition(await cluster.get(DISRUPTION_BUDGETS, "a"), "DisruptionAllowed")
    assert (condition["reason"], condition["message"]) == (
        "SyncFailed",
        "jobs.batch does not implement the scale subresource",
    )
    await cluster.eventually(lambda: told(cluster, "CalculateExpectedPodCountFailed"))


async def told(cluster, *reasons):
    found = {event["reason"] for event in await cluster.items(EVENTS)}
    return found.issuperset(reasons)
