"""The real kubectl, and the Python client, on pods of simulated nodes: logs, exec, attach and top."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haru.embedded.options import UpOptions, parse_profiles
from haru.testing import LocalCluster

Run = Callable[..., subprocess.CompletedProcess[str]]
PODS = """
apiVersion: v1
kind: Pod
metadata:
  name: main
  annotations:
    log.simulated.haru.dev/main: "loading\\n@every 0.2 step"
    exec.simulated.haru.dev/main: |
      nvidia-smi -L: "GPU 0: NVIDIA H100 80GB HBM3"
      check: {stderr: "no link", exitCode: 3}
    usage.simulated.haru.dev/main: cpu=25% memory=2Gi
    usage.simulated.haru.dev/done: cpu=250m memory=1Gi
  labels: {app: main}
spec:
  containers:
  - {name: main, image: train, env: [{name: RANK, value: "7"}], resources: {requests: {cpu: "2"}}}
  - {name: done, image: busybox, command: [sh, -c, "echo bye; sleep 600"]}
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  containers: [{name: shell, image: busybox, stdin: true, tty: true}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {rate: "0.1"}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  containers:
  - name: main
    image: busybox
    command:
    - sh
    - -c
    - cat /etc/settings/rate; echo " $RATE"; printenv KUBERNETES_SERVICE_HOST; echo x > /tmp/x; sleep 600
    env: [{name: RATE, valueFrom: {configMapKeyRef: {name: settings, key: rate}}}]
    volumeMounts: [{name: settings, mountPath: /etc/settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
"""
WAITING = """
apiVersion: v1
kind: Pod
metadata: {name: myapp-pod}
spec:
  containers:
  - {name: myapp-container, image: "busybox:1.28", command: [sh, -c, "echo The app is running! && sleep 3600"]}
  initContainers:
  - name: init-myservice
    image: busybox:1.28
    command:
    - sh
    - -c
    - "until nslookup myservice.$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace).svc.cluster.local;
       do echo waiting for myservice; sleep 1; done"
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: myservice}
spec: {selector: {app: main}, ports: [{port: 80, targetPort: 9376}]}
"""
TRANSPORTS = {"WebSocket": "true", "SPDY": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = UpOptions(profiles=parse_profiles("cpu:1"), listen=("127.0.0.1", 0), dashboard=None, metrics_api=True)
    with LocalCluster(tmp_path_factory.mktemp("cluster"), options) as running:
        running.apply(PODS)
        for name in ("main", "shell", "reader"):
            running.wait("Pod", name, "Ready", timeout=60)
        running.wait_until(lambda: available(running), timeout=60, what="metrics.k8s.io is served")
        yield running


def available(cluster: LocalCluster) -> bool:
    service = cluster.get("APIService", "v1beta1.metrics.k8s.io") or {}
    return any(
        one["type"] == "Available" and one["status"] == "True"
        for one in (service.get("status") or {}).get("conditions") or ()
    )


@pytest.fixture(scope="module", params=TRANSPORTS.values(), ids=list(TRANSPORTS))
def kubectl(request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    home = str(tmp_path_factory.mktemp("home"))
    env = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(cluster.kubeconfig)}
    env["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"] = request.param

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.mark.parametrize(
    ("command", "out", "error", "code"),
    [
        (["echo", "remote execution test"], "remote execution test\n", "", 0),
        (["cat", "/etc/hostname"], "main\n", "", 0),
        (["sh", "-c", "echo rank $RANK; exit 4"], "rank 7\n", "exit code 4", 4),
        (["printenv", "RANK"], "7\n", "", 0),
        (["false"], "", "exit code 1", 1),
        (["cat", "/var/run/secrets/kubernetes.io/serviceaccount/namespace"], "default", "", 0),
        (["nvidia-smi", "-L"], "GPU 0: NVIDIA H100 80GB HBM3\n", "", 0),
        (["check"], "", "no link", 3),
        (["python", "-V"], "", "this container is simulated and runs no programs", 127),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_command_in_a_container_answers(kubectl: Run, command: list[str], out: str, error: str, code: int) -> None:
    done = kubectl("exec", "main", "-c", "main", "--", *command)
    assert (done.stdout, done.returncode) == (out, code), done.stderr
    assert error in done.stderr


def test_input_is_passed_through_cat_and_run_by_a_shell(kubectl: Run) -> None:
    text = "a line\n" * 20_000
    assert kubectl("exec", "-i", "main", "--", "cat", stdin=text).stdout == text
    done = kubectl("exec", "-i", "main", "--", "sh", stdin="hostname\nfalse\necho $?\nexit 5\n")
    assert (done.stdout, done.returncode) == ("main\n0\n", 5)


def test_container_that_does_not_run_cannot_be_entered(kubectl: Run) -> None:
    done = kubectl("exec", "main", "-c", "none", "--", "true")
    assert done.returncode == 1 and "container none" in done.stderr


def test_attach_shows_what_the_container_prints_from_now_on(kubectl: Run, cluster: LocalCluster) -> None:
    program = ["timeout", "3", shutil.which("kubectl") or "", "attach", "main", "-c", "main"]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert "step\nstep\n" in done.stdout and "loading" not in done.stdout


def test_attached_shell_runs_what_it_is_told(kubectl: Run) -> None:
    done = kubectl("attach", "-i", "shell", stdin="hostname\nexit\n")
    assert "shell\n" in done.stdout and done.returncode == 0, done


def test_attached_input_reaches_the_container(kubectl: Run) -> None:
    name = f"read-{os.urandom(3).hex()}"
    script = "echo -n read: && cat && echo ' stdin closed'; exit 4"
    run = ("run", "-i", "--restart=Never", "--image=busybox")
    done = kubectl(*run, "--rm", f"{name}-1", "--", "cat", stdin="one\ntwo")
    assert "one\ntwo" in done.stdout and done.returncode == 0, done
    done = kubectl(*run, f"{name}-2", "--", "sh", "-c", script, stdin="value\nabcd1234")
    assert "abcd1234 stdin closed\n" in done.stdout and done.returncode == 4, done
    assert kubectl("logs", f"{name}-2").stdout == "read:value\nabcd1234 stdin closed\n"
    done = kubectl(*run, "--leave-stdin-open", f"{name}-3", "--", "sh", "-c", script, stdin="abcd1234\n")
    assert done.returncode == 0, done
    assert kubectl("logs", f"{name}-3").stdout == "read:abcd1234\n"
    assert kubectl("get", "pod", f"{name}-3", "-o", "jsonpath={.status.phase}").stdout == "Running"
    done = kubectl("attach", "-i", f"{name}-3", stdin="x" * 200_000)
    assert "no more than 128 KiB" in done.stderr and done.returncode == 0, done


def test_attached_shell_of_a_terminal_ends_its_container(kubectl: Run) -> None:
    name = f"shell-{os.urandom(3).hex()}"
    done = kubectl("run", "-it", "--restart=Never", "--image=busybox", name, "--", "sh", stdin="echo hi\nexit 6\n")
    assert "hi\n" in done.stdout and done.returncode == 6, done


def test_command_reads_its_input(kubectl: Run) -> None:
    script = "read a; echo $a; wc -l; exit 3"
    done = kubectl("exec", "-i", "main", "-c", "main", "--", "sh", "-c", script, stdin="one\ntwo\nthree\n")
    assert (done.stdout, done.returncode) == ("one\n2\n", 3), done


def test_logs_of_all_kinds(kubectl: Run) -> None:
    assert kubectl("logs", "main", "-c", "done").stdout == "bye\n"
    assert kubectl("logs", "main", "-c", "main").stdout.startswith("loading\nstep\n")
    assert kubectl("logs", "main", "-c", "main", "--tail=1").stdout == "step\n"
    stamped = kubectl("logs", "main", "-c", "main", "--timestamps", "--limit-bytes=20").stdout
    assert stamped[10] == "T" and len(stamped) == 20
    assert "previous terminated" in kubectl("logs", "main", "-c", "main", "--previous").stderr


def test_debugging_container_prints_and_answers(kubectl: Run) -> None:
    name = f"debugger-{os.urandom(3).hex()}"
    script = "while true; do echo polo; sleep 1; done"
    added = kubectl("debug", "main", f"--container={name}", "--image=busybox", "--", "sh", "-c", script)
    assert added.returncode == 0, added.stderr
    for _ in range(100):
        logged = kubectl("logs", "main", "-c", name)
        if logged.stdout:
            break
    assert logged.stdout.startswith("polo\n"), logged.stderr
    assert kubectl("exec", "main", "-c", name, "--", "/bin/echo", "marco").stdout == "marco\n"


def test_top_shows_what_annotations_say(cluster: LocalCluster, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig)}

    def kubectl(*arguments: str) -> str:
        command = [shutil.which("kubectl") or "", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout or done.stderr

    rows = [line.split() for line in kubectl("top", "pods", "--containers", "-l", "app=main").splitlines()]
    named = [row for row in rows if row[1] in ("done", "main")]
    assert named == [["main", "done", "250m", "1024Mi"], ["main", "main", "500m", "2048Mi"]]
    assert kubectl("top", "nodes").splitlines()[1].split()[:2] == ["cpu-0", "750m"]
    raw = kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/none")
    assert "not found" in raw
    forbidden = kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods", "--as=nobody")
    assert "cannot list resource" in forbidden or "forbidden" in forbidden
    summary = json.loads(kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/stats/summary"))
    assert summary["node"]["cpu"]["usageNanoCores"] == 750_000_000
    (pod,) = [one for one in summary["pods"] if one["podRef"]["name"] == "main"]
    assert pod["memory"]["workingSetBytes"] == 3 << 30 and len(pod["containers"]) >= 2
    exposition = kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/metrics/resource")
    line = next(
        one for one in exposition.splitlines() if one.startswith("pod_memory_working_set_bytes{") and '"main"' in one
    )
    assert line.split()[1] == str(float(3 << 30))
    samples = kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/metrics/cadvisor").splitlines()
    working = [one for one in samples if one.startswith("container_memory_working_set_bytes{") and 'pod="main"' in one]
    by_container = {one.split('container="')[1].split('"')[0]: one for one in working}
    assert float(by_container["main"].split()[-2]) == 2 << 30 and float(by_container[""].split()[-2]) == 3 << 30
    assert 'image=""' in by_container[""] and 'image=""' not in by_container["main"]
    assert "machine_cpu_cores 32.0" in samples
    running = kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/metrics").splitlines()
    assert 'kubelet_node_name{node="cpu-0"} 1.0' in running
    assert any(one.startswith("kubelet_running_pods ") and float(one.split()[1]) >= 1 for one in running)
    assert '"PodList"' in kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/pods")
    assert "it is simulated" in kubectl("get", "--raw", "/api/v1/nodes/cpu-0/proxy/configz")


def test_python_client_runs_a_command(cluster: LocalCluster) -> None:
    from kubernetes import client, config
    from kubernetes.stream import stream

    api: Any = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    command = ["sh", "-c", "echo hi; exit 3"]
    answer = stream(
        api.connect_get_namespaced_pod_exec, "main", "default", container="main", command=command,
        stdin=False, stdout=True, stderr=True, tty=False, _preload_content=False,
    )  # fmt: skip
    answer.run_forever(timeout=30)
    try:
        assert answer.read_stdout() == "hi\n" and answer.returncode == 3
    finally:
        answer.sock.shutdown()
        api.api_client.close()


def test_log_and_exec_show_what_config_maps_and_services_say(kubectl: Run) -> None:
    assert kubectl("logs", "reader").stdout.splitlines() == ["0.1 0.1", "10.96.0.1"]
    assert kubectl("exec", "reader", "--", "cat", "/etc/settings/rate", "/tmp/x").stdout == "0.1x\n"
    namespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
    assert kubectl("exec", "reader", "--", "cat", namespace).stdout.strip() == "default"


def test_pod_of_the_documentation_waits_for_a_service_and_then_reaches_it(cluster: LocalCluster, kubectl: Run) -> None:
    cluster.apply(WAITING)
    cluster.wait_until(
        lambda: "waiting for myservice" in kubectl("logs", "myapp-pod", "-c", "init-myservice").stdout,
        timeout=60,
        what="the init container waits",
    )
    assert (cluster.get("Pod", "myapp-pod") or {})["status"]["phase"] == "Pending"
    cluster.apply(SERVICE)
    cluster.wait("Pod", "myapp-pod", "Ready", timeout=60)
    log = kubectl("logs", "myapp-pod", "-c", "init-myservice").stdout
    assert "Name:\tmyservice.default.svc.cluster.local" in log
    assert kubectl("exec", "myapp-pod", "-c", "myapp-container", "--", "wget", "-q", "myservice").returncode == 0
    refused = kubectl("exec", "myapp-pod", "-c", "myapp-container", "--", "curl", "-s", "http://myservice:81")
    assert (refused.returncode, refused.stdout) == (7, "")
    kubectl("delete", "pod/myapp-pod", "service/myservice", "--now")


def test_files_that_commands_write_stay_in_their_container(kubectl: Run) -> None:
    path = f"/tmp/{os.urandom(3).hex()}"
    assert kubectl("exec", "reader", "--", "sh", "-c", f"mkdir {path} && echo one > {path}/x").returncode == 0
    assert kubectl("exec", "-i", "reader", "--", "sh", stdin=f"echo two >> {path}/x\n").returncode == 0
    assert kubectl("exec", "reader", "--", "cat", f"{path}/x").stdout == "one\ntwo\n"
    assert kubectl("exec", "reader", "--", "rm", f"{path}/x").returncode == 0
    assert kubectl("exec", "reader", "--", "test", "-f", f"{path}/x").returncode == 1
    assert kubectl("exec", "main", "-c", "main", "--", "test", "-d", path).returncode == 1


def test_token_of_the_service_account_is_that_of_the_pod(kubectl: Run, cluster: LocalCluster) -> None:
    mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
    read = kubectl("exec", "reader", "--", "cat", f"{mounted}/token").stdout.strip()
    assert kubectl("exec", "reader", "--", "cat", f"{mounted}/token").stdout.strip() == read
    assert "BEGIN CERTIFICATE" in kubectl("exec", "reader", "--", "cat", f"{mounted}/ca.crt").stdout
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": read}}
    answer = kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    user = json.loads(answer.stdout)["status"]["user"]
    assert user["username"] == "system:serviceaccount:default:default"
    pod = cluster.get("Pod", "reader")
    assert pod is not None
    assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]
    assert user["extra"]["authentication.kubernetes.io/node-name"] == ["cpu-0"]


def test_container_ends_as_its_token_lets_it(kubectl: Run, cluster: LocalCluster) -> None:
    name = f"token-{os.urandom(3).hex()}"
    script = "test -s /var/run/secrets/kubernetes.io/serviceaccount/token || exit 7"
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    cluster.wait_until(
        lambda: ((cluster.get("Pod", name) or {}).get("status") or {}).get("phase") == "Succeeded", what="it ends well"
    )


def test_pod_becomes_ready_by_a_file_that_exec_writes(cluster: LocalCluster, kubectl: Run) -> None:
    probe = {"exec": {"command": ["test", "-f", "/tmp/go"]}, "periodSeconds": 1}
    main = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"], "readinessProbe": probe}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": {"containers": [main]}}
    cluster.apply(json.dumps(made))
    assert kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/gated", "--timeout=30s").returncode == 0
    assert kubectl("wait", "--for=condition=Ready", "pod/gated", "--timeout=2s").returncode != 0
    assert kubectl("exec", "gated", "--", "touch", "/tmp/go").returncode == 0
    assert kubectl("wait", "--for=condition=Ready", "pod/gated", "--timeout=30s").returncode == 0
    assert kubectl("exec", "gated", "--", "rm", "/tmp/go").returncode == 0
    assert kubectl("wait", "--for=condition=Ready=false", "pod/gated", "--timeout=30s").returncode == 0


def test_pod_finds_in_a_claim_what_exec_has_written_into_the_pod_before_it(cluster: LocalCluster, kubectl: Run) -> None:
    claimed = f"claim-{os.urandom(3).hex()}"
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claimed}}
    cluster.apply(json.dumps({**claim, "spec": {"storageClassName": "simulated", **size}}))
    for name, script in (("first", ""), ("second", "test -f /data/go && sleep infinity"), ("third", "")):
        mounts = [{"name": "v", "mountPath": "/data"}]
        main = {"name": "main", "image": "httpd", "volumeMounts": mounts}
        main |= {"command": ["sh", "-c", script]} if script else {}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claimed}}]
        spec = {"containers": [main], "volumes": volumes, "restartPolicy": "Never"}
        cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
        assert kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s").returncode == 0
        assert kubectl("exec", name, "--", "ls", "/data").stdout == ("" if name == "first" else "go\n")
        assert kubectl("exec", name, "--", "test", "-f", "/data/go").returncode == (1 if name == "first" else 0)
        assert kubectl("exec", name, "--", "touch", "/data/go").returncode == 0
        assert kubectl("delete", "pod", name, "--force", "--timeout=30s").returncode == 0


def test_log_of_a_pod_tells_that_it_has_found_nothing_in_a_new_directory(cluster: LocalCluster, kubectl: Run) -> None:
    name = f"new-{os.urandom(3).hex()}"
    script = "[ -f /data/x ] && echo old || echo new; cat /data/x; sleep infinity"
    mounts = [{"name": "v", "mountPath": "/data"}]
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mounts}
    volumes = [{"name": "v", "hostPath": {"path": f"/tmp/{name}", "type": "DirectoryOrCreate"}}]
    spec = {"containers": [main], "volumes": volumes}
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    assert kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s").returncode == 0
    assert kubectl("logs", name).stdout == "new\ncat: can't open '/data/x': No such file or directory\n"
    assert kubectl("exec", name, "--", "test", "-f", "/data/y").returncode == 1
    beside = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-beside"}, "spec": spec}
    cluster.apply(json.dumps(beside))
    unknown = kubectl("exec", name, "--", "test", "-f", "/data/y")  # the other one may have written it
    assert unknown.returncode == 127


def test_script_of_a_pod_goes_on_once_exec_has_written_a_file(cluster: LocalCluster, kubectl: Run) -> None:
    name = f"waits-{os.urandom(3).hex()}"
    script = "until [ -f /tmp/go ]; do echo waiting; sleep 0.2; done; cat /tmp/go"
    spec = {
        "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", script]}],
        "restartPolicy": "Never",
    }
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    assert kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s").returncode == 0
    assert kubectl("exec", name, "--", "sh", "-c", "echo on > /tmp/go").returncode == 0
    done = "--for=jsonpath={.status.phase}=Succeeded"
    assert kubectl("wait", done, f"pod/{name}", "--timeout=30s").returncode == 0
    shown = kubectl("logs", name).stdout.splitlines()
    assert shown[0] == "waiting" and shown[-1] == "on"
