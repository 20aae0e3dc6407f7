"""The webhooks and policies in the store, compiled, from the write on that stored them.

Cursors in the store's history say before each write whether a configuration changed, so one counts from the moment its
write was acknowledged, on every replica. What type checking finds in a policy is written to its status here, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from haru.apiserver.admission.dynamic.chain import Chain, Configured, Evaluators
from haru.apiserver.admission.dynamic.match_criteria import GROUP, EquivalentResources
from haru.apiserver.admission.dynamic.metrics import AdmissionMetrics
from haru.apiserver.admission.dynamic.mutating_policies import MutatingPolicy, Mutators
from haru.apiserver.admission.dynamic.policies import Binding, Policy
from haru.apiserver.admission.dynamic.type_checking import expression_warnings
from haru.apiserver.admission.dynamic.validating_policies import Policies, ValidatingPolicy
from haru.apiserver.admission.dynamic.webhooks import Webhook, Webhooks
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.encoding.objects import decode
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.store_reflector import StoreReflector
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Response
from haru.apiserver.webhook_client import WebhookClient
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.storage import StoreError

MUTATING = "mutatingwebhookconfigurations"
VALIDATING = "validatingwebhookconfigurations"
POLICIES = "validatingadmissionpolicies"
BINDINGS = "validatingadmissionpolicybindings"
MUTATORS = "mutatingadmissionpolicies"
MUTATOR_BINDINGS = "mutatingadmissionpolicybindings"
_PLURALS = (MUTATING, VALIDATING, POLICIES, BINDINGS, MUTATORS, MUTATOR_BINDINGS)
Handler = Callable[[Call], Awaitable[Response]]
_READS = frozenset(("get", "list", "watch"))


_LOG = logging.getLogger("haru.apiserver")
T = TypeVar("T")
P = TypeVar("P", bound=Policy)


def _made(raw: Obj, make: Callable[[], T]) -> list[T]:
    """What is made of a stored configuration; nothing of one that was stored before anybody judged them."""
    try:
        return [make()]
    except (KeyError, TypeError, ValueError) as error:
        _LOG.error("%s %s is not used, it is malformed: %r", raw.get("kind"), raw["metadata"]["name"], error)
        return []


class DynamicPlugins:
    """The webhooks and policies of one server."""

    def __init__(self, loopback: Loopback, authorizer: Authorizer) -> None:
        self._loopback = loopback
        objects = loopback.objects
        self._followed = StoreReflector(objects, GROUP, _PLURALS)
        self._lock = asyncio.Lock()
        self.caller = WebhookClient(objects)
        equivalents = EquivalentResources(objects)
        self.counts = AdmissionMetrics()
        self._evaluators = Evaluators(
            Webhooks(equivalents, self.caller, self.counts),
            Policies(equivalents, self.counts),
            Mutators(equivalents, self.counts),
            self.counts,
            authorizer,
        )
        self._chain: Chain | None = None

    async def start(self) -> None:
        """Read the configurations, and follow them from there."""
        await self._followed.start()
        self._compile()

    async def stop(self) -> None:
        """Close connections to webhooks."""
        await self.caller.stop()

    async def handle(self, call: Call, handler: Handler) -> Response:
        """Carry a call out; writes with those who are to be asked, as the newest configurations have it."""
        if call.verb in _READS:
            return await handler(call)
        await self.refresh()
        if self._chain is not None:
            call.chain = self._chain.for_call(call)
        response = await handler(call)
        if call.resource.kind.group == GROUP and call.resource.kind.plural == POLICIES and not call.dry_run:
            await self._settle()
        return response

    async def connect(self, call: Call, options: Obj) -> Obj:
        """Ask those whom the newest configurations have about a connection; the options to go on with."""
        await self.refresh()
        chain = self._chain.for_call(call) if self._chain is not None else None
        return options if chain is None else await chain.about_connection(call, options)

    async def refresh(self) -> None:
        """Take in what has changed."""
        if await self._followed.take_in():
            self._compile()

    async def _settle(self) -> None:
        """After a write of a policy: say in its status what type checking makes of it.

        In 1.36 a controller does so: where none run, nobody does.
        """
        await self.refresh()
        if not await self._loopback.objects.has_controllers():
            return
        async with self._lock:
            for record in list(self._followed.of(POLICIES)):
                await self._check(decode(record))

    def _compile(self) -> None:
        mutating, validating = self._hooks(MUTATING), self._hooks(VALIDATING)
        policies = self._bound(POLICIES, BINDINGS, ValidatingPolicy)
        enabled = self._loopback.objects.gates.enabled("MutatingAdmissionPolicy")
        mutators = self._bound(MUTATORS, MUTATOR_BINDINGS, MutatingPolicy) if enabled else []
        configured = Configured(mutating, validating, policies, mutators)
        self._chain = Chain(self._evaluators, configured) if configured else None

    def _bound(self, plural: str, of_bindings: str, make: Callable[[Obj, list[Binding]], P]) -> list[P]:
        """The policies that have bindings, in the order of their names."""
        bindings: dict[str, list[Binding]] = {}
        for raw in self._objects(of_bindings):
            for binding in _made(raw, partial(Binding, raw)):
                bindings.setdefault(binding.policy, []).append(binding)
        found: list[P] = []
        for raw in self._objects(plural):
            bound = bindings.get(raw["metadata"]["name"])
            if bound:
                found += _made(raw, partial(make, raw, bound))
        return found

    def _objects(self, plural: str) -> list[Obj]:
        """The stored objects in the order of their names."""
        return [decode(record) for record in sorted(self._followed.of(plural), key=lambda record: record.key)]

    def _hooks(self, plural: str) -> list[Webhook]:
        """The webhooks in the order in which they are asked."""
        found: list[Webhook] = []
        for raw in self._objects(plural):
            name = str(raw["metadata"]["name"])
            for number, hook in enumerate(raw.get("webhooks") or ()):
                found += _made(raw, partial(Webhook, name, number, hook))
        return found

    async def _check(self, policy: Obj) -> None:
        """Write the status of a policy that has changed since it was checked last."""
        generation = int(policy["metadata"].get("generation") or 0)
        status = policy.get("status") or {}
        if int(status.get("observedGeneration") or 0) >= generation:
            return
        warnings = expression_warnings(policy, self._loopback.objects)
        wanted: Obj = {**status, "observedGeneration": generation, "typeChecking": {}}
        if warnings:
            wanted["typeChecking"] = {"expressionWarnings": warnings}

        async def make(live: Obj) -> Obj:
            return {**live, "status": wanted} if live["metadata"].get("generation") == generation else live

        try:
            await self._loopback.update(policy, make, "status")
        except (StatusError, StoreError) as error:
            # What the client wrote is stored; the next write of a policy tries again.
            _LOG.warning("the status of policy %s was not written: %s", policy["metadata"]["name"], error)
