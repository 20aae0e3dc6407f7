"""From text to something that runs: parse, check, look at the literals, compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from haru.cel.ast import Call, ListLiteral, Literal, MapLiteral, Node, walk
from haru.cel.checker import check, resolve_names
from haru.cel.closures import Code, constant
from haru.cel.compiler import Compiler
from haru.cel.environment import Environment
from haru.cel.errors import CompileError, CostLimitError, EvaluationError, Source, compile_error
from haru.cel.literals import look_at_literals
from haru.cel.metering import CONVERSIONS, CostExceeded, Meter, MeteringCompiler
from haru.cel.operations import Frame, Run
from haru.cel.parser import MAX_TREE_DEPTH, parse
from haru.kube.patterns import PatternError, compile_pattern

TOO_DEEP = "expression is nested too deeply to evaluate"


def parse_and_check(expression: str, environment: Environment) -> Node:
    """The typed tree of an expression. Raises CompileError with every fault that was found."""
    source = Source(expression)
    try:
        root = parse(source, environment.macros, quoted_fields=environment.quoted_fields)
        issues = check(root, environment) or look_at_literals(root, environment.kubernetes)
    except RecursionError:
        raise CompileError(f"expression recursion limit exceeded: {MAX_TREE_DEPTH}") from None
    if issues:
        raise compile_error(source, issues)
    return root


def parse_only(expression: str, environment: Environment) -> Node:
    """The tree of an expression that is run without being checked: every mistake shows when it is evaluated."""
    root = parse(Source(expression), environment.macros, quoted_fields=environment.quoted_fields)
    resolve_names(root, environment)
    return root


def instantiation_error(root: Node, environment: Environment) -> str:
    """What is wrong with a conversion or pattern that is a constant, which is seen to before any evaluation; empty if
    nothing is."""
    for node in walk(root):
        if not isinstance(node, Call):
            continue
        try:
            if node.function in _PATTERNS:
                _look_at_pattern(node)
            else:
                _converted(node, environment)
        except (EvaluationError, PatternError) as error:
            return f"program instantiation failed: {error}"
    return ""


def _converted(node: Node, environment: Environment) -> Code | None:
    """A constant, also after conversions of it."""
    if isinstance(node, Literal | ListLiteral | MapLiteral):
        code = Compiler(environment, ()).compile(node)
        return code if code.constant else None
    if not isinstance(node, Call) or node.function not in CONVERSIONS or len(node.args) != 1:
        return None
    inner = _converted(node.args[0], environment)
    return None if inner is None else constant(Compiler(environment, ()).apply(node, [inner])([]))


_PATTERNS = frozenset(("matches", "find", "findAll"))


def _look_at_pattern(node: Call) -> None:
    operands = node.operands()
    if len(operands) > 1 and isinstance(operands[1], Literal) and isinstance(operands[1].value, str):
        compile_pattern(operands[1].value)


class Program:
    """A compiled expression without cost accounting. Variables are given in the order of `variables`."""

    __slots__ = ("_run", "_spare", "code", "root", "variables")

    def __init__(self, root: Node, environment: Environment, variables: Sequence[str]) -> None:
        compiler = Compiler(environment, variables)
        self.root = root
        self.variables = tuple(variables)
        self.code: Code = compiler.compile(root)
        self._run: Run = self.code.run
        self._spare: Frame = [None] * (compiler.size - len(variables) - 1)

    def evaluate(self, *values: Any) -> Any:
        """The expression's value. Raises EvaluationError."""
        try:
            return self._run([None, *values, *self._spare])
        except RecursionError:
            raise EvaluationError(TOO_DEEP) from None


class Measurement(NamedTuple):
    """An evaluation with its cost. `error` is set where there is no value."""

    value: Any
    error: EvaluationError | None
    cost: int


class MeteredProgram:
    """A compiled expression that counts what its evaluations cost, and gives up above a limit."""

    __slots__ = ("_run", "_spare")

    def __init__(self, root: Node, environment: Environment, variables: Sequence[str]) -> None:
        compiler = MeteringCompiler(environment, variables)
        self._run: Run = compiler.compile(root).run
        self._spare: Frame = [None] * (compiler.size - len(variables) - 1)

    def measure(self, limit: float, *values: Any) -> Measurement:
        """Evaluate. Errors are part of the answer."""
        return self.metered(Meter(limit), *values)

    def metered(self, meter: Meter, *values: Any) -> Measurement:
        """Measure with the caller's meter, whose limit may change while the evaluation runs."""
        try:
            return Measurement(self._run([meter, *values, *self._spare]), None, meter.cost)
        except CostExceeded:
            return Measurement(None, CostLimitError(), meter.cost)
        except EvaluationError as error:
            return Measurement(None, error, meter.cost)
        except RecursionError:
            return Measurement(None, EvaluationError(TOO_DEEP), meter.cost)
