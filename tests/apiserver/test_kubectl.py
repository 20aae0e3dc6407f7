"""The real kubectl, unmodified, against the server over TLS."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from kubectl_runner import Kubectl, require_kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


def config_map(value: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cm}}\ndata: {{k: '{value}'}}\n"


pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    require_kubectl()
    running = Kubectl(tmp_path_factory.mktemp("kubectl"))
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def kubectl(server: Kubectl, tmp_path: Path) -> Kubectl:
    """One server for all, a namespace for each."""
    return await server.in_namespace(tmp_path, f"test-{next(_numbers)}")


async def test_kubectl_version_and_discovery(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36." in await kubectl.ok("version")
    resources = await kubectl.ok("api-resources")
    for line in ("pods", "resourceclaims", "podgroups", "deviceclasses"):
        assert line in resources
    assert "resource.k8s.io/v1" in (await kubectl.ok("api-versions")).split()
    assert "Kubernetes control plane" in await kubectl.ok("cluster-info")


async def test_kubectl_explain(kubectl: Kubectl) -> None:
    text = await kubectl.ok("explain", "pod.spec.containers.resources.claims")
    assert "-required-" in text and "request" in text
    assert "ResourceClaim" in await kubectl.ok("explain", "resourceclaims", "--api-version=resource.k8s.io/v1")
    older = await kubectl.ok("explain", "pod.spec.containers.resources.claims", "--output=plaintext-openapiv2")
    assert "-required-" in older and "request" in older


async def test_kubectl_client_side_apply(kubectl: Kubectl) -> None:
    assert "created" in await kubectl.ok("apply", "-f", "-", input=DEPLOYMENT)
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", input=DEPLOYMENT)
    changed = DEPLOYMENT.replace("nginx:1", "nginx:2").replace("replicas: 2", "replicas: 3")
    diff = await kubectl.run("diff", "-f", "-", input=changed)
    assert diff.code == 1 and "+  replicas: 3" in diff.out
    assert (await kubectl.run("diff", "-f", "-", input=DEPLOYMENT)).code == 0
    assert "configured" in await kubectl.ok("apply", "-f", "-", input=changed)
    assert await kubectl.ok("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "3"
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", "--dry-run=server", input=changed)


BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader}
spec: {leaseDurationSeconds: 15}
"""


async def test_kubectl_replaces_versioned_objects_with_and_without_version(kubectl: Kubectl) -> None:
    """It reads the version first where a file names none."""
    assert "created" in await kubectl.ok("apply", "-f", "-", input=BUDGET)
    other = BUDGET.replace("minAvailable: 1", "minAvailable: 2").replace("Seconds: 15", "Seconds: 30")
    replaced = await kubectl.ok("replace", "-f", "-", input=other)
    assert "poddisruptionbudget.policy/web replaced" in replaced and "lease.coordination.k8s.io/leader" in replaced
    assert await kubectl.ok("get", "pdb", "web", "-o", "jsonpath={.spec.minAvailable}") == "2"
    assert (await kubectl.ok("apply", "-f", "-", input=BUDGET)).count("configured") == 2
    forced = await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", input=other)
    assert forced.count("serverside-applied") == 2


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
SPENT = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}


async def test_kubectl_drain_blocked_by_budget_ends_at_timeout(kubectl: Kubectl) -> None:
    """With a time to come back kubectl repeats the eviction ten times before it looks at its own patience."""
    await kubectl.ok("apply", "-f", "-", input=BUDGET)
    node = f"drained-{kubectl.namespace}"
    await kubectl.ok("apply", "-f", "-", input=NODE.replace("n1", node))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}
    pod["spec"] = {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]}
    await kubectl.ok("apply", "-f", "-", input=json.dumps(pod))
    for kind, status in (("pod", READY), ("pdb", SPENT)):
        patch = ("patch", kind, "web", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        await kubectl.ok(*patch)
    before = time.monotonic()
    drained = await kubectl.run("drain", node, "--force", "--timeout=8s", timeout=120)
    assert drained.code == 1
    assert "violate the pod's disruption budget" in drained.err
    assert time.monotonic() - before > 7


async def test_kubectl_server_side_apply(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", input=config_map("1"))
    assert "serverside-applied" in await kubectl.ok("apply", "--server-side", "-f", "-", input=config_map("1b"))
    last = "jsonpath={.metadata.annotations.kubectl\\.kubernetes\\.io/last-applied-configuration}"
    assert '"data":{"k":"1b"}' in await kubectl.ok("get", "cm", "cm", "-o", last)
    await kubectl.ok("patch", "cm", "cm", "--type=merge", "-p", '{"data": {"k": "1c"}}')
    conflict = await kubectl.run("apply", "--server-side", "-f", "-", input=config_map("2"))
    assert conflict.code == 1 and 'conflict with "kubectl-patch"' in conflict.err
    forced = await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", input=config_map("2"))
    assert "serverside-applied" in forced
    assert await kubectl.ok("get", "cm", "cm", "-o", "jsonpath={.data.k}") == "2"
    shown = await kubectl.ok("get", "cm", "cm", "-o", "yaml", "--show-managed-fields")
    assert "operation: Apply" in shown


async def test_kubectl_reports_mistakes(kubectl: Kubectl) -> None:
    wrong = await kubectl.run("apply", "-f", "-", input=config_map("1").replace("\ndata:", "\ndta:"))
    assert wrong.code == 1 and 'unknown field "dta"' in wrong.err
    missing = await kubectl.run("get", "pod", "none")
    assert missing.err.strip() == 'Error from server (NotFound): pods "none" not found'
    taken = await kubectl.run("create", "ns", "default")
    assert 'namespaces "default" already exists' in taken.err
    invalid = await kubectl.run(
        "create", "-f", "-", input=DEPLOYMENT.replace("app: web}}\n    spec", "app: x}}\n    spec")
    )
    assert invalid.code == 1 and "selector" in invalid.err


CREATED = {
    "deployment d --image=nginx --replicas=2": "deploy/d",
    "configmap c --from-literal=a=b": "cm/c",
    "namespace made": "ns/made",
    "secret generic s --from-literal=a=b": "secret/s",
    "secret docker-registry sd --docker-server=r --docker-username=u --docker-password=p": "secret/sd",
    "serviceaccount a": "sa/a",
    "job j --image=busybox": "job/j",
    "cronjob c --image=busybox --schedule=@daily": "cronjob/c",
    "role r --verb=get --resource=pods": "role/r",
    "rolebinding b --role=r --user=jane": "rolebinding/b",
    "clusterrole cr --verb=get --resource=pods": "clusterrole/cr",
    "clusterrolebinding b --clusterrole=view --group=nobody": "clusterrolebinding/b",
    "clusterrole agg --aggregation-rule=a=b": "clusterrole/agg",
    "quota q --hard=pods=3": "quota/q",
    "ingress i --rule=a.b/c=svc:80": "ingress/i",
    "pdb p --selector=app=x --min-available=1": "pdb/p",
    "priorityclass pc --value=1000": "pc/pc",
    "service clusterip s --tcp=80": "svc/s",
    "service nodeport sn --tcp=80": "svc/sn",
    "service loadbalancer sl --tcp=80": "svc/sl",
    "service externalname se --external-name=a.example": "svc/se",
}


async def test_kubectl_create_sends_protobuf(kubectl: Kubectl) -> None:
    outputs = await asyncio.gather(*(kubectl.ok("create", *command.split()) for command in CREATED))
    assert [command for command, output in zip(CREATED, outputs, strict=True) if "created" not in output] == []
    names = (await kubectl.ok("get", *CREATED.values(), "-o", "name")).split()
    assert len(names) == len(CREATED)
    spread = [name for name in CREATED.values() if name.startswith(("cluster", "pc/", "ns/"))]
    assert (await kubectl.ok("delete", "--wait=false", *spread)).count("deleted") == len(spread)


async def test_kubectl_get_output_formats(kubectl: Kubectl) -> None:
    await kubectl.ok("run", "p", "--image=busybox", "--labels=app=x")
    wide = (await kubectl.ok("get", "pods", "-o", "wide")).splitlines()
    assert wide[0].split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert wide[1].split()[:3] == ["p", "0/1", "Pending"]
    assert json.loads(await kubectl.ok("get", "pods", "-o", "json"))["kind"] == "List"
    assert "kind: Pod" in await kubectl.ok("get", "pod", "p", "-o", "yaml")
    assert await kubectl.ok("get", "pods", "-l", "app=x", "-o", "name") == "pod/p\n"
    assert (await kubectl.run("get", "pods", "-l", "app=y")).err.startswith("No resources found")
    assert kubectl.namespace in await kubectl.ok("get", "pods", "-A")
    assert await kubectl.ok("get", "pods", "--field-selector=status.phase=Pending", "-o", "name")
    assert "kube-system" in await kubectl.ok("get", "ns", "--sort-by=.metadata.name", "--chunk-size=1")
    columns = await kubectl.ok("get", "pods", "-o", "custom-columns=N:.metadata.name")
    assert columns.split() == ["N", "p"]
    described = await kubectl.ok("describe", "pod", "p")
    assert "QoS Class:" in described and "Tolerations:" in described


async def test_kubectl_get_watch(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "cm", "first")
    process = await kubectl.spawn("get", "cm", "-w")
    assert process.stdout is not None

    async def line() -> list[str]:
        assert process.stdout is not None
        return (await asyncio.wait_for(process.stdout.readline(), 10)).decode().split()

    assert await line() == ["NAME", "DATA", "AGE"]
    assert (await line())[0] == "first"
    await kubectl.ok("create", "cm", "second", "--from-literal=a=b")
    assert (await line())[:2] == ["second", "1"]
    process.kill()
    await process.communicate()


async def test_kubectl_label_edit_scale_and_replace(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", input=DEPLOYMENT)
    assert "labeled" in await kubectl.ok("label", "deploy", "web", "a=b")
    assert "annotated" in await kubectl.ok("annotate", "deploy", "web", "a=b")
    assert "labeled" in await kubectl.ok("label", "deploy", "web", "a-")
    assert "scaled" in await kubectl.ok("scale", "deploy", "web", "--replicas=5")
    assert await kubectl.ok("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "5"
    await kubectl.ok("set", "image", "deploy/web", "web=nginx:9")
    await kubectl.ok("patch", "deploy", "web", "-p", '{"spec":{"replicas":1}}')
    await kubectl.ok("patch", "deploy", "web", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    replace = '[{"op":"replace","path":"/spec/replicas","value":3}]'
    await kubectl.ok("patch", "deploy", "web", "--type=json", "-p", replace)
    await kubectl.ok("patch", "deploy", "web", "--subresource=status", "-p", '{"status":{"replicas":1}}')
    got = json.loads(await kubectl.ok("get", "deploy", "web", "-o", "json"))
    assert (got["spec"]["replicas"], got["status"]["replicas"]) == (3, 1)
    assert got["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:9"
    assert "exposed" in await kubectl.ok("expose", "deploy", "web", "--port=80")
    assert "autoscaled" in await kubectl.ok("autoscale", "deploy", "web", "--max=3")
    assert "no changes made" in (await kubectl.run("edit", "deploy", "web")).err
    assert "replaced" in await kubectl.ok("replace", "--force", "-f", "-", input=DEPLOYMENT)


async def test_kubectl_delete_waits(kubectl: Kubectl) -> None:
    await kubectl.ok("run", "p", "--image=busybox")
    assert 'pod "p" deleted' in await kubectl.ok("delete", "pod", "p", "--timeout=60s")
    assert "No resources found" in (await kubectl.run("get", "pods")).err
    for policy in ("background", "orphan", "foreground"):
        await kubectl.ok("create", "cm", policy)
        await kubectl.ok("delete", "cm", policy, f"--cascade={policy}", "--wait=false")
    left = (await kubectl.ok("get", "cm", "-o", "name")).split()
    assert left == ["configmap/foreground", "configmap/orphan"], "the garbage collector does not run here"
    await kubectl.ok("wait", "--for=delete", "pod/p", "--timeout=60s")


async def test_kubectl_auth_can_i(kubectl: Kubectl) -> None:
    assert await kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
    refused = await kubectl.run("auth", "can-i", "create", "pods", config="jane")
    assert (refused.code, refused.out) == (1, "no\n")
    assert "jane" in await kubectl.ok("auth", "whoami", config="jane")
    assert "Forbidden" in (await kubectl.run("get", "pods", config="jane")).err
    assert "*.*" in await kubectl.ok("auth", "can-i", "--list")
    await kubectl.ok("create", "rolebinding", "v", "--clusterrole=system:aggregate-to-view", "--user=jane")
    assert await kubectl.ok("auth", "can-i", "list", "pods", config="jane") == "yes\n"


async def test_kubectl_create_token(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "sa", "robot")
    token = (await kubectl.ok("create", "token", "robot", "--duration=1h")).strip()
    assert token.count(".") == 2
    plain = (kubectl.directory / "config").read_text().splitlines()
    (kubectl.directory / "robot").write_text("\n".join([*plain[:-1], f"    token: {token}"]) + "\n")
    who = await kubectl.ok("auth", "whoami", config="robot")
    assert f"system:serviceaccount:{kubectl.namespace}:robot" in who


async def test_kubectl_cordon_drain_and_describe_node(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", input=NODE)
    assert "cordoned" in await kubectl.ok("cordon", "n1")
    assert "SchedulingDisabled" in await kubectl.ok("get", "nodes")
    assert "uncordoned" in await kubectl.ok("uncordon", "n1")
    assert "tainted" in await kubectl.ok("taint", "node", "n1", "a=b:NoSchedule")
    body = {"spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0}}
    await kubectl.ok("run", "p", "--image=busybox", f"--overrides={json.dumps(body)}")
    drained = await kubectl.ok("drain", "n1", "--force", "--timeout=60s")
    assert "pod/p evicted" in drained and "node/n1 drained" in drained
    assert "Name:               n1" in await kubectl.ok("describe", "node", "n1")


async def test_kubectl_logs_and_events(kubectl: Kubectl) -> None:
    await kubectl.ok("run", "p", "--image=busybox")
    assert await kubectl.ok("logs", "p") == ""
    assert "No events found" in (await kubectl.run("events")).err


async def test_kubectl_certificates_and_claims(kubectl: Kubectl) -> None:
    manifest = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.example.com"'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu}
"""
    await kubectl.ok("apply", "-f", "-", input=manifest)
    assert "pending" in await kubectl.ok("get", "resourceclaims")
    assert "gpu" in await kubectl.ok("get", "deviceclasses")
    bad = manifest.replace("device.driver ==", "device.drvr ==").replace(
        "name: gpu}\nspec:\n  sel", "name: x}\nspec:\n  sel"
    )
    refused = await kubectl.run("apply", "-f", "-", input=bad)
    assert refused.code == 1 and "compilation failed" in refused.err


TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"""


async def test_kubectl_repeated_apply_changes_nothing(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every order of the two ways to apply, with defaults in lists and with what the server adds."""
    job = """
apiVersion: batch/v1
kind: Job
metadata: {labels: {a: b}, name: j}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}
"""
    both = f"{TEMPLATE}---{job}"
    version = ("get", "job/j", "resourceclaimtemplate/t", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
    for _ in range(2):  # the first update of a Job writes what reading has filled in, as in 1.36
        await kubectl.ok("apply", "--server-side", "-f", "-", input=both)
    first = await kubectl.ok(*version)
    monkeypatch.setattr(kubectl.app.objects, "clock", lambda: datetime.now(UTC) + timedelta(minutes=1))
    await kubectl.ok("apply", "--server-side", "-f", "-", input=both)
    assert await kubectl.ok(*version) == first
    assert (await kubectl.run("diff", "--server-side", "-f", "-", input=both)).code == 0
    await kubectl.ok("delete", "job/j", "--cascade=orphan", "--wait=false")
    await kubectl.ok("apply", "-f", "-", input=job.replace("name: j}", "name: k}"))
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", input=job.replace("name: j}", "name: k}"))
    moved = await kubectl.ok("apply", "--server-side", "-f", "-", input=job.replace("name: j}", "name: k}"))
    assert "serverside-applied" in moved


async def test_kubectl_shows_warnings(kubectl: Kubectl) -> None:
    old = TEMPLATE.replace("/v1\n", "/v1beta1\n").replace("exactly: {deviceClassName: gpu}", "deviceClassName: gpu")
    applied = await kubectl.run("apply", "-f", "-", input=old)
    assert (
        applied.code == 0
        and "Warning: resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+" in applied.err
    )
    typo = config_map("1").replace("\ndata:", "\ndta:")
    warned = await kubectl.run("create", "--validate=warn", "-f", "-", input=typo)
    assert warned.code == 0 and 'Warning: unknown field "dta"' in warned.err
    silent = await kubectl.run("replace", "--validate=false", "-f", "-", input=typo)
    assert (silent.code, silent.err) == (0, "")


async def test_kubectl_describe(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", input=DEPLOYMENT)
    await kubectl.ok("expose", "deploy", "web", "--port=80")
    described = await kubectl.ok("describe", "deploy,svc,resourceclaims,podgroups,jobs,secrets,ingresses,hpa,pdb,quota")
    for text in ("StrategyType:", "Endpoints:"):
        assert text in described


async def test_kubectl_debug_adds_ephemeral_container(kubectl: Kubectl) -> None:
    await kubectl.ok("run", "p", "--image=busybox")
    await kubectl.ok("debug", "p", "--image=busybox", "--container=look", "--profile=general", "--", "sh")
    names = "jsonpath={.spec.ephemeralContainers[*].name}"
    assert await kubectl.ok("get", "pod", "p", "-o", names) == "look"
