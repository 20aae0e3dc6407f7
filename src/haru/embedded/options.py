"""The options of `haru up`: flags, the configuration file, and their defaults.

The file is YAML with `apiVersion: haru.dev/v1alpha1`, `kind: UpConfiguration`; a flag wins over the file. Errors name
the field or flag, the value and the remedy.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from haru.embedded.account_tokens import AccountTokenFiles
from haru.embedded.errors import OptionError as OptionError
from haru.embedded.security import SecurityOptions
from haru.engine.framework import PROFILES
from haru.files import text_of
from haru.http2 import MAX_STREAMS
from haru.scheduler.settings import PublishedNames

DEFAULT_PROFILES = "dgx-h100:2,dgx-a100-80gb-mig:1,cpu:1"
Processes = Literal["auto", "one", "split"]
CONFIG_API_VERSION = "haru.dev/v1alpha1"
CONFIG_KIND = "UpConfiguration"


@dataclass(frozen=True, slots=True)
class ProfileCount:
    """`count` simulated nodes of one profile; `profile` is a name or the path of a profile file."""

    profile: str
    count: int


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Where the state of a cluster is kept."""

    data_dir: Path | None = None
    """None: the user's default directory."""
    ephemeral: bool = False
    """Whether the state is removed at exit."""
    write_kubeconfig: Path | None = None
    """A second place for the kubeconfig."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What the scheduler serves, and by which rules."""

    names: tuple[str, ...] = ("default-scheduler",)
    """The schedulerNames that are served; empty: no scheduler runs here."""
    profile: str = "Default"
    """The name of the profile under which they are."""
    config: Path | None = None
    """A KubeSchedulerConfiguration, in place of names and a profile."""
    backfill: bool = True
    """Whether the head of the queue gets a backfill reservation."""
    minimum_run_time: str | None = None
    """Pods that have run for a shorter time are not preempted; a duration."""
    preemption_delay: str | None = None
    """Pods that were created a shorter time ago preempt nothing; a duration."""
    publish_explanations: PublishedNames | None = None
    """Whether conditions and events say why work waits, with names of the own namespace, or of all.

    None: `counts`, but `off` where the time of a test passes, which stands still meanwhile.
    """
    decision_log: Path | None = None
    """The directory of the decision log, which takes at most about `decision_log_mebibytes`."""
    decision_log_mebibytes: int = 256


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Which controllers run, and their settings."""

    names: tuple[str, ...] = ("*",)
    """As `--controllers` of kube-controller-manager; empty: none runs here."""
    stale_gang_after: str | None = None
    """After how long below minCount a gang is stale, as a duration; None: only if it says so itself."""
    stale_gang_policy: str = "Report"


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """What is recorded of the usage of devices."""

    history: bool = True
    """Whether the history for `haru top --since` is written."""
    metrics: tuple[str, int] | None = None
    """Host and port of its metrics, loopback only; None: none are served."""
    card_prices: Path | None = None
    """A price list of cards, for what the page says of idle ones."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `haru up`."""

    profiles: tuple[ProfileCount, ...] = ()
    simulated_nodes: bool = True
    """Whether there are simulated nodes at all: without them nodes come from elsewhere."""
    listen: tuple[str, int] = ("127.0.0.1", 6443)
    """Host and port of the API."""
    processes: Processes = "auto"
    """Whether the API server and the other parts share one process, or are split; auto: split on four cores or more.

    For the command `haru up` only: a cluster of `haru.testing` is in one process.
    """
    http2_streams: int = MAX_STREAMS
    """How many requests a connection of HTTP/2 may have at once; 0: only HTTP/1.1 is served."""
    state: StateOptions = field(default_factory=StateOptions)
    feature_gates: str = ""
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    dashboard: tuple[str, int] | None = ("127.0.0.1", 0)
    """Host and port of the web page, loopback only; None: none is served."""
    explain_api: bool | None = None
    """Whether explain.haru.dev is served; None: by the command `haru up` only."""
    metrics_api: bool | None = None
    """Whether metrics.k8s.io is served for simulated nodes; None: by the command `haru up` only."""
    usage: UsageOptions = field(default_factory=UsageOptions)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    """Encryption at rest, audit and admission."""
    account_tokens: AccountTokenFiles = field(default_factory=AccountTokenFiles)
    """Who signs and verifies ServiceAccount tokens, and how long they live."""

    def with_option(self, path: str, value: Any) -> UpOptions:
        """Return a copy in which one option is set; `path` names it, for example `scheduler.names`."""
        changed: UpOptions = _with_field(self, path, value)
        return changed


def _with_field(options: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return replace(options, **{name: _with_field(getattr(options, name), rest, value) if rest else value})


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
        config = load(text_of(path.read_bytes()))
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
    if options.state.ephemeral and options.state.data_dir is not None:
        raise OptionError(f"--config: {path}: dataDir: Forbidden with ephemeral: true, which keeps nothing")
    return options


def _options_from(config: Mapping[str, Any], where: str) -> UpOptions:
    options = UpOptions()
    for name, value in config.items():
        if name in ("apiVersion", "kind"):
            continue
        known = _FIELDS.get(name)
        if known is None:
            fields = ", ".join(_FIELDS)
            raise OptionError(f"{where}: {name}: Invalid value: {value!r}: unknown field; known are {fields}")
        if not known.accepts(value):
            raise OptionError(f"{where}: {name}: Invalid value: {value!r}: must {known.form}")
        options = options.with_option(known.option, known.read(value, f"{where}: {name}"))
    return options


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the configuration file: the option that it sets, its type, and how it is read."""

    option: str
    type: type
    form: str
    """What the value must do, for the error."""
    read: Callable[[Any, str], Any] = lambda value, where: value

    def accepts(self, value: Any) -> bool:
        """Whether a value has the type of the field."""
        if self.option == "dashboard" and value is False:
            return True
        return isinstance(value, self.type) and (not isinstance(value, int) or self.type is bool or value > 0)


def _path(value: str, where: str) -> Path:
    return Path(value).expanduser()


def _dashboard(value: str | bool, where: str) -> tuple[str, int] | None:
    return parse_dashboard(value, where) if isinstance(value, str) else None


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


def _published_names(value: str, where: str) -> str:
    if value not in get_args(PublishedNames):
        raise OptionError(f"{where}: Invalid value: {value!r}: must be off, counts or names")
    return value


def _known_processes(value: str, where: str) -> str:
    if value not in get_args(Processes):
        raise OptionError(f'{where}: Invalid value: "{value}": must be auto, one or split')
    return value


_TRUE_OR_FALSE = "be true or false"
_PATH = "be a path"
_FIELDS: Final[Mapping[str, _Field]] = {
    "profiles": _Field("profiles", list, "be a list of {name, count} or NAME:COUNT", _profile_list),
    "simulatedNodes": _Field("simulated_nodes", bool, _TRUE_OR_FALSE),
    "listen": _Field("listen", str, "be HOST:PORT", parse_listen),
    "processes": _Field("processes", str, "be auto, one or split", _known_processes),
    "dashboard": _Field("dashboard", str, "be HOST:PORT on loopback, or false for none", _dashboard),
    "explainApi": _Field("explain_api", bool, _TRUE_OR_FALSE),
    "metricsApi": _Field("metrics_api", bool, _TRUE_OR_FALSE),
    "usageHistory": _Field("usage.history", bool, _TRUE_OR_FALSE),
    "usageMetrics": _Field("usage.metrics", str, "be HOST:PORT on loopback", parse_loopback),
    "cardPrices": _Field("usage.card_prices", str, _PATH, _path),
    "dataDir": _Field("state.data_dir", str, _PATH, _path),
    "ephemeral": _Field("state.ephemeral", bool, _TRUE_OR_FALSE),
    "writeKubeconfig": _Field("state.write_kubeconfig", str, _PATH, _path),
    "featureGates": _Field("feature_gates", dict, "map gate names to true or false", _gates_text),
    "runtimeConfig": _Field("runtime_config", dict, "map group/version to true or false", _bool_map),
    "controllers": _Field("controllers.names", list, "be a list of controllers, each NAME, -NAME or *", _names),
    "schedulerNames": _Field("scheduler.names", list, "be a list of names", _names),
    "schedulerProfile": _Field("scheduler.profile", str, "be the name of a profile", _known_profile),
    "schedulerConfig": _Field("scheduler.config", str, "be the path of a KubeSchedulerConfiguration", _path),
    "backfill": _Field("scheduler.backfill", bool, _TRUE_OR_FALSE),
    "minimumRunTime": _Field("scheduler.minimum_run_time", str, "be a duration, for example 10m"),
    "preemptionDelay": _Field("scheduler.preemption_delay", str, "be a duration, for example 30s"),
    "publishExplanations": _Field("scheduler.publish_explanations", str, "be off, counts or names", _published_names),
    "decisionLog": _Field("scheduler.decision_log", str, _PATH, _path),
    "decisionLogMebibytes": _Field("scheduler.decision_log_mebibytes", int, "be a whole number, at least 1"),
    "staleGangAfter": _Field("controllers.stale_gang_after", str, "be a duration, for example 10m"),
    "staleGangPolicy": _Field("controllers.stale_gang_policy", str, "be Report or Evict"),
    "encryptionProviderConfig": _Field(
        "security.encryption_config", str, "be the path of an EncryptionConfiguration", _path
    ),
    "admissionControlConfigFile": _Field(
        "security.admission_config", str, "be the path of an AdmissionConfiguration", _path
    ),
    "auditPolicyFile": _Field("security.audit_policy", str, "be the path of an audit Policy", _path),
    "auditLogPath": _Field("security.audit_log", str, "be a path, or - for the standard output"),
    "auditWebhookConfigFile": _Field("security.audit_webhook", str, "be the path of a kubeconfig", _path),
}
