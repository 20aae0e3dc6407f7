"""Selectors that fail on devices which lack what they read: asked whether it is there first, they pass those over."""

from __future__ import annotations

from collections.abc import Iterator

from haru.engine import Options, Snapshot
from haru.engine.dra import names_read
from haru.engine.state import Obj
from haru.explain import hypothesis
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, claim_changes


def guarded_selectors(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """The requests with every selector guarded."""
    features = options.features

    def guarded(expression: str) -> str:
        names = names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
        if names is None:
            return expression
        tests = [f'"{name}" in device.attributes["{domain}"]' for domain, name in sorted(names.attributes)]
        tests += [f'"{name}" in device.capacity["{domain}"]' for domain, name in sorted(names.capacity)]
        return " && ".join([*tests, f"({expression})"]) if tests else expression

    def changed(ask: Obj) -> Obj:
        selectors = [
            {**s, "cel": {**s["cel"], "expression": guarded(s["cel"]["expression"])}} if s.get("cel") else s
            for s in ask.get("selectors") or ()
        ]
        return {**ask, "selectors": selectors} if selectors else ask

    claims = changed_claims(snapshot, work, changed)
    if claims and work.fits(hypothesis.with_claims(snapshot, claims), options):
        text = "let the selectors ask first whether a device has what they read"
        costs = "the claims (or their template) are made again; devices without it are passed over"
        yield Remedy("GuardSelectors", text, claim_changes(snapshot, claims), 4, True, costs)
