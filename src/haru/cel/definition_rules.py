"""Whether a CustomResourceDefinition may have its rules: that they compile, and what they can cost at worst.

A rule costs what its expression does for the largest value that the schema allows, as often as such values fit into an
object: the product of the maxima of the lists and maps around it or, where one of these has no maximum, the number of
smallest values that fit into a request. A definition is refused for one rule that costs too much, and for all together.
Source: KEP 2876 and the validation of apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from haru.cel.ast import Node
from haru.cel.checked_rules import CheckedRule, check_rules
from haru.cel.estimate import estimate
from haru.cel.function_estimates import ESTIMATES, OVERLOAD_ESTIMATES
from haru.cel.ranges import UNBOUNDED
from haru.cel.schema_sizes import Sized, size_of, sized
from haru.kube.custom.structural import Structural
from haru.kube.errors import FieldError, forbidden, invalid

EXPRESSION_LIMIT = 10_000_000
"""What one expression may cost by its estimate, in CEL's units, for all values of an object together."""
DEFINITION_LIMIT = 100_000_000
"""What all expressions of one schema may cost by their estimates."""
_NAMED = 4
"""How many of the most expensive expressions are named where all are too many."""


def estimated_cost(tree: Node, values: Sized) -> int:
    """Estimate the highest cost of one evaluation of an expression. Capped at 2**64 - 1."""
    return estimate(tree, size_of(values), ESTIMATES, OVERLOAD_ESTIMATES).high


def rule_problems(schema: Structural, path: str, is_wrong: Callable[[str], bool] | None = None) -> list[FieldError]:
    """List the errors in the rules of a schema at `path` of a definition.

    Rules at places that are wrong otherwise are not looked at, and cost nothing.
    """
    found = _Walk(is_wrong or (lambda place: False))
    return [*found.node(schema, _Place(path)), *found.total.problems(path)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node of the schema stands.

    `count`: how many values an object can have there, None if nothing limits them. `uncorrelated`: the path of the list
    around it whose items cannot be told apart, so that there is no `oldSelf`.
    """

    path: str
    count: int | None = 1
    uncorrelated: str = ""
    root: bool = True

    def below(self, step: str, times: int | None, uncorrelated: str = "") -> _Place:
        count = None if self.count is None or times is None else min(self.count * times, UNBOUNDED)
        return _Place(f"{self.path}.{step}", count, self.uncorrelated or uncorrelated, root=False)


def _children(schema: Structural, place: _Place) -> Iterator[tuple[Structural, _Place]]:
    times = _most_children(schema)
    for name, inner in schema.properties.items():
        yield inner, place.below(f"properties[{name}]", times)
    if schema.additional is not None:
        yield schema.additional, place.below("additionalProperties", times)
    if schema.items is not None:
        lost = "" if schema.list_type == "map" else place.path
        yield schema.items, place.below("items", times, lost)


def _most_children(schema: Structural) -> int | None:
    """How many values below a value its schema allows; None: any number."""
    if schema.type == "array":
        limit = schema.checks.get("maxItems")
    elif schema.type == "object" and schema.is_map:
        limit = schema.checks.get("maxProperties")
    else:
        return 1
    return None if limit is None else max(int(limit), 0)


@dataclass(slots=True)
class _Total:
    """What has been counted of one schema's expressions."""

    cost: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)

    def add(self, cost: int, path: str) -> None:
        self.cost = min(self.cost + cost, UNBOUNDED)
        if cost * 100 >= DEFINITION_LIMIT:
            self.expensive.append((cost, path))
            self.expensive.sort(key=lambda item: -item[0])
            del self.expensive[_NAMED:]

    def problems(self, path: str) -> list[FieldError]:
        if self.cost <= DEFINITION_LIMIT:
            return []
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        named = [forbidden(where, why) for _, where in self.expensive]
        return [*named, forbidden(path, _over_budget(what, self.cost, DEFINITION_LIMIT))]


def _over_budget(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        times = "more than 100"
    else:
        # So near above the budget one digit would say "1.0".
        times = f"{factor:f}" if factor < 1.5 else f"{factor:.1f}"
    return (
        f"{what} exceeds budget by factor of {times}x (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )


class _Walk:
    """One look at all rules of a schema."""

    def __init__(self, is_wrong: Callable[[str], bool]) -> None:
        self.total = _Total()
        self._is_wrong = is_wrong

    def node(self, schema: Structural, place: _Place) -> Iterator[FieldError]:
        if schema.rules and not self._is_wrong(place.path):
            yield from self._rules(schema, place)
        for inner, below in _children(schema, place):
            yield from self.node(inner, below)

    def _rules(self, schema: Structural, place: _Place) -> Iterator[FieldError]:
        where = f"{place.path}.x-kubernetes-validations"
        values = sized(schema, root=place.root)
        if values is None:
            why = (
                "internal error: failed to construct type information for x-kubernetes-validations rules: "
                "unable to convert structural schema to CEL declarations"
            )
            yield FieldError("InternalError", where, None, why)
            return
        times = values.most_in_a_request if place.count is None else place.count
        for number, rule in enumerate(check_rules(schema, root=place.root)):
            yield from self._costs(rule, values, times, f"{where}[{number}]")
            yield from _faults(rule, f"{where}[{number}]", place.uncorrelated)

    def _costs(self, rule: CheckedRule, values: Sized, times: int, path: str) -> Iterator[FieldError]:
        if rule.tree is not None:
            cost = min(estimated_cost(rule.tree, values) * times, UNBOUNDED)
            yield from self._count("estimated rule cost", cost, f"{path}.rule")
        if rule.message is not None:
            # Only the first message counts: 1.36 does not multiply these.
            cost = estimated_cost(rule.message, values)
            yield from self._count("estimated messageExpression cost", cost, f"{path}.messageExpression")

    def _count(self, what: str, cost: int, path: str) -> Iterator[FieldError]:
        self.total.add(cost, path)
        if cost > EXPRESSION_LIMIT:
            yield forbidden(path, _over_budget(what, cost, EXPRESSION_LIMIT))


def _faults(rule: CheckedRule, path: str, uncorrelated: str) -> Iterator[FieldError]:
    if rule.problem:
        yield invalid(f"{path}.rule", rule.raw.get("rule"), rule.problem)
    if rule.message_problem:
        yield invalid(f"{path}.messageExpression", rule.raw["messageExpression"], rule.message_problem)
    if rule.about_changes and uncorrelated:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield invalid(f"{path}.rule", rule.raw["rule"], why)
    elif not rule.about_changes and rule.raw.get("optionalOldSelf") is not None:
        why = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", rule.raw["optionalOldSelf"], why)
