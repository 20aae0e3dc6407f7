"""Bindings of a scheduler that is gone arrive when the next one has decided otherwise."""

from __future__ import annotations

import asyncio

import pytest
from scheduler_bench import CLAIMS, DRIVER, NS, PODS, Bench, play

from haru.kube.errors import StatusError


def test_late_binding_after_claim_release_is_refused() -> None:
    """A scheduler sends a binding and dies; the next one finds no place and frees the claim; then the binding comes."""

    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=1)
        await bench.claim("mine")
        pod = await bench.pod("p", claim="mine")
        await bench.eventually_bound("p")
        await bench.delete("p")
        await asyncio.sleep(1)
        await bench.kill()
        pod = await bench.pod("p", claim="mine", nodeSelector={"kubernetes.io/hostname": "n2"})
        allocation = {"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}]}}
        field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
        status = {"allocation": allocation, "reservedFor": [user]}
        await bench.api.patch(CLAIMS, "mine", {"status": status}, NS, "merge", "status")
        pod = await bench.api.get(PODS, "p", NS)
        late = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {name: pod["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")},
            "target": {"kind": "Node", "name": "n1"},
        }
        await bench.start_scheduler()
        await asyncio.sleep(5)
        assert not await bench.allocation("mine")
        with pytest.raises(StatusError, match="Precondition failed: ResourceVersion in precondition"):
            await bench.api.create_subresource(PODS, "p", "binding", late, NS)
        assert not await bench.node_of("p")

    play(scenario)
