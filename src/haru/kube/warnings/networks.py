"""Addresses that are written otherwise than all others, and old ways to say something of networks."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator

from haru.kube.meta import Obj

_INGRESS_CLASS = "kubernetes.io/ingress.class"


def address_warnings(path: str, text: str) -> Iterator[str]:
    """An IPv6 address in another than the canonical form (RFC 5952)."""
    yield from _not_canonical(path, "address", text, _canonical_address(text))


def cidr_warnings(path: str, text: str) -> Iterator[str]:
    """An IPv6 CIDR in another than the canonical form (RFC 5952)."""
    address, slash, length = text.partition("/")
    canonical = _canonical_address(address)
    yield from _not_canonical(path, "CIDR value", text, f"{canonical}{slash}{length}" if canonical else "")


def _not_canonical(path: str, what: str, text: str, canonical: str) -> Iterator[str]:
    if canonical and canonical != text:
        yield f"{path}: IPv6 {what} {_quoted(text)} should be in RFC 5952 canonical format ({_quoted(canonical)})"


def _canonical_address(text: str) -> str:
    """The canonical form of an IPv6 address; empty for other texts."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return ""
    return "" if address.ipv4_mapped else str(address)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def ingress_warnings(ingress: Obj) -> Iterator[str]:
    """What is odd about a new Ingress."""
    annotations = ingress["metadata"].get("annotations") or {}
    if _INGRESS_CLASS in annotations and (ingress.get("spec") or {}).get("ingressClassName") is None:
        yield f"annotation {_quoted(_INGRESS_CLASS)} is deprecated, please use 'spec.ingressClassName' instead"


def network_policy_warnings(policy: Obj) -> Iterator[str]:
    """What is odd about the blocks of a NetworkPolicy."""
    spec = policy.get("spec") or {}
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for number, rule in enumerate(spec.get(direction) or ()):
            for place, peer in enumerate(rule.get(side) or ()):
                path, block = f"spec.{direction}[{number}].{side}[{place}].ipBlock", peer.get("ipBlock") or {}
                yield from cidr_warnings(f"{path}.cidr", block.get("cidr") or "")
                for index, text in enumerate(block.get("except") or ()):
                    yield from cidr_warnings(f"{path}.except[{index}]", text)
