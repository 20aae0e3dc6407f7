"""A scheduler's configuration file: KubeSchedulerConfiguration, as kube-scheduler reads it with `--config`.

What has no meaning here is accepted where leaving it out changes no decision, and refused where it would.
Source: kubescheduler.config.k8s.io/v1 of 1.36 with its defaults and validation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from haru.engine import Profile
from haru.engine.framework import DEFAULT_PROFILE, EXPECTED_PROFILE, PACKING_PROFILE
from haru.engine.plugins import ARGUMENT_READERS
from haru.engine.state import WHOLE, Partition, partition_from
from haru.files import text_of
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required
from haru.kube.yaml import load
from haru.scheduler.configuration.fields import ConfigurationError, Fields, suggestion
from haru.scheduler.configuration.plugins import read_plugins

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_NAME = "default-scheduler"


def read_plugin_config(entries: list[Fields], profile: Profile) -> Profile:
    """Return the profile with the arguments of its plugins."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.need("name")
        arguments = entry.part("args")
        entry.done()
        if name in seen:
            entry.findings.append(duplicate(entry.at("name"), name))
        elif name in ARGUMENT_READERS:
            _check_type(arguments, name)
            profile = ARGUMENT_READERS[name](arguments, profile)
            arguments.done()
        elif name:
            why = f'"{name}": no plugin of this name takes arguments{suggestion(name, ARGUMENT_READERS)}'
            entry.findings.append(forbidden(entry.at("name"), why))
        seen.add(name)
    return profile


def _check_type(arguments: Fields, plugin: str) -> None:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", f"{plugin}Args")):
        given = arguments.text(name, wanted)
        if given != wanted:
            arguments.findings.append(invalid(arguments.at(name), given, f'must be "{wanted}"'))


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """How replicas agree on one that works. Times in seconds."""

    elect: bool = True
    namespace: str = "kube-system"
    name: str = "haru-scheduler"
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says: profiles by schedulerName, backoffs in seconds, leader election, notes for the log."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    kubeconfig: str = ""
    notes: tuple[str, ...] = ()
    partition: Partition = WHOLE


def load_configuration(path: Path, default_name: str = DEFAULT_NAME) -> Configuration:
    """The configuration in a file. Raises ConfigurationError that names the file, and every finding."""
    try:
        found = load(text_of(path.read_bytes()))
        return read_configuration(found, default_name)
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {line}" for line in str(error).splitlines()) from error
    except ValueError as error:
        raise ConfigurationError([f"{path}: {error}"]) from error


def read_configuration(obj: Mapping[str, Any], default_name: str = DEFAULT_NAME) -> Configuration:
    """The configuration in a document. Raises ConfigurationError with every finding.

    `default_name` is the schedulerName of the one profile that there is when the file has none.
    """
    findings: list[FieldError] = []
    top = Fields(dict(obj), "", findings)
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = top.text(name)
        if given != wanted:
            findings.append(invalid(name, given, f'must be "{wanted}"'))
    notes: list[str] = []
    profiles = _profiles(top, default_name, notes)
    initial, most = _backoffs(top)
    leader = _leader_election(top.part("leaderElection"))
    kubeconfig = _connection(top.part("clientConnection"))
    partition = _partition(top.part("partition"))
    _check_share(top, notes)
    parallelism = top.integer("parallelism", 16)
    if parallelism is not None and parallelism <= 0:
        findings.append(invalid("parallelism", parallelism, "should be an integer value greater than zero"))
    top.refuse("extenders", "extenders are not supported: a decision here is one computation over the whole cluster")
    top.skip("enableProfiling", "enableContentionProfiling", "delayCacheUntilActive")
    top.done()
    if findings:
        raise ConfigurationError(findings)
    return Configuration(profiles, initial, most, leader, kubeconfig, tuple(notes), partition)


def _profiles(top: Fields, default_name: str, notes: list[str]) -> dict[str, Profile]:
    found: dict[str, Profile] = {}
    listed = top.parts("profiles")
    for entry in listed:
        # A file with one profile may leave the name out.
        name = entry.text("schedulerName", default_name if len(listed) == 1 else "")
        if not name:
            entry.findings.append(required(entry.at("schedulerName")))
        elif name in found:
            entry.findings.append(duplicate(entry.at("schedulerName"), name))
        found[name] = _profile(entry, notes)
    return found or {default_name: DEFAULT_PROFILE}


def _profile(entry: Fields, notes: list[str]) -> Profile:
    chosen = read_plugins(entry.part("plugins"))
    base = PACKING_PROFILE if chosen.packing else DEFAULT_PROFILE
    scores = chosen.weights.items()
    # Packing replaces the scores that spread: they stay if the file gives them a weight of its own.
    weights = {n: w for n, w in scores if not chosen.packing or n in base.weights or n in chosen.explicit}
    profile = replace(
        base,
        filters=chosen.filters,
        weights=weights,
        placement_weights=chosen.placement_weights,
        preemption=chosen.preemption,
    )
    if chosen.expected:
        profile = replace(profile, expected=EXPECTED_PROFILE.expected, expected_weight=chosen.expected)
    profile = read_plugin_config(entry.parts("pluginConfig"), profile)
    _check_share(entry, notes)
    entry.done()
    if not chosen.packing and chosen == _UNTOUCHED and not entry.has("pluginConfig"):
        return DEFAULT_PROFILE
    return profile


_UNTOUCHED = read_plugins(Fields(None, "", []))


def _backoffs(top: Fields) -> tuple[float, float]:
    initial, most = top.integer("podInitialBackoffSeconds", 1), top.integer("podMaxBackoffSeconds", 10)
    assert initial is not None and most is not None
    if initial <= 0:
        top.findings.append(invalid("podInitialBackoffSeconds", initial, "must be greater than 0"))
    elif most < initial:
        why = "must be greater than or equal to PodInitialBackoffSeconds"
        top.findings.append(invalid("podMaxBackoffSeconds", most, why))
    return float(initial), float(most)


def _check_share(owner: Fields, notes: list[str]) -> None:
    share = owner.integer("percentageOfNodesToScore", 0)
    if share is not None and not 0 <= share <= 100:
        owner.findings.append(invalid(owner.at("percentageOfNodesToScore"), share, "not in valid range [0-100]"))
    elif share not in (None, 0, 100):
        path = owner.at("percentageOfNodesToScore")
        notes.append(f"{path}: every feasible node is scored, as with 100: what is known of a node is kept")


def _connection(connection: Fields) -> str:
    kubeconfig = connection.text("kubeconfig")
    connection.skip("acceptContentTypes", "contentType", "qps", "burst")
    connection.done()
    return kubeconfig


def _partition(given: Fields) -> Partition:
    """The part of the cluster that the scheduler serves: Haru's own field."""
    value: dict[str, Any] = {name: given.texts(name) for name in ("pools", "drivers", "deviceClasses")}
    value |= {"nodeSelector": given.take("nodeSelector"), "nodeTaint": given.text("nodeTaint")}
    given.done()
    try:
        return partition_from(value)
    except (KeyError, ValueError) as error:
        given.findings.append(invalid(given.path, "", str(error)))
        return WHOLE


def _leader_election(election: Fields) -> LeaderElection:
    default = LeaderElection()
    found = LeaderElection(
        elect=election.flag("leaderElect", default.elect),
        namespace=election.text("resourceNamespace", default.namespace),
        name=election.text("resourceName", default.name),
        lease=election.seconds("leaseDuration", default.lease),
        renew=election.seconds("renewDeadline", default.renew),
        retry=election.seconds("retryPeriod", default.retry),
    )
    lock = election.text("resourceLock", "leases")
    election.done()
    if lock != "leases":
        election.findings.append(invalid(election.at("resourceLock"), lock, 'must be "leases"'))
    if not found.lease > found.renew:
        why = "leaseDuration must be greater than renewDeadline"
        election.findings.append(invalid(election.at("leaseDuration"), f"{found.lease:g}s", why))
    if not found.renew > found.retry * 1.2:
        why = "renewDeadline must be greater than retryPeriod * 1.2"
        election.findings.append(invalid(election.at("renewDeadline"), f"{found.renew:g}s", why))
    return found
