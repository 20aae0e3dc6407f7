"""The node agent on a real containerd: real processes, real files, real ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine import NODE, Machine, container, is_ready, status_of

from containerd_process import IMAGE
from haru_process import until

Obj = dict[str, Any]


def config_map(machine: Machine, name: str, **data: str) -> None:
    meta = {"name": name, "namespace": "default"}
    machine.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def test_node_object_reports_system_info_and_lease(machine: Machine) -> None:
    node = machine.api.get("nodes", NODE)
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    lease = until("its lease", lambda: machine.api.find("leases", NODE, "kube-node-lease"))
    assert lease["spec"]["holderIdentity"] == NODE
    names = [name for image in node["status"]["images"] for name in image["names"]]
    assert IMAGE in names


def test_pod_runs_process_and_log_is_readable(machine: Machine) -> None:
    machine.run("talks", "echo hello; echo oh >&2; exec sleep 1000")
    pod = machine.until_ready("talks")
    machine.until_said(pod, "hello")
    machine.until_said(pod, "oh")
    status = status_of(pod)
    pid = machine.runtime.tasks()[status["containerID"].removeprefix("containerd://")]
    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"1000"]
    assert pod["status"]["podIP"].startswith("10.213.")
    assert status["state"]["running"]["startedAt"]
    assert pod["status"]["phase"] == "Running"
    machine.delete("talks")
    assert pid not in machine.runtime.tasks().values()
    assert machine.log(pod) == ""


def test_pod_with_exit_code_zero_succeeds(machine: Machine) -> None:
    machine.run("ends", "echo -n done >/dev/termination-log", restartPolicy="Never")
    pod = machine.until_phase("ends", "Succeeded")
    ended = status_of(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done")
    conditions = {one["type"]: one for one in pod["status"]["conditions"]}
    assert conditions["Ready"]["reason"] == "PodCompleted"
    assert conditions["Initialized"]["reason"] == "PodCompleted"
    assert conditions["PodReadyToStartContainers"]["status"] == "False"
    machine.delete("ends")


@pytest.mark.nightly
def test_pod_with_non_zero_exit_code_fails(machine: Machine) -> None:
    failing = container("main", "echo the last words; exit 7", terminationMessagePolicy="FallbackToLogsOnError")
    machine.create("fails", [failing], restartPolicy="Never")
    pod = machine.until_phase("fails", "Failed")
    ended = status_of(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (7, "Error", "the last words\n")
    machine.delete("fails")


def test_failing_container_is_restarted_with_backoff(machine: Machine) -> None:
    machine.run("crashes", "echo once more; exit 3", restartPolicy="OnFailure")

    def waits(pod: Obj) -> bool:
        return bool((status_of(pod).get("state") or {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

    pod = machine.until("crashes", "the crash loop", waits)
    status = status_of(pod)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert status["state"]["waiting"]["message"].startswith(
        "back-off 10s restarting failed container=main pod=crashes_"
    )
    assert pod["status"]["phase"] == "Running"
    assert "once more" in machine.log(pod, attempt=0) + machine.log(pod, attempt=1)
    machine.delete("crashes")


def test_all_containers_restart_in_their_sandbox_once_a_rule_of_one_asks_for_it(machine: Machine) -> None:
    shared = [{"name": "work", "mountPath": "/v"}]
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    script = "[ $(wc -l </v/starts) = 1 ] || exec sleep 1000; sleep 1; exit 42"
    main = container("main", script, restartPolicy="Never", restartPolicyRules=[rule], volumeMounts=shared)
    init = container("count", "echo >>/v/starts", volumeMounts=shared)
    volumes = [{"name": "work", "emptyDir": {}}]
    containers = [main, container("beside", "exec sleep 1000")]
    machine.create("anew", containers, initContainers=[init], volumes=volumes, restartPolicy="Never")
    names = ("count", "main", "beside")

    def is_anew(pod: Obj) -> bool:
        statuses = [status_of(pod, name) for name in names]
        return all(one.get("restartCount") == 1 for one in statuses) and is_ready(pod)

    pod = machine.until("anew", "all containers once more", is_anew)
    reasons = {status_of(pod, name)["lastState"]["terminated"]["reason"] for name in names}
    assert reasons == {"RestartingAllContainers"}
    assert pod["status"]["phase"] == "Running"
    machine.delete("anew")


def test_init_containers_run_in_order_and_sidecars_keep_running(machine: Machine) -> None:
    shared = {"name": "work", "mountPath": "/from-host"}
    say = "echo {0} >>/from-host/order"
    init = [
        container("first", say.format("first"), volumeMounts=[shared]),
        container(
            "beside",
            say.format("beside") + "; touch /from-host/up; exec sleep 1000",
            restartPolicy="Always",
            volumeMounts=[shared],
            startupProbe={"exec": {"command": ["test", "-e", "/from-host/up"]}, "periodSeconds": 1},
        ),
        container("last", say.format("last"), volumeMounts=[shared]),
    ]
    main = container("main", say.format("main") + "; cat /from-host/order", volumeMounts=[shared])
    volumes = [{"name": "work", "emptyDir": {}}]
    machine.create("ordered", [main], initContainers=init, volumes=volumes, restartPolicy="Never")
    pod = machine.until_phase("ordered", "Succeeded")
    machine.until_said(pod, "first\nbeside\nlast\nmain")
    assert status_of(pod, "first")["state"]["terminated"]["exitCode"] == 0
    # It was ended once the work was done, and does not count.
    assert "terminated" in status_of(pod, "beside")["state"]
    ids = [status_of(pod, name)["containerID"].removeprefix("containerd://") for name in ("main", "beside")]
    assert not machine.runtime.tasks().keys() & set(ids)
    machine.delete("ordered")


def test_failed_liveness_probe_restarts_and_failed_readiness_probe_does_not(machine: Machine) -> None:
    script = "touch /tmp/alive /tmp/ready; echo up; exec sleep 1000"
    probed = container(
        "main",
        script,
        livenessProbe={"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 1},
        readinessProbe={"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1},
    )
    machine.create("probed", [probed])
    pod = machine.until_ready("probed")
    first = status_of(pod)["containerID"].removeprefix("containerd://")
    machine.runtime.ctr("tasks", "exec", "--exec-id", "a", first, "rm", "/tmp/ready")
    pod = machine.until("probed", "not ready", lambda pod: not is_ready(pod))
    assert status_of(pod)["containerID"].endswith(first)
    assert status_of(pod)["restartCount"] == 0
    machine.runtime.ctr("tasks", "exec", "--exec-id", "b", first, "rm", "/tmp/alive")
    pod = machine.until("probed", "restarted", lambda pod: status_of(pod)["restartCount"] == 1 and is_ready(pod))
    assert status_of(pod)["lastState"]["terminated"]["exitCode"] == 137

    def told() -> bool:
        messages = {event["message"] for event in machine.api.list("events", "default")}
        return "Container main failed liveness probe, will be restarted" in messages

    until("it is told", told)
    machine.delete("probed")


@pytest.mark.nightly
def test_http_and_tcp_probes_work(machine: Machine) -> None:
    script = "mkdir /tmp/www; echo ok >/tmp/www/healthz; exec httpd -f -p 127.0.0.1:8399 -h /tmp/www"
    served = container(
        "main",
        script,
        ports=[{"name": "web", "containerPort": 8399}],
        startupProbe={"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 60},
        readinessProbe={"httpGet": {"path": "/healthz", "port": "web"}, "periodSeconds": 1},
    )
    served["ports"][0]["hostPort"] = 8399
    machine.create("served", [served], hostNetwork=True)
    pod = machine.until_ready("served")
    assert pod["status"]["podIP"] == "127.0.0.1"
    assert status_of(pod)["started"] is True
    machine.delete("served")


def test_environment_variables_of_every_source_are_set(machine: Machine) -> None:
    config_map(machine, "words", one="1", two="2")
    secret = {"name": "hidden", "namespace": "default"}
    machine.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"key": "secret"}})
    env = [
        {"name": "PLAIN", "value": "plain"},
        {"name": "BOTH", "value": "$(PLAIN)-$(P_one)-$(NOBODY)-$$(PLAIN)"},
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "one"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "nobody", "key": "x", "optional": True}}},
    ]
    main = container(
        "main",
        "echo $PLAIN $BOTH $ONE $KEY $POD $IP $CPU ${NONE-unset} $P_two",
        env=env,
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "words"}}],
        resources={"limits": {"cpu": "300m", "memory": "64Mi"}},
    )
    machine.create("environment", [main], restartPolicy="Never")
    pod = machine.until_phase("environment", "Succeeded")
    ip = pod["status"]["podIP"]
    machine.until_said(pod, f"plain plain-1-$(NOBODY)-$(PLAIN) 1 secret environment {ip} 300 unset 2")
    machine.delete("environment")


def test_volume_files_follow_their_sources(machine: Machine) -> None:
    config_map(machine, "live", text="before")
    volumes = [
        {"name": "live", "configMap": {"name": "live"}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"configMap": {"name": "live", "items": [{"key": "text", "path": "deep/text"}]}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                ]
            },
        },
    ]
    mounts = [{"name": "live", "mountPath": "/live"}, {"name": "all", "mountPath": "/all", "readOnly": True}]
    script = (
        "cat /live/text /all/deep/text /all/name; echo; cut -c1-2 /all/token; "
        "until grep -q after /live/text; do sleep 0.1; done; echo it changed; exec sleep 1000"
    )
    machine.create("reads", [container("main", script, volumeMounts=mounts)], volumes=volumes)
    pod = machine.until_ready("reads")
    machine.until_said(pod, "beforebeforereads\ney")
    machine.api.patch("configmaps", "live", {"data": {"text": "after"}}, "default")
    machine.until_said(pod, "it changed")
    machine.delete("reads")


def test_missing_config_map_is_reported_and_waited_for(machine: Machine) -> None:
    volumes = [{"name": "late", "configMap": {"name": "late"}}]
    mounts = [{"name": "late", "mountPath": "/late"}]
    script = "cat /late/text; echo; exec sleep 1000"
    machine.create("waits", [container("main", script, volumeMounts=mounts)], volumes=volumes)

    def told() -> bool:
        return any('configmap "late" not found' in e["message"] for e in machine.api.list("events", "default"))

    until("it is told", told)
    assert status_of(machine.pod("waits"))["state"]["waiting"]["reason"] == "ContainerCreating"
    config_map(machine, "late", text="here")
    pod = machine.until_ready("waits")
    machine.until_said(pod, "here")
    machine.delete("waits")


@pytest.mark.nightly
def test_image_pull_policy_never_reports_missing_image(machine: Machine) -> None:
    machine.create("imageless", [{**container("main", "true"), "image": "haru.test/nobody:1"}])
    pod = machine.until("imageless", "told", lambda pod: "ErrImageNeverPull" in str(status_of(pod).get("state")))
    assert pod["status"]["phase"] == "Pending"
    machine.delete("imageless")


def test_pre_stop_hook_and_grace_period_are_honoured(machine: Machine) -> None:
    volumes = [{"name": "out", "hostPath": {"path": str(machine.home / "out"), "type": "DirectoryOrCreate"}}]
    main = container(
        "main",
        "trap 'echo -n term >>/out/said; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        volumeMounts=[{"name": "out", "mountPath": "/out"}],
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "echo -n pre- >>/out/said"]}}},
    )
    machine.create("polite", [main], volumes=volumes, terminationGracePeriodSeconds=30)
    machine.until_said(machine.until_ready("polite"), "up")
    machine.delete("polite")
    assert (machine.home / "out" / "said").read_text() == "pre-term"


@pytest.mark.nightly
def test_container_ignoring_sigterm_is_killed_after_grace_period(machine: Machine) -> None:
    machine.run("deaf", "trap '' TERM; echo up; while :; do sleep 0.1; done", terminationGracePeriodSeconds=600)
    pod = machine.until_ready("deaf")
    machine.until_said(pod, "up")
    machine.api.delete("pods", "deaf", "default")
    # StreamRequest for less patience while it is being ended.
    machine.delete("deaf", gracePeriodSeconds=1)
    assert status_of(pod)["containerID"].removeprefix("containerd://") not in machine.runtime.tasks()


@pytest.mark.nightly
def test_active_deadline_fails_pod_and_kills_container(machine: Machine) -> None:
    machine.run("overdue", "exec sleep 1000", activeDeadlineSeconds=3600)
    machine.until_ready("overdue")
    machine.api.patch("pods", "overdue", {"spec": {"activeDeadlineSeconds": 1}}, "default")
    pod = machine.until_phase("overdue", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    ended = status_of(pod)["containerID"].removeprefix("containerd://")
    until("nothing runs", lambda: ended not in machine.runtime.tasks())
    machine.delete("overdue")


def test_pod_without_enough_node_resources_is_rejected(machine: Machine) -> None:
    main = container("main", "true", resources={"requests": {"cpu": "1000"}})
    machine.create("large", [main])
    pod = machine.until_phase("large", "Failed")
    assert pod["status"]["reason"] == "OutOfcpu"
    assert pod["status"]["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu")
    machine.delete("large")


def test_pod_with_occupied_host_port_other_system_or_other_labels_is_rejected(machine: Machine) -> None:
    port = {"containerPort": 80, "hostPort": 18_080}
    machine.create("first", [container("main", "exec sleep 1000", ports=[port])])
    machine.until_ready("first")
    machine.create("second", [container("main", "true", ports=[port])])
    assert machine.until_phase("second", "Failed")["status"]["reason"] == "NodePorts"
    machine.create("foreign", [container("main", "true")], os={"name": "windows"})
    assert machine.until_phase("foreign", "Failed")["status"]["reason"] == "PodOSNotSupported"
    machine.create("elsewhere", [container("main", "true")], nodeSelector={"zone": "b"})
    status = machine.until_phase("elsewhere", "Failed")["status"]
    assert (status["reason"], status["message"]) == (
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    )
    for name in ("first", "second", "foreign", "elsewhere"):
        machine.delete(name)


def test_kubectl_shows_scheduled_pod_running(machine: Machine, kubectl: str) -> None:
    command = ["run", "seen", f"--image={IMAGE}", "--image-pull-policy=Never", "--command", "--", "sleep", "1000"]
    done = machine.up.kubectl(kubectl, *command)
    assert done.returncode == 0, done.stderr
    done = machine.up.kubectl(kubectl, "wait", "--for=condition=Ready", "pod/seen", "--timeout=50s")
    assert done.returncode == 0, done.stderr
    shown = machine.up.kubectl(kubectl, "get", "pod", "seen", "--no-headers").stdout.split()
    assert shown[:3] == ["seen", "1/1", "Running"]
    done = machine.up.kubectl(kubectl, "delete", "pod", "seen", "--grace-period=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_pods_have_their_own_cgroups(machine: Machine) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi", "cpu": "250m"}}}
    machine.create("limited", [container("main", "exec sleep 1000", **limits)])
    pod = machine.until_ready("limited")
    pid = machine.runtime.tasks()[status_of(pod)["containerID"].removeprefix("containerd://")]
    assert f"/kubepods/pod{pod['metadata']['uid']}/" in Path(f"/proc/{pid}/cgroup").read_text()
    machine.delete("limited")


def test_user_namespace_without_runtime_support_is_reported(machine: Machine) -> None:
    # Debian's containerd 1.6 knows nothing of them: never the host's in their place.
    machine.run("mapped", "exec sleep 1000", hostUsers=False)

    def told() -> bool:
        text = "runtime does not support user namespaces"
        return any(text in event["message"] for event in machine.api.list("events", "default"))

    until("it is told", told)
    assert machine.pod("mapped")["status"]["phase"] == "Pending"
    machine.delete("mapped")


@pytest.mark.nightly
def test_large_log_is_rotated_and_continues(machine: Machine) -> None:
    lines = "yes 0123456789 | head -n 1200000"
    main = container("main", f"{lines}; echo more; until test -e /tmp/go; do sleep 0.1; done; echo the end; sleep 1000")
    machine.create("verbose", [main])
    pod = machine.until_ready("verbose")
    meta = pod["metadata"]
    directory = machine.home / "logs" / f"default_verbose_{meta['uid']}" / "main"
    until("it was moved aside", lambda: len(list(directory.glob("0.log.*"))) == 1, 60)
    status = status_of(pod)
    machine.runtime.ctr("tasks", "exec", "--exec-id", "x", status["containerID"][13:], "touch", "/tmp/go")
    machine.until_said(pod, "the end")
    machine.delete("verbose")
