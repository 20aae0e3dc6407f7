"""ServiceCIDRs and IPAddresses: where the addresses of Services come from, and who has one (KEP 1880).

Source: the validation of networking.k8s.io, as behaviour.
"""

from __future__ import annotations

from haru.kube import names
from haru.kube.errors import FieldError, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import IMMUTABLE, each_message, immutable_member, part, path_segment, subdomain

_CIDRS = "spec.cidrs"


def validate_service_cidr(cidr: Obj) -> list[FieldError]:
    """One network, or one of each family."""
    networks = part(cidr, "spec").get("cidrs") or []
    if not networks:
        return [required(_CIDRS, "at least one CIDR required")]
    if len(networks) > 2:
        return [invalid(_CIDRS, networks, "may only hold up to 2 values")]
    wrong = {index: names.is_canonical_network(network) for index, network in enumerate(networks)}
    found = [
        error for index, why in wrong.items() for error in each_message(f"{_CIDRS}[{index}]", networks[index], why)
    ]
    families = [":" in network for network in networks if not names.is_cidr(network)]
    if len(networks) == 2 and families in ([True, True], [False, False]):
        why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        found.append(invalid(_CIDRS, networks, why))
    return found


def validate_service_cidr_update(new: Obj, old: Obj) -> list[FieldError]:
    """The networks stay; one of the other family may be added."""
    now, then = (part(each, "spec").get("cidrs") or [] for each in (new, old))
    grows = len(then) == 1 and len(now) == 2
    if len(now) != len(then) and not grows:
        return [invalid(_CIDRS, now, IMMUTABLE)]
    changed = [index for index, network in enumerate(then) if now[index] != network]
    found = [invalid(f"{_CIDRS}[{index}]", now[index], IMMUTABLE) for index in changed]
    return found + (validate_service_cidr(new) if grows else [])


def validate_ip_address(address: Obj) -> list[FieldError]:
    """Who has an address must be said."""
    parent = part(address, "spec").get("parentRef")
    if parent is None:
        return [required("spec.parentRef")]
    place = "spec.parentRef"
    found = subdomain(f"{place}.group", parent["group"]) if parent.get("group") else []
    for name in ("resource", "name", "namespace"):
        value = parent.get(name) or ""
        if value:
            found += path_segment(f"{place}.{name}", value)
        elif name != "namespace":
            found.append(required(f"{place}.{name}"))
    return found


def validate_ip_address_update(new: Obj, old: Obj) -> list[FieldError]:
    """An address stays with whom it was given to."""
    specs = part(new, "spec"), part(old, "spec")
    return immutable_member("spec", "parentRef", *specs, "networking.v1.IPAddressSpec")
