"""Why the volumes of pods are not there: their classes do not exist, or nobody provisions what they wait for."""

from __future__ import annotations

from collections.abc import Iterator

from haru.engine import Reason, Snapshot
from haru.explain.changes import listed
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj, annotations_of, name_of
from haru.kube.volume_binding import class_of

NO_PROVISIONER = "kubernetes.io/no-provisioner"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def volume_troubles(snapshot: Snapshot, work: WorkloadUnit) -> tuple[Reason, ...]:
    """Return what is wrong with the PersistentVolumeClaims of the pods that exist and are not bound."""
    paths = {f"{pod.key.namespace}/{name}" for pod in work.pending(snapshot) for name in pod.volume_claims}
    claims = snapshot.objects("PersistentVolumeClaim")
    return tuple(reason for path in sorted(paths & claims.keys()) for reason in _troubles(snapshot, path, claims[path]))


def _troubles(snapshot: Snapshot, path: str, claim: Obj) -> Iterator[Reason]:
    if (claim.get("spec") or {}).get("volumeName"):
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


def _available(snapshot: Snapshot, name: str) -> bool:
    volumes = (volume for volume in snapshot.objects("PersistentVolume").values() if class_of(volume) == name)
    return any((volume.get("status") or {}).get("phase") in (None, "Pending", "Available") for volume in volumes)


def default_class(snapshot: Snapshot) -> str | None:
    """Return the name of the StorageClass of claims that name none."""
    classes = snapshot.objects("StorageClass").values()
    return next((name_of(one) for one in classes if annotations_of(one).get(_IS_DEFAULT) == "true"), None)
