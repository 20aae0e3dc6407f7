"""What `haru up` can be told: flags, the configuration file, and their defaults.

The file is YAML with `apiVersion: haru.dev/v1alpha1`, `kind: UpConfiguration`; a flag wins over the file. Errors name
the field or flag, the value and the remedy.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from haru.embedded.account_tokens import AccountTokenFiles
from haru.embedded.errors import OptionError as OptionError
from haru.embedded.security import SecurityOptions
from haru.engine.framework import PROFILES
from haru.http2 import MAX_STREAMS

DEFAULT_PROFILES = "dgx-h100:2,dgx-a100-80gb-mig:1,cpu:1"
CONFIG_API_VERSION = "haru.dev/v1alpha1"
CONFIG_KIND = "UpConfiguration"


@dataclass(frozen=True, slots=True)
class ProfileCount:
    """`count` simulated nodes of one profile; `profile` is a name or the path of a profile file."""

    profile: str
    count: int


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Everything that `haru up` needs to know."""

    profiles: tuple[ProfileCount, ...] = ()
    simulated_nodes: bool = True
    """Whether there are simulated nodes at all: without them nodes come from elsewhere."""
    host: str = "127.0.0.1"
    port: int = 6443
    data_dir: Path | None = None
    ephemeral: bool = False
    write_kubeconfig: Path | None = None
    feature_gates: str = ""
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    controllers: tuple[str, ...] = ("*",)
    """As `--controllers` of kube-controller-manager; empty: none runs here."""
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    """The schedulerNames that are served; empty: no scheduler runs here."""
    scheduler_profile: str = "Default"
    """The name of the profile under which they are."""
    scheduler_config: Path | None = None
    """A KubeSchedulerConfiguration, in place of names and a profile."""
    backfill: bool = True
    """Whether places are kept for the head of the queue."""
    minimum_run_time: str | None = None
    """What has run for a shorter time is evicted for nobody; a duration."""
    preemption_delay: str | None = None
    """Nobody is evicted for pods that were created a shorter time ago; a duration."""
    decision_log: Path | None = None
    """Where every decision is written down, in at most about `decision_log_mebibytes`."""
    decision_log_mebibytes: int = 256
    stale_gang_after: str | None = None
    """After how long below minCount a gang is stale, as a duration; None: it never is, unless it says so itself."""
    stale_gang_policy: str = "Report"
    dashboard: tuple[str, int] | None = ("127.0.0.1", 0)
    """Host and port of the web page, loopback only; None: none is served."""
    usage_history: bool = True
    """Whether it is written down who holds which devices, for `haru top --since`."""
    usage_metrics: tuple[str, int] | None = None
    """Host and port of the metrics of that, loopback only; None: none are served."""
    security: SecurityOptions = field(default_factory=SecurityOptions)
    """Encryption at rest, and the audit log."""
    account_tokens: AccountTokenFiles = field(default_factory=AccountTokenFiles)
    """Who signs ServiceAccount tokens, who checks them, and for how long they are good."""
    http2_streams: int = MAX_STREAMS
    """How many requests a connection of HTTP/2 may have at once; 0: only HTTP/1.1 is served."""
    extra: Mapping[str, Any] = field(default_factory=dict)


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where state is kept: `$XDG_STATE_HOME/haru`, by default `~/.local/state/haru`."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base) / "haru"


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory of `haru up` without `--data-dir`."""
    return state_home(environ) / "default"


def parse_profiles(text: str, where: str = "--profile") -> tuple[ProfileCount, ...]:
    """`NAME:COUNT,NAME,FILE.yaml:COUNT` → profile counts; a missing count is 1, the same profile twice adds up."""
    counts: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, number = part.rpartition(":")
        if not colon:
            name, number = part, "1"
        if not name or not number.isdigit():
            raise OptionError(f'{where}: Invalid value: "{part}": write NAME:COUNT with a count of 0 or more')
        counts[name] = counts.get(name, 0) + int(number)
    if not counts:
        raise OptionError(f'{where}: Invalid value: "{text}": name at least one profile, for example dgx-h100:2')
    return tuple(ProfileCount(name, count) for name, count in counts.items())


def parse_listen(text: str, where: str = "--listen") -> tuple[str, int]:
    """`HOST:PORT` → host and port; port 0 takes a free one. IPv6 addresses stand in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise OptionError(f'{where}: Invalid value: "{text}": write HOST:PORT, for example 127.0.0.1:6443')
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise OptionError(
                f'{where}: Invalid value: "{text}": the host must be an IP address or localhost'
            ) from None
    return host, int(port)


def parse_dashboard(text: str, where: str = "--dashboard") -> tuple[str, int]:
    """`HOST:PORT` of the dashboard, which must be a loopback address."""
    from haru.dashboard.access import check_loopback

    host, port = parse_listen(text, where)
    try:
        check_loopback(host, port, where)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return host, port


def parse_loopback(text: str, where: str) -> tuple[str, int]:
    """`HOST:PORT` of something that only this machine may read."""
    host, port = parse_listen(text, where)
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise OptionError(f'{where}: Invalid value: "{text}": it listens on loopback only; take 127.0.0.1:{port}')
    return host, port


def parse_runtime_config(text: str, where: str = "--runtime-config") -> dict[str, bool]:
    """`api/all=true,resource.k8s.io/v1beta1=false` → version or pseudo-key to on or off."""
    result: dict[str, bool] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = part.partition("=")
        if value.lower() not in ("", "true", "false") or (equals and not value):
            raise OptionError(f'{where}: Invalid value: "{part}": write GROUP/VERSION=true or =false')
        result[key] = value.lower() != "false"
    return result


def check_versions(runtime_config: Mapping[str, bool]) -> None:
    """Raises OptionError for a key that names no API version."""
    from haru.kube.kinds import group_versions

    known = {f"{group}/{version}".removeprefix("/") for group, version in group_versions()}
    known |= {"api/v1", "api/all", "api/ga", "api/beta", "api/alpha"}
    for key in runtime_config:
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), 1)
            hint = f"did you mean {close[0]}?" if close else "write GROUP/VERSION, api/all, api/beta or api/alpha"
            raise OptionError(f'--runtime-config: Invalid value: "{key}": no such API version; {hint}')


def read_config(path: Path, load: Callable[[str], Any]) -> UpOptions:
    """Options from a configuration file. `load` parses YAML text to one object."""
    try:
        config = load(path.read_text())
    except OSError as error:
        raise OptionError(f"--config: {path}: {error.strerror}") from None
    except ValueError as error:
        raise OptionError(f"--config: {path}: {error}") from None
    if not isinstance(config, dict):
        raise OptionError(f"--config: {path}: must be a mapping with apiVersion: {CONFIG_API_VERSION}")
    for name, wanted in (("apiVersion", CONFIG_API_VERSION), ("kind", CONFIG_KIND)):
        if config.get(name) != wanted:
            raise OptionError(f'--config: {path}: {name}: Invalid value: "{config.get(name)}": must be "{wanted}"')
    options = _options_from(config, str(path))
    if options.ephemeral and options.data_dir is not None:
        raise OptionError(f"--config: {path}: dataDir: Forbidden with ephemeral: true, which keeps nothing")
    return options


def _options_from(config: Mapping[str, Any], where: str) -> UpOptions:
    options = UpOptions()
    for name, value in config.items():
        match name, value:
            case (("apiVersion" | "kind"), _):
                continue
            case "profiles", list():
                options = replace(options, profiles=_profile_list(value, f"{where}: profiles"))
            case "simulatedNodes", bool():
                options = replace(options, simulated_nodes=value)
            case "listen", str():
                host, port = parse_listen(value, f"{where}: listen")
                options = replace(options, host=host, port=port)
            case "dashboard", str():
                options = replace(options, dashboard=parse_dashboard(value, f"{where}: dashboard"))
            case "dashboard", False:
                options = replace(options, dashboard=None)
            case "usageHistory", bool():
                options = replace(options, usage_history=value)
            case "usageMetrics", str():
                options = replace(options, usage_metrics=parse_loopback(value, f"{where}: usageMetrics"))
            case "dataDir", str():
                options = replace(options, data_dir=Path(value).expanduser())
            case "ephemeral", bool():
                options = replace(options, ephemeral=value)
            case "writeKubeconfig", str():
                options = replace(options, write_kubeconfig=Path(value).expanduser())
            case "featureGates", dict():
                options = replace(options, feature_gates=_gates_text(value, f"{where}: featureGates"))
            case "runtimeConfig", dict():
                options = replace(options, runtime_config=_bool_map(value, f"{where}: runtimeConfig"))
            case "controllers", list():
                options = replace(options, controllers=_names(value, f"{where}: controllers"))
            case "schedulerNames", list():
                options = replace(options, scheduler_names=_names(value, f"{where}: schedulerNames"))
            case "schedulerConfig", str():
                options = replace(options, scheduler_config=Path(value).expanduser())
            case "backfill", bool():
                options = replace(options, backfill=value)
            case "minimumRunTime", str():
                options = replace(options, minimum_run_time=value)
            case "preemptionDelay", str():
                options = replace(options, preemption_delay=value)
            case "decisionLog", str():
                options = replace(options, decision_log=Path(value).expanduser())
            case "decisionLogMebibytes", int() if value > 0:
                options = replace(options, decision_log_mebibytes=value)
            case "staleGangAfter", str():
                options = replace(options, stale_gang_after=value)
            case "staleGangPolicy", str():
                options = replace(options, stale_gang_policy=value)
            case "schedulerProfile", str():
                options = replace(options, scheduler_profile=_known_profile(value, f"{where}: schedulerProfile"))
            case "encryptionProviderConfig", str():
                security = replace(options.security, encryption_config=Path(value).expanduser())
                options = replace(options, security=security)
            case "admissionControlConfigFile", str():
                security = replace(options.security, admission_config=Path(value).expanduser())
                options = replace(options, security=security)
            case "auditPolicyFile", str():
                options = replace(options, security=replace(options.security, audit_policy=Path(value).expanduser()))
            case "auditLogPath", str():
                options = replace(options, security=replace(options.security, audit_log=value))
            case "auditWebhookConfigFile", str():
                options = replace(options, security=replace(options.security, audit_webhook=Path(value).expanduser()))
            case _:
                raise OptionError(f"{where}: {name}: Invalid value: {value!r}: {_CONFIG_HELP.get(name, _UNKNOWN)}")
    return options


_CONFIG_HELP = {
    "profiles": "must be a list of {name, count} or NAME:COUNT",
    "simulatedNodes": "must be true or false",
    "listen": "must be HOST:PORT",
    "dashboard": "must be HOST:PORT on loopback, or false for none",
    "usageHistory": "must be true or false",
    "usageMetrics": "must be HOST:PORT on loopback",
    "dataDir": "must be a path",
    "ephemeral": "must be true or false",
    "writeKubeconfig": "must be a path",
    "featureGates": "must map gate names to true or false",
    "runtimeConfig": "must map group/version to true or false",
    "controllers": "must be a list of controllers, each NAME, -NAME or *",
    "schedulerNames": "must be a list of names",
    "schedulerProfile": "must be the name of a profile",
    "schedulerConfig": "must be the path of a KubeSchedulerConfiguration",
    "backfill": "must be true or false",
    "minimumRunTime": "must be a duration, for example 10m",
    "preemptionDelay": "must be a duration, for example 30s",
    "decisionLog": "must be a path",
    "decisionLogMebibytes": "must be a whole number, at least 1",
    "staleGangAfter": "must be a duration, for example 10m",
    "staleGangPolicy": "must be Report or Evict",
    "encryptionProviderConfig": "must be the path of an EncryptionConfiguration",
    "admissionControlConfigFile": "must be the path of an AdmissionConfiguration",
    "auditPolicyFile": "must be the path of an audit Policy",
    "auditLogPath": "must be a path, or - for the standard output",
    "auditWebhookConfigFile": "must be the path of a kubeconfig",
}
_UNKNOWN = f"unknown field; known are {', '.join(_CONFIG_HELP)}"


def _known_profile(name: str, where: str) -> str:
    if name not in PROFILES:
        raise OptionError(f'{where}: Invalid value: "{name}": there are {", ".join(PROFILES)}')
    return name


def _profile_list(items: list[Any], where: str) -> tuple[ProfileCount, ...]:
    result: list[ProfileCount] = []
    for index, item in enumerate(items):
        path = f"{where}[{index}]"
        if isinstance(item, str):
            result.extend(parse_profiles(item, path))
        elif isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("count", 1), int):
            unknown = set(item) - {"name", "count"}
            if unknown:
                raise OptionError(f"{path}.{min(unknown)}: unknown field; known are name and count")
            if item.get("count", 1) < 0:
                raise OptionError(f"{path}.count: Invalid value: {item['count']}: must be 0 or more")
            result.append(ProfileCount(item["name"], item.get("count", 1)))
        else:
            raise OptionError(f"{path}: Invalid value: {item!r}: must be NAME:COUNT or {{name, count}}")
    return tuple(result)


def _names(items: list[Any], where: str) -> tuple[str, ...]:
    for index, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise OptionError(f"{where}[{index}]: Invalid value: {item!r}: must be a name")
    return tuple(items)


def _bool_map(value: Mapping[Any, Any], where: str) -> dict[str, bool]:
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, bool):
            raise OptionError(f"{where}.{key}: Invalid value: {item!r}: must be true or false")
    return dict(value)


def _gates_text(value: Mapping[Any, Any], where: str) -> str:
    return ",".join(f"{key}={'true' if on else 'false'}" for key, on in _bool_map(value, where).items())
