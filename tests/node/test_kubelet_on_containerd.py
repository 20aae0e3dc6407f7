"""The kubelet API of a real node, asked as everybody does: kubectl and the API server before it, a real containerd."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from machine import NODE, Machine, container, is_ready

from containerd_process import IMAGE
from haru_process import environment, free_port, until

TALKS = "echo one; echo two; echo oh >&2; exec sleep 1000"


def test_kubectl_logs_of_running_pod(machine: Machine, kubectl: str) -> None:
    machine.run("talks", TALKS)
    pod = machine.until_ready("talks")
    machine.until_said(pod, "oh")

    def logs(*flags: str) -> str:
        answer = machine.up.kubectl(kubectl, "logs", "talks", *flags)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    assert sorted(logs().splitlines()) == ["oh", "one", "two"]
    assert len(logs("--tail=1").splitlines()) == 1
    assert logs("--limit-bytes=2") in ("on", "oh")
    assert logs("--timestamps").splitlines()[0][:2] == "20"
    assert logs("--since-time=2999-01-01T00:00:00Z") == ""
    refused = machine.up.kubectl(kubectl, "logs", "talks", "--previous")
    assert refused.returncode == 1
    assert 'previous terminated container "main" in pod "talks" not found' in refused.stderr
    refused = machine.up.kubectl(kubectl, "logs", "talks", "-c", "none")
    assert "container none is not valid for pod talks" in refused.stderr


def test_kubectl_logs_follow_ends_with_container(machine: Machine, kubectl: str) -> None:
    machine.run("counts", "for n in 1 2 3; do echo $n; sleep 0.3; done", restartPolicy="Never")
    machine.until("counts", "started", lambda pod: pod["status"].get("phase") in ("Running", "Succeeded"))
    answer = machine.up.kubectl(kubectl, "logs", "counts", "--follow")
    assert (answer.returncode, answer.stdout) == (0, "1\n2\n3\n"), answer.stderr


def test_kubectl_exec_runs_command(machine: Machine, kubectl: str) -> None:
    machine.run("talks", TALKS)
    machine.until_ready("talks")
    answer = machine.up.kubectl(kubectl, "exec", "talks", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (answer.returncode, answer.stdout) == (3, "out\n"), answer.stderr
    assert "err\n" in answer.stderr
    # The end of what is typed is heard: cat would not end otherwise.
    answer = machine.up.kubectl(kubectl, "exec", "-i", "talks", "--", "cat", stdin="to and fro\n" * 5000)
    assert (answer.returncode, answer.stdout) == (0, "to and fro\n" * 5000), answer.stderr
    assert _web_sockets(machine, kubectl)["exec"] >= 2


def _web_sockets(machine: Machine, kubectl: str) -> dict[str, int]:
    """How many ways into containers were opened by WebSockets that end at the node, by kind."""
    exposed = machine.up.kubectl(kubectl, "get", "--raw", f"/api/v1/nodes/{NODE}/proxy/metrics").stdout
    found = re.findall(r'^kubelet_websocket_streaming_requests_total\{subresource="(\w+)"\} (\d+)$', exposed, re.M)
    return {kind: int(count) for kind, count in found}


def test_kubectl_copies_files_both_ways(machine: Machine, kubectl: str, tmp_path: Path) -> None:
    machine.run("talks", TALKS)
    machine.until_ready("talks")
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(3_000_000))
    for source, target in ((str(sent), "talks:/tmp/file"), ("talks:/tmp/file", str(back))):
        answer = machine.up.kubectl(kubectl, "cp", source, target)
        assert answer.returncode == 0, answer.stderr
    assert back.read_bytes() == sent.read_bytes()


def test_kubectl_attach_passes_input_to_the_container_itself(machine: Machine, kubectl: str) -> None:
    shouts = container("shouts", "read line; echo $line | tr a-z A-Z; sleep 1; exit 5")
    machine.create("shouts", [{**shouts, "stdin": True, "stdinOnce": True}], restartPolicy="Never")
    machine.until("shouts", "it runs", lambda pod: (pod.get("status") or {}).get("phase") == "Running")
    answer = machine.up.kubectl(kubectl, "attach", "-i", "shouts", stdin="to and fro\n")
    assert "TO AND FRO" in answer.stdout, answer.stderr
    assert _web_sockets(machine, kubectl)["attach"] >= 1


def test_kubectl_debug_sees_processes_of_target_container(machine: Machine, kubectl: str) -> None:
    machine.run("talks", TALKS)
    machine.until_ready("talks")
    flags = ["--image", IMAGE, "--image-pull-policy", "Never", "--target", "main", "--container", "debug", "--quiet"]
    answer = machine.up.kubectl(kubectl, "debug", "talks", *flags, "--", "sh", "-c", "ps; exit 7")
    assert answer.returncode == 0, answer.stderr
    pod = machine.until("talks", "debugged", lambda pod: "terminated" in _state_of(pod, "debug"))
    assert _state_of(pod, "debug")["terminated"]["exitCode"] == 7
    assert "sleep 1000" in machine.up.kubectl(kubectl, "logs", "talks", "-c", "debug").stdout
    assert pod["status"]["phase"] == "Running"
    # It is not started again, and a second one is.
    flags[flags.index("debug")] = "again"
    assert machine.up.kubectl(kubectl, "debug", "talks", *flags, "--", "true").returncode == 0
    pod = machine.until("talks", "debugged again", lambda pod: "terminated" in _state_of(pod, "again"))
    assert [one["restartCount"] for one in pod["status"]["ephemeralContainerStatuses"]] == [0, 0]


def test_kubectl_resize_changes_limits_of_running_container(machine: Machine, kubectl: str) -> None:
    sizes = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    stays = {**container("stays", "sleep 1000"), "resources": sizes}
    restarts = {**container("restarts", "sleep 1000"), "resources": sizes, "resizePolicy": policy}
    machine.create("sized", [stays, restarts])
    machine.until_ready("sized")

    def resize(name: str, cpu: str, memory: str) -> str:
        wanted = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
        patch = json.dumps({"spec": {"containers": [{"name": name, "resources": {"limits": wanted["limits"]}}]}})
        answer = machine.up.kubectl(kubectl, "patch", "pod", "sized", "--subresource=resize", "--patch", patch)
        return answer.stderr if answer.returncode else ""

    def limits(pod: dict[str, Any], name: str) -> Any:
        return next(one for one in pod["status"]["containerStatuses"] if one["name"] == name)["resources"]["limits"]

    assert resize("stays", "400m", "96Mi") == ""
    pod = machine.until("sized", "resized", lambda pod: limits(pod, "stays") == {"cpu": "400m", "memory": "96Mi"})
    assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0, 0]
    assert _kernel_memory(machine, pod, "stays") == 96 << 20
    # Its policy restarts it for memory; the other one runs on.
    assert resize("restarts", "200m", "48Mi") == ""
    machine.until("sized", "restarted", lambda pod: limits(pod, "restarts")["memory"] == "48Mi" and is_ready(pod))
    pod = machine.until_ready("sized")
    assert {one["name"]: one["restartCount"] for one in pod["status"]["containerStatuses"]} == {
        "stays": 0,
        "restarts": 1,
    }
    assert _kernel_memory(machine, pod, "restarts") == 48 << 20
    machine.until("sized", "the resize is over", lambda pod: "PodResizeInProgress" not in _types(pod))
    reasons = {one["reason"] for one in machine.api.list("events", "default")}
    assert {"ResizeStarted", "ResizeCompleted"} <= reasons


def _types(pod: dict[str, Any]) -> set[str]:
    return {one["type"] for one in pod["status"].get("conditions") or ()}


def _kernel_memory(machine: Machine, pod: dict[str, Any], name: str) -> int:
    status = next(one for one in pod["status"]["containerStatuses"] if one["name"] == name)
    id_ = status["containerID"].rpartition("/")[2]
    for file in ("memory.limit_in_bytes", "memory.max"):
        for found in Path("/sys/fs/cgroup").glob(f"**/{machine.groups}/**/*{id_}*/{file}"):
            return int(found.read_text())
    raise AssertionError(f"no control group of {id_}")


def _state_of(pod: dict[str, Any], name: str) -> dict[str, Any]:
    found = [one for one in pod["status"].get("ephemeralContainerStatuses") or () if one["name"] == name]
    return found[0]["state"] if found else {}


def test_kubectl_port_forward_reaches_pod(machine: Machine, kubectl: str) -> None:
    machine.run("serves", "mkdir -p /tmp/w; echo hello >/tmp/w/index.html; exec busybox httpd -f -p 8080 -h /tmp/w")
    machine.until_ready("serves")
    port = free_port()
    command = [kubectl, "port-forward", "pod/serves", f"{port}:8080", "--address=127.0.0.1"]
    env = environment(machine.up.home, KUBECONFIG=str(machine.up.kubeconfig))
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as forwarding:
        try:

            def answer() -> str | None:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=60) as found:
                        return str(found.read().decode())
                except OSError:
                    return None

            assert until("an answer through the port", answer, 30) == "hello\n"
            assert _web_sockets(machine, kubectl)["portforward"] >= 1
        finally:
            forwarding.terminate()


def figures(machine: Machine, path: str) -> Any:
    status, body = machine.api.call("GET", f"/api/v1/nodes/{NODE}/proxy{path}")
    return body if status == 200 else None


def test_stats_of_running_pod_reach_summary_and_metrics(machine: Machine) -> None:
    machine.run("works", "while true; do :; done")
    machine.until_ready("works")

    def used() -> dict[str, Any] | None:
        found = figures(machine, "/stats/summary")
        for pod in found["pods"] if found else ():
            if pod["podRef"]["name"] == "works" and pod["containers"]:
                first: dict[str, Any] = pod["containers"][0]
                if first.get("cpu", {}).get("usageCoreNanoSeconds", 0) > 0:
                    return first
        return None

    measured = until("the pod's figures", used, 60)
    assert measured is not None and measured["memory"]["workingSetBytes"] > 0
    text = figures(machine, "/metrics/resource")
    assert 'container_cpu_usage_seconds_total{container="main",namespace="default",pod="works"}' in text
    listed = figures(machine, "/pods")
    assert [pod["metadata"]["name"] for pod in listed["items"]] == ["works"]
    running = figures(machine, "/runningpods/")["items"]
    # What the test before has left may still be ending: it is no longer in the API.
    named = {pod["metadata"]["name"]: [c["name"] for c in pod["spec"]["containers"]] for pod in running}
    assert named["works"] == ["main"], running
    assert figures(machine, "/healthz") == "ok"
    configuration = figures(machine, "/configz")["kubeletconfig"]
    assert configuration["authorization"]["mode"] == "Webhook"
    status, flags = machine.api.call("GET", f"/api/v1/nodes/{NODE}/proxy/flagz", Accept="text/plain")
    assert status == 200 and "port=0" in flags and "token=" not in flags


def test_probe_metrics_are_counted_and_removed(machine: Machine) -> None:
    well = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    failing = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1000}
    probes = {"readinessProbe": well, "livenessProbe": failing}
    machine.create("probed", [container("main", "exec sleep 1000", **probes)])
    machine.until_ready("probed")

    def counted() -> bool:
        text = figures(machine, "/metrics/probes") or ""
        found = [line for line in text.splitlines() if 'pod="probed"' in line]
        wanted = ('probe_type="Readiness",result="successful"', 'probe_type="Liveness",result="failed"')
        return all(any(each in line for line in found) for each in wanted)

    until("both counts", counted, 60)
    machine.delete("probed")
    until("they are gone", lambda: 'pod="probed"' not in (figures(machine, "/metrics/probes") or ""), 60)


def test_kubelet_port_refuses_requests_without_permission(machine: Machine) -> None:
    node = machine.api.get("nodes", NODE)
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        plain.sendall(b"GET /pods HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1 200")
