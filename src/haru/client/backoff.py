"""Pauses between attempts, and the read-change-write loop that survives other writers."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

from haru.client.api import ApiClient, Obj
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind

_ATTEMPTS = 8


class Backoff:
    """Pauses that grow from `base` to `cap`, each lengthened by up to `jitter` of itself so that clients spread out."""

    def __init__(
        self, base: float = 0.8, cap: float = 30.0, factor: float = 2.0, jitter: float = 1.0, rng: Any = random
    ) -> None:
        self._base, self._cap, self._factor, self._jitter = base, cap, factor, jitter
        self._rng = rng
        self._next = base

    def next(self) -> float:
        """The next pause in seconds."""
        pause = self._next
        self._next = min(self._cap, self._next * self._factor)
        return float(min(self._cap, pause * (1 + self._jitter * self._rng.random())))

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._next = self._base


async def update_with_retry(
    client: ApiClient,
    kind: Kind,
    name: str,
    namespace: str,
    mutate: Callable[[Obj], Obj | None],
    subresource: str = "",
) -> Obj:
    """Read, let `mutate` change the copy it is given, write; again when somebody else wrote in between.

    `mutate` answers the object to write, or None when there is nothing to change (then the object read is returned).
    """
    pauses = Backoff(base=0.01, cap=0.5)
    for attempt in range(1, _ATTEMPTS + 1):
        live = await client.get(kind, name, namespace)
        changed = mutate(copy.deepcopy(live))
        if changed is None:
            return live
        try:
            return await client.update(kind, changed, subresource)
        except StatusError as error:
            if error.reason != "Conflict" or attempt == _ATTEMPTS:
                raise
        await asyncio.sleep(pauses.next())
    raise AssertionError("unreachable")
