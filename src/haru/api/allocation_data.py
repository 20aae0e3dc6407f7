"""Hold which devices claims get, or why they get none, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class GivenClaim:
    """The allocation of one claim, or one template's claim, as in `status.allocation`."""

    namespace: str
    name: str
    allocation: Obj


@dataclass(frozen=True, slots=True)
class RefusedOn:
    """Nodes that are alike and cannot serve the claims: why, and how the devices narrow down for each request.

    `error` is what aborts the attempt, or empty; `reasons` have `type` and `message`; each of `requests` has its
    `claim`, `request`, `deviceClass`, how many are `needed` (None: all), and the `funnel`.
    """

    nodes: tuple[str, ...]
    reasons: tuple[Obj, ...] = ()
    requests: tuple[Obj, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class AllocationData:
    """The answer: how many nodes were asked, those on which all claims fit, and what they get on the first of those."""

    asked: int
    nodes: tuple[str, ...]
    claims: tuple[GivenClaim, ...]
    refusals: tuple[RefusedOn, ...]

    @property
    def fits(self) -> bool:
        """Whether there is a node on which all claims fit."""
        return bool(self.nodes)

    @property
    def node(self) -> str:
        """The node that `claims` are told for; empty if none serves them."""
        return self.nodes[0] if self.nodes else ""

    def as_dict(self) -> Obj:
        """The DeviceAllocation object of haru.dev/v1alpha1, as `haru allocate -o json` prints it."""
        document: Obj = {
            "apiVersion": "haru.dev/v1alpha1",
            "kind": "DeviceAllocation",
            "fits": self.fits,
            "asked": self.asked,
            "nodes": list(self.nodes),
        }
        if self.fits:
            document["node"] = self.node
            document["claims"] = [
                {"namespace": claim.namespace, "name": claim.name, "allocation": claim.allocation}
                for claim in self.claims
            ]
        document["refusals"] = [_refusal(refused) for refused in self.refusals]
        return document


def _refusal(refused: RefusedOn) -> Mapping[str, Any]:
    error = {"error": refused.error} if refused.error else {}
    causes = {"reasons": list(refused.reasons), "requests": list(refused.requests)}
    return {"nodes": list(refused.nodes), **error, **causes}
