"""Controllers on servers that serve claims in a beta version only, or not at all."""

from __future__ import annotations

import pytest
from controller_cluster import Cluster, pod_body, started

from haru.client.discovery import adapt_to_server
from haru.controllers.objects import CLAIM_TEMPLATES, CLAIMS, PODS
from haru.kube.gates import FeatureGates
from haru.storage.sqlite import SqliteStore

NAME = "resourceclaim-controller"
REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_claim_is_created_from_template_in_the_served_version(version: str) -> None:
    gates = FeatureGates({"DynamicResourceAllocation": True}, 33)
    runtime = {f"resource.k8s.io/{version}": True}
    async with started(Cluster, SqliteStore(":memory:"), gates, runtime) as cluster:
        await adapt_to_server(cluster.client)
        assert cluster.client.version.kind_for(CLAIMS).version == version
        await cluster.create(CLAIM_TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": REQUESTS}})
        uses = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        await cluster.create(PODS, pod_body("p", resourceClaims=uses))
        manager = await cluster.start(NAME, "garbage-collector-controller")
        assert NAME in manager.running

        async def made():
            return await cluster.items(CLAIMS)

        (claim,) = await cluster.eventually(made)
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
        assert claim["metadata"]["ownerReferences"][0]["name"] == "p"
        await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)

        async def gone():
            return not await cluster.items(CLAIMS)

        await cluster.eventually(gone)


async def test_controllers_of_claims_are_not_started_where_none_are_served() -> None:
    async with started(Cluster, SqliteStore(":memory:"), FeatureGates({}, 33), {}) as cluster:
        manager = await cluster.start(NAME, "replicaset-controller")
        assert set(manager.running) == {"replicaset-controller"}
