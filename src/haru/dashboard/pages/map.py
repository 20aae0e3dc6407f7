"""The map: every card of the cluster, by owner or state, from the whole cluster down to one device."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.device_map import By, DeviceMap, device_map
from haru.dashboard.views.looks import LOOKS
from haru.dashboard.views.map_layout import zoom_for

BYS: tuple[tuple[By, str], ...] = (("node", "Node"), ("rack", "Rack"), ("pool", "Pool"), ("model", "Model"))
COLOURS = (("owner", "Owner"), ("state", "State"))
ZOOMS = (("cluster", "Cluster"), ("nodes", "Nodes"), ("cards", "Cards"))
_MOST_HOLDERS = 40


async def cluster_map(asked: Asked) -> Answer:
    """Show what the filter selects, in groups."""
    view, chosen, places = asked.view, asked.chosen, asked.services.places
    by: By = next((each for each, _ in BYS if each == asked.query.get("by")), "node")
    found = await asked.compute(lambda: device_map(view.snapshot, view.layouts, chosen, places, by))
    await asked.compute(lambda: LOOKS.show([work for work, _ in found.holders], time.monotonic()))
    drawn = sum(len(place.cards) for place in found.places)
    zoom, colour = zoom_for(drawn, asked.query.get("zoom", "")), asked.query.get("colour", "")
    values: dict[str, object] = {
        "found": found,
        "groups": [group for group in found.groups if _wanted(asked, group.title, by)],
        "by": by,
        "bys": BYS,
        "zoom": zoom,
        "zooms": ZOOMS,
        "colour": "state" if colour == "state" else "owner",
        "colours": COLOURS,
        "holders": found.holders[:_MOST_HOLDERS],
        "more_holders": _more(found),
    }
    return Answer("Map", values)


def _wanted(asked: Asked, title: str, by: By) -> bool:
    """Whether a group is asked for: the overview links to those of one model."""
    wanted = asked.query.get("model", "")
    return by != "model" or not wanted or fnmatchcase(title, wanted)


def _more(found: DeviceMap) -> int:
    return max(0, len(found.holders) - _MOST_HOLDERS)
