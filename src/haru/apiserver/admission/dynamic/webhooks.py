"""Webhooks: mutating ones one after the other, validating ones all at once.

Whoever changes an object makes the webhooks before look again, once, if they wish to (`reinvocationPolicy`).
Source: admissionregistration.k8s.io/v1 and the webhook admission plugins, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import orjson

from haru.apiserver.admission.dynamic.attributes import Attributes, Reinvocation, RequestView
from haru.apiserver.admission.dynamic.match_conditions import Conditions, ConditionsFailed, given_of
from haru.apiserver.admission.dynamic.match_criteria import Criteria
from haru.apiserver.admission.dynamic.metrics import AdmissionMetrics
from haru.apiserver.admission.dynamic.reviews import (
    Answer,
    CallFailed,
    failing_closed,
    no_dry_run,
    read_answer,
    refusal,
    review_of,
    review_version,
)
from haru.apiserver.apiextensions.reader import converted
from haru.apiserver.registry.resources import Served
from haru.apiserver.webhook_client import WebhookClient, WebhookError
from haru.errors import raise_first
from haru.kube.decoding import strict_decode
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import StatusError, forbidden_error, internal_error
from haru.kube.json_form import json_form
from haru.kube.meta import Obj
from haru.kube.patch.json_patch import REJECTED, apply_json_patch

_LOG = logging.getLogger("haru.apiserver")
_QUIET = ("None", "NoneOnDryRun")
DEFAULT_SECONDS = 10


class Webhook:
    """One webhook of a configuration."""

    def __init__(self, configuration: str, number: int, hook: Obj) -> None:
        self.configuration = configuration
        self.number = number
        self.raw = hook
        self.name = str(hook["name"])
        self.ignores_failures = hook.get("failurePolicy") == "Ignore"
        self.asks_again = hook.get("reinvocationPolicy") == "IfNeeded"
        self.client: Obj = hook["clientConfig"]
        self.criteria = Criteria(hook, hook.get("rules") or ())

    @cached_property
    def conditions(self) -> Conditions:
        """The match conditions, compiled when a request first needs them."""
        return Conditions(self.raw.get("matchConditions") or (), params=False, fails=not self.ignores_failures)

    @property
    def has_no_side_effects(self) -> bool:
        """Whether the webhook may be asked of a dry run."""
        return self.raw.get("sideEffects") in _QUIET


class Webhooks:
    """Asks webhooks about requests."""

    def __init__(self, served: Served, caller: WebhookClient, counts: AdmissionMetrics) -> None:
        self._served = served
        self._caller = caller
        self._counts = counts

    async def _seen(self, hook: Webhook, attributes: Attributes, step: str) -> RequestView | None:
        """In which form a webhook is to be asked; None if it is not."""
        seen = await hook.criteria.match(attributes, self._served)
        if seen is None or not hook.conditions:
            return seen
        counts = self._counts.condition(hook.name, "webhook", step, attributes)
        try:
            return seen if await hook.conditions.hold(given_of(attributes, seen), counts) else None
        except ConditionsFailed as error:
            kind = attributes.resource.kind  # told by the name that the client gave alone, as in 1.36
            raise forbidden_error(kind.group, kind.plural, attributes.name, str(error)) from None

    # --- validating

    async def validate(self, hooks: Sequence[Webhook], attributes: Attributes) -> None:
        """Ask everybody at once; the refusal of the first in order is the answer."""
        asked = [(hook, seen) for hook in hooks if (seen := await self._seen(hook, attributes, "validate")) is not None]
        if not asked:
            return
        found = await asyncio.gather(
            *(self._ask(hook, seen, attributes, mutating=False) for hook, seen in asked), return_exceptions=True
        )
        raise_first(found)

    async def _ask(self, hook: Webhook, seen: RequestView, attributes: Attributes, *, mutating: bool) -> Answer | None:
        """A webhook's permission; None where it failed and may. Raises StatusError for a refusal."""
        call, kind, operation = attributes.call, "admit" if mutating else "validating", attributes.operation
        metrics = self._counts.webhook(hook.name, kind, operation)
        start = perf_counter()
        if call.dry_run and not hook.has_no_side_effects:
            raise no_dry_run(hook.name)
        try:
            answer = await self._call(hook, seen, attributes, mutating)
        except CallFailed as error:
            metrics.called(503, rejected=not hook.ignores_failures, seconds=perf_counter() - start)
            if not hook.ignores_failures:
                _LOG.warning("failed calling webhook %s, failing closed: %s", hook.name, error)
                metrics.rejected("calling_webhook_error", 503)
                raise failing_closed(hook.name, error) from None
            _LOG.warning("failed calling webhook %s, failing open: %s", hook.name, error)
            metrics.failed_open()
            where = "mutation" if mutating else "validating"
            annotate(attributes, f"failed-open.{where}.webhook.admission.k8s.io/round_0_index_{hook.number}", hook.name)
            return None
        call.request.warnings.extend(answer.warnings)
        for key, value in answer.annotations.items():
            annotate(attributes, f"{hook.name}/{key}", value)
        if not answer.allowed:
            refused = refusal(hook.name, answer.result)
            metrics.called(refused.code, rejected=True, seconds=perf_counter() - start)
            metrics.rejected("no_error", refused.code)
            raise refused
        metrics.called(200, rejected=False, seconds=perf_counter() - start)
        return answer

    async def _call(self, hook: Webhook, seen: RequestView, attributes: Attributes, mutating: bool) -> Answer:
        version, uid = review_version(hook.raw), str(uuid.uuid4())
        body = orjson.dumps(review_of(attributes, seen, version, uid))
        seconds = hook.raw.get("timeoutSeconds") or DEFAULT_SECONDS
        try:
            data = await self._caller.post(hook.client, body, seconds)
        except WebhookError as error:
            raise CallFailed(f"failed to call webhook: {error}") from None
        return read_answer(data, version, uid, mutating=mutating)

    # --- mutating

    async def mutate(
        self, hooks: Sequence[Webhook], attributes: Attributes, passed: Reinvocation[int], *, again: bool = False
    ) -> bool:
        """Ask one after the other: whether they changed the object. In the second round (`again`) only whoever must."""
        if again:
            if not passed.willing and not passed.again:
                return False
            if attributes.obj != passed.left:
                passed.changed()
        changed = False
        for place, hook in enumerate(hooks):
            if again and place not in passed.again:
                continue
            seen = await self._seen(hook, attributes, "admit")
            if seen is None:
                continue
            answer = await self._ask(hook, seen, attributes, mutating=True)
            mutated = answer is not None and await self._apply(hook, seen, attributes, answer.patch)
            number = f"round_{int(again)}_index_{place}"
            value = {"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated}
            annotate(attributes, f"mutation.webhook.admission.k8s.io/{number}", orjson.dumps(value).decode())
            if mutated:
                changed = True
                passed.changed()
            if hook.asks_again:
                passed.willing.add(place)
        passed.left = attributes.obj
        return changed

    async def _apply(self, hook: Webhook, seen: RequestView, attributes: Attributes, patch: list[Any]) -> bool:
        """Patch the object in the form that the webhook has seen; whether that changed it."""
        call, before = attributes.call, attributes.obj
        if not patch:
            return False
        if before is None:
            why = f'admission webhook "{hook.name}" attempted to modify the object'
            raise internal_error(f"{why}, which is not supported for this operation")
        assert seen.obj is not None
        try:
            patched = apply_json_patch(seen.obj, patch, replace_adds=True)
        except StatusError as error:
            raise internal_error(error.message.removeprefix(REJECTED)) from None
        if not attributes.is_whole:
            attributes.obj = patched
            return patched != before
        given, kind = (patched.get("apiVersion"), patched.get("kind")), seen.target.kind
        if given != (kind.api_version, kind.kind):
            why = f'no kind "{given[1] or ""}" is registered for version "{given[0] or ""}"'
            raise internal_error(f'{why} in scheme "pkg/runtime/scheme.go:111"')
        try:
            decoded, _ = strict_decode(patched, kind)
            defaulted = json_form(apply_defaults(decoded, kind, call.objects.gates, call.now), kind)
        except StatusError as error:
            raise internal_error(error.message) from None
        attributes.obj = await converted(defaulted, call.resource.kind)
        return attributes.obj != before


def annotate(attributes: Attributes, key: str, value: str) -> None:
    """A note for the audit log; the first one under a key stays."""
    attributes.call.request.annotations.setdefault(key, value)
