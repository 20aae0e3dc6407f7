"""Changes as data that a person or a program can apply: delete, patch (merge patch), create."""

from __future__ import annotations

from collections.abc import Sequence

from haru.gangs import as_written
from haru.kube.meta import Obj


def _target(api_version: str, kind: str, name: str, namespace: str) -> Obj:
    meta = {"namespace": namespace, "name": name} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def delete(api_version: str, kind: str, name: str, namespace: str = "") -> Obj:
    """The object is to be deleted."""
    return {"action": "delete", "object": _target(api_version, kind, name, namespace)}


def patch(api_version: str, kind: str, name: str, body: Obj, namespace: str = "") -> Obj:
    """The object is to be changed by a merge patch."""
    return {"action": "patch", "target": _target(api_version, kind, name, namespace), "patch": body}


def create(obj: Obj) -> Obj:
    """The object is to be created."""
    return {"action": "create", "object": obj}


def replacement(obj: Obj, spec: Obj, *, owned: bool = False) -> tuple[Obj, ...]:
    """An object whose spec may not be changed is deleted and made anew; `owned`: for the same owner as before."""
    kept = ("namespace", "name", "annotations", "ownerReferences") if owned else ("namespace", "name")
    meta = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
    fresh = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta, "spec": spec}
    gone = delete(obj["apiVersion"], obj["kind"], meta["name"], meta.get("namespace", ""))
    return gone, create(fresh)


def pod_manifest(pod: Obj) -> Obj:
    """A pod as one would write it, without a place; claims are made from its templates again."""
    kept = ("namespace", "name", "labels", "annotations")
    meta = {key: value for key, value in pod["metadata"].items() if key in kept}
    spec = {key: value for key, value in (as_written(pod).get("spec") or {}).items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def listed(names: Sequence[str]) -> str:
    """Up to four names, then how many more there are."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
