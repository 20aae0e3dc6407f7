"""Work for all members of a decision at once, and stop once too few of them are left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from haru.engine.state import MemberDecision, PodKey
from haru.scheduler.binding.claim_updates import BindingError


async def for_each(
    members: Sequence[MemberDecision],
    work: Callable[[MemberDecision], Coroutine[Any, Any, None]],
    spare: int,
    too_few: str,
) -> dict[PodKey, Exception]:
    """Return what the work for members raised; after more than `spare` failures nobody is waited for: `too_few`."""
    tasks = {asyncio.ensure_future(work(member)): member.pod for member in members}
    failures: dict[PodKey, Exception] = {}
    left = set(tasks)
    try:
        while left and len(failures) <= spare:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if isinstance(error := task.exception(), Exception):
                    failures[tasks[task]] = error
                elif error is not None:
                    raise error
    finally:
        for task in left:
            task.cancel()
    return failures | {tasks[task]: BindingError(too_few) for task in left}
