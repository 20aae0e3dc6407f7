"""Stories of nodes and devices as JSON. docs/reference/explain.md is the schema: fields are added, never renamed."""

from __future__ import annotations

from haru.explain.card_counts import CardCounts
from haru.explain.render.json import holder_json
from haru.explain.stories.values import DeviceState, DeviceStoryData, Draw, NodeStoryData, Wanting
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity

_API_VERSION = "haru.dev/v1alpha1"


def node_json(story: NodeStoryData) -> Obj:
    """The NodeExplanation object of haru.dev/v1alpha1."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "NodeExplanation",
        "subject": {"kind": "Node", "name": story.name},
        "state": story.state,
        "summary": story.summary,
        "reasons": [reason.to_json() for reason in story.reasons],
        "resources": [
            {"resource": a.resource, "allocatable": a.allocatable, "used": a.used, "free": a.free}
            for a in story.resources
        ],
        "devices": [_state(device) for device in story.devices],
        "cards": (story.cards or CardCounts()).as_dict(),
        "workloads": [holder_json(holder) for holder in story.workloads],
        "waiting": [_wanting(unit) for unit in story.waiting],
        "moreWaiting": story.more_waiting,
    }


def device_json(story: DeviceStoryData) -> Obj:
    """The DeviceExplanation object of haru.dev/v1alpha1."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "DeviceExplanation",
        "subject": {
            "kind": "Device",
            "driver": story.state.driver,
            "pool": story.state.pool,
            "device": story.state.device,
        },
        "summary": story.summary,
        "reasons": [reason.to_json() for reason in story.reasons],
        "device": _state(story.state),
        "nodes": list(story.nodes),
        "attributes": {
            name: list(value) if isinstance(value, tuple) else value for name, value in story.attributes.items()
        },
        "capacity": dict(story.capacity),
        "taintRules": dict(story.rules),
        "beside": [_state(device) for device in story.beside],
        "waiting": [_wanting(unit) for unit in story.waiting],
        "moreWaiting": story.more_waiting,
    }


def _state(device: DeviceState) -> Obj:
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "product": device.product,
        "status": device.status,
        "taints": list(device.taints),
        "holders": [holder_json(holder) for holder in device.holders],
        **({"counters": [_draw(draw) for draw in device.draws]} if device.draws else {}),
    }


def _draw(draw: Draw) -> Obj:
    amounts = {"needs": draw.needs, "left": draw.left, "total": draw.total}
    return {"counter": draw.counter, **{name: str(Quantity(value, "BinarySI")) for name, value in amounts.items()}}


def _wanting(unit: Wanting) -> Obj:
    return {
        "kind": unit.kind,
        "namespace": unit.namespace,
        "name": unit.name,
        "pods": unit.pods,
        "priority": unit.priority,
        "takes": unit.takes,
        "requests": list(unit.requests),
        "reasons": [reason.to_json() for reason in unit.reasons],
    }
