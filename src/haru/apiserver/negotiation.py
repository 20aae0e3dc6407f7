"""What a client wants to be answered in: JSON, a Table, only metadata, YAML.

Source: apimachinery content negotiation; `as`, `g` and `v` parameters of the Accept header.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from haru.kube.errors import StatusError

Shape = Literal["object", "table", "partial"]
PROTOBUF = "application/vnd.kubernetes.protobuf"

_SHAPES: dict[str, Shape] = {
    "Table": "table",
    "PartialObjectMetadata": "partial",
    "PartialObjectMetadataList": "partial",
}


@dataclass(frozen=True, slots=True)
class Representation:
    """A media type, and the shape that objects are turned into."""

    shape: Shape = "object"
    yaml: bool = False
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        return "application/yaml" if self.yaml else "application/json"


PLAIN = Representation()
PARTIAL = Representation("partial")


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
def negotiate(accept: str) -> Representation:
    """The first clause that can be served; 406 when there is none."""
    if not accept or accept in ("*/*", "application/json"):
        return PLAIN
    for media, parameters in parse_accept(accept):
        if media not in ("*/*", "application/*", "application/json", "application/yaml"):
            continue
        wanted = parameters.get("as", "")
        if wanted and wanted not in _SHAPES:
            continue
        shape = _SHAPES.get(wanted, "object")
        group, version = parameters.get("g", "meta.k8s.io"), parameters.get("v", "v1")
        if shape != "object" and (group != "meta.k8s.io" or version not in ("v1", "v1beta1")):
            continue
        return Representation(shape, media == "application/yaml", version)
    raise StatusError(
        406, "NotAcceptable", "only the following media types are accepted: application/json, application/yaml"
    )
