"""The scheduler's configuration file and what is read from it."""

from haru.scheduler.configuration.fields import ConfigurationError
from haru.scheduler.configuration.file import (
    Configuration,
    LeaderElection,
    load_configuration,
    read_configuration,
)

__all__ = ["Configuration", "ConfigurationError", "LeaderElection", "load_configuration", "read_configuration"]
