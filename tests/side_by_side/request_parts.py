"""What random requests consist of: the request itself, marks for what servers choose, resources, patches, bodies.

A body may have marks (`mark`) in place of what each server chose itself: a uid, a version, a time, a continue token.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from request_samples import Obj

from haru.kube.kinds import by_kind

PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_OF_CUSTOM = {"Training": ("trainings", ("status", "scale"))}


def mark(what: str, path: str) -> str:
    """What a server puts there: uid, resourceVersion, creationTimestamp or continue of what is at a path."""
    return f"«{what} {path}»"


def chosen(obj: Obj) -> list[tuple[str, Any]]:
    """What a server chose for an object, with a name for each: strings, and numbers."""
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    found: list[tuple[str, Any]] = [("uid", metadata["uid"])] if metadata.get("uid") else []
    if not isinstance(spec, dict):
        return found
    for number, volume in enumerate(spec.get("volumes") or () if obj["kind"] == "Pod" else ()):
        if isinstance(volume, dict) and str(volume.get("name")).startswith("kube-api-access-"):
            found.append((f"volume{number}", volume["name"]))
    if obj["kind"] == "Service":
        found += [("clusterIP", spec["clusterIP"])] if spec.get("clusterIP") not in ("", "None", None) else []
        ports = [port for port in spec.get("ports") or () if port.get("nodePort")]
        found += [(f"nodePort{number}", port["nodePort"]) for number, port in enumerate(ports)]
        if spec.get("healthCheckNodePort"):
            found.append(("healthCheckNodePort", spec["healthCheckNodePort"]))
    return found


@dataclass(frozen=True)
class Request:
    """One request, the same to both servers but for its marks."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """Bytes, or an object that is sent as JSON."""
    resource: str = ""
    """`pods`, `pods/status`: what is counted together."""

    def __str__(self) -> str:
        text = f"{self.method} {self.path}{'?' + self.query if self.query else ''}"
        told = {name: value for name, value in self.headers.items() if value != "application/json"}
        return text + (f" {dict(told)}" if told else "")

    @property
    def body_text(self) -> str:
        """The body for people."""
        return "" if self.body is None else repr(self.body) if isinstance(self.body, bytes) else json.dumps(self.body)


class Resource:
    """Where objects of a sample's kind are, within a namespace; of a custom one plural and subresources are given."""

    def __init__(self, given: Obj, namespace: str, custom: tuple[str, tuple[str, ...]] | None = None) -> None:
        kind = by_kind(given["apiVersion"], given["kind"])
        plural, under = custom or _OF_CUSTOM.get(given["kind"], ("", ()))
        group, _, version = given["apiVersion"].rpartition("/")
        self.group = group
        self.root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self.plural = kind.plural if kind else plural
        self.subresources = kind.subresources if kind else under
        self.is_namespaced = kind.namespaced if kind else True
        self.is_virtual = kind.virtual if kind else False
        self.is_custom = kind is None
        self.sample = json.loads(json.dumps(given).replace("NAMESPACE", namespace))
        self.path = (
            f"{self.root}/namespaces/{namespace}/{self.plural}" if self.is_namespaced else f"{self.root}/{self.plural}"
        )

    @property
    def name(self) -> str:
        """The name of its sample."""
        return str(self.sample["metadata"]["name"])


def binding(r: random.Random, name: str, path: str) -> Obj:
    """A body of a binding."""
    metadata = {"name": name} | r.choice([{}, {"uid": mark("uid", path)}, {"uid": "x"}, {"annotations": {"a": "b"}}])
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"kind": "Node", "name": r.choice(["n1", "n1", "A_", ""])},
    }


def eviction(r: random.Random, name: str, path: str) -> Obj:
    """A body of a eviction."""
    options = r.choice(
        [
            {},
            {"gracePeriodSeconds": 0},
            {"dryRun": ["All"]},
            {"preconditions": {"uid": "x"}},
            {"preconditions": {"resourceVersion": mark("old", path)}},
        ]
    )
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": r.choice([name, name, "x"])},
        "deleteOptions": options,
    }


def token(r: random.Random, name: str, path: str) -> Obj:
    """A body of a token."""
    spec = r.choice([
        {}, {"audiences": ["x"]}, {"expirationSeconds": r.choice([600, 599, 3600, 2**33])}, {"audiences": []},
        {"boundObjectRef": {"kind": r.choice(["Pod", "Secret", "x"]), "apiVersion": "v1", "name": r.choice("pa")}},
    ])  # fmt: skip
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


BODIES = {"binding": binding, "eviction": eviction, "token": token}
"""How the bodies of subresources are drawn that are not the object itself."""


def merge_patch(old: Any, new: Any) -> Any:
    """The merge patch that leads from one value to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    made = {key: None for key in old if key not in new}
    return made | {
        key: merge_patch(old.get(key), value) for key, value in new.items() if key not in old or old[key] != value
    }


def json_patch(old: Any, new: Any, at: str = "") -> list[Obj]:
    """A JSON patch that leads from one value to another; lists are replaced."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [{"op": "replace", "path": at, "value": new}]
    found = list[Obj]()
    for key in [*old, *(key for key in new if key not in old)]:
        where = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            found.append({"op": "remove", "path": where})
        elif key not in old:
            found.append({"op": "add", "path": where, "value": new[key]})
        else:
            found += json_patch(old[key], new[key], where)
    return found
