"""The official Python client, unmodified, against a running cluster: typed and dynamic."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from system_cluster import deployment, job, pod, request, template

from haru.kube.meta import get_condition
from haru_process import Up, phase, until

kubernetes = pytest.importorskip("kubernetes")
Obj = dict[str, Any]

# One object of each kind that no controller makes.
MORE_KINDS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {plural: things, kind: Thing}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}], selector: {a: b}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p},
 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: p},
 spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /tmp}}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: "100"}}}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: r},
 spec: {replicas: 0, selector: {a: b}, template: {metadata: {labels: {a: b}},
        spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: e}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s},
 spec: {serviceName: s, replicas: 0, selector: {matchLabels: {a: b}},
        template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d},
 spec: {selector: {matchLabels: {a: b}},
        template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: c},
 spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never,
        containers: [{name: c, image: i}]}}}}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h},
 spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: p},
 spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i},
 spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: n}, spec: {podSelector: {}}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: i}, spec: {controller: example.com/i}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: e}, addressType: IPv4,
 endpoints: [{addresses: [10.0.0.1]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r},
 rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: default}]}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: s}, provisioner: example.com/p}
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: d.example.com}, spec: {}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: r}, handler: runc}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: p}, value: 7}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: r},
 spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
{apiVersion: resource.k8s.io/v1beta2, kind: DeviceTaintRule, metadata: {name: t},
 spec: {deviceSelector: {driver: none.example.com}, taint: {key: k, value: v, effect: NoSchedule}}}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("python-client"), "--ephemeral")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def client(up: Up) -> Iterator[Any]:
    made = kubernetes.config.new_client_from_config(str(up.kubeconfig))
    yield made
    made.rest_client.pool_manager.clear()
    made.close()
    gc.collect()


@pytest.fixture(scope="module")
def dynamic(client: Any) -> Any:
    return kubernetes.dynamic.DynamicClient(client)


def refusal(call: Any, *args: Any, **kwargs: Any) -> tuple[int, Obj]:
    with pytest.raises(kubernetes.client.ApiException) as caught:
        call(*args, **kwargs)
    return caught.value.status, json.loads(caught.value.body)


def test_every_list_satisfies_strict_client_models(up: Up, client: Any) -> None:
    api = up.api
    api.create(template("one", request()), "default")
    api.create(deployment("web", 2, template="one"), "default")
    api.create(job("train", 2, template="one"), "default")
    until("all pods run", lambda: [phase(p) for p in api.list("pods", "default")] == ["Running"] * 4)
    for obj in yaml.safe_load_all(MORE_KINDS):
        api.create(obj, "default")
    checked, empty, unknown = [], [], []
    for path, resource in _listable(api):
        name = f"{resource['kind']} {path}"
        models = _models(path, resource["kind"])
        if not models:
            unknown.append(name)
            continue
        code, listed = api.call("GET", path)
        assert (code, listed["kind"]) == (200, f"{resource['kind']}List")
        model = getattr(kubernetes.client.models, models[0])
        parsed = (
            model.from_dict(listed) if hasattr(model, "from_dict") else client._ApiClient__deserialize(listed, model)
        )
        assert len(parsed.items) == len(listed["items"])
        (checked if parsed.items else empty).append(name)
    assert len(checked) > 40, checked
    served_behind = {"Explanation", "VisibleExplanation", "NodeMetrics", "PodMetrics"}  # listed when these are there
    assert {n.split()[0] for n in unknown} <= {"PodGroup", "Workload", "Thing", *served_behind}, unknown
    assert {n.split()[0] for n in empty} < _NEVER_MADE, empty


# Kinds of which the cluster holds none, and which nothing here makes.
_NEVER_MADE = {
    "CSINode", "CSIStorageCapacity", "CertificateSigningRequest", "ClusterTrustBundle", "ControllerRevision",
    "FlowSchema", "IPAddress", "LeaseCandidate", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration", "PodCertificateRequest", "PodTemplate", "PriorityLevelConfiguration",
    "ResourcePoolStatusRequest", "ServiceCIDR", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass", "Nothing",
}  # fmt: skip


def _listable(api: Any) -> Iterator[tuple[str, Obj]]:
    services = "/apis/apiregistration.k8s.io/v1/apiservices"

    def all_available() -> bool:
        found = [get_condition(one, "Available") for one in api.call("GET", services)[1]["items"]]
        return all(one and one["status"] == "True" for one in found)

    until("extension servers are there", all_available)
    groups = [("/api/v1", api.call("GET", "/api/v1")[1])]
    for group in api.call("GET", "/apis")[1]["groups"]:
        for version in group["versions"]:
            path = f"/apis/{version['groupVersion']}"
            groups.append((path, api.call("GET", path)[1]))
    for path, listed in groups:
        for resource in listed["resources"]:
            if "list" in resource["verbs"] and "/" not in resource["name"]:
                yield f"{path}/{resource['name']}", resource


def _models(path: str, kind: str) -> list[str]:
    """The client's name for the list of a kind: `V1PodList`, `CoreV1EventList`, ..."""
    parts = path.strip("/").split("/")
    group, version = ("core", parts[1]) if parts[0] == "api" else (parts[1].split(".")[0], parts[2])
    plain = f"{version.capitalize()}{kind}List"
    names = (plain, f"{group.capitalize()}{plain}")
    return [name for name in names if hasattr(kubernetes.client.models, name)]


def test_create_read_update_delete(client: Any) -> None:
    core, k = kubernetes.client.CoreV1Api(client), kubernetes.client
    body = k.V1ConfigMap(metadata=k.V1ObjectMeta(generate_name="made-"), data={"a": "1"})
    made = core.create_namespaced_config_map("default", body)
    name = made.metadata.name
    assert name.startswith("made-") and made.metadata.uid and made.metadata.creation_timestamp.tzinfo
    made.data["a"] = "2"
    replaced = core.replace_namespaced_config_map(name, "default", made)
    assert replaced.metadata.resource_version != made.metadata.resource_version
    code, status = refusal(core.replace_namespaced_config_map, name, "default", made)
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        f'Operation cannot be fulfilled on configmaps "{name}": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )
    core.delete_namespaced_config_map(name, "default", dry_run="All")
    assert core.read_namespaced_config_map(name, "default").data == {"a": "2"}
    core.delete_namespaced_config_map(name, "default")
    code, status = refusal(core.read_namespaced_config_map, name, "default")
    assert (code, status["reason"], status["details"]) == (404, "NotFound", {"name": name, "kind": "configmaps"})
    assert status["message"] == f'configmaps "{name}" not found'


def test_all_patch_types_work(client: Any) -> None:
    core, k = kubernetes.client.CoreV1Api(client), kubernetes.client
    core.create_namespaced_pod("default", k.V1Pod(**_typed_pod(k, "patched")))
    merged = core.patch_namespaced_pod("patched", "default", {"metadata": {"labels": {"x": "1"}}})
    assert merged.metadata.labels["x"] == "1"
    operations = [{"op": "replace", "path": "/metadata/labels/x", "value": "2"}]
    assert core.patch_namespaced_pod("patched", "default", operations).metadata.labels["x"] == "2"
    strategic = {"spec": {"containers": [{"name": "main", "image": "registry.example.com/other:2"}]}}
    patched = core.patch_namespaced_pod("patched", "default", strategic)
    assert [c.image for c in patched.spec.containers] == ["registry.example.com/other:2"]
    code, status = refusal(core.patch_namespaced_pod, "patched", "default", {"spec": {"nodeName": "elsewhere"}})
    assert (code, status["reason"]) == (422, "Invalid")
    assert "pod updates may not change fields other than" in status["message"]
    core.delete_namespaced_pod("patched", "default", grace_period_seconds=0)


def _typed_pod(k: Any, name: str) -> Obj:
    # A node selector that no node has: the pod stays as it is.
    container = k.V1Container(name="main", image="registry.example.com/work:1")
    spec = k.V1PodSpec(containers=[container], node_selector={"nowhere": "true"}, termination_grace_period_seconds=0)
    return {"metadata": k.V1ObjectMeta(name=name), "spec": spec}


def test_server_side_apply_conflicts_are_reported(dynamic: Any) -> None:
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1", "b": "1"}}
    maps.server_side_apply(body, namespace="default", field_manager="one")
    with pytest.raises(kubernetes.dynamic.exceptions.ConflictError) as caught:
        maps.server_side_apply(body | {"data": {"a": "2"}}, namespace="default", field_manager="two")
    assert "conflict with" in json.loads(caught.value.body)["message"]
    forced = maps.server_side_apply(
        body | {"data": {"a": "2"}}, namespace="default", field_manager="two", force_conflicts=True
    )
    assert forced.data.to_dict() == {"a": "2", "b": "1"}
    left = maps.server_side_apply(body | {"data": {}}, namespace="default", field_manager="one")
    assert left.data.to_dict() == {"a": "2"}
    assert {m["manager"] for m in left.metadata.to_dict()["managedFields"]} == {"one", "two"}


def test_watch_from_a_list_delivers_events(client: Any) -> None:
    core, k = kubernetes.client.CoreV1Api(client), kubernetes.client
    start = core.list_namespaced_config_map("default").metadata.resource_version

    def work() -> None:
        body = k.V1ConfigMap(metadata=k.V1ObjectMeta(name="watched"))
        core.create_namespaced_config_map("default", body)
        core.patch_namespaced_config_map("watched", "default", {"data": {"x": "y"}})
        core.delete_namespaced_config_map("watched", "default")

    thread = threading.Thread(target=work)
    watch = kubernetes.watch.Watch()
    seen: list[str] = []
    stream = watch.stream(
        core.list_namespaced_config_map,
        "default",
        resource_version=start,
        field_selector="metadata.name=watched",
        timeout_seconds=10,
    )
    thread.start()
    for event in stream:
        assert event["object"].metadata.name == "watched"
        seen.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    thread.join()
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


def test_watch_from_a_version_to_come_waits_and_tells_nothing(up: Up, client: Any) -> None:
    core = kubernetes.client.CoreV1Api(client)
    stream = kubernetes.watch.Watch().stream(
        core.list_namespaced_config_map, "default", resource_version="999999999", timeout_seconds=2
    )
    assert list(stream) == []


def test_status_and_scale_subresources_work(client: Any) -> None:
    apps, batch = kubernetes.client.AppsV1Api(client), kubernetes.client.BatchV1Api(client)
    body = deployment("scaled", 0)
    apps.create_namespaced_deployment("default", body)
    scale = apps.read_namespaced_deployment_scale("scaled", "default")
    # A number of 0 is left out, as by kube-apiserver.
    assert (scale.spec.replicas, scale.status.selector) == (None, "app=scaled")
    scale.spec.replicas, scale.metadata.resource_version = 1, None
    assert apps.replace_namespaced_deployment_scale("scaled", "default", scale).spec.replicas == 1
    until("it is available", lambda: apps.read_namespaced_deployment_status("scaled", "default").status.ready_replicas)
    # What the main resource says of the status is not taken.
    changed = apps.patch_namespaced_deployment("scaled", "default", {"status": {"replicas": 77}})
    assert changed.status.replicas == 1
    apps.delete_namespaced_deployment("scaled", "default")
    suspended = job("paused", 2)
    suspended["spec"]["suspend"] = True
    batch.create_namespaced_job("default", suspended)
    condition = {"status": {"conditions": [{"type": "Ours", "status": "True"}]}}
    answer = batch.patch_namespaced_job_status("paused", "default", condition)
    assert "Ours" in {c.type for c in answer.status.conditions}
    batch.delete_namespaced_job("paused", "default", propagation_policy="Background")


def test_events_are_listed_in_both_apis(up: Up, client: Any) -> None:
    core, events = kubernetes.client.CoreV1Api(client), kubernetes.client.EventsV1Api(client)
    core.create_namespaced_pod("default", pod("told"))
    selector = "involvedObject.name=told"

    def found() -> Any:
        return [
            e for e in core.list_namespaced_event("default", field_selector=selector).items if e.reason == "Scheduled"
        ]

    [event] = until("the event is there", found)
    assert event.message.startswith("Successfully assigned default/told to ")
    again = [e for e in events.list_namespaced_event("default").items if e.metadata.name == event.metadata.name]
    assert (again[0].regarding.name, again[0].note, again[0].reporting_controller) == (
        "told",
        event.message,
        "default-scheduler",
    )
    core.delete_namespaced_pod("told", "default", grace_period_seconds=0)


def test_error_bodies_are_parsed_by_the_client(client: Any, dynamic: Any) -> None:
    core, k = kubernetes.client.CoreV1Api(client), kubernetes.client
    wrong = {"metadata": {"name": "Bad Name"}, "spec": {"containers": []}}
    code, status = refusal(core.create_namespaced_pod, "default", wrong)
    assert (code, status["reason"], status["kind"], status["apiVersion"]) == (422, "Invalid", "Status", "v1")
    fields = {c["field"] for c in status["details"]["causes"]}
    assert {"metadata.name", "spec.containers"} <= fields
    core.create_namespaced_config_map("default", k.V1ConfigMap(metadata=k.V1ObjectMeta(name="twice")))
    code, status = refusal(
        core.create_namespaced_config_map, "default", k.V1ConfigMap(metadata=k.V1ObjectMeta(name="twice"))
    )
    assert (code, status["reason"], status["message"]) == (409, "AlreadyExists", 'configmaps "twice" already exists')
    code, status = refusal(core.list_namespaced_pod, "default", field_selector="spec.image=x")
    assert (code, status["reason"]) == (400, "BadRequest")
    with pytest.raises(kubernetes.dynamic.exceptions.ResourceNotFoundError):
        dynamic.resources.get(api_version="example.com/v1", kind="Nothing")


def test_dynamic_client_works_with_claims_and_groups(dynamic: Any) -> None:
    claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "dynamic"}}
    body["spec"] = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    made = claims.create(body=body, namespace="default")
    assert made.spec.devices.requests[0].exactly.count == 1
    older = dynamic.resources.get(api_version="resource.k8s.io/v1beta1", kind="ResourceClaim")
    assert older.get(name="dynamic", namespace="default").spec.devices.requests[0].deviceClassName == "gpu.nvidia.com"
    groups = dynamic.resources.get(api_version="scheduling.k8s.io/v1alpha2", kind="PodGroup")
    body = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}}
    body["spec"] = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert groups.create(body=body, namespace="default").spec.schedulingPolicy.gang.minCount == 3
    with pytest.raises(kubernetes.dynamic.exceptions.UnprocessibleEntityError):
        groups.patch(
            name="g",
            namespace="default",
            body={"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}},
            content_type="application/merge-patch+json",
        )
    groups.delete(name="g", namespace="default")
    claims.delete(name="dynamic", namespace="default")
