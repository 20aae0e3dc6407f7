"""References to container images, and when they are pulled by default.

A reference is `[DOMAIN/]PATH[:TAG][@DIGEST]`. One that is malformed names no tag, and so is not pulled again.
Source: distribution's grammar of references and the default of `imagePullPolicy`, as behaviour.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?P<domain>{_DOMAIN})/(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
).fullmatch
_SUM = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}").fullmatch
_IDENTIFIER = re.compile(r"[a-f0-9]{64}").fullmatch
_HUB = "docker.io"
_MOST = 255
"""Characters of a path."""


@lru_cache(maxsize=1024)
def image_pull_policy(image: str) -> str:
    """Always for the tag `latest`, named or implied; a malformed reference counts as pinned."""
    return "Always" if _tag(image) == "latest" else "IfNotPresent"


def _tag(image: str) -> str:
    """The tag that a reference names or implies; empty for one with a digest alone, and for a malformed one."""
    domain, rest = _domain_and_rest(image)
    found = _REFERENCE(f"{domain}/{rest}")
    if found is None or _IDENTIFIER(image) or len(found["path"]) > _MOST:
        return ""
    if found["digest"] and not _SUM(found["digest"]):
        return ""
    return found["tag"] or ("" if found["digest"] else "latest")


def _domain_and_rest(image: str) -> tuple[str, str]:
    """Tell a registry from the first part of a name: it has a dot, a port or a capital, or is `localhost`."""
    first, slash, rest = image.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first or first.lower() != first):
        domain, rest = (_HUB if first == f"index.{_HUB}" else first), rest
    else:
        domain, rest = _HUB, image
    return domain, f"library/{rest}" if domain == _HUB and "/" not in rest else rest
