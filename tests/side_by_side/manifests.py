"""Builders of the objects that the side-by-side cases apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]
NAMESPACE, OTHERS = "side-by-side", "side-by-side-others"
SCHEDULER = "SCHEDULER"
"""Stands for the name of the scheduler that is tried."""
DRIVER = "test.example.com"
SET = "set"
"""Pods with equal values of this label may change places in an outcome."""
GROUP = "group"
"""Nodes with equal values of this label may change places in an outcome."""
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Delete:
    """A step's deletion of a pod."""

    name: str


@dataclass(frozen=True, slots=True)
class Case:
    """Objects applied step by step; after each step the cluster settles and the outcome is recorded."""

    steps: tuple[list[Obj | Delete], ...]
    oldest: int = 32
    """The oldest minor version whose API and default scheduler know all of it."""
    gates: frozenset[str] = field(default_factory=frozenset)
    """Feature gates that it needs beyond the defaults of 1.36."""
    on_purpose: str = ""
    """Why the outcome is another one than kube-scheduler's."""


def case(*steps: list[Obj | Delete], oldest: int = 32, gates: tuple[str, ...] = (), on_purpose: str = "") -> Case:
    """A case of these steps."""
    return Case(steps, oldest, frozenset(gates), on_purpose)


def obj(api_version: str, kind: str, name: str, **fields: Any) -> Obj:
    """Any object; `labels` and `annotations` go into its metadata."""
    meta = {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **meta}, **fields}


def some(api_version: str, kind: str, name: str, **fields: Any) -> list[Obj | Delete]:
    """Any object, to be added to others."""
    return [obj(api_version, kind, name, **fields)]


# -- nodes ------------------------------------------------------------------------------------------------------------


def node(
    name: str, cpu: int = 4, labels: Obj | None = None, taints: list[Obj] | None = None, **amounts: Any
) -> list[Obj | Delete]:
    """A ready node; other `amounts` (memory="8Gi", pods="10", …) replace the usual ones."""
    resources = {"cpu": str(cpu), "memory": "16Gi", "pods": "30", "ephemeral-storage": "100Gi"}
    resources.update({key.replace("_", "-"): str(value) for key, value in amounts.pop("more", {}).items()})
    resources.update({key.replace("_", "-"): str(value) for key, value in amounts.items() if key != "unschedulable"})
    spec = {"taints": taints or [], "unschedulable": bool(amounts.get("unschedulable"))}
    status = {"capacity": resources, "allocatable": resources}
    return [obj("v1", "Node", name, labels={HOST: name, **(labels or {})}, spec=spec, status=status)]


def nodes(count: int, cpu: int = 4, prefix: str = "n", **options: Any) -> list[Obj | Delete]:
    """Nodes that are alike: their outcome names the group."""
    labels = {GROUP: prefix, **options.pop("labels", {})}
    return [one for i in range(count) for one in node(f"{prefix}{i}", cpu, labels=labels, **options)]


def taint(key: str = "team", value: str = "a", effect: str = "NoSchedule") -> Obj:
    """A taint of a node."""
    return {"key": key, "value": value, "effect": effect}


# -- pods -------------------------------------------------------------------------------------------------------------


def template(
    cpu: str = "1", labels: Obj | None = None, claims: Obj | None = None, amounts: Obj | None = None, **spec: Any
) -> Obj:
    """A pod template of one container; `claims` maps names to a claim or, behind `template:`, to a template."""
    requests = {"cpu": cpu, **(amounts or {})}
    limits = {name: amount for name, amount in (amounts or {}).items() if "/" in name or name.startswith("hugepages")}
    container: Obj = {"name": "main", "image": "registry.example.com/work:1", "resources": {"requests": requests}}
    if limits:
        container["resources"]["limits"] = limits
    if "ports" in spec:
        container["ports"] = spec.pop("ports")
    if claims:
        container["resources"]["claims"] = [{"name": name} for name in claims]
        spec["resourceClaims"] = [_claim_entry(name, source) for name, source in claims.items()]
    if "group" in spec:
        spec["schedulingGroup"] = {"podGroupName": spec.pop("group")}
    if "priority" in spec:
        spec["priorityClassName"] = spec.pop("priority")
    spec = {"schedulerName": SCHEDULER, "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"metadata": {"labels": labels or {}}, "spec": spec}


def _claim_entry(name: str, source: str) -> Obj:
    kind, _, named = source.rpartition(":")
    return {"name": name, "resourceClaimTemplateName" if kind else "resourceClaimName": named}


def pod(name: str, cpu: str = "1", labels: Obj | None = None, **options: Any) -> list[Obj | Delete]:
    """One pod."""
    made = template(cpu, {SET: name, **(labels or {})}, **options)
    return [obj("v1", "Pod", name, labels=made["metadata"]["labels"], spec=made["spec"])]


def pods(prefix: str, count: int, cpu: str = "1", labels: Obj | None = None, **options: Any) -> list[Obj | Delete]:
    """Pods that are alike: their outcome is counted."""
    return [
        one
        for i in range(count)
        for one in pod(f"{prefix}-{i}", cpu, labels={SET: prefix, **(labels or {})}, **options)
    ]


def require(*expressions: Obj, fields: list[Obj] | None = None) -> Obj:
    """Required node affinity of one term."""
    term: Obj = {"matchExpressions": list(expressions)} if expressions else {}
    if fields:
        term["matchFields"] = fields
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def expression(key: str, operator: str, *values: str) -> Obj:
    """A requirement of a selector."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def pod_term(app: str, key: str = ZONE, **more: Any) -> Obj:
    """A term of pod affinity to pods with the label `app`."""
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def pod_affinity(*terms: Obj, anti: bool = False) -> Obj:
    """Required affinity to pods, or anti-affinity."""
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(app: str, key: str = ZONE, skew: int = 1, hard: bool = True, **more: Any) -> Obj:
    """A topology spread constraint over pods with the label `app`."""
    when = "DoNotSchedule" if hard else "ScheduleAnyway"
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def priority(name: str, value: int, **more: Any) -> list[Obj | Delete]:
    """A priority class."""
    return [obj("scheduling.k8s.io/v1", "PriorityClass", name, value=value, **more)]


# -- devices ----------------------------------------------------------------------------------------------------------


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> list[Obj | Delete]:
    """A device class of the test driver's devices that meet the CEL expressions too."""
    expressions = (f'device.driver == "{DRIVER}"', *selectors)
    spec["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return [obj("resource.k8s.io/v1", "DeviceClass", name, spec=spec)]


def devices(
    where: str, count: int, model: str = "a", attributes: Obj | None = None, capacity: Obj | None = None, **more: Any
) -> list[Obj | Delete]:
    """A slice of devices `MODEL-0`, … of one node."""
    found = [_device(f"{model}-{i}", model, attributes, capacity, **more) for i in range(count)]
    return slice_of(where, found, model, nodeName=where)


def slice_of(pool: str, found: list[Obj], suffix: str = "a", **spec: Any) -> list[Obj | Delete]:
    """A slice that is its whole pool."""
    pool_name = f"{pool}-{suffix}"
    named = {"name": pool_name, "generation": 1, "resourceSliceCount": spec.pop("of", 1)}
    spec = {"driver": DRIVER, "pool": named, "devices": found, **spec}
    return [obj("resource.k8s.io/v1", "ResourceSlice", f"{pool_name}-slice", spec=spec)]


def _device(name: str, model: str, attributes: Obj | None, capacity: Obj | None, **more: Any) -> Obj:
    found = {"model": {"string": model}, **(attributes or {})}
    held = {"capacity": {key: {"value": value} for key, value in capacity.items()}} if capacity else {}
    return {"name": name, "attributes": found, **held, **more}


def device(name: str, model: str = "a", attributes: Obj | None = None, capacity: Obj | None = None, **more: Any) -> Obj:
    """One device, for `slice_of`."""
    return _device(name, model, attributes, capacity, **more)


def exactly(name: str = "r", device_class_name: str = "gpu", *selectors: str, **more: Any) -> Obj:
    """A request for exactly these devices."""
    if selectors:
        more["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": {"deviceClassName": device_class_name, **more}}


def claim_spec(*requests: Obj, constraints: list[Obj] | None = None) -> Obj:
    """The spec of a claim."""
    return {"devices": {"requests": list(requests), **({"constraints": constraints} if constraints else {})}}


def claim(name: str, *requests: Obj, constraints: list[Obj] | None = None) -> list[Obj | Delete]:
    """A claim; by default for one device of class gpu."""
    spec = claim_spec(*(requests or (exactly(),)), constraints=constraints)
    return [obj("resource.k8s.io/v1", "ResourceClaim", name, labels={SET: name}, spec=spec)]


def claim_template(name: str, *requests: Obj, constraints: list[Obj] | None = None) -> list[Obj | Delete]:
    """A claim template."""
    spec = {"spec": claim_spec(*(requests or (exactly(),)), constraints=constraints)}
    return [obj("resource.k8s.io/v1", "ResourceClaimTemplate", name, spec=spec)]


# -- groups and workloads ---------------------------------------------------------------------------------------------


def gang(name: str, minimum: int, **spec: Any) -> list[Obj | Delete]:
    """A PodGroup with the gang policy."""
    policy = {"gang": {"minCount": minimum}}
    return [obj("scheduling.k8s.io/v1alpha2", "PodGroup", name, spec={"schedulingPolicy": policy, **spec})]


def replicated(kind: str, name: str, count: int, made: Obj, **spec: Any) -> list[Obj | Delete]:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet (without replicas where `count` is 0)."""
    labels = {SET: name, "app": name}
    made = {**made, "metadata": {"labels": {**labels, **made["metadata"]["labels"]}}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": made, **spec}
    if count:
        spec["replicas"] = count
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return [obj("apps/v1", kind, name, spec=spec)]


def job(name: str, count: int, made: Obj, **spec: Any) -> list[Obj | Delete]:
    """A Job of `count` pods at once."""
    made = {**made, "metadata": {"labels": {SET: name}}}
    made["spec"] = {"restartPolicy": "Never", **made["spec"]}
    spec = {"parallelism": count, "completions": count, "template": made, **spec}
    return [obj("batch/v1", "Job", name, spec=spec)]


# -- volumes ----------------------------------------------------------------------------------------------------------


def storage_class(name: str = "late", late: bool = True, **more: Any) -> list[Obj | Delete]:
    """A class without a provisioner."""
    mode = "WaitForFirstConsumer" if late else "Immediate"
    more = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode, **more}
    return [obj("storage.k8s.io/v1", "StorageClass", name, **more)]


def volume(name: str, where: str = "", size: str = "10Gi", class_name: str = "late", **spec: Any) -> list[Obj | Delete]:
    """A local PersistentVolume, on one node if `where` names it."""
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": "Retain",
        **({"local": {"path": "/data"}} if where else {"hostPath": {"path": "/data"}}),
        **spec,
    }
    if where:
        term = {"matchExpressions": [expression(HOST, "In", where)]}
        spec.setdefault("nodeAffinity", {"required": {"nodeSelectorTerms": [term]}})
    return [obj("v1", "PersistentVolume", name, spec=spec)]


def volume_claim(name: str, size: str = "5Gi", class_name: str = "late", **spec: Any) -> list[Obj | Delete]:
    """A PersistentVolumeClaim."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return [obj("v1", "PersistentVolumeClaim", name, spec={"storageClassName": class_name, **spec})]


def mounted(claim_name: str) -> list[Obj]:
    """`volumes` of a pod with one PersistentVolumeClaim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
