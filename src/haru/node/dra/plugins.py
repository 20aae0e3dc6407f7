"""One registered DRA driver: its calls, bounded in time.

Sources: kubelet `cm/dra/plugin`, as behaviour; KEP-4381.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from haru.drivers.protocol import HEALTH, V1, V1BETA1, method
from haru.drivers.sockets import call, channel
from haru.kube.go_values import rpc_error
from haru.node.dra.errors import DriverAway, DriverFailed
from haru.node.dra.metrics import DraMetrics
from haru.plugin_channel import calling
from haru.proto import MessageError
from haru.proto import dra_pb2 as dra

if TYPE_CHECKING:
    import grpc.aio

CALL_SECONDS: Final = 45.0
_counter = itertools.count(1)


def negotiate(versions: Sequence[str]) -> str:
    """The newest DRA service that both know, empty if there is none."""
    return next((version for version in (V1, V1BETA1) if version in versions), "")


@dataclass(eq=False)
class Instance:
    """An instance of a driver behind a socket; of several the last registered one is called."""

    driver: str
    endpoint: str
    version: str
    has_health: bool
    registrar: Path
    metrics: DraMetrics
    number: int = field(default_factory=lambda: next(_counter))
    connected: bool = True
    through: grpc.aio.Channel = field(init=False)

    def __post_init__(self) -> None:
        self.through = channel(self.endpoint)

    async def prepare(self, claims: Sequence[dra.Claim]) -> dict[str, list[dra.Device]]:
        """The devices of each claim, by UID. Raises `DriverFailed` if that of any is missing."""
        request = dra.NodePrepareResourcesRequest(claims=claims)
        answer: dra.NodePrepareResourcesResponse = await self._ask(
            "NodePrepareResources", request, dra.NodePrepareResourcesResponse
        )
        _check(self.driver, "NodePrepareResources", claims, answer.claims)
        return {uid: list(answer.claims[uid].devices) for uid in answer.claims}

    async def unprepare(self, claims: Sequence[dra.Claim]) -> None:
        """Unprepare claims. Raises `DriverFailed`."""
        request = dra.NodeUnprepareResourcesRequest(claims=claims)
        answer: dra.NodeUnprepareResourcesResponse = await self._ask(
            "NodeUnprepareResources", request, dra.NodeUnprepareResourcesResponse
        )
        _check(self.driver, "NodeUnprepareResources", claims, answer.claims)

    async def health(self) -> AsyncIterator[dra.NodeWatchResourcesResponse]:
        """Reports of all devices, until the stream ends. Raises `grpc.aio.AioRpcError`."""
        watch = call(self.through, method(HEALTH, "NodeWatchResources"), dra.NodeWatchResourcesResponse, stream=True)
        with calling():
            async for report in watch(dra.NodeWatchResourcesRequest()):
                yield report

    async def connection_changed(self) -> None:
        """Wait until the connection is lost or back; `connected` says which."""
        import grpc

        while True:
            state = self.through.get_state(try_to_connect=True)
            connected = state not in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
            # While a connection is made anew nothing is known: it stays as it was.
            if state is not grpc.ChannelConnectivity.CONNECTING and connected != self.connected:
                self.connected = connected
                return
            await self.through.wait_for_state_change(state)

    async def close(self) -> None:
        """Give the connection up."""
        self.connected = False
        await self.through.close()

    async def _ask(self, name: str, request: Message, answer: type[Message]) -> Any:
        import grpc
        import grpc.aio

        ask = call(self.through, method(self.version, name), answer)
        began, code = time.monotonic(), "OK"
        try:
            return await ask(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            told = f"{name}: {rpc_error(code, error.details() or 'no reason given')}"
            away = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            raise (DriverAway if away else DriverFailed)(told) from None
        except grpc.aio.UsageError:
            code = "CANCELLED"
            raise DriverAway(f"{name}: {rpc_error(code, f'the driver {self.driver} is leaving')}") from None
        except MessageError as error:
            raise DriverFailed(f"{name}: the answer of {self.driver} makes no sense: {error}") from None
        finally:
            self.metrics.calls.labels(self.driver, name, code).observe(time.monotonic() - began)


def _check(driver: str, name: str, claims: Sequence[dra.Claim], answers: Mapping[str, Any]) -> None:
    asked = {claim.uid: claim for claim in claims}
    for uid, claim in asked.items():
        if uid not in answers:
            raise DriverFailed(f"{name} skipped ResourceClaim {claim.name}: the answer of {driver} does not mention it")
        if answers[uid].error:
            raise DriverFailed(f"{name} failed for ResourceClaim {claim.name}: {answers[uid].error}")
    if others := sorted(set(answers) - set(asked)):
        raise DriverFailed(f"DRA driver {driver}: {name}: the answer is about claims nobody asked for: {others}")
