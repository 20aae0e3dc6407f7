"""The rules of one schema node (`x-kubernetes-validations`), parsed and checked with the types that it declares.

What they would cost and whether a definition may have them is `definition_rules`; asking them, `object_rules`.
Source: KEP 2876 and KEP 4008, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.cel.ast import Ident, Node
from haru.cel.environment import KUBERNETES, Environment
from haru.cel.errors import CompileError
from haru.cel.libraries.kubernetes import BASE
from haru.cel.objects import Structs, declare
from haru.cel.program import instantiation_error, parse_and_check
from haru.cel.types import BOOL, STRING, Type, optional_of
from haru.kube.custom.structural import Structural
from haru.kube.meta import Obj

VARIABLES = ("self", "oldSelf")


class UnseenError(Exception):
    """Rules stand where expressions see nothing, because the schema allows anything."""


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """One rule and its `messageExpression`, each with its tree or with what is wrong with it.

    `optional`: `oldSelf` is an optional (`optionalOldSelf`). `about_changes`: the rule reads `oldSelf`.
    """

    raw: Obj
    environment: Environment
    optional: bool
    tree: Node | None = None
    problem: str = ""
    message: Node | None = None
    message_problem: str = ""
    about_changes: bool = False


def check_rules(schema: Structural, *, root: bool = False) -> list[CheckedRule]:
    """The rules of one node, in their order. Raises UnseenError."""
    structs: Structs = {}
    own = declare(schema, "selfType", structs, root=root)
    if own is None:
        raise UnseenError
    plain, with_optional = (_environment(own, old, structs) for old in (own, optional_of(own)))
    return [
        _check(raw, with_optional if raw.get("optionalOldSelf") else plain, optional=bool(raw.get("optionalOldSelf")))
        for raw in schema.rules
    ]


def _environment(own: Type, old: Type, structs: Structs) -> Environment:
    return Environment(BASE, {"self": own, "oldSelf": old}, structs, KUBERNETES)


def _check(raw: Obj, environment: Environment, *, optional: bool) -> CheckedRule:
    tree, problem = _checked(str(raw.get("rule") or ""), environment, BOOL)
    if tree is None:
        return CheckedRule(raw, environment, optional, problem=problem)
    message, message_problem = None, ""
    if raw.get("messageExpression"):
        message, message_problem = _checked(str(raw["messageExpression"]), environment, STRING)
    return CheckedRule(raw, environment, optional, tree, "", message, message_problem, _reads_old(tree))


def _checked(expression: str, environment: Environment, wanted: Type) -> tuple[Node | None, str]:
    """The tree of an expression, or what is wrong with it."""
    is_rule = wanted is BOOL
    subject = "" if is_rule else "messageExpression "
    try:
        tree = parse_and_check(expression.strip(), environment)
    except CompileError as error:
        return None, f"{subject}compilation failed: {error}"
    if tree.type != wanted:
        return (
            None,
            "cel expression must evaluate to a bool" if is_rule else "messageExpression must evaluate to a string",
        )
    problem = instantiation_error(tree, environment)
    if problem:
        return None, problem if is_rule else problem.replace("program", "messageExpression", 1)
    return tree, ""


def _reads_old(tree: Node) -> bool:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Ident) and node.name == "oldSelf" and not node.local:
            return True
        pending.extend(node.children())
    return False
