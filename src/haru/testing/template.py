"""The state of a cluster that has just come up, made once and copied for every cluster that starts from it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from haru.embedded.options import (
    ControllerOptions,
    SchedulerOptions,
    UpOptions,
    UsageOptions,
    parse_profiles,
    parse_runtime_config,
)


@dataclass(frozen=True)
class Template:
    """What a cluster is made of; `prepare` brings one up once and keeps what it wrote.

    `profiles` are simulated nodes (`dgx-h100:2,cpu:1`), empty for none; `controllers` as for `haru up`.
    """

    directory: Path
    profiles: str = "cpu:1"
    feature_gates: str = ""
    runtime_config: str = ""
    controllers: tuple[str, ...] = ("*",)
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    options: UpOptions = field(init=False)

    def __post_init__(self) -> None:
        profiles = parse_profiles(self.profiles) if self.profiles else parse_profiles("cpu:0")
        made = UpOptions(
            profiles=profiles,
            listen=("127.0.0.1", 0),
            feature_gates=self.feature_gates,
            runtime_config=parse_runtime_config(self.runtime_config),
            controllers=ControllerOptions(self.controllers),
            scheduler=SchedulerOptions(self.scheduler_names),
            dashboard=None,
            usage=UsageOptions(history=False),
        )
        object.__setattr__(self, "options", made)

    @property
    def is_prepared(self) -> bool:
        """Whether there is something to copy."""
        return (self.directory / "state.db").exists()

    def prepare(self) -> Template:
        """Bring a cluster up and down once, so that its certificates and first objects need not be made again."""
        from haru.testing.local import LocalCluster

        if not self.is_prepared:
            making = self.directory.with_name(f"{self.directory.name}.new")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            LocalCluster(making, self.options).start().stop()
            making.replace(self.directory)
        return self

    def copy(self, to: Path) -> Path:
        """A directory to start a cluster from."""
        shutil.copytree(self.directory, to)
        return to
