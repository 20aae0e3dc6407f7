"""The pages of a node and of a device."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.pages.history import who_held
from haru.dashboard.views.places import device_page, node_page
from haru.explain import DeviceStory, NodeStory


async def node(asked: Asked) -> Answer | None:
    """Tell of a node; None if there is none."""
    view, name, pods = asked.view, asked.parts["name"], asked.services.pods
    story = await asked.services.explanations.place(view, "node", name)
    if not isinstance(story, NodeStory):
        return None
    found = await asked.compute(
        lambda: node_page(view.snapshot, story, view.events, pods.at(view.snapshot), asked.query)
    )
    held = await who_held(asked, lambda each: each.node == name)
    return Answer(name, {"found": found, "held": held})


async def device(asked: Asked) -> Answer | None:
    """Tell of a device; None if there is none."""
    key = tuple(asked.parts[part] for part in ("driver", "pool", "name"))
    story = await asked.services.explanations.place(asked.view, "device", "/".join(key))
    if not isinstance(story, DeviceStory):
        return None
    held = await who_held(asked, lambda each: (each.driver, each.pool, each.device) == key)
    pods, snapshot = asked.services.pods, asked.view.snapshot
    found = await asked.compute(lambda: device_page(story, pods.at(snapshot), asked.query))
    return Answer("/".join(key), {"found": found, "held": held})
