"""The status of a pod as kubelets write it: phases, conditions, containers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.node.podworker.attempts import next_attempt
from haru.node.podworker.observed import CREATED, EXITED, RUNNING, SeenContainer, SeenImage, SeenPod, SeenSandbox
from haru.node.podworker.plan import ProbeResults
from haru.node.status.container_status import StatusInputs
from haru.node.status.pod_status import pod_status, status_patch

Obj = dict[str, Any]
NOW = "2026-11-22T09:00:00Z"
SANDBOX = SeenSandbox("s0", ips=("10.0.0.1", "fd00::1"))
SIDE = {"name": "side", "restartPolicy": "Always"}


def pod(*containers: str | Obj, init: tuple[str | Obj, ...] = (), status: Obj | None = None, **spec: Any) -> Obj:
    def whole(one: str | Obj) -> Obj:
        return {"name": one, "image": "i"} if isinstance(one, str) else {"image": "i", **one}

    body: Obj = {"containers": [whole(one) for one in containers], **spec}
    if init:
        body["initContainers"] = [whole(one) for one in init]
    meta = {"name": "p", "namespace": "n", "uid": "u", "generation": 3}
    return {"metadata": meta, "spec": body, "status": status or {}}


def one(name: str, state: int = RUNNING, code: int = 0, attempt: int = 0, **more: Any) -> SeenContainer:
    times = {"started_at": 10**18, "finished_at": 10**18 + 10**9 if state == EXITED else 0}
    found = {
        "state": state,
        "exit_code": code,
        "attempt": attempt,
        "image": SeenImage(ref="sha256:1"),
        "sandbox": "s0",
        **times,
    }
    return SeenContainer(f"{name}-{attempt}", name, **{**found, **more})


def seen(*containers: SeenContainer, sandbox: SeenSandbox | None = SANDBOX) -> SeenPod:
    return SeenPod.of([sandbox] if sandbox is not None else [], containers)


def told(pod: Obj, seen: SeenPod, **known: Any) -> Obj:
    return pod_status(pod, seen, StatusInputs(host_ips=("192.0.2.1",), **known), NOW)


def conditions(status: Obj) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status["conditions"]}


def reason(status: Obj, kind: str) -> tuple[str, str]:
    found = next(entry for entry in status["conditions"] if entry["type"] == kind)
    return found.get("reason", ""), found.get("message", "")


NEVER, FAILING = {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}


@pytest.mark.parametrize(
    ("what", "pod", "seen", "over", "phase"),
    [
        ("nothing is there", pod("a"), seen(sandbox=None), False, "Pending"),
        ("a sandbox alone", pod("a"), seen(), False, "Pending"),
        ("made, not started", pod("a"), seen(one("a", CREATED)), False, "Pending"),
        ("it runs", pod("a"), seen(one("a")), False, "Running"),
        ("one of two has not begun", pod("a", "b"), seen(one("a")), False, "Pending"),
        ("one of two has ended", pod("a", "b", **NEVER), seen(one("a", EXITED), one("b")), False, "Running"),
        ("it ended and is to start again", pod("a"), seen(one("a", EXITED, 1)), False, "Running"),
        ("over, all well", pod("a", "b", **NEVER), seen(one("a", EXITED), one("b", EXITED)), True, "Succeeded"),
        ("over, one failed", pod("a", "b", **NEVER), seen(one("a", EXITED, 1), one("b", EXITED)), True, "Failed"),
        ("over, but it still runs", pod("a", **NEVER, status={"phase": "Running"}), seen(one("a")), True, "Running"),
        ("init runs", pod("a", init=("x",)), seen(one("x")), False, "Pending"),
        ("init failed, and again", pod("a", init=("x",)), seen(one("x", EXITED, 1)), False, "Pending"),
        ("init failed for good", pod("a", init=("x",), **NEVER), seen(one("x", EXITED, 1)), True, "Failed"),
        ("a sidecar alone", pod("a", init=(SIDE,)), seen(one("side")), False, "Pending"),
        ("beside what runs", pod("a", init=(SIDE,)), seen(one("side"), one("a")), False, "Running"),
        ("a sidecar fell", pod("a", init=(SIDE,)), seen(one("side", EXITED, 1), one("a")), False, "Running"),
        ("what has ended stays so", pod("a", status={"phase": "Failed"}), seen(), False, "Failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pod_phase_follows_container_states(what: str, pod: Obj, seen: SeenPod, over: bool, phase: str) -> None:
    assert told(pod, seen, is_over=over)["phase"] == phase


def test_running_pod_has_ips_and_container_states() -> None:
    status = told(pod("a"), seen(one("a")))
    assert status["podIP"] == "10.0.0.1"
    assert status["podIPs"] == [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
    assert status["hostIPs"] == [{"ip": "192.0.2.1"}]
    assert status["observedGeneration"] == 3
    assert set(conditions(status).values()) == {"True"}
    entry = status["containerStatuses"][0]
    assert entry["containerID"] == "containerd://a-0"
    assert entry["imageID"] == "sha256:1"
    assert entry["state"] == {"running": {"startedAt": "2001-09-09T01:46:40Z"}}
    assert (entry["ready"], entry["started"], entry["restartCount"]) == (True, True, 0)


def test_host_network_pod_has_node_ip() -> None:
    status = told(pod("a", hostNetwork=True), seen(one("a"), sandbox=SeenSandbox("s0", network=2)))
    assert status["podIPs"] == [{"ip": "192.0.2.1"}]
    assert conditions(status)["PodReadyToStartContainers"] == "True"


def test_unready_containers_are_named_in_conditions() -> None:
    probed = {"name": "a", "readinessProbe": {"exec": {}}}
    status = told(pod(probed, "b"), seen(one("a"), one("b")), probed={"a-0": ProbeResults(readiness=None)})
    assert conditions(status)["Ready"] == conditions(status)["ContainersReady"] == "False"
    assert reason(status, "Ready") == ("ContainersNotReady", "containers with unready status: [a]")
    status = told(pod(probed), seen(one("a")), probed={"a-0": ProbeResults(readiness=True)})
    assert conditions(status)["Ready"] == "True"


def test_unready_containers_are_named_in_the_order_of_the_spec() -> None:
    status = told(pod("b", "a"), seen())
    assert [found["name"] for found in status["containerStatuses"]] == ["a", "b"]
    assert reason(status, "Ready") == ("ContainersNotReady", "containers with unready status: [b a]")


def test_readiness_gate_delays_ready_condition() -> None:
    gated = pod("a", readinessGates=[{"conditionType": "x/y"}])
    status = told(gated, seen(one("a")))
    assert conditions(status)["ContainersReady"] == "True"
    message = 'corresponding condition of pod readiness gate "x/y" does not exist.'
    assert reason(status, "Ready") == ("ReadinessGatesNotReady", message)
    gated["status"] = {"conditions": [{"type": "x/y", "status": "True"}]}
    assert conditions(told(gated, seen(one("a"))))["Ready"] == "True"


def test_container_is_ready_only_after_startup_probe() -> None:
    slow = pod({"name": "a", "startupProbe": {"exec": {}}})
    entry = told(slow, seen(one("a")))["containerStatuses"][0]
    assert (entry["started"], entry["ready"]) == (False, False)
    entry = told(slow, seen(one("a")), probed={"a-0": ProbeResults(startup=True)})["containerStatuses"][0]
    assert (entry["started"], entry["ready"]) == (True, True)


def test_init_container_statuses_and_conditions() -> None:
    status = told(pod("a", init=("x", SIDE)), seen(one("x", EXITED), one("side")))
    first, side = status["initContainerStatuses"]
    assert (first["ready"], first["started"]) == (True, False)
    assert (side["ready"], side["started"]) == (True, True)
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(status)["Initialized"] == "True"
    status = told(pod("a", init=("x", "y")), seen(one("x", EXITED), one("y")))
    assert [entry["started"] for entry in status["initContainerStatuses"]] == [False, True]
    assert reason(status, "Initialized") == ("ContainersNotInitialized", "containers with incomplete status: [y]")


def test_containers_are_told_in_the_order_of_their_names_and_init_containers_in_that_of_the_spec() -> None:
    status = told(pod("b", "a", init=("y", "x")), seen())
    assert [entry["name"] for entry in status["containerStatuses"]] == ["a", "b"]
    assert [entry["name"] for entry in status["initContainerStatuses"]] == ["y", "x"]


def test_ephemeral_container_has_status_of_its_own_and_no_part_in_phase() -> None:
    debugged = pod("a", **NEVER, ephemeralContainers=[{"name": "debug", "image": "i"}])
    waits = told(debugged, seen(one("a")), reasons={"debug": ("ErrImagePull", "no such image")})
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    assert waits["ephemeralContainerStatuses"][0]["state"] == {"waiting": waiting}
    failed = told(debugged, seen(one("a"), one("debug", EXITED, 3)))
    (status,) = failed["ephemeralContainerStatuses"]
    assert (status["name"], status["state"]["terminated"]["exitCode"]) == ("debug", 3)
    assert status["ready"] is False and "started" not in status
    assert failed["phase"] == "Running" and conditions(failed)["Ready"] == "True"


def test_container_in_backoff_reports_last_termination() -> None:
    crashed = {"a": ("CrashLoopBackOff", "back-off 10s")}
    history = seen(one("a", EXITED, 3, attempt=2, reason="Error"), one("a", EXITED, 1, attempt=1))
    entry = told(pod("a"), history, reasons=crashed)["containerStatuses"][0]
    assert entry["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    assert entry["restartCount"] == 2
    entry = told(pod("a"), seen(one("a", attempt=3), one("a", EXITED, 3, attempt=2)))["containerStatuses"][0]
    assert "running" in entry["state"]
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    # Who is not started again does not wait.
    entry = told(pod("a", **NEVER), seen(one("a", EXITED, 3)), reasons=crashed)["containerStatuses"][0]
    assert "terminated" in entry["state"]


def test_container_that_the_runtime_could_not_start_has_ended_and_began_in_1970() -> None:
    broken = one("a", EXITED, 128, reason="StartError", message="context canceled", started_at=0)
    status = told(pod("a", **NEVER), seen(broken), is_over=True)
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"], ended["startedAt"]) == ("StartError", 128, "1970-01-01T00:00:00Z")
    assert status["phase"] == "Failed"


def test_vanished_container_is_reported_as_terminated() -> None:
    before = {"name": "a", "state": {"running": {"startedAt": NOW}}, "restartCount": 4, "containerID": "containerd://z"}
    lost = pod("a", status={"phase": "Running", "containerStatuses": [before]})
    entry = told(lost, seen())["containerStatuses"][0]
    assert entry["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert entry["lastState"]["terminated"]["exitCode"] == 137
    entry = told(lost, seen(), is_over=True)["containerStatuses"][0]
    assert entry["state"]["terminated"]["exitCode"] == 137


def test_nothing_but_its_failure_is_told_of_a_rejected_pod() -> None:
    failure = ("OutOfcpu", "Pod was rejected: no room")
    bound = pod("a", status={"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "x/y"}]})
    status = told(bound, seen(sandbox=None), is_over=True, is_rejected=True, failure=failure)
    assert status.keys() == {"phase", "reason", "message", "startTime", "observedGeneration"}
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", *failure)
    patch = status_patch(bound["status"], status)
    assert patch is not None and patch["conditions"] == [{"$patch": "delete", "type": "PodScheduled"}]


def test_pod_past_its_deadline_has_its_reason_with_its_phase() -> None:
    late = {"is_over": True, "failure": ("DeadlineExceeded", "too long")}
    running = pod("a", status={"phase": "Running"})
    assert "reason" not in told(running, seen(one("a")), **late)
    assert told(running, seen(one("a", EXITED, 137)), **late)["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("what", "pod", "found", "ended"),
    [
        ("a container that waits", pod("a", "b"), (one("a", EXITED, 1),), {"b"}),
        ("an init container that waits", pod("a", init=("x", "y")), (), {"x"}),
        ("the second init container waits", pod("a", init=("x", "y")), (one("x", EXITED, 1),), set()),
        ("all init containers are through", pod("a", init=("x",)), (one("x", EXITED),), {"a"}),
        ("a sidecar has begun, and went", pod("a", init=(SIDE,)), (one("side", EXITED),), set()),
    ],
)
def test_container_whose_turn_had_come_has_ended_with_its_pod(
    what: str, pod: Obj, found: tuple[SeenContainer, ...], ended: set[str]
) -> None:
    status = told(pod, seen(*found), is_over=True, failure=("DeadlineExceeded", "too long"))
    told_of = [*status["containerStatuses"], *status.get("initContainerStatuses", ())]
    lost = [one for one in told_of if (one["state"].get("terminated") or {}).get("reason") == "ContainerStatusUnknown"]
    assert {one["name"] for one in lost} == ended, what
    assert all(one["state"]["terminated"]["exitCode"] == 137 for one in lost)


def test_pod_says_why_it_failed_when_nothing_of_it_runs_any_more() -> None:
    evicted = ("Evicted", "too much")
    ending = told(pod("a", status={"phase": "Running"}), seen(one("a")), is_over=True, failure=evicted)
    assert (ending["phase"], ending.get("reason")) == ("Running", None)
    over = told(pod("a", status=ending), seen(one("a", EXITED, 137)), is_over=True, failure=evicted)
    assert (over["phase"], over["reason"], over["message"]) == ("Failed", *evicted)


def test_status_says_whether_a_mount_is_read_only_with_what_is_below_it() -> None:
    mounts = [
        {"name": "w", "mountPath": "/w"},
        {"name": "r", "mountPath": "/r", "readOnly": True},
        {"name": "d", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": "IfPossible"},
    ]
    made = pod({"name": "a", "volumeMounts": mounts})
    for has, deep in ((False, "Disabled"), (True, "Enabled")):
        (status,) = told(made, seen(one("a")), recursive_read_only=has)["containerStatuses"]
        found = [mount.get("recursiveReadOnly") for mount in status["volumeMounts"]]
        assert found == [None, "Disabled", deep]


def test_condition_transition_times_are_kept() -> None:
    first = told(pod("a"), seen())
    later = pod_status(pod("a", status=first), seen(one("a")), StatusInputs(), "2026-11-22T10:00:00Z")
    times = {entry["type"]: entry["lastTransitionTime"] for entry in later["conditions"]}
    assert times["Initialized"] == NOW
    assert times["Ready"] == "2026-11-22T10:00:00Z"


def test_status_patch_has_only_changed_fields() -> None:
    before = told(pod("a"), seen())
    foreign = {"type": "x/y", "status": "True"}
    before["conditions"].append(foreign)
    after = told(pod("a", status=before), seen(one("a")))
    patch = status_patch(before, after)
    assert patch is not None
    assert patch["phase"] == "Running"
    assert "hostIP" not in patch
    changed = {entry["type"]: entry for entry in patch["conditions"]}
    assert changed.keys() == {"Ready", "ContainersReady"}
    assert changed["Ready"]["reason"] is None
    assert status_patch({**after, "conditions": [*after["conditions"], foreign]}, after) is None


RULED = {
    "name": "a",
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
}


def test_last_words_of_all_containers_together_are_in_bounds() -> None:
    said = one("a", EXITED, code=1, message="é" * 3000)
    last = one("b", EXITED, attempt=0, message="x" * 5000), one("b", attempt=1)
    words = [status["message"] for status in _ends(told(pod("a", "b", init=("i",)), seen(said, *last)))]
    assert words == ["é" * 2048, "x" * 4096]
    assert _ends(told(pod("a", "b"), seen(said, *last)))[0]["message"] == "é" * 3000


def _ends(status: Obj) -> list[Obj]:
    states = [state for one in status["containerStatuses"] for state in (one["state"], one["lastState"])]
    return [state["terminated"] for state in states if "terminated" in state]


def test_restart_of_all_containers_is_told_from_its_cause_to_the_next_starts() -> None:
    def restarting(status: Obj | None = None) -> Obj:
        return pod(RULED, "b", init=("x",), status=status, **NEVER)

    began = seen(one("x", EXITED), one("a"), one("b"))
    status = told(restarting(), began)
    assert conditions(status)["AllContainersRestarting"] == "False"
    status = told(restarting(status), seen(one("x", EXITED), one("a", EXITED, 42), one("b")))
    assert reason(status, "AllContainersRestarting")[0] == "RestartAllContainersStarted"
    assert status["phase"] == "Running"

    status = told(restarting(status), seen())
    everything = [*status["initContainerStatuses"], *status["containerStatuses"]]
    assert {entry["state"]["waiting"]["reason"] for entry in everything} == {"RestartingAllContainers"}
    assert {entry["restartCount"] for entry in everything} == {1} and not any(entry["ready"] for entry in everything)
    assert conditions(status)["AllContainersRestarting"] == "False" and conditions(status)["Initialized"] == "True"
    assert status["phase"] == "Running"
    assert next_attempt(restarting(status), "b", seen()) == 1

    status = told(restarting(status), seen(one("x", attempt=1)))
    assert status["phase"] == "Pending" and conditions(status)["Initialized"] == "True"
    assert status["containerStatuses"][1]["state"]["waiting"]["reason"] == "PodInitializing"
    status = told(restarting(status), seen(*(one(name, EXITED, attempt=1) for name in "xab")), is_over=True)
    assert status["phase"] == "Succeeded"
    assert reason(status, "AllContainersRestarting") == ("PodCompleted", "")
    everything = [*status["initContainerStatuses"], *status["containerStatuses"]]
    assert {entry["lastState"]["terminated"]["reason"] for entry in everything} == {"RestartingAllContainers"}


def test_container_has_its_user_after_its_end() -> None:
    user = {"uid": 1, "gid": 2, "supplementalGroups": [2]}
    for state in (RUNNING, EXITED):
        assert told(pod("a"), seen(one("a", state, user=user)))["containerStatuses"][0]["user"] == {"linux": user}


def test_init_container_that_a_rule_starts_again_does_not_fail_its_pod() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    again = {"name": "x", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert told(pod("a", init=(again,), **NEVER), seen(one("x", EXITED, 42)))["phase"] == "Pending"
    assert told(pod("a", init=(again,), **NEVER), seen(one("x", EXITED, 41)))["phase"] == "Failed"


def test_end_of_a_start_that_the_runtime_has_removed_stays_in_the_status() -> None:
    status = told(pod("a"), seen(one("a", EXITED, 3)))
    status = told(pod("a", status=status), seen(one("a", attempt=1)))
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    status = told(pod("a", status=status), seen(one("a", attempt=1)))
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3


STATES = st.one_of(
    st.none(),
    st.builds(one, st.just("?"), st.sampled_from([CREATED, RUNNING, EXITED]), st.sampled_from([0, 1])),
)


@given(STATES, STATES, STATES, st.sampled_from(["Always", "OnFailure", "Never"]), st.booleans())
def test_random_statuses_are_consistent(
    x: SeenContainer | None, a: SeenContainer | None, b: SeenContainer | None, policy: str, over: bool
) -> None:
    from dataclasses import replace

    found = [replace(c, name=name, id=f"{name}-0") for name, c in (("x", x), ("a", a), ("b", b)) if c is not None]
    before = pod("a", "b", init=("x",), restartPolicy=policy, status={"phase": "Running"})
    status = told(before, seen(*found), is_over=over)
    if status["phase"] in ("Succeeded", "Failed"):
        init_failed = policy == "Never" and x is not None and x.state == EXITED and x.exit_code != 0
        assert init_failed or (over and not any(c.runs for c in found))
        assert conditions(status)["Ready"] == "False"
    if conditions(status)["Ready"] == "True":
        assert all(entry["ready"] for entry in status["containerStatuses"])
        assert status["phase"] == "Running"
    for entry in (*status["containerStatuses"], *status["initContainerStatuses"]):
        assert len(entry["state"]) == 1
        assert not entry["ready"] or entry["state"].keys() & {"running", "terminated"}
    # Told again, nothing changes.
    again = told({**before, "status": {**status}}, seen(*found), is_over=over)
    assert status_patch(status, again) is None


def test_resize_condition_is_reported_and_removed_once_over() -> None:
    waits = told(pod("a"), seen(one("a")), resizes=[("PodResizePending", "Deferred", "no room")])
    assert conditions(waits)["PodResizePending"] == "True"
    assert reason(waits, "PodResizePending") == ("Deferred", "no room")
    patch = status_patch(waits, told(pod("a", status=waits), seen(one("a"))))
    assert patch == {"conditions": [{"$patch": "delete", "type": "PodResizePending"}]}


@pytest.mark.parametrize("policy", [NEVER, FAILING])
def test_container_that_ended_well_when_it_was_killed_to_start_again_waits(policy: Obj) -> None:
    of, found = pod("a", **policy), seen(one("a", EXITED))
    assert "terminated" in told(of, found)["containerStatuses"][0]["state"]
    status = told(of, found, replaced={"a-0"})
    (a,) = status["containerStatuses"]
    assert (status["phase"], a["state"]) == ("Running", {"waiting": {"reason": "ContainerCreating"}})
    assert a["lastState"]["terminated"]["exitCode"] == 0
