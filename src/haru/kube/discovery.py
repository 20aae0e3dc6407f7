"""Discovery: what the API server serves, in the legacy documents and in the aggregated one.

Clients map `pods`, `po` or `Pod` to a URL with these. Which kinds are served is the caller's to say; all documents are
built from the same `Kind`s and in their order, which is the order of preference.
Source: apimachinery `meta/v1` discovery types and apidiscovery.k8s.io/v2 (KEP 3352).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from haru.kube.kinds import Kind, Subresource, storage_kind, subresources_of, ways_of
from haru.kube.meta import Obj

AGGREGATED_CONTENT_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of `aggregated`; Go takes an answer without the parameters for a legacy one."""


def api_versions(server_address: str) -> Obj:
    """`GET /api`: the versions of the core group."""
    cidrs = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": cidrs}


def api_group(group: str, versions: Sequence[str]) -> Obj:
    """`GET /apis/<group>`; `versions` in order of preference."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def api_group_list(group_versions: Iterable[tuple[str, str]]) -> Obj:
    """`GET /apis`: every named group with its versions."""
    grouped: dict[str, list[str]] = {}
    for group, version in group_versions:
        if group:
            grouped.setdefault(group, []).append(version)
    groups = [_group(group, versions) for group, versions in grouped.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(group: str, versions: Sequence[str]) -> Obj:
    # Clients compare preferredVersion with the entries as whole objects, so both are made alike.
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": dict(entries[0])}


def api_resource_list(group: str, version: str, kinds: Iterable[Kind]) -> Obj:
    """`GET /api/v1` or `/apis/<group>/<version>`: its resources and subresources."""
    resources: list[Obj] = []
    for kind in kinds:
        if (kind.group, kind.version) == (group, version):
            resources.append(_resource(kind))
            resources.extend(_subresource(kind, sub) for sub in _shown(kind))
    resources.sort(key=lambda resource: str(resource["name"]))
    group_version = f"{group}/{version}" if group else version
    # That of the core group does not say its own version: clients before 1.5 would not know it.
    own: Obj = {"apiVersion": "v1"} if group else {}
    return {"kind": "APIResourceList", **own, "groupVersion": group_version, "resources": resources}


def _resource(kind: Kind) -> Obj:
    resource: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if not kind.virtual:
        resource["storageVersionHash"] = storage_version_hash(kind)
    return resource


def _verbs(kind: Kind) -> list[str]:
    """What can be done with its objects: of a definition that goes they are no longer made or changed."""
    goes = kind.custom is not None and kind.custom.terminating
    return [verb for verb in kind.verbs if not (goes and verb in ("create", "patch", "update"))]


def _shown(kind: Kind) -> Sequence[Subresource]:
    return sorted((*subresources_of(kind), *ways_of(kind)), key=lambda sub: sub.name)


def _subresource(kind: Kind, sub: Subresource) -> Obj:
    resource: Obj = {"name": f"{kind.plural}/{sub.name}", "singularName": "", "namespaced": kind.namespaced}
    if (sub.group, sub.version) != (kind.group, kind.version):
        resource["group"] = sub.group
        resource["version"] = sub.version
    return {**resource, "kind": sub.kind, "verbs": list(sub.verbs)}


def storage_version_hash(kind: Kind) -> str:
    """Changes when objects of this resource are stored in another version."""
    stored = storage_kind(kind)
    version = kind.storage_version if kind.custom is not None else stored.version
    digest = hashlib.sha256(f"{stored.group}/{version}/{stored.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode("ascii")


def aggregated(
    group_versions: Iterable[tuple[str, str]],
    kinds: Iterable[Kind],
    *,
    root: Literal["/api", "/apis"],
    stale: frozenset[tuple[str, str]] = frozenset(),
) -> Obj:
    """The aggregated document of `/api` (the core group) or `/apis` (all others). `stale`: could not be asked."""
    by_version: dict[tuple[str, str], list[Kind]] = {}
    for kind in kinds:
        by_version.setdefault((kind.group, kind.version), []).append(kind)
    groups: dict[str, list[Obj]] = {}
    for group, version in group_versions:
        if (root == "/api") == (group == ""):
            entry: Obj = {"version": version}
            resources = [_aggregated_resource(kind) for kind in by_version.get((group, version), ())]
            entry["resources"] = sorted(resources, key=lambda resource: str(resource["resource"]))
            entry["freshness"] = "Stale" if (group, version) in stale else "Current"
            groups.setdefault(group, []).append(entry)
    items: list[Obj] = [
        {"metadata": {"name": group} if group else {}, "versions": versions} for group, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _response_kind(kind: Kind, of: Kind | Subresource) -> Obj:
    """The kind that is answered with; what is built in does not name its own group and version."""
    is_own = (of.group, of.version) == (kind.group, kind.version) and kind.custom is None
    return {"group": "" if is_own else of.group, "version": "" if is_own else of.version, "kind": of.kind}


def _aggregated_resource(kind: Kind) -> Obj:
    resource: Obj = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": _response_kind(kind, sub),
            "verbs": list(sub.verbs),
        }
        for sub in _shown(kind)
    ]
    if subresources:
        resource["subresources"] = subresources
    return resource
