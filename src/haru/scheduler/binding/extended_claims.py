"""Creating the claims that stand behind extended resources. An answer that did not come decides nothing.

A creation that was not answered may have happened, or may still: the claim is looked for before it is created again.
Source: KEP-5004 (PreBind of the DynamicResources plugin).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from haru.client.api import ApiClient
from haru.engine.state import MemberDecision
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.scheduler.binding.claim_updates import BindingError
from haru.scheduler.binding.extended_claim_writes import body_of, claims_to_create, is_same_claim
from haru.scheduler.binding.write_retry import ATTEMPTS, CLAIMS, delay, is_transient
from haru.scheduler.binding.write_slots import WriteSlots


class ClaimMaker:
    """Creates claims, a few at a time; `count` hears of each whether it came to be: success or failure."""

    def __init__(
        self,
        client: ApiClient,
        slots: WriteSlots,
        sleep: Callable[[float], Awaitable[None]],
        learn: Callable[[Kind, Obj], None],
        count: Callable[[str], None],
    ) -> None:
        self._client = client
        self._slots = slots
        self._sleep = sleep
        self._learn = learn
        self._count = count

    async def create(self, members: Sequence[MemberDecision], insist: Callable[[], bool]) -> dict[str, Obj | Exception]:
        """The claims of these members that did not exist, by stand-in path, or what went wrong instead."""
        wanted = claims_to_create(members)
        works = [self._create(claim, insist) for _, claim in wanted.values()]
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        answers: dict[str, Obj | Exception] = {}
        for path, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
            answers[path] = outcome
            self._count("failure" if isinstance(outcome, Exception) else "success")
        return answers

    async def _create(self, claim: Obj, insist: Callable[[], bool]) -> Obj:
        attempt, in_doubt = 0, False
        while True:
            try:
                async with self._slots:
                    made = await self._find(claim) if in_doubt else None
                    made = made or await self._client.create(CLAIMS, body_of(claim))
                self._learn(CLAIMS, made)
                return made
            except (StatusError, OSError) as error:
                conflict = isinstance(error, StatusError) and error.code == 409
                if not conflict and not is_transient(error):
                    raise
                attempt += 1
                if attempt >= ATTEMPTS and not insist():
                    raise BindingError(f"claim {claim['metadata']['generateName']}: {error}") from error
            in_doubt = in_doubt or not conflict
            await self._sleep(delay(attempt))

    async def _find(self, claim: Obj) -> Obj | None:
        """What came of a creation that was not answered."""
        listed = (await self._client.list(CLAIMS, claim["metadata"]["namespace"]))["items"]
        kind = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind}
        return next(({**kind, **found} for found in listed if is_same_claim(found, claim)), None)
