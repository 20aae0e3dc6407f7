"""ResourceClaim and ResourceClaimTemplate: requests, constraints, configuration (KEP 4381, 4816, 5075).

Objects are judged in the shape of v1, and the paths of errors are those of v1 in every version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    bounded,
    bounded_set,
    immutable_member,
    indexed,
    items,
    label_name,
    part,
    required_subdomain,
)
from haru.kube.validation.devices import (
    MAX_CONFIG,
    device_configuration,
    device_selectors,
    device_toleration,
    fully_qualified_name,
)
from haru.kube.validation.metadata import validate_annotations, validate_labels
from haru.kube.validation.types import Rules

RequestNames = Mapping[str, frozenset[str]]

MAX_REQUESTS = 32
MAX_SUBREQUESTS = 8
MAX_CONSTRAINTS = 32
_NO_TEMPLATE_METADATA = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields"),
)
_ONE_REQUEST_KIND = "exactly one of `exactly` or `firstAvailable` is required"


def validate_claim(claim: Obj, rules: Rules) -> list[FieldError]:
    """A ResourceClaim when it is created."""
    return _claim_spec("spec", part(claim, "spec"), rules)


def validate_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """A claim's spec is immutable as a whole; nothing else about it need be said."""
    return immutable_member("", "spec", new, old, "resource.v1.ResourceClaim")


def validate_claim_template(template: Obj, rules: Rules) -> list[FieldError]:
    """A ResourceClaimTemplate when it is created."""
    spec = part(template, "spec")
    metadata = part(spec, "metadata")
    found = validate_annotations(part(metadata, "annotations"), "spec.metadata.annotations")
    found += validate_labels(part(metadata, "labels"), "spec.metadata.labels")
    for name in _NO_TEMPLATE_METADATA:
        # An empty list is set, an empty text or a zero is not: so it is with Go's zero values.
        if metadata.get(name) is not None and metadata[name] not in ("", 0):
            found.append(forbidden(f"spec.metadata.{name}", "cannot be set"))
    return found + _claim_spec("spec.spec", part(spec, "spec"), rules)


def validate_claim_template_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """A template when it replaces a stored one: judged as a new one, and its spec is immutable."""
    return validate_claim_template(new, rules) + immutable_member(
        "", "spec", new, old, "resource.v1.ResourceClaimTemplate"
    )


def request_names(claim_spec: Obj) -> RequestNames:
    """Names that constraints, configuration and results may refer to: requests and subrequests."""
    return {
        request.get("name") or "": frozenset(sub.get("name") or "" for sub in items(request, "firstAvailable"))
        for request in items(part(claim_spec, "devices"), "requests")
    }


def request_reference(field: str, value: str, known: RequestNames) -> list[FieldError]:
    """`request` or `request/subrequest`, both of the claim."""
    why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    segments = value.split("/")
    if len(segments) > 2:
        return [invalid(field, value, why)]
    found: list[FieldError] = []
    for segment in segments:
        found += label_name(field, segment)
    there = segments[0] in known and (len(segments) == 1 or segments[1] in known[segments[0]])
    return found if there else [*found, invalid(field, value, why)]


def request_references(field: str, values: Sequence[str], known: RequestNames) -> list[FieldError]:
    """A set of at most 32 references."""
    return bounded_set(field, values, MAX_REQUESTS, lambda f, v: request_reference(f, v, known), lambda v: v)


def _claim_spec(field: str, spec: Obj, rules: Rules) -> list[FieldError]:
    devices = part(spec, "devices")
    known = request_names(spec)
    place = f"{field}.devices"
    found = bounded_set(
        f"{place}.requests",
        items(devices, "requests"),
        MAX_REQUESTS,
        lambda f, r: _request(f, r, rules),
        lambda r: r.get("name") or "",
    )
    found += bounded(
        f"{place}.constraints",
        items(devices, "constraints"),
        MAX_CONSTRAINTS,
        lambda f, c: _constraint(f, c, known, rules),
    )
    return found + bounded(
        f"{place}.config", items(devices, "config"), MAX_CONFIG, lambda f, c: _configuration(f, c, known)
    )


def _request(field: str, request: Obj, rules: Rules) -> list[FieldError]:
    found = label_name(f"{field}.name", request.get("name") or "")
    exactly, alternatives = request.get("exactly"), items(request, "firstAvailable")
    if exactly is not None and alternatives:
        return [*found, invalid(field, None, f"{_ONE_REQUEST_KIND}, but multiple fields are set")]
    if exactly is not None:
        return found + _exact(f"{field}.exactly", exactly, rules)
    if alternatives:
        return found + _alternatives(f"{field}.firstAvailable", alternatives, rules)
    return [*found, required(field, _ONE_REQUEST_KIND)]


def _alternatives(field: str, alternatives: Sequence[Obj], rules: Rules) -> list[FieldError]:
    def one(place: str, alternative: Obj) -> list[FieldError]:
        return label_name(f"{place}.name", alternative.get("name") or "") + _exact(place, alternative, rules)

    return bounded_set(field, alternatives, MAX_SUBREQUESTS, one, lambda a: a.get("name") or "")


def _exact(field: str, request: Obj, rules: Rules) -> list[FieldError]:
    found = required_subdomain(f"{field}.deviceClassName", request.get("deviceClassName") or "")
    found += device_selectors(f"{field}.selectors", items(request, "selectors"), rules.check_selector)
    found += _allocation_mode(field, request.get("allocationMode") or "", request.get("count") or 0)
    return found + indexed(f"{field}.tolerations", items(request, "tolerations"), device_toleration)


def _allocation_mode(field: str, mode: str, count: int) -> list[FieldError]:
    if mode == "All":
        if count != 0:
            return [invalid(f"{field}.count", count, "must not be specified when allocationMode is 'All'")]
        return []
    if mode == "ExactCount":
        return [] if count > 0 else [invalid(f"{field}.count", count, "must be greater than zero")]
    return [not_supported(f"{field}.allocationMode", mode, ("All", "ExactCount"))]


def _constraint(field: str, constraint: Obj, known: RequestNames, rules: Rules) -> list[FieldError]:
    found = request_references(f"{field}.requests", items(constraint, "requests"), known)
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:  # with both, 1.36 looks at this one only
        return found + fully_qualified_name(f"{field}.matchAttribute", match)
    if distinct is not None:
        return found + fully_qualified_name(f"{field}.distinctAttribute", distinct)
    if rules.gates.enabled("DRAConsumableCapacity"):
        why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*found, required(field, why)]  # none is set, but those are the words
    return [*found, required(f"{field}.matchAttribute")]


def _configuration(field: str, config: Obj, known: RequestNames) -> list[FieldError]:
    found = request_references(f"{field}.requests", items(config, "requests"), known)
    return found + device_configuration(field, config)
