"""Selectors: over labels, over fields of listed objects, over nodes.

A label selector is a conjunction of requirements (`key`, operator, values) that comes as query text or as a
`metav1.LabelSelector`; a field selector compares whole values; a node selector is a disjunction of terms.
Source: k8s.io/apimachinery `labels` and `fields`, k8s.io/component-helpers `scheduling/corev1/nodeaffinity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from haru.kube.errors import bad_request_error, invalid
from haru.kube.names import is_label_value, is_qualified_name

Operator = Literal["in", "notin", "exists", "!", "gt", "lt"]

_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+|$)")
_OBJECT_OPERATORS: Final[dict[str, Operator]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


class _Addressed(Protocol):
    """What `field_value` needs of a kind: where it belongs."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on the value of one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the condition; a missing key meets `notin` and `!` only."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values if value is not None else False
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        return value is not None and _compare_integers(self.operator, value, next(iter(self.values)))


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; without any it matches everything, unless it is `NOTHING`."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether labels are selected."""
        if self.nothing:
            return False
        given = labels or {}
        return all(requirement.matches(given) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        """Whether everything is selected."""
        return not self.requirements and not self.nothing


EVERYTHING: Final = LabelSelector()
NOTHING: Final = LabelSelector(nothing=True)


def _compare_integers(operator: str, value: str, limit: str) -> bool:
    try:
        left, right = int(value), int(limit)
    except ValueError:
        return False
    return left > right if operator == "gt" else left < right


def parse_label_selector(text: str) -> LabelSelector:
    """The selector that a `labelSelector` query parameter holds; StatusError 400 for a malformed one."""
    try:
        return LabelSelector(tuple(_Parser(text).requirements()))
    except ValueError as error:
        raise bad_request_error(str(error)) from None


class _Parser:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`: one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [token for token in _TOKEN.findall(text) if token] if text.strip() else []
        self._position = 0

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def requirements(self) -> Iterator[Requirement]:
        while token := self._peek():
            if token in _PUNCTUATION and token != "!":
                raise ValueError(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                requirement = self._requirement()
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            yield requirement
            token = self._take()
            if not token:
                return
            if token != ",":
                raise ValueError(f"found '{token}', expected: ',' or 'end of string'")
            if not self._peek() or (self._peek() in _PUNCTUATION and self._peek() != "!"):
                raise ValueError(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._take()
        key = self._take()
        if not key or key in _PUNCTUATION:
            raise ValueError(f"found '{key}', expected: identifier")
        _check_key(key)
        if negated:
            return Requirement(key, "!")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        sign = self._take()
        if sign in ("in", "notin"):
            values = self._set()
            return _checked(key, "in" if sign == "in" else "notin", values)
        if sign in ("=", "=="):
            return _checked(key, "in", {self._exact()})
        if sign == "!=":
            return _checked(key, "notin", {self._exact()})
        if sign in ("<", ">"):
            value = self._exact()
            if not re.fullmatch("[+-]?[0-9]+", value):
                why = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise ValueError(str(invalid("values[0]", value, why)))
            return Requirement(key, "gt" if sign == ">" else "lt", frozenset({value}))
        raise ValueError(f"found '{sign}', expected: {_OPERATORS}")

    def _exact(self) -> str:
        if self._peek() in ("", ","):
            return ""
        token = self._take()
        if token in _PUNCTUATION:
            raise ValueError(f"found '{token}', expected: identifier")
        return token

    def _set(self) -> set[str]:
        token = self._take()
        if token != "(":
            raise ValueError(f"found '{token}' expected: '('")
        values: set[str] = set()
        current, token = "", self._take()
        if not token or (token in _PUNCTUATION and token not in ",)"):
            raise ValueError(f"found '{token}', expected: ',', ')' or identifier")
        while True:
            if token in (",", ")"):
                values.add(current)
                current = ""
                if token == ")":
                    return values
            elif not token or token in _PUNCTUATION or current:
                raise ValueError(f"found '{token}', expected: ',' or ')'")
            else:
                current = token
            token = self._take()


_PUNCTUATION: Final = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})


def _check_key(key: str) -> None:
    complaints = is_qualified_name(key)
    if complaints:
        raise ValueError(str(invalid("<nil>", key, "; ".join(complaints))))


def _checked(key: str, operator: Operator, values: set[str]) -> Requirement:
    for index, value in enumerate(sorted(values)):
        complaints = is_label_value(value)
        if complaints:
            raise ValueError(str(invalid(f"values[{index}][{key}]", value, "; ".join(complaints))))
    return Requirement(key, operator, frozenset(values))


def label_selector_from(obj: Mapping[str, Any] | None) -> LabelSelector:
    """The selector of a `metav1.LabelSelector`: nothing for None, everything for `{}`; ValueError if malformed."""
    if obj is None:
        return NOTHING
    requirements = [
        Requirement(key, "in", frozenset({value})) for key, value in sorted((obj.get("matchLabels") or {}).items())
    ]
    for expression in obj.get("matchExpressions") or ():
        operator = _OBJECT_OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise ValueError(f'"{expression.get("operator", "")}" is not a valid label selector operator')
        requirements.append(Requirement(expression["key"], operator, frozenset(expression.get("values") or ())))
    return LabelSelector(tuple(requirements))


_TEXTS: Final = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


def label_selector_text(selector: Mapping[str, Any]) -> str:
    """A `metav1.LabelSelector` as a `labelSelector` query parameter holds it."""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        terms.append((key, _TEXTS[expression["operator"]].format(key, values)))
    return ",".join(text for _, text in sorted(terms))


def label_selector_struct(selector: Mapping[str, Any] | None) -> str:
    """A `metav1.LabelSelector` in the notation that 1.36's messages print it in."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{one['key']},Operator:{one['operator']},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in selector.get("matchExpressions") or ()
    )
    matched = f"MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},"
    return f"&LabelSelector{{{matched}}}"


# --- fields


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Comparisons of whole field values, all of which must hold: (path, `=` or `!=`, value)."""

    requirements: tuple[tuple[str, Literal["=", "!="], str], ...] = ()

    def matches(self, kind: _Addressed, obj: Mapping[str, Any]) -> bool:
        """Whether an object of this kind is selected; StatusError 400 for a field that cannot select."""
        return all((field_value(kind, obj, path) == value) == (op == "=") for path, op, value in self.requirements)

    def exact(self, path: str) -> str | None:
        """The value that `path` must equal, if the selector says so."""
        for name, op, value in self.requirements:
            if name == path and op == "=":
                return value
        return None


def parse_field_selector(text: str) -> FieldSelector:
    r"""The selector that a `fieldSelector` query parameter holds (`\,`, `\=`, `\\` are escapes); StatusError 400."""
    requirements: list[tuple[str, Literal["=", "!="], str]] = []
    for part in sorted(re.findall(r"(?:[^\\,]|\\.|\\$)+", text, re.DOTALL)):
        match = re.match(r"((?:[^\\=!]|\\.|!(?!=))*)(!=|==?)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request_error(f"invalid selector: '{text}'; can't understand '{part}'")
        path, op, value = match.groups()
        requirements.append((path, "!=" if op == "!=" else "=", _unescape(value)))
    return FieldSelector(tuple(requirements))


def _unescape(value: str) -> str:
    wrong = re.match(r"(?>(?:[^\\=]|\\[\\,=])*)(=|\\.?)", value, re.DOTALL)
    if wrong is not None:
        is_rune = wrong[1] == "="
        why = f"unescaped character in value: {ord('=')}" if is_rune else f"invalid escape sequence: {wrong[1]}"
        raise bad_request_error(f"invalid field selector: {why}")
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)


_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS: Final = {
    **{f"involvedObject.{part}": f"involvedObject.{part}" for part in _INVOLVED},
    "reason": "reason",
    "reportingComponent": "reportingComponent",
    "source": "source.component",
    "type": "type",
}
_NEW_EVENT_FIELDS: Final = {
    **{f"regarding.{part}": f"regarding.{part}" for part in _INVOLVED},
    "reason": "reason",
    "reportingController": "reportingController",
    "type": "type",
}
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)

SELECTABLE_FIELDS: Final[dict[tuple[str, str], Mapping[str, str]]] = {
    ("", "pods"): {path: path for path in _POD_FIELDS},
    ("", "events"): _EVENT_FIELDS,
    ("events.k8s.io", "events"): _NEW_EVENT_FIELDS,
    ("", "nodes"): {"spec.unschedulable": "spec.unschedulable"},
    ("", "namespaces"): {"status.phase": "status.phase"},
    ("", "secrets"): {"type": "type"},
    ("", "services"): {"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
    ("", "replicationcontrollers"): {"status.replicas": "status.replicas"},
    ("batch", "jobs"): {"status.successful": "status.succeeded"},
    ("certificates.k8s.io", "certificatesigningrequests"): {"spec.signerName": "spec.signerName"},
    ("resource.k8s.io", "resourceslices"): {"spec.nodeName": "spec.nodeName", "spec.driver": "spec.driver"},
}
"""(group, plural) -> selectable field -> where its value lies in the object."""

_ZERO: Final = {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0"}
_ALWAYS: Final = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}
_BY_NAME_ALONE: Final = (("certificates.k8s.io", "certificatesigningrequests"), ("resource.k8s.io", "resourceslices"))
"""Kinds that cannot be selected by namespace, as others without one can."""


def selectable_path(kind: _Addressed, path: str) -> str:
    """Where the value of a selectable field lies; StatusError 400 when the kind cannot be selected by it."""
    custom = getattr(kind, "custom", None)
    chosen = custom.selectable if custom is not None else SELECTABLE_FIELDS.get((kind.group, kind.plural))
    found = _ALWAYS.get(path) or (chosen or {}).get(path)
    if found is not None and not (path == "metadata.namespace" and (kind.group, kind.plural) in _BY_NAME_ALONE):
        return found
    if chosen is None:
        listed = ", ".join(f'"{each}"' for each in _ALWAYS)
        raise bad_request_error(f'"{path}" is not a known field selector: only {listed}')
    if (kind.group, kind.plural) == ("batch", "jobs"):
        raise bad_request_error(f'field label "{path}" not supported for Job')
    whom = f" for {kind.group}/{kind.version}, Kind=ResourceSlice" if kind.plural == "resourceslices" else ""
    raise bad_request_error(f"field label not supported{whom}: {path}")


def field_value(kind: _Addressed, obj: Mapping[str, Any], path: str) -> str:
    """The text a field selector compares with; StatusError 400 for a field this kind cannot be selected by."""
    if path == "status.podIPs":
        return ",".join(entry.get("ip", "") for entry in (obj.get("status") or {}).get("podIPs") or ())
    value: Any = obj
    place = selectable_path(kind, path)
    for part in place.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None and place == "source.component":
        value = obj.get("reportingComponent")
    if value is None:
        return "0" if place == "status.succeeded" else _ZERO.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# --- nodes


def node_selector_matches(node_selector: Mapping[str, Any], node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether any term of a v1.NodeSelector matches the node; without terms nothing matches."""
    return any(
        node_selector_term_matches(term, node_name, labels) for term in node_selector.get("nodeSelectorTerms") or ()
    )


def node_selector_term_matches(term: Mapping[str, Any], node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether all expressions of one term hold; a term without any matches nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_node_expression(expression, labels) for expression in expressions) and all(
        field.get("key") == "metadata.name" and _node_expression(field, {"metadata.name": node_name})
        for field in fields
    )


def _node_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.get("key", ""))
    operator = expression.get("operator")
    values: list[str] = expression.get("values") or []
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(values) == 1:
        return _compare_integers("gt" if operator == "Gt" else "lt", value, values[0])
    return False
