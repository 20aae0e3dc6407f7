"""The expressions of webhook configurations and policies, when these are written.

Source: admissionregistration.k8s.io/v1 validation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.cel.admission import (
    ANNOTATION,
    CONDITION,
    CONFIGURATION,
    MESSAGE,
    OPERATIONS,
    Composition,
    Expression,
    compile_expression,
    plain_environment,
)
from haru.kube.errors import FieldError, invalid
from haru.kube.meta import Obj
from haru.kube.validation.registration_policies import ANNOTATION_BYTES

_PATCHES = {"ApplyConfiguration": ("applyConfiguration", CONFIGURATION), "JSONPatch": ("jsonPatch", OPERATIONS)}


def webhook_expression_errors(new: Obj, old: Obj | None) -> list[FieldError]:
    """What is wrong with the match conditions of webhooks; those that did not change are not judged again."""
    hooks, before = new.get("webhooks") or [], (old or {}).get("webhooks") or []
    if [hook.get("matchConditions") for hook in hooks] == [hook.get("matchConditions") for hook in before]:
        return []
    found: list[FieldError] = []
    for index, hook in enumerate(hooks):
        found += _conditions(f"webhooks[{index}].matchConditions", hook.get("matchConditions") or (), params=False)
    return found


def policy_expression_errors(new: Obj, old: Obj | None) -> list[FieldError]:
    """What is wrong with the expressions of a ValidatingAdmissionPolicy."""
    return list(_policy(new.get("spec") or {}, (old or {}).get("spec") or {}))


def mutation_expression_errors(new: Obj, old: Obj | None) -> list[FieldError]:
    """What is wrong with the expressions of a MutatingAdmissionPolicy."""
    return list(_mutating(new.get("spec") or {}, (old or {}).get("spec") or {}))


def _common(spec: Obj, before: Obj, composition: Composition) -> Iterator[FieldError]:
    """Match conditions, unless they did not change, and variables, which are declared here."""
    settled = all(spec.get(name) == before.get(name) for name in ("paramKind", "matchConditions"))
    if not settled:
        params = spec.get("paramKind") is not None
        yield from _conditions("spec.matchConditions", spec.get("matchConditions") or (), params=params)
    for index, variable in enumerate(spec.get("variables") or ()):
        if text := _written(variable, "expression"):
            compiled = composition.add(variable.get("name") or "", text)
            yield from _problem(f"spec.variables[{index}].expression", compiled)


def _mutating(spec: Obj, before: Obj) -> Iterator[FieldError]:
    composition = Composition((), params=spec.get("paramKind") is not None)
    yield from _common(spec, before, composition)
    around = ("paramKind", "variables")
    stored = before.get("mutations") or [] if all(spec.get(n) == before.get(n) for n in around) else []
    for index, mutation in enumerate(spec.get("mutations") or ()):
        member, wanted = _PATCHES.get(mutation.get("patchType") or "", ("", OPERATIONS))
        text = _written(mutation.get(member) or {}, "expression").strip()
        if mutation in stored or not text:
            continue  # as it was stored: an expression that is refused by now is kept, as in 1.36
        compiled = compile_expression(text, composition.patching, wanted)
        yield from _problem(f"spec.mutations[{index}].{member}.expression", compiled)


def _policy(spec: Obj, before: Obj) -> Iterator[FieldError]:
    composition = Composition((), params=spec.get("paramKind") is not None)
    yield from _common(spec, before, composition)
    for index, validation in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        if text := _written(validation, "expression"):
            yield from _problem(f"{path}.expression", compile_expression(text, composition.trusted, CONDITION))
        if text := _written(validation, "messageExpression"):
            yield from _problem(f"{path}.messageExpression", compile_expression(text, composition.plain, MESSAGE))
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        text = _written(annotation, "valueExpression").strip()
        if text and len(text.encode()) <= ANNOTATION_BYTES:
            compiled = compile_expression(text, composition.trusted, ANNOTATION)
            yield from _problem(f"spec.auditAnnotations[{index}].valueExpression", compiled)


def _conditions(path: str, conditions: Sequence[Obj], *, params: bool) -> Iterator[FieldError]:
    within = plain_environment(params=params, authorizer=True)
    for index, condition in enumerate(conditions):
        if text := _written(condition, "expression").strip():
            yield from _problem(f"{path}[{index}].expression", compile_expression(text, within, CONDITION))


def _written(obj: Obj, name: str) -> str:
    """An expression; empty for one of spaces alone, which is judged elsewhere."""
    text = str(obj.get(name) or "")
    return text if text.strip() else ""


def _problem(path: str, compiled: Expression) -> Iterator[FieldError]:
    if compiled.internal:
        yield FieldError("InternalError", path, None, compiled.problem)
    elif compiled.problem:
        yield invalid(path, compiled.text, compiled.problem)
