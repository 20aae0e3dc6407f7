"""Health: `/healthz`, `/livez`, `/readyz`, each as a whole and check by check.

A server is alive as long as it answers; it is ready while what it needs is there. `?verbose` lists the checks, and
`?exclude=NAME` passes one over. Source: kube-apiserver's health endpoints, as behaviour.
"""

from __future__ import annotations

from haru.apiserver.context import ServerContext
from haru.apiserver.peers.server import HOOK, Peers
from haru.apiserver.registry.resources import no_such_path
from haru.apiserver.request.http import Request, Response, text_response

HEALTH = ("healthz", "livez", "readyz")
_KEYS = "kms-providers"
_SHUTDOWN = "shutdown"


async def health_response(
    core: ServerContext, peers: Peers | None, request: Request, name: str, rest: list[str]
) -> Response:
    """The answer of one of `HEALTH`, or of the check that `rest` names. 404 for one that is not there."""
    checks = _checks(core, peers, name)
    if rest:
        one = "/".join(rest)
        if one not in checks:
            raise no_such_path()
        why = await _why_not(core, peers, name, one)
        return text_response(f"internal server error: {one}: {why}\n", 500) if why else text_response("ok")
    excluded = set(request.query.get("exclude") or ())
    lines, fails = [], False
    for check in checks:
        if check in excluded:
            excluded.discard(check)
            lines.append(f"[+]{check} excluded: ok")
            continue
        why = await _why_not(core, peers, name, check)
        fails |= bool(why)
        lines.append(f"[-]{check} failed: {why}" if why else f"[+]{check} ok")
    if excluded:
        unknown = ", ".join(f'"{each}"' for each in sorted(excluded))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
    if fails:
        return text_response("\n".join([*lines, f"{name} check failed", ""]), 500)
    if "verbose" not in request.query:
        return text_response("ok")
    return text_response("\n".join([*lines, f"{name} check passed", ""]))


def _checks(core: ServerContext, peers: Peers | None, name: str) -> tuple[str, ...]:
    sealing = core.config.sealing
    found = ["ping", "storage", "rbac"]
    if peers is not None and peers.proxies:
        found.append(HOOK)
    if name != "livez":
        if sealing is not None and (sealing.outside or core.config.encryption_file is not None):
            found.append(_KEYS)
        found.append(_SHUTDOWN)
    return tuple(found)


async def _why_not(core: ServerContext, peers: Peers | None, name: str, check: str) -> str:
    """What is wrong, or nothing. Nothing makes a server dead that answers."""
    if name == "livez":
        return ""
    if check == HOOK and peers is not None and peers.failing:
        return "what the other API servers serve is not known yet"
    if check == _SHUTDOWN and core.stopping:
        return "the server is stopping"
    if check == "storage" and core.store.failing:
        return "the last change could not be made durable"
    if check == _KEYS and core.config.sealing is not None and core.config.sealing.outside:
        # Without the reason, which is in the log.
        problems = await core.config.sealing.problems()
        return ", ".join(f"kms-provider-{index}" for index, problem in enumerate(problems) if problem)
    return ""
