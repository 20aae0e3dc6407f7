"""What devices have, as far as anybody can tell from the tables and the slices at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haru.kube.decoding import suggest
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.lint.manifests import RESOURCE, Manifests
from haru.lint.published import CLASSES, DRIVERS, NVIDIA, STANDARD, STANDARD_DOMAIN, SYNONYMS, plain

_MEMBERS = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")


@dataclass(slots=True)
class Seen:
    """What the slices of one driver have: types of attributes and amounts of capacities, by (domain, id)."""

    attributes: dict[tuple[str, str], str] = field(default_factory=dict)
    capacity: dict[tuple[str, str], Quantity] = field(default_factory=dict)
    values: dict[tuple[str, str], dict[str, dict[Any, int]]] = field(default_factory=dict)
    """Attribute -> node -> value -> how many devices have it."""


def devices_of(spec: Obj) -> list[tuple[str, Obj]]:
    """(path below the slice's devices, device) in whatever version."""
    found = []
    for index, device in enumerate(spec.get("devices") or ()):
        if isinstance(device.get("basic"), dict):
            found.append((f"spec.devices[{index}].basic", {**device["basic"], "name": device.get("name")}))
        else:
            found.append((f"spec.devices[{index}]", device))
    return found


class Inventory:
    """Answers whether a driver publishes a name."""

    def __init__(self, manifests: Manifests) -> None:
        self.seen: dict[str, Seen] = {}
        for item in manifests.all("ResourceSlice"):
            if item.is_a(RESOURCE, "ResourceSlice"):
                self._learn(item.obj.get("spec") or {})

    def _learn(self, spec: Obj) -> None:
        driver = str(spec.get("driver") or "")
        seen = self.seen.setdefault(driver, Seen())
        node = str(spec.get("nodeName") or (spec.get("pool") or {}).get("name") or "")
        for _, device in devices_of(spec):
            for key, attribute in (device.get("attributes") or {}).items():
                name = split_name(key, driver)
                kind = next((member for member in _MEMBERS if attribute.get(member) is not None), "")
                seen.attributes[name] = kind
                value = attribute.get(kind)
                counts = seen.values.setdefault(name, {}).setdefault(node, {})
                for one in value if isinstance(value, list) else [value]:
                    counts[one] = counts.get(one, 0) + 1
            for key, capacity in (device.get("capacity") or {}).items():
                self._learn_capacity(seen, split_name(key, driver), capacity)

    @staticmethod
    def _learn_capacity(seen: Seen, name: tuple[str, str], capacity: Obj) -> None:
        try:
            amount = parse_quantity(capacity.get("value") or "0")
        except ValueError:
            return
        known = seen.capacity.get(name)
        seen.capacity[name] = amount if known is None or amount > known else known

    def is_closed(self, domain: str) -> bool:
        """Whether everything that is published in a domain is known."""
        driver = DRIVERS.get(domain)
        return domain == STANDARD_DOMAIN or (driver is not None and driver.closed) or domain in self.seen

    def is_certain(self, domain: str) -> bool:
        """Whether what is not known would fail for sure."""
        driver = DRIVERS.get(domain)
        return driver is not None and driver.closed and domain.endswith("nvidia.com")

    def names(self, table: str, domain: str) -> dict[str, str]:
        """Every known name in a domain, with its type."""
        driver = DRIVERS.get(domain)
        found: dict[str, str] = {}
        if domain == STANDARD_DOMAIN and table == "attributes":
            found.update(STANDARD)
        if driver is not None:
            known: Mapping[str, str] = (
                driver.attributes if table == "attributes" else dict.fromkeys(driver.capacity, "quantity")
            )
            found.update(known)
        for seen in self.seen.values():
            if table == "attributes":
                found.update({name: kind for (space, name), kind in seen.attributes.items() if space == domain})
            else:
                found.update({name: "quantity" for space, name in seen.capacity if space == domain})
        return found

    def meant(self, table: str, domain: str, name: str) -> str:
        """The known name that a name was probably meant to be; empty when there is none."""
        known = self.names(table, domain)
        folded = plain(name)
        for candidate in known:
            if plain(candidate) == folded and candidate != name:
                return candidate
        synonym = SYNONYMS.get(folded, "")
        if synonym in known and domain in (NVIDIA, STANDARD_DOMAIN) and synonym != name:
            return synonym
        return suggest(name, known)

    def largest(self, domain: str, name: str) -> Quantity | None:
        """The largest capacity of that name in the slices."""
        found = [seen.capacity[domain, name] for seen in self.seen.values() if (domain, name) in seen.capacity]
        return max(found, default=None)

    def most_equal(self, driver: str, domain: str, name: str) -> int | None:
        """How many of a driver's devices on one node have the same value, at most; None without such slices."""
        by_node = self.seen[driver].values.get((domain, name), {}) if driver in self.seen else {}
        counts = [count for by_value in by_node.values() for count in by_value.values()]
        return max(counts, default=None)


def split_name(key: str, driver: str) -> tuple[str, str]:
    """The domain and the name of an attribute or capacity; without one the domain is the driver."""
    domain, slash, name = key.partition("/")
    return (domain, name) if slash else (driver, key)


def class_for(type_: str) -> str:
    """The class that comes with the NVIDIA driver for devices of a type."""
    return next((name for name, (driver, has) in CLASSES.items() if driver == NVIDIA and has.get("type") == type_), "")
