"""Situations of Kubernetes' own end-to-end suite on simulated nodes: jobs, stateful sets, probes, generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.meta import get_condition
from haru.kube.names import parse_time
from haru.testing import LocalCluster

Obj = dict[str, Any]
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.56"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = UpOptions(profiles=parse_profiles("cpu:1"), listen=("127.0.0.1", 0), dashboard=None)
    with LocalCluster(tmp_path_factory.mktemp("cluster"), options) as running:
        yield running


def pod(name: str, *containers: Obj, **spec: Any) -> Obj:
    body = {"containers": [{"name": "c", "image": AGNHOST, **one} for one in containers or ({},)], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def stored(cluster: LocalCluster, name: str) -> Obj:
    found = cluster.get("Pod", name)
    assert found is not None
    return dict(found)


def test_indexed_job_succeeds_by_its_policy_when_its_containers_end_by_themselves(cluster: LocalCluster) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": BUSYBOX}]}}
    spec = {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededCount": 2}]},
        "template": template,
    }
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "all"}, "spec": spec})
    job = cluster.wait("Job", "all", "Complete", timeout=60)
    complete = get_condition(job, "Complete")
    assert complete is not None and complete["reason"] == "SuccessPolicy"
    assert (job["status"].get("active", 0), job["status"].get("failed", 0)) == (0, 0)


def test_stateful_set_replaces_a_pod_that_the_node_refuses_for_its_port(cluster: LocalCluster) -> None:
    port = {"ports": [{"containerPort": 21017, "hostPort": 21017}]}
    cluster.apply(pod("first", port, nodeName="cpu-0"))
    cluster.wait("Pod", "first", "Ready", timeout=60)
    template = {
        "metadata": {"labels": {"app": "ss"}},
        "spec": {"nodeName": "cpu-0", "containers": [{"name": "c", "image": AGNHOST, **port}]},
    }
    spec = {"serviceName": "ss", "selector": {"matchLabels": {"app": "ss"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "ss"}, "spec": spec})

    def seen() -> set[str]:
        found = cluster.get("Pod", "ss-0")
        if found is not None:
            uids.add(found["metadata"]["uid"])
        return uids if len(uids) > 1 else set()

    uids: set[str] = set()
    cluster.wait_until(seen, timeout=60, what="the pod is made anew")
    cluster.delete("Pod", "first")
    cluster.wait("Pod", "ss-0", "Ready", timeout=60)


def test_init_containers_of_a_pod_that_never_restarts_run_before_its_end(cluster: LocalCluster) -> None:
    command = {"image": BUSYBOX, "command": ["/bin/true"]}
    init = [{"name": name, **command} for name in ("init1", "init2")]
    cluster.apply(pod("init", command, restartPolicy="Never", initContainers=init))
    done = cluster.wait_until(
        lambda: (found := stored(cluster, "init"))["status"].get("phase") == "Succeeded" and found, timeout=60
    )
    assert isinstance(done, dict)
    codes = [one["state"]["terminated"]["exitCode"] for one in done["status"]["initContainerStatuses"]]
    initialized = get_condition(done, "Initialized")
    assert codes == [0, 0] and initialized is not None and initialized["status"] == "True"


def test_pod_is_ready_no_sooner_than_the_delay_of_its_probe(cluster: LocalCluster) -> None:
    probe = {"httpGet": {"path": "/", "port": 80}, "initialDelaySeconds": 30}
    cluster.apply(pod("probed", {"readinessProbe": probe}))
    cluster.wait_until(lambda: stored(cluster, "probed")["status"].get("phase") == "Running", timeout=60)
    ready = get_condition(stored(cluster, "probed"), "Ready")
    assert ready is not None and ready["status"] == "False"
    cluster.advance(31)
    found = cluster.wait("Pod", "probed", "Ready", timeout=60)
    condition = get_condition(found, "Ready")
    started = found["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert condition is not None
    assert (parse_time(condition["lastTransitionTime"]) - parse_time(started)).total_seconds() >= 30
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


def test_observed_generation_follows_each_update_of_the_spec(cluster: LocalCluster) -> None:
    cluster.apply(pod("generation", initContainers=[{"name": "init", "image": BUSYBOX}]))
    cluster.wait("Pod", "generation", "Ready", timeout=60)
    updates: list[tuple[Obj, bool]] = [
        ({"spec": {"tolerations": [{"key": "foo", "operator": "Exists"}]}}, True),
        ({"spec": {"activeDeadlineSeconds": 5000}}, True),
        ({"spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}, True),
        ({"spec": {"initContainers": [{"name": "init", "image": "pause:3"}]}}, True),
        ({"metadata": {"annotations": {"key": "value"}}}, False),
    ]
    generation = 1
    for patch, bumps in updates:
        live = stored(cluster, "generation")
        merged = {**live["spec"], **{k: v for k, v in patch.get("spec", {}).items() if not k.endswith("ontainers")}}
        for member in ("containers", "initContainers"):
            if member in patch.get("spec", {}):
                merged[member] = [{**live["spec"][member][0], **patch["spec"][member][0]}]
        given = [*live["spec"].get("tolerations", ()), *patch.get("spec", {}).get("tolerations", ())]
        merged["tolerations"] = given
        body = {"spec": merged, **({"metadata": patch["metadata"]} if "metadata" in patch else {})}
        cluster.patch("Pod", "generation", body)
        generation += bumps
        cluster.wait_until(
            lambda wanted=generation: stored(cluster, "generation")["status"].get("observedGeneration") == wanted,  # type: ignore[misc]
            timeout=30,
            what=f"generation {generation} is observed",
        )
        assert stored(cluster, "generation")["metadata"]["generation"] == generation
    conditions = stored(cluster, "generation")["status"]["conditions"]
    assert {one["observedGeneration"] for one in conditions if one["type"] == "Ready"} == {generation}


def test_deployment_with_a_missing_image_keeps_its_pods_waiting(cluster: LocalCluster) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "webserver:404"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})

    def reason() -> str:
        pods = cluster.list("Pod", "default", labels="app=web")
        statuses = [one for found in pods for one in found["status"].get("containerStatuses") or ()]
        return next((one["state"].get("waiting", {}).get("reason", "") for one in statuses), "")

    cluster.wait_until(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"), timeout=60)
    deployment = cluster.get("Deployment", "web") or {}
    assert deployment["status"].get("readyReplicas", 0) == 0


ONCE = "if [[ -r /data/foo ]]; then rm /data/foo; exit 0; else touch /data/foo; exit 42; fi"


def applied_until(cluster: LocalCluster, body: Obj, phase: str) -> Obj:
    """The status of a new pod once it is in this phase."""
    name = body["metadata"]["name"]
    cluster.apply(body)
    cluster.wait_until(lambda: stored(cluster, name)["status"].get("phase") == phase, what=f"{name} is {phase}")
    return dict(stored(cluster, name)["status"])


def sharing(name: str, volume: Obj, script: str, **spec: Any) -> Obj:
    mounts = [{"name": "v", "mountPath": "/data"}]
    container = {"image": BUSYBOX, "command": ["sh", "-c", script], "volumeMounts": mounts}
    return pod(name, container, restartPolicy="Never", volumes=[{"name": "v", **volume}], **spec)


def test_pod_finds_what_one_before_it_has_left_in_a_directory_of_the_node(cluster: LocalCluster) -> None:
    directory: Obj = {"hostPath": {"path": "/tmp/once", "type": "DirectoryOrCreate"}}
    for name, expected in (("once-1", "Failed"), ("once-2", "Succeeded"), ("once-3", "Failed")):
        applied_until(cluster, sharing(name, directory, ONCE, nodeName="cpu-0"), expected)
    elsewhere: Obj = {"hostPath": {"path": "/tmp/elsewhere", "type": "DirectoryOrCreate"}}
    applied_until(cluster, sharing("elsewhere", elsewhere, "test -f /data/foo", nodeName="cpu-0"), "Failed")


def test_pod_finds_what_a_deleted_one_has_left_in_a_claim(cluster: LocalCluster) -> None:
    spec = {
        "storageClassName": "simulated",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec})
    claim: Obj = {"persistentVolumeClaim": {"claimName": "data"}}
    script = "[ -f /data/shards ] && exit 1; echo 7 > /data/shards; sleep 1000"
    applied_until(cluster, sharing("writer", claim, script), "Running")
    cluster.delete("Pod", "writer", wait=30)
    script = 'test "$(cat /data/shards)" = 7 || exit 1; trap "echo 8 >> /data/shards; exit 0" TERM; sleep 1000'
    applied_until(cluster, sharing("second", claim, script), "Running")
    cluster.delete("Pod", "second", wait=30)
    reader = sharing("reader", claim, 'test "$(tail -n 1 /data/shards)" = 8 && exit 3')
    status = applied_until(cluster, reader, "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
