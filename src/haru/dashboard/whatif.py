"""What a change would do, for a page: one question at a time, a few may wait, equal ones are answered once.

`haru.whatif` needs the published slices as they are written; the watched view has them in the engine's form alone, so
that they are read from the API server for a question, and kept for a moment.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from cachetools import TTLCache

from haru.client.api import ApiClient
from haru.cluster_view import ClusterView
from haru.engine import Features, Options, Snapshot
from haru.engine.dra import DeviceId, Taint
from haru.engine.framework import PreemptionOptions, SchedulerGates
from haru.explain.tainting import TaintTextError, parse_taint
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.whatif import (
    AddNodes,
    Apply,
    Change,
    ChangeError,
    Comparison,
    Cordon,
    Inquiry,
    Objects,
    TaintDevice,
    TaintNode,
    try_out,
)

SECONDS = 30.0
MOST_WAITING = 8
MOST_NODES = 1000
_KEPT_SECONDS = 30.0
_SLICES = known_kind("resource.k8s.io/v1", "ResourceSlice")
_SCHEDULER = "default-scheduler"
Slices = Callable[[], Awaitable[Sequence[Obj]]]


class NotAnswered(Exception):
    """There is no answer, for a reason that the text says."""


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A change as the address of the page says it."""

    change: str
    node: str = ""
    device: str = ""
    taint: str = ""
    profile: str = ""
    count: str = ""
    group: str = ""

    @staticmethod
    def of(query: Mapping[str, str]) -> AskedChange:
        """Read it from a query."""
        names = ("change", "node", "device", "taint", "profile", "count", "group")
        return AskedChange(*(query.get(name, "").strip() for name in names))

    def resolved(self, snapshot: Snapshot) -> Change:
        """Return the change. Raises NotAnswered for what makes none."""
        match self.change:
            case "cordon":
                return Cordon(self._node(snapshot))
            case "drain":
                return TaintNode(self._node(snapshot), _taint("haru.dev/drain:NoExecute"))
            case "taint":
                return TaintNode(self._node(snapshot), _taint(self.taint))
            case "taint-device":
                driver, _, rest = self.device.partition("/")
                pool, _, name = rest.rpartition("/")
                if f"{driver}/{pool}" not in snapshot.devices.pools:
                    raise NotAnswered(f'there is no device "{self.device}"')
                return TaintDevice(DeviceId(driver, pool, name), _taint(self.taint))
            case "add-nodes":
                return self._nodes()
            case "min-count":
                return self._min_count(snapshot)
        raise NotAnswered("say what changes: cordon, drain, taint, taint-device, add-nodes or min-count")

    def _node(self, snapshot: Snapshot) -> str:
        if self.node not in snapshot.nodes:
            raise NotAnswered(f'there is no node "{self.node}"')
        return self.node

    def _nodes(self) -> AddNodes:
        from haru.drivers.simulated.profiles import load_profile, profile_names

        if self.profile not in profile_names():
            raise NotAnswered(f'there is no profile "{self.profile}"')
        return AddNodes(load_profile(self.profile), _number(self.count or "1", MOST_NODES))

    def _min_count(self, snapshot: Snapshot) -> Apply:
        group = snapshot.pod_groups.get(self.group)
        if group is None:
            raise NotAnswered(f'there is no PodGroup "{self.group}"')
        patch = {"metadata": {}, "spec": {"schedulingPolicy": {"gang": {"minCount": _number(self.count, 100_000)}}}}
        return Apply(group, patch)


def _number(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise NotAnswered(f'"{text}": write a number from 1 to {most}')
    return int(text)


def _taint(text: str) -> Taint:
    try:
        return parse_taint(text)
    except TaintTextError as error:
        raise NotAnswered(str(error)) from error


def slices_of(client: ApiClient) -> Slices:
    """Return what reads the published slices of a cluster."""

    async def read() -> Sequence[Obj]:
        found = await client.list(client.version.kind_for(_SLICES))
        return [{"apiVersion": found["apiVersion"], "kind": "ResourceSlice", **item} for item in found["items"]]

    return read


async def _no_slices() -> Sequence[Obj]:
    return ()


class WhatIf:
    """Answers what changes would do, on a thread of its own."""

    def __init__(self, slices: Slices | None = None) -> None:
        self._slices = slices or _no_slices
        self._worker = ThreadPoolExecutor(1, "dashboard what-if")
        self._asked: TTLCache[Hashable, asyncio.Future[Comparison]] = TTLCache(64, _KEPT_SECONDS, time.monotonic)
        self._waiting = 0

    def stop(self) -> None:
        """End; nobody waits for what the thread computes."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def answer(self, view: ClusterView, asked: AskedChange, visibility: Hashable) -> Comparison:
        """Return what a change comes to in a view of the cluster. Raises NotAnswered."""
        change, key = asked.resolved(view.snapshot), (visibility, asked)
        found = self._asked.get(key)
        if found is None:
            if self._waiting >= MOST_WAITING:
                raise NotAnswered("too many questions wait; ask again in a moment")
            found = self._asked[key] = asyncio.ensure_future(self._computed(view, change))
            found.add_done_callback(lambda done: self._drop_failed(key, done))
        try:
            async with asyncio.timeout(SECONDS):
                return await asyncio.shield(found)
        except TimeoutError:
            raise NotAnswered(f"it takes more than {SECONDS:.0f} s: load the page again in a moment") from None

    def _drop_failed(self, key: Hashable, done: asyncio.Future[Comparison]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._asked.pop(key, None)

    async def _computed(self, view: ClusterView, change: Change) -> Comparison:
        self._waiting += 1
        try:
            slices = await self._slices()
            work = partial(_compare, view.snapshot, slices, change, view.refused)
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except (StatusError, OSError) as error:
            raise NotAnswered(f"the devices could not be read: {error}") from error
        finally:
            self._waiting -= 1


def _compare(snapshot: Snapshot, slices: Sequence[Obj], change: Change, unread: Sequence[str]) -> Comparison:
    enabled = FeatureGates.accelerator_defaults().all()
    numbers, now = itertools.count(1), datetime.now(UTC)
    options = Options(
        features=Features.from_gates(enabled),
        new_share_id=lambda: f"00000000-0000-0000-0000-{next(numbers):012x}",
        gates=SchedulerGates.from_gates(enabled),
        preemption=PreemptionOptions(preempt_for_pods=True, preempt_for_groups=enabled["WorkloadAwarePreemption"]),
        now=now.timestamp(),
    )
    objects = [
        *({**info.spec.obj, "kind": "Node"} for info in snapshot.nodes.values() if info.present),
        *(pod.obj for pod in snapshot.pods.values()),
        *snapshot.claims.values(),
        *({**obj, "kind": kind} for kind, found in snapshot.others.items() for obj in found.values()),
        *slices,
    ]
    try:
        return try_out(Objects(objects), [change], options, _SCHEDULER, now, Inquiry(enabled, unread))
    except ChangeError as error:
        raise NotAnswered(str(error)) from error
