"""DeviceClasses: guards, configuration; and what a class says of its devices, for the requests that name it."""

from __future__ import annotations

from collections.abc import Iterator

from haru.lint import rewriting
from haru.lint.configuration import check_config
from haru.lint.expressions import Facts, analyse
from haru.lint.findings import Draft, Replace
from haru.lint.inventory import Inventory
from haru.lint.manifests import RESOURCE, Item, Manifests, selectors_of
from haru.lint.published import CLASSES, STANDARD_DOMAIN
from haru.lint.selection import Selector

_MAX_LABEL = 63


def facts_of(manifests: Manifests, name: str) -> Facts:
    """What holds for every device of a class; nothing for a class that nobody knows."""
    item = manifests.find("DeviceClass", "", name)
    if item is not None and item.is_a(RESOURCE, "DeviceClass"):
        facts: Facts = frozenset()
        for _, expression in selectors_of("spec", item.obj.get("spec") or {}):
            found = analyse(expression)
            facts |= found.facts if found is not None else frozenset()
        return facts
    if name in CLASSES:
        driver, values = CLASSES[name]
        return frozenset({("driver", driver), *(("is", driver, key, value) for key, value in values.items())})
    return frozenset()


def check_class(item: Item, manifests: Manifests, inventory: Inventory) -> Iterator[Draft]:
    """All of a DeviceClass."""
    spec = item.obj.get("spec") or {}
    before: Facts = frozenset()
    for path, expression in selectors_of("spec", spec):
        selector = Selector(path, expression, before, "", inventory)
        yield from selector.check()
        yield from _unguarded(selector)
        before |= selector.analysis.facts
    drivers = {fact[1] for fact in before if fact[0] == "driver"}
    for index, config in enumerate(spec.get("config") or ()):
        yield from check_config(f"spec.config[{index}]", config, drivers, ())
    if spec.get("extendedResourceName") and len(item.name) > _MAX_LABEL:
        reason = f"deviceclass.resource.kubernetes.io/{item.name} is no legal resource name"
        yield Draft("name-too-long", "metadata.name", "the name has more than 63 characters", reason, "a shorter name")


def _unguarded(selector: Selector) -> Iterator[Draft]:
    told: set[str] = set()
    for read in selector.analysis.reads:
        asked = any(fact[0] == "driver" for fact in read.facts | selector.before)
        if asked or read.guarded() or read.domain in told or read.domain == STANDARD_DOMAIN or "." not in read.domain:
            continue
        told.add(read.domain)
        new = rewriting.guarded(selector.expression, read.domain)
        first = f'device.driver == "{read.domain}"'
        edits = (Replace(selector.path, new),) if rewriting.compiles(new) and len(told) == 1 else ()
        yield Draft(
            "selector-unguarded",
            selector.path,
            f"{read} is read without asking for {first}",
            "devices of other drivers do not have it: as soon as there are some, scheduling fails with no such key",
            f"write {new}",
            edits,
        )
