"""FlowSchemas and PriorityLevelConfigurations (flowcontrol.apiserver.k8s.io/v1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.flow_control_defaults import mandatory_spec
from haru.kube.meta import Obj
from haru.kube.validation.common import items, label_name, part, subdomain

_MAX_PRECEDENCE = 10000
_METHODS = ("ByNamespace", "ByUser")
_VERBS = (*("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"),)
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_LEVEL_TYPES = ("Exempt", "Limited")
_MAX_QUEUES = 10_000_000
_MAX_HASH_BITS = 60


def validate_flow_schema(schema: Obj) -> list[FieldError]:
    """A FlowSchema."""
    spec, name = part(schema, "spec"), part(schema, "metadata").get("name")
    precedence, field = spec.get("matchingPrecedence") or 0, "spec.matchingPrecedence"
    found: list[FieldError] = []
    if precedence <= 0:
        found.append(invalid(field, precedence, "must be a positive value"))
    if precedence > _MAX_PRECEDENCE:
        found.append(invalid(field, precedence, f"must not be greater than {_MAX_PRECEDENCE}"))
    if precedence == 1 and name != "exempt":
        found.append(invalid(field, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _METHODS:
        found.append(not_supported("spec.distinguisherMethod.type", method, _METHODS))
    level, field = part(spec, "priorityLevelConfiguration").get("name") or "", "spec.priorityLevelConfiguration.name"
    found += subdomain(field, level) if level else [required(field, "must reference a priority level")]
    for index, rule in enumerate(items(spec, "rules")):
        found += _rule(f"spec.rules[{index}]", rule)
    fixed = mandatory_spec("FlowSchema", name or "")
    if fixed is not None and spec != fixed:
        found.append(invalid("spec", spec, f"spec of '{name}' must equal the fixed value"))
    return found + _conditions(schema)


def validate_flow_status(new: Obj, old: Obj) -> list[FieldError]:
    """The conditions of either kind."""
    return _conditions(new)


def _conditions(obj: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(items(part(obj, "status"), "conditions")):
        field, name = f"status.conditions[{index}].type", condition.get("type") or ""
        if name in seen:
            found.append(duplicate(field, name))
        seen.add(name)
        found += [] if name else [required(field)]
    return found


def _rule(field: str, rule: Obj) -> list[FieldError]:
    subjects, resources, others = (items(rule, name) for name in ("subjects", "resourceRules", "nonResourceRules"))
    found = [] if subjects else [required(f"{field}.subjects", "subjects must contain at least one value")]
    for index, subject in enumerate(subjects):
        found += _subject(f"{field}.subjects[{index}]", subject)
    if not resources and not others:
        found.append(required(field, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for index, inner in enumerate(resources):
        found += _resource_rule(f"{field}.resourceRules[{index}]", inner)
    for index, inner in enumerate(others):
        found += _url_rule(f"{field}.nonResourceRules[{index}]", inner)
    return found


def _subject(field: str, subject: Obj) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in _SUBJECTS:
        return [not_supported(f"{field}.kind", kind, tuple(_SUBJECTS))]
    member = _SUBJECTS[kind]
    found, place, given = list[FieldError](), f"{field}.{member}", subject.get(member)
    if given is None:
        found.append(required(place, f"{member} is required when subject kind is '{kind}'"))
    else:
        name = given.get("name") or ""
        found += [] if name else [required(f"{place}.name")]
        if kind == "ServiceAccount":
            found += subdomain(f"{place}.name", name) if name not in ("", "*") else []
            space = given.get("namespace") or ""
            why = "must specify namespace for service account"
            found += label_name(f"{place}.namespace", space) if space else [required(f"{place}.namespace", why)]
    for other, name in _SUBJECTS.items():
        if name != member and subject.get(name) is not None:
            found.append(forbidden(f"{field}.{name}", f"{name} is forbidden when subject kind is not '{other}'"))
    return found


def _verbs(field: str, verbs: Sequence[str]) -> list[FieldError]:
    if not verbs:
        return [required(f"{field}.verbs", "verbs must contain at least one value")]
    if "*" in verbs:
        return _alone(f"{field}.verbs", verbs, "verbs")
    return [] if set(verbs) <= set(_VERBS) else [not_supported(f"{field}.verbs", list(verbs), _VERBS)]


def _alone(field: str, given: Sequence[str], what: str) -> list[FieldError]:
    why = f"if '*' is present, must not specify other {what}"
    return [invalid(field, list(given), why)] if "*" in given and len(given) > 1 else []


def _resource_rule(field: str, rule: Obj) -> list[FieldError]:
    found = _verbs(field, items(rule, "verbs"))
    for member, one, many in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        given = items(rule, member)
        why = f"resource rules must supply at least one {one}"
        found += _alone(f"{field}.{member}", given, many) if given else [required(f"{field}.{member}", why)]
    spaces, place = items(rule, "namespaces"), f"{field}.namespaces"
    if not spaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        return [*found, required(place, why)]
    if "*" in spaces:
        return found + _alone(place, spaces, "namespaces")
    before = "each member of this list must be '*' or a DNS-1123 label; "
    for index, space in enumerate(spaces):
        wrong = names.is_dns1123_label(space)
        found += [invalid(f"{place}[{index}]", space, before + why) for why in wrong]
    return found


def _url_rule(field: str, rule: Obj) -> list[FieldError]:
    found, urls, place = _verbs(field, items(rule, "verbs")), items(rule, "nonResourceURLs"), f"{field}.nonResourceURLs"
    if not urls:
        return [*found, required(place, "nonResourceURLs must contain at least one value")]
    if "*" in urls:
        return found + _alone(place, urls, "non-resource URLs")
    for index, url in enumerate(urls):
        if why := _wrong_with_url(url):
            found.append(invalid(f"{place}[{index}]", url, why))
    return found


def _wrong_with_url(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars and not url.endswith("/*")) else ""


# --- priority levels


def validate_priority_level(level: Obj) -> list[FieldError]:
    """A PriorityLevelConfiguration."""
    spec, name = part(level, "spec"), part(level, "metadata").get("name")
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    found: list[FieldError] = []
    if (name == "exempt") != (kind == "Exempt"):
        found.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if kind not in _LEVEL_TYPES:
        found.append(not_supported("spec.type", kind, _LEVEL_TYPES))
    elif kind == "Exempt":
        if limited is not None:
            found.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        found += _shares("spec.exempt", exempt) if exempt is not None else []
    else:
        if exempt is not None:
            found.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if limited is None:
            found.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            found += _limited("spec.limited", limited)
    fixed = mandatory_spec("PriorityLevelConfiguration", name or "")
    if fixed is not None and {**spec, "exempt": None} != {**fixed, "exempt": None}:
        but = " except the 'spec.exempt' field" if name == "exempt" else ""
        found.append(invalid("spec", spec, f"spec of '{name}'{but} must equal the fixed value"))
    return found + _conditions(level)


def _shares(field: str, given: Obj) -> list[FieldError]:
    shares, lendable = given.get("nominalConcurrencyShares"), given.get("lendablePercent")
    found: list[FieldError] = []
    if shares is not None and shares < 0:
        found.append(invalid(f"{field}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if lendable is not None and not 0 <= lendable <= 100:
        found.append(invalid(f"{field}.lendablePercent", lendable, "must be between 0 and 100, inclusive"))
    return found


def _limited(field: str, given: Obj) -> list[FieldError]:
    response, place, borrowing = (
        part(given, "limitResponse"),
        f"{field}.limitResponse",
        given.get("borrowingLimitPercent"),
    )
    found, kind, queuing = _shares(field, given), response.get("type") or "", response.get("queuing")
    if kind == "Reject" and queuing is not None:
        found.append(forbidden(f"{place}.queuing", "must be nil if limited.limitResponse.type is not Limited"))
    elif kind == "Queue" and queuing is None:
        found.append(required(f"{place}.queuing", "must not be empty if limited.limitResponse.type is Limited"))
    elif kind == "Queue":
        found += _queuing(f"{place}.queuing", part(response, "queuing"))
    elif kind != "Reject":
        found.append(not_supported(f"{place}.type", kind, ("Queue", "Reject")))
    if borrowing is not None and borrowing < 0:
        why = "if specified, must be a non-negative integer"
        found.append(invalid(f"{field}.borrowingLimitPercent", borrowing, why))
    return found


def _queuing(field: str, queuing: Obj) -> list[FieldError]:
    queues, hand, length = (queuing.get(name) or 0 for name in ("queues", "handSize", "queueLengthLimit"))
    found = [] if length > 0 else [invalid(f"{field}.queueLengthLimit", length, "must be positive")]
    if queues <= 0:
        found.append(invalid(f"{field}.queues", queues, "must be positive"))
    elif queues > _MAX_QUEUES:
        found.append(invalid(f"{field}.queues", queues, f"must not be greater than {_MAX_QUEUES}"))
    bits = math.ceil(math.log2(queues) * hand) if 0 < hand <= queues else 0
    why = ""
    if hand <= 0:
        why = "must be positive"
    elif hand > queues:
        why = f"should not be greater than queues ({queues})"
    elif bits > _MAX_HASH_BITS:
        sizes = f"deckSize {queues} and handSize {hand}"
        why = f"required entropy bits of {sizes} should not be greater than {_MAX_HASH_BITS}"
    return [*found, invalid(f"{field}.handSize", hand, why)] if why else found
