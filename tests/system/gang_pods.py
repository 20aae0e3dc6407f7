"""The pods and claims of the gangs' world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from gang_resources import CARD

Obj = dict[str, Any]
DRIVER, PARTS = "test.example.com", 8
_HALF = [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == {PARTS // 2}'}}]
CLAIM_SPECS: dict[str, list[Obj]] = {
    "one-card": [{"name": "r", "exactly": {"deviceClassName": "card"}}],
    "two-cards": [{"name": "r", "exactly": {"deviceClassName": "card", "count": 2}}],
    "one-slice": [{"name": "r", "exactly": {"deviceClassName": "slice"}}],
    "half-slice": [{"name": "r", "exactly": {"deviceClassName": "slice", "selectors": _HALF}}],
    "two-lanes": [{"name": "r", "exactly": {"deviceClassName": "lane", "capacity": {"requests": {"lanes": "2"}}}}],
}
EXTENDED = {"extended-one": 1, "extended-two": 2, "extended-and-slice": 1}
FLAVOURS = ("cpu", "cpu", "one-card", "two-cards", "one-slice", "half-slice", "two-lanes", "group", "named", "both")
FLAVOURS += tuple(EXTENDED)


def claim_entries(flavour: str, name: str) -> list[Obj]:
    """The claims of each pod: none, its own, its group's, or one that is there by name."""
    if flavour in ("cpu", "extended-one", "extended-two"):
        return []
    if flavour == "extended-and-slice":
        return [{"name": "mine", "resourceClaimTemplateName": "one-slice"}]
    if flavour == "group":
        return [{"name": "ours", "resourceClaimTemplateName": "one-card"}]
    if flavour == "named":
        return [{"name": "ours", "resourceClaimName": name}]
    if flavour == "both":
        return [{"name": n, "resourceClaimTemplateName": n} for n in ("one-card", "one-slice")]
    return [{"name": "mine", "resourceClaimTemplateName": flavour}]


def group_claim(pod: Obj) -> bool:
    """Whether the pod uses its group's claim."""
    return any(c["name"] == "ours" for c in pod["spec"].get("resourceClaims") or ())


def card_limit(spec: Obj) -> int:
    """How many cards a pod asks for by its limits."""
    return int((spec["containers"][0]["resources"].get("limits") or {}).get(CARD) or 0)


def gang_pod(name: str, group: str, claims: Sequence[Obj], urgent: bool, cards: int = 0) -> Obj:
    container: Obj = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    if cards:
        container["resources"]["limits"] = {CARD: str(cards)}
    spec: Obj = {"containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if claims:
        spec["resourceClaims"] = list(claims)
        container["resources"]["claims"] = [{"name": c["name"]} for c in claims]
    if urgent:
        spec["priorityClassName"] = "high"
    # Some say how long they run; the promise is not always kept, because nobody ends them.
    match crc32(name.encode()) % 4:
        case 0:
            spec |= {"restartPolicy": "Never", "activeDeadlineSeconds": 30 + crc32(name.encode()) % 300}
        case 1:
            spec["restartPolicy"] = "Never"
    return {"metadata": {"name": name}, "spec": spec}
