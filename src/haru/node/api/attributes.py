"""Authorizer attributes of a request. Pure.

Source: KEP-2862 (KubeletFineGrainedAuthz, GA in 1.36) and the kubelet's table of paths, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ALONE = (
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/checkpoint", "checkpoint"),
    ("/statusz", "statusz"),
    ("/flagz", "configz"),
)
"""These never needed `proxy` alone: there is no way to them by it."""
_BEFORE_PROXY = (
    ("/pods", "pods"),
    ("/runningpods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
)
PROXY = "proxy"


def verb_of(method: str) -> str:
    """The verb of a method; empty, which only rules for every verb allow, for HEAD, OPTIONS and what is unknown."""
    return _VERBS.get(method, "")


def subresources_of(path: str) -> Sequence[str]:
    """The subresources of `nodes` that allow a path, in the order of the checks."""
    for prefix, name in _ALONE:
        if is_below(path, prefix):
            return (name,)
    for prefix, name in _BEFORE_PROXY:
        if is_below(path, prefix):
            return (name, PROXY)
    return (PROXY,)


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is the prefix or continues it with a slash: `/podsX` is not below `/pods`."""
    return path == prefix or path.startswith(prefix + "/")
