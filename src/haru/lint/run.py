"""All stages over all files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from haru.lint import documents
from haru.lint.checks import CHECKS
from haru.lint.claims import check_claim
from haru.lint.classes import check_class
from haru.lint.devices import check_slice, check_taint_rule
from haru.lint.documents import Document
from haru.lint.findings import STAGES, Draft, Finding, Place
from haru.lint.gangs import check_group, check_members
from haru.lint.inventory import Inventory
from haru.lint.manifests import RESOURCE, SCHEDULING, Item, Manifests
from haru.lint.paths import Keys
from haru.lint.pods import check_group_claims, check_pod
from haru.lint.report import Report
from haru.lint.shape import check_schema, find_kind
from haru.lint.templates import knows, own_kind, rebased, templates_of
from haru.lint.validity import check_validity, prepare


def lint_texts(texts: Mapping[str, str]) -> Report:
    """Everything there is to say of some files, given as text by name."""
    found: list[Finding] = []
    items: list[Item] = []
    unchecked: list[str] = []
    objects = 0
    for file, text in texts.items():
        for document in documents.read(text.removeprefix("\ufeff")):
            parsed = list(_items(file, document))
            found += _unusable(file, document)
            objects += len(parsed)
            for item in parsed:
                if knows(item):
                    inner = [_described(item), *templates_of(item)]
                    found += [finding for template in inner[1:] for finding in _first_stages(template)]
                    items += [each for each in inner if each.kind is not None]
                    continue
                found += _first_stages(item)
                if item.kind is not None:
                    items.append(item)
                elif not any(
                    finding.place == _place(item, "kind") or finding.stage == "kind" for finding in found[-1:]
                ):
                    unchecked.append(f"{file}: {item.raw.get('apiVersion')} {item.label}")
    manifests = Manifests(items)
    inventory = Inventory(manifests)
    for item in manifests.items:
        found += [_finding(item, draft) for draft in _semantic(item, manifests, inventory)]
    order = {file: number for number, file in enumerate(texts)}
    found.sort(key=lambda f: (order[f.place.file], f.place.document, f.place.line, STAGES.index(f.stage)))
    return Report(
        tuple(f for f in found if f.severity != "notice"),
        tuple(f for f in found if f.severity == "notice"),
        objects,
        tuple(unchecked),
    )


def _items(file: str, document: Document, prefix: Keys = ()) -> Iterator[Item]:
    """The objects of a document: one, or those of a List."""
    value = document.value
    if document.problem or not isinstance(value, dict):
        return
    items = value.get("items")
    is_list = value.get("apiVersion") == "v1" and value.get("kind") == "List"
    if is_list and isinstance(items, list):
        for index, inner in enumerate(items):
            if isinstance(inner, dict):
                yield Item(file, document, ("items", index), inner)
        return
    yield Item(file, document, prefix, value)


def _unusable(file: str, document: Document) -> list[Finding]:
    if not document.problem:
        return list(_no_objects(file, document))
    advice = _A_LIST if document.check == "yaml-object" else ""
    if document.check == "yaml-syntax":
        advice = _syntax_advice(document)
    place = Place(file, document.number, _line_named(document), "")
    reason = "nothing in the document can be read"
    return [Finding(document.check, "yaml", "error", place, "", document.problem, reason, advice)]


_A_LIST = "write each object as a document of its own, after a line ---, or all as items of kind: List"


def _no_objects(file: str, document: Document) -> Iterator[Finding]:
    """The items of a List that are no objects."""
    value = document.value
    items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
    for index, inner in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(inner, dict):
            path = f"items[{index}]"
            place = Place(file, document.number, documents.place(document, path, ()), "")
            advice = "remove the item, or write an object with apiVersion and kind"
            yield Finding("yaml-object", "yaml", "error", place, path, "an item of a List is no object", "", advice)


def _line_named(document: Document) -> int:
    words = document.problem.replace(":", " ").split()
    at = words.index("line") + 1 if "line" in words else len(words)
    return int(words[at]) if at < len(words) and words[at].isdigit() else document.first_line


def _syntax_advice(document: Document) -> str:
    if "already set in map" in document.problem:
        return "set every key once: remove what is not meant"
    at = _line_named(document) - document.first_line
    lines = document.text.splitlines()
    near = lines[max(0, at - 1) : at + 1]
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in near):
        return "indent with blanks: YAML has no tabs"
    if any("{{" in line for line in near):
        return "the file is a template: lint what it is rendered to, as by helm template"
    if any(" = " in line and ":" not in line for line in lines):
        return "write name: value, with a colon and a blank"
    return "check the indentation and the quotes around the line"


def _first_stages(item: Item) -> list[Finding]:
    """Kind, schema and validation, which look at one object alone."""
    drafts = find_kind(item)
    if item.kind is not None:
        pruned, schema = check_schema(item)
        item.obj = prepare(item, pruned)
        drafts = [*drafts, *schema, *check_validity(item, schema)]
    return [_finding(item, draft) for draft in drafts]


def _described(item: Item) -> Item:
    """An object of another project; of what adapters read the kind is known, so that references to it are found."""
    kind = own_kind(item)
    if kind is not None:
        version = str(item.raw["apiVersion"]).rpartition("/")[2]
        item.kind, item.obj = replace(kind.as_kind(version), kind=kind.key), item.raw
    return item


def _semantic(item: Item, manifests: Manifests, inventory: Inventory) -> Iterable[Draft]:
    yield from _check_other_of_its_name(item, manifests)
    yield from check_claim(item, manifests, inventory)
    yield from check_pod(item, manifests)
    yield from check_members(item, manifests)
    if item.is_a(RESOURCE, "DeviceClass"):
        yield from check_class(item, manifests, inventory)
    elif item.is_a(RESOURCE, "ResourceSlice"):
        yield from check_slice(item, manifests, inventory)
    elif item.is_a(RESOURCE, "DeviceTaintRule"):
        yield from check_taint_rule(item)
    elif item.is_a(SCHEDULING, "PodGroup"):
        yield from check_group(item, manifests)
        yield from check_group_claims(item, manifests)


def _check_other_of_its_name(item: Item, manifests: Manifests) -> Iterator[Draft]:
    """Several files may be alternatives, and what is repeated word by word does no harm."""
    first = manifests.first_in_file(item) if item.owner is None else None
    if first is None or first is item or first.obj == item.obj:
        return
    line = _place(first, "metadata.name").line
    yield Draft(
        "object-twice",
        "metadata.name",
        f"{item.label} is in this file before, at line {line}, with other contents",
        "kubectl apply writes one over the other: the last one stays",
        "remove one of the two, or give it another name or namespace",
    )


def _place(item: Item, path: str) -> Place:
    line = documents.place(item.document, path, item.prefix)
    return Place(item.file, item.document.number, line, item.label)


def _finding(item: Item, draft: Draft) -> Finding:
    if item.owner is not None:
        return _finding(item.owner, rebased(item, draft))
    check = CHECKS[draft.check]
    severity = draft.severity or check.severity
    place = _place(item, draft.path)
    return Finding(
        check.id, check.stage, severity, place, draft.path, draft.message, draft.reason, draft.suggestion, draft.edits
    )
