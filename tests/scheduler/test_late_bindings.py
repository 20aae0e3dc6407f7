"""Bindings and releases of a scheduler that is gone arrive when the next one has decided otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scheduler_bench import CLAIMS, NS, PODS, Bench, play

from haru.kube.errors import StatusError


@pytest.mark.parametrize("is_told", [False, True], ids=["", "nothing is new to tell of the pod"])
def test_late_binding_after_claim_release_is_refused(is_told: bool) -> None:
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
        if is_told:
            await bench.start_scheduler()
            await asyncio.sleep(5)
            await bench.kill()
        await bench.reserve("mine", pod)
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


@pytest.mark.parametrize("minimum", [0, 1, 2])
def test_late_release_of_claim_is_refused_once_the_pod_is_bound(minimum: int) -> None:
    """A scheduler sends the release of a claim and dies; the next one binds the pod with it; then the release comes."""

    async def scenario(bench: Bench) -> None:
        await bench.kill()
        await bench.node(gpus=2)
        group = "g" if minimum else ""
        if group:
            await bench.gang(group, minimum)
        for name in ("p", "q"):
            await bench.claim(name)
            pod = await bench.pod(name, claim=name, group=group)
            if name == "p":
                await bench.reserve(name, pod)
        seen = await bench.api.get(CLAIMS, "p", NS)
        await bench.start_scheduler()
        await bench.eventually_bound("p", "q")
        with pytest.raises(StatusError, match="the object has been modified"):
            await bench.api.update_status(CLAIMS, {**seen, "status": {}})
        confirmed = await bench.api.get(CLAIMS, "p", NS)
        assert confirmed["status"]["allocation"] == seen["status"]["allocation"]
        assert confirmed["metadata"]["annotations"].keys() == {"scheduler.haru.dev/confirmed-since"}
        assert "annotations" not in (await bench.api.get(CLAIMS, "q", NS))["metadata"]

    play(scenario)


def test_pod_is_not_bound_with_a_claim_whose_late_release_comes_before_the_next_scheduler_relies_on_it() -> None:
    """It arrives between the decision and the writing of the claim: a new decision follows."""

    async def scenario(bench: Bench) -> None:
        await bench.kill()
        await bench.node(gpus=1)
        await bench.claim("mine")
        await bench.reserve("mine", await bench.pod("p", claim="mine"))
        seen, bound_with = [await bench.api.get(CLAIMS, "mine", NS)], []

        async def way(scope: Any, receive: Any, send: Any) -> None:
            method, path = scope["method"], scope["path"]
            if method == "PUT" and path.endswith("/resourceclaims/mine") and seen:
                await bench.api.update_status(CLAIMS, {**seen.pop(), "status": {}})
            if path.endswith("/p/binding"):
                bound_with.append(await bench.allocation("mine"))
            await bench.faulty(scope, receive, send)

        bench.way = way
        await bench.start_scheduler()
        await bench.eventually_bound("p", seconds=5)
        assert not seen
        assert all(bound_with)

    play(scenario)
