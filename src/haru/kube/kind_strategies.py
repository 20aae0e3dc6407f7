"""What single kinds have done to them when they are created or updated, beside what all have.

All functions return new objects. Source: the registry strategies of these kinds, as behaviour; KEP 1495, 5055.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from haru.kube.custom import definitions
from haru.kube.defaulting.workloads import TEMPLATE_GENERATION
from haru.kube.meta import Obj, allocation_of

_DATA_SOURCES = frozenset({("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")})


def with_member(obj: Obj, name: str, value: Any) -> Obj:
    """`obj` with the field set, or without it when the value is None."""
    if value is not None:
        return {**obj, name: value}
    return {key: item for key, item in obj.items() if key != name} if name in obj else obj


def with_both_sources(claim: Obj, old: Obj | None) -> Obj:
    """A claim whose two members for the data that it starts with say the same, as far as the older one can.

    What the older one cannot mean is dropped, unless the stored claim has it (KEP 1495).
    """
    spec, before = claim.get("spec") or {}, (old or {}).get("spec") or {}
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace") and before.get("dataSourceRef") is None:
        reference = None  # behind CrossNamespaceVolumeDataSource, which is off
        spec = {name: value for name, value in spec.items() if name != "dataSourceRef"}
        claim = {**claim, "spec": spec}
    if source is not None and reference is None:
        known = (source.get("apiGroup") or "", source.get("kind") or "") in _DATA_SOURCES
        if not known and before.get("dataSource") is None and before.get("dataSourceRef") is None:
            return {**claim, "spec": {name: value for name, value in spec.items() if name != "dataSource"}}
        return {**claim, "spec": {**spec, "dataSourceRef": dict(source)}}
    if reference is not None and source is None and not reference.get("namespace"):
        older = {name: value for name, value in reference.items() if name != "namespace"}
        return {**claim, "spec": {**spec, "dataSource": older}}
    return claim


def with_both_addresses(service: Obj) -> Obj:
    """A new Service with its `clusterIP` in `clusterIPs` where it has none: old clients write the former alone."""
    spec: Obj = service.get("spec") or {}
    one = spec.get("clusterIP")
    if not one or spec.get("clusterIPs"):
        return service
    return {**service, "spec": {**spec, "clusterIPs": [one]}}


def without_load_balancer(service: Obj) -> Obj:
    """A Service of another type says no more what its load balancer had."""
    status = service.get("status") or {}
    if not status.get("loadBalancer") or (service.get("spec") or {}).get("type") == "LoadBalancer":
        return service
    return {**service, "status": {**status, "loadBalancer": {}}}


def with_phase_time(volume: Obj, old: Obj, now: str) -> Obj:
    """A volume says since when it is in its phase, unless the writer does."""
    status, before = volume.get("status") or {}, old.get("status") or {}
    given, known = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
    if status.get("phase") != before.get("phase"):
        time = now if not given or given == known else given
    else:
        time = given or known
    return {**volume, "status": with_member(status, "lastPhaseTransitionTime", time)}


def first_namespace(namespace: Obj) -> Obj:
    """A namespace that is Active, and goes only when its content has."""
    spec = dict(namespace.get("spec") or {})
    finalizers = list(spec.get("finalizers") or [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    return {**namespace, "spec": {**spec, "finalizers": finalizers}, "status": {"phase": "Active"}}


def with_named_secrets(account: Obj) -> Obj:
    """An account that names its Secrets, and says nothing else of them."""
    secrets = account.get("secrets") or ()
    if all(secret.keys() <= {"name"} for secret in secrets):
        return account
    return {**account, "secrets": [{"name": secret["name"]} if "name" in secret else {} for secret in secrets]}


def with_stored_versions(definition: Obj) -> Obj:
    """A version that objects are stored in from now on is remembered as one."""
    status = definition.get("status") or {}
    stored, new = list(status.get("storedVersions") or ()), definitions.storage_version(definition)
    if new is None or new in stored:
        return definition
    return {**definition, "status": {**status, "storedVersions": [*stored, new]}}


def first_definition(definition: Obj) -> Obj:
    """What is stored is remembered from the beginning."""
    stored = definitions.storage_version(definition)
    return {**definition, "status": {"storedVersions": [] if stored is None else [stored]}}


def with_namespace_finalizers(new: Obj, old: Obj) -> Obj:
    """A namespace's finalizers are cleared through `/finalize` only."""
    finalizers = (old.get("spec") or {}).get("finalizers")
    return {**new, "spec": {**(new.get("spec") or {}), "finalizers": finalizers or []}}


def generated_job(job: Obj) -> Obj:
    """A job's selector and its pods' labels, unless the user keeps them by hand; what he gives stays, to be judged."""
    spec = job.get("spec") or {}
    if spec.get("manualSelector"):
        return job
    metadata, template = job.get("metadata") or {}, spec.get("template") or {}
    uid, name = metadata.get("uid") or "", metadata.get("name") or ""
    template_metadata = template.get("metadata") or {}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
        **(template_metadata.get("labels") or {}),
    }
    selector = dict(spec.get("selector") or {})
    wanted = {"batch.kubernetes.io/controller-uid": uid, **(selector.get("matchLabels") or {})}
    new_template = {**template, "metadata": {**template_metadata, "labels": labels}}
    new_spec = {**spec, "selector": {**selector, "matchLabels": wanted}, "template": new_template}
    own = metadata.get("labels")
    if own and own is template_metadata.get("labels"):  # by default a job has the labels of its pods
        metadata = {**metadata, "labels": dict(labels)}
    return {**job, "metadata": metadata, "spec": new_spec}


def labelled_job(job: Obj) -> Obj:
    """A job that is read has the labels of its pods where it has none; who judges a new one does not see them."""
    metadata = job.get("metadata") or {}
    labels = (((job.get("spec") or {}).get("template") or {}).get("metadata") or {}).get("labels")
    return job if metadata.get("labels") or not labels else {**job, "metadata": {**metadata, "labels": dict(labels)}}


def template_generation(daemon_set: Obj) -> int:
    """How often the template of a DaemonSet has changed."""
    text = str((daemon_set["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or "")
    return int(text) if text.isdigit() else 0


def with_template_generation(daemon_set: Obj, generation: int) -> Obj:
    """A DaemonSet counts the changes of its template in an annotation, where a field of an older version was."""
    annotations = {**(daemon_set["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(generation)}
    return {**daemon_set, "metadata": {**daemon_set["metadata"], "annotations": annotations}}


def with_taint_time(new: Obj, old: Obj, now: str) -> Obj:
    """A rule whose effect changes takes effect now, unless the writer set another time (KEP 5055)."""
    spec, before = new.get("spec") or {}, (old.get("spec") or {}).get("taint") or {}
    taint = spec.get("taint") or {}
    submitted = taint.get("timeAdded")
    if taint.get("effect") == before.get("effect"):
        time = submitted or before.get("timeAdded")
    elif submitted and submitted != before.get("timeAdded"):
        time = submitted
    else:
        time = now
    if not time or time == submitted:
        return new
    return {**new, "spec": {**spec, "taint": {**taint, "timeAdded": time}}}


def without_deallocated(new: Obj, old: Obj) -> Obj:
    """Device statuses of devices that this very update deallocates go with them."""
    status = new.get("status") or {}
    devices = status.get("devices")
    gone = _allocated_devices(old) - _allocated_devices(new)
    if not devices or not gone:
        return new
    kept = [device for device in devices if _device_id(device) not in gone]
    return {**new, "status": with_member(status, "devices", kept or None)}


def _allocated_devices(claim: Obj) -> set[Hashable]:
    allocation = allocation_of(claim) or {}
    return {_device_id(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _device_id(device: Obj) -> Hashable:
    return device.get("driver"), device.get("pool"), device.get("device"), device.get("shareID") or ""
