"""Explanations from the watched cluster, bounded in number and time, without the names that a user may not see."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from cachetools import TLRUCache, TTLCache

from haru.client.api import ApiClient
from haru.cluster_view import ClusterView, ClusterWatch
from haru.engine import Snapshot
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
from haru.errors import NotFoundError
from haru.event_loop import cancelled, in_background
from haru.explain import DeviceStory, Explanation, NodeStory, PendingList, SubjectKind, explain
from haru.explain.render import (
    named_namespaces,
    namespaces_in_list,
    namespaces_in_story,
    redacted,
    redacted_list,
    redacted_story,
)
from haru.explain_server.access import ExplainAccess
from haru.explain_server.options import Limits
from haru.explain_server.questions import Question, chosen_rows, list_of, story_of, waiting_namespaces
from haru.explain_server.queue import AnswerQueue, Busy
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.kube.pod_claims import FAILED_PREPARE, awaits_preparation
from haru.secure_serving.identity import User

_BEHIND_SECONDS = 0.5
"""So long the cache is waited for: a question as a whole is to take less than two seconds on a busy machine."""
_LOOK_AGAIN_SECONDS = 0.02
"""While work starts something changes all the time: to look at each change costs more than the answer."""
_PAUSES = 10
"""How many times what a search took has to pass before the next one."""
_EVENTS = known_kind("v1", "Event")
_KINDS = {kind.plural: kind for kind in (known_kind(*each) for each in (*WATCHED_KINDS, *HELD_BACK_BY))}
_log = logging.getLogger(__name__)


Answered = Explanation | NodeStory | DeviceStory | PendingList


class NotThere(Exception):
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Told:
    """An explanation of a snapshot; its remedies are those of `remedies`, which may be of an earlier one."""

    explanation: Explanation
    snapshot: Snapshot
    remedies: Told | None = None
    at: float = 0.0
    """When its own remedies were looked for."""
    cost: float = 0.0
    """How many seconds that took: what is dear is looked for more seldom."""

    def redacted(self, shown: Collection[str]) -> Explanation:
        """Return it without the names of other namespaces; each snapshot knows the names of its own time."""
        plain = redacted(self.explanation, self.snapshot, shown)
        if self.remedies is None:
            return plain
        earlier = self.remedies
        return replace(plain, remedies=redacted(earlier.explanation, earlier.snapshot, shown).remedies)


class Answers:
    """The answers of one server, from `watch`; `now` is the time that explanations go by."""

    def __init__(
        self,
        client: ApiClient,
        watch: ClusterWatch,
        access: ExplainAccess,
        limits: Limits,
        now: Callable[[], datetime],
        gates: Callable[[ApiClient], Mapping[str, bool]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._watch, self._access, self._limits, self._now = client, watch, access, limits, now
        self._gates = gates or (lambda _: FeatureGates.accelerator_defaults().all())
        self._monotonic = monotonic
        self._queue: AnswerQueue[Any] = AnswerQueue(limits.waiting, limits.waiting_per_user)
        self._kept: TLRUCache[Question, Told, float] = TLRUCache(limits.kept, self._expires, monotonic)
        self._computed: TTLCache[Hashable, Any] = TTLCache(limits.kept, limits.kept_seconds, monotonic)
        self._refreshing: set[asyncio.Task[None]] = set()
        # One thread, for the index of names is for one; not the queue's, where it would wait for the next question.
        self._redactor = ThreadPoolExecutor(1, "redaction")

    @property
    def waiting(self) -> int:
        """How many questions wait or are being answered."""
        return len(self._queue)

    def stop(self) -> None:
        """End; nobody waits for what is being computed."""
        for task in self._refreshing:
            task.cancel()
        self._queue.stop()
        self._redactor.shutdown(wait=False, cancel_futures=True)

    async def of(self, user: User, question: Question) -> Answered:
        """Return the answer as the user may read it.

        Raises NotThere, InputError, Busy, ReviewFailed, TimeoutError, and OSError where the cluster cannot be watched.
        """
        began = time.monotonic()
        seeing = asyncio.create_task(self._access.sees_all(user), name="review")
        try:
            async with asyncio.timeout(self._limits.seconds), self._watch.viewing():
                whole, named, redact = await self._whole(user, question)
                if await seeing:
                    return whole
                shown = {question.namespace, *await self._access.shown(user, named)}
                return await asyncio.get_running_loop().run_in_executor(self._redactor, redact, shown)
        except NotFoundError:
            raise NotThere from None
        finally:
            await cancelled(seeing)
            _log.debug("%s: %.0f ms", question, (time.monotonic() - began) * 1e3)

    async def _whole(
        self, user: User, question: Question
    ) -> tuple[Answered, Collection[str], Callable[[Collection[str]], Answered]]:
        """The answer with all names, the namespaces that it names, and what makes it one for whom some are shown."""
        if question.is_subject:
            subject = await self._catch_up(question)
            view = self._watch.view()
            view = replace(view, events=(*view.events, *await self._failed_preparations(question, view.snapshot)))
            told = await self._explained(user.name, question, question.found_in(view.snapshot) or subject, view)
            return told.explanation, named_namespaces(told.explanation), told.redacted
        view = self._watch.view()
        if question.is_place:
            story: NodeStory | DeviceStory = await self._compute(
                user, (question, view.version), partial(story_of, question, view)
            )
            return story, namespaces_in_story(story), partial(redacted_story, story, view.snapshot)
        namespaces: frozenset[str] | None = frozenset({question.namespace}) if question.namespace else None
        if namespaces is None and not await self._access.lists_all(user):
            key = "namespaces", question, view.version
            waiting: frozenset[str] = await self._compute(user, key, partial(waiting_namespaces, question, view))
            namespaces = await self._access.listed(user, waiting)
        # A row comes from the list that it stands in, which may just have been computed.
        asked = question.whole_list
        work = partial(list_of, asked, view, namespaces, format_time(self._now()), self._gates(self._client))
        listed: PendingList = await self._compute(user, (asked, view.version, namespaces), work)
        listed = chosen_rows(question, listed)
        return listed, namespaces_in_list(listed), partial(redacted_list, listed, view.snapshot)

    async def _compute(self, user: User, key: Hashable, work: Callable[[], Any]) -> Any:
        """Compute in the queue, or return what was computed for an equal question about the same state."""
        found = self._computed.get(key)
        if found is None:
            found = self._computed[key] = await self._queue.answer(user.name, key, work, self._limits.seconds)
        return found

    async def _catch_up(self, question: Question) -> tuple[SubjectKind, Obj] | None:
        """Wait until the cache has the object as the API server has it now: its user may just have written it.

        Return the object of the API server, which is explained where the cache is too far behind. Raises NotThere where
        the API server has none.
        """
        kind = _KINDS.get(question.resource)
        if kind is None:
            return None
        served = self._client.version.kind_for(kind)
        try:
            live = await self._client.get(served, question.name, question.namespace)
        except StatusError as error:
            # A PodGroup may be one of another project.
            if error.code == 404 and kind.kind != "PodGroup":
                raise NotThere from None
            return None
        version, found = self._watch.changes.version, question.found_in(self._watch.view().snapshot)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEHIND_SECONDS):
                while _older(found, live):
                    await self._watch.changes.newer_than(version)
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                    version, found = self._watch.changes.version, question.found_in(self._watch.view().snapshot)
        return question.kind, {"apiVersion": served.api_version, "kind": served.kind, **live}

    async def _failed_preparations(self, question: Question, snapshot: Snapshot) -> Sequence[Obj]:
        """Return the events that say why claims are not prepared. They are read where a pod may wait for that only."""
        path = f"{question.namespace}/{question.name}"
        if question.resource == "pods":
            pods = [pod for pod in (snapshot.pods.get(path),) if pod is not None]
        else:
            pods = [pod for pod in snapshot.pods.values() if pod.key.namespace == question.namespace]
        if not any(awaits_preparation(pod.obj) for pod in pods):
            return ()
        with contextlib.suppress(StatusError):
            found = await self._client.list(_EVENTS, question.namespace, field_selector=f"reason={FAILED_PREPARE}")
            return tuple({"apiVersion": "v1", "kind": "Event", **event} for event in found["items"])
        return ()

    async def _explained(
        self, user: str, question: Question, subject: tuple[SubjectKind, Obj] | None, view: ClusterView
    ) -> Told:
        if subject is None:
            raise NotThere
        snapshot = view.snapshot
        kept, now = self._kept.get(question), self._monotonic()
        if kept is not None and kept.snapshot is snapshot and now - kept.at <= self._limits.kept_seconds:
            return kept
        work = partial(self._told, question, view, *subject)
        # A snapshot is one state of the cluster: equal questions about it have one answer.
        key = question, view.version, kept is None
        told: Told = await self._queue.answer(user, key, partial(work, kept), self._limits.seconds)
        if told.remedies is None:
            self._kept[question] = told
        elif not self._refreshing and now - told.remedies.at > max(
            self._limits.refresh_seconds, _PAUSES * told.remedies.cost
        ):
            refreshing = self._refresh(question, work, key)
            task = asyncio.create_task(refreshing, name="refresh remedies", context=in_background())
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)
        return told

    async def _refresh(self, question: Question, work: Callable[[None], Told], key: Hashable) -> None:
        with contextlib.suppress(Busy, TimeoutError):
            told = await self._queue.answer("", ("refresh", key), partial(work, None), self._limits.seconds)
            self._kept[question] = told

    def _told(self, question: Question, view: ClusterView, kind: SubjectKind, obj: Obj, kept: Told | None) -> Told:
        """Explain; with what was kept the search for remedies is spared where nothing else has changed."""
        ask = partial(
            explain,
            view.snapshot,
            kind,
            obj,
            [event for event in view.events if event["metadata"].get("namespace") == question.namespace],
            format_time(self._now()),
            unread=view.refused,
            gates=self._gates(self._client),
            found={},
        )
        if not question.remedies:
            return Told(ask(remedies=False), view.snapshot, at=self._monotonic())
        if kept is not None:
            now = ask(remedies=False)
            if _without_remedies(now) == _without_remedies(kept.explanation):
                return Told(replace(now, remedies=kept.explanation.remedies), view.snapshot, kept)
        at = self._monotonic()
        found = ask(remedies=True)
        return Told(found, view.snapshot, at=at, cost=self._monotonic() - at)

    def _expires(self, question: Question, told: Told, now: float) -> float:
        return now + max(self._limits.remedies_seconds, 2 * _PAUSES * told.cost)


def _without_remedies(told: Explanation) -> Explanation:
    return replace(told, remedies=(), age_seconds=None)


def _older(found: tuple[SubjectKind, Obj] | None, live: Obj) -> bool:
    """Whether what is known is an earlier state than this one."""
    if found is None:
        return True
    known, now = (str(obj["metadata"].get("resourceVersion") or "") for obj in (found[1], live))
    return known.isdigit() and now.isdigit() and int(known) < int(now)
