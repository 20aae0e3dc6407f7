"""Selectors and constraints that name what no device publishes: what was probably meant, as `haru lint` says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haru.engine import Snapshot
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.verdict import why
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, changed_specs, claim_changes
from haru.explain.remedies.node_openings import Openings
from haru.kube.meta import Obj
from haru.lint import Meant, PublishedDevices, meant_attribute, meant_selector

_COSTS = "the claims (or their template) are made again"


def meant_selectors(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The claims with the names and values that devices have, where no device passes a selector or a constraint."""
    refused = {
        s.expression for f in found.requests for s in f.stages if (s.stage == "selector" and not s.left) or s.errors
    }
    compared = {c.attribute for kind, _ in found.members for claim in kind.claims for c in claim.constraints}
    if not refused and not compared:
        return
    published = _published(openings.snapshot)
    meant = {text: other for text in sorted(refused) if (other := meant_selector(text, published)) is not None}
    if meant:
        claims = changed_claims(openings.snapshot, openings.work, lambda ask: _with_selectors(ask, meant))
        yield from _tried(openings, claims, [change for other in meant.values() for change in other.changes])
    names = {name: close for name in sorted(compared) if (close := meant_attribute(name, published))}
    if names:
        claims = changed_specs(openings.snapshot, openings.work, lambda spec: _with_constraints(spec, names))
        yield from _tried(openings, claims, [f"the attribute {new} in place of {old}" for old, new in names.items()])


def _tried(openings: Openings, claims: Mapping[str, Obj], names: list[str]) -> Iterator[Remedy]:
    if claims:
        decision = openings.work.decision(hypothesis.with_claims(openings.snapshot, claims), openings.options)
        if decision is not None and any(reason.type == "SelectorError" for reason in why(decision)):
            return  # the name exists, but cannot be compared so
        fits = decision is not None and decision.status == "scheduled"
        changes = claim_changes(openings.snapshot, claims)
        costs = _COSTS if fits else f"{_COSTS}; it would then wait for something else"
        yield Remedy(
            "CorrectName", f"write {listed(list(dict.fromkeys(names)))}: did you mean that?", changes, 0, fits, costs
        )


def _published(snapshot: Snapshot) -> PublishedDevices:
    """What devices publish; equal ones are looked at once."""
    found = PublishedDevices()
    pools = snapshot.devices.pools.values()
    for shape in {id(d.shape): d.shape for pool in pools for item in pool.slices for d in item.devices}.values():
        values = {name: value for name, attribute in shape.attributes for value in _values(attribute.value)}
        found.add(shape.driver, values, shape.amounts)
    return found


def _values(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _with_selectors(ask: Obj, meant: Mapping[str, Meant]) -> Obj:
    selectors = [_with_expression(selector, meant) for selector in ask.get("selectors") or ()]
    return {**ask, "selectors": selectors} if selectors else ask


def _with_expression(selector: Obj, meant: Mapping[str, Meant]) -> Obj:
    cel = selector.get("cel") or {}
    other = meant.get(str(cel.get("expression")))
    return {**selector, "cel": {**cel, "expression": other.expression}} if other is not None else selector


def _with_constraints(spec: Obj, other: Mapping[str, str]) -> Obj:
    devices = spec.get("devices") or {}
    kept = [
        {k: other.get(v, v) if isinstance(v, str) else v for k, v in c.items()}
        for c in devices.get("constraints") or ()
    ]
    return {**spec, "devices": {**devices, "constraints": kept}} if kept else spec
