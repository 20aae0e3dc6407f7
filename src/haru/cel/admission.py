"""Expressions of admission: what webhooks' conditions and admission policies may say.

An expression sees `object`, `oldObject`, `request` and `namespaceObject`, in policies `params` and `variables` too, and
where it may ask for rights `authorizer` and `authorizer.requestResource`. Objects are of no known type (`dyn`).
Source: KEP 3488 and KEP 3716, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from haru.cel.ast import Call, Comprehension, Ident, Literal, Node, Select, walk
from haru.cel.environment import KUBERNETES, Dialect, Environment
from haru.cel.errors import CompileError
from haru.cel.estimate import estimate
from haru.cel.function_estimates import ESTIMATES, OVERLOAD_ESTIMATES
from haru.cel.libraries.authorization import (
    AUTHORIZER,
    RESOURCE_CHECK,
)
from haru.cel.libraries.kubernetes import BASE
from haru.cel.libraries.patches import JSON_PATCH, OBJECT, PATCH_STRUCTS, PATCHES
from haru.cel.program import MeteredProgram, Program, instantiation_error, parse_and_check
from haru.cel.ranges import Path, Range
from haru.cel.types import BOOL, DYN, ERROR, INT, NULL, STRING, TIMESTAMP, Type, list_of, map_of, struct
from haru.kube.meta import Obj

CHEAP = 1_000
"""An expression that can not cost more than this is evaluated without counting; the most that it can cost is charged.

All expressions of a policy that are of this kind stay far below what a policy may cost.
"""
SMALL = 8 * 1024
"""An object of so many bytes is small: with the defaults that it gets no part of it has twice as many."""
CHEAP_IF_SMALL = 4_000
"""As `CHEAP`, for expressions over nothing but a small object."""

CONDITION = (BOOL,)
MESSAGE = (STRING,)
ANNOTATION = (STRING, NULL)
CONFIGURATION = (OBJECT,)
OPERATIONS = (list_of(JSON_PATCH),)

ORDER = (
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


Cheap = tuple[int, Program]


class Expression(NamedTuple):
    """A compiled expression, or why it is none. `internal`: the fault is found when it is made ready to run.

    `asks`: it may speak of the request or the authorizer. `cheap`: what it can cost at worst, and a program that does
    not count, for an expression that can never cost much; `cheap_if_small` for one that cannot where it is evaluated
    over a small object.
    """

    text: str
    program: MeteredProgram | None = None
    type: Type = DYN
    problem: str = ""
    internal: bool = False
    asks: bool = False
    cheap: Cheap | None = None
    cheap_if_small: Cheap | None = None


def environment(
    *,
    params: bool,
    authorizer: bool,
    variables: Mapping[str, Type] | None = None,
    objects: tuple[Type, Type] = (DYN, DYN),
    structs: Mapping[str, Mapping[str, Type]] | None = None,
    patches: bool = False,
) -> Environment:
    """The variables and functions that an expression may use.

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
        return Environment((*BASE, PATCHES), declared, known, Dialect(kubernetes=True, open_type=OBJECT.name))
    return Environment(BASE, declared, known, KUBERNETES)


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
    program = MeteredProgram(tree, within, ORDER)
    return Expression(text, program, found, "", False, asks, *_cheap(text, tree, within))


def _cheap(text: str, tree: Node, within: Environment) -> tuple[Cheap | None, Cheap | None]:
    """What an expression can cost at worst, and the program, if that is next to nothing: always, or for small objects.

    The estimate leaves out what it costs to select from values of no known type, which is one a node at most.
    """
    if "authorizer" in text:
        return None, None  # asking it has a nominal price, which is not counted where an expression is only tried
    nodes = list(walk(tree))
    if any(isinstance(node, Comprehension) for node in nodes):
        return None, None
    most = len(nodes) + estimate(tree, lambda _path: None, ESTIMATES, OVERLOAD_ESTIMATES).high
    if most <= CHEAP:
        return (most, Program(tree, within, ORDER)), None
    most = len(nodes) + estimate(tree, _size_of_path, ESTIMATES, OVERLOAD_ESTIMATES, _size_of_part).high
    return None, (most, Program(tree, within, ORDER)) if most <= CHEAP_IF_SMALL else None


_OF_SMALL = Range(0, 2 * SMALL)
_PARTS = frozenset(("_?._", "_[_]", "_[?_]", "value"))
"""What is selected by these from a part of an object is one."""
_CHOICES = frozenset(("orValue", "or"))


def _size_of_path(path: Path) -> Range | None:
    return _OF_SMALL if path and path[0] == "object" else None


def _size_of_part(node: Node) -> Range | None:
    return _OF_SMALL if _is_part(node) else None


def _is_part(node: Node) -> bool:
    """Whether a value is surely a part of the object, or a constant."""
    if isinstance(node, Call):
        if node.function in _PARTS:
            return _is_part(node.operands()[0])
        if node.function == "_?_:_":
            return all(map(_is_part, node.args[1:]))
        return node.function in _CHOICES and all(map(_is_part, node.operands()))
    if isinstance(node, Select):
        return _is_part(node.operand)
    return isinstance(node, Literal) or (isinstance(node, Ident) and node.name == "object")


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
