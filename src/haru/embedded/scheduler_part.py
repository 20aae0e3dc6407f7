"""The scheduler of `haru up`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.client.event_series import SeriesRecorder
from haru.clock import SYSTEM
from haru.embedded.errors import OptionError
from haru.embedded.gates import gates_of
from haru.embedded.options import SchedulerOptions, UpOptions
from haru.embedded.part import Setting, Tasks
from haru.engine.framework import PROFILES
from haru.scheduler.config import parse_fairness, scheduler_config
from haru.scheduler.configuration import Configuration, ConfigurationError, load_configuration
from haru.scheduler.debugger import StateDump
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import Fairness


class SchedulerPart(Tasks):
    """One scheduler for all its profiles."""

    def __init__(self, options: UpOptions) -> None:
        super().__init__()
        self._options = options.scheduler
        self._gates = gates_of(options)
        self._configuration = _configuration(options.scheduler)
        self._fairness = _fairness(options.scheduler)
        self._scheduler: Scheduler | None = None

    async def start(self, setting: Setting) -> None:
        """Start it; it is ready with its first lists."""
        clock = setting.clock
        in_real_time = clock is SYSTEM
        client = setting.clients.component("scheduler")
        name = next(iter(self._configuration.profiles))
        recorder = SeriesRecorder(client, name, now=clock.now, monotonic=clock.monotonic)
        config = scheduler_config(
            self._gates,
            (),
            configuration=self._configuration,
            fairness=self._fairness,
            publish_explanations=self._options.publish_explanations or ("counts" if in_real_time else "off"),
            # A thread would not see the time of a test stand still.
            explain_inline=not in_real_time,
            clock=clock.now,
            monotonic=clock.monotonic,
        )
        self._scheduler = Scheduler(client, config, recorder, self._decision_log())
        self._run("scheduler", self._scheduler.run())
        await self._until_ready([self._scheduler.ready.wait])

    def phrases(self) -> Sequence[str]:
        """The names that are served."""
        text = f"serves schedulerName {', '.join(self._configuration.profiles)}"
        if self._options.profile != "Default":
            text += f" with the profile {self._options.profile}"
        return (f"{text}, with backfill" if self._fairness.backfill else text,)

    def notes(self) -> Sequence[str]:
        """What is to be said of the configuration file."""
        return [f"--scheduler-config: {note}" for note in self._configuration.notes]

    async def wait_seen(self, revisions: Mapping[str, int]) -> None:
        """Wait until the scheduler counts on what others wrote."""
        assert self._scheduler is not None
        for kind, revision in revisions.items():
            await self._scheduler.wait_seen(kind, revision)

    def dump(self) -> StateDump | None:
        """The state of the scheduler, for the log."""
        return self._scheduler.dump() if self._scheduler is not None else None

    def _decision_log(self) -> DecisionLog | None:
        directory = self._options.decision_log
        try:
            return None if directory is None else DecisionLog(directory, self._options.decision_log_mebibytes)
        except OSError as error:
            why = f"{error.strerror}; name a directory that can be written"
            raise OptionError(f"--decision-log: {directory}: {why}") from None


part = SchedulerPart


def _fairness(options: SchedulerOptions) -> Fairness:
    try:
        return parse_fairness(options.backfill, options.minimum_run_time, options.preemption_delay)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _configuration(options: SchedulerOptions) -> Configuration:
    """The profiles to serve; none if no scheduler runs here."""
    if options.config is None or not options.names:
        return Configuration(dict.fromkeys(options.names, PROFILES[options.profile]))
    if options.profile != "Default" or options.names != SchedulerOptions().names:
        raise OptionError("--scheduler-config: Forbidden with --scheduler-name or --scheduler-profile: name them there")
    try:
        return load_configuration(options.config)
    except ConfigurationError as error:
        raise OptionError(f"--scheduler-config: {error}") from error
