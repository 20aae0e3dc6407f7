"""What a write passes through where webhooks or policies are configured: changes first, then judgements.

The server's own plugins change an object first, then policies, then webhooks. Where those have changed it all three
look at it once more; judging policies and webhooks see the object as it is to be stored. All of it happens before
anything is written, in dry runs too.
Source: the order of admission plugins of 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haru.apiserver.admission.dynamic.attributes import Attributes, Reinvocation, options_of
from haru.apiserver.admission.dynamic.match_criteria import is_exempt, is_for_policies_alone
from haru.apiserver.admission.dynamic.metrics import AdmissionMetrics
from haru.apiserver.admission.dynamic.mutating_policies import Key, MutatingPolicy, Mutators
from haru.apiserver.admission.dynamic.validating_policies import Policies, ValidatingPolicy
from haru.apiserver.admission.dynamic.webhooks import Webhook, Webhooks
from haru.apiserver.admission.reinvocation import nothing_new
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.node_authorizer import node_of
from haru.apiserver.request.call import BuiltIn, Call, Owned
from haru.kube.defaulting import apply_defaults
from haru.kube.json_form import json_form
from haru.kube.meta import Obj
from haru.kube.patch.managers import read

_SYSTEM = ("uid", "creationTimestamp", "generation")


@dataclass(frozen=True, slots=True)
class Evaluators:
    """What evaluates webhooks and policies on one server; the same for all configurations."""

    webhooks: Webhooks
    policies: Policies
    mutators: Mutators
    counts: AdmissionMetrics
    authorizer: Authorizer


@dataclass(frozen=True, slots=True)
class Configured:
    """The webhooks and policies that are configured at one moment, in the order in which they are asked."""

    mutating: Sequence[Webhook]
    validating: Sequence[Webhook]
    policies: Sequence[ValidatingPolicy]
    mutators: Sequence[MutatingPolicy]

    def __bool__(self) -> bool:
        return bool(self.mutating or self.validating or self.policies or self.mutators)


class Chain:
    """Ask the webhooks and policies of one moment about a write."""

    def __init__(self, evaluators: Evaluators, configured: Configured) -> None:
        self._evaluators = evaluators
        self._counts, self._authorizer = evaluators.counts, evaluators.authorizer
        self._configured = configured

    def for_call(self, call: Call) -> Chain | None:
        """Return the chain, without webhooks where none is asked; None for a resource that is exempt."""
        if is_exempt(call.resource):
            return None
        if not is_for_policies_alone(call.resource):
            return self
        configured = replace(self._configured, mutating=(), validating=())
        return Chain(self._evaluators, configured) if configured else None

    @property
    def _changes(self) -> bool:
        """Whether anybody changes objects."""
        return bool(self._configured.mutating or self._configured.mutators)

    async def _change(self, attributes: Attributes, built_in: BuiltIn | None = None) -> Obj | None:
        if not self._changes:
            return attributes.obj
        policies: Reinvocation[Key] = Reinvocation()
        hooks: Reinvocation[int] | None = Reinvocation() if self._configured.mutating else None
        with self._counts.step("admit", attributes.operation):
            if not await self._pass(attributes, policies, hooks, again=False) or attributes.obj is None:
                return attributes.obj
            if built_in is not None:
                copied = _own(attributes.obj)
                await built_in(copied)
                attributes.obj = copied
            await self._pass(attributes, policies, hooks, again=True)
        return attributes.obj

    async def _pass(
        self, attributes: Attributes, policies: Reinvocation[Key], hooks: Reinvocation[int] | None, *, again: bool
    ) -> bool:
        """Run one pass; whether it changed the object."""
        operation, changed = attributes.operation, False
        if self._configured.mutators and attributes.operation not in ("DELETE", "CONNECT"):
            with self._counts.plugin("MutatingAdmissionPolicy", "admit", operation):
                changed = await self._evaluators.mutators.mutate(
                    self._configured.mutators, attributes, policies, again=again
                )
        if hooks is not None:
            with self._counts.plugin("MutatingAdmissionWebhook", "admit", operation):
                changed |= await self._evaluators.webhooks.mutate(
                    self._configured.mutating, attributes, hooks, again=again
                )
        return changed

    @property
    def _judges(self) -> bool:
        """Whether anybody judges objects."""
        return bool(self._configured.policies or self._configured.validating)

    async def _judge(self, attributes: Attributes) -> None:
        operation = attributes.operation
        with self._counts.step("validate", operation):
            if self._configured.policies:
                with self._counts.plugin("ValidatingAdmissionPolicy", "validate", operation):
                    await self._evaluators.policies.validate(self._configured.policies, attributes)
            if self._configured.validating:
                with self._counts.plugin("ValidatingAdmissionWebhook", "validate", operation):
                    await self._evaluators.webhooks.validate(self._configured.validating, attributes)

    # --- create

    async def change_new(self, call: Call, obj: Obj, built_in: BuiltIn) -> Obj:
        """A new object as it is left by whoever changes it. They see it without what the server adds."""
        if not self._changes:
            return obj
        before = obj["metadata"]
        hidden = {name: before[name] for name in _SYSTEM if name in before}
        visible = {name: value for name, value in before.items() if name not in hidden}
        shown = json_form({**obj, "metadata": visible}, call.resource.kind)
        attributes = Attributes(self._authorizer, call, "CREATE", str(before.get("name") or ""), shown)

        async def complete(changed: Obj) -> None:
            is_unread = attributes.obj is attributes.unread and node_of(call.request.user) is None
            if is_unread or nothing_new(call, shown, changed):
                return
            changed["metadata"] = {**hidden, **changed["metadata"]}
            await built_in(changed)
            changed["metadata"] = {n: v for n, v in changed["metadata"].items() if n not in hidden}

        changed = await self._change(attributes, complete)
        if changed is None or changed is shown:
            return obj
        changed["metadata"] = {**(changed.get("metadata") or {}), **hidden}
        return _own(changed)

    async def judge_new(self, call: Call, obj: Obj, named: str) -> None:
        """Ask about a new object that is complete and valid, by the name that the client gave it, or one made up."""
        if not self._judges:
            return
        shown = json_form(obj, call.resource.kind)  # what was sent empty is told by validation alone
        await self._judge(Attributes(self._authorizer, call, "CREATE", named or shown["metadata"]["name"], shown))

    # --- update

    async def change_update(
        self, call: Call, wanted: Obj, live: Obj, owned: Owned | None, built_in: BuiltIn | None = None
    ) -> Obj | None:
        """Return the wanted object after mutation; None if nothing has changed it.

        Who holds which field is written down before (`owned`): what is changed here belongs to nobody, as in 1.36.
        """
        if not self._changes:
            return None
        kind = call.resource.kind
        given = {**wanted, "apiVersion": kind.api_version, "kind": kind.kind}
        complete = json_form(apply_defaults(given, kind, call.objects.gates, call.now), kind)
        shown = _own(complete if owned is None else owned(complete))
        if built_in is not None:
            await built_in(shown)
        attributes = Attributes(self._authorizer, call, "UPDATE", call.name, shown, live)
        changed = await self._change(attributes, built_in)
        assert changed is not None
        return None if changed is shown or changed == shown else _with_owners(changed, shown)

    async def judge_update(self, call: Call, new: Obj, live: Obj) -> None:
        """Ask about an update that is complete and valid."""
        if not self._judges:
            return
        await self._judge(Attributes(self._authorizer, call, "UPDATE", call.name, new, live))

    # --- delete, and what is sent to subresources

    async def about_deletion(self, call: Call, old: Obj, options: Mapping[str, Any]) -> None:
        """Ask whether an object may be deleted."""
        attributes = Attributes(
            self._authorizer, call, "DELETE", call.name, None, old, options_of(call, "DELETE", options)
        )
        await self._change(attributes)
        await self._judge(attributes)

    async def about_subresource(self, call: Call, body: Obj) -> Obj:
        """Ask about what is posted to a subresource (Binding, Eviction); the body to go on with."""
        body.setdefault("metadata", {})
        attributes = Attributes(self._authorizer, call, "CREATE", call.name, body)
        changed = await self._change(attributes)
        await self._judge(attributes)
        return changed if changed is not None else body

    async def change_token(self, call: Call, request: Obj) -> Obj:
        """A TokenRequest as it was posted, after those who change it."""
        changed = await self._change(Attributes(self._authorizer, call, "CREATE", call.name, request))
        return changed if changed is not None else request

    async def judge_token(self, call: Call, request: Obj) -> None:
        """Ask those who judge about a TokenRequest that is complete and valid."""
        await self._judge(Attributes(self._authorizer, call, "CREATE", call.name, request))

    async def about_connection(self, call: Call, options: Obj) -> Obj:
        """Ask about a connection to where an object runs; the options to go on with."""
        attributes = Attributes(self._authorizer, call, "CONNECT", call.name, options)
        changed = await self._change(attributes)
        await self._judge(attributes)
        return changed if changed is not None else options

    async def change_scale(self, call: Call, scale: Obj, live: Obj) -> Obj:
        """A Scale as it was written, after those who change it."""
        spec = {name: value for name, value in (scale.get("spec") or {}).items() if value != 0}
        shown = {**scale, "spec": spec, "status": {"replicas": 0, **(scale.get("status") or {})}}
        changed = await self._change(Attributes(self._authorizer, call, "UPDATE", call.name, shown, live))
        return changed if changed is not None else scale

    async def judge_scale(self, call: Call, scale: Obj, live: Obj) -> None:
        """Ask those who judge about the Scale that comes of it."""
        spec = {name: value for name, value in scale["spec"].items() if value != 0}
        await self._judge(Attributes(self._authorizer, call, "UPDATE", call.name, {**scale, "spec": spec}, live))


def _with_owners(changed: Obj, before: Obj) -> Obj:
    """The changed object; with the owners of before where what is said of them can not be read."""
    metadata: Obj = changed.get("metadata") or {}
    known = before["metadata"].get("managedFields")
    given = metadata.get("managedFields")
    if not given or given == known or read(given):
        return changed
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**changed, "metadata": {**kept, "managedFields": known} if known else kept}


def _own(obj: Obj) -> Obj:
    """A copy whose top level, metadata and spec may be changed."""
    copied = {**obj, "metadata": dict(obj.get("metadata") or {})}
    if isinstance(obj.get("spec"), dict):
        copied["spec"] = dict(obj["spec"])
    return copied
