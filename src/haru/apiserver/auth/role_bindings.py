"""The rules of RBAC that subjects hold, kept in step with the stored roles and bindings.

What is bound stands under its subject and namespace, with the role that it names: a change of a role is seen by all of
its bindings at once, and a change of a binding costs what it has of subjects, however many bindings there are.
Source: rbac.authorization.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from cachetools import FIFOCache

from haru.apiserver.auth.user import UserInfo
from haru.apiserver.encoding.objects import shared
from haru.kube.meta import Obj
from haru.storage import Record

GROUP = "rbac.authorization.k8s.io"
PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
_ROLE_KINDS = {"roles": "Role", "clusterroles": "ClusterRole"}
_RoleKey = tuple[str, str]
_REMEMBERED = 1_024


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule, its lists as sets."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]
    source: Obj

    def allows(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Whether the rule covers a request for an object of a resource (`pods`, `pods/log`)."""
        return self.covers(verb, group, resource) and (not self.names or name in self.names)

    def covers(self, verb: str, group: str, resource: str) -> bool:
        """Whether the rule covers a request for some object of a resource."""
        return (
            (verb in self.verbs or "*" in self.verbs)
            and (group in self.groups or "*" in self.groups)
            and self._has(resource)
        )

    def _has(self, resource: str) -> bool:
        if resource in self.resources or "*" in self.resources:
            return True
        subresource = resource.partition("/")[2]
        return bool(subresource) and f"*/{subresource}" in self.resources

    def allows_path(self, verb: str, path: str) -> bool:
        """Whether the rule covers a request for a path that is no resource."""
        return (verb in self.verbs or "*" in self.verbs) and any(
            p == path or (p.endswith("*") and path.startswith(p[:-1])) for p in self.paths
        )


def compile_rules(rules: Iterable[Obj]) -> tuple[Rule, ...]:
    """Rules as they are stored, made ready."""
    return tuple(
        Rule(
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
            rule,
        )
        for rule in rules
    )


class Role:
    """The rules of a role, as its bindings see them; None: there is no such role."""

    __slots__ = ("__weakref__", "rules")

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] | None = None


class Bound(NamedTuple):
    """Rules that a subject holds, and by which binding."""

    role: Role
    binding: Obj
    subject: Obj
    place: int
    """Of the subject in the binding."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the role as they are now."""
        return self.role.rules or ()

    @property
    def is_broken(self) -> bool:
        """Whether there is no such role."""
        return self.role.rules is None

    def missing(self) -> str:
        """That there is no such role, as the API server says it."""
        role = self.binding["roleRef"]
        return f'{str(role.get("kind")).lower()}.{GROUP} "{role.get("name")}" not found'

    def why(self) -> str:
        """As the API server says it of a request that is allowed."""
        metadata, role, subject = self.binding["metadata"], self.binding["roleRef"], self.subject
        namespace = metadata.get("namespace", "")
        name = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        whom = str(subject.get("name"))
        if subject.get("kind") == "ServiceAccount":
            whom += f"/{subject.get('namespace') or namespace}"
        return (
            f'RBAC: allowed by {kind} "{name}" of {role.get("kind")} "{role.get("name")}" '
            f'to {subject.get("kind")} "{whom}"'
        )


class RoleBindings:
    """What subjects are bound to, by namespace."""

    def __init__(self) -> None:
        self._roles: WeakValueDictionary[_RoleKey, Role] = WeakValueDictionary()
        """Those that are there, and those that a binding names."""
        self._there: dict[_RoleKey, Role] = {}
        self._subjects: dict[str, dict[str, dict[str, list[Bound]]]] = {}
        """Subject -> namespace (empty: everywhere) -> key of a binding -> what that binds."""
        self._deciding: FIFOCache[tuple[object, ...], tuple[Bound, ...]] = FIFOCache(_REMEMBERED)
        """By user and namespace, until a binding changes."""

    def change(self, plural: str, old: Record | None, new: Record | None) -> None:
        """Follow a change of a role or a binding."""
        if kind := _ROLE_KINDS.get(plural):
            self._change_role(kind, old, new)
            return
        self._deciding.clear()
        if old is not None:
            self._unbind(old)
        if new is not None:
            self._bind(new)

    def role_rules(self, reference: Obj, namespace: str) -> tuple[Rule, ...] | None:
        """The rules of the role that a binding refers to; None when it does not exist."""
        role = self._there.get(_role_key(reference, namespace))
        return None if role is None else role.rules

    def of(self, user: UserInfo, namespace: str) -> Iterator[Bound]:
        """What a user is bound to in a namespace and everywhere."""
        subjects = [f"User:{user.name}", *(f"Group:{group}" for group in user.groups)]
        held = [found for subject in subjects if (found := self._subjects.get(subject)) is not None]
        for where in ("", namespace) if namespace else ("",):
            here: dict[str, Bound] = {}
            for found in held:
                for key, several in found.get(where, {}).items():
                    # A binding counts once, by the first of its subjects that the user is.
                    first = min(several, key=lambda bound: bound.place)
                    if key not in here or first.place < here[key].place:
                        here[key] = first
            yield from here.values()

    def deciding(self, user: UserInfo, namespace: str) -> tuple[Bound, ...]:
        """Of what `of` has, the first binding of each role: the others allow nothing more."""
        key = user.name, user.groups, namespace
        found = self._deciding.get(key)
        if found is None:
            first: dict[Role, Bound] = {}
            for bound in self.of(user, namespace):
                first.setdefault(bound.role, bound)
            found = self._deciding[key] = tuple(first.values())
        return found

    def _change_role(self, kind: str, old: Record | None, new: Record | None) -> None:
        if old is not None and new is None:
            if (gone := self._there.pop(_key_of_role(kind, old), None)) is not None:
                gone.rules = None
        elif new is not None:
            key = _key_of_role(kind, new)
            role = self._there[key] = self._role(key)
            role.rules = compile_rules(shared(new).get("rules") or ())

    def _role(self, key: _RoleKey) -> Role:
        role = self._roles.get(key)
        if role is None:
            role = self._roles[key] = Role()
        return role

    def _bind(self, record: Record) -> None:
        binding = shared(record)
        namespace = binding["metadata"].get("namespace", "")
        role = self._role(_role_key(binding.get("roleRef") or {}, namespace))
        for place, subject in enumerate(binding.get("subjects") or ()):
            places = self._subjects.setdefault(_subject_key(subject, namespace), {})
            bound = Bound(role, binding, subject, place)
            places.setdefault(namespace, {}).setdefault(record.key, []).append(bound)

    def _unbind(self, record: Record) -> None:
        binding = shared(record)
        namespace = binding["metadata"].get("namespace", "")
        for subject in binding.get("subjects") or ():
            key = _subject_key(subject, namespace)
            places = self._subjects.get(key, {})
            here = places.get(namespace, {})
            here.pop(record.key, None)
            if not here:
                places.pop(namespace, None)
            if not places:
                self._subjects.pop(key, None)


def _key_of_role(kind: str, record: Record) -> _RoleKey:
    metadata = shared(record)["metadata"]
    return _role_key({"kind": kind, "name": metadata["name"]}, metadata.get("namespace", ""))


def _role_key(reference: Obj, namespace: str) -> _RoleKey:
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    return kind, name if kind == "ClusterRole" else f"{namespace}/{name}"


def _subject_key(subject: Obj, namespace: str) -> str:
    if subject.get("kind") == "ServiceAccount":
        return f"User:system:serviceaccount:{subject.get('namespace') or namespace}:{subject.get('name')}"
    return f"{subject.get('kind')}:{subject.get('name')}"
