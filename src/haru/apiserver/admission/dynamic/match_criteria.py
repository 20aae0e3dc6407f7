"""Whom a request concerns: rules, selectors over namespaces and objects, resources that are the same.

Webhooks and policies are matched alike; policies can also name objects and exclude rules.
Source: KEP 2023 (matchPolicy Equivalent), k8s.io/apiserver admission matching, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from haru.apiserver.admission.dynamic.attributes import (
    Attributes,
    GroupVersionName,
    RequestView,
    named,
    original_view,
    request_view_as,
)
from haru.apiserver.registry.resources import Resource, Served
from haru.kube.errors import not_found_error
from haru.kube.meta import Obj
from haru.kube.selectors import LabelSelector, label_selector_from

GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)
_CONFIGURATIONS = frozenset(("mutatingwebhookconfigurations", "validatingwebhookconfigurations"))


def is_exempt(resource: Resource) -> bool:
    """Whether a resource is exempt: it configures admission, or its objects are never stored."""
    kind = resource.kind
    if kind.virtual:
        return kind.plural != "bindings"  # an older way to bind a pod
    return kind.group == GROUP and kind.plural in _EXEMPT


def is_for_policies_alone(resource: Resource) -> bool:
    """Whether no webhook is asked: it might be what keeps its own configuration from being mended."""
    return resource.kind.group == GROUP and resource.kind.plural in _CONFIGURATIONS


class Rule:
    """One rule with operations."""

    __slots__ = ("_groups", "_names", "_operations", "_resources", "_scope", "_versions")

    def __init__(self, rule: Obj) -> None:
        self._operations = frozenset(rule.get("operations") or ())
        self._groups = frozenset(rule.get("apiGroups") or ())
        self._versions = frozenset(rule.get("apiVersions") or ())
        parts = (str(each).partition("/") for each in rule.get("resources") or ())
        self._resources = tuple((name, below) for name, _, below in parts)
        self._scope = rule.get("scope") or "*"
        self._names = frozenset(rule.get("resourceNames") or ())

    @property
    def names_objects(self) -> bool:
        """Whether it is about some objects only."""
        return bool(self._names)

    def matches(self, attributes: Attributes, resource: GroupVersionName) -> bool:
        """Whether the rule covers a request, seen as one for `resource`."""
        return (
            _has(self._operations, attributes.operation)
            and _has(self._groups, resource.group)
            and _has(self._versions, resource.version)
            and self._covers(resource.name, attributes.subresource)
            and self._in_scope(attributes)
            and (not self._names or attributes.name in self._names)
        )

    def _covers(self, name: str, below: str) -> bool:
        return any(one in ("*", name) and other in ("*", below) for one, other in self._resources)

    def _in_scope(self, attributes: Attributes) -> bool:
        if self._scope == "*":
            return True
        is_cluster = attributes.is_namespace or not attributes.namespace
        return is_cluster == (self._scope == "Cluster")


def _has(values: frozenset[str], wanted: str) -> bool:
    return wanted in values or "*" in values


class Criteria:
    """Match requests as one webhook, policy or binding selects them."""

    def __init__(self, raw: Obj, rules: Iterable[Obj] | None, excluded: Iterable[Obj] = ()) -> None:
        self._rules = None if rules is None else tuple(map(Rule, rules))
        self._excluded = tuple(map(Rule, excluded))
        self._equivalent = raw.get("matchPolicy") == "Equivalent"
        self._namespaces = label_selector_from(raw.get("namespaceSelector") or {})
        self._objects = label_selector_from(raw.get("objectSelector") or {})
        self._by_name = any(rule.names_objects for rule in (*(self._rules or ()), *self._excluded))
        self._found: dict[tuple[Any, ...], Resource | None] = {}
        """What rules say to requests that are alike, while the same resources are served."""
        self._generation = -1
        self.is_all = rules is None and not self._excluded and self._namespaces.empty and self._objects.empty
        """Whether every request is of concern, as it comes."""

    async def match(self, attributes: Attributes, served: Served) -> RequestView | None:
        """In which form the request is to be told of; None where it is of no concern.

        Raises StatusError where the request's namespace does not exist.
        """
        found = await self.concerned(attributes, served)
        if found is attributes.resource:
            return original_view(attributes)
        return None if found is None else await request_view_as(found, attributes)

    async def concerned(self, attributes: Attributes, served: Served) -> Resource | None:
        """As which resource the request is of concern; None where it is not.

        Raises StatusError where the request's namespace does not exist.
        """
        if self.is_all:
            return attributes.resource
        found = self._covered(attributes, served)
        if found is None or not _selects(self._objects, attributes):
            return None
        if not self._namespaces.empty and not await _in_namespace(self._namespaces, attributes):
            return None
        return found

    def _covered(self, attributes: Attributes, served: Served) -> Resource | None:
        """As which resource the rules cover a request."""
        if self._by_name:
            return self._ruled(attributes, served)
        if self._generation != served.generation:
            self._generation = served.generation
            self._found.clear()
        is_cluster = attributes.is_namespace or not attributes.namespace
        key = attributes.named, attributes.subresource, attributes.operation, is_cluster
        if key not in self._found:
            self._found[key] = self._ruled(attributes, served)
        return self._found[key]

    def _ruled(self, attributes: Attributes, served: Served) -> Resource | None:
        if self._excluded and self._find(self._excluded, attributes, served) is not None:
            return None
        return attributes.resource if self._rules is None else self._find(self._rules, attributes, served)

    def _find(self, rules: Sequence[Rule], attributes: Attributes, served: Served) -> Resource | None:
        own = attributes.resource
        for rule in rules:
            if rule.matches(attributes, attributes.named):
                return own
        if self._equivalent:
            others = [each for each in served.forms(own) if each is not own]
            for rule in rules:
                for other in others:
                    if rule.matches(attributes, named(other.kind)):
                        return other
        return None


def policy_criteria(resources: Obj | None, *, is_binding: bool) -> Criteria:
    """What a policy (`matchConstraints`) or a binding (`matchResources`) is about; a binding may say nothing."""
    given = resources or {}
    rules = given.get("resourceRules") or ([] if not is_binding else None)
    return Criteria(given, rules, given.get("excludeResourceRules") or ())


def _selects(selector: LabelSelector, attributes: Attributes) -> bool:
    """Whether the new or the old object is selected."""
    if selector.empty:
        return True
    return any(
        obj is not None and selector.matches((obj.get("metadata") or {}).get("labels") or {})
        for obj in (attributes.obj, attributes.old)
    )


async def _in_namespace(selector: LabelSelector, attributes: Attributes) -> bool:
    if not (attributes.namespace or attributes.is_namespace):
        return True
    return selector.matches(await _namespace_labels(attributes))


async def _namespace_labels(attributes: Attributes) -> dict[str, str]:
    """The labels of the request's namespace: as they are to be, for a Namespace that is written."""
    if attributes.is_namespace and not attributes.subresource and attributes.obj is not None:
        labels: dict[str, str] = (attributes.obj.get("metadata") or {}).get("labels") or {}
        return labels
    namespace = await attributes.call.objects.peek("", "namespaces", "", attributes.namespace)
    if namespace is None:
        raise not_found_error("", "namespaces", attributes.namespace)
    return namespace["metadata"].get("labels") or {}
