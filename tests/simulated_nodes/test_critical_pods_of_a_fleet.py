"""Lesser pods of a simulated node go for a critical one that has no room there, and starts once they have ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fleet_stage import Stage

from haru.kube.meta import get_condition

Obj = dict[str, Any]
CRITICAL = 2_000_000_000
SLOW = {"simulated.haru.dev/stop-seconds": "7"}
GONE = "Preempted in order to admit critical pod"


async def pod(stage: Stage, name: str, cpu: str, annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return await stage.pod(name, node="cpu-0", annotations=annotations, containers=containers, **spec)


async def with_lesser_pods(stage: Stage) -> None:
    await pod(stage, "small", "8")
    await pod(stage, "large", "24", SLOW, terminationGracePeriodSeconds=20)
    for name in ("small", "large"):
        await stage.phase(name, "Running")


async def test_critical_pod_waits_until_those_that_go_for_it_have_ended() -> None:
    stage = Stage("cpu:1")
    async with stage.running() as fleet:
        await with_lesser_pods(stage)
        await pod(stage, "critical", "20", priority=CRITICAL)
        await stage.client.until(lambda: "Preempting" in stage.reasons("large"))
        assert ("large", "Preempting", GONE) in stage.recorder.events
        stage.clock.now += timedelta(seconds=6)
        fleet.pods.sync_node("cpu-0")
        await pod(stage, "later", "0")
        await stage.phase("later", "Running")
        phases = [(stage.stored(name) or {})["status"]["phase"] for name in ("large", "critical")]
        assert phases == ["Running", "Pending"]
    # Begun anew, the kubelet knows of no preemption: it ends the pod anew.
    async with stage.running() as fleet:
        await stage.client.until(lambda: stage.reasons("large").count("Preempting") == 2)
        stage.clock.now += timedelta(seconds=8)
        fleet.pods.sync_node("cpu-0")
        ended = (await stage.phase("large", "Failed"))["status"]
        await stage.phase("critical", "Running")
        assert (stage.stored("small") or {})["status"]["phase"] == "Running"
    assert (ended["reason"], ended["message"]) == ("Preempting", GONE)
    condition = get_condition({"status": ended}, "DisruptionTarget") or {}
    assert (condition["status"], condition["reason"]) == ("True", "TerminationByKubelet")
    assert condition["message"] == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert (get_condition({"status": ended}, "Ready") or {})["reason"] == "PodFailed"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


async def test_critical_pod_is_refused_where_nobody_can_make_room() -> None:
    stage = Stage("cpu:1")
    async with stage.running():
        await with_lesser_pods(stage)
        await pod(stage, "critical", "33", priority=CRITICAL)
        status = (await stage.phase("critical", "Failed"))["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"].startswith("Pod was rejected: Unexpected error while attempting to recover from admission")
    assert "Preempting" not in stage.reasons("large")
