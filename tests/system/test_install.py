"""The manifests of `deploy/` on Haru's own server: applied, run as the Deployment says under its role, and removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from system_cluster import pod, request, template

from haru.cli.main import main
from haru_process import Process, Up, free_port, phase, until

Obj = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
ACCOUNT = "system:serviceaccount:haru-system:haru-scheduler"
FLEET_ACCOUNT = "system:serviceaccount:default:fleet"
COMINGS_AND_GOINGS = {"Event", "Lease", "IPAddress", "Endpoints", "EndpointSlice", "ReplicaSet", "Pod", "PodMetrics"}

# Of the Role for the leader, of system:auth-delegator and of extension-apiserver-authentication-reader.
OF_OTHER_ROLES = ("leases", "tokenreviews", "subjectaccessreviews", "configmaps")
RARE = {
    ("get", "pods"): "after a write that failed, or a watch that is behind",
    ("get", "resourceclaims"): "after a write that failed",
    ("delete", "resourceclaims"): "a claim of an extended resource whose pod was not bound",
    ("get", "podgroups"): "after a write that failed",
    ("get", "persistentvolumes"): "a volume that waits for its first consumer",
    ("update", "persistentvolumes"): "a volume that waits for its first consumer",
    ("get", "persistentvolumeclaims"): "a volume that waits for its first consumer",
    ("update", "persistentvolumeclaims"): "a volume that waits for its first consumer",
    ("patch", "events"): "an event that happens again",
    ("list", "jobs"): "only with --backfill",
    ("watch", "jobs"): "only with --backfill",
    ("update", "resourceclaims/binding"): "no request: who changes an allocation is asked for it",
}
"""What a quiet run does not need."""
OF_DEFINITIONS = {("list", "customresourcedefinitions"), ("watch", "customresourcedefinitions")}
OF_OTHER_PROJECTS = {
    *("scheduling.x-k8s.io", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io", "kubeflow.org", "kueue.x-k8s.io"),
    "apiextensions.k8s.io",
}
RARE_OF_FLEET = {
    ("create", "deviceclasses"): "where the class is not there",
    ("get", "resourceslices"): "slices that were there before, or that somebody else has written",
    ("update", "resourceslices"): "a device that fails, or is tainted",
    ("patch", "events"): "an event that happens again",
    ("patch", "nodes"): "a node of a fleet that was there before",
    ("patch", "nodes/status"): "at a heartbeat",
    ("patch", "leases"): "at a heartbeat",
    ("update", "leases"): "when the Lease of the fleet is renewed",
}
# Of the Role for the leader, of system:auth-delegator and of extension-apiserver-authentication-reader.
OF_OTHER_ROLES = ("leases", "tokenreviews", "subjectaccessreviews", "configmaps")
TENANT = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: haru-tenant}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
"""


class Cluster:
    """A `haru up` whose audit log tells who asked for what."""

    def __init__(self, home: Path, kubectl: str) -> None:
        self.home, self._kubectl = home, kubectl
        policy, self.audit = home / "policy.yaml", home / "audit.log"
        rules = [
            {"level": "Metadata", "users": [ACCOUNT, FLEET_ACCOUNT], "omitStages": ["RequestReceived"]},
            {"level": "None"},
        ]
        policy.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        flags = [
            "--profile",
            "dgx-h100:1,cpu:1",
            "--ephemeral",
            "--no-dashboard",
            "--no-usage-history",
            "--no-explain-api",
        ]
        self.up = Up(
            home, *flags, "--no-explain-api", "--audit-policy-file", str(policy), "--audit-log-path", str(self.audit)
        )
        self.api = self.up.api
        until("the metrics of the nodes are served", self._measured)

    def _measured(self) -> bool:
        """Whether the server has registered its metrics.k8s.io, which it does after its start."""
        code, listed = self.api.call("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
        return code == 200 and len(listed["items"]) == 2

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        answer = self.up.kubectl(self._kubectl, *arguments, stdin=stdin)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def account(self, name: str, namespace: str = "haru-system") -> Path:
        """A kubeconfig with a token of a ServiceAccount."""
        config = yaml.safe_load(self.up.kubeconfig.read_text())
        token = self.kubectl("create", "token", name, "-n", namespace).strip()
        config["users"][0]["user"] = {"token": token}
        file = self.home / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def inventory(self) -> set[tuple[str, str, str]]:
        """Kind, namespace and name of everything that does not come and go by itself."""
        groups = self.api.call("GET", "/apis")[1]["groups"]
        paths = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        found = set()
        for path in paths:
            for resource in self.api.call("GET", path)[1]["resources"]:
                if "list" in resource["verbs"] and resource["kind"] not in COMINGS_AND_GOINGS:
                    code, listed = self.api.call("GET", f"{path}/{resource['name']}")
                    for obj in listed["items"] if code == 200 else ():
                        metadata = obj["metadata"]
                        found.add((resource["kind"], metadata.get("namespace", ""), metadata["name"]))
        return found

    def available(self) -> bool:
        """Whether both replicas of the Deployment are."""
        status = self.api.get("deployments", "haru-scheduler", "haru-system").get("status", {})
        return bool(status.get("availableReplicas") == 2)

    def asked(self, account: str) -> tuple[set[tuple[str, str]], list[str]]:
        """What an account asked for as (verb, resource), and what it was refused."""
        asked, refused = set(), []
        for line in self.audit.read_text().splitlines():
            event = json.loads(line)
            about = event.get("objectRef")
            if about is None or event["user"]["username"] != account:
                continue
            resource = "/".join(part for part in (about["resource"], about.get("subresource", "")) if part)
            if account != ACCOUNT or resource not in OF_OTHER_ROLES:
                asked.add((event["verb"], resource))
            if event["annotations"]["authorization.k8s.io/decision"] != "allow":
                refused.append(f"{event['verb']} {resource}")
        return asked, refused

    def run_scheduler(self) -> tuple[Process, int]:
        """The process of the Deployment's command, with its ConfigMap and a token of its ServiceAccount."""
        deployment = self.api.get("deployments", "haru-scheduler", "haru-system")
        configuration = self.home / "scheduler.yaml"
        configuration.write_text(self.api.get("configmaps", "haru-scheduler", "haru-system")["data"]["scheduler.yaml"])
        port = free_port()
        replaced = {
            "--config=/etc/haru/scheduler.yaml": f"--config={configuration}",
            "--secure-port=10259": f"--secure-port={port}",
        }
        program, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
        assert program == "haru" and set(replaced) <= set(arguments)
        arguments = [replaced.get(argument, argument) for argument in arguments]
        kubeconfig = str(self.account("haru-scheduler"))
        return Process(self.home, [*arguments, "--bind-address=127.0.0.1"], "scheduler", KUBECONFIG=kubeconfig), port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kubectl: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("install"), kubectl)
    yield made
    made.up.stop()


def https(port: int, path: str, token: str = "") -> tuple[int, str]:
    command = ["curl", "-sk", "-w", "\n%{http_code}", f"https://127.0.0.1:{port}{path}"]
    command += ["-H", f"Authorization: Bearer {token}"] if token else []
    body, _, code = subprocess.run(command, capture_output=True, text=True, check=False).stdout.rpartition("\n")
    return int(code or 0), body


def gang() -> list[Obj]:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    members = [pod(f"train-{n}", "train", template="one", schedulerName="haru") for n in range(2)]
    return [template("one", request()), template("all", request(count=8)), group, *members]


def granted(role_of: str = "scheduler") -> set[tuple[str, str]]:
    role = yaml.safe_load((DEPLOY / "chart" / "roles" / f"{role_of}.yaml").read_text())
    # Objects of other projects: read where their definitions are.
    rules = [rule for rule in role["rules"] if not set(rule["apiGroups"]) & OF_OTHER_PROJECTS]
    found = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    return {one for one in found if role_of != "scheduler" or one[1] not in OF_OTHER_ROLES}


def running(cluster: Cluster, prefix: str, count: int) -> bool:
    found = [p for p in cluster.api.list("pods", "default") if p["metadata"]["name"].startswith(prefix)]
    return [phase(p) for p in found].count("Running") == count


def test_applied_scheduler_needs_exactly_its_role_and_leaves_nothing(cluster: Cluster) -> None:
    before = cluster.inventory()
    cluster.kubectl("apply", "-k", str(DEPLOY / "overlays" / "second-scheduler"))
    until("pods of the Deployment run", cluster.available)
    scheduler, port = cluster.run_scheduler()
    try:
        for obj in gang():
            cluster.api.create(obj, "default")
        until("the gang runs", lambda: running(cluster, "train", 2))
        by_limit = pod("by-limit", schedulerName="haru")
        by_limit["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        cluster.api.create(by_limit, "default")
        until("the pod with a limit runs", lambda: running(cluster, "by-limit", 1))
        urgent = pod("urgent", template="all", schedulerName="haru", priorityClassName="system-cluster-critical")
        cluster.api.create(urgent, "default")
        until("the urgent pod runs after evictions", lambda: running(cluster, "urgent", 1))
        assert https(port, "/readyz") == (200, "ok")
        assert https(port, "/metrics")[0] == https(port, "/configz")[0] == 403
        assert "scheduler_schedule_attempts_total" in https(port, "/metrics", cluster.api.token)[1]
        shown = json.loads(https(port, "/configz", cluster.api.token)[1])["componentconfig"]
        assert shown["kind"] == "KubeSchedulerConfiguration"
    finally:
        assert scheduler.stop() == 0, scheduler.log.read_text()
    asked, refused = cluster.asked(ACCOUNT)
    asked.discard(("create", "selfsubjectaccessreviews"))  # every account may ask what it may do
    assert refused == []
    assert asked - OF_DEFINITIONS <= granted()
    assert granted() - asked <= set(RARE), "granted, but not needed"
    for obj in ("podgroup/train", "pod/urgent", "resourceclaimtemplate/one", "resourceclaimtemplate/all"):
        cluster.kubectl("delete", obj, "--ignore-not-found", "--grace-period=0", "--force")
    cluster.kubectl("delete", "-k", str(DEPLOY / "overlays" / "second-scheduler"), "--ignore-not-found")
    until("nothing is left", lambda: cluster.inventory() - before == set(), 60)
    assert before - cluster.inventory() == set()


def command(cluster: Cluster, *arguments: str, kubeconfig: Path | None = None) -> int:
    """A command in this process, whose start costs less."""
    return main([*arguments, "--kubeconfig", str(kubeconfig or cluster.up.kubeconfig)])


def test_install_command_switches_modes_and_removes_everything(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.inventory()
    assert command(cluster, "install", "--dry-run") == 0
    assert "kind: Deployment" in capsys.readouterr().out
    assert cluster.inventory() == before
    assert command(cluster, "install") == 0
    assert "deployment/haru-scheduler in haru-system applied" in capsys.readouterr().out
    first = cluster.inventory()
    assert command(cluster, "install", "--mode=default-scheduler", "--image=mirror.example/haru:test") == 0
    assert first - cluster.inventory() == {
        ("Role", "haru-system", "haru-scheduler-leader"),
        ("RoleBinding", "haru-system", "haru-scheduler-leader"),
    }
    template = cluster.api.get("deployments", "haru-scheduler", "haru-system")["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "mirror.example/haru:test"
    assert command(cluster, "install", "--remove", "--wait=60s") == 0
    assert cluster.inventory() == before


def test_install_without_rights_names_them_and_writes_nothing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.inventory()
    assert command(cluster, "install", kubeconfig=cluster.account("default", "default")) == 1
    refusal = "error: you may not create clusterroles.rbac.authorization.k8s.io: ask for this right"
    assert refusal in capsys.readouterr().err
    assert cluster.inventory() == before


def test_dashboard_mode_reads_everything_with_its_role(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(cluster, "install", "--mode=dashboard") == 0
    try:
        cluster.api.create(pod("large", schedulerName="nobody"), "default")
        capsys.readouterr()
        command(cluster, "explain", "pod/large", kubeconfig=cluster.account("haru-dashboard"))
        answer = capsys.readouterr()
        assert "nobody" in answer.out
        assert "not allowed" not in answer.out + answer.err
    finally:
        cluster.api.call("DELETE", "/api/v1/namespaces/default/pods/large?gracePeriodSeconds=0")
        assert command(cluster, "install", "--remove") == 0


@pytest.mark.nightly
def test_explain_publish_mode_annotates_with_its_role(cluster: Cluster) -> None:
    assert command(cluster, "install", "--mode=explain-publish") == 0
    flags = ("--publish", "--leader-elect-resource-namespace=haru-system")
    kubeconfig = str(cluster.account("haru-explain-publisher"))
    publisher = Process(cluster.home, ["explain", *flags, "--kubeconfig", kubeconfig], "publisher")
    try:
        publisher.line()
        cluster.api.create(pod("large", schedulerName="nobody"), "default")

        def annotated() -> bool:
            [found] = [obj for obj in cluster.api.list("pods", "default") if obj["metadata"]["name"] == "large"]
            return "explain.haru.dev/explanation" in (found["metadata"].get("annotations") or {})

        until("the pod is annotated", annotated)
        until("there is an event", lambda: "SchedulingExplained" in str(cluster.api.list("events", "default")))
    finally:
        assert publisher.stop() == 0, publisher.log.read_text()
        cluster.api.call("DELETE", "/api/v1/namespaces/default/pods/large?gracePeriodSeconds=0")
        assert command(cluster, "install", "--remove") == 0
    _, refused = cluster.asked("system:serviceaccount:haru-system:haru-explain-publisher")
    assert refused == []


def fleet_slices(cluster: Cluster) -> list[Obj]:
    found = cluster.api.list("resourceslices")
    return [obj for obj in found if obj["spec"].get("nodeName", "").startswith("fleet-")]


def test_fleet_needs_no_more_than_its_role(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY / "chart" / "roles" / "fleet.yaml"))
    cluster.kubectl("create", "serviceaccount", "fleet", "-n", "default")
    cluster.kubectl(
        "create", "clusterrolebinding", "fleet", "--clusterrole=haru-fleet", "--serviceaccount=default:fleet"
    )
    kubeconfig = str(cluster.account("fleet", "default"))
    flags = ("--profile", "dgx-h100:1", "--name-prefix", "fleet-", "--delete-at-exit", "--no-taint")
    fleet = Process(cluster.home, ["fleet", *flags, "--kubeconfig", kubeconfig], "fleet")
    try:
        fleet.line()
        node = {"kubernetes.io/hostname": "fleet-dgx-h100-0"}
        made = pod("on-fleet", nodeSelector=node, nodeName="fleet-dgx-h100-0")
        # A pod that asks for a Service: only then they are watched.
        made["spec"]["containers"][0]["command"] = ["sh", "-c", "nslookup kubernetes; sleep 1000"]
        cluster.kubectl("create", "configmap", "told", "-n", "default")
        made["spec"]["volumes"] = [{"name": "told", "configMap": {"name": "told"}}]
        cluster.api.create(made, "default")
        until("the pod runs", lambda: running(cluster, "on-fleet", 1))
        until("devices are published", lambda: fleet_slices(cluster))
        # No scheduler sees this pod: its events are the kubelet's.
        query = "fieldSelector=involvedObject.name=on-fleet"
        until("the pod's events are written", lambda: cluster.api.list("events", "default", query))
    finally:
        assert fleet.stop() == 0, fleet.log.read_text()
    asked, refused = cluster.asked(FLEET_ACCOUNT)
    assert refused == []
    assert asked <= granted("fleet")
    assert granted("fleet") - asked <= set(RARE_OF_FLEET), "granted, but not needed"
    for obj in ("clusterrolebinding/fleet", "clusterrole/haru-fleet", "serviceaccount/fleet", "configmap/told"):
        cluster.kubectl("delete", obj, "-n", "default")


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace", "allowed"),
    [
        ("create", "resource.k8s.io", "resourceclaims", "team", True),
        ("create", "scheduling.k8s.io", "podgroups", "team", True),
        ("create", "scheduling.k8s.io", "podgroups", "default", False),
        ("update", "resource.k8s.io", "resourceclaims/status", "team", False),
        ("list", "", "nodes", "", False),
        ("create", "resource.k8s.io", "deviceclasses", "", False),
    ],
)
def test_tenant_may_claim_devices_in_its_namespace_only(
    cluster: Cluster, verb: str, group: str, resource: str, namespace: str, allowed: bool
) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY / "chart" / "roles" / "tenant.yaml"), "-f", "-", stdin=TENANT)
    name, _, subresource = resource.partition("/")
    about = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": "alice", "resourceAttributes": about}
    assert cluster.api.create({**review, "metadata": {}, "spec": spec})["status"]["allowed"] is allowed
