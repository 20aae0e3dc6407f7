"""What expressions are evaluated over, and match conditions, which webhooks and policies have alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from time import perf_counter
from typing import Any

from haru.apiserver.admission.dynamic.attributes import Attributes, RequestView
from haru.apiserver.admission.dynamic.expression_runner import on_loop, run_in_turn, timed_compile
from haru.apiserver.admission.dynamic.metrics import MatchConditionMetrics
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.node_authorizer import Attributes as Asked
from haru.apiserver.auth.user import UserInfo
from haru.cel.admission import CONDITION, plain_environment
from haru.cel.admission_evaluation import CONDITIONS_BUDGET, Evaluation, Given, OutOfBudget, Result
from haru.cel.libraries import Decide, Decision, Question
from haru.kube.errors import StatusError, aggregate
from haru.kube.meta import Obj
from haru.kube.selectors import parse_field_selector


def given_of(attributes: Attributes, seen: RequestView, *, params: Any = None, namespace: Obj | None = None) -> Given:
    """The values of an expression's variables for one request."""
    request, asking = partial(attributes.request, seen), partial(_asking, attributes)
    is_small = seen.obj is attributes.original and attributes.is_small
    return Given(seen.obj, seen.old, request, namespace, params, asking, is_small)


def _asking(attributes: Attributes) -> tuple[Decide, Question]:
    """What answers for the authorizer, the same for all expressions about a request, and the request's resource."""
    if attributes.asking is None:
        kind = attributes.resource.kind
        question = Question(
            group=kind.group,
            resource=kind.plural,
            subresource=attributes.subresource,
            namespace=attributes.namespace,
            name=attributes.name,
        )
        attributes.asking = decider(attributes), question
    return attributes.asking


def decider(attributes: Attributes) -> Decide:
    """Answers the authorizer's questions for the user of a request, each once, in whichever thread it is asked."""
    authorizer, user = attributes.authorizer, attributes.call.request.user
    known: dict[Question, Decision] = {}
    loop = asyncio.get_running_loop()

    def decide(question: Question) -> Decision:
        found = known.get(question)
        if found is None:
            who = user if question.service_account is None else _service_account(*question.service_account)
            found = known[question] = on_loop(loop, partial(_judged, authorizer, who, question))
        return found

    return decide


def _judged(authorizer: Authorizer, who: UserInfo, question: Question) -> Decision:
    """What the authorizer says to one question."""
    if question.path:
        of_path = authorizer.decide_path(who, question.verb, question.path)
        return Decision(of_path.allowed, of_path.reason)
    try:
        node = parse_field_selector(question.field_selector).exact("spec.nodeName") or ""
    except StatusError:
        node = ""  # what can not be read demands nothing
    asked = Asked(
        question.verb,
        question.group,
        question.resource,
        question.subresource,
        question.namespace,
        question.name,
        node,
    )
    found = authorizer.decide(who, asked)
    return Decision(found.allowed, found.reason)


def _service_account(namespace: str, name: str) -> UserInfo:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", groups)


class ConditionsFailed(Exception):
    """Match conditions could not be evaluated, and nobody may be passed over for that."""


class Conditions:
    """The match conditions of a webhook or a policy."""

    def __init__(self, conditions: Iterable[Obj], *, params: bool, fails: bool) -> None:
        within = plain_environment(params=params, authorizer=True)
        self._expressions = [timed_compile(each.get("expression") or "", within, CONDITION) for each in conditions]
        self._fails = fails

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._expressions)

    async def hold(self, given: Given, counts: MatchConditionMetrics) -> bool:
        """Whether all conditions are met. One that is not met outweighs errors in others.

        Raises ConditionsFailed for an error, unless errors count as a no (`failurePolicy: Ignore`).
        """
        if not self._expressions:
            return True
        start = perf_counter()
        evaluation = Evaluation(given, budget=CONDITIONS_BUDGET)
        try:
            results = [await run_in_turn(evaluation, expression) for expression in self._expressions]
            found = self._met(results)
        except OutOfBudget as error:
            if self._fails:
                counts.failed()
                raise ConditionsFailed(str(error)) from None
            found = False
        except ConditionsFailed:
            counts.failed()
            raise
        finally:
            counts.took(perf_counter() - start)
        if not found:
            counts.excluded()
        return found

    def _met(self, results: Iterable[Result]) -> bool:
        errors: list[str] = []
        for found in results:
            if found.error:
                errors.append(found.error)
            elif found.value is not True:
                return False
        if errors and self._fails:
            raise ConditionsFailed(aggregate(errors))
        return not errors
