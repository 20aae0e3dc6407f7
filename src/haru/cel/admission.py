"""Expressions of admission: what webhooks' conditions and admission policies may say, and how they are evaluated.

An expression sees `object`, `oldObject`, `request` and `namespaceObject`, in policies `params` and `variables` too, and
where it may ask for rights `authorizer` and `authorizer.requestResource`. Objects are of no known type (`dyn`). Each
expression has a limit of its own, all of a policy share a budget. A variable is computed when it is first asked for.
Source: KEP 3488 and KEP 3716, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from haru.cel.actual_costs import CHECK_COST
from haru.cel.ast import Comprehension, Node, walk
from haru.cel.environment import Environment
from haru.cel.errors import CompileError, CostLimitError, EvaluationError
from haru.cel.estimate import estimate
from haru.cel.function_estimates import ESTIMATES, OVERLOAD_ESTIMATES
from haru.cel.libraries.authorization import (
    AUTHORIZER,
    RESOURCE_CHECK,
    Authorizer,
    Decide,
    Decision,
    Question,
    ResourceCheck,
)
from haru.cel.libraries.kubernetes import BASE
from haru.cel.libraries.patches import JSON_PATCH, OBJECT, PATCH_STRUCTS, PATCHES
from haru.cel.libraries.timestamps import parse_timestamp
from haru.cel.metering import CostExceeded, Meter
from haru.cel.program import Measurement, MeteredProgram, Program, instantiation_error, parse_and_check
from haru.cel.types import BOOL, DYN, ERROR, INT, NULL, STRING, TIMESTAMP, Type, list_of, map_of, struct

Obj = dict[str, Any]

CALL_LIMIT = 1_000_000
"""What one evaluation of one expression may cost."""
BUDGET = 10_000_000
"""What all expressions of a policy may cost together, for one binding and parameter."""
CONDITIONS_BUDGET = 2_500_000
"""What all match conditions of a policy or webhook may cost together."""
CHEAP = 1_000
"""An expression that can not cost more than this is evaluated without counting; the most that it can cost is charged.

All expressions of a policy that are of this kind stay far below what a policy may cost.
"""
INTERRUPTED = "operation interrupted"
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"

CONDITION = (BOOL,)
MESSAGE = (STRING,)
ANNOTATION = (STRING, NULL)
CONFIGURATION = (OBJECT,)
OPERATIONS = (list_of(JSON_PATCH),)

_ORDER = (
    "object",
    "oldObject",
    "namespaceObject",
    "request",
    "params",
    "authorizer",
    "authorizer.requestResource",
    "variables",
)
_REQUEST = struct("kubernetes.AdmissionRequest")
_NAMESPACE = struct("kubernetes.Namespace")
_VARIABLES = struct("kubernetes.variables")
_TEXTS = map_of(STRING, STRING)
_KIND = dict.fromkeys(("group", "version", "kind"), STRING)
_RESOURCE = dict.fromkeys(("group", "version", "resource"), STRING)
_STRUCTS: Mapping[str, Mapping[str, Type]] = {
    "kubernetes.GroupVersionKind": _KIND,
    "kubernetes.GroupVersionResource": _RESOURCE,
    "kubernetes.UserInfo": {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    _REQUEST.name: {
        **dict.fromkeys(("kind", "requestKind"), struct("kubernetes.GroupVersionKind")),
        **dict.fromkeys(("resource", "requestResource"), struct("kubernetes.GroupVersionResource")),
        **dict.fromkeys(("subResource", "requestSubResource", "name", "namespace", "operation"), STRING),
        "userInfo": struct("kubernetes.UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.NamespaceSpec": {"finalizers": list_of(STRING)},
    "kubernetes.NamespaceCondition": {
        **dict.fromkeys(("status", "type", "message", "reason"), STRING),
        "lastTransitionTime": TIMESTAMP,
    },
    "kubernetes.NamespaceStatus": {"conditions": list_of(struct("kubernetes.NamespaceCondition")), "phase": STRING},
    "kubernetes.NamespaceMetadata": {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": list_of(STRING),
    },
    _NAMESPACE.name: {
        "metadata": struct("kubernetes.NamespaceMetadata"),
        "spec": struct("kubernetes.NamespaceSpec"),
        "status": struct("kubernetes.NamespaceStatus"),
    },
}


class Expression(NamedTuple):
    """A compiled expression, or why it is none. `internal`: the fault is found when it is made ready to run.

    `asks`: it may speak of the request or the authorizer. `cheap`: what it can cost at worst, and a program that does
    not count, for an expression that can never cost much.
    """

    text: str
    program: MeteredProgram | None = None
    type: Type = DYN
    problem: str = ""
    internal: bool = False
    asks: bool = False
    cheap: tuple[int, Program] | None = None


def environment(
    *,
    params: bool,
    authorizer: bool,
    variables: Mapping[str, Type] | None = None,
    objects: tuple[Type, Type] = (DYN, DYN),
    structs: Mapping[str, Mapping[str, Type]] | None = None,
    patches: bool = False,
) -> Environment:
    """What an expression may speak of.

    `variables` may grow while a policy's variables are compiled, each of which sees the earlier ones. `objects` are
    the types of the object and of the parameter, where they are known. `patches`: mutations also know the types that
    patches are made of, and `jsonpatch.escapeKey`.
    """
    declared = {"object": objects[0], "oldObject": objects[0], "namespaceObject": _NAMESPACE, "request": _REQUEST}
    if params:
        declared["params"] = objects[1]
    if authorizer:
        declared["authorizer"], declared["authorizer.requestResource"] = AUTHORIZER, RESOURCE_CHECK
    known = {**_STRUCTS, **(structs or {})}
    if variables is not None:
        declared["variables"] = _VARIABLES
        known[_VARIABLES.name] = variables
    if patches:
        known.update(PATCH_STRUCTS)
        return Environment((*BASE, PATCHES), declared, known, kubernetes=True, open_type=OBJECT.name)
    return Environment(BASE, declared, known, kubernetes=True)


@lru_cache(maxsize=4)
def plain_environment(*, params: bool, authorizer: bool) -> Environment:
    """An environment without variables."""
    return environment(params=params, authorizer=authorizer)


def compile_expression(text: str, within: Environment, wanted: Sequence[Type] = ()) -> Expression:
    """The expression, whose value must be of one of the types that are wanted, if any are."""
    try:
        tree = parse_and_check(text, within)
    except CompileError as error:
        return Expression(text, problem=f"compilation failed: {error}")
    found = tree.type or DYN
    if wanted and found not in wanted:
        listed = " ".join(map(str, wanted))
        which = listed if len(wanted) == 1 else f"one of [{listed}]"
        return Expression(text, problem=f"must evaluate to {which} but got {found}")
    problem = instantiation_error(tree, within)
    if problem:
        return Expression(text, problem=problem, internal=True)
    asks = "request" in text or "authorizer" in text
    return Expression(text, MeteredProgram(tree, within, _ORDER), found, asks=asks, cheap=_cheap(text, tree, within))


def _cheap(text: str, tree: Node, within: Environment) -> tuple[int, Program] | None:
    """What an expression can cost at worst, and the program, if that is next to nothing.

    Objects are of no known size, so what depends on one's size is never among them. The estimate leaves out what it
    costs to select from values of no known type, which is one a node at most.
    """
    if "authorizer" in text:
        return None  # asking it has a nominal price, which is not counted where an expression is only tried
    nodes = list(walk(tree))
    if any(isinstance(node, Comprehension) for node in nodes):
        return None
    most = len(nodes) + estimate(tree, lambda _path: None, ESTIMATES, OVERLOAD_ESTIMATES).high
    return (most, Program(tree, within, _ORDER)) if most <= CHEAP else None


Compile = Callable[[str, Environment], Expression]
"""As `compile_expression`: whoever uses it may wish to know of it."""


class Composition:
    """The variables of a policy, and environments for the expressions that may use them."""

    def __init__(self, variables: Iterable[Obj], *, params: bool, compile: Compile | None = None) -> None:
        self._types: dict[str, Type] = {}
        self._compile = compile or compile_expression
        self.trusted = environment(params=params, authorizer=True, variables=self._types)
        """With `authorizer`."""
        self._plain: Environment | None = None
        self._patching: Environment | None = None
        self._params = params
        self.variables: dict[str, Expression] = {}
        for variable in variables:
            self.add(variable.get("name") or "", variable.get("expression") or "")

    @property
    def plain(self) -> Environment:
        """Without `authorizer`: what messages are made of."""
        if self._plain is None:
            self._plain = environment(params=self._params, authorizer=False, variables=self._types)
        return self._plain

    @property
    def patching(self) -> Environment:
        """With the types that patches are made of: for mutations."""
        if self._patching is None:
            self._patching = environment(params=self._params, authorizer=True, variables=self._types, patches=True)
        return self._patching

    def add(self, name: str, text: str) -> Expression:
        """Declare one more variable."""
        compiled = self._compile(text, self.trusted)
        self.variables[name] = compiled
        self._types[name] = variable_type(compiled.type)
        return compiled


_KEPT_KINDS = frozenset(("any", "bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"))


def variable_type(found: Type) -> Type:
    """The type under which a variable is known: lists, maps and simple values keep theirs."""
    if found.kind == "list":
        return list_of(variable_type(found.params[0]))
    if found.kind == "map":
        return map_of(variable_type(found.params[0]), variable_type(found.params[1]))
    return found if found.kind in _KEPT_KINDS and found is not ERROR else DYN


# --- evaluation


class OutOfBudget(Exception):
    """All expressions together cost too much: nothing is judged any more."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class Given(NamedTuple):
    """What the variables of an expression stand for.

    `request`, and `asking`, which is what answers for the authorizer and the request's resource, are made when an
    expression speaks of them. `namespace` is made by `namespace_value`.
    """

    object: Any
    old_object: Any
    request: Obj | Callable[[], Obj]
    namespace: Obj | None = None
    params: Any = None
    asking: Callable[[], tuple[Decide, Question]] | None = None


class Result(NamedTuple):
    """The value of an expression, or the error that it ended in."""

    value: Any = None
    error: str = ""


class Evaluation:
    """Expressions over the same values, with variables that are computed once and what is left of the budget."""

    __slots__ = ("_asking", "_for_variables", "_given", "_lazy", "_meters", "_most", "_stopped", "_values", "budget")

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
            return self._measured(expression, most)
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
        self.budget -= self._for_variables + found.cost
        self._for_variables = 0
        if self.budget < 0:
            raise OutOfBudget
        if found.error is not None:
            why = INTERRUPTED if self._stopped and isinstance(found.error, CostLimitError) else found.error
            return Result(error=f"expression '{expression.text}' resulted in error: {why}")
        return Result(found.value)

    def _metered(self, expression: Expression, limit: int) -> Measurement:
        if expression.cheap is not None and not self._stopped:
            return self._uncounted(*expression.cheap, self._values_for(expression))
        assert expression.program is not None
        meter = Meter(-1 if self._stopped else limit)
        self._meters.append(meter)
        try:
            return expression.program.metered(meter, *self._values_for(expression))
        finally:
            self._meters.pop()

    def _uncounted(self, cost: int, program: Program, values: tuple[Any, ...]) -> Measurement:
        try:
            return Measurement(program.evaluate(*values), None, cost)
        except CostExceeded:  # a variable, which counts
            return Measurement(None, CostLimitError(), cost)
        except EvaluationError as error:
            return Measurement(None, error, cost)

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
        found = self._metered(expression, self._most or CALL_LIMIT)
        if self._most and isinstance(found.error, CostLimitError):
            raise CostExceeded  # not the variable's error: it was only tried
        self._for_variables += found.cost
        if found.error is not None:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {found.error}')
        return found.value


class _Variables(dict[str, Any]):
    """`variables`: what was not asked for yet is computed."""

    __slots__ = ("_errors", "_evaluation", "_expressions")

    def __init__(self, evaluation: Evaluation, expressions: Mapping[str, Expression]) -> None:
        self._evaluation = evaluation
        self._expressions = expressions
        self._errors: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self._errors:
            raise EvaluationError(self._errors[name])
        expression = self._expressions.get(name)
        if expression is None:
            raise EvaluationError(f"no such key: {name}")
        try:
            value = self[name] = self._evaluation.variable(name, expression)
        except EvaluationError as error:
            self._errors[name] = str(error)
            raise
        return value

    def find(self, name: str) -> Any:
        """What an optional selection finds."""
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
