"""What a ServiceAccount's token says (KEP 1205; node and jti: KEP 4193)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haru.kube.meta import Obj

WARN_AFTER_SECONDS = 3607
"""What the tokens of projected volumes ask for; such a token of a pod may be good for longer than it says."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that a token is tied to."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenLifetime:
    """When a token is issued (seconds since the epoch), and for how many seconds it is said to be valid, and is."""

    issued: int
    told: int
    real: int

    @property
    def extended(self) -> bool:
        """Whether it is valid for longer than it says."""
        return self.real != self.told


def claims_of(
    account: Obj,
    issuer: str,
    audiences: Sequence[str],
    life: TokenLifetime,
    bound: Mapping[str, Reference],
) -> Obj:
    """The payload, without the token's id (`jti`). `bound` is by `pod`, `node`, `secret`."""
    metadata = account["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    private: Obj = {"namespace": namespace, "serviceaccount": {"name": name, "uid": metadata["uid"]}}
    for kind, reference in bound.items():
        private[kind] = {"name": reference.name, **({"uid": reference.uid} if reference.uid else {})}
    if life.extended:
        private["warnafter"] = life.issued + life.told
    return {
        "aud": list(audiences),
        "exp": life.issued + life.real,
        "iat": life.issued,
        "iss": issuer,
        "kubernetes.io": private,
        "nbf": life.issued,
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
