"""Which resources this server serves, and how a URL path names one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from haru.kube.custom.types import preference
from haru.kube.errors import PageNotFound, no_such_path, not_found_error
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, all_kinds, enabled_by_default, group_versions, storage_kind, subresources_of
from haru.kube.lifecycle import is_in
from haru.kube.schema import MessageType


@dataclass(frozen=True)
class Resource:
    """One served kind, with what every request for it needs at hand."""

    kind: Kind
    stored: Kind
    bucket: str
    subresource_verbs: Mapping[str, tuple[str, ...]] = field(compare=False)

    @cached_property
    def message_type(self) -> MessageType:
        """The schema in the served version."""
        return self.kind.message_type

    @cached_property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own."""
        return "status" in self.kind.subresources

    def key(self, namespace: str, name: str) -> str:
        """Where an object is stored."""
        return f"{self.bucket}/{namespace}/{name}" if self.kind.namespaced else f"{self.bucket}/{name}"

    def registry_key(self, namespace: str, name: str) -> str:
        """Where kube-apiserver stores an object in etcd, which some messages of 1.36 tell."""
        kind = self.kind
        of_group = kind.custom is not None or kind.group in _REGISTRY_GROUPS
        usual = f"{kind.group}/{kind.plural}" if of_group else kind.plural
        place = _REGISTRY_PLACES.get(kind.group_resource, usual)
        return "/".join(("/registry", place, *([namespace] if self.kind.namespaced else ()), name))

    def prefix(self, namespace: str) -> str:
        """Where the objects of a namespace, or all, are stored."""
        return f"{self.bucket}/{namespace}/" if namespace and self.kind.namespaced else f"{self.bucket}/"


_REGISTRY_GROUPS = ("apiextensions.k8s.io", "apiregistration.k8s.io")
_REGISTRY_PLACES = {
    "endpoints": "services/endpoints",
    "ingresses.networking.k8s.io": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection, an object or a subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """The older form `…/v1/watch/pods`, below which everything is a watch."""


class Served:
    """The table of served resources."""

    def __init__(self, gates: FeatureGates, runtime_config: Mapping[str, bool]) -> None:
        there = [kind for kind in all_kinds() if is_in(kind, gates.minor)]
        enabled = {gv for gv in group_versions() if _enabled(*gv, runtime_config)}
        self.built_in = [k for k in there if (k.group, k.version) in enabled and _kind_enabled(k, gates)]
        self._built_in_versions = list(dict.fromkeys((k.group, k.version) for k in self.built_in))
        self._custom: dict[str, Sequence[Resource]] = {}
        self.generation = 0
        """Counts the changes of what is served."""
        self._resources: dict[tuple[str, ...], Resource] = {}
        self._preferred: dict[tuple[str, ...], Resource] = {}
        self._by_kind: dict[tuple[str, ...], Resource] = {}
        self._forms: dict[str, list[Resource]] = {}
        for kind in self.built_in:
            self._add(_resource(kind))

    def set_custom(self, owner: str, resources: Sequence[Resource]) -> list[Kind]:
        """Serve these custom resources of an owner, and no others of his; which of them are served no longer."""
        before = self._custom.get(owner, ())
        if list(resources) == list(before):
            return []
        for resource in before:
            self._remove(resource)
        for resource in resources:
            self._add(resource)
        if resources:
            self._custom[owner] = resources
        else:
            del self._custom[owner]
        self.generation += 1
        for listed in ("kinds", "group_versions", "listed_versions"):
            self.__dict__.pop(listed, None)
        left = {(resource.kind.api_version, resource.kind.plural) for resource in resources}
        return [each.kind for each in before if (each.kind.api_version, each.kind.plural) not in left]

    def _add(self, resource: Resource) -> None:
        """Serve a resource, unless another one is there in its place: what is built in comes first."""
        for table, name in self._places(resource):
            table.setdefault(name, resource)
        self._forms.setdefault(resource.bucket, []).append(resource)

    def _remove(self, resource: Resource) -> None:
        for table, name in self._places(resource):
            if table.get(name) is resource:
                del table[name]
        self._forms[resource.bucket].remove(resource)

    def _places(self, resource: Resource) -> tuple[tuple[dict[tuple[str, ...], Resource], tuple[str, ...]], ...]:
        kind = resource.kind
        return (
            (self._resources, (kind.group, kind.version, kind.plural)),
            (self._preferred, (kind.group, kind.plural)),
            (self._by_kind, (kind.api_version, kind.kind)),
        )

    @cached_property
    def kinds(self) -> list[Kind]:
        """Every served kind in every version."""
        return [*self.built_in, *(resource.kind for each in self._custom.values() for resource in each)]

    @cached_property
    def group_versions(self) -> list[tuple[str, str]]:
        """The served group versions, the preferred ones of a group first."""
        custom = {(r.kind.group, r.kind.version) for each in self._custom.values() for r in each}
        in_order = sorted(custom, key=lambda version: (version[0], preference(version[1])))
        return list(dict.fromkeys([*self._built_in_versions, *in_order]))

    @cached_property
    def listed_versions(self) -> list[tuple[str, str]]:
        """The group versions in the order of the APIGroupList: custom groups by the names of their APIServices."""
        found = dict.fromkeys(self._built_in_versions)
        custom = [version for version in self.group_versions if version not in found]
        first: dict[str, str] = {}
        for group, version in custom:
            name = f"{version}.{group}"
            first[group] = min(first.get(group, name), name)
        return [*found, *sorted(custom, key=lambda version: first[version[0]])]

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a group, version and plural name."""
        return self._resources.get((group, version, plural))

    def preferred(self, group: str, plural: str) -> Resource:
        """The resource in the version that is served first (admission and hooks address others by it)."""
        return self._preferred[group, plural]

    def find(self, group: str, plural: str) -> Resource | None:
        """As `preferred`; None when the resource is not served."""
        return self._preferred.get((group, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource whose objects say so of themselves."""
        return self._by_kind[api_version, kind]

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        """As `of_kind`; None when the resource is not served."""
        return self._by_kind.get((api_version, kind))

    def forms(self, resource: Resource) -> tuple[Resource, ...]:
        """Every version or group in which the same objects are served."""
        return tuple(self._forms.get(resource.bucket, ()))

    def all(self) -> list[Resource]:
        """Every served resource in every version."""
        return list(self._resources.values())

    def target(self, path: str) -> Target:
        """What a path below `/api/` or `/apis/` names. Raises 404."""
        parts = path.rstrip("/").split("/")
        if len(parts) >= 4 and parts[1] == "api":
            group, version, rest = "", parts[2], parts[3:]
        elif len(parts) >= 5 and parts[1] == "apis":
            group, version, rest = parts[2], parts[3], parts[4:]
        else:
            raise no_such_path()
        watched = rest[0] == "watch" and len(rest) > 1
        found = self._target(group, version, rest[1:] if watched else rest)
        if found is None and all(group != known for known, _ in self.group_versions):
            raise PageNotFound
        if found is None or (watched and (found.subresource or "watch" not in found.resource.kind.verbs)):
            raise no_such_path()
        return replace(found, watch=True) if watched else found

    def _target(self, group: str, version: str, rest: list[str]) -> Target | None:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3:
            below = self._resources.get((group, version, rest[2]))
            if below is not None and below.kind.namespaced:
                namespace, rest = rest[1], rest[2:]
        resource = self._resources.get((group, version, rest[0]))
        if resource is None or len(rest) > 3 or "" in rest:
            return None
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        if resource.kind.namespaced and name and not namespace:
            if resource.kind.custom is not None:
                raise PageNotFound
            return None
        if subresource and subresource not in resource.subresource_verbs:
            if resource.kind.custom is not None:  # whose subresources come and go
                raise not_found_error(group, resource.kind.plural, name)
            return None
        return Target(resource, namespace, name, subresource)


def is_discovery_path(path: str) -> bool:
    """Whether a path below /api/ or /apis/ names a group or a version, not a resource."""
    parts = path.strip("/").split("/")
    return len(parts) <= 2 or (parts[0] == "apis" and len(parts) == 3)


def _resource(kind: Kind) -> Resource:
    return resource_of(kind, storage_kind(kind))


def resource_of(kind: Kind, stored: Kind) -> Resource:
    """The resource of a kind whose objects are stored as another one, in the same version or not."""
    if kind.custom is not None and kind.version == stored.version:
        stored = kind
    verbs = {sub.name: sub.verbs for sub in subresources_of(kind)}
    return Resource(kind, stored, stored.group_resource, verbs)


def _enabled(group: str, version: str, config: Mapping[str, bool]) -> bool:
    name = f"{group}/{version}" if group else version
    for key in (name, f"api/{name}" if not group else name):
        if key in config:
            return config[key]
    stage = "api/alpha" if "alpha" in version else "api/beta" if "beta" in version else "api/ga"
    if stage in config:
        return config[stage]
    if "api/all" in config:
        return config["api/all"]
    return enabled_by_default(group, version)


_GATED = {
    "ClusterTrustBundle": "ClusterTrustBundle",
    "PodCertificateRequest": "PodCertificateRequest",
    "Workload": "GenericWorkload",
    "PodGroup": "GenericWorkload",
    "DeviceTaintRule": "DRADeviceTaintRules",
    "ResourcePoolStatusRequest": "DRAResourcePoolStatus",
}


def _kind_enabled(kind: Kind, gates: FeatureGates) -> bool:
    gate = _GATED.get(kind.kind)
    return gate is None or gates.enabled(gate)
