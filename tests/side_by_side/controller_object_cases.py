"""Cases for the controllers beside the workloads': services, volumes, quotas, accounts, autoscalers, the collector."""

from __future__ import annotations

import json
from typing import Any

from controller_case_parts import FIRST, Step, delete, holder, patch, pod, scale
from controller_churn import GPU_CLASS, manifest, template, workload
from manifests import Obj, obj


def _service(name: str, app: str | None = "d", **spec: Any) -> Obj:
    selector = {"selector": {"app": app}} if app else {}
    return manifest("v1", "Service", name, **selector, **{"ports": [{"port": 80, "targetPort": 8080}], **spec})


def _volume_claim(name: str, **spec: Any) -> Obj:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "storageClassName": ""}
    return manifest("v1", "PersistentVolumeClaim", name, **{**wanted, **spec})


def _volume(name: str, **spec: Any) -> Obj:
    given = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}, "hostPath": {"path": "/tmp/none"}}
    return manifest("v1", "PersistentVolume", name, **given, **spec)


def _autoscaler(name: str, target: str, **spec: Any) -> Obj:
    aim = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    given = {"scaleTargetRef": aim, "maxReplicas": 5, "metrics": [{"type": "Resource", "resource": cpu}]}
    return manifest("autoscaling/v2", "HorizontalPodAutoscaler", name, **{**given, **spec})


def _quota(name: str, hard: dict[str, str], **spec: Any) -> Obj:
    return manifest("v1", "ResourceQuota", name, hard=hard, **spec)


def _token(name: str, account: str) -> Obj:
    notes = {"kubernetes.io/service-account.name": account}
    return obj("v1", "Secret", name, type="kubernetes.io/service-account-token", annotations=notes)


def _owned(name: str, owner: str) -> Obj:
    made: Obj = obj("v1", "ConfigMap", name)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "00000000-0000-4000-8000-000000000000"}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [reference]}}


def _mounting(app: str, claim: str) -> Obj:
    pods = template(app, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
    pods["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return pods


def _ephemeral(app: str) -> Obj:
    claim = _volume_claim("unused")["spec"]
    pods = template(app, volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}])
    pods["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return pods


_OUTSIDE = {"type": "ExternalName", "externalName": "a.example"}
_TWO_PORTS: list[Obj] = [{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81, "protocol": "UDP"}]
_NAMED: list[Obj] = [{"name": "web", "containerPort": 8080}]


def _named_ports(app: str) -> Obj:
    pods = template(app)
    pods["spec"]["containers"][0]["ports"] = _NAMED
    return pods


_DEVICES = f"{GPU_CLASS}.deviceclass.resource.k8s.io/devices"


def _subsets(ready: str, not_ready: str) -> str:
    return json.dumps({"subsets": [{"addresses": [{"ip": ready}], "notReadyAddresses": [{"ip": not_ready}]}]})


CASES: dict[str, list[Step]] = {
    "services": [
        [workload("Deployment", "d", 2, _named_ports("d")), _service("plain"), _service("two", ports=_TWO_PORTS)],
        [_service("headless", clusterIP="None"), _service("none", "nobody"), _service("far", None, **_OUTSIDE)],
        [scale("deployment/d", 3)],
        [patch("service/plain", '{"spec":{"selector":{"app":"nobody"}}}')],
        [patch("service/plain", '{"spec":{"publishNotReadyAddresses":true,"selector":{"app":"d"}}}')],
        [patch("service/two", '{"metadata":{"labels":{"x":"y"}},"spec":{"trafficDistribution":"PreferSameZone"}}')],
        [patch("deployment/d", '{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}')],
        [delete("service/two"), delete("deployment/d")],
    ],
    "endpoints-by-hand": [
        [_service("s", None)],
        [obj("v1", "Endpoints", "s", subsets=[{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 80}]}])],
        [
            patch(
                "endpoints/s", '{"subsets":[{"addresses":[{"ip":"10.9.0.2"}],"notReadyAddresses":[{"ip":"10.9.0.3"}]}]}'
            )
        ],
        [patch("endpoints/s", '{"subsets":[]}')],
        [patch("endpoints/s", '{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}}}')],
        [delete("service/s")],
    ],
    "volumes": [
        [_volume("case-v1"), _volume_claim("bound"), _volume_claim("classless", storageClassName="none")],
        [_volume("case-v2", claimRef={"namespace": "volumes", "name": "named"}), _volume_claim("named")],
        [_volume_claim("wanted", volumeName="case-v3"), workload("Deployment", "d", 1, _mounting("d", "wanted"))],
        [_volume("case-v3", persistentVolumeReclaimPolicy="Delete")],
        [delete("pvc/wanted"), delete("pvc/bound")],
        [scale("deployment/d", 0)],
        [workload("Deployment", "e", 1, _ephemeral("e"))],
        [delete("deployment/e"), delete("pv/case-v1"), delete("pv/case-v2"), delete("pv/case-v3")],
    ],
    "quotas": [
        [
            _quota("all", {"requests.cpu": "1", "limits.memory": "1Gi", "count/secrets": "5", "services": "2"}),
            _quota("best", {"pods": "1"}, scopes=["BestEffort"]),
            _quota("ends", {"pods": "2"}, scopes=["Terminating"]),
            _quota("stays", {"pods": "3"}, scopes=["NotTerminating"]),
            _quota(
                "claims",
                {f"{GPU_CLASS}.deviceclass.resource.k8s.io/devices": "2", "count/resourceclaims.resource.k8s.io": "3"},
            ),
        ],
        [workload("Deployment", "d", 2, template("d"))],
        [_service("one", type="NodePort"), _volume_claim("p")],
        [patch("quota/all", '{"spec":{"hard":{"requests.cpu":null,"requests.storage":"5Mi"}}}')],
        [scale("deployment/d", 0)],
        [delete("quota/stays")],
    ],
    "accounts": [
        [obj("v1", "ServiceAccount", "robot")],
        [_token("t", "robot"), _token("nobody", "nobody")],
        [delete("serviceaccount/robot")],
        [delete("serviceaccount/default")],
    ],
    "autoscalers": [
        [workload("Deployment", "d", 1, template("d")), _autoscaler("h", "d", minReplicas=2)],
        [_autoscaler("none", "nobody"), _autoscaler("twice", "d")],
        [delete("hpa/twice"), scale("deployment/d", 0)],
        [scale("deployment/d", 9)],
    ],
    "collected": [
        [obj("v1", "ConfigMap", "owner"), _owned("lost", "gone")],
        [workload("ReplicaSet", "r", 1, template("r"))],
        [patch(f"pod/{FIRST}", '{"metadata":{"finalizers":["a.b/held"]}}'), delete("replicaset/r", "foreground")],
        [patch(f"pod/{FIRST}", '{"metadata":{"finalizers":null}}')],
    ],
}

_LONG, _SHORT = ({"key": "ill", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": n} for n in (300, 2))
_EVERY_DEVICE = ",".join(f"gpu-{number}=ill:NoExecute" for number in range(8))


def _device(name: str, toleration: Obj | None) -> Obj:
    asked = {"deviceClassName": GPU_CLASS, **({} if toleration is None else {"tolerations": [toleration]})}
    requests = [{"name": "g", "exactly": asked}]
    return manifest("resource.k8s.io/v1", "ResourceClaim", name, devices={"requests": requests})


def _user(name: str) -> Obj:
    return holder(name, resourceClaimName=name)


def _tolerating(name: str, toleration: Obj) -> Obj:
    made = pod(name, name)
    return {**made, "spec": {**made["spec"], "tolerations": [toleration]}}


def _noted(node: str, taints: str) -> tuple[str, ...]:
    return "annotate", f"node/{node}", f"simulated.haru.dev/device-taints={taints}", "--overwrite"


def _rule(name: str, effect: str, **selector: str) -> Obj:
    taint = {"key": "ill", "effect": effect}
    return manifest("resource.k8s.io/v1beta2", "DeviceTaintRule", name, deviceSelector=selector, taint=taint)


# Each changes nodes that all share.
ALONE: dict[str, list[Step]] = {
    "device-taints": [
        [_device("never", None), _device("ever", _LONG), _device("soon", _SHORT)],
        [
            _user("never"),
            _user("ever"),
            _user("soon"),
        ],
        [_noted("dgx-h100-0", _EVERY_DEVICE)],
        [_noted("dgx-h100-0", "")],
        [_device("more", None), _user("more")],
    ],
    "device-taint-rules": [
        [
            _device("never", None),
            _device("soon", _SHORT),
            _user("never"),
            _user("soon"),
        ],
        [_rule("case-none", "None", driver="gpu.nvidia.com")],
        [_rule("case-all", "NoExecute", driver="gpu.nvidia.com")],
        [delete("devicetaintrule/case-all"), _device("new", None), _user("new")],
        [delete("devicetaintrule/case-none")],
    ],
    "node-taints": [
        [
            workload("Deployment", "d", 3, template("d")),
            _tolerating("long", _LONG),
            _tolerating("short", _SHORT),
        ],
        [("taint", "node", "--all", "ill=yes:NoExecute")],
        [("taint", "node", "--all", "ill=yes:NoExecute-")],
        [("cordon", "cpu-0"), ("cordon", "cpu-1"), scale("deployment/d", 6)],
        [("uncordon", "cpu-0"), ("uncordon", "cpu-1")],
    ],
}
