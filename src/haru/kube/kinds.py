"""The kinds of objects that are served: their names, scope, verbs, versions.

A `Kind` is one resource in one version (`apps/v1 Deployment`, plural `deployments`). The list is tables/kinds.txt, in
the order in which discovery prefers groups and versions. Kinds that are only ever sent in a body (`Scale`,
`Eviction`, `TokenRequest`, `DeleteOptions`) are found by `by_kind` but are no resources.
Source: discovery of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from haru.kube.custom.structural import Structural
from haru.kube.meta import Obj
from haru.kube.printing.base import Printer
from haru.kube.schema import MessageType, type_of

STANDARD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of a resource that can do everything."""


class CustomType(Protocol):
    """One version of a CustomResourceDefinition, as its kind carries it (`haru.kube.custom.types`)."""

    raw: Obj
    schema: Structural
    has_status: bool
    scale: Obj | None
    selectable: Mapping[str, str]
    list_kind: str
    warning: str
    terminating: bool
    message: MessageType
    declared: Any
    rules: Any
    converter: Any
    reader: Any
    printer: Printer

    def decode(self, obj: Any, kind: Kind) -> tuple[Obj, list[str]]:
        """Drop what the schema does not know, and name each of that."""

    def default(self, obj: Obj) -> Obj:
        """Fill in the defaults of the schema."""

    def with_stray_nulls(self, obj: Obj) -> Obj | None:
        """Fill in the defaults and keep nulls that mean nothing, if there are any."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    storage_version: str
    """The version of the same group that objects are stored in."""
    type_name: str
    """The schema's name: `io.k8s.api.apps.v1.Deployment`."""
    virtual: bool
    """Answered when created, never stored: reviews, bindings."""
    custom: CustomType | None = None
    """What a CustomResourceDefinition says of the kind; None for those that are built in."""

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """`DeploymentList`."""
        return (self.custom.list_kind if self.custom is not None else "") or self.kind + "List"

    @property
    def group_resource(self) -> str:
        """`pods`, `deployments.apps`: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version_kind(self) -> str:
        """`apps/v1, Kind=Deployment`, `/v1, Kind=Pod`: how messages name the kind with its version."""
        return f"{self.group}/{self.version}, Kind={self.kind}"

    @property
    def message_type(self) -> MessageType:
        """The type of its objects, built in or custom."""
        return self.custom.message if self.custom is not None else type_of(self)

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource: its verbs and the kind of its body."""

    name: str
    verbs: tuple[str, ...]
    group: str
    version: str
    kind: str


_OBJECT_VERBS = ("get", "patch", "update")
# Name -> verbs and, where the body is not the object itself, (group, version, kind) of the body.
_SUBRESOURCES: dict[str, tuple[tuple[str, ...], tuple[str, str, str] | None]] = {
    "approval": (_OBJECT_VERBS, None),
    "binding": (("create",), ("", "v1", "Binding")),
    "ephemeralcontainers": (_OBJECT_VERBS, None),
    "eviction": (("create",), ("policy", "v1", "Eviction")),
    "finalize": (("update",), None),
    "log": (("get",), None),
    "resize": (_OBJECT_VERBS, None),
    "scale": (_OBJECT_VERBS, ("autoscaling", "v1", "Scale")),
    "status": (_OBJECT_VERBS, None),
    "token": (("create",), ("authentication.k8s.io", "v1", "TokenRequest")),
}


_PROXY_VERBS = ("create", "delete", "get", "patch", "update")
_WAY_VERBS = ("create", "get")
# Plural -> ways that lead on from a core object, which are no REST: name, verbs, kind of the options.
_WAYS: dict[str, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    "nodes": (("proxy", _PROXY_VERBS, "NodeProxyOptions"),),
    "pods": (
        ("attach", _WAY_VERBS, "PodAttachOptions"),
        ("exec", _WAY_VERBS, "PodExecOptions"),
        ("portforward", _WAY_VERBS, "PodPortForwardOptions"),
        ("proxy", _PROXY_VERBS, "PodProxyOptions"),
    ),
    "services": (("proxy", _PROXY_VERBS, "ServiceProxyOptions"),),
}


def ways_of(kind: Kind) -> tuple[Subresource, ...]:
    """List the kind's subresources that connect to where its objects run, as `exec` and `proxy`."""
    if (kind.group, kind.version) != ("", "v1"):
        return ()
    return tuple(Subresource(name, verbs, "", "v1", options) for name, verbs, options in _WAYS.get(kind.plural, ()))


def subresources_of(kind: Kind) -> tuple[Subresource, ...]:
    """The kind's subresources, in the order of their names."""
    found = []
    for name in kind.subresources:
        verbs, body = _SUBRESOURCES[name]
        group, version, body_kind = body or (kind.group, kind.version, kind.kind)
        found.append(Subresource(name, verbs, group, version, body_kind))
    return tuple(found)


def _payload(group: str, version: str, kind: str, package: str) -> Kind:
    type_name = f"{package}.{kind}"
    return Kind(group, version, kind, "", kind.lower(), True, (), (), (), (), version, type_name, True)


_PACKAGES = {
    "apiextensions.k8s.io": "apiextensions-apiserver.pkg.apis",
    "apiregistration.k8s.io": "kube-aggregator.pkg.apis",
}


def _type_name(group: str, version: str, kind: str) -> str:
    package = _PACKAGES.get(group, "api")
    return f"io.k8s.{package}.{group.split('.', 1)[0] or 'core'}.{version}.{kind}"


def _names(column: str) -> tuple[str, ...]:
    return () if column == "-" else tuple(column.split(","))


def _parse(line: str) -> Kind:
    group, version, kind, plural, scope, storage, verbs, short, categories, subresources = line.split()
    group = "" if group == "core" else group
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=scope == "namespaced",
        short_names=_names(short),
        categories=_names(categories),
        verbs=STANDARD_VERBS if verbs == "*" else _names(verbs),
        subresources=_names(subresources),
        storage_version=version if storage == "virtual" else storage,
        type_name=_type_name(group, version, kind),
        virtual=storage == "virtual",
    )


def _load() -> tuple[Kind, ...]:
    text = (Path(__file__).parent / "tables" / "kinds.txt").read_text(encoding="utf-8")
    return tuple(_parse(line) for line in text.splitlines() if not line.startswith("#"))


_KINDS = _load()
_BY_RESOURCE = {(k.group, k.version, k.plural): k for k in _KINDS}
_BY_KIND = {(k.api_version, k.kind): k for k in _KINDS}
_PAYLOADS = {
    (k.api_version, k.kind): k
    for k in (
        _payload("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1"),
        _payload("policy", "v1", "Eviction", "io.k8s.api.policy.v1"),
        _payload("authentication.k8s.io", "v1", "TokenRequest", "io.k8s.api.authentication.v1"),
        _payload("", "v1", "Status", "io.k8s.apimachinery.pkg.apis.meta.v1"),
    )
}


def all_kinds() -> tuple[Kind, ...]:
    """Every resource in every version, in order of preference."""
    return _KINDS


def lookup(group: str, version: str, plural: str) -> Kind | None:
    """The resource that a URL path names."""
    return _BY_RESOURCE.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Kind | None:
    """The kind that an object's own `apiVersion` and `kind` name; kinds that only occur in bodies too."""
    found = _BY_KIND.get((api_version, kind)) or _PAYLOADS.get((api_version, kind))
    if found is None and kind == "DeleteOptions":
        return delete_options(api_version)
    return found


def known_kind(api_version: str, kind: str) -> Kind:
    """The kind, which must be one of the table. Raises LookupError."""
    found = by_kind(api_version, kind)
    if found is None:
        raise LookupError(f"the table of kinds lacks {kind} of {api_version}")
    return found


def delete_options(api_version: str = "v1") -> Kind:
    """`DeleteOptions`, which clients send in the version of whatever they delete."""
    group, _, version = api_version.rpartition("/")
    return _payload(group, version, "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1")


def storage_kind(kind: Kind) -> Kind:
    """The same kind in the version that is stored. Both groups' events are stored as the core group's."""
    if kind.plural == "events":
        return _BY_RESOURCE["", "v1", "events"]
    return _BY_RESOURCE.get((kind.group, kind.storage_version, kind.plural), kind)


def group_versions() -> tuple[tuple[str, str], ...]:
    """Every (group, version), groups and the versions within them in order of preference."""
    return tuple(dict.fromkeys((k.group, k.version) for k in _KINDS))


def enabled_by_default(group: str, version: str) -> bool:
    """Whether 1.36 serves the version without being asked: alpha and beta APIs are opt-in."""
    return "alpha" not in version and "beta" not in version
