"""Containers of simulated pods do what their annotations and probes say, in virtual time and without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from container_play import Play, container

from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.executed import Executed, concerns_node, executed_in, with_executed
from haru.kube.simulated_containers.files import PodSources
from haru.kube.simulated_containers.shell_output import Change
from haru.simulated_nodes.pod_scripts import scripts_of

RUN = "run-seconds.simulated.haru.dev/"


def test_annotation_of_one_container_ends_it_and_the_restart_policy_decides_what_follows() -> None:
    play = Play(container("a"), container("b"), annotations={f"{RUN}a": "5"}, restartPolicy="OnFailure")
    assert play.until(6)["phase"] == "Running"
    assert play.one("a")["state"]["terminated"]["reason"] == "Completed"
    assert "running" in play.one("b")["state"]
    restarted = Play(container("a"), annotations={f"{RUN}a": "5"})
    restarted.until(6)
    assert restarted.one("a")["restartCount"] == 1


@pytest.mark.parametrize(
    ("annotations", "code", "reason", "at"),
    [
        ({f"{RUN}c": "3", "exit-code.simulated.haru.dev/c": "7"}, 7, "Error", 3),
        ({f"{RUN}c": "3", "signal.simulated.haru.dev/c": "SIGKILL"}, 137, "Error", 3),
        ({"signal.simulated.haru.dev/c": "15"}, 143, "Error", 0),
        ({"fail.simulated.haru.dev/c": "4"}, 1, "Error", 4),
        ({f"{RUN}c": "2", "fail.simulated.haru.dev/c": "OOMKilled"}, 137, "OOMKilled", 2),
        (
            {f"{RUN}c": "2", "fail.simulated.haru.dev/c": "Evil: why", "exit-code.simulated.haru.dev/c": "9"},
            9,
            "Evil",
            2,
        ),
    ],
)
def test_annotated_container_ends_with_code_and_reason(
    annotations: dict[str, str], code: int, reason: str, at: int
) -> None:
    play = Play(container(), annotations=annotations, restartPolicy="Never")
    play.until(at)
    ended = play.one()["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason)
    assert ended["finishedAt"] == f"2026-01-01T00:00:0{at}Z"
    assert play.pod["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("run-seconds.simulated.haru.dev/c", "soon"),
        ("exit-code.simulated.haru.dev/c", "256"),
        ("signal.simulated.haru.dev/c", "SIGNONE"),
        ("simulated.haru.dev/signal", "99"),
        ("simulated.haru.dev/readiness-probe", "perhaps"),
    ],
)
def test_malformed_annotation_is_an_error_that_names_it(annotation: str, text: str) -> None:
    pod = {
        "metadata": {"name": "p", "annotations": {annotation: text}},
        "spec": {"containers": [container(readinessProbe={"periodSeconds": 10})]},
    }
    with pytest.raises(ValueError, match=annotation.split(".")[0] if "dev/c" in annotation else annotation[19:]):
        scripts_of(pod)


@pytest.mark.parametrize(
    ("more", "annotations", "message"),
    [
        ({}, {"simulated.haru.dev/termination-message": "lost rank 3"}, "lost rank 3"),
        ({"script": "echo a; echo b; exit 2", "terminationMessagePolicy": "FallbackToLogsOnError"}, {}, "a\nb\n"),
        ({"script": "echo a; exit 2"}, {}, None),
        ({"script": "echo a; exit 0", "terminationMessagePolicy": "FallbackToLogsOnError"}, {}, None),
        ({"script": "echo why > /dev/termination-log; exit 2"}, {}, "why\n"),
        ({"script": "echo why > /out; exit 2", "terminationMessagePath": "/out"}, {}, "why\n"),
        ({"script": "echo why > /elsewhere; exit 2"}, {}, None),
    ],
)
def test_termination_message_comes_from_annotation_file_or_log(
    more: dict[str, Any], annotations: dict[str, str], message: str | None
) -> None:
    play = Play(container(**{"script": "exit 1", **more}), annotations=annotations, restartPolicy="Never")
    assert play.one()["state"]["terminated"].get("message") == message


def test_readiness_waits_for_its_delay_and_its_successes_in_a_row() -> None:
    probe = {"initialDelaySeconds": 30, "periodSeconds": 5, "successThreshold": 3}
    play = Play(container(readinessProbe=probe))
    play.until(39)
    assert (play.one()["started"], play.one()["ready"]) == (True, False)
    assert play.condition("Ready") == ("False", "ContainersNotReady")
    play.until(40)
    assert play.one()["ready"] and play.condition("Ready") == ("True", None)
    assert play.writes == 2


def test_readiness_follows_the_course_of_its_annotation() -> None:
    annotations = {"readiness-probe.simulated.haru.dev/c": "fail: connection refused; @12 ok; @31 fail"}
    play = Play(container(readinessProbe={"periodSeconds": 10}), annotations=annotations)
    assert not play.one()["ready"]
    play.until(19.5)
    assert not play.one()["ready"]  # asked at 0, 10, 20
    play.until(20)
    assert play.one()["ready"]
    play.until(59.5)
    assert play.one()["ready"]  # failed at 40 and 50, three failures are needed
    play.until(60)
    assert not play.one()["ready"] and play.one()["restartCount"] == 0
    assert play.told("Unhealthy")[0] == "Readiness probe failed: connection refused"


def test_failing_liveness_probe_restarts_the_container() -> None:
    annotations = {"simulated.haru.dev/liveness-probe": "ok; @10 fail"}
    play = Play(container(livenessProbe={"periodSeconds": 5, "failureThreshold": 2}), annotations=annotations)
    assert starts_until(play, 14.5) == 0
    assert starts_until(play, 15) == 1  # failed at 10 and 15
    assert play.one()["lastState"]["terminated"]["exitCode"] == 143
    assert play.told("Killing") == ["Container c failed liveness probe, will be restarted"]
    assert play.told("Unhealthy") == ["Liveness probe failed: simulated failure"] * 2
    assert starts_until(play, 30) == 1  # the second restart waits
    assert play.one()["state"]["waiting"]["reason"] == "CrashLoopBackOff"


def starts_until(play: Play, seconds: float) -> int:
    play.until(seconds)
    return int(play.one()["restartCount"])


def test_slow_container_is_killed_at_the_end_of_the_grace_period_of_its_probe() -> None:
    annotations = {"simulated.haru.dev/liveness-probe": "fail", "simulated.haru.dev/stop-seconds": "60"}
    probe = {"periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 5}
    play = Play(container(livenessProbe=probe), annotations=annotations, restartPolicy="Never")
    assert "running" in play.one()["state"]
    play.until(5)
    assert play.one()["state"]["terminated"]["exitCode"] == 137


def test_startup_probe_holds_back_the_others_and_kills_who_never_starts() -> None:
    startup = {"periodSeconds": 10, "failureThreshold": 3}
    annotations = {"simulated.haru.dev/startup-probe": "fail; @15 ok"}
    play = Play(container(startupProbe=startup, readinessProbe={}), annotations=annotations)
    play.until(19.5)
    assert (play.one()["started"], play.one()["ready"]) == (False, False)
    play.until(20)
    assert (play.one()["started"], play.one()["ready"]) == (True, True)
    never = Play(container(startupProbe=startup), annotations={"simulated.haru.dev/startup-probe": "fail"})
    never.until(20)
    assert never.one()["restartCount"] == 1
    assert never.told("Killing") == ["Container c failed startup probe, will be restarted"]


def test_probe_that_runs_false_fails() -> None:
    play = Play(container(readinessProbe={"exec": {"command": ["/bin/false"]}}))
    assert play.until(100)["phase"] == "Running" and not play.one()["ready"]
    assert play.told("Unhealthy")[0] == "Readiness probe failed: "


def test_sidecar_holds_back_what_comes_after_it_until_it_has_started() -> None:
    sidecar = container("proxy", restartPolicy="Always", startupProbe={"initialDelaySeconds": 4})
    play = Play(container(), initContainers=[sidecar])
    assert play.until(3)["phase"] == "Pending"
    assert play.until(4)["phase"] == "Running"


def test_sidecar_that_restarts_holds_nothing_back() -> None:
    sidecar = container("proxy", "sleep 2; exit 1", restartPolicy="Always")
    play = Play(container(script="sleep 8; exit 0"), initContainers=[sidecar], restartPolicy="Never")
    assert play.until(7)["phase"] == "Running"
    assert play.condition("ContainersReady") == ("False", "ContainersNotReady")
    assert play.until(8)["phase"] == "Succeeded"


def test_container_whose_image_changes_is_restarted_with_the_new_one() -> None:
    play = Play(container(readinessProbe={"initialDelaySeconds": 1}), restartPolicy="Never")
    play.until(10)
    first = play.one()["containerID"]
    play.pod["spec"]["containers"][0]["image"] = "j"
    play.until(11)
    assert (play.one()["image"], play.one()["restartCount"]) == ("j", 1)
    assert play.one()["containerID"] != first == play.one()["lastState"]["terminated"]["containerID"]
    assert play.told("Killing") == ["Container c definition changed, will be restarted"]


def test_container_whose_new_image_is_missing_keeps_its_last_end() -> None:
    play = Play(container(readinessProbe={"initialDelaySeconds": 1}))
    play.pod["spec"]["containers"][0]["image"] = "webserver:404"
    play.until(0.5)
    assert play.one()["state"]["waiting"]["reason"] == "ErrImagePull"
    assert play.one()["lastState"]["terminated"]["exitCode"] == 143
    assert play.pod["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    "image",
    [
        "k8s.gcr.io/invalid-image",
        "localhost/image-that-doesnt-exist",
        "webserver:404",
        "foo:non-existent",
        "invalid.registry.k8s.io/invalid/alpine:3.1",
    ],
)
def test_image_that_names_itself_missing_is_not_pulled(image: str) -> None:
    assert Play(container(image=image)).one()["state"]["waiting"]["reason"] == "ErrImagePull"


def test_missing_image_is_never_pulled_if_its_policy_says_so() -> None:
    play = Play(container(image="a:404", imagePullPolicy="Never"))
    waiting = play.one()["state"]["waiting"]
    assert waiting == {
        "reason": "ErrImageNeverPull",
        "message": 'Container image "a:404" is not present with pull policy of Never',
    }
    assert play.told("ErrImageNeverPull") == [waiting["message"]]


def test_malformed_image_is_told_as_such() -> None:
    play = Play(container(image="Not An Image"))
    assert play.one()["state"]["waiting"]["reason"] == "InvalidImageName"
    assert play.told("InspectFailed")


@pytest.mark.parametrize("image", ["a", "a:1", "r.example.com:5000/a/b_c:1.2@sha256:" + "a" * 64, "localhost/a"])
def test_other_image_is_there(image: str) -> None:
    assert scripts_of({"metadata": {"name": "p"}, "spec": {"containers": [container(image=image)]}}) is None


def test_ephemeral_container_runs_its_command_once_and_ends_with_the_pod() -> None:
    debugger = container("debug", "echo hi; sleep 2; exit 3")
    waits = container("waits")
    play = Play(container(script="sleep 9"), ephemeralContainers=[debugger, waits], restartPolicy="Never")
    assert "running" in play.one("debug")["state"] and not play.one("debug")["ready"]
    assert "started" not in play.one("debug")
    play.until(5)
    assert (play.one("debug")["state"]["terminated"]["exitCode"], play.one("debug")["restartCount"]) == (3, 0)
    assert play.until(9)["phase"] == "Succeeded"
    assert "terminated" in play.one("waits")["state"]


def test_new_image_ends_the_pause_of_a_crash_loop() -> None:
    play = Play(container(script="sleep 1; exit 1"))
    play.until(30)
    assert play.one()["state"]["waiting"]["reason"] == "CrashLoopBackOff" and play.one()["restartCount"] == 2
    play.pod["spec"]["containers"][0]["image"] = "j"
    play.until(30)
    assert "running" in play.one()["state"] and play.one()["image"] == "j"
    play.until(31)
    assert play.one()["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container")


def test_probe_sees_the_files_that_the_container_has_written_by_then() -> None:
    probe = {"exec": {"command": ["cat", "/tmp/health"]}, "periodSeconds": 5, "failureThreshold": 1}
    script = "echo ok > /tmp/health; sleep 10; rm -rf /tmp/health; sleep 600"
    play = Play(container(script=script, livenessProbe=probe), terminationGracePeriodSeconds=0)
    play.until(9)
    assert play.one()["restartCount"] == 0
    play.until(11)
    assert play.one()["restartCount"] == 1
    told = "Liveness probe failed: cat: can't open '/tmp/health': No such file or directory\n"
    assert play.told("Unhealthy")[0] == told


def test_agnhost_liveness_fails_its_probe_after_ten_seconds() -> None:
    image = "registry.k8s.io/e2e-test-images/agnhost:2.56"
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5, "failureThreshold": 1}
    play = Play(container(image=image, args=["liveness"], livenessProbe=probe), terminationGracePeriodSeconds=0)
    play.until(12)
    assert play.one()["restartCount"] == 1


def test_probe_of_a_port_that_agnhost_does_not_serve_fails() -> None:
    image = "registry.k8s.io/e2e-test-images/agnhost:2.56"
    for port, ready in ((81, False), (80, True)):
        probe = {"httpGet": {"path": "/", "port": port}}
        play = Play(
            container(image=image, args=["test-webserver"], readinessProbe=probe),
            annotations={"simulated.haru.dev/log": "up"},
        )
        assert play.until(60) and play.one()["ready"] is ready


@pytest.mark.parametrize(
    ("init", "starts_after"),
    [
        ({"command": ["git", "clone"]}, 0.0),
        ({}, 0.0),
        ({"script": "echo loading; sleep 3; git clone; echo done"}, 3.0),
        ({"script": "until nslookup db; do sleep 2; done"}, 0.0),
        ({"command": ["bash", "-c", "--"], "args": ["while true; do if a; then if b; then break; fi; fi; done"]}, 0.0),
        ({"command": ["sleep", "infinity"]}, None),
        ({"script": "while true; do sleep 1; done"}, None),
    ],
)
@pytest.mark.parametrize("main", [{"script": "sleep 500; exit 1"}, {"readinessProbe": {"initialDelaySeconds": 9}}])
def test_init_container_ends_where_what_it_does_is_not_known(
    main: dict[str, Any], init: dict[str, Any], starts_after: float | None
) -> None:
    play = Play(container(**main), initContainers=[container("first", **init)])
    if starts_after:
        assert play.until(starts_after - 1)["phase"] == "Pending"
    assert play.until(100 if starts_after is None else starts_after)["phase"] == (
        "Pending" if starts_after is None else "Running"
    )


def test_pod_that_fails_in_an_init_container_is_not_initialized() -> None:
    fails = container("second", script="exit 1")
    play = Play(container(), initContainers=[container("first", script="exit 0"), fails], restartPolicy="Never")
    assert play.until(5)["phase"] == "Failed"
    assert play.condition("Initialized") == ("False", "ContainersNotInitialized")


def test_container_whose_post_start_hook_fails_is_killed_and_restarted() -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "sleep 2; exit 1"]}}}
    play = Play(container(lifecycle=hook), terminationGracePeriodSeconds=0)
    play.until(1)
    assert not play.one()["ready"]
    play.until(3)
    assert play.one()["restartCount"] == 1
    assert play.told("FailedPostStartHook") == ["PostStartHook failed"]


def test_post_start_hook_does_not_find_what_it_writes_itself() -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "test ! -f /tmp/x && touch /tmp/x"]}}}
    assert Play(container(script="cat /tmp/x; sleep 9", lifecycle=hook)).one()["ready"]


def test_container_is_ready_once_its_post_start_hook_has_ended() -> None:
    endless = {"postStart": {"exec": {"command": ["sleep", "infinity"]}}}
    assert not Play(container(lifecycle=endless)).one()["ready"]
    play = Play(container(lifecycle={"postStart": {"sleep": {"seconds": 5}}}))
    play.until(4)
    assert not play.one()["ready"]
    play.until(5)
    assert play.one()["ready"] and play.one()["restartCount"] == 0


def test_probe_sees_what_a_command_has_written_that_was_run_in_the_container() -> None:
    probe = {"exec": {"command": ["test", "-f", "/tmp/go"]}, "periodSeconds": 1, "failureThreshold": 1}
    play = Play(container(script="sleep infinity", readinessProbe=probe))
    for at, text, ready in ((10, "", True), (20, None, False), (30, "", True)):
        play.until(at)
        assert play.one()["ready"] is not ready
        play.pod = with_executed(play.pod, Executed("c", 0, play.now, [Change(0.0, "/tmp/go", text)]))
        play.until(at + 2)
        assert play.one()["ready"] is ready


def test_file_server_fails_its_probe_while_the_file_is_moved_away() -> None:
    probe = {
        "httpGet": {"path": "/localhost.crt", "port": 80},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "initialDelaySeconds": 1,
    }
    image = "registry.k8s.io/e2e-test-images/agnhost:2.56"
    server = container(image=image, args=["test-webserver"], readinessProbe=probe)
    play = Play(server)
    script = "mv -v /localhost.crt /tmp/ || true"
    for at, moved, ready in ((10, script, False), (20, script, False), (30, "mv -v /tmp/localhost.crt /", True)):
        play.until(at)
        ran = run_in_container(play.pod, server, ["sh", "-c", moved], PodSources(executed=executed_in(play.pod)), at)
        assert ran.exit_code == 0 and concerns_node(play.pod, ran.changes)
        if ran.changes:
            play.pod = with_executed(play.pod, Executed("c", 0, play.now, ran.changes))
        play.until(at + 2)
        assert play.one()["ready"] is ready
    assert play.told("Unhealthy")[:1] == ["Readiness probe failed: HTTP probe failed with statuscode: 404"]
