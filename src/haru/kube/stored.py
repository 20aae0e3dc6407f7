"""Objects as a server would store them, made from manifests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from haru.kube.conversion import convert
from haru.kube.decoding import strict_decode
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, by_kind, storage_kind
from haru.kube.meta import Obj


def as_stored(obj: Obj, namespace: str, unknown: list[str] | None = None) -> Obj:
    """An object as a server would store it; ValueError or StatusError for one that no server would take.

    What is left out because the kind has no such fields is told in `unknown`.
    """
    missing = [field for field in ("apiVersion", "kind") if not obj.get(field)]
    if missing:
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    kind = by_kind(str(obj["apiVersion"]), str(obj["kind"]))
    if kind is None:
        raise ValueError(f'no kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    stored = _stored(obj, kind, storage_kind(kind), namespace, _gates(), [] if unknown is None else unknown)
    return {"apiVersion": storage_kind(kind).api_version, "kind": kind.kind, **stored}


def has_identity(obj: Obj) -> bool:
    """Whether a server has stored the object once; a manifest that somebody wrote has its name for a UID."""
    return bool(obj["metadata"].get("uid") != _name_as_uid(obj["kind"], obj["metadata"]))


@cache
def _gates() -> FeatureGates:
    """Those of `haru up`."""
    return FeatureGates.accelerator_defaults()


def _stored(obj: Obj, kind: Kind, storage: Kind, namespace: str, gates: FeatureGates, unknown: list[str]) -> Obj:
    decoded, left_out = strict_decode(obj, kind)
    unknown += left_out
    metadata = dict(decoded.get("metadata") or {})
    if not metadata.get("name"):
        raise ValueError(f"{kind.kind}: metadata.name: Required value")
    if kind.namespaced:
        metadata.setdefault("namespace", namespace)
    # Objects of a file have no identity yet; what refers to them by UID finds them by name.
    metadata.setdefault("uid", _name_as_uid(kind.kind, metadata))
    result: Obj = convert(apply_defaults({**decoded, "metadata": metadata}, kind, gates), storage)
    return result


def _name_as_uid(kind: str, metadata: Mapping[str, Any]) -> str:
    return f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}"
