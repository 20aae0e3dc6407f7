"""Controllers that are killed repeatedly, at any point, create every object once."""

import asyncio
import random

import pytest
from controller_cluster import Kubelet, template

from haru.controllers.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEPLOYMENTS,
    JOBS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    WORKLOADS,
)
from haru.kube.meta import controller_of, get_condition

ALL = ("*", "-node-lifecycle-controller")
REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}


def phase(pod):
    return "Succeeded" if "job-name" in pod["metadata"]["labels"] else "Running"


async def settled(cluster):
    job = (await cluster.get(JOBS, "train"))["status"]
    web = (await cluster.get(DEPLOYMENTS, "web"))["status"]
    return get_condition(job.get("conditions"), "Complete") and web.get("updatedReplicas") == web.get("replicas") == 4


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_killed_controllers_reach_expected_state(cluster, seed):
    rng = random.Random(seed)
    await cluster.create(CLAIM_TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": REQUESTS}})
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pods = template({}, restartPolicy="Never", resourceClaims=claims)
    spec = {"completionMode": "Indexed", "completions": 6, "parallelism": 6, "template": pods}
    await cluster.create(JOBS, {"metadata": {"name": "train"}, "spec": spec})
    web = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template({"app": "web"})}
    await cluster.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": web})
    for step in range(10):
        await cluster.play(Kubelet(cluster.client, phase).run())
        await cluster.start(*ALL)
        await asyncio.sleep(rng.random() * 0.06)
        await cluster.kill()
        if step == 5:
            web["template"]["spec"]["containers"][0]["image"] = "v2"
            await cluster.set_spec(DEPLOYMENTS, "web", web)
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(*ALL)
    await cluster.eventually(lambda: settled(cluster))

    job = (await cluster.get(JOBS, "train"))["status"]
    assert (job["succeeded"], job.get("failed", 0), job["completedIndexes"]) == (6, 0, "0-5")
    of_job = [p for p in await cluster.items(PODS) if (controller_of(p) or {}).get("kind") == "Job"]
    assert len(of_job) == 6
    (group,) = await cluster.items(POD_GROUPS)
    assert len(await cluster.items(WORKLOADS)) == 1
    assert {p["spec"]["schedulingGroup"]["podGroupName"] for p in of_job} == {group["metadata"]["name"]}
    assert len(await cluster.items(REPLICA_SETS)) <= 2

    async def no_claims():  # the pods are done: their claims are not needed
        return not await cluster.items(CLAIMS)

    await cluster.eventually(no_claims)
