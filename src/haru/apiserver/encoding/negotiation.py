"""What a client wants to be answered in: JSON, a Table, only metadata, YAML, protobuf.

Whole objects are answered in protobuf only where a client takes nothing else.

Source: apimachinery content negotiation; `as`, `g` and `v` parameters of the Accept header.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.wire_out import has_protobuf

Shape = Literal["object", "table", "partial"]
PROTOBUF = "application/vnd.kubernetes.protobuf"

_ALL = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_SHAPES: dict[str, Shape] = {
    "Table": "table",
    "PartialObjectMetadata": "partial",
    "PartialObjectMetadataList": "partial",
}
_CONVERSION = frozenset({"as", "g", "v"})
_MEDIA = frozenset({"*/*", "application/json", "application/yaml", PROTOBUF})


@dataclass(frozen=True, slots=True)
class Representation:
    """A media type, and the shape that objects are turned into."""

    shape: Shape = "object"
    yaml: bool = False
    version: str = "v1"
    protobuf: bool = False
    listed: bool = False
    """Metadata of the items of a list, which an object is not."""

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        return "application/yaml" if self.yaml else "application/json"


PLAIN = Representation()
"""JSON as it lies ready, however a client asks for it: `negotiate` returns this one."""
PARTIAL = Representation("partial")
PARTIAL_PROTOBUF = Representation("partial", protobuf=True)


@lru_cache(maxsize=256)
def parse_accept(accept: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """The clauses of an Accept header: media type and parameters, in the client's order of preference."""
    clauses = []
    for position, clause in enumerate(accept.split(",")):
        media, *parameters = (part.strip() for part in clause.split(";"))
        named = dict(p.partition("=")[::2] for p in parameters if "=" in p)
        try:
            quality = float(named.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if media and quality > 0:
            clauses.append((-quality, position, media.lower(), named))
    clauses.sort(key=lambda c: c[:2])
    return tuple((media, named) for _, _, media, named in clauses)


@lru_cache(maxsize=256)
def negotiate(accept: str, tables: bool = True) -> Representation:
    """The first media type that can be served, protobuf of whole objects only if there is no other; 406 for none.

    Without `tables` for what has none.
    """
    if not accept or accept in ("*/*", "application/json"):
        return PLAIN
    protobuf: Representation | None = None
    for media, parameters in parse_accept(accept):
        if media not in _MEDIA:
            continue
        shape: Shape | None = "object"
        wanted, version = parameters.get("as", ""), parameters.get("v", "")
        if not _CONVERSION.isdisjoint(parameters):
            shape = _SHAPES.get(wanted)
            if parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
                continue
        if shape is None or (shape == "table" and not tables):
            continue
        if shape == "partial" or media != PROTOBUF:
            listed = wanted == "PartialObjectMetadataList"
            found = Representation(shape, media == "application/yaml", version or "v1", media == PROTOBUF, listed)
            return PLAIN if found == PLAIN else found
        if shape != "table":  # a Table has no message
            protobuf = protobuf or Representation(protobuf=True)
    if protobuf is None:
        raise not_acceptable(_ALL)
    return protobuf


def names_what_is_served(accept: str) -> bool:
    """Whether a header names a media type that there is, in whatever form: others do not reach a resource in 1.36."""
    return not accept or any(media in _MEDIA for media, _ in parse_accept(accept))


def preferred_for_errors(accept: str) -> str:
    """The media type of a failure: the first that the client names of those that there are."""
    named = (media for media, given in parse_accept(accept) if media in _MEDIA and "as" not in given)
    return next(named, "application/json")


def not_acceptable(accepted: str) -> StatusError:
    """406, with the media types that would do."""
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def not_of_that_shape(wanted: str, found: str, kind: Kind, name: str) -> StatusError:
    """406: metadata of a list where there is one object, or the reverse; `name` is of the object or list."""
    package = "unstructured" if kind.custom is not None else kind.group.partition(".")[0] or "core"
    if kind.custom is not None:
        name = "UnstructuredList" if name == kind.list_kind else "Unstructured"
    message = f"you requested {wanted}, but the requested object is {found} (*{package}.{name})"
    return StatusError(406, "NotAcceptable", message)


def wants_protobuf(accept: str) -> bool:
    """Whether protobuf is what a client has to be answered in."""
    if PROTOBUF not in accept:
        return False
    try:
        return negotiate(accept).protobuf
    except StatusError:
        return False


def wants_yaml(accept: str) -> bool:
    """Whether YAML is what a client likes best."""
    if "yaml" not in accept:
        return False
    try:
        return negotiate(accept).yaml
    except StatusError:
        return False


def check_form(accept: str, kind: Kind) -> None:
    """406 where a client takes nothing that objects of the kind have a form in."""
    representation = negotiate(accept, not kind.virtual)
    if representation.protobuf and representation.shape != "partial" and not has_protobuf(kind):
        raise not_acceptable(_ALL)
