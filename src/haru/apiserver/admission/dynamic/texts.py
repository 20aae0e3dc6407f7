"""Configurations that only set texts, such as labels and names: most of what policies apply.

`Object{metadata: Object.metadata{labels: {"team": variables.team}}}` says where each text goes before any request is
there. Of such an expression only the texts are evaluated, and put in their places; everything else goes the general way
(`haru.apiserver.admission.dynamic.mutation_patches`), which comes to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haru.apiserver.admission.reinvocation import unread
from haru.cel.admission import ORDER, Expression
from haru.cel.ast import Entry, ListLiteral, Literal, MapLiteral, Node, StructLiteral
from haru.cel.environment import Environment
from haru.cel.libraries import OBJECT
from haru.cel.program import Program
from haru.cel.types import STRING
from haru.kube.defaulting import without_defaults
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.patch.shapes import Shape, shape_of
from haru.kube.schema import type_of

Places = Mapping[str, "int | Places"]
"""By the names of members: the number of the text that goes there, or the places inside."""


@dataclass(frozen=True)
class Texts:
    """Where the texts of an expression go in objects of one kind."""

    expression: Expression
    """Its value is the list of the texts, unless it costs too much to be evaluated at once."""
    places: Places
    kind: Kind
    is_complete: bool
    """Whether an object that has all its defaults still has them afterwards."""

    is_unread: bool
    """Whether the server's own changing plugins read none of them, unless a node creates the object."""

    def put(self, obj: Obj, texts: Sequence[str]) -> Obj:
        """The object with the texts in their places; itself where they were there before."""
        made = _put(obj, self.places, texts)
        made["apiVersion"], made["kind"] = self.kind.api_version, self.kind.kind
        return obj if made == obj else made


def texts_of(expression: Expression, within: Environment, kind: Kind) -> Texts | None:
    """Where the texts go; None for an expression that does more than that, or may cost something."""
    if expression.cheap is None or kind.custom is not None:
        return None
    most, program = expression.cheap
    found: list[Node] = []
    try:
        places = _places(program.root, OBJECT.name, shape_of(type_of(kind)), found)
    except _MoreThanTexts:
        return None
    if not places.keys().isdisjoint(("apiVersion", "kind")):
        return None
    told = Program(ListLiteral(0, found), within, ORDER)
    spec = places.get("spec")
    own = spec if isinstance(spec, Mapping) else {}
    names = {part: inside if isinstance(inside, Mapping) else ("",) for part, inside in places.items()}
    is_complete = places.keys() <= {"metadata", "spec"} and own.keys() <= without_defaults(kind)
    return Texts(expression._replace(cheap=(most, told)), places, kind, is_complete, unread(kind, names))


class _MoreThanTexts(Exception):
    """An expression has to go the general way."""


def _places(node: Node, path: str, shape: Shape, found: list[Node]) -> dict[str, int | Places]:
    is_struct = isinstance(node, StructLiteral) and node.name == path
    if not (is_struct or isinstance(node, MapLiteral)) or shape.style not in ("object", "map"):
        raise _MoreThanTexts
    assert isinstance(node, StructLiteral | MapLiteral)
    places: dict[str, int | Places] = {}
    for entry in node.entries:
        name = _name(entry)
        if name in places or not shape.allows(name):
            raise _MoreThanTexts
        if _is_text(shape, name):
            if entry.value.type != STRING:
                raise _MoreThanTexts
            places[name] = len(found)
            found.append(entry.value)
        else:
            places[name] = _places(entry.value, f"{path}.{name}" if is_struct else path, shape.field(name), found)
    return places


def _name(entry: Entry) -> str:
    if entry.optional or not isinstance(entry.key, Literal) or not isinstance(entry.key.value, str):
        raise _MoreThanTexts
    return entry.key.value


def _is_text(shape: Shape, name: str) -> bool:
    """Whether a member is a text: a declared one, or a value of a map of texts."""
    if shape.style == "map":
        return shape.of_texts
    declared = shape.message.fields[name] if shape.message is not None else None
    return declared is not None and declared.type == "string" and declared.container == "one"


def _put(live: Obj | None, places: Places, texts: Sequence[str]) -> Obj:
    made = dict(live) if live else {}
    for name, place in places.items():
        made[name] = texts[place] if isinstance(place, int) else _put(made.get(name), place, texts)
    return made
