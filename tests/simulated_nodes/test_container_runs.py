"""Containers of simulated pods start, end and restart by their scripts, in virtual time and without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from container_play import Play, container

from haru.simulated_nodes.pod_scripts import scripts_of


def starts(play: Play, seconds: Sequence[float]) -> list[int]:
    counts = []
    for moment in seconds:
        play.until(moment)
        counts.append(play.one()["restartCount"])
    return counts


def test_crash_loop_restarts_at_once_then_after_doubling_pauses_up_to_five_minutes() -> None:
    play = Play(container(script="sleep 1; exit 7"))
    # Runs of one second: restarts at 1, 12 (2 + 10), 33 (13 + 20), 74, 155, 316, 617 (317 + 300), 918.
    edges = (1, 12, 33, 74, 155, 316, 617, 918)
    assert starts(play, [edge - 0.5 for edge in edges]) == list(range(8))
    assert starts(play, [918]) == [8]
    play.until(920)
    crashed = play.one()
    message = "back-off 5m0s restarting failed container=c pod=p_n(u)"
    assert crashed["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    ended = crashed["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (7, "Error")
    assert play.told("BackOff") == ["Back-off restarting failed container c in pod p_n(u)"] * 8
    assert len(play.told("Started")) == 9
    assert play.pod["status"]["phase"] == "Running"
    assert play.condition("Ready") == ("False", "ContainersNotReady")


def test_pause_is_forgotten_after_a_run_of_more_than_ten_minutes() -> None:
    play = Play(container(script="sleep 601; exit 1"))
    play.until(601 * 3 + 0.5)
    assert play.one()["restartCount"] == 3 and not play.told("BackOff")


@pytest.mark.parametrize(
    ("script", "policy", "phase", "restarts"),
    [
        ("exit 0", "Never", "Succeeded", 0),
        ("exit 4", "Never", "Failed", 0),
        ("exit 0", "OnFailure", "Succeeded", 0),
        ("exit 4", "OnFailure", "Running", 1),
        ("true", "Always", "Running", 1),
    ],
)
def test_end_follows_restart_policy(script: str, policy: str, phase: str, restarts: int) -> None:
    play = Play(container(script=script), restartPolicy=policy)
    assert (play.pod["status"]["phase"], play.one()["restartCount"]) == (phase, restarts)
    if phase == "Succeeded":
        assert play.condition("Ready") == ("False", "PodCompleted")


def test_pod_lives_until_its_last_container_ends() -> None:
    play = Play(container("a", "sleep 2"), container("b", "sleep 5; exit 3"), restartPolicy="Never")
    assert play.until(3)["phase"] == "Running"
    assert play.one("a")["state"]["terminated"]["finishedAt"] == "2026-01-01T00:00:02Z"
    assert play.condition("ContainersReady") == ("False", "ContainersNotReady")
    assert play.until(5)["phase"] == "Failed"


def test_init_containers_run_in_turn_and_sidecars_beside_them() -> None:
    sidecar = container("proxy", restartPolicy="Always")
    play = Play(container(), initContainers=[container("one", "sleep 2"), sidecar, container("two", "sleep 3")])
    status = play.until(1)
    assert status["phase"] == "Pending"
    assert play.one("c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert play.condition("Initialized") == ("False", "ContainersNotInitialized")
    assert "running" in play.until(2)["initContainerStatuses"][1]["state"]
    assert play.until(5)["phase"] == "Running"
    assert play.condition("Initialized") == ("True", None)
    assert play.condition("Ready") == ("True", None)


def test_failing_init_container_waits_in_crash_loop_and_holds_the_pod_pending() -> None:
    play = Play(container(), initContainers=[container("one", "exit 2")])
    assert play.until(0)["phase"] == "Pending"
    assert play.one("one")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    never = Play(container(), initContainers=[container("one", "exit 2")], restartPolicy="Never")
    assert never.until(0)["phase"] == "Failed"


def test_image_of_unknown_registry_is_pulled_again_after_doubling_pauses() -> None:
    play = Play(container(image="registry.invalid/train:1"))
    first = play.one()["state"]["waiting"]
    assert first["reason"] == "ErrImagePull" and "lookup registry.invalid: no such host" in first["message"]
    play.until(2)
    waiting = play.one()["state"]["waiting"]
    assert waiting["reason"] == "ImagePullBackOff"
    assert waiting["message"].startswith('Back-off pulling image "registry.invalid/train:1": ErrImagePull: failed to')
    assert play.pod["status"]["phase"] == "Pending"
    play.until(69)
    assert len(play.told("Pulling")) == 3  # at 0, 10 and 30
    assert play.told("Failed")[1:4] == ["Error: ErrImagePull", "Error: ImagePullBackOff", play.told("Failed")[0]]
    play.pod["spec"]["containers"][0] |= {"image": "registry.example.com/train:1", "command": ["sleep", "9"]}
    play.until(71)
    assert "running" in play.one()["state"] and play.one()["restartCount"] == 0


def test_annotated_pull_failure_names_its_text() -> None:
    annotations = {"simulated.haru.dev/fail-image-pull": "unauthorized: authentication required"}
    play = Play(container(image="r.example.com/i:1"), annotations=annotations)
    assert play.one()["state"]["waiting"]["message"].endswith("unauthorized: authentication required")


def test_oom_kill_on_request_repeats_with_code_137() -> None:
    annotations = {"simulated.haru.dev/fail": "OOMKilled", "simulated.haru.dev/run-seconds": "5"}
    play = Play(container(), annotations=annotations)
    play.until(12)
    ended = play.one()["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"], play.one()["restartCount"]) == ("OOMKilled", 137, 1)


def test_program_that_does_not_exist_is_a_start_error() -> None:
    play = Play({"name": "c", "image": "i", "command": ["exit", "1"]})
    ended = play.one()["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"], ended["startedAt"]) == ("StartError", 128, "1970-01-01T00:00:00Z")
    assert play.told("Created") and not play.told("Started") and "executable file not found" in play.told("Failed")[0]


def test_running_pod_is_written_once() -> None:
    play = Play(container(script="sleep 100"), container("d"))
    play.until(99)
    assert play.writes == 1


def test_pod_without_commands_has_no_scripts() -> None:
    assert scripts_of({"metadata": {"name": "p"}, "spec": {"containers": [container()]}}) is None


def test_all_containers_start_again_once_a_rule_of_one_asks_for_it() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    asking = container("asks", "sleep 5; exit 42", restartPolicy="Never", restartPolicyRules=[rule])
    play = Play(asking, container("beside"), initContainers=[container("first", "sleep 3")], restartPolicy="Never")
    play.until(9)  # 3 + 5 s: the end that asks
    assert play.one("beside")["state"]["waiting"]["reason"] == "RestartingAllContainers"
    assert play.told("Killing") == ["killing"]
    assert "running" in play.one("first")["state"]
    status = play.until(12)
    for name in ("first", "asks", "beside"):
        one = play.one(name)
        assert one["restartCount"] == 1
        assert one["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
    assert status["phase"] == "Running"
    assert play.condition("Ready") == ("True", None)
    assert play.condition("AllContainersRestarting") == ("False", None)
    play.until(30)
    assert play.one("asks")["restartCount"] == 3
    assert not play.told("BackOff")


@pytest.mark.parametrize("asks", ["containers", "initContainers"])
def test_container_that_asks_once_that_all_start_again_finds_what_it_left(asks: str) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    script = "if [ -f /mnt/done ]; then sleep 10000; else touch /mnt/done; sleep 5; exit 42; fi"
    mounts = [{"name": "v", "mountPath": "/mnt"}]
    policy = "Always" if asks == "initContainers" else "Never"
    asking = container("asks", script, restartPolicy=policy, restartPolicyRules=[rule], volumeMounts=mounts)
    first, beside = container("first", "exit 0"), container("beside", "sleep 10000")
    init, main = [first, container("sidecar", "sleep 10000", restartPolicy="Always")], [beside]
    (init if asks == "initContainers" else main).append(asking)
    volumes = [{"name": "v", "emptyDir": {}}]
    play = Play(*main, initContainers=init, volumes=volumes, restartPolicy="Never")
    status = play.until(60)
    for name in ("first", "sidecar", "asks", "beside"):
        assert play.one(name)["restartCount"] == 1
    assert status["phase"] == "Running"
    assert play.condition("Ready") == ("True", None)


def test_init_container_that_a_rule_restarts_does_not_fail_the_pod() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    script = "echo x >> /data/f; [ $(wc -l /data/f | cut -d' ' -f1) = 3 ] || exit 42"
    mounts = [{"name": "v", "mountPath": "/data"}]
    first = container("first", script, restartPolicy="Never", restartPolicyRules=[rule], volumeMounts=mounts)
    volumes = [{"name": "v", "emptyDir": {}}]
    play = Play(container(script="sleep 5"), initContainers=[first], volumes=volumes, restartPolicy="Never")
    assert play.until(5)["phase"] == "Pending"
    assert play.one("first")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert play.until(60)["phase"] == "Succeeded"
    assert play.one("first")["restartCount"] == 2


def test_init_container_that_never_restarts_fails_the_pod() -> None:
    play = Play(container(), initContainers=[container("first", "exit 3", restartPolicy="Never")])
    assert play.until(1)["phase"] == "Failed"


def test_sidecars_end_in_their_time_once_the_others_have_ended() -> None:
    def sidecar(name: str, trap: str) -> dict[str, Any]:
        return container(name, f"trap '{trap}' TERM; sleep infinity & wait", restartPolicy="Always")

    init = [sidecar("one", "sleep 2; exit 0"), sidecar("two", "sleep 3; exit 5"), sidecar("three", "exit 0")]
    init.append(container("four", restartPolicy="Always"))
    play = Play(container(script="sleep 10"), initContainers=init, restartPolicy="Never")
    assert play.until(12)["phase"] == "Running"
    assert play.condition("Ready") == ("False", "ContainersNotReady")
    assert [set(play.one(name)["state"]) for name in ("two", "three")] == [{"running"}, {"terminated"}]
    assert play.until(14)["phase"] == "Running"
    assert play.until(15)["phase"] == "Succeeded"
    ends = {one["name"]: play.one(one["name"])["state"]["terminated"] for one in init}
    assert [(one["exitCode"], one["finishedAt"][-4:]) for one in ends.values()] == [
        (0, ":15Z"),
        (5, ":13Z"),
        (0, ":10Z"),
        (0, ":10Z"),
    ]
    assert play.told("Killing") == [f"Stopping container {name}" for name in ("four", "three", "two", "one")]


def test_sidecar_that_fails_at_once_holds_nothing_back() -> None:
    play = Play(container(script="sleep 100"), initContainers=[container("s", "exit 5", restartPolicy="Always")])
    play.until(1)
    assert "running" in play.one()["state"] and play.pod["status"]["phase"] == "Running"
    assert play.condition("Initialized") == ("True", None)


def test_init_container_finds_what_a_sidecar_before_it_has_written() -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    probe = {"exec": {"command": ["cat", "/tmp/s"]}, "periodSeconds": 1, "failureThreshold": 9}
    script = "sleep 3; touch /v/s /tmp/s; sleep infinity"
    init = [container("s", script, restartPolicy="Always", startupProbe=probe, **mounts)]
    init.append(container("i", "test -e /v/s", **mounts))
    volumes = [{"name": "v", "emptyDir": {}}]
    play = Play(container(script="test -e /v/s"), initContainers=init, volumes=volumes, restartPolicy="Never")
    play.pod["spec"]["containers"][0] |= mounts
    assert play.until(10)["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "beside", "init", "said"),
    [
        ("Always", False, False, "Container c failed liveness probe, will be restarted"),
        ("Never", True, False, "Container c failed liveness probe"),
        ("Never", False, False, "Stopping container c"),
        ("Always", False, True, "Init container c failed liveness probe"),
    ],
)
def test_killing_for_a_probe_is_told_as_kubelets_word_it(policy: str, beside: bool, init: bool, said: str) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    ill, well = container("c", livenessProbe=probe), container("d", "sleep 99")
    if init:
        play = Play(well, initContainers=[{**ill, "restartPolicy": "Always"}], restartPolicy=policy)
    else:
        play = Play(ill, *([well] if beside else []), restartPolicy=policy)
    play.until(5)
    assert play.told("Killing")[0] == said
    assert play.told("Unhealthy")[0] == "Liveness probe failed: "


def test_container_that_is_killed_for_its_probe_starts_again_though_it_ended_well() -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    play = Play(container(script="trap 'exit 0' TERM; sleep 99 & wait", livenessProbe=probe), restartPolicy="OnFailure")
    assert play.until(3)["phase"] == "Running"
    assert play.one()["restartCount"] == 1 and play.one()["lastState"]["terminated"]["exitCode"] == 0
    assert play.until(6)["phase"] == "Running"
    assert play.one()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    play.until(20)
    assert play.one()["restartCount"] == 2


def test_container_that_is_killed_for_its_probe_leaves_the_message_of_its_trap() -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    script = "trap 'echo saved > /dev/termination-log; exit 3' TERM; sleep infinity & wait"
    play = Play(container(script=script, livenessProbe=probe), restartPolicy="Never")
    play.until(5)
    ended = play.one()["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "saved\n")


def test_container_finds_what_all_runs_of_an_init_container_have_left() -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    init = [container("i", "echo >>/v/i; [ $(wc -l </v/i) = 2 ]", **mounts)]
    main = container("c", "exec sleep $(wc -l </v/i)", **mounts)
    play = Play(main, initContainers=init, volumes=[{"name": "v", "emptyDir": {}}], restartPolicy="OnFailure")
    assert play.one("i")["restartCount"] == 1 and play.until(1.5)["phase"] == "Running"
    assert play.until(2)["phase"] == "Succeeded"


def test_statuses_of_containers_are_told_by_their_names() -> None:
    play = Play(container("b", "sleep 9"), container("a"))
    assert [one["name"] for one in play.pod["status"]["containerStatuses"]] == ["a", "b"]
    writes = play.writes
    play.until(5)
    assert play.writes == writes


def test_container_that_is_replaced_ends_in_its_time() -> None:
    script = "trap 'sleep 5; exit 0' TERM; sleep infinity & wait"
    play = Play(container(script=script, readinessProbe={"initialDelaySeconds": 1}))
    play.until(10)
    play.pod["spec"]["containers"][0]["image"] = "j"
    assert set(play.until(14) and play.one()["state"]) == {"running"} and play.one()["restartCount"] == 0
    play.until(15)
    assert play.one()["restartCount"] == 1 and play.one()["lastState"]["terminated"]["exitCode"] == 0
    assert play.told("Killing") == ["Container c definition changed, will be restarted"]


def test_restarted_container_does_what_it_finds_left_by_its_runs_before() -> None:
    script = "echo x >> /data/f; n=$(wc -l /data/f | awk '{print $1}'); [ $n = 3 ] && sleep 100; exit $((n - 1))"
    mounts = [{"name": "v", "mountPath": "/data"}]
    play = Play(container(script=script, volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    second = play.one()
    assert (second["restartCount"], second["lastState"]["terminated"]["exitCode"]) == (1, 1)
    play.until(15)
    third = play.one()
    assert (third["restartCount"], third["ready"], set(third["state"])) == (2, True, {"running"})


def test_container_that_waits_for_its_restart_is_restarted_when_nothing_ends_it_any_more() -> None:
    play = Play(container(), annotations={"fail.simulated.haru.dev/c": "Error"})
    play.until(1)
    assert play.one()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    play.pod["metadata"]["annotations"] = {}
    play.until(30)
    assert set(play.one()["state"]) == {"running"}
