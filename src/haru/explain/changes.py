"""Changes as data that a person or a program can apply: delete, patch (merge patch), create."""

from __future__ import annotations

from haru.engine.decision import Obj


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
