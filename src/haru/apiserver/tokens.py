"""ServiceAccount tokens: JWTs signed with ES256, bound to an account and optionally to a pod, a node or a secret.

A token is good while its account (and what it is bound to) exists with the same uid. PyJWT and cryptography are
imported when the first token is made or seen: they are slow to load.
Source: KEP 1205, TokenRequest of authentication.k8s.io/v1.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from haru.apiserver.config import UserInfo
from haru.apiserver.core import Core

Obj = dict[str, Any]
ALGORITHM = "ES256"


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token is tied to besides its account."""

    kind: str
    name: str
    uid: str


@lru_cache(maxsize=8)
def _keys(pem: bytes) -> tuple[Any, Any, str]:
    """Private key, public key and key id of a PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    private = load_pem_private_key(pem, None)
    public = private.public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return private, public, hashlib.sha256(der).hexdigest()[:32]


def issue(core: Core, account: Obj, audiences: list[str], seconds: int, bound: Bound | None) -> tuple[str, int]:
    """A token for an account, and when it expires (seconds since the epoch)."""
    import jwt

    private, _, key_id = _keys(core.config.service_account_key_pem)
    metadata = account["metadata"]
    now = int(core.clock().timestamp())
    claims: Obj = {
        "aud": audiences,
        "exp": now + seconds,
        "iat": now,
        "iss": core.config.service_account_issuer,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        },
        "nbf": now,
        "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
    }
    if bound is not None:
        claims["kubernetes.io"][bound.kind] = {"name": bound.name, "uid": bound.uid}
    return jwt.encode(claims, private, ALGORITHM, headers={"kid": key_id}), now + seconds


def audiences_of(core: Core) -> list[str]:
    """Whom tokens are for unless they say otherwise: this server."""
    return [core.config.service_account_issuer]


async def verify(core: Core, token: str, audiences: list[str] | None = None) -> UserInfo | None:
    """The user of a ServiceAccount token; None when it is not one of ours, expired, or its account is gone."""
    if token.count(".") != 2 or not core.config.service_account_key_pem:
        return None
    claims = _claims(core, token, audiences)
    if claims is None:
        return None
    private: Obj = claims.get("kubernetes.io") or {}
    namespace, named = private.get("namespace") or "", private.get("serviceaccount") or {}
    account = await core.peek("", "serviceaccounts", namespace, named.get("name") or "")
    if account is None or account["metadata"]["uid"] != named.get("uid"):
        return None
    extra: dict[str, list[str]] = {}
    if claims.get("jti"):
        extra["authentication.kubernetes.io/credential-id"] = [f"JTI={claims['jti']}"]
    for kind, plural in (("pod", "pods"), ("secret", "secrets"), ("node", "nodes")):
        bound = private.get(kind)
        if bound and not await _still_there(core, plural, namespace, bound, extra):
            return None
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{named['name']}", groups, named["uid"], extra)


def _claims(core: Core, token: str, audiences: list[str] | None) -> Obj | None:
    config = core.config
    claims = _signed(config.service_account_key_pem, config.service_account_issuer, token, tuple(audiences or ()))
    if claims is None:
        return None
    # By the server's own clock, which a test may have set.
    now = core.clock().timestamp()
    return claims if claims["exp"] > now and claims.get("nbf", 0) <= now + 1 else None


@lru_cache(maxsize=4096)
def _signed(pem: bytes, issuer: str, token: str, audiences: tuple[str, ...]) -> Obj | None:
    """What a token says, if it is one of ours for these audiences; the same each time, and dear to find out."""
    import jwt

    _, public, _ = _keys(pem)
    try:
        claims: Obj = jwt.decode(
            token,
            public,
            algorithms=[ALGORITHM],
            audience=audiences or [issuer],
            issuer=issuer,
            options={"require": ["exp", "iat", "sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.InvalidTokenError:
        return None
    return claims


async def _still_there(core: Core, plural: str, namespace: str, bound: Obj, extra: dict[str, list[str]]) -> bool:
    found = await core.read("", plural, "" if plural == "nodes" else namespace, bound.get("name") or "")
    if found is None or found["metadata"]["uid"] != bound.get("uid"):
        return False
    if plural == "pods":
        extra["authentication.kubernetes.io/pod-name"] = [bound["name"]]
        extra["authentication.kubernetes.io/pod-uid"] = [bound["uid"]]
        node = (found.get("spec") or {}).get("nodeName")
        if node:
            extra["authentication.kubernetes.io/node-name"] = [node]
    elif plural == "nodes":
        extra["authentication.kubernetes.io/node-name"] = [bound["name"]]
        extra["authentication.kubernetes.io/node-uid"] = [bound["uid"]]
    return True
