"""Discovery of group versions that extension API servers serve, beside those that are served here.

Their resources are told in the legacy form (APIResourceList) and shown in both.
Source: the aggregated discovery manager of Kubernetes 1.36 (KEP 3352), as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haru.kube.meta import Obj


def aggregated_version(group: str, version: str, resources: Sequence[Mapping[str, Any]], *, stale: bool) -> Obj:
    """One version of a group in the aggregated document; `stale`: its server can not be asked now."""
    shown: dict[str, Obj] = {}
    below: dict[str, list[Obj]] = {}
    for entry in resources:
        plural, _, subresource = str(entry["name"]).partition("/")
        kind = {"group": entry.get("group") or group, "version": entry.get("version") or version, "kind": entry["kind"]}
        if subresource:
            described: Obj = {"subresource": subresource, "responseKind": kind, "verbs": _texts(entry.get("verbs"))}
            below.setdefault(plural, []).append(described)
        else:
            shown[plural] = _resource(plural, kind, entry)
    for plural, found in below.items():
        if plural in shown:
            shown[plural]["subresources"] = sorted(found, key=lambda each: str(each["subresource"]))
    ordered = [shown[plural] for plural in sorted(shown)]
    return {"version": version, "resources": ordered, "freshness": "Stale" if stale else "Current"}


def _resource(plural: str, kind: Obj, entry: Mapping[str, Any]) -> Obj:
    resource: Obj = {
        "resource": plural,
        "responseKind": kind,
        "scope": "Namespaced" if entry.get("namespaced") is True else "Cluster",
        "singularResource": str(entry.get("singularName") or ""),
        "verbs": _texts(entry.get("verbs")),
    }
    for name in ("shortNames", "categories"):
        if texts := _texts(entry.get(name)):
            resource[name] = texts
    return resource


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def with_versions(items: Sequence[Obj], more: Iterable[tuple[str, Obj]]) -> list[Obj]:
    """The groups of an aggregated document with further versions, each after those that its group has already."""
    groups = {(item.get("metadata") or {}).get("name", ""): dict(item) for item in items}
    for group, version in more:
        known = groups.setdefault(group, {"metadata": {"name": group}, "versions": []})
        known["versions"] = [*known["versions"], version]
    return list(groups.values())
