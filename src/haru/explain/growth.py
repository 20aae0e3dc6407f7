"""More nodes: of which kind that exists the fewest would be enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.devices.model import Shape, Slice
from haru.engine.groups import Options
from haru.explain import hypothesis
from haru.explain.changes import create
from haru.explain.explanation import Remedy
from haru.explain.wording import counted
from haru.explain.work import Work

_MAX_COPIES = 64
_MAX_KINDS = 16


def add_nodes(snapshot: Snapshot, work: Work, options: Options, missing: int) -> Iterator[Remedy]:
    """More nodes like one that exists: the kind of which the fewest are needed for the `missing` pods."""
    best: tuple[int, str, list[Obj]] | None = None
    for model in _kinds(snapshot):
        each = _room(snapshot, work, options, model)
        if not each:
            continue
        limit = _MAX_COPIES if best is None else best[0] - 1
        for count in _guesses(missing, each, limit):
            larger, manifests = hypothesis.with_copies(snapshot, model, count)
            if work.fits(larger, options):
                best = (count, model, manifests)
                break
    if best is not None:
        count, model, manifests = best
        devices = sum(len(s.devices) for s in _slices(snapshot, model))
        text = f"add {counted(count, 'node')} like {model}" + (", with its devices" if devices else "")
        costs = f"{counted(count, 'more machine')} to provide"
        costs += (
            f",{' each' if count > 1 else ''} with the {counted(devices, 'device')} that {model} publishes"
            if devices
            else ""
        )
        yield Remedy("AddNodes", text, tuple(create(m) for m in manifests), 20 + 10 * count, True, costs)


def _guesses(missing: int, each: int, limit: int) -> list[int]:
    likely = -(-missing // each)
    return sorted({count for count in (likely - 1, likely, likely + 1, 2 * likely) if 0 < count <= limit})


def _room(snapshot: Snapshot, work: Work, options: Options, model: str) -> int:
    """How many of the pods one such node takes when it is all there is."""
    larger, _ = hypothesis.with_copies(snapshot, model, 1)
    alone = replace(larger, node_names=tuple(sorted(set(larger.node_names) - set(snapshot.node_names))))
    decision = work.decide(alone, options)
    if decision.status == "scheduled":
        return len(decision.placed)
    return next((int(r.data["fit"]) for r in decision.reasons if r.type == "Quorum"), 0)


def _kinds(snapshot: Snapshot) -> list[str]:
    """One node of each kind: equal labels but for names, equal room, devices of equal make."""
    kinds: dict[object, str] = {}
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        labels = tuple(sorted((k, v) for k, v in info.labels.items() if v != name))
        makes = Counter(_make(device.shape) for item in _slices(snapshot, name) for device in item.devices)
        kinds.setdefault((info.spec.kind, labels, tuple(sorted(makes.items()))), name)
    return list(kinds.values())[:_MAX_KINDS]


def _slices(snapshot: Snapshot, name: str) -> list[Slice]:
    pools = sorted(snapshot.devices.by_node.get(name) or ())
    return [s for pool in pools for s in snapshot.devices.pools[pool].slices if s.placement.node_name == name]


def _make(shape: Shape) -> str:
    """What kind of device it is: its driver and the attributes by which makes are told apart."""
    known = [str(a.value) for name, a in shape.attributes if name.rpartition("/")[2] in _MAKE]
    return " ".join((shape.driver, *known))


_MAKE = frozenset({"productName", "product", "model", "architecture", "type", "profile", "brand"})
