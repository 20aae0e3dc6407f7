"""Haru's scheduler does with each side-by-side case what another one did on a real API server.

That is kube-scheduler 1.36.2, and for gangs of scheduler-plugins 0.34.7 its plugin in kube-scheduler 1.34.4.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, GATES
from coscheduling_cases import COSCHEDULING
from foreign_definitions import definition
from manifests import Case
from player import Player

import virtual_time
from haru.apiserver.config import UserInfo
from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.client.event_series import SeriesRecorder
from haru.controllers.manager import ControllerManager
from haru.embedded.identity import controller_user
from haru.event_loop import cancelled
from haru.gangs import COSCHEDULING_POD_GROUP
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.scheduler.config import scheduler_config
from haru.scheduler.scheduler import Scheduler
from side_by_side import unequal
from virtual_server import started_server

Outcomes = dict[str, list[Any]]
ALL = {**CASES, **COSCHEDULING}
_DEFINITIONS = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_QUIET = 12.0  # longer than the longest backoff of a pod
_TICK = 3.0


def recorded(name: str) -> Outcomes:
    outcomes: Outcomes = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    return outcomes


KUBE_SCHEDULER, SCHEDULER_PLUGINS = recorded("kube-scheduler-1.36.2"), recorded("coscheduling-0.34.7")
RECORD = {**KUBE_SCHEDULER, **SCHEDULER_PLUGINS}


async def _play(cases: Mapping[str, Case]) -> Outcomes:
    loop = asyncio.get_running_loop()
    gates = FeatureGates(dict.fromkeys(GATES, True))
    server = await started_server(gates)

    def client_of(controller: str) -> ApiClient:
        server.admit(controller, UserInfo(*controller_user(controller)))
        return ApiClient.in_process(server, controller, "tests")

    api = ApiClient.in_process(server, "admin")
    await api.create(_DEFINITIONS, definition(COSCHEDULING_POD_GROUP, "v1alpha1"))
    await adapt_to_server(api)
    # No kubelet renews the Leases of these nodes.
    controllers = ("*", "-node-lifecycle-controller")
    manager = ControllerManager(api, gates, controllers, clock=virtual_time.clock(), clients=client_of)
    config = scheduler_config(gates, ("default-scheduler",), clock=virtual_time.now, monotonic=loop.time)
    recorder = SeriesRecorder(api, "default-scheduler", now=virtual_time.now, monotonic=loop.time)
    scheduler = Scheduler(ApiClient.in_process(server, "admin"), config, recorder)
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(scheduler.run())]
    try:
        await scheduler.ready.wait()
        player = Player(api, "default-scheduler", loop.time, _QUIET, _TICK)
        return {name: await player.play(one) for name, one in cases.items()}
    finally:
        await cancelled(*tasks)
        await server.stop()


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    found: Outcomes = virtual_time.run(_play(ALL))
    return found


def test_every_case_was_recorded() -> None:
    assert list(KUBE_SCHEDULER) == list(CASES)
    assert list(SCHEDULER_PLUGINS) == list(COSCHEDULING)


@pytest.mark.parametrize("name", ALL)
def test_outcome_is_that_of_the_other_scheduler(name: str, outcomes: Outcomes) -> None:
    if ALL[name].on_purpose:
        assert unequal(outcomes[name], RECORD[name]), f"no longer another outcome: {ALL[name].on_purpose}"
    else:
        assert not unequal(outcomes[name], RECORD[name]), (outcomes[name], RECORD[name])
