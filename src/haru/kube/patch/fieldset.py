"""Sets of fields, as `metadata.managedFields` holds them (FieldsV1).

A set is a tree. Each step is a path element in its FieldsV1 form: `f:<field>`, `k:{"key":"value"}` (item of a list with
keys), `v:<json>` (item of a set), `i:<index>`. A node's `members` are the elements that belong to the set themselves,
its `children` the sub-trees; an element may be both, one, or (never, by construction) an empty sub-tree.
Source: sigs.k8s.io/structured-merge-diff `fieldpath`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from haru.kube.go_values import HTML_ESCAPES
from haru.kube.meta import Obj

KEPT_SETS = 128
"""Results that are kept of each operation: of objects of one template, written at the same time.

Most sets are of one object alone, as they name its address or its consumers: many would be kept for nothing.
"""


class FieldSet:
    """An immutable set of field paths."""

    __slots__ = ("_hash", "children", "members")

    def __init__(self, members: frozenset[str] = frozenset(), children: Mapping[str, FieldSet] | None = None) -> None:
        self.members = members
        self.children: Mapping[str, FieldSet] = children or {}
        self._hash: int | None = None

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, FieldSet):
            return NotImplemented
        return self.members == other.members and self.children == other.children

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((self.members, frozenset(self.children.items())))
        return found

    def __repr__(self) -> str:
        return f"FieldSet({', '.join(sorted(path_text(path) for path in self.paths()))})"

    def __or__(self, other: FieldSet) -> FieldSet:
        if not other:
            return self
        if not self:
            return other
        children = dict(self.children)
        for element, child in other.children.items():
            mine = children.get(element)
            children[element] = child if mine is None else mine | child
        return FieldSet(self.members | other.members, children)

    def __and__(self, other: FieldSet) -> FieldSet:
        children = {}
        for element, child in self.children.items():
            theirs = other.children.get(element)
            if theirs is not None and (both := child & theirs):
                children[element] = both
        return FieldSet(self.members & other.members, children)

    def __sub__(self, other: FieldSet) -> FieldSet:
        if not other or not self:
            return self
        children = {}
        for element, child in self.children.items():
            theirs = other.children.get(element)
            left = child if theirs is None else child - theirs
            if left:
                children[element] = left
        return FieldSet(self.members - other.members, children)

    def without_subtrees(self, other: FieldSet) -> FieldSet:
        """Return the set without the members of `other` and everything below them."""
        children = {}
        for element, child in self.children.items():
            if element in other.members:
                continue
            theirs = other.children.get(element)
            left = child if theirs is None else child.without_subtrees(theirs)
            if left:
                children[element] = left
        return FieldSet(self.members - other.members, children)

    def meets(self, other: FieldSet) -> bool:
        """Whether the sets have a path in common."""
        if not self.members.isdisjoint(other.members):
            return True
        return any(
            (theirs := other.children.get(element)) is not None and child.meets(theirs)
            for element, child in self.children.items()
        )

    def child(self, element: str) -> FieldSet:
        """The sub-tree below an element; empty if there is none."""
        return self.children.get(element, EMPTY)

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Every path of the set: at each node its members first, then what lies below."""
        for element in sorted(self.members):
            yield (element,)
        for element in sorted(self.children):
            for rest in self.children[element].paths():
                yield (element, *rest)

    def to_fields_v1(self) -> Obj:
        """The JSON form: `{}` for a mere member, `.` for a member that has children."""
        result: Obj = {}
        for element in sorted(self.members | self.children.keys()):
            child = self.children.get(element)
            if child is None:
                result[element] = {}
            else:
                inner = child.to_fields_v1()
                result[element] = {".": {}, **inner} if element in self.members else inner
        return result

    @classmethod
    def from_fields_v1(cls, fields: Mapping[str, Any]) -> FieldSet:
        """The set that the JSON form stands for; ValueError for a form it cannot be."""
        members = set()
        children = {}
        for element, inner in fields.items():
            if element == ".":
                continue
            if element[:2] not in _PREFIXES or not isinstance(inner, dict):
                raise ValueError(f"{element!r} is no path element of managed fields")
            if not inner or "." in inner:
                members.add(element)
            if inner and (child := cls.from_fields_v1(inner)):
                children[element] = child
        return cls(frozenset(members), children)

    @classmethod
    def of(cls, *paths: tuple[str, ...]) -> FieldSet:
        """The set of these paths."""
        result = EMPTY
        for path in paths:
            one = cls(frozenset(path[-1:]))
            for element in reversed(path[:-1]):
                one = cls(frozenset(), {element: one})
            result = result | one
        return result


def less(fields: FieldSet, gone: FieldSet) -> FieldSet:
    """`fields - gone`; as objects of one template own the same fields, it was mostly worked out before."""
    return _less(fields, gone) if fields.meets(gone) else fields


@lru_cache(maxsize=KEPT_SETS)
def _less(fields: FieldSet, gone: FieldSet) -> FieldSet:
    return fields - gone


@lru_cache(maxsize=KEPT_SETS)
def rendered(fields: FieldSet) -> Obj:
    """The JSON form of a set, which many objects share: do not change it."""
    return fields.to_fields_v1()


def parsed(fields: Mapping[str, Any]) -> FieldSet:
    """The set that a JSON form stands for; ValueError for a form it cannot be."""
    return _parsed(orjson.dumps(fields))


@lru_cache(maxsize=KEPT_SETS)
def _parsed(encoded: bytes) -> FieldSet:
    return FieldSet.from_fields_v1(orjson.loads(encoded))


def holds(encoded: Mapping[str, Any], fields: FieldSet) -> bool:
    """Whether the set of a JSON form has all paths of a set; nothing is decoded for the answer."""
    for element in fields.members:
        inner = encoded.get(element)
        if inner is None or (inner and "." not in inner):
            return False
    return all((inner := encoded.get(element)) and holds(inner, child) for element, child in fields.children.items())


def shares(encoded: Mapping[str, Any], fields: FieldSet) -> bool:
    """Whether the set of a JSON form and a set have a path in common; nothing is decoded for the answer."""
    for element in fields.members:
        inner = encoded.get(element)
        if inner is not None and (not inner or "." in inner):
            return True
    return any((inner := encoded.get(element)) and shares(inner, child) for element, child in fields.children.items())


_PREFIXES = frozenset({"f:", "k:", "v:", "i:"})
EMPTY = FieldSet()


class SetBuilder:
    """Collects paths of one walk over a value; nested builders become the sub-trees."""

    __slots__ = ("children", "members")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.children: dict[str, FieldSet] = {}

    def add(self, element: str) -> None:
        """The element itself belongs to the set."""
        self.members.add(element)

    def below(self, element: str, subtree: FieldSet) -> None:
        """Return the part of the set below the element."""
        if subtree:
            present = self.children.get(element)
            self.children[element] = subtree if present is None else present | subtree

    def build(self) -> FieldSet:
        """The set collected so far."""
        return FieldSet(frozenset(self.members), self.children) if self.members or self.children else EMPTY


def compact(value: Any) -> str:
    """JSON without spaces, keys sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def element_json(value: Any) -> str:
    """Keys and values as they stand in path elements: compact, with Go's escapes of what means something in HTML."""
    return compact(value).translate(HTML_ESCAPES)


@lru_cache(maxsize=4096)
def element_text(element: str) -> str:
    """A path element as messages print it: `.spec`, `[name="a"]`, `[="x"]`, `[0]`."""
    prefix, rest = element[:2], element[2:]
    if prefix == "f:":
        return f".{rest}"
    if prefix == "i:":
        return f"[{rest}]"
    if prefix == "v:":
        return f"[={compact(json.loads(rest))}]"
    keys = json.loads(rest)
    return "[" + ",".join(f"{name}={compact(keys[name])}" for name in sorted(keys)) + "]"


def path_text(path: tuple[str, ...]) -> str:
    """A path as messages print it: `.spec.containers[name="a"].image`."""
    return "".join(element_text(element) for element in path)
