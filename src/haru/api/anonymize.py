"""A captured cluster without its names: the same decisions, but nobody learns whose they were.

Every name, namespace and image is replaced by a number that stands where the name stood in the order of all of them,
so whatever goes by the order of names comes out alike; where a seed and a name break a tie it may break the other
way. Annotations become digests, but those that decisions read, and so does what drivers of storage call a node or a
volume; what containers run, their environment, where volumes are and the texts of conditions are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from haru.kube.meta import Obj
from haru.kube.workload_pods import BY_QUOTA

_READ = (
    *("haru.dev/", "resource.kubernetes.io/", "simulated.haru.dev/"),
    *("pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"),
)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_KEPT_OF_CONTAINERS = frozenset({"name", "image", "resources", "ports", "restartPolicy", "restartPolicyRules"})
_KEPT_VOLUMES = frozenset({"persistentVolumeClaim", "ephemeral"})
_KEPT_NAMES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_KEPT_OF_STORAGE: Mapping[str, frozenset[str]] = {
    "PersistentVolume": frozenset(
        {"accessModes", "capacity", "claimRef", "csi", "nodeAffinity", "persistentVolumeReclaimPolicy"}
        | {"storageClassName", "volumeMode"}
    ),
    "VolumeAttachment": frozenset({"attacher", "nodeName", "source"}),
}
"""Of the specs of these kinds: what else is there says where somebody's storage is."""
_KEPT_OF_CSI = frozenset({"driver", "volumeHandle"})
_NEVER = frozenset({"managedFields", "message", "description", "attachmentMetadata"})
_DIGESTS = frozenset({"volumeHandle", "nodeID"})
"""What has to stay one and the same thing."""
_AS_THEY_ARE = frozenset({"attributes", "capacity", "expression"})
"""What selectors read must go on saying what they read."""


def hidden(objects: Iterable[Obj], named: Iterable[Obj] = ()) -> list[Obj]:
    """The objects with other names; they must be all that refer to each other. `named`: others, whose names go too."""
    slim = [_slim(obj) for obj in objects if obj["kind"] != "Lease"]
    known = new_names([*slim, *named])
    return [_renamed(obj, known) | _told(obj) for obj in slim]


def _told(obj: Obj) -> Obj:
    """What stays of the message of an event: whether it is a quota that refuses pods."""
    if obj["kind"] != "Event":
        return {}
    by_quota = BY_QUOTA in str(obj.get("message"))
    return {"message": f"{BY_QUOTA}left out" if by_quota else "the API server refuses them (its answer is left out)"}


def new_names(objects: Iterable[Obj]) -> dict[str, str]:
    """Map each name to its replacement."""
    names = sorted({name for obj in objects for name in _names(obj)} - _KEPT_NAMES)
    width = len(str(len(names)))
    return {name: f"x{number:0{width}}" for number, name in enumerate(names)}


def _slim(obj: Obj) -> Obj:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ("managedFields", "generateName")}
    if metadata.get("annotations"):
        metadata["annotations"] = {
            key: value if key.startswith(_READ) else _digest(value) for key, value in metadata["annotations"].items()
        }
    found = {**obj, "metadata": metadata}
    if obj["kind"] in _KEPT_OF_STORAGE:
        found["spec"] = _only(_KEPT_OF_STORAGE[obj["kind"]], obj["spec"])
        if found["spec"].get("csi"):
            found["spec"]["csi"] = _only(_KEPT_OF_CSI, found["spec"]["csi"])
    elif obj["kind"] == "StorageClass":
        found = {k: v for k, v in found.items() if k not in ("parameters", "mountOptions")}
    for path in (("spec",), ("spec", "template", "spec")):
        spec = _at(found, path)
        if spec is not None:
            found = _with(found, path, _slim_spec(spec))
    return found


def _only(keys: Collection[str], value: Obj) -> Obj:
    return {k: v for k, v in value.items() if k in keys}


def _digest(value: object) -> str:
    return sha256(str(value).encode()).hexdigest()[:12]


def _slim_spec(spec: Obj) -> Obj:
    found = dict(spec)
    for name in _CONTAINERS:
        if isinstance(spec.get(name), list):
            found[name] = [_only(_KEPT_OF_CONTAINERS, c) for c in spec[name]]
    if isinstance(spec.get("volumes"), list):
        found["volumes"] = [
            volume if _KEPT_VOLUMES & volume.keys() else {"name": volume.get("name"), "emptyDir": {}}
            for volume in spec["volumes"]
        ]
    return found


def _at(obj: Obj, path: tuple[str, ...]) -> Obj | None:
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and any(name in found for name in (*_CONTAINERS, "volumes")) else None


def _with(obj: Obj, path: tuple[str, ...], value: Obj) -> Obj:
    head, *rest = path
    return {**obj, head: _with(obj[head], tuple(rest), value) if rest else value}


def _names(obj: Obj) -> Iterator[str]:
    metadata = obj["metadata"]
    yield metadata["name"]
    if metadata.get("namespace"):
        yield metadata["namespace"]
    for owner in metadata.get("ownerReferences") or ():
        yield owner.get("name") or ""
    yield from _images(obj)


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "image" and isinstance(item, str):
                yield item
            else:
                yield from _images(item)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item)


def _renamed(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        if value in known:
            return known[value]
        head, slash, tail = value.partition("/")
        return f"{known.get(head, head)}/{known[tail]}" if slash and tail in known else value
    if isinstance(value, Mapping):
        return {k: _value(k, v, known) for k, v in value.items() if k not in _NEVER}
    if isinstance(value, list):
        return [_renamed(item, known) for item in value]
    return value


def _value(key: str, value: Any, known: Mapping[str, str]) -> Any:
    if key in _DIGESTS:
        return _digest(value)
    return value if key in _AS_THEY_ARE else _renamed(value, known)
