"""What is wrong with a selector that compiles: names nobody publishes, values of other types, sizes never reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from haru.kube.decoding import suggest
from haru.kube.quantity import parse_quantity
from haru.kube.validation.device_parts import is_version
from haru.lint import rewriting
from haru.lint.expressions import Analysis, Comparison, Facts, Read, analyse
from haru.lint.findings import Draft, Edit, Replace
from haru.lint.inventory import Inventory, class_for
from haru.lint.published import (
    ARCHITECTURES,
    DRIVERS,
    GPU_MEMORY,
    MEMORY_WORDS,
    MIG_MEMORY,
    NVIDIA,
    STANDARD,
    STANDARD_DOMAIN,
    plain,
)
from haru.lint.rewriting import Part

_UNIT = re.compile(r"(?:gi?b?|mi?b?|bytes|gigabytes|gigs)$")
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(?:\+me(?:\.all)?|-me|\+gfx)?")
_PROFILE_LIKE = re.compile(r"(?:mig[-_ ]?)?(\d+)g[-_. ]?(\d+)gb?", re.IGNORECASE)
_WORD = {
    "string": "a text",
    "int": "a number",
    "bool": "true or false",
    "version": "a version",
    "quantity": "a Quantity",
}


class Selector:
    """One expression, with what is known of the devices that it is shown."""

    def __init__(self, path: str, expression: str, before: Facts, class_path: str, inventory: Inventory) -> None:
        self.path = path
        self.expression = expression
        self.before = before
        self.class_path = class_path
        self.inventory = inventory
        self.analysis = analyse(expression) or Analysis()

    def check(self) -> Iterator[Draft]:
        """Everything that is wrong with it."""
        seen: set[tuple[str, str, str]] = set()
        for read in self.analysis.reads:
            place = (read.table, read.domain, read.name)
            if place not in seen:
                seen.add(place)
                yield from self._read(read._replace(facts=read.facts | self.before))
        for comparison in dict.fromkeys(self.analysis.comparisons):
            yield from self._comparison(comparison)
        for made in dict.fromkeys(self.analysis.made):
            yield from self._literal(made.function, made.text)

    def draft(
        self,
        check: str,
        message: str,
        reason: str,
        parts: tuple[Part, ...] = (),
        advice: str = "",
        *,
        weak: bool = False,
    ) -> Draft:
        """A finding of this selector; `parts` are written out as the suggestion if they can be used."""
        edits: tuple[Edit, ...] = ()
        if rewriting.usable(self.expression, parts):
            new = rewriting.replaced(self.expression, parts)
            advice, edits = f"write {new}", (Replace(self.path, new, parts),)
        return Draft(check, self.path, message, reason, advice, edits, "warning" if weak else None)

    # --- reads

    def _read(self, read: Read) -> Iterator[Draft]:
        names = self.inventory.names(read.table, read.domain)
        if read.name in names:
            yield from self._of_type(read)
            return
        if "." not in read.domain and any(driver.startswith(f"{read.domain}.") for driver in DRIVERS):
            parts = rewriting.domains(self.expression)
            reason = "a domain has dots, so it is written as a key: in brackets and quotes"
            yield self.draft("attribute-domain", f"{read} is not published", reason, parts)
            return
        if read.table == "attributes" and read.domain != STANDARD_DOMAIN:
            standard = (
                read.name if read.name in STANDARD else self.inventory.meant("attributes", STANDARD_DOMAIN, read.name)
            )
            if standard and plain(standard) == plain(read.name) and read.domain in DRIVERS:
                to = ("attributes", STANDARD_DOMAIN, standard)
                parts = rewriting.moved(self.expression, read.table, read.domain, read.name, to)
                reason = (
                    f"{standard} is a standard attribute: every driver publishes it as {STANDARD_DOMAIN}/{standard}"
                )
                yield self.draft("attribute-domain", f"{read} is not published", reason, parts)
                return
        other = "capacity" if read.table == "attributes" else "attributes"
        exact = self.inventory.names(other, read.domain)
        if read.name in exact or (same := self._same(read.name, exact)):
            right = read.name if read.name in exact else same
            yield self._other_table(read, other, right)
            return
        drivers = {fact[1] for fact in read.facts if fact[0] == "driver"}
        if drivers and read.domain not in drivers and read.domain != STANDARD_DOMAIN:
            yield from self._foreign(read, drivers)
        elif self.inventory.is_closed(read.domain) or self._is_slip(read):
            yield self._unpublished(read)

    def _of_type(self, read: Read) -> Iterator[Draft]:
        """Names that only some devices of the driver have."""
        driver = DRIVERS.get(read.domain)
        types = {fact[3] for fact in read.facts if fact[:3] == ("is", read.domain, "type")}
        only = driver.only.get(read.name) if driver is not None else None
        if only is None or not types or types & only or read.guarded() or read.table != "attributes":
            return
        wanted = class_for(next(iter(only)))
        edits = (Replace(self.class_path, wanted),) if self.class_path and len(only) == 1 else ()
        yield Draft(
            "class-contradiction",
            self.path,
            f"{read} is published for devices of type {' and '.join(sorted(only))} only, not {' '.join(sorted(types))}",
            "the pod fails scheduling with an error: no such key",
            f"deviceClassName: {wanted}" if len(only) == 1 else f"ask {' or '.join(sorted(only))} devices",
            edits,
        )

    @staticmethod
    def _same(name: str, known: dict[str, str]) -> str:
        return next((candidate for candidate in known if plain(candidate) == plain(name)), "")

    def _other_table(self, read: Read, other: str, name: str) -> Draft:
        parts: tuple[Part, ...] = ()
        if other == "capacity":
            parts = rewriting.memory_attribute(self.expression, read.domain, read.name, name)
        if not rewriting.usable(self.expression, parts):
            parts = rewriting.moved(self.expression, read.table, read.domain, read.name, (other, read.domain, name))
        what = "a capacity" if other == "capacity" else "an attribute"
        message = f"{read}: {name} is {what}, not {'an attribute' if other == 'capacity' else 'a capacity'}"
        advice = f'device.{other}["{read.domain}"].{name}'
        if other == "capacity":
            advice += '.compareTo(quantity("…")) >= 0'
        reason = "the pod fails scheduling with an error: no such key"
        return self.draft("attribute-is-capacity", message, reason, parts, advice, weak=read.guarded())

    def _foreign(self, read: Read, drivers: set[str]) -> Iterator[Draft]:
        if not all(self.inventory.is_closed(driver) for driver in drivers):
            return
        driver = sorted(drivers)[0]
        to = (read.table, driver, read.name)
        known = read.name in self.inventory.names(read.table, driver)
        parts = rewriting.moved(self.expression, read.table, read.domain, read.name, to) if known else ()
        message = f"{read}: devices of {driver} have nothing in the domain {read.domain}"
        advice = f"names without a domain belong to the driver's: {driver}"
        reason = "the pod fails scheduling with an error: no such key"
        yield self.draft("attribute-domain", message, reason, parts, advice, weak=read.guarded())

    def _is_slip(self, read: Read) -> bool:
        return read.domain in DRIVERS and bool(self.inventory.meant(read.table, read.domain, read.name))

    def _unpublished(self, read: Read) -> Draft:
        domain, name = read.domain, read.name
        message = f"{read}: {name} is not published by {domain}"
        if domain == STANDARD_DOMAIN:
            message = f"{read}: {name} is no standard attribute"
        sure = self.inventory.is_certain(domain) and not read.guarded()
        reason = "evaluating the selector fails with no such key, and so does scheduling the pod, on every attempt"
        if read.guarded():
            reason = "no device has it, so the selector never sees it"
        memory = next((c for c in ("memory", "hbm") if c in self.inventory.names("capacity", domain)), "")
        if memory and _means_memory(name):
            if read.table == "attributes":
                parts = rewriting.memory_attribute(self.expression, domain, name, memory)
            else:
                parts = rewriting.moved(self.expression, "capacity", domain, name, ("capacity", domain, memory))
            advice = f'memory is a capacity: device.capacity["{domain}"].{memory}.compareTo(quantity("20Gi")) >= 0'
            return self.draft("attribute-unpublished", message, reason, parts, advice, weak=not sure)
        meant = self.inventory.meant(read.table, domain, name)
        if meant:
            to = (read.table, domain, meant)
            parts = rewriting.moved(self.expression, read.table, domain, name, to) if _is_slip_of(name, meant) else ()
            advice = f"write {meant}" + _hint(meant)
            return self.draft("attribute-unpublished", message, reason, parts, advice, weak=not sure)
        listed = ", ".join(sorted(self.inventory.names(read.table, domain)))
        advice = f"published are {listed}" if listed else f"{domain} publishes no {read.table}"
        return self.draft("attribute-unpublished", message, reason, (), advice, weak=not sure)

    # --- comparisons

    def _comparison(self, comparison: Comparison) -> Iterator[Draft]:
        read = comparison.read
        kind = self.inventory.names(read.table, read.domain).get(read.name)
        if kind is None:
            return
        given = _given(comparison)
        if kind in _WORD and given and given != kind and read.table == "attributes":
            yield self._wrong_type(comparison, kind, given)
        elif read.domain == NVIDIA:
            yield from self._nvidia(comparison)

    def _wrong_type(self, comparison: Comparison, kind: str, given: str) -> Draft:
        read = comparison.read
        message = f"{read} is {_WORD[kind]}, and is compared with {_WORD.get(given, given)}"
        fails = comparison.operator not in ("==", "!=", "in")
        reason = "the comparison fails with no such overload" if fails else "values of different types are never equal"
        parts = rewriting.operators(self.expression) if kind == "version" else ()
        advice = ""
        if kind == "version":
            value = str(comparison.values[0]) if comparison.values else ""
            version = rewriting.mended_version(value) or "9.0.0"
            advice = f'{read}.compareTo(semver("{version}")) {comparison.operator.replace("in", "==") or ">="} 0'
            if comparison.method:
                parts = tuple(
                    (old, f'semver("{version}")') for old in (f'"{value}"', f"'{value}'") if old in self.expression
                )
        elif kind == "string":
            advice = "write the value in quotes"
        elif given == "string":
            advice = "write the value without quotes"
        return self.draft("attribute-type", message, reason, parts, advice)

    def _nvidia(self, comparison: Comparison) -> Iterator[Draft]:
        read = comparison.read
        texts = [value for value in comparison.values if isinstance(value, str)]
        if read.table == "capacity":
            yield from self._memory(comparison)
        elif comparison.operator not in ("==", "in"):
            return
        elif read.name == "profile":
            for text in texts:
                match = None if _PROFILE.fullmatch(text) else _PROFILE_LIKE.fullmatch(text)
                if match:
                    yield self._value(read, text, f"{match[1]}g.{match[2]}gb", "profiles are named as in 3g.40gb")
        elif read.name == "productName":
            for text in texts:
                if not text.startswith("NVIDIA ") and not text.startswith(("Tesla ", "Quadro ", "GeForce ")):
                    reason = "product names are whole, such as NVIDIA H100 80GB HBM3"
                    word = re.split(r"[-_ ]", text.removeprefix("NVIDIA").strip("-_ ") or text)[0]
                    advice = f'{read}.contains("{word}"), or compare architecture'
                    yield self.draft("attribute-value", f'{read} is never "{text}"', reason, (), advice)
        elif read.name == "architecture":
            for text in texts:
                close = suggest(text, ARCHITECTURES)
                if close and close != text:
                    yield self._value(read, text, close, "texts are compared letter by letter")
        elif read.name == "type":
            yield from self._type(read, texts)

    def _value(self, read: Read, text: str, better: str, reason: str) -> Draft:
        parts = tuple((f"{q}{text}{q}", f"{q}{better}{q}") for q in "\"'" if f"{q}{text}{q}" in self.expression)
        return self.draft("attribute-value", f'{read} is never "{text}"', reason, parts, f'write "{better}"')

    def _type(self, read: Read, texts: list[str]) -> Iterator[Draft]:
        fixed = {fact[3] for fact in self.before if fact[:3] == ("is", read.domain, "type")}
        for text in texts:
            wanted = class_for(text)
            if fixed and text not in fixed and wanted:
                message = f'{read} is {" ".join(sorted(fixed))} for every device of the class, never "{text}"'
                edits = (Replace(self.class_path, wanted),) if self.class_path else ()
                advice = f"deviceClassName: {wanted}"
                yield Draft("class-contradiction", self.path, message, "no device can match", advice, edits)
            elif not wanted and text not in ("daemon", "channel"):
                close = suggest(text, ("gpu", "mig", "vfio"))
                yield self._value(read, text, close or "gpu", "types are gpu, mig and vfio")

    def _memory(self, comparison: Comparison) -> Iterator[Draft]:
        read, text = comparison.read, str(comparison.values[0])
        match = re.fullmatch(r"(\d{1,4})Gi", text)
        if read.name != "memory" or match is None or comparison.operator not in (">=", ">", "=="):
            return
        facts = read.facts | self.before
        types = {fact[3] for fact in facts if fact[:3] == ("is", NVIDIA, "type")}
        if any(fact[:3] == ("is", NVIDIA, "profile") for fact in facts) and comparison.operator != "==":
            types.add("mig")
        sizes = MIG_MEMORY if types == {"mig"} else GPU_MEMORY if types == {"gpu"} else {}
        size = int(match[1])
        better = sizes.get(size)
        largest = self.inventory.largest(NVIDIA, "memory")
        if better is None or (largest is not None and not largest < parse_quantity(text)):
            return
        new = f"{better}Gi"
        parts = tuple((f"{q}{text}{q}", f"{q}{new}{q}") for q in "\"'" if f"{q}{text}{q}" in self.expression)
        message = f"{text} is the size in the name; a device sold as {size} GB has less memory than {text}"
        reason = "such devices do not match"
        yield self.draft("memory-marketing", message, reason, parts, f'compare with quantity("{new}"), or use profile')

    # --- literals

    def _literal(self, function: str, text: str) -> Iterator[Draft]:
        if function == "semver" and not is_version(text):
            better = rewriting.mended_version(text)
            reason = "the selector fails when it runs: a version has three numbers without leading zeros"
        elif function == "quantity" and not _is_quantity(text):
            better = rewriting.mended_quantity(text)
            reason = "the selector fails when it runs: units are Ki, Mi, Gi, Ti or k, M, G, T"
        else:
            return
        parts = tuple(
            (f"{q}{text}{q}", f"{q}{better}{q}") for q in "\"'" if better and f"{q}{text}{q}" in self.expression
        )
        yield self.draft("selector-literal", f'{function}("{text}") cannot be parsed', reason, parts)


def _means_memory(name: str) -> bool:
    folded = plain(name)
    return folded in MEMORY_WORDS or _UNIT.sub("", folded) in MEMORY_WORDS


def _is_slip_of(name: str, meant: str) -> bool:
    """Whether a name is only misspelt: another word for it may come with other values."""
    return plain(name) == plain(meant) or suggest(name, [meant]) == meant


def _hint(meant: str) -> str:
    return ' (whole names, such as "NVIDIA H100 80GB HBM3")' if meant == "productName" else ""


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _given(comparison: Comparison) -> str:
    """The type of what something is compared with; empty when it is mixed or unclear."""
    if comparison.wrapped:
        return "version" if comparison.wrapped == "semver" else "quantity"
    kinds = {_kind(value) for value in comparison.values}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "int"
    return "string" if isinstance(value, str) else ""
