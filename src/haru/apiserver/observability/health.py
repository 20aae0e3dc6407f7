"""Health: `/healthz`, `/livez`, `/readyz`, each as a whole and check by check.

A server is alive as long as it answers; it is ready while what it needs is there. `?verbose` lists the checks, and
`?exclude=NAME` passes one over. Source: kube-apiserver's health endpoints, as behaviour.
"""

from __future__ import annotations

from haru.apiserver.config import EncryptionOptions
from haru.apiserver.peers.server import HOOK, Peers
from haru.apiserver.request.http import Request, Response, text_response
from haru.apiserver.streams import OpenStreams
from haru.kube.errors import PageNotFound
from haru.storage import Store

HEALTH = ("healthz", "livez", "readyz")
_KEYS = "kms-providers"
_SHUTDOWN = "shutdown"


class Health:
    """The health checks of one server."""

    def __init__(self, store: Store, streams: OpenStreams, encryption: EncryptionOptions, peers: Peers | None) -> None:
        self.store = store
        self._streams = streams
        self._encryption = encryption
        self._peers = peers

    async def response(self, request: Request, name: str, rest: list[str]) -> Response:
        """The answer of one of `HEALTH`, or of the check that `rest` names. 404 for one that is not there."""
        checks = self._checks(name)
        if rest:
            one = "/".join(rest)
            if one not in checks:
                raise PageNotFound
            why = await self._failure(name, one)
            return text_response(f"internal server error: {one}: {why}\n", 500) if why else text_response("ok")
        excluded = set(request.query.get("exclude") or ())
        lines, fails = [], False
        for check in checks:
            if check in excluded:
                excluded.discard(check)
                lines.append(f"[+]{check} excluded: ok")
                continue
            why = await self._failure(name, check)
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

    async def metrics(self) -> str:
        """The result of every check, as the metric of 1.36 (`/metrics/slis`)."""
        lines = [
            "# HELP kubernetes_healthcheck [STABLE] Whether a health check passes.",
            "# TYPE kubernetes_healthcheck gauge",
        ]
        for name in HEALTH:
            for check in self._checks(name):
                passed = int(not await self._failure(name, check))
                lines.append(f'kubernetes_healthcheck{{name="{check}",type="{name}"}} {passed}')
        return "\n".join([*lines, ""])

    def _checks(self, name: str) -> tuple[str, ...]:
        peers = self._peers
        found = ["ping", "etcd", "rbac"]
        if peers is not None and peers.proxies:
            found.append(HOOK)
        if name != "livez":
            if self._encryption.reports_health:
                found.append(_KEYS)
            found.append(_SHUTDOWN)
        return tuple(found)

    async def _failure(self, name: str, check: str) -> str:
        """What is wrong, or nothing. Nothing makes a server dead that answers."""
        peers, sealing = self._peers, self._encryption.sealing
        if name == "livez":
            return ""
        if check == HOOK and peers is not None and peers.failing:
            return "what the other API servers serve is not known yet"
        if check == _SHUTDOWN and self._streams.stopping:
            return "the server is stopping"
        if check == "etcd" and self.store.failing:
            return "the last change could not be made durable"
        if check == _KEYS and sealing is not None and sealing.outside:
            # Without the reason, which is in the log.
            problems = await sealing.problems()
            return ", ".join(f"kms-provider-{index}" for index, problem in enumerate(problems) if problem)
        return ""
