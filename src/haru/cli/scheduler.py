"""Run Haru's scheduler against an API server: a second one beside kube-scheduler, or that of `haru up --no-scheduler`.

It schedules the pods whose schedulerName is `haru` (or what --scheduler-name says). Replicas elect a leader.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from haru.cli.component import Component, add_component_arguments, parse_gates, run_component

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.scheduler.loop import Scheduler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru scheduler`."""
    add_component_arguments(parser, 10259)
    parser.add_argument(
        "--scheduler-name",
        action="append",
        metavar="NAME",
        help="the schedulerName to serve (default haru); repeat it for several",
    )
    parser.add_argument(
        "--scheduler-profile",
        choices=("Default", "HaruPacking"),
        default="Default",
        help="how it chooses: as kube-scheduler does (default), or filling up nodes and cards first",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the scheduler until it is stopped or loses its Lease."""
    gates = parse_gates(options.feature_gates)
    names = options.scheduler_name or ["haru"]
    running: list[Scheduler] = []

    async def work(client: ApiClient) -> None:
        from haru.client.events import EventRecorder
        from haru.engine.profile import PROFILES
        from haru.scheduler.config import scheduler_config
        from haru.scheduler.loop import Scheduler

        config = scheduler_config(gates, names, profile=PROFILES[options.scheduler_profile])
        scheduler = Scheduler(client, config, EventRecorder(client, names[0]))
        running[:] = [scheduler]
        await scheduler.run()

    component = Component(
        lease="haru-scheduler",
        work=work,
        metrics=lambda: running[0].metrics.text() if running else b"",
        ready=lambda: not running or running[0].ready.is_set(),
    )
    return run_component(options, component)
