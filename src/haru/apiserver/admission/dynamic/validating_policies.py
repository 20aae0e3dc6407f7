"""Validating admission policies: they refuse, warn, or leave a note in the audit log.

Source: KEP 3488, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import orjson

from haru.apiserver.admission.dynamic.attributes import Attributes
from haru.apiserver.admission.dynamic.expression_runner import run_in_turn, timed_compile
from haru.apiserver.admission.dynamic.match_conditions import ConditionsFailed
from haru.apiserver.admission.dynamic.metrics import AdmissionMetrics, error_type
from haru.apiserver.admission.dynamic.policies import Binding, Misconfigured, Policy, invocations
from haru.apiserver.registry.resources import Served
from haru.cel.admission import ANNOTATION, CONDITION, MESSAGE, Expression
from haru.cel.admission_evaluation import Evaluation, Given, OutOfBudget, Result
from haru.cel.values import type_name
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

MESSAGE_BYTES = 5 * 1024
ANNOTATION_BYTES = 10 * 1024
FAILURES_LIMIT = 50
_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


class ValidatingPolicy(Policy):
    """A policy that judges, its expressions compiled when a request first needs them."""

    @cached_property
    def validations(self) -> list[tuple[Obj, Expression, Expression | None]]:
        """Each validation with its expression and the one that words its refusal."""
        found = []
        for raw in self.spec.get("validations") or ():
            text = raw.get("messageExpression")
            message = timed_compile(text, self.composition.plain, MESSAGE) if text else None
            judging = timed_compile(raw.get("expression") or "", self.composition.trusted, CONDITION)
            found.append((raw, judging, message))
        return found

    @cached_property
    def annotations(self) -> list[tuple[str, Expression]]:
        """The audit annotations: key and expression."""
        within = self.composition.trusted
        return [
            (raw.get("key") or "", timed_compile((raw.get("valueExpression") or "").strip(), within, ANNOTATION))
            for raw in self.spec.get("auditAnnotations") or ()
        ]


@dataclass(frozen=True, slots=True)
class Denial:
    """One finding: which validation, why, and under which reason."""

    message: str
    reason: str = ""
    number: int = 0
    seconds: float = 0.0
    """How long it took to find."""


@dataclass
class _Findings:
    """What all policies found of one request."""

    counts: AdmissionMetrics
    denied: list[tuple[str, str, Denial]] = field(default_factory=list)
    """Policy, binding (empty where the policy itself is at fault), finding."""
    audited: list[Obj] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)


class Policies:
    """Asks policies about requests."""

    def __init__(self, served: Served, counts: AdmissionMetrics) -> None:
        self._served = served
        self._counts = counts

    async def validate(self, policies: Sequence[ValidatingPolicy], attributes: Attributes) -> None:
        """Ask all of them; the first refusal is the answer. Raises StatusError."""
        findings = _Findings(self._counts)
        for policy in policies:
            for asked in await invocations(policy, attributes, self._served):
                if not isinstance(asked, Misconfigured):
                    await _judge(policy, asked.binding, attributes, asked.given(attributes), findings)
                elif policy.fails:
                    findings.denied.append((policy.name, asked.binding, Denial(str(asked))))
        for key, values in findings.notes.items():
            attributes.call.request.annotations.setdefault(key, ", ".join(values))
        if findings.audited:
            text = orjson.dumps(findings.audited[:FAILURES_LIMIT]).decode()
            attributes.call.request.annotations.setdefault(_FAILURES, text)
        if findings.denied:
            raise _refusal(attributes, *findings.denied[0])


def _refusal(attributes: Attributes, policy: str, binding: str, denial: Denial) -> StatusError:
    by = f"'{policy}' with binding '{binding}'" if binding else f"'{policy}'"
    message = f"ValidatingAdmissionPolicy {by} denied request: {denial.message}"
    error = attributes.forbidden(message)
    error.reason = denial.reason or "Invalid"
    error.code = _CODES.get(error.reason, 422)
    error.details["causes"] = [{"message": message}]
    return error


# --- one binding, one parameter


async def _judge(
    policy: ValidatingPolicy, binding: Binding, attributes: Attributes, given: Given, findings: _Findings
) -> None:
    try:
        condition = findings.counts.condition(policy.name, "policy", "validate", attributes)
        if not await policy.conditions.hold(given.to_conditions(), condition):
            return
        denials = await _denials(policy, binding, given, findings.counts)
        notes, errors = await _notes(policy, given) if policy.annotations else ({}, [])
    except ConditionsFailed as error:
        denials, notes, errors = [Denial(str(error))], {}, []
    except OutOfBudget as error:
        denials, notes, errors = ([Denial(str(error))] if policy.fails else []), {}, []
    for denial in denials:
        _act(policy, binding, attributes, denial, findings)
    findings.denied += [(policy.name, binding.name, Denial(error)) for error in errors]
    for key, value in notes.items():
        known = findings.notes.setdefault(f"{policy.name}/{key}", [])
        if value not in known:
            known.append(value)


async def _denials(policy: ValidatingPolicy, binding: Binding, given: Given, counts: AdmissionMetrics) -> list[Denial]:
    """Which validations refuse the request, and with which words."""
    judging = Evaluation(given, policy.composition.variables)
    results: list[tuple[Result, float]] = []
    for _, expression, _ in policy.validations:
        start = perf_counter()
        results.append((await run_in_turn(judging, expression), perf_counter() - start))
    wording: Evaluation | None = None
    if any(message is not None for _, _, message in policy.validations):
        wording = Evaluation(given._replace(asking=None), policy.composition.variables, judging.budget)
    found: list[Denial] = []
    for number, ((raw, judged, message), (result, seconds)) in enumerate(zip(policy.validations, results, strict=True)):
        text = await _worded(wording, message)
        if result.error:
            if policy.fails:
                found.append(Denial(result.error, number=number, seconds=seconds))
            else:
                counts.checked(policy.name, binding.name, "allow", error_type(result.error), seconds)
        elif result.value is not True:
            plain = str(raw.get("message") or "").strip() or f"failed expression: {judged.text.strip()}"
            found.append(Denial(text or plain, raw.get("reason") or "Invalid", number, seconds))
    return found


async def _worded(wording: Evaluation | None, message: Expression | None) -> str:
    """What a message expression says, if it is fit to be said."""
    if message is None or wording is None:
        return ""
    try:
        found = await run_in_turn(wording, message)
    except OutOfBudget as error:
        raise _MessageTooDear(f"failed messageExpression: {error}") from None
    text = found.value.strip() if isinstance(found.value, str) else ""
    return text if len(text.encode()) <= MESSAGE_BYTES and "\n" not in text else ""


class _MessageTooDear(OutOfBudget):
    """The words of a refusal used up what was left of the budget."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.args = (text,)


def _act(
    policy: ValidatingPolicy, binding: Binding, attributes: Attributes, denial: Denial, findings: _Findings
) -> None:
    """Do with a refusal what the binding says: refuse, warn or only note it."""
    for action in binding.actions:
        findings.counts.checked(policy.name, binding.name, action.lower(), error_type(denial.message), denial.seconds)
        if action == "Deny":
            findings.denied.append((policy.name, binding.name, denial))
        elif action == "Warn":
            attributes.call.request.warnings.append(
                f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': "
                f"{denial.message}"
            )
        elif action == "Audit":
            findings.audited.append(
                {
                    "message": denial.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": denial.number,
                    "validationActions": binding.actions,
                }
            )


async def _notes(policy: ValidatingPolicy, given: Given) -> tuple[dict[str, str], list[str]]:
    """The audit annotations, and errors in them that refuse the request."""
    evaluation = Evaluation(given._replace(asking=None), policy.composition.variables)
    notes: dict[str, str] = {}
    errors: list[str] = []
    for key, expression in policy.annotations:
        found = await run_in_turn(evaluation, expression)
        if found.error:
            errors += [found.error] if policy.fails else []
        elif isinstance(found.value, str):
            if found.value.strip():
                notes[key] = found.value.strip().encode()[:ANNOTATION_BYTES].decode("utf-8", "ignore")
        elif found.value is not None:
            errors.append(_unsupported(expression, found.value))
    return notes, errors


def _unsupported(expression: Expression, value: Any) -> str:
    return (
        f"valueExpression '{expression.text}' resulted in unsupported return type: {type_name(value)}. "
        "Return type must be either string or null."
    )
