"""What a selector or a constraint was probably meant to say, by what the devices of a cluster publish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from haru.kube.decoding import suggest, suggest_name
from haru.lint import rewriting
from haru.lint.expressions import Comparison, Read, analyse
from haru.lint.inventory import Inventory, split_name
from haru.lint.manifests import Manifests
from haru.lint.rewriting import Part


@dataclass(slots=True)
class PublishedDevices:
    """The names that devices publish, and the texts that their attributes have, by (domain, name)."""

    attributes: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    capacity: set[tuple[str, str]] = field(default_factory=set)

    def add(self, driver: str, attributes: Mapping[str, Any], capacity: Iterable[str]) -> None:
        """Add a device: its attributes (name, with or without a domain: value) and the names of its capacities."""
        for key, value in attributes.items():
            self.attributes.setdefault(split_name(key, driver), set()).add(value)
        self.capacity.update(split_name(key, driver) for key in capacity)

    def names(self, table: str, domain: str) -> list[str]:
        """Return the names of a domain."""
        known = self.attributes if table == "attributes" else self.capacity
        return sorted(name for space, name in known if space == domain)

    def domains(self) -> list[str]:
        """Return the domains in which anything is published."""
        return sorted({space for space, _ in (*self.attributes, *self.capacity)})


@dataclass(frozen=True, slots=True)
class Meant:
    """The selector as it was probably meant, and which names and values that changes (`new in place of old`)."""

    expression: str
    changes: tuple[str, ...]


def meant_selector(expression: str, published: PublishedDevices) -> Meant | None:
    """Return the selector with the domains, names and texts that devices have; None if nothing is close to them."""
    changes: list[str] = []
    for step in (_other_domain, _other_table, _other_name, _other_text):
        found = analyse(expression)
        parts: list[Read | Comparison] = [] if found is None else [*found.reads]
        parts += found.comparisons if found is not None else ()
        for part in parts:
            changed = step(expression, part, published)
            if changed is not None and rewriting.usable(expression, changed[1]):
                expression = rewriting.replaced(expression, changed[1])
                changes.append(changed[0])
    return Meant(expression, tuple(dict.fromkeys(changes))) if changes else None


def meant_attribute(name: str, published: PublishedDevices) -> str:
    """Return the attribute (`domain/name`) that a constraint was probably meant to name; empty if none is close."""
    domain, _, own = name.rpartition("/")
    if own in published.names("attributes", domain):
        return ""
    names = published.names("attributes", domain)
    if not names:
        domain = suggest_name(domain, published.domains())
        names = published.names("attributes", domain)
    close = own if own in names else suggest(own, names)
    return f"{domain}/{close}" if close else ""


_Changed = tuple[str, tuple[Part, ...]] | None


def _other_domain(expression: str, part: Read | Comparison, published: PublishedDevices) -> _Changed:
    if not isinstance(part, Read) or part.domain in published.domains():
        return None
    close = suggest_name(part.domain, published.domains())
    to = (part.table, close, part.name)
    moved = rewriting.moved(expression, part.table, part.domain, part.name, to) if close else ()
    return f"the domain {close} in place of {part.domain}", moved


def _other_table(expression: str, part: Read | Comparison, published: PublishedDevices) -> _Changed:
    """An attribute that is published as a capacity, with its comparisons, and the other way round."""
    other = "capacity" if isinstance(part, Read) and part.table == "attributes" else "attributes"
    if not isinstance(part, Read) or part.name in published.names(part.table, part.domain):
        return None
    if part.name not in published.names(other, part.domain):
        return None
    if other == "capacity":
        parts = rewriting.memory_attribute(expression, part.domain, part.name, part.name)
        return f"{part.name} as a capacity in place of an attribute", parts
    to = (other, part.domain, part.name)
    moved = rewriting.moved(expression, part.table, part.domain, part.name, to)
    return f"{part.name} as an attribute in place of a capacity", moved


def _other_name(expression: str, part: Read | Comparison, published: PublishedDevices) -> _Changed:
    if not isinstance(part, Read):
        return None
    known = published.names(part.table, part.domain)
    if part.name in known or not known:
        return None
    close = Inventory(Manifests(())).meant(part.table, part.domain, part.name)
    close = close if close in known else suggest(part.name, known)
    to = (part.table, part.domain, close)
    moved = rewriting.moved(expression, part.table, part.domain, part.name, to) if close else ()
    word = "attribute" if part.table == "attributes" else "capacity"
    return f"the {word} {close} in place of {part.name}", moved


def _other_text(expression: str, part: Read | Comparison, published: PublishedDevices) -> _Changed:
    """Another text for `==` and `in` where no device has the one that is written."""
    if not isinstance(part, Comparison) or part.operator not in ("==", "in") or part.wrapped:
        return None
    values = published.attributes.get((part.read.domain, part.read.name)) or set()
    known = sorted(value for value in values if isinstance(value, str))
    wrong = [value for value in part.values if isinstance(value, str) and value not in known]
    close = {text: meant for text in wrong if (meant := suggest_name(text, known))}
    if len(close) < len(part.values):
        return None
    parts = tuple(
        (f"{q}{old}{q}", f"{q}{new}{q}") for old, new in close.items() for q in "\"'" if f"{q}{old}{q}" in expression
    )
    return " and ".join(f'"{new}" in place of "{old}"' for old, new in close.items()), parts
