"""Defaults of pods and pod templates (core/v1).

A template gets what a PodSpec gets; requests from limits, service links and host ports are a Pod's own, so that
a controller's stored template does not change with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.cloning import clone
from haru.kube.defaulting.filling import fill, fill_unset, items, part, section
from haru.kube.resources import pod_requests

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]

_FILE_MODE = 0o644
_PATH_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
# What a volume source of each type gets; sources with nested parts are handled in `_volume`.
_VOLUME_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "secret": {"defaultMode": _FILE_MODE},
    "configMap": {"defaultMode": _FILE_MODE},
    "downwardAPI": {"defaultMode": _FILE_MODE},
    "projected": {"defaultMode": _FILE_MODE},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
}


def fill_pod(pod: Obj, gates: FeatureGates) -> None:
    """Defaults of a Pod."""
    spec = section(pod, "spec")
    fill_pod_spec(spec)
    for container in (*items(spec, "containers"), *items(spec, "initContainers")):
        _requests_from_limits(section(container, "resources"))
        if spec.get("hostNetwork"):
            for port in items(container, "ports"):
                fill(port, hostPort=port.get("containerPort"))
    if gates.enabled("PodLevelResources"):
        _pod_level_requests(spec)
    fill_unset(spec, enableServiceLinks=True)


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
    for container in containers(spec):
        _container(container)


def containers(spec: Obj) -> Iterator[Obj]:
    """Every container of a pod spec: init, regular, ephemeral."""
    yield from items(spec, "initContainers")
    yield from items(spec, "containers")
    yield from items(spec, "ephemeralContainers")


def image_pull_policy(image: str) -> str:
    """Always for the tag `latest`, named or implied; a malformed reference counts as pinned."""
    name, _, digest = image.partition("@")
    slash = name.rfind("/")
    colon = name.rfind(":")
    tag = ""
    if colon > slash:
        name, tag = name[:colon], name[colon + 1 :]
        if not _TAG.fullmatch(tag):
            return "IfNotPresent"
    if not _is_repository(name):
        return "IfNotPresent"
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _is_repository(name: str) -> bool:
    parts = name.split("/")
    first = parts[0]
    if len(parts) > 1 and (first == "localhost" or "." in first or ":" in first or first.lower() != first):
        parts = parts[1:]  # a registry's host, which has rules of its own
    return all(_PATH_COMPONENT.fullmatch(part) for part in parts)


def _container(container: Obj) -> None:
    fill(
        container,
        imagePullPolicy=image_pull_policy(str(container.get("image") or "")),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    section(container, "resources")
    for port in items(container, "ports"):
        fill(port, protocol="TCP")
    for env in items(container, "env"):
        _field_ref(part(env, "valueFrom"))
        file_ref = part(env, "valueFrom", "fileKeyRef")
        if file_ref is not None:
            fill_unset(file_ref, optional=False)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = part(container, name)
        if probe is not None:
            fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _http_get(probe)
            grpc = part(probe, "grpc")
            if grpc is not None:
                fill_unset(grpc, service="")
    for hook in ("postStart", "preStop"):
        _http_get(part(container, "lifecycle", hook))


def _http_get(holder: Obj | None) -> None:
    action = part(holder, "httpGet")
    if action is not None:
        fill(action, path="/", scheme="HTTP")


def _field_ref(holder: Obj | None) -> None:
    reference = part(holder, "fieldRef")
    if reference is not None:
        fill(reference, apiVersion="v1")


def _volume(volume: Obj) -> None:
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for name, values in _VOLUME_SOURCES.items():
        source = part(volume, name)
        if source is not None:
            fill_unset(source, **values)
    for item in items(part(volume, "downwardAPI"), "items"):
        _field_ref(item)
    for projection in items(part(volume, "projected"), "sources"):
        for item in items(part(projection, "downwardAPI"), "items"):
            _field_ref(item)
        token = part(projection, "serviceAccountToken")
        if token is not None:
            fill_unset(token, expirationSeconds=3600)
    claim = part(volume, "ephemeral", "volumeClaimTemplate", "spec")
    if claim is not None:
        fill_unset(claim, volumeMode="Filesystem")
    image = part(volume, "image")
    if image is not None:
        fill(image, pullPolicy=image_pull_policy(str(image.get("reference") or "")))


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


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("", "Pod"): fill_pod,
    ("", "PodTemplate"): _fill_pod_template_object,
    ("", "ReplicationController"): _fill_replication_controller,
}
