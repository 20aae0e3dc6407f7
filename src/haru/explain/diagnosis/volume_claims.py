"""Why the volumes of pods are not there: their classes do not exist, nobody provisions what they wait for, or they are
on other nodes."""

from __future__ import annotations

from collections.abc import Iterator

from haru.engine import Reason, Snapshot
from haru.explain.changes import listed
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj, annotations_of, name_of
from haru.kube.selectors import node_selector_matches
from haru.kube.volume_binding import class_of

NO_PROVISIONER = "kubernetes.io/no-provisioner"
_MOST_NODES = 16
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def volume_troubles(snapshot: Snapshot, work: WorkloadUnit) -> tuple[Reason, ...]:
    """Return what is wrong with the PersistentVolumeClaims of the pods: not bound, or bound to a volume elsewhere."""
    paths = {f"{pod.key.namespace}/{name}" for pod in work.pending(snapshot) for name in pod.volume_claims}
    claims = snapshot.objects("PersistentVolumeClaim")
    return tuple(reason for path in sorted(paths & claims.keys()) for reason in _troubles(snapshot, path, claims[path]))


def _troubles(snapshot: Snapshot, path: str, claim: Obj) -> Iterator[Reason]:
    volume = (claim.get("spec") or {}).get("volumeName")
    if volume:
        yield from _elsewhere(snapshot, name_of(claim), volume)
        return
    name, classes = class_of(claim), snapshot.objects("StorageClass")
    known = sorted(classes)
    data = {"persistentVolumeClaim": path, "storageClass": name, "known": known}
    text = f"PersistentVolumeClaim {path.rpartition('/')[2]} is not bound"
    if name and name not in classes:
        there = f"; known: {listed(known)}" if known else ""
        yield Reason("StorageClassMissing", f"{text}: its StorageClass {name} does not exist{there}", data)
    elif not name and default_class(snapshot) is None:
        there = f", and none of {listed(known)} is the default" if known else ""
        yield Reason("StorageClassMissing", f"{text}: it names no StorageClass{there}", data)
    elif name and classes[name].get("provisioner") == NO_PROVISIONER and not _available(snapshot, name):
        why = f"StorageClass {name} has no provisioner, and no PersistentVolume of it is available"
        yield Reason(
            "NoProvisioner", f"{text}: {why}", {key: data[key] for key in ("persistentVolumeClaim", "storageClass")}
        )


def _elsewhere(snapshot: Snapshot, claim: str, volume: str) -> Iterator[Reason]:
    """Which nodes alone can reach the volume that a claim is bound to."""
    found = snapshot.objects("PersistentVolume").get(volume) or {}
    required = ((found.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    nodes = {name: snapshot.nodes[name] for name in snapshot.node_names}
    reach = [name for name, node in nodes.items() if required and node_selector_matches(required, name, node.labels)]
    if required and len(reach) < len(nodes):
        who = f"only {listed(sorted(reach))}" if reach else "no node that there is"
        text = f"PersistentVolumeClaim {claim} is bound to volume {volume}, which {who} can reach"
        data = {"persistentVolume": volume, "persistentVolumeClaim": claim, "reachable": sorted(reach)[:_MOST_NODES]}
        yield Reason("VolumeNodeAffinity", text, data)


def _available(snapshot: Snapshot, name: str) -> bool:
    volumes = (volume for volume in snapshot.objects("PersistentVolume").values() if class_of(volume) == name)
    return any((volume.get("status") or {}).get("phase") in (None, "Pending", "Available") for volume in volumes)


def default_class(snapshot: Snapshot) -> str | None:
    """Return the name of the StorageClass of claims that name none."""
    classes = snapshot.objects("StorageClass").values()
    return next((name_of(one) for one in classes if annotations_of(one).get(_IS_DEFAULT) == "true"), None)
