import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fleet_stage import Stage

from haru.kube.errors import StatusError
from haru.kube.meta import get_condition
from haru.simulated_nodes.claim_preparation import CLAIMS
from haru.simulated_nodes.claims import preparation_problem
from haru.simulated_nodes.fleet import FleetOptions
from haru.simulated_nodes.nodes import LEASES, NODES
from haru.simulated_nodes.pod_workers import PODS

Obj = dict[str, Any]


async def test_nodes_register_and_renew_leases() -> None:
    stage = Stage()
    async with stage.running():
        await stage.client.until(lambda: ("leases", "kube-node-lease", "cpu-0") in stage.client.objects)
        lease = await stage.client.get(LEASES, "cpu-0", "kube-node-lease")
        assert lease["spec"]["leaseDurationSeconds"] == 40 and lease["spec"]["holderIdentity"] == "cpu-0"
        assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
        stage.clock.now += timedelta(seconds=5)
        await stage.client.until(
            lambda: (
                stage.client.objects["leases", "kube-node-lease", "cpu-0"]["spec"]["renewTime"]
                == "2026-01-01T00:00:05.000000Z"
            )
        )
        node = await stage.client.get(NODES, "dgx-h100-0")
    assert node["status"]["capacity"]["cpu"] == "224"
    assert get_condition(node, "Ready") == {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_existing_nodes_are_adopted_and_completed() -> None:
    stage = Stage("cpu:1")
    stage.client.namespaces.discard("kube-node-lease")
    cordoned = {"metadata": {"name": "cpu-0", "labels": {"mine": "1"}}, "spec": {"unschedulable": True}, "status": {}}
    await stage.client.create(NODES, cordoned)
    async with stage.running():
        await stage.client.until(lambda: ("leases", "kube-node-lease", "cpu-0") in stage.client.objects)
    node = await stage.client.get(NODES, "cpu-0")
    assert node["spec"] == {"unschedulable": True}
    assert node["metadata"]["labels"]["mine"] == "1"
    assert node["metadata"]["labels"]["simulated.haru.dev/profile"] == "cpu"
    assert node["status"]["capacity"]["cpu"] == "32"
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 0


async def test_node_declares_the_features_of_its_gates_and_refuses_pods_that_need_others() -> None:
    stage = Stage("cpu:1")
    feature, rule = "RestartAllContainersOnContainerExits", {"action": "RestartAllContainers", "exitCodes": {}}
    containers = [{"name": "c", "image": "i", "restartPolicyRules": [rule]}]
    for declared, phase in (((feature,), "Running"), ((), "Failed")):
        stage.options = FleetOptions(features=declared)
        async with stage.running() as fleet:
            await fleet.ready.wait()
            node = await stage.client.get(NODES, "cpu-0")
            assert node["status"]["declaredFeatures"] == list(declared)
            await stage.pod(phase.lower(), node="cpu-0", containers=containers)
            pod = await stage.phase(phase.lower(), phase)
            assert pod["status"].get("reason") == (None if declared else "PodFeatureUnsupported")


async def test_pod_that_wants_its_groups_alone_runs() -> None:
    stage = Stage("cpu:1")
    async with stage.running():
        await stage.pod("p", node="cpu-0", securityContext={"supplementalGroupsPolicy": "Strict"})
        await stage.phase("p", "Running")


async def test_failed_registration_is_retried() -> None:
    stage = Stage("cpu:1")
    stage.client.fail("create", "nodes", ConnectionError("not yet"))
    async with stage.running():
        await stage.client.until(lambda: ("leases", "kube-node-lease", "cpu-0") in stage.client.objects)


async def test_pod_runs_until_deleted() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", initContainers=[{"name": "i", "image": "x"}, {"name": "s", "restartPolicy": "Always"}])
        pod = await stage.phase("p", "Running")
        status = pod["status"]
        assert status["startTime"] == "2026-01-01T00:00:00Z" and status["podIP"].startswith("10.")
        assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
            ["PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"], "True"
        )
        assert status["containerStatuses"][0]["ready"] and status["observedGeneration"] == 1
        assert [next(iter(s["state"])) for s in status["initContainerStatuses"]] == ["terminated", "running"]
        await stage.client.delete(PODS, "p", "default")
        await stage.client.until(lambda: stage.stored("p") is None)
    last = [obj for type_, plural, obj in stage.client.history if plural == "pods"][-1]
    assert last["status"]["phase"] == "Failed"
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


@pytest.mark.parametrize(
    ("annotations", "phase", "reason", "exit_code"),
    [
        ({"simulated.haru.dev/run-seconds": "0"}, "Succeeded", "Completed", 0),
        ({"simulated.haru.dev/fail": "0"}, "Failed", "Error", 1),
        ({"simulated.haru.dev/fail": "OOMKilled: out of memory"}, "Failed", "OOMKilled", 137),
        ({"simulated.haru.dev/fail": "Xid", "simulated.haru.dev/run-seconds": "0"}, "Failed", "Xid", 1),
        ({"simulated.haru.dev/fail": "0", "simulated.haru.dev/exit-code": "42"}, "Failed", "Error", 42),
    ],
)
async def test_pod_ends_as_annotated(annotations: dict[str, str], phase: str, reason: str, exit_code: int) -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", annotations=annotations, restartPolicy="Never")
        pod = await stage.phase("p", phase)
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == (reason, exit_code)
    assert (get_condition(pod, "Ready") or {})["status"] == "False"


async def test_active_deadline_fails_pod_with_any_restart_policy() -> None:
    stage = Stage()
    annotations = {"simulated.haru.dev/run-seconds": "100"}
    async with stage.running():
        await stage.pod("p", annotations=annotations, restartPolicy="Always", activeDeadlineSeconds=30)
        started = (await stage.phase("p", "Running"))["status"]
    stage.clock.now += timedelta(seconds=29)
    async with stage.running():
        await asyncio.sleep(0.1)
        assert (stage.stored("p") or {})["status"] == started
    stage.clock.now += timedelta(seconds=2)
    async with stage.running():
        status = (await stage.phase("p", "Failed"))["status"]
    assert (status["reason"], status["message"]) == (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    )
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert "DeadlineExceeded" in stage.reasons("p")


async def test_pod_whose_time_is_over_ends_as_its_trap_says() -> None:
    stage = Stage("cpu:1")
    script = "trap 'sleep 5; exit 3' TERM; sleep infinity & wait"
    one = {"name": "c", "image": "i", "command": ["sh", "-c", script]}
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=[one], activeDeadlineSeconds=30, terminationGracePeriodSeconds=9)
        await stage.phase("p", "Running")
        stage.clock.now += timedelta(seconds=31)
        await stage.client.patch(PODS, "p", {"metadata": {"labels": {"x": "1"}}}, "default")
        await stage.client.until(lambda: "Killing" in stage.reasons("p"))
        assert (stage.stored("p") or {})["status"]["phase"] == "Running"
        stage.clock.now += timedelta(seconds=5)
        await stage.client.patch(PODS, "p", {"metadata": {"labels": {"x": "2"}}}, "default")
        status = (await stage.phase("p", "Failed"))["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["reason"], ended["exitCode"]) == ("DeadlineExceeded", 3)
    assert (get_condition({"status": status}, "Ready") or {})["reason"] == "PodFailed"
    assert stage.reasons("p").count("DeadlineExceeded") == 1


@pytest.mark.parametrize("missing", ["image", "init"])
async def test_pod_whose_time_is_over_before_it_runs_fails(missing: str) -> None:
    stage = Stage("cpu:1")
    one = {"name": "c", "image": "webserver:404" if missing == "image" else "i"}
    init = [{"name": "i", "image": "i", "command": ["sleep", "infinity"]}] if missing == "init" else []
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=[one], initContainers=init, activeDeadlineSeconds=30)
        await stage.client.until(lambda: (stage.stored("p") or {})["status"].get("containerStatuses"))
        stage.clock.now += timedelta(seconds=31)
        await stage.client.patch(PODS, "p", {"metadata": {"labels": {"x": "1"}}}, "default")
        status = (await stage.phase("p", "Failed"))["status"]
    assert status["reason"] == "DeadlineExceeded" and "waiting" in status["containerStatuses"][0]["state"]
    if missing == "init":
        assert (get_condition({"status": status}, "Initialized") or {})["status"] == "False"
        assert ("p", "Killing", "Stopping container i") in stage.recorder.events


async def test_restart_of_fleet_does_not_rerun_containers() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", annotations={"simulated.haru.dev/run-seconds": "60"})
        started = (await stage.phase("p", "Running"))["status"]
    stage.clock.now += timedelta(seconds=30)
    async with stage.running():
        other = await stage.pod("q")
        q = await stage.phase("q", "Running")
        assert (stage.stored("p") or {})["status"] == started
        assert q["status"]["podIP"] != started["podIP"], other
    stage.clock.now += timedelta(seconds=31)
    async with stage.running():
        ended = await stage.phase("p", "Succeeded")
    assert ended["status"]["startTime"] == started["startTime"]
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["startedAt"], state["finishedAt"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:01Z")


async def test_invalid_annotation_is_reported_as_event() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", annotations={"simulated.haru.dev/run-seconds": "soon"})
        await stage.phase("p", "Running")
        await stage.client.until(lambda: "InvalidAnnotation" in stage.reasons("p"))


CLAIM_SPEC = [{"name": "gpu", "resourceClaimName": "claim"}]


async def test_claims_are_checked_and_prepared() -> None:
    stage = Stage()
    async with stage.running() as fleet:
        pod = await stage.pod("p", resourceClaims=CLAIM_SPEC)
        await stage.client.until(lambda: "FailedPrepareDynamicResources" in stage.reasons("p"))
        assert stage.recorder.events[-1][2].endswith('"claim" not found')
        claim = await stage.claim("claim")
        await stage.client.until(lambda: "is not allowed to use ResourceClaim" in stage.recorder.events[-1][2])
        await stage.client.delete(CLAIMS, "claim", "default")
        claim = await stage.claim("claim", pod)
        await stage.phase("p", "Running")
        [prepared] = fleet.prepared.on_node("dgx-h100-0")
        assert prepared.uid == claim["metadata"]["uid"] and prepared.pods == {pod["metadata"]["uid"]}
        assert [(d.device, d.request) for d in prepared.devices] == [("gpu-0", "gpu")]
        await stage.client.delete(PODS, "p", "default")
        await stage.client.until(lambda: stage.stored("p") is None)
        assert len(fleet.prepared) == 0


FAIL_PREPARATION = "simulated.haru.dev/fail-preparation"


@pytest.mark.parametrize("on", ["claim", "node"])
async def test_claim_is_not_prepared_as_long_as_an_annotation_says_so(on: str) -> None:
    stage = Stage()
    async with stage.running() as fleet:
        await stage.client.until(lambda: ("nodes", "", "dgx-h100-0") in stage.client.objects)
        failing = {FAIL_PREPARATION: "gpu-1=no such device,gpu-0=GPU has fallen off the bus"}
        if on == "node":
            await stage.client.patch(NODES, "dgx-h100-0", {"metadata": {"annotations": failing}})
        pod = await stage.pod("p", resourceClaims=CLAIM_SPEC)
        await stage.claim("claim", pod, annotations=failing if on == "claim" else {})
        said = (
            "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for "
            "ResourceClaim claim: gpu-0: GPU has fallen off the bus"
        )
        await stage.client.until(lambda: said in [message for _, _, message in stage.recorder.events])
        status = await stage.client.until(
            lambda: (p := stage.stored("p")) and "startTime" in p["status"] and p["status"]
        )
        assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert len(fleet.prepared) == 0
        mended = {"metadata": {"annotations": {FAIL_PREPARATION: None}}}
        kind, name = (NODES, "dgx-h100-0") if on == "node" else (CLAIMS, "claim")
        await stage.client.patch(kind, name, mended, *(["default"] if on == "claim" else []))
        await stage.phase("p", "Running")
        assert len(fleet.prepared) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("true", "the devices cannot be prepared"), ("false", ""), ("out of BAR, again", "out of BAR, again")],
)
def test_annotation_of_failing_preparation_is_a_message_or_names_devices(text: str, said: str) -> None:
    claim = {"metadata": {"name": "c", "annotations": {FAIL_PREPARATION: text}}}
    problem = preparation_problem(claim, "gpu-9=broken")
    assert problem.endswith(f"ResourceClaim c: {said}") if said else not problem


async def test_pod_that_was_created_with_its_node_counts_as_scheduled() -> None:
    stage = Stage("cpu:1")
    async with stage.running():
        one = {"containers": [{"name": "c", "image": "i"}], "nodeName": "cpu-0"}
        await stage.client.create(PODS, {"metadata": {"name": "p", "generation": 1}, "spec": one, "status": {}})
        pod = await stage.phase("p", "Running")
        told = get_condition(pod, "PodScheduled") or {}
        assert (told["status"], told["observedGeneration"]) == ("True", 1)
        await stage.client.delete(PODS, "p", "default")
        await stage.client.until(lambda: stage.stored("p") is None)


HEALTH = "simulated.haru.dev/device-health"


async def test_pod_tells_how_its_devices_are_as_the_annotation_of_its_node_says() -> None:
    def told() -> Any:
        (one,) = (stage.stored("p") or {})["status"]["containerStatuses"]
        return one.get("allocatedResourcesStatus")

    async def annotate(text: str | None) -> None:
        await stage.client.patch(NODES, "dgx-h100-0", {"metadata": {"annotations": {HEALTH: text}}})

    stage = Stage()
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    async with stage.running():
        pod = await stage.pod("p", resourceClaims=CLAIM_SPEC, containers=[container])
        await stage.claim("claim", pod)
        await stage.phase("p", "Running")
        assert told() is None
        resource = {"resourceID": "gpu.nvidia.com/dgx-h100-0/gpu-0"}
        for text, expected in (
            ("gpu-1=Unhealthy", {"health": "Healthy"}),
            ("gpu-0=Unhealthy:too hot,gpu-1=Unknown", {"health": "Unhealthy", "message": "too hot"}),
        ):
            await annotate(text)
            await stage.client.until(
                lambda e=expected: told() == [{"name": "claim:gpu", "resources": [{**resource, **e}]}]
            )
        await annotate("gpu-0=hot")
        await stage.client.until(lambda: "InvalidDeviceHealth" in stage.reasons("dgx-h100-0"))
        assert told()[0]["resources"][0]["health"] == "Unhealthy"
        await annotate(None)
        await stage.client.until(lambda: told() is None)


async def test_claim_is_prepared_once_for_all_its_pods() -> None:
    stage = Stage()
    async with stage.running() as fleet:
        first = await stage.pod("a", resourceClaims=CLAIM_SPEC, annotations={"simulated.haru.dev/run-seconds": "5"})
        second = await stage.pod("b", resourceClaims=CLAIM_SPEC)
        await stage.claim("claim", first, second)
        await stage.phase("a", "Running")
        await stage.phase("b", "Running")
        assert len(fleet.prepared) == 1 and len(fleet.prepared.on_node("dgx-h100-0")[0].pods) == 2
    async with stage.running() as fleet:
        await stage.client.until(
            lambda: len(fleet.prepared) == 1 and len(fleet.prepared.on_node("dgx-h100-0")[0].pods) == 2
        )
        await stage.client.delete(PODS, "b", "default")
        await stage.client.until(lambda: stage.stored("b") is None)
        assert fleet.prepared.on_node("dgx-h100-0")[0].pods == {first["metadata"]["uid"]}


async def test_generated_claim_must_be_owned_by_pod() -> None:
    stage = Stage()
    entry = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    async with stage.running():
        pod = await stage.pod("p", resourceClaims=entry)
        await stage.client.until(lambda: stage.reasons("p"))
        assert 'pod "default/p": ResourceClaim not created yet' in stage.recorder.events[-1][2]
        stranger = {"controller": True, "kind": "Pod", "name": "p", "uid": "other"}
        await stage.claim("p-gpu-x", pod, ownerReferences=[stranger])
        names = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
        await stage.client.patch(PODS, "p", names, "default")
        await stage.client.until(
            lambda: "was not created for Pod default/p (Pod is not owner)" in stage.recorder.events[-1][2]
        )
        mine = {"metadata": {"ownerReferences": [{**stranger, "uid": pod["metadata"]["uid"]}]}}
        await stage.client.patch(CLAIMS, "p-gpu-x", mine, "default")
        await stage.phase("p", "Running")


async def test_claim_reserved_for_pod_group_is_accepted() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", resourceClaims=CLAIM_SPEC, schedulingGroup={"podGroupName": "g"})
        claim = await stage.claim("claim")
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "ug"}
        await stage.client.patch(CLAIMS, "claim", {"status": {"reservedFor": [group]}}, "default")
        await stage.phase("p", "Running")
    assert claim


async def test_pod_without_enough_node_resources_is_rejected() -> None:
    stage = Stage()
    big = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "20"}}}]
    async with stage.running():
        await stage.pod("a", node="cpu-0", containers=big)
        await stage.phase("a", "Running")
        await stage.pod("b", node="cpu-0", containers=big)
        rejected = await stage.phase("b", "Failed")
    assert rejected["status"]["reason"] == "OutOfcpu"
    assert rejected["status"]["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 20000, used: 20000, capacity: 32000"
    )
    assert rejected["status"]["conditions"] == []


async def test_readiness_gate_delays_ready_condition() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", readinessGates=[{"conditionType": "example.com/ok"}])
        pod = await stage.phase("p", "Running")
        told = get_condition(pod, "Ready") or {}
        absent = 'corresponding condition of pod readiness gate "example.com/ok" does not exist.'
        assert (told["reason"], told["message"]) == ("ReadinessGatesNotReady", absent)
        refused = [*pod["status"]["conditions"], {"type": "example.com/ok", "status": "False"}]
        await stage.client.patch(PODS, "p", {"status": {"conditions": refused}}, "default")
        said = 'the status of pod readiness gate "example.com/ok" is not "True", but False'
        await stage.client.until(lambda: (get_condition(stage.stored("p") or {}, "Ready") or {})["message"] == said)
        conditions = [*pod["status"]["conditions"], {"type": "example.com/ok", "status": "True"}]
        await stage.client.patch(PODS, "p", {"status": {"conditions": conditions}}, "default")
        await stage.client.until(lambda: (get_condition(stage.stored("p") or {}, "Ready") or {})["status"] == "True")


async def test_ephemeral_container_starts_and_ends_with_pod() -> None:
    stage = Stage()
    async with stage.running():
        pod = await stage.pod("p", restartPolicy="Never")
        await stage.phase("p", "Running")
        spec = {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}
        await stage.client.patch(PODS, "p", {"spec": spec}, "default")

        def debugger() -> Obj:
            listed = (stage.stored("p") or pod)["status"].get("ephemeralContainerStatuses") or [{}]
            return listed[0]

        await stage.client.until(lambda: "running" in debugger().get("state", {}))
        deadline = {"metadata": {"annotations": {"simulated.haru.dev/run-seconds": "0"}}}
        await stage.client.patch(PODS, "p", deadline, "default")
        await stage.phase("p", "Succeeded")
        assert debugger()["state"]["terminated"]["exitCode"] == 0


async def test_finished_pod_with_finalizer_is_not_updated() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p")
        await stage.phase("p", "Running")
        await stage.client.patch(PODS, "p", {"metadata": {"finalizers": ["a/b"]}}, "default")
        await stage.client.delete(PODS, "p", "default")
        await stage.phase("p", "Failed")
        await stage.client.until(
            lambda: (stage.stored("p") or {})["metadata"].get("deletionGracePeriodSeconds") == 0
        )  # fmt: skip
        before = len(stage.client.writes)
        await stage.client.patch(PODS, "p", {"metadata": {"labels": {"x": "y"}}}, "default")
        await asyncio.sleep(0.1)
        assert [w for w in stage.client.writes[before + 1 :] if w[1] == "pods"] == []


async def test_transient_failures_are_retried_and_foreign_nodes_ignored() -> None:
    stage = Stage()
    stage.client.fail("patch", "pods", ConnectionError("gone"))
    stage.client.fail("patch", "pods", StatusError(500, "InternalError", "boom"))
    async with stage.running():
        await stage.pod("p")
        await stage.pod("elsewhere", node="real-node")
        await stage.phase("p", "Running")
        assert (stage.stored("elsewhere") or {})["status"]["phase"] == "Pending"


async def test_commands_of_containers_decide_how_pods_end() -> None:
    stage = Stage("cpu:1")
    failing = [{"name": "c", "image": "i", "command": ["sh", "-c", "sleep 5; exit 3"]}]
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=failing, restartPolicy="Never")
        await stage.phase("p", "Running")
        assert stage.stored("p")["status"]["podIP"].startswith("10.")  # type: ignore[index]
        stage.clock.now += timedelta(seconds=6)
        stage.fleet.pods.sync_node("cpu-0")  # type: ignore[union-attr]
        failed = await stage.phase("p", "Failed")
        ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["finishedAt"]) == (3, "2026-01-01T00:00:05Z")
    assert stage.reasons("p") == ["Pulled", "Created", "Started"]


async def test_pod_whose_image_cannot_be_pulled_stays_pending_until_its_image_changes() -> None:
    stage = Stage("cpu:1")
    unknown = [{"name": "c", "image": "registry.invalid/train:1"}]
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=unknown)
        pod = await stage.client.until(lambda: (p := stage.stored("p")) and p["status"].get("containerStatuses") and p)
        assert pod["status"]["phase"] == "Pending" and pod["status"]["startTime"]
        assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
        images = {"spec": {"containers": [{"name": "c", "image": "registry.example.com/train:1"}]}}
        await stage.client.patch(PODS, "p", images, "default", type="strategic")
        await stage.phase("p", "Running")
    assert "Pulling" in stage.reasons("p") and stage.reasons("p")[-1] == "Started"
