"""How expressions of admission are evaluated.

Each expression has a limit of its own, all of a policy share a budget. A variable is computed when it is first asked
for.
Source: KEP 3488 and KEP 3716, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

from haru.cel.actual_costs import CHECK_COST
from haru.cel.admission import Cheap, Expression
from haru.cel.errors import CostLimitError, EvaluationError
from haru.cel.libraries.authorization import Authorizer, Decide, Decision, Question, ResourceCheck
from haru.cel.libraries.timestamps import parse_timestamp
from haru.cel.metering import CostExceeded, Meter
from haru.cel.program import Measurement, Program
from haru.kube.meta import Obj

CALL_LIMIT = 1_000_000
"""What one evaluation of one expression may cost."""
BUDGET = 10_000_000
"""What all expressions of a policy may cost together, for one binding and parameter."""
CONDITIONS_BUDGET = 2_500_000
"""What all match conditions of a policy or webhook may cost together."""
_HALF = CONDITIONS_BUDGET // 2
INTERRUPTED = "operation interrupted"
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class OutOfBudget(Exception):
    """All expressions together cost too much: nothing is judged any more."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class Given(NamedTuple):
    """The values of the variables of an expression.

    `request`, and `asking`, which is what answers for the authorizer and the request's resource, are made when an
    expression speaks of them. `namespace` is made by `namespace_value`.
    """

    object: Any
    old_object: Any
    request: Obj | Callable[[], Obj]
    namespace: Obj | None = None
    params: Any = None
    asking: Callable[[], tuple[Decide, Question]] | None = None
    is_small: bool = False
    """Whether the object is small (`haru.cel.admission.SMALL`)."""

    def to_conditions(self) -> Given:
        """Return the variables of match conditions: all but the namespace."""
        return self if self.namespace is None else self._replace(namespace=None)


class Result(NamedTuple):
    """The value of an expression, or the error that it ended in."""

    value: Any = None
    error: str = ""


class Evaluation:
    """Expressions over the same values, with variables that are computed once and what is left of the budget."""

    __slots__ = (
        *("_asking", "_for_variables", "_given", "_lazy", "_meters", "_most", "_stopped", "_values", "budget"),
        "__weakref__",
    )

    def __init__(self, given: Given, variables: Mapping[str, Expression] | None = None, budget: int = BUDGET) -> None:
        self._given = given
        self._lazy: dict[str, Any] = _Variables(self, variables) if variables else {}
        self._values = self._ordered({}, None, None)
        self._asking: tuple[Any, ...] | None = None
        """The values with the request and what asks the authorizer, once an expression speaks of them."""
        self.budget = budget
        self._for_variables = 0
        self._meters: list[Meter] = []
        """Of what is being evaluated: the expression's, then those of the variables that it waits for."""
        self._most = 0
        self._stopped = False

    def _ordered(self, request: Obj, authorizer: Any, resource: Any) -> tuple[Any, ...]:
        """The values in the order of the variables."""
        given = self._given
        return (
            given.object,
            given.old_object,
            given.namespace,
            request,
            given.params,
            authorizer,
            resource,
            self._lazy,
        )

    def _values_for(self, expression: Expression) -> tuple[Any, ...]:
        if not expression.asks:
            return self._values
        if self._asking is None:
            given = self._given
            request = given.request() if callable(given.request) else given.request
            asked: tuple[Any, Any] = (None, None)
            if given.asking is not None:
                answer, resource = given.asking()
                decide = self._decided(answer)
                asked = Authorizer(decide), ResourceCheck(decide, resource)
            self._asking = self._ordered(request, *asked)
        return self._asking

    def run(self, expression: Expression) -> Result:
        """Evaluate. Raises OutOfBudget."""
        found = self._measured(expression, CALL_LIMIT)
        assert found is not None
        return found

    def attempt(self, expression: Expression, most: int) -> Result | None:
        """Evaluate; None where that costs more than `most`, and then it is as if nothing had been tried.

        What the authorizer is asked does not count: its price is nominal. Raises OutOfBudget.
        """
        self._most = most
        try:
            cheap = self._cheap(expression)
            return self._measured(expression, most) if cheap is None else self._uncounted(expression, *cheap)
        finally:
            self._most = 0

    def stop(self) -> None:
        """End what runs, in whichever thread that is: it fails, as if it had cost too much."""
        self._stopped = True
        for meter in list(self._meters):
            meter.limit = -1

    def _measured(self, expression: Expression, limit: int) -> Result | None:
        if expression.program is None:
            return Result(error=f"compilation error: {expression.problem}")
        found = self._metered(expression, limit)
        if self._most and isinstance(found.error, CostLimitError):
            return None  # variables that have their values are not computed again: what they cost stays
        self._charge(found.cost)
        if found.error is not None:
            why = INTERRUPTED if self._stopped and isinstance(found.error, CostLimitError) else found.error
            return _failed(expression, why)
        return Result(found.value)

    def _cheap(self, expression: Expression) -> Cheap | None:
        """How to evaluate without counting; what is charged for it must not be what uses the budget up."""
        if self._stopped or self.budget < _HALF:
            return None
        return expression.cheap or (expression.cheap_if_small if self._given.is_small else None)

    def _uncounted(self, expression: Expression, cost: int, program: Program) -> Result | None:
        try:
            value = program.evaluate(*self._values_for(expression))
        except CostExceeded:  # a variable, which counts
            return None
        except EvaluationError as error:
            self._charge(cost)
            return _failed(expression, error)
        self._charge(cost)
        return Result(value)

    def _charge(self, cost: int) -> None:
        self.budget -= self._for_variables + cost
        self._for_variables = 0
        if self.budget < 0:
            raise OutOfBudget

    def _metered(self, expression: Expression, limit: int) -> Measurement:
        assert expression.program is not None
        meter = Meter(-1 if self._stopped else limit)
        self._meters.append(meter)
        try:
            return expression.program.metered(meter, *self._values_for(expression))
        finally:
            self._meters.pop()

    def _decided(self, decide: Decide) -> Decide:
        def ask(question: Question) -> Decision:
            if self._most:
                for meter in self._meters:
                    meter.limit = min(meter.limit + CHECK_COST, CALL_LIMIT)
            return decide(question)

        return ask

    def variable(self, name: str, expression: Expression) -> Any:
        """The value of a variable; its cost counts. Raises EvaluationError."""
        if expression.program is None:
            raise EvaluationError(f'composited variable "{name}" fails to compile: {expression.problem}')
        cheap = self._cheap(expression)
        if cheap is not None:
            cost, program = cheap
            self._for_variables += cost
            try:
                return program.evaluate(*self._values_for(expression))
            except EvaluationError as error:
                raise _variable_failed(name, error) from None
        found = self._metered(expression, self._most or CALL_LIMIT)
        if self._most and isinstance(found.error, CostLimitError):
            raise CostExceeded  # not the variable's error: it was only tried
        self._for_variables += found.cost
        if found.error is not None:
            raise _variable_failed(name, found.error)
        return found.value


def _failed(expression: Expression, why: EvaluationError | str) -> Result:
    return Result(error=f"expression '{expression.text}' resulted in error: {why}")


def _variable_failed(name: str, why: EvaluationError) -> EvaluationError:
    return EvaluationError(f'composited variable "{name}" fails to evaluate: {why}')


class _Variables(dict[str, Any]):
    """`variables`: what was not asked for yet is computed."""

    __slots__ = ("_errors", "_evaluation", "_expressions")

    def __init__(self, evaluation: Evaluation, expressions: Mapping[str, Expression]) -> None:
        # A cycle would keep the whole request until garbage is collected.
        self._evaluation = ref(evaluation)
        self._expressions = expressions
        self._errors: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self._errors:
            raise EvaluationError(self._errors[name])
        expression = self._expressions.get(name)
        if expression is None:
            raise EvaluationError(f"no such key: {name}")
        evaluation = self._evaluation()
        assert evaluation is not None, "variables are asked for while something is evaluated"
        try:
            value = self[name] = evaluation.variable(name, expression)
        except EvaluationError as error:
            self._errors[name] = str(error)
            raise
        return value

    def find(self, name: str) -> Any:
        """Return the value of an optional selection."""
        return self[name]


_METADATA = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "resourceVersion"),
    *("generation", "deletionGracePeriodSeconds"),
)


def namespace_value(namespace: Obj) -> Obj:
    """`namespaceObject`: the parts of a Namespace that expressions may see."""
    given, status = namespace.get("metadata") or {}, dict(namespace.get("status") or {})
    metadata: Obj = {name: given[name] for name in _METADATA if name in given}
    if "uid" in given:
        metadata["UID"] = given["uid"]
    for name in ("creationTimestamp", "deletionTimestamp"):
        if given.get(name):
            metadata[name] = parse_timestamp(given[name])
    if status.get("conditions"):
        status["conditions"] = [
            {**item, "lastTransitionTime": parse_timestamp(item["lastTransitionTime"])}
            if item.get("lastTransitionTime")
            else item
            for item in status["conditions"]
        ]
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": status}
