"""Mutating admission policies: they change an object by expressions, one after the other.

Each mutation sees what those before it made. Policies run in the order of their names, and of their bindings' and
parameters' names; 1.36 promises no order, and neither do we.
Source: KEP 3962, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from time import perf_counter

from haru.apiserver.admission.dynamic.attributes import Attributes, Reinvocation, RequestView, request_view_as
from haru.apiserver.admission.dynamic.expression_runner import run_in_turn, timed_compile
from haru.apiserver.admission.dynamic.match_conditions import ConditionsFailed
from haru.apiserver.admission.dynamic.metrics import AdmissionMetrics, error_type
from haru.apiserver.admission.dynamic.mutation_patches import MutationError, configured, patched, with_texts
from haru.apiserver.admission.dynamic.policies import Binding, Invocation, Misconfigured, Policy, invocations
from haru.apiserver.admission.dynamic.texts import Texts, texts_of
from haru.apiserver.apiextensions.reader import converted
from haru.apiserver.registry.resources import Served
from haru.cel.admission import CONFIGURATION, OPERATIONS, Expression
from haru.cel.admission_evaluation import Evaluation, Given, OutOfBudget
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

Key = tuple[str, str, str, str]
"""What is remembered of an invocation: policy, binding, namespace and name of the parameter."""

APPLY = "ApplyConfiguration"


class MutatingPolicy(Policy):
    """A policy that changes objects, its expressions compiled when a request first needs them."""

    def __init__(self, raw: Obj, bindings: Sequence[Binding]) -> None:
        super().__init__(raw, bindings)
        self.runs_again = self.spec.get("reinvocationPolicy") == "IfNeeded"
        self._texts: dict[tuple[str, str, str], Texts | None] = {}

    @cached_property
    def mutations(self) -> list[tuple[bool, Expression]]:
        """The mutations: whether it is a configuration to apply (else a JSON patch), and its expression."""
        found = []
        within = self.composition.patching
        for raw in self.spec.get("mutations") or ():
            applies = raw.get("patchType") == APPLY
            part: Obj = raw.get("applyConfiguration" if applies else "jsonPatch") or {}
            wanted = CONFIGURATION if applies else OPERATIONS
            found.append((applies, timed_compile(part.get("expression") or "", within, wanted)))
        return found

    def texts(self, expression: Expression, kind: Kind) -> Texts | None:
        """Where a configuration puts texts in objects of a kind; None for one that does more than that."""
        key = expression.text, kind.api_version, kind.kind
        if key not in self._texts:
            self._texts[key] = texts_of(expression, self.composition.patching, kind)
        return self._texts[key]


class Mutators:
    """Lets policies change requests."""

    def __init__(self, served: Served, counts: AdmissionMetrics) -> None:
        self._served = served
        self._counts = counts

    async def mutate(
        self,
        policies: Sequence[MutatingPolicy],
        attributes: Attributes,
        passed: Reinvocation[Key],
        *,
        again: bool = False,
    ) -> bool:
        """One pass over a request: whether it changed the object. In the second one (`again`) only those run that must.

        Raises StatusError where a policy fails and may not be passed over.
        """
        if again:
            if not passed.willing and not passed.again:
                return False
            if attributes.obj is not passed.left and attributes.obj != passed.left:
                passed.changed()
        errors: list[tuple[Policy, str, str, str]] = []
        asked: list[Invocation] = []
        for policy in policies:
            for found in await invocations(policy, attributes, self._served):
                if isinstance(found, Misconfigured):
                    errors.append((policy, found.binding, str(found), ""))
                else:
                    asked.append(found)
        before, has_changed = attributes.obj, False
        for invocation in asked:
            if again and _key(invocation) not in passed.again:
                continue
            try:
                has_changed = await self._invoke(invocation, attributes, passed, errors)
            except ConditionsFailed as error:
                errors.append((invocation.policy, invocation.binding.name, str(error), "Invalid"))
        passed.left = attributes.obj
        refusals = [error for error in errors if error[0].fails]
        if refusals:
            raise _refusal(attributes, refusals)
        return has_changed if len(asked) == 1 else attributes.obj is not before and attributes.obj != before

    async def _invoke(
        self,
        invocation: Invocation,
        attributes: Attributes,
        passed: Reinvocation[Key],
        errors: list[tuple[Policy, str, str, str]],
    ) -> bool:
        """Whether the object is another one afterwards."""
        policy = invocation.policy
        assert isinstance(policy, MutatingPolicy)
        current = invocation if attributes.obj is invocation.seen.obj else await _current(invocation, attributes)
        given = current.given(attributes)
        if policy.conditions:
            counts = self._counts.condition(policy.name, "policy", "validate", attributes)  # the step is 1.36's word
            if not await policy.conditions.hold(given.to_conditions(), counts):
                return False
        before = attributes.obj
        for applies, expression in policy.mutations if before is not None else ():
            if attributes.obj is not current.seen.obj:
                current = await _current(invocation, attributes)
                given = current.given(attributes)
            start = perf_counter()
            why = ""
            try:
                attributes.obj = await _mutated(current, applies, expression, given, attributes)
            except MutationError as error:
                why = str(error)
                errors.append((policy, invocation.binding.name, why, "Invalid"))
            finally:
                kind = error_type(why) if why else "no_error"
                self._counts.mutated(policy.name, invocation.binding.name, kind, perf_counter() - start)
        # One mutation returns the very object where it changes nothing; several may undo each other.
        has_changed = attributes.obj is not before and (len(policy.mutations) == 1 or attributes.obj != before)
        if has_changed:
            passed.changed()
        if policy.runs_again:
            passed.willing.add(_key(invocation))
        return has_changed


async def _current(invocation: Invocation, attributes: Attributes) -> Invocation:
    """The invocation over the object as those before it have left it."""
    target = invocation.seen.target
    if target is attributes.resource or not attributes.is_whole:
        now = RequestView(invocation.seen.resource, invocation.seen.kind, target, attributes.obj, invocation.seen.old)
    else:
        now = await request_view_as(target, attributes)
    return Invocation(invocation.policy, invocation.binding, now, invocation.param, invocation.namespace)


async def _mutated(
    invocation: Invocation, applies: bool, expression: Expression, given: Given, attributes: Attributes
) -> Obj:
    """The object, in the version of the request, as a mutation makes it. Raises MutationError and StatusError."""
    policy, seen = invocation.policy, invocation.seen
    assert isinstance(policy, MutatingPolicy)
    if expression.program is None:
        raise MutationError(expression.problem)
    assert seen.obj is not None and attributes.obj is not None
    texts = policy.texts(expression, seen.target.kind) if applies and attributes.is_whole else None
    evaluation = Evaluation(given, policy.composition.variables)
    try:
        found = await run_in_turn(evaluation, expression if texts is None else texts.expression)
    except OutOfBudget as error:
        raise MutationError(str(error)) from None
    if found.error:
        raise MutationError(found.error)
    if texts is not None and isinstance(found.value, list):
        made = with_texts(seen.obj, found.value, texts, attributes)
        if texts.is_unread and (seen.obj is attributes.original or seen.obj is attributes.unread):
            attributes.unread = made
    else:
        made = (configured if applies else patched)(seen.obj, found.value, seen, attributes)
    if made is seen.obj:
        return attributes.obj
    if seen.target is attributes.resource or not attributes.is_whole:
        return made
    return await converted(made, attributes.resource.kind)


def _key(invocation: Invocation) -> Key:
    metadata = (invocation.param or {}).get("metadata") or {}
    return invocation.policy.name, invocation.binding.name, metadata.get("namespace") or "", metadata.get("name") or ""


def _refusal(attributes: Attributes, errors: Sequence[tuple[Policy, str, str, str]]) -> StatusError:
    """403 with everything that went wrong; the first of it gives the message."""
    messages = []
    for policy, binding, why, _ in errors:
        by = f"'{policy.name}' with binding '{binding}'" if binding else f'"{policy.name}"'
        messages.append(f"policy {by} denied request: {why}")
    found = attributes.forbidden("admission request denied by policy")
    found.message, found.reason = messages[0], errors[0][3] or found.reason
    found.details["causes"] = [{"message": message} for message in messages]
    return found
