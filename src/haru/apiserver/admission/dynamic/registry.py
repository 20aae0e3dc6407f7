"""The webhooks and policies in the store, compiled, from the write on that stored them.

Cursors in the store's history say before each write whether a configuration changed, so one counts from the moment its
write was acknowledged, on every replica. What type checking finds in a policy is written to its status here, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from haru.apiserver.admission.dynamic.chain import Chain, Configured, Evaluators
from haru.apiserver.admission.dynamic.match_criteria import GROUP
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
from haru.storage import Record, StoreError

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


def _webhooks(raw: Obj) -> list[Webhook]:
    name = str(raw["metadata"]["name"])
    hooks = enumerate(raw.get("webhooks") or ())
    return [hook for number, said in hooks for hook in _made(raw, partial(Webhook, name, number, said))]


def _bindings(raw: Obj) -> list[Binding]:
    return _made(raw, partial(Binding, raw))


class DynamicPlugins:
    """The webhooks and policies of one server."""

    def __init__(self, loopback: Loopback, authorizer: Authorizer) -> None:
        self._loopback = loopback
        objects = loopback.objects
        self._followed = StoreReflector(objects, GROUP, _PLURALS)
        self._lock = asyncio.Lock()
        self.caller = WebhookClient(objects)
        self.counts = AdmissionMetrics()
        self._evaluators = Evaluators(
            Webhooks(objects.served, self.caller, self.counts),
            Policies(objects.served, self.counts),
            Mutators(objects.served, self.counts),
            self.counts,
            authorizer,
        )
        self._chain: Chain | None = None
        self._made: dict[tuple[str | int, ...], list[Any]] = {}
        """What is in the chain, by the key and the revisions of what it was made of."""
        self._before: dict[tuple[str | int, ...], list[Any]] = {}
        self._checked: dict[str, int] = {}
        """The revisions of policies whose types were checked, by key."""

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
            policies, before = self._records(POLICIES), self._checked
            self._checked = {
                record.key: record.revision
                for record in policies
                if before.get(record.key) == record.revision or await self._check(decode(record))
            }

    def _compile(self) -> None:
        self._before, self._made = self._made, {}
        mutating, validating = self._hooks(MUTATING), self._hooks(VALIDATING)
        policies = self._bound(POLICIES, BINDINGS, ValidatingPolicy)
        enabled = self._loopback.objects.gates.enabled("MutatingAdmissionPolicy")
        mutators = self._bound(MUTATORS, MUTATOR_BINDINGS, MutatingPolicy) if enabled else []
        configured = Configured(mutating, validating, policies, mutators)
        self._chain = Chain(self._evaluators, configured) if configured else None
        self._before = {}

    def _bound(self, plural: str, of_bindings: str, make: Callable[[Obj, list[Binding]], P]) -> list[P]:
        """The policies that have bindings, in the order of their names."""
        bindings: dict[str, list[Binding]] = {}
        revisions: dict[str, list[int]] = {}
        for record in self._records(of_bindings):
            for binding in self._as_before((record.key, record.revision), record, _bindings):
                bindings.setdefault(binding.policy, []).append(binding)
                revisions.setdefault(binding.policy, []).append(record.revision)
        found: list[P] = []
        for record in self._records(plural):
            name = record.key.rpartition("/")[2]
            if bound := bindings.get(name):

                def made(raw: Obj, bound: list[Binding] = bound) -> list[P]:
                    return _made(raw, partial(make, raw, bound))

                found += self._as_before((record.key, record.revision, *revisions[name]), record, made)
        return found

    def _hooks(self, plural: str) -> list[Webhook]:
        """The webhooks in the order in which they are asked."""
        return [
            hook
            for record in self._records(plural)
            for hook in self._as_before((record.key, record.revision), record, _webhooks)
        ]

    def _records(self, plural: str) -> list[Record]:
        """What is stored, in the order of the names."""
        return sorted(self._followed.of(plural), key=lambda record: record.key)

    def _as_before(self, which: tuple[str | int, ...], record: Record, make: Callable[[Obj], list[T]]) -> list[T]:
        """What was made the last time of the same revisions, with what it has compiled meanwhile, or is made now."""
        made = self._before.get(which)
        if made is None:
            made = make(decode(record))
        self._made[which] = made
        return made

    async def _check(self, policy: Obj) -> bool:
        """Whether a policy has not changed since it was checked last; the status of another one is written."""
        generation = int(policy["metadata"].get("generation") or 0)
        status = policy.get("status") or {}
        if int(status.get("observedGeneration") or 0) >= generation:
            return True
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
        return False
