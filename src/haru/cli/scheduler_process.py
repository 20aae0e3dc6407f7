"""The scheduler of `haru scheduler` in its process: what it is made of, and when it starts anew.

Whoever becomes the leader asks the server what it is. When the server changes, the scheduler starts anew with the gates
of the other version.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.component import Component, Election
from haru.cli.main import UsageError
from haru.event_loop import cancelled
from haru.scheduler.coexistence import LABELS, OverlapError, PartitionGuard, annotations_of
from haru.scheduler.configuration import Configuration, LeaderElection, configuration_document

if TYPE_CHECKING:
    from haru.accounting.collector import UsageCollector
    from haru.client.api import ApiClient
    from haru.client.server_version import ServerVersion
    from haru.kube.gates import FeatureGates
    from haru.scheduler.decision_log import DecisionLog
    from haru.scheduler.scheduler import Scheduler
    from haru.scheduler.settings import Fairness, SchedulerConfig

_MODULES = ("haru.client.discovery", "haru.client.event_series", "haru.client.gate_probes", "haru.scheduler.scheduler")
_log = logging.getLogger(__name__)


class SchedulerProcess:
    """What flags and a configuration ask for; `component` runs it."""

    def __init__(
        self, options: argparse.Namespace, given: FeatureGates, configuration: Configuration, fairness: Fairness
    ) -> None:
        self._options, self._given, self._configuration, self._fairness = options, given, configuration, fairness
        self._scheduler: Scheduler | None = None
        self._usage: UsageCollector | None = None
        self._refusal = ""
        """Why the partition may not be served any more."""
        leader = configuration.leader_election
        self.component = Component(
            lease=leader.name,
            work=self._work,
            metrics=self._metrics,
            ready=lambda: self._scheduler is not None and self._scheduler.ready.is_set(),
            modules=_MODULES,
            election=Election(leader.elect, leader.namespace, leader.lease, leader.renew, leader.retry),
            gates=given,
            prepare=self._check_partitions,
            labels=LABELS,
            annotations=annotations_of(configuration.profiles, configuration.partition),
            dump=lambda: self._scheduler.dump() if self._scheduler is not None else None,
            configuration=self._shown_configuration,
            multiplexed=True,
        )

    async def _work(self, client: ApiClient) -> None:
        from haru.client.discovery import adapt_to_server, wait_for_change

        for note in self._configuration.notes:
            _log.info("--config: %s", note)
        while True:
            version = await adapt_to_server(client)
            scheduling = asyncio.create_task(self._schedule(client, version))
            changing = asyncio.create_task(wait_for_change(client, version))
            try:
                await asyncio.wait({scheduling, changing}, return_when=asyncio.FIRST_COMPLETED)
                if self._refusal:
                    raise UsageError(self._refusal)
                if scheduling.done():
                    return await scheduling
            finally:
                await cancelled(scheduling, changing)
            _log.info("the API server has changed to 1.%s: the scheduler starts anew", changing.result().minor)

    async def _schedule(self, client: ApiClient, version: ServerVersion) -> None:
        from haru.client.event_series import SeriesRecorder
        from haru.scheduler.scheduler import Scheduler

        options = self._options
        gates = self.component.gates = await self._gates(client, version)
        log = _decision_log(options.decision_log, options.decision_log_size)
        recorder = SeriesRecorder(client, next(iter(self._configuration.profiles)))
        self._scheduler = scheduler = Scheduler(client, self._config(gates), recorder, log)
        self._usage = _usage_collector(options.usage_history, client, gates)
        async with asyncio.TaskGroup() as group:
            group.create_task(scheduler.run(), name="scheduler")
            group.create_task(self._watch_partitions(client, scheduler), name="partitions")
            if self._usage is not None:
                group.create_task(self._usage.run(), name="accounting")

    async def _gates(self, client: ApiClient, version: ServerVersion) -> FeatureGates:
        """The gates for the server: those that are given, and what it is found to keep."""
        from haru.client.gate_probes import doubtful_gates, kept_gates
        from haru.client.server_version import gates_for_server

        kept = await kept_gates(client, doubtful_gates(self._given.overrides, version))
        gates, unknown = gates_for_server(self._given.overrides, version, kept)
        if on := sorted(gate for gate, value in kept.items() if value):
            _log.info("the API server keeps the fields of %s, off in 1.%s by default", ", ".join(on), version.minor)
        if unknown:
            _log.warning("--feature-gates: 1.%s does not have %s", gates.minor, ", ".join(unknown))
        return gates

    def _config(self, gates: FeatureGates) -> SchedulerConfig:
        from haru.scheduler.config import scheduler_config

        options = self._options
        return scheduler_config(
            gates,
            (),
            configuration=self._configuration,
            fairness=self._fairness,
            hold_group_members=not options.schedule_group_members_singly,
            confirm_allocations=options.confirm_allocations,
            gang_adapters=options.gang_adapters,
            publish_explanations=options.publish_explanations or "counts",
        )

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _guard(self, client: ApiClient) -> PartitionGuard:
        lease = f"{self.component.election.namespace}/{self.component.lease}"
        allow = self._options.allow_overlapping_partitions
        return PartitionGuard(client, lease, self._configuration.partition, allow=allow)

    async def _check_partitions(self, client: ApiClient) -> None:
        try:
            await self._guard(client).check()
        except OverlapError as error:
            raise UsageError(str(error)) from None

    async def _watch_partitions(self, client: ApiClient, scheduler: Scheduler) -> None:
        await scheduler.ready.wait()
        try:
            await scheduler.watch_partitions(self._guard(client))
        except OverlapError as error:
            self._refusal = str(error)
            raise

    # -- what is shown ------------------------------------------------------------------------------------------------

    def _metrics(self) -> bytes:
        scheduler, usage = self._scheduler, self._usage
        return (scheduler.metrics.text() if scheduler is not None else b"") + (
            usage.text() if usage is not None else b""
        )

    def _shown_configuration(self, election: Election, lease: str) -> Mapping[str, Any]:
        elected = LeaderElection(
            election.elect, election.namespace, lease, election.lease, election.renew, election.retry
        )
        kubeconfig = str(self._options.kubeconfig or "")
        return configuration_document(replace(self._configuration, leader_election=elected, kubeconfig=kubeconfig))


def _decision_log(directory: Path | None, size: int | None) -> DecisionLog | None:
    """The decision log that flags ask for. Raises UsageError."""
    from haru.scheduler.decision_log import DEFAULT_MEBIBYTES, DecisionLog

    try:
        return None if directory is None else DecisionLog(directory.expanduser(), size or DEFAULT_MEBIBYTES)
    except OSError as error:
        why = f"{error.strerror}; name a directory that can be written"
        raise UsageError(f"--decision-log: {directory}: {why}") from None


def _usage_collector(directory: Path | None, client: ApiClient, gates: FeatureGates) -> UsageCollector | None:
    """Who keeps the usage history that --usage-history asks for. Raises UsageError."""
    if directory is None:
        return None
    from haru.accounting.collector import UsageCollector
    from haru.accounting.history import NAME, History, HistoryError
    from haru.engine import Features

    try:
        history = History(directory.expanduser() / NAME)
        return UsageCollector(client, history, features=Features.from_gates(gates.all()))
    except HistoryError as error:
        raise UsageError(f"--usage-history: {error}") from error
