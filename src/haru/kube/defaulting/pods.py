"""Defaults of pods and pod templates (core/v1).

A template gets what a PodSpec gets; requests from limits, service links and host ports are a Pod's own, so that
a controller's stored template does not change with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from haru.kube.cloning import clone
from haru.kube.defaulting.filling import Fillers, agree_on_first, fill, fill_unset, items, part, section
from haru.kube.defaulting.images import image_pull_policy
from haru.kube.defaulting.volumes import fill_volume_source
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj
from haru.kube.resources import pod_requests

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


FREE = frozenset(
    (
        *("activeDeadlineSeconds", "affinity", "dnsConfig", "hostAliases", "hostIPC", "hostPID", "hostUsers"),
        *("hostname", "imagePullSecrets", "nodeName", "nodeSelector", "os", "overhead", "preemptionPolicy"),
        *("priority", "priorityClassName", "readinessGates", "resourceClaims", "runtimeClassName"),
        *("schedulingGates", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "tolerations"),
        "topologySpreadConstraints",
    )
)
"""Members of a pod's spec that have no defaults, in them or because of them."""
SET = frozenset(("dnsPolicy", "restartPolicy", "schedulerName", "terminationGracePeriodSeconds"))
"""Members that have a default of their own, and are nothing to others."""


def stays_complete(spec: Obj, before: Obj) -> bool:
    """Whether the spec of a pod surely lacks no default that the complete one which it was made from had."""
    for name, value in spec.items():
        if value is not before.get(name) and name not in FREE and not (name in SET and value):
            return False
    return before.keys() - spec.keys() <= FREE


def addresses_agree(status: Any) -> bool:
    """Whether the old member for a pod's address says the same as the list that followed it."""
    listed = (status or {}).get("podIPs") or [{}]
    return bool(((status or {}).get("podIP") or "") == (listed[0].get("ip") or ""))


def fill_pod(pod: Obj, gates: FeatureGates) -> None:
    """Defaults of a Pod."""
    spec, status = section(pod, "spec"), part(pod, "status")
    fill_pod_spec(spec)
    if status is not None:
        agree_on_first(status, "podIP", "podIPs", "ip")
    on_host = spec.get("hostNetwork")
    for name in ("containers", "initContainers"):
        for container in items(spec, name) if name in spec else ():
            _requests_from_limits(section(container, "resources"))
            if on_host:
                for port in items(container, "ports"):
                    fill(port, hostPort=port.get("containerPort"))
    if gates.enabled("PodLevelResources"):
        _pod_level_requests(spec)
    fill_unset(spec, enableServiceLinks=True)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1


def fill_template(template: Obj | None) -> None:
    """Defaults of the pod template in a controller's spec."""
    if template is not None:
        fill_pod_spec(section(template, "spec"))


def fill_pod_spec(spec: Obj) -> None:
    """Defaults that a pod spec gets wherever it stands."""
    fill(spec, dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")
    fill_unset(spec, securityContext={}, terminationGracePeriodSeconds=30)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:  # the second is an old name of the first; the API answers with both
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in items(spec, "volumes"):
        _volume(volume)
    for name in _CONTAINERS:
        for container in items(spec, name) if name in spec else ():
            _container(container)


def containers(spec: Obj) -> Iterator[Obj]:
    """Every container of a pod spec: init, regular, ephemeral."""
    for name in _CONTAINERS:
        yield from items(spec, name)


def _container(container: Obj) -> None:
    if not container.get("imagePullPolicy"):
        fill(container, imagePullPolicy=image_pull_policy(str(container.get("image") or "")))
    if not (container.get("terminationMessagePath") and container.get("terminationMessagePolicy")):
        fill(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    section(container, "resources")
    if "ports" in container:
        for port in items(container, "ports"):
            fill(port, protocol="TCP")
    for env in container.get("env") or ():
        if isinstance(env, dict) and "valueFrom" in env:
            _value_from(part(env, "valueFrom"))
    for name in _PROBES:
        if name in container:
            _probe(part(container, name))
    if "lifecycle" in container:
        for hook in ("postStart", "preStop"):
            _http_get(part(container, "lifecycle", hook))


def _value_from(source: Obj | None) -> None:
    _field_ref(source)
    file_ref = part(source, "fileKeyRef")
    if file_ref is not None:
        fill_unset(file_ref, optional=False)


def _probe(probe: Obj | None) -> None:
    if probe is None:
        return
    fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    _http_get(probe)
    grpc = part(probe, "grpc")
    if grpc is not None:
        fill_unset(grpc, service="")


def _http_get(holder: Obj | None) -> None:
    action = part(holder, "httpGet")
    if action is not None:
        fill(action, path="/", scheme="HTTP")


def _field_ref(holder: Obj | None) -> None:
    reference = part(holder, "fieldRef")
    if reference is not None:
        fill(reference, apiVersion="v1")


def _volume(volume: Obj) -> None:
    has_source = False
    for name, source in volume.items():
        if name == "name" or source is None:
            continue
        has_source = True
        fill_volume_source(name, source)
        nested = _VOLUME_PARTS.get(name)
        if nested is not None and isinstance(source, dict):
            nested(source)
    if not has_source:
        volume["emptyDir"] = {}


def _downward(source: Obj) -> None:
    for item in items(source, "items"):
        if "fieldRef" in item:
            _field_ref(item)


def _projected(source: Obj) -> None:
    for projection in items(source, "sources"):
        if "downwardAPI" in projection:
            _downward(part(projection, "downwardAPI") or {})
        token = projection.get("serviceAccountToken")
        if isinstance(token, dict):
            fill_unset(token, expirationSeconds=3600)


def _ephemeral(source: Obj) -> None:
    claim = part(source, "volumeClaimTemplate", "spec")
    if claim is not None:
        fill_unset(claim, volumeMode="Filesystem")


def _image(source: Obj) -> None:
    fill(source, pullPolicy=image_pull_policy(str(source.get("reference") or "")))


_VOLUME_PARTS: Mapping[str, Callable[[Obj], None]] = {
    "downwardAPI": _downward,
    "projected": _projected,
    "ephemeral": _ephemeral,
    "image": _image,
}
"""What sources with nested parts get besides."""


def _requests_from_limits(resources: Obj) -> None:
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _pod_level_requests(spec: Obj) -> None:
    """Pod-level requests: what the containers request together, else the pod-level limits (KEP-2837)."""
    resources = part(spec, "resources")
    limits = (resources or {}).get("limits")
    if resources is None or not limits:
        return
    requests = dict(resources.get("requests") or {})
    together = pod_requests({"spec": {k: v for k, v in spec.items() if k not in ("resources", "overhead")}})
    for name in ("cpu", "memory"):
        if name in together:
            requests.setdefault(name, str(together[name]))
    for name, limit in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, limit)
    if requests:
        resources["requests"] = requests


def _fill_pod_template_object(obj: Obj, gates: FeatureGates) -> None:
    fill_template(section(obj, "template"))


def _fill_replication_controller(obj: Obj, gates: FeatureGates) -> None:
    spec = section(obj, "spec")
    template = part(spec, "template")
    fill_template(template)
    labels = (part(template, "metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = clone(labels)
        metadata = section(obj, "metadata")
        if not metadata.get("labels"):
            metadata["labels"] = clone(labels)
    fill_unset(spec, replicas=1)


FILLERS: Fillers = {
    ("", "Pod"): fill_pod,
    ("", "PodTemplate"): _fill_pod_template_object,
    ("", "ReplicationController"): _fill_replication_controller,
}
