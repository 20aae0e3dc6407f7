"""A bounded queue of questions for one thread: the engine's caches allow one, and one answer may take long.

Work that returns a generator is done in steps: after each the other questions come first, and once nobody waits for it
any more it is left.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = T | Generator[object, None, T]


class Busy(Exception):
    """As many questions wait as may wait."""


@dataclass(eq=False, slots=True)
class _Question(Generic[T]):
    key: Hashable
    user: str
    work: Callable[[], Work[T]]
    answer: asyncio.Future[T]
    waiting: int = 0
    begun: bool = field(default=False)
    steps: Generator[object, None, T] | None = None

    def step(self) -> Callable[[], None] | None:
        """Do the next step; what tells the answer, after the last."""
        if self.steps is None:
            found = self.work()
            if not isinstance(found, Generator):
                return partial(self.answer.set_result, found)
            self.steps = found
        try:
            next(self.steps)
        except StopIteration as ended:
            return partial(self.answer.set_result, ended.value)
        return None


class AnswerQueue(Generic[T]):
    """Answers questions in their order; equal ones that wait at the same time are answered once.

    At most `most` of them wait or are being answered, `per_user` of them first asked by one user.
    """

    def __init__(self, most: int, per_user: int) -> None:
        self._most, self._per_user = most, per_user
        self._worker = ThreadPoolExecutor(1, "explanations")
        self._questions: dict[Hashable, _Question[T]] = {}
        self._order: deque[_Question[T]] = deque()
        self._users: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._questions)

    async def answer(self, user: str, key: Hashable, work: Callable[[], Work[T]], seconds: float) -> T:
        """Return what `work` returns in the thread; `key` says which questions are equal.

        Raises Busy, TimeoutError after so many seconds, and what `work` raises.
        """
        question = self._questions.get(key) or self._added(user, key, work)
        question.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(question.answer)
        finally:
            question.waiting -= 1
            if not question.waiting and not question.begun:
                # Nobody is interested any more.
                self._order.remove(question)
                self._forget(question)

    def stop(self) -> None:
        """End; nobody waits for what the thread computes."""
        if self._task is not None:
            self._task.cancel()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _added(self, user: str, key: Hashable, work: Callable[[], Work[T]]) -> _Question[T]:
        if len(self._questions) >= self._most or self._users[user] >= self._per_user:
            raise Busy
        question = _Question(key, user, work, asyncio.get_running_loop().create_future())
        self._questions[key] = question
        self._order.append(question)
        self._users[user] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="explanations")
        return question

    def _forget(self, question: _Question[T]) -> None:
        self._questions.pop(question.key, None)
        self._users[question.user] -= 1
        if not self._users[question.user]:
            del self._users[question.user]

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._order:
            question = self._order.popleft()
            question.begun = True
            tell = None
            try:
                if question.waiting:
                    tell = await loop.run_in_executor(self._worker, question.step)
            except asyncio.CancelledError:
                question.answer.cancel()
                raise
            except Exception as error:
                question.answer.set_exception(error)
                question.answer.exception()  # everybody may have gone
            else:
                if tell is not None:
                    tell()
                elif question.waiting:
                    self._order.append(question)
                    continue
            self._forget(question)
            # Frames that an error knows must not hold it: this one, that of the step, and those of who asked.
            del question.answer, question
