"""DaemonSets against the API server, with a scheduler and kubelets that play along."""

from __future__ import annotations

import pytest
from controller_cluster import template

from haru.controllers.daemon_nodes import may_stay, node_of_daemon, should_run
from haru.controllers.objects import DAEMON_SETS, NODES, PODS, is_ready
from haru.controllers.revisions import REVISIONS

APP = {"app": "d"}


def daemon_set(**spec):
    pods = template(APP)
    body = {"selector": {"matchLabels": APP}, "template": pods, **spec}
    return {"metadata": {"name": "agent"}, "spec": body}


def node(name, labels=None, taints=None):
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}}


async def join(cluster, made):
    """The node, without the taint that keeps pods off until its kubelet has spoken."""
    await cluster.create(NODES, made)
    await cluster.client.patch(NODES, made["metadata"]["name"], {"spec": {"taints": made["spec"]["taints"] or None}})


class Daemons:
    """Binds each pod where it wants to be and makes it ready, step by step."""

    def __init__(self, cluster):
        self.cluster = cluster

    async def pods(self):
        return [p for p in await self.cluster.items(PODS) if not p["metadata"].get("deletionTimestamp")]

    async def settle(self, image="i", ready=True):
        """Every pod of the image is bound and ready; pods that are to go are gone."""
        for pod in await self.cluster.items(PODS):
            name = pod["metadata"]["name"]
            if pod["metadata"].get("deletionTimestamp"):
                await self.cluster.client.delete(PODS, name, "ns", grace_period_seconds=0)
                continue
            if not pod["spec"].get("nodeName"):
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": "ns"}}
                target = {**binding, "target": {"kind": "Node", "name": node_of_daemon(pod)}}
                await self.cluster.client.create_subresource(PODS, name, "binding", target, "ns")
            if ready and pod["spec"]["containers"][0]["image"] == image:
                condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                await self.cluster.set_status(PODS, name, {"phase": "Running", "conditions": [condition]})

    async def on(self, **images):
        """Wait until exactly these nodes have a ready pod of the image (nothing: of any image)."""

        async def holds():
            await self.settle()
            for image in set(images.values()):
                await self.settle(image)
            found = {}
            for pod in await self.pods():
                if not is_ready(pod):
                    return False
                found.setdefault(node_of_daemon(pod), []).append(pod["spec"]["containers"][0]["image"])
            return found == {name: [image] for name, image in images.items()}

        await self.cluster.eventually(holds)


@pytest.fixture
async def daemons(cluster):
    return Daemons(cluster)


async def status_is(cluster, **expected):
    async def holds():
        status = (await cluster.get(DAEMON_SETS, "agent")).get("status") or {}
        return all(status.get(key, 0) == value for key, value in expected.items())

    await cluster.eventually(holds)


async def test_daemon_set_runs_one_pod_on_every_matching_node(cluster, daemons):
    for made in (
        node("a"),
        node("b", {"gpu": "yes"}),
        node("c", {"gpu": "yes"}, [{"key": "x", "effect": "NoSchedule"}]),
    ):
        await join(cluster, made)
    await cluster.create(DAEMON_SETS, daemon_set())
    await cluster.start("daemonset-controller")
    fitting = [n["metadata"]["name"] for n in await cluster.items(NODES) if should_run(daemon_set(), n)]
    assert "c" not in fitting and {"a", "b"} <= set(fitting)
    await daemons.on(**dict.fromkeys(fitting, "i"))
    count = len(fitting)
    await status_is(
        cluster, desiredNumberScheduled=count, numberReady=count, numberAvailable=count, observedGeneration=1
    )
    await join(cluster, node("late"))
    await daemons.on(**dict.fromkeys([*fitting, "late"], "i"))
    chosen = template(APP, nodeSelector={"gpu": "yes"})
    await cluster.client.patch(DAEMON_SETS, "agent", {"spec": {"template": chosen}}, "ns")
    await daemons.on(b="i")
    await cluster.client.delete(NODES, "b")
    await daemons.on()


async def test_rolling_update_replaces_daemon_pods_one_at_a_time(cluster, daemons):
    for name in ("a", "b", "c"):
        await join(cluster, node(name, {"own": "yes"}))
    await cluster.create(DAEMON_SETS, daemon_set(template=template(APP, nodeSelector={"own": "yes"})))
    await cluster.start("daemonset-controller")
    await daemons.on(a="i", b="i", c="i")
    await status_is(cluster, updatedNumberScheduled=3, numberAvailable=3)
    new = template(APP, nodeSelector={"own": "yes"})
    new["spec"]["containers"][0]["image"] = "new"
    await cluster.client.patch(DAEMON_SETS, "agent", {"spec": {"template": new}}, "ns")

    async def one_is_new():
        await daemons.settle()
        return [p for p in await daemons.pods() if p["spec"]["containers"][0]["image"] == "new"]

    await cluster.eventually(one_is_new)

    async def no_more():
        await daemons.settle(ready=False)
        images = [p["spec"]["containers"][0]["image"] for p in await daemons.pods()]
        return images.count("i") == 2

    await cluster.always(no_more)
    await daemons.on(a="new", b="new", c="new")
    await status_is(cluster, updatedNumberScheduled=3, numberAvailable=3)
    revisions = await cluster.items(REVISIONS)
    assert sorted(r["revision"] for r in revisions) == [1, 2]


async def test_max_surge_starts_new_daemon_pod_before_old_one_stops(cluster, daemons):
    await join(cluster, node("a", {"own": "yes"}))
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    body = daemon_set(template=template(APP, nodeSelector={"own": "yes"}), updateStrategy=rolling)
    await cluster.create(DAEMON_SETS, body)
    await cluster.start("daemonset-controller")
    await daemons.on(a="i")
    new = template(APP, nodeSelector={"own": "yes"})
    new["spec"]["containers"][0]["image"] = "new"
    await cluster.client.patch(DAEMON_SETS, "agent", {"spec": {"template": new}}, "ns")

    async def both():
        await daemons.settle()
        return len(await daemons.pods()) == 2

    await cluster.eventually(both)
    await cluster.always(both)
    await daemons.on(a="new")


async def test_on_delete_strategy_replaces_daemon_pod_only_after_deletion(cluster, daemons):
    await join(cluster, node("a", {"own": "yes"}))
    body = daemon_set(template=template(APP, nodeSelector={"own": "yes"}), updateStrategy={"type": "OnDelete"})
    await cluster.create(DAEMON_SETS, body)
    await cluster.start("daemonset-controller")
    await daemons.on(a="i")
    new = template(APP, nodeSelector={"own": "yes"})
    new["spec"]["containers"][0]["image"] = "new"
    await cluster.client.patch(DAEMON_SETS, "agent", {"spec": {"template": new}}, "ns")
    await status_is(cluster, observedGeneration=2)
    (old,) = await daemons.pods()
    assert old["spec"]["containers"][0]["image"] == "i"
    await cluster.client.delete(PODS, old["metadata"]["name"], "ns")
    await daemons.on(a="new")


def test_should_run_follows_taints_selectors_and_node_name():
    cordoned = node("n", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])
    assert should_run(daemon_set(), cordoned)
    repelled = node("n", taints=[{"key": "x", "effect": "NoSchedule"}])
    assert not should_run(daemon_set(), repelled) and may_stay(daemon_set(), repelled)
    driven_out = node("n", taints=[{"key": "x", "effect": "NoExecute"}])
    assert not may_stay(daemon_set(), driven_out)
    named = daemon_set(template=template(APP, nodeName="m"))
    assert not should_run(named, node("n")) and should_run(named, node("m"))


async def test_daemon_pods_have_revision_hash_label(cluster):
    await join(cluster, node("n2"))
    await cluster.create(DAEMON_SETS, daemon_set())
    await cluster.start("daemonset-controller")

    async def made():
        return await cluster.items(PODS)

    (pod,) = await cluster.eventually(made)
    (revision,) = await cluster.items(REVISIONS)
    digest = revision["metadata"]["name"].removeprefix("agent-")
    assert pod["metadata"]["labels"]["controller-revision-hash"] == digest
    assert revision["metadata"]["labels"] == {**APP, "controller-revision-hash": digest}
