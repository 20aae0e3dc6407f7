"""Index the objects of the files by kind and name, as references see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from haru.kube.decoding import suggest_name
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.lint.documents import Document
from haru.lint.paths import Keys
from haru.lint.published import CLASSES

RESOURCE = "resource.k8s.io"
SCHEDULING = "scheduling.k8s.io"


@dataclass(slots=True)
class Item:
    """One object. `raw` is what is written, `obj` what a lenient server would make of it, defaults included."""

    file: str
    document: Document
    prefix: Keys
    raw: Obj
    kind: Kind | None = None
    obj: Obj = field(default_factory=dict)
    owner: Item | None = None
    """The object whose pod template this is, if it is one."""
    base: str = ""
    """The path of the template in its owner."""
    pods: int | None = 1
    """How many pods exist of a pod or template; None where that is not fixed."""

    @property
    def label(self) -> str:
        """`Kind/name`."""
        metadata = self.raw.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        kind = self.raw.get("kind")
        return f"{kind}/{name}" if isinstance(kind, str) and kind else ""

    @property
    def name(self) -> str:
        """The object's name."""
        return str((self.obj.get("metadata") or {}).get("name") or "")

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for kinds without."""
        if self.kind is None or not self.kind.namespaced:
            return ""
        return str((self.obj.get("metadata") or {}).get("namespace") or "default")

    def is_a(self, group: str, kind: str) -> bool:
        """Whether it is of a kind, in whatever version."""
        return self.kind is not None and (self.kind.group, self.kind.kind) == (group, kind)


class PodSpec(NamedTuple):
    """A pod, or the template of some."""

    path: str
    """Of the spec."""
    spec: Obj
    metadata: Obj
    pods: int | None
    """How many pods exist at once; None where that is not fixed."""


class Manifests:
    """All items, for looking things up."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = tuple(items)
        self._by_kind: dict[str, dict[tuple[str, str], Item]] = {}
        self._in_files: dict[tuple[str, str, str, str, str], Item] = {}
        for item in self.items:
            if item.kind is not None and item.name and item.owner is None:
                self._in_files.setdefault((item.file, item.kind.group, item.kind.kind, item.namespace, item.name), item)
                found = self._by_kind.setdefault(item.kind.kind, {})
                found.setdefault((item.namespace, item.name), item)

    def find(self, kind: str, namespace: str, name: str) -> Item | None:
        """The object of that name."""
        return self._by_kind.get(kind, {}).get((namespace, name))

    def first_in_file(self, item: Item) -> Item | None:
        """The first object of this one's file with its kind, namespace and name; None for what has no name."""
        group, kind = (item.kind.group, item.kind.kind) if item.kind else ("", "")
        return self._in_files.get((item.file, group, kind, item.namespace, item.name))

    def names(self, kind: str, namespace: str) -> list[str]:
        """The names of a kind's objects in a namespace."""
        return [name for space, name in self._by_kind.get(kind, {}) if space == namespace]

    def all(self, kind: str) -> Iterator[Item]:
        """Every object of a kind."""
        yield from self._by_kind.get(kind, {}).values()

    def elsewhere(self, kind: str, name: str) -> str:
        """A namespace in which there is an object of that name; empty when there is none."""
        return next((space for space, some in self._by_kind.get(kind, {}) if some == name), "")

    def knows_class(self, name: str) -> bool:
        """Whether a DeviceClass is in the files, or comes with a known driver."""
        return name in CLASSES or self.find("DeviceClass", "", name) is not None

    def close_class(self, name: str) -> str:
        """The known class that a name was probably meant to be."""
        return suggest_name(name, [*self.names("DeviceClass", ""), *CLASSES])


def claim_spec(item: Item) -> tuple[str, Obj] | None:
    """(path, spec) of a claim, or of the claims of a template."""
    spec = item.obj.get("spec") or {}
    if item.is_a(RESOURCE, "ResourceClaim"):
        return "spec", spec
    if item.is_a(RESOURCE, "ResourceClaimTemplate"):
        return "spec.spec", spec.get("spec") or {}
    return None


class Request(NamedTuple):
    """One request, or one alternative of a request: what chooses devices."""

    path: str
    name: str
    """`request` or `request/alternative`, as constraints and configuration refer to it."""
    body: Obj

    @property
    def device_class(self) -> str:
        """The class it asks of."""
        return str(self.body.get("deviceClassName") or "")


def requests_of(path: str, spec: Obj, version: str) -> list[Request]:
    """Every request with every alternative; v1beta1 has the fields of a request beside its name."""
    found = []
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        place, name = f"{path}.devices.requests[{index}]", str(request.get("name") or "")
        if version == "v1beta1" and "deviceClassName" in request:
            found.append(Request(place, name, request))
        elif request.get("exactly"):
            found.append(Request(f"{place}.exactly", name, request["exactly"]))
        for at, alternative in enumerate(request.get("firstAvailable") or ()):
            inner = str(alternative.get("name") or "")
            found.append(Request(f"{place}.firstAvailable[{at}]", f"{name}/{inner}", alternative))
    return found


def selectors_of(path: str, holder: Obj) -> list[tuple[str, str]]:
    """(path, expression) of every selector."""
    found = []
    for index, selector in enumerate(holder.get("selectors") or ()):
        expression = (selector.get("cel") or {}).get("expression")
        if expression:
            found.append((f"{path}.selectors[{index}].cel.expression", str(expression)))
    return found


def pod_spec(item: Item) -> PodSpec | None:
    """The pod that an object is, or the template of the pods that it makes."""
    kind = item.kind
    if kind is None or kind.group not in ("", "apps", "batch"):
        return None
    spec = item.obj.get("spec") or {}
    if kind.kind == "Pod":
        return PodSpec("spec", spec, item.obj.get("metadata") or {}, item.pods)
    if kind.kind == "PodTemplate":
        template = item.obj.get("template") or {}
        return PodSpec("template.spec", template.get("spec") or {}, template.get("metadata") or {}, None)
    path = "spec.template"
    if kind.kind == "CronJob":
        path, spec = "spec.jobTemplate.spec.template", (spec.get("jobTemplate") or {}).get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict):
        return None
    if kind.kind == "DaemonSet":
        pods = None
    else:
        pods = _parallelism(spec) if kind.kind in ("Job", "CronJob") else _replicas(spec)
    return PodSpec(f"{path}.spec", template.get("spec") or {}, template.get("metadata") or {}, pods)


def _replicas(spec: Obj) -> int | None:
    value = spec.get("replicas")
    return 1 if value is None else int(value)


def _parallelism(spec: Obj) -> int | None:
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    at_once = 1 if parallelism is None else int(parallelism)
    return min(at_once, int(completions)) if completions is not None else at_once
