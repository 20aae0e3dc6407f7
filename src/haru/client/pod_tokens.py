"""Tokens of ServiceAccounts for the volumes of pods, asked for as kubelets do.

Source: the kubelet's token manager, as behaviour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.pod_environment.volume_files import DEFAULT_TOKEN_SECONDS, Token, renewal_time, token_key, token_requests

_log = logging.getLogger(__name__)
ACCOUNTS: Final = known_kind("v1", "ServiceAccount")
_RENEW_AGAIN_SECONDS: Final = 60.0


class _Kept(NamedTuple):
    text: str
    renew_at: float


class PodTokens:
    """Keep the tokens of pods by uid, and renew them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._kept: dict[str, dict[str, _Kept]] = {}

    def forget(self, uid: str) -> None:
        """The pod has ended."""
        self._kept.pop(uid, None)

    async def of(self, client: ApiClient, pod: Obj) -> Token:
        """Tokens for the pod's projections, made or renewed as need be. Raises StatusError, OSError for a first one."""
        uid = pod["metadata"]["uid"]
        kept = self._kept.setdefault(uid, {})
        for request in token_requests(pod):
            key, now = token_key(request), self._now().timestamp()
            if key in kept and now < kept[key].renew_at:
                continue
            try:
                kept[key] = await self._token(client, pod, request)
            except (OSError, StatusError) as error:
                if key not in kept:
                    raise
                _log.warning("a token of pod %s was not renewed: %s", uid, error)
                kept[key] = _Kept(kept[key].text, now + _RENEW_AGAIN_SECONDS)
        return lambda request: kept[token_key(request)].text

    async def _token(self, client: ApiClient, pod: Obj, request: Mapping[str, Any]) -> _Kept:
        meta, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        audience = request.get("audience")
        spec: Obj = {
            "audiences": [audience] if audience else [],
            "expirationSeconds": request.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        began = self._now().timestamp()
        answer = await client.create_subresource(ACCOUNTS, account, "token", body, meta["namespace"])
        status = answer["status"]
        expires = parse_time(status["expirationTimestamp"]).timestamp()
        return _Kept(status["token"], renewal_time(expires, expires - began))
