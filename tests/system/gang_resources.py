"""Extended resources in the gangs' world: some nodes have a plugin for cards, elsewhere devices stand behind them."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
CARD = "test.example.com/card"
PLUGIN_CARDS = 3


def plugin_cards(node: str) -> int:
    """How many cards a node's plugin serves: every fourth node has one, whenever it is made anew as well."""
    return PLUGIN_CARDS if node.rpartition("-")[2].isdigit() and int(node.rpartition("-")[2]) % 4 == 1 else 0


def cards_of(pod: Obj) -> int:
    """How many cards a pod asks for as an extended resource."""
    containers = pod["spec"].get("containers") or ()
    return sum(int(((c.get("resources") or {}).get("requests") or {}).get(CARD) or 0) for c in containers)


def recorded_claim(pod: Obj) -> str:
    """The claim behind its extended resources, by name; empty if its status names none."""
    return str(((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or "")


def owner_of(claim: Obj) -> str:
    """The UID of the pod that a claim was made for because of its extended resources; empty for other claims."""
    annotations = claim["metadata"].get("annotations") or {}
    if annotations.get("resource.kubernetes.io/extended-resource-claim") != "true":
        return ""
    return str(claim["metadata"]["ownerReferences"][0]["uid"])
