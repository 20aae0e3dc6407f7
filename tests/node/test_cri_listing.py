"""Lists of a runtime: whole however many there are, and never a part in place of the whole (KEP-5825)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from cri_server import Server, containers, served

from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.proto import cri_pb2 as cri
from protobuf_wire import chunk

MANY = 10_000


def ids(found: list[cri.Container]) -> list[str]:
    return [item.id for item in found]


async def test_stream_lists_10000_containers(tmp_path: Path) -> None:
    # 20 MB in all: more than one message may hold.
    server = Server(containers(MANY, 2000))
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        found = await runtime.containers()
    assert ids(found) == ids(list(server.items))  # type: ignore[arg-type]
    assert server.calls == ["stream"]


async def test_unary_list_fails_at_message_size_limit(tmp_path: Path) -> None:
    server = Server(containers(MANY, 2000), streams=False)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        with pytest.raises(CriError) as failed:
            await runtime.containers()
    assert failed.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("batch", [1, 7, 1000])
async def test_stream_batches_may_have_any_size(tmp_path: Path, batch: int) -> None:
    server = Server(containers(50, 10), batch=batch)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        assert len(await runtime.containers()) == 50


async def test_an_empty_stream_is_an_empty_list(tmp_path: Path) -> None:
    server = Server([])
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        assert await runtime.containers() == []
    assert server.calls == ["stream"]


async def test_container_stats_are_streamed_when_supported(tmp_path: Path) -> None:
    labels = {"note": "x" * 2000}
    items = [
        cri.ContainerStats(
            attributes=cri.ContainerAttributes(id=f"id-{n}", labels=labels),
            cpu=cri.CpuUsage(timestamp=1, usage_core_nano_seconds=cri.UInt64Value(value=n)),
        )
        for n in range(MANY)
    ]
    for streams in (True, False):
        server = Server(items[: MANY if streams else 10], "ContainerStats", streams=streams)
        async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
            assert await runtime.container_stats() == list(server.items)
        assert server.calls == ["stream" if streams else "unary"]


async def test_gate_off_uses_unary_list(tmp_path: Path) -> None:
    server = Server(containers(5))
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=False) as runtime:
        assert len(await runtime.containers()) == 5
    assert server.calls == ["unary"]


async def test_runtime_without_streaming_is_asked_for_it_once(tmp_path: Path) -> None:
    server = Server(containers(1000, 1000), streams=False)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        for _ in range(2):
            assert len(await runtime.containers()) == 1000
        assert runtime.lister.fallbacks == {"list_containers": 1}
        assert runtime.lister.failures == {}
    assert server.calls == ["unary"] * 2


async def test_failed_stream_is_an_error_and_not_a_shorter_list(tmp_path: Path) -> None:
    server = Server(containers(MANY, 100), fails_after=10)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        with pytest.raises(CriError, match=r"the store is broken.*after 5000 items, which are dropped"):
            await runtime.containers()
        assert runtime.lister.failures == {"list_containers": 1}
        # It is a failure of this call, not of streams: the next one is a stream again.
        server.fails_after = None
        assert len(await runtime.containers()) == MANY
    assert server.calls == ["stream", "stream"]


@pytest.mark.parametrize("after", [1, 20])
async def test_unimplemented_status_in_mid_stream_is_an_error(tmp_path: Path, after: int) -> None:
    server = Server(containers(MANY, 0), fails_after=after, status=grpc.StatusCode.UNIMPLEMENTED)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        with pytest.raises(CriError) as failed:
            await runtime.containers()
    assert failed.value.code == "UNIMPLEMENTED"
    assert server.calls == ["stream"]


async def test_stream_beyond_deadline_is_dropped(tmp_path: Path) -> None:
    server = Server(containers(MANY, 10), pause=0.2)
    async with (
        served(server, tmp_path / "s") as endpoint,
        RuntimeClient(endpoint, streaming=True, seconds=0.5) as runtime,
    ):
        with pytest.raises(CriError) as failed:
            await runtime.containers()
    assert failed.value.code == "DEADLINE_EXCEEDED"


async def test_slow_stream_within_deadline_is_complete(tmp_path: Path) -> None:
    server = Server(containers(2000, 10), batch=100, pause=0.01)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        assert len(await runtime.containers()) == 2000


async def test_truncated_message_is_an_error(tmp_path: Path) -> None:
    server = Server(containers(10), garbage=chunk(1, containers(1)[0].SerializeToString())[:-3])
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        with pytest.raises(CriError, match="can not be read"):
            await runtime.containers()


async def test_duplicate_items_are_listed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    items = containers(10)
    server = Server([*items, cri.Container(id="id-000003", state=2)])
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        found = await runtime.containers()
    assert sorted(ids(found)) == sorted(ids(items))
    assert next(item for item in found if item.id == "id-000003").state == 2
    assert "listed 1 items twice" in caplog.text


async def test_upgraded_runtime_is_asked_for_streaming_again(tmp_path: Path) -> None:
    async with RuntimeClient(f"unix://{tmp_path}/s", streaming=True) as runtime:
        old = Server(containers(5), streams=False)
        async with served(old, tmp_path / "s"):
            await runtime.containers()
        with pytest.raises(CriError) as failed:
            await runtime.containers()
        assert failed.value.code == "UNAVAILABLE"
        new = Server(containers(5))
        async with served(new, tmp_path / "s"):
            # The connection may take a moment to be made again.
            for _ in range(600):
                found = await or_nothing(runtime)
                if found:
                    break
                await asyncio.sleep(0.05)
            assert len(found) == 5
    assert new.calls == ["stream"]


async def or_nothing(runtime: RuntimeClient) -> list[cri.Container]:
    try:
        return await runtime.containers()
    except CriError as error:
        assert error.code == "UNAVAILABLE"
        return []


def test_batch_is_encoded_as_repeated_field_one() -> None:
    first, second = (item.SerializeToString() for item in containers(2, 10))
    batch = chunk(1, first) + chunk(1, second)
    assert batch[0] == 0x0A
    assert batch[2 + len(first)] == 0x0A


def test_endpoint_must_be_a_unix_socket() -> None:
    with pytest.raises(ValueError, match="write the absolute path of a Unix socket"):
        RuntimeClient("tcp://127.0.0.1:1234")
