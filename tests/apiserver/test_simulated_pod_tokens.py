"""A token of a simulated pod is renewed when a kubelet would, whoever keeps it: the kubelet, or the API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from api_caller import Caller, pod

from haru.apiserver.auth.tokens.issuer import AccountTokens, Issued
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.client.api import ApiClient
from haru.client.pod_tokens import PodTokens
from haru.kube.names import format_time

Obj = dict[str, Any]
DAY = 86_400
READS = "cat /var/run/tokens/token"


class Issuer:
    """Issues numbered tokens, to the API server itself and to its client."""

    can_sign, audiences = True, ("api",)

    def __init__(self, api: Caller) -> None:
        self.api, self.issued = api, 0

    async def issue(self, account: Obj, audiences: object, seconds: int, bound: object) -> Issued:
        self.issued += 1
        return Issued(str(self.issued), "", int(self.api.app.objects.clock().timestamp()) + seconds)

    async def create_subresource(self, kind: object, name: str, sub: str, body: Obj, namespace: str) -> Obj:
        self.issued += 1
        expires = self.api.app.objects.clock() + timedelta(seconds=body["spec"]["expirationSeconds"])
        return {"status": {"token": str(self.issued), "expirationTimestamp": format_time(expires)}}


@pytest.mark.parametrize(
    ("seconds", "renewed"), [(3600, 2880), (600, 480), (DAY, 0.8 * DAY), (2 * DAY, DAY), (30 * DAY, DAY)]
)
async def test_token_is_renewed_after_most_of_its_life_or_a_day(api: Caller, seconds: int, renewed: float) -> None:
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}
    owner = pod("reader", volumes=[{"name": "t", "projected": {"sources": [source]}}])
    owner["metadata"] |= {"uid": "u", "namespace": "default"}
    owner["spec"]["containers"][0]["volumeMounts"] = [{"name": "t", "mountPath": "/var/run/tokens"}]
    request = source["serviceAccountToken"]
    served, asked = Issuer(api), Issuer(api)
    simulated = SimulatedPods(api.app.components.loopback, cast(AccountTokens, served))
    kubelet = PodTokens(api.app.objects.clock)
    for passed, expected in ((0.0, "1"), (renewed - 2, "1"), (4.0, "2"), (renewed - 2, "2"), (4.0, "3")):
        api.clock.advance(seconds=passed)
        sources = await simulated.sources(owner, ("sh", "-c", READS))
        assert sources.token is not None
        of_kubelet = await kubelet.of(cast(ApiClient, asked), owner)
        assert (sources.token(request), of_kubelet(request)) == (expected, expected)
