"""What is written while a cluster stops meets a closed door, not a closed store."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.options import ControllerOptions, SchedulerOptions, UpOptions, UsageOptions, parse_profiles
from haru.embedded.run import has_processes
from haru.kube.kinds import known_kind

EVENTS = known_kind("v1", "Event")


async def test_event_written_after_the_stop_is_refused_without_an_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = UpOptions(
        profiles=parse_profiles("cpu:0"),
        listen=("127.0.0.1", 0),
        controllers=ControllerOptions(()),
        scheduler=SchedulerOptions(()),
        dashboard=None,
        usage=UsageOptions(history=False),
    )
    cluster = EmbeddedCluster(options, tmp_path)
    await cluster.start()
    client = cluster.client("fleet")
    event = {"metadata": {"name": "late"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    with caplog.at_level(logging.WARNING):
        await cluster.stop()
        with pytest.raises(ConnectionError):
            await client.create(EVENTS, event, "default")
    assert not caplog.records


def test_parts_have_processes_on_four_cores_or_by_choice() -> None:
    assert [has_processes("auto", cores) for cores in (1.0, 3.5, 4.0, 16.0)] == [False, False, True, True]
    assert has_processes("split", 1.0) and not has_processes("one", 16.0)
