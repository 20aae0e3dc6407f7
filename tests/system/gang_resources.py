"""Extended resources in the gangs' world: some nodes have a plugin for cards, elsewhere devices stand behind them."""

from __future__ import annotations

from typing import Any

from haru.kube.quantity import parse_quantity

Obj = dict[str, Any]
CARD = "test.example.com/card"
PLUGIN_CARDS = 3
SLICE_CPU = "250m"
"""What a slice of a card takes of its node's cpu."""


def plugin_cards(node: str) -> int:
    """How many cards a node's plugin serves: every fourth node has one, whenever it is made anew as well."""
    return PLUGIN_CARDS if node.rpartition("-")[2].isdigit() and int(node.rpartition("-")[2]) % 4 == 1 else 0


def cards_of(pod: Obj) -> int:
    """How many cards a pod asks for as an extended resource."""
    containers = pod["spec"].get("containers") or ()
    return sum(int(((c.get("resources") or {}).get("requests") or {}).get(CARD) or 0) for c in containers)


def slices_in(claim: Obj) -> int:
    """How many slices of cards a claim has."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return sum(1 for result in results if result["device"].startswith("slice-"))


def claimed_milli_cpu(pod: Obj) -> int:
    """What a pod's status says that its devices take of the cpu, in thousandths."""
    entries = (pod.get("status") or {}).get("nodeAllocatableResourceClaimStatuses") or ()
    return sum(parse_quantity(entry["resources"]["cpu"]).milli() for entry in entries)


def milli_cpu(node: Obj) -> int:
    """The cpu of a node, in thousandths."""
    return parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get("cpu") or "0").milli()


def recorded_claim(pod: Obj) -> str:
    """The claim behind its extended resources, by name; empty if its status names none."""
    return str(((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or "")


def owner_of(claim: Obj) -> str:
    """The UID of the pod that a claim was made for because of its extended resources; empty for other claims."""
    annotations = claim["metadata"].get("annotations") or {}
    if annotations.get("resource.kubernetes.io/extended-resource-claim") != "true":
        return ""
    return str(claim["metadata"]["ownerReferences"][0]["uid"])
