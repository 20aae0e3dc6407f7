"""A container that was killed at its memory limit: twice as much, in the template of whoever makes its pod."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.explanation import Remedy
from haru.explain.remedies.commands import set_command
from haru.explain.remedies.new_place import new_place
from haru.explain.remedies.pod_changes import pod_changes, with_container
from haru.kube.meta import Obj

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")


def memory_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """Twice the limit, and whether the pod has a place with it. What it would use is not known: it was killed before.

    A request that equals the limit stays equal to it, so that the pod keeps its QoS class.
    """
    name, limit = str(reason.data["container"]), str(reason.data.get("memoryLimit") or "")
    found = _AMOUNT.fullmatch(limit)
    if found is None:
        return
    more, raised = f"{2 * float(found[1]):g}{found[2]}", set[str]()

    def with_more(container: Obj) -> Obj:
        sizes = container.get("resources") or {}
        parts = {part: sizes[part] for part in ("limits", "requests") if (sizes.get(part) or {}).get("memory") == limit}
        raised.update(parts)
        return {**container, "resources": {**sizes, **{part: {**own, "memory": more} for part, own in parts.items()}}}

    def change(spec: Obj) -> Obj:
        return with_container(spec, name, with_more)

    larger = PodInfo.of({**pod.obj, "spec": change(dict(pod.spec))})
    options_of_set = " ".join(f"--{part}=memory={more}" for part in sorted(raised))
    changes, costs = pod_changes(snapshot, [larger], change)
    place = new_place(snapshot, larger, options)
    room = f"{place.node} has room for it" if place is not None else "no node has room for it now, so it would wait"
    text = f"raise the memory limit of container {name} from {limit} to {more}"
    costs = f"{costs}; {room}; whether {more} is enough is not known: the container was killed when it had used {limit}"
    command = set_command(snapshot, pod, changes, "resources", f"-c {name} {options_of_set}")
    yield Remedy("RaiseMemoryLimit", text, changes, 2, False, costs, command)
