"""PersistentVolumeClaims that are not there, or that nobody serves: what was meant, or what is to be created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine import Options, Reason, Snapshot
from haru.explain import hypothesis
from haru.explain.changes import create, replacement
from haru.explain.diagnosis.volume_claims import NO_PROVISIONER, default_class
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj

_CLAIM = "PersistentVolumeClaim"
_SIZE = "10Gi"
_MOST_NODES = 16
_HOSTNAME = "kubernetes.io/hostname"


def volume_remedies(
    snapshot: Snapshot, work: WorkloadUnit, options: Options, reasons: Sequence[Reason]
) -> Iterator[Remedy]:
    """What helps pods whose volumes are not there."""
    missing = {
        str(r.data["persistentVolumeClaim"]) for r in reasons if r.type == "VolumeMissing" and _CLAIM_KEY in r.data
    }
    claims = snapshot.objects(_CLAIM)
    for path in sorted(missing - claims.keys()):
        yield from _missing_claim(snapshot, work, options, path)
    for reason in reasons:
        if reason.type == "StorageClassMissing":
            yield from _other_class(snapshot, work, options, reason)
        elif reason.type == "NoProvisioner":
            yield from _other_class(snapshot, work, options, reason)
            yield from _volume(snapshot, work, options, reason)


_CLAIM_KEY = "persistentVolumeClaim"


def _missing_claim(snapshot: Snapshot, work: WorkloadUnit, options: Options, path: str) -> Iterator[Remedy]:
    namespace, _, name = path.partition("/")
    there = [own for space, _, own in (p.partition("/") for p in snapshot.objects(_CLAIM)) if space == namespace]
    close = suggest_name(name, there)
    if close:

        def renamed(spec: Obj) -> Obj:
            return {**spec, "volumes": [_renamed(volume, name, close) for volume in spec.get("volumes") or ()]}

        pods = changed_pods(snapshot, work, renamed)
        fits = work.fits(hypothesis.with_pods(snapshot, pods), options)
        changes, costs = pod_changes(snapshot, pods, renamed)
        text = f"name {_CLAIM} {close} in place of {name}: did you mean that?"
        yield Remedy("CorrectName", text, changes, 0, fits, costs if fits else _then(costs))
    default = default_class(snapshot)
    claim = _claim(namespace, name, default)
    fits = default is not None and work.fits(hypothesis.with_objects(snapshot, _CLAIM, {path: claim}), options)
    costs = f"its size and access mode are for its author to say: here {_SIZE}, ReadWriteOnce"
    costs += f" of StorageClass {default}" if default else ", and there is no default StorageClass"
    yield Remedy("CreateVolumeClaim", f"create {_CLAIM} {path}", (create(claim),), 1, fits, costs)


def _claim(namespace: str, name: str, storage_class: str | None) -> Obj:
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _SIZE}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": _CLAIM, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _renamed(volume: Obj, name: str, close: str) -> Obj:
    source = volume.get(_CLAIM_KEY) or {}
    return {**volume, _CLAIM_KEY: {**source, "claimName": close}} if source.get("claimName") == name else volume


def _other_class(snapshot: Snapshot, work: WorkloadUnit, options: Options, reason: Reason) -> Iterator[Remedy]:
    """The StorageClass that was meant, else the default one; a claim's class is fixed, so the claim is made again."""
    path, name = str(reason.data[_CLAIM_KEY]), str(reason.data["storageClass"])
    classes = snapshot.objects("StorageClass")
    close = suggest_name(name, classes) if name not in classes and name else ""
    instead = close or _provisioned_class(snapshot)
    if not instead:
        return
    claim = {"apiVersion": "v1", **snapshot.objects(_CLAIM)[path], "kind": _CLAIM}
    changed = {**claim, "spec": {**claim["spec"], "storageClassName": instead}}
    fits = work.fits(hypothesis.with_objects(snapshot, _CLAIM, {path: changed}), options)
    costs = "the claim is made again; it holds no data yet"
    text = f"name StorageClass {instead} in place of {name}" + (": did you mean that?" if close else "")
    yield Remedy("CorrectName", text, replacement(claim, changed["spec"]), 0, fits, costs if fits else _then(costs))


def _provisioned_class(snapshot: Snapshot) -> str:
    """The default StorageClass, else the first one whose volumes somebody makes; empty if there is none."""
    classes = snapshot.objects("StorageClass")
    provisioned = [name for name in sorted(classes) if classes[name].get("provisioner") != NO_PROVISIONER]
    default = default_class(snapshot)
    return default if default in provisioned else next(iter(provisioned), "") if default is None else ""


def _volume(snapshot: Snapshot, work: WorkloadUnit, options: Options, reason: Reason) -> Iterator[Remedy]:
    """A PersistentVolume on the first node where the work fits with it."""
    path = str(reason.data[_CLAIM_KEY])
    claim = snapshot.objects(_CLAIM)[path]
    for node in snapshot.node_names[:_MOST_NODES]:
        host = snapshot.nodes[node].labels.get(_HOSTNAME, node)
        volume = _local_volume(path.replace("/", "-"), claim["spec"], str(reason.data["storageClass"]), host)
        name = volume["metadata"]["name"]
        if work.fits(hypothesis.with_objects(snapshot, "PersistentVolume", {name: volume}), options):
            directory = volume["spec"]["local"]["path"]
            costs = f"its node and directory are for its author to say: here {directory} of {node}, which has to exist"
            text = f"create PersistentVolume {name} of StorageClass {reason.data['storageClass']}"
            yield Remedy("CreateVolume", text, (create(volume),), 2, True, costs)
            return


def _local_volume(name: str, asked: Obj, storage_class: str, host: str) -> Obj:
    on_node = {"key": _HOSTNAME, "operator": "In", "values": [host]}
    spec = {
        "capacity": asked["resources"]["requests"],
        "accessModes": asked["accessModes"],
        "storageClassName": storage_class,
        "local": {"path": f"/mnt/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def _then(costs: str) -> str:
    return f"{costs}; it would then wait for something else"
