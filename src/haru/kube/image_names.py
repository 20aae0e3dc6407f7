"""Names of images as container runtimes take them. Pure.

Source: the grammar of image references of the distribution project, and the defaults of its familiar names.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

_PART: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN: Final = rf"(?:{_PART}(?:\.{_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_WORD: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST: Final = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE: Final = re.compile(rf"({_DOMAIN})/({_WORD}(?:/{_WORD})*)(?::({_TAG}))?(?:@{_DIGEST})?")
_MOST: Final = 255


class ImageName(NamedTuple):
    """The parts of a name; the tag is empty where there is none."""

    domain: str
    path: str
    tag: str


class ImageNameError(ValueError):
    """A name that no runtime takes, in the kubelet's words."""


def parse_image_name(name: str) -> ImageName:
    """The parts of an image's name, with the registry that is meant where none is named. Raises `ImageNameError`."""
    try:
        return _parse(name)
    except ImageNameError as error:
        raise ImageNameError(f"couldn't parse image name {json.dumps(name)}: {error}") from None


def _parse(name: str) -> ImageName:
    if re.fullmatch("[a-f0-9]{64}", name):
        raise ImageNameError(f"invalid repository name ({name}), cannot specify 64-byte hexadecimal strings")
    first, slash, rest = name.partition("/")
    has_domain = slash and ("." in first or ":" in first or first == "localhost" or first.lower() != first)
    domain, remainder = (first, rest) if has_domain else ("docker.io", name if slash else f"library/{name}")
    repository = remainder.partition(":")[0]
    if repository.lower() != repository:
        raise ImageNameError(f"invalid reference format: repository name ({repository}) must be lowercase")
    matched = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if matched is None:
        raise ImageNameError("invalid reference format")
    if len(matched[1]) + len(matched[2]) >= _MOST:
        raise ImageNameError(f"repository name must not be more than {_MOST} characters")
    return ImageName(matched[1], matched[2], matched[3] or "")
