"""In-place resize of a pod: allocate what the spec asks for once it fits, then have its containers follow.

Source: KEP-1287; allocation and resize actions of the kubelet, as behaviour. What a running container has is what the
agent gave it: older runtimes do not report it. After a restart of the agent the pod's status says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from haru.kube.errors import aggregate
from haru.kube.meta import Obj, get_condition
from haru.kube.pod_resize import DEFERRED, IN_PROGRESS, PENDING, event_message, resized, unheld
from haru.kube.quantity import parse_quantity
from haru.kube.validation.common import same
from haru.node.agent.context import Context
from haru.node.cgroups.amounts import Amounts, pod_amounts
from haru.node.cgroups.memory_qos import pod_values
from haru.node.cgroups.tree import CgroupError
from haru.node.cri.errors import CriError
from haru.node.podworker.config import resources_message
from haru.node.podworker.observed import SeenContainer, SeenPod
from haru.node.podworker.plan import Kill, container_specs
from haru.node.podworker.pod_level import level_status
from haru.node.podworker.sandboxes import Sandboxes
from haru.node.status.container_status import INIT, MAIN, by_name

_NONE: Final[Obj] = {"requests": {}, "limits": {}}


class ResizeCondition(NamedTuple):
    """A condition about a resize that is true."""

    type: str
    reason: str = ""
    message: str = ""


class _Due(NamedTuple):
    """A running container that does not have what it was allocated."""

    container: Mapping[str, Any]
    seen: SeenContainer
    had: Obj


class PodResizer:
    """Resizes one pod on its node."""

    def __init__(self, context: Context, sandboxes: Sandboxes) -> None:
        self._context, self._sandboxes = context, sandboxes
        self._actuated: dict[str, tuple[str, Obj]] = {}
        """By container: the id of its last start, and the resources that this was given."""
        self._group: Amounts | None = None
        """What the pod's control group was given; None until this agent has looked at it."""
        self._inherited: Obj | None = None
        """The limits of the pod as a whole that its containers were given; None until this agent has looked at it."""
        self._pending: ResizeCondition | None = None
        self._deferred_generation: int | None = None
        self._in_progress: ResizeCondition | None = None
        self._has_begun = False
        """It was told that a resize has begun, and not yet that it is over."""

    @property
    def conditions(self) -> list[ResizeCondition]:
        """The conditions that hold now; each is tried again."""
        return [one for one in (self._pending, self._in_progress) if one is not None]

    def allocated(self, pod: Obj) -> Obj:
        """The pod with what it was allocated in its spec."""
        return self._context.allocations.allocated(pod)

    def allocate(self, pod: Obj) -> Obj:
        """Allocate what the spec asks for, if the node has room for it; the pod with what it is allocated then."""
        before = self.allocated(pod)
        if before is pod:
            self._pending = None
            self._context.allocations.allocate(pod)
            return pod
        self._pending = self._refusal(pod)
        if self._pending is not None:
            return before
        self._context.allocations.allocate(pod)
        self._has_begun = True
        self._tell(pod, "ResizeStarted", event_message(pod, "started"))
        return pod

    def _refusal(self, pod: Obj) -> ResizeCondition | None:
        problem = self._context.admission(unheld(pod))
        if problem is None:
            return None
        found = ResizeCondition(PENDING, DEFERRED, problem[1])
        generation = pod["metadata"].get("generation")
        if self._pending is None or generation != self._deferred_generation:
            self._tell(pod, "ResizeDeferred", event_message(pod, *problem), warning=True)
        self._deferred_generation = generation
        return found

    async def actuate(self, pod: Obj, seen: SeenPod) -> list[Kill]:
        """Give running containers what the pod was allocated; those to be killed, where a restart has to do it."""
        due = [one for one in self._running(pod, seen) if self._is_due(pod, one)]
        try:
            if not due:
                await self._check_usage(pod, seen, ())
                await self._settle(pod)
                return []
            self._in_progress = self._in_progress or ResizeCondition(IN_PROGRESS)
            restarts = [one for one in due if _needs_restart(one)]
            await self._update(pod, seen, [one for one in due if one not in restarts])
        except (CriError, CgroupError, OSError) as error:
            text = error.details if isinstance(error, CriError) else str(error)
            failed = ResizeCondition(IN_PROGRESS, "Error", text)
            if failed != self._in_progress:
                self._tell(pod, "ResizeError", event_message(pod, "error", text), warning=True)
            self._in_progress = failed
            return []
        if not restarts:
            await self._settle(pod)
        texts = ((one, f"Container {one.container['name']} resize requires restart") for one in restarts)
        return [Kill(one.seen.id, one.container["name"], text, again=True) for one, text in texts]

    def started(self, id_: str, container: Mapping[str, Any]) -> None:
        """A container was started with these resources."""
        self._actuated[container["name"]] = id_, _resources(container)

    def reported(self, pod: Obj, seen: SeenPod) -> dict[str, Obj]:
        """By container: the part of its status that says what it was allocated and what it has."""
        found = {}
        for container in container_specs(self.allocated(pod)):
            newest = seen.newest(container["name"])
            if newest is not None:
                has = self._had(pod, newest, container) if newest.runs else _resources(container)
                requests = _resources(container).get("requests")
                found[container["name"]] = {**({"allocatedResources": requests} if requests else {}), "resources": has}
        return found

    def level(self, pod: Obj) -> Obj:
        """The part of the pod's status that says what it was allocated, and has, as a whole."""
        allocated = self.allocated(pod)
        is_actuated = self._group in (None, pod_amounts(allocated))
        tells_unlimited = self._context.cgroups.hierarchies.mode != "unified"
        return level_status(allocated, is_actuated=is_actuated, tells_unlimited=tells_unlimited)

    def _running(self, pod: Obj, seen: SeenPod) -> list[_Due]:
        running = ((one, seen.newest(one["name"])) for one in _containers(pod))
        return [_Due(one, last, self._had(pod, last, one)) for one, last in running if last is not None and last.runs]

    def _had(self, pod: Obj, seen: SeenContainer, container: Mapping[str, Any]) -> Obj:
        id_, known = self._actuated.get(seen.name, ("", {}))
        if id_ != seen.id:
            status = by_name(pod, MAIN, INIT).get(seen.name, {})
            is_same = str(status.get("containerID", "")).endswith(f"//{seen.id}")
            known = status["resources"] if is_same and status.get("resources") is not None else _resources(container)
            self._actuated[seen.name] = seen.id, known
        return known

    # -- carrying out -------------------------------------------------------------------------------------------------

    async def _update(self, pod: Obj, seen: SeenPod, due: Sequence[_Due]) -> None:
        """Raise the pod's group first, then change the containers, those that shrink first."""
        await self._check_usage(pod, seen, due)
        held = {one.seen.name: one.had for one in self._running(pod, seen)}
        await self._apply_group(pod, _larger(pod_amounts(resized(pod, held)), pod_amounts(pod)))
        for one in sorted(due, key=_grows):
            amounts = replace(self._context.amounts(pod, one.container), huge_pages={})
            message = resources_message(amounts)
            assert message is not None
            await self._context.runtime.update_container_resources(one.seen.id, message)
            self._actuated[one.seen.name] = one.seen.id, _resources(one.container)

    def _is_due(self, pod: Obj, one: _Due) -> bool:
        """Whether a container does not have what it was allocated, or was given by the pod's limits."""
        own = _resources(one.container)
        if not _alike(one.had, own):
            return True
        before, now = self._inherited, _limits(pod["spec"])
        changed = [] if before is None else [name for name in before.keys() | now if before.get(name) != now.get(name)]
        return any(name not in (own.get("limits") or {}) for name in changed)

    async def _settle(self, pod: Obj) -> None:
        """All containers have what the pod was allocated: so has its group, and the resize is over."""
        self._inherited = _limits(pod["spec"])
        if self._group is None and get_condition(pod, IN_PROGRESS) is None and self._in_progress is None:
            self._group = pod_amounts(pod)
        await self._apply_group(pod, pod_amounts(pod))
        if self._has_begun or self._in_progress is not None or get_condition(pod, IN_PROGRESS) is not None:
            self._in_progress, self._has_begun = None, False
            self._tell(pod, "ResizeCompleted", event_message(pod, "completed"))

    async def _apply_group(self, pod: Obj, amounts: Amounts) -> None:
        tree = self._context.cgroups.tree
        if tree is not None and amounts != self._group:
            values = pod_values(self._context.cgroups.memory_qos, pod)
            await asyncio.to_thread(tree.apply, self._sandboxes.group(pod), values, amounts)
        self._group = amounts

    async def _check_usage(self, pod: Obj, seen: SeenPod, due: Sequence[_Due]) -> None:
        """Raise OSError where a memory limit would fall below what is used: the kernel would kill for it."""
        now, before = {"limits": _limits(pod["spec"])}, {"limits": self._inherited or {}}
        lower = {
            one.seen.id: (one.container["name"], limit)
            for one in due
            if (limit := _memory_limit(_resources(one.container)) or _memory_limit(now))
            and not 0 < (_memory_limit(one.had) or _memory_limit(before)) <= limit
        }
        whole = pod_amounts(pod).memory_limit
        pod_shrinks = self._group is not None and whole > 0 and not 0 < self._group.memory_limit <= whole
        if not lower and not pod_shrinks:
            return
        used = {
            one.attributes.id: one.memory.usage_bytes.value for one in await self._context.runtime.container_stats()
        }
        problems = []
        total = sum(used.get(one.seen.id, 0) for one in self._running(pod, seen))
        if pod_shrinks and total >= whole:
            problems.append(f"attempting to set pod memory limit ({whole}) below current usage ({total})")
        problems += [
            f'attempting to set container "{name}" memory limit ({limit}) below current usage ({used[id_]})'
            for id_, (name, limit) in lower.items()
            if used.get(id_, 0) >= limit
        ]
        if problems:
            raise OSError(f"cannot decrease memory limits: {aggregate(problems)}")

    def _tell(self, pod: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        self._context.recorder.event(pod, "Warning" if warning else "Normal", reason, message)


def _containers(pod: Obj) -> list[Obj]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _resources(container: Mapping[str, Any]) -> Obj:
    found: Obj = container.get("resources") or {}
    return found


def _limits(spec: Mapping[str, Any]) -> Obj:
    found: Obj = (spec.get("resources") or {}).get("limits") or {}
    return found


def _alike(one: Obj, other: Obj) -> bool:
    return same({**_NONE, **one}, {**_NONE, **other})


def _needs_restart(due: _Due) -> bool:
    wanted = _resources(due.container)
    for policy in due.container.get("resizePolicy") or ():
        name = policy.get("resourceName")
        changed = any(
            not same((due.had.get(kind) or {}).get(name), (wanted.get(kind) or {}).get(name)) for kind in _NONE
        )
        if changed and policy.get("restartPolicy") == "RestartContainer":
            return True
    return False


def _memory_limit(resources: Obj) -> int:
    text = (resources.get("limits") or {}).get("memory")
    return parse_quantity(text).value() if text is not None else 0


def _grows(due: _Due) -> bool:
    return _memory_limit(_resources(due.container)) > _memory_limit(due.had)


def _larger(one: Amounts, other: Amounts) -> Amounts:
    """What has room for both; 0 is no limit."""

    def limit(first: int, second: int) -> int:
        return max(first, second) if first and second else 0

    return replace(
        other,
        cpu_shares=max(one.cpu_shares, other.cpu_shares),
        cpu_quota=limit(one.cpu_quota, other.cpu_quota),
        memory_limit=limit(one.memory_limit, other.memory_limit),
    )
