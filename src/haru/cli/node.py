"""Run the pods that are bound to this machine in its container runtime.

The node agent uses the Container Runtime Interface (containerd, CRI-O) and works with any API server of Kubernetes
1.36, such as `haru up --no-simulated-nodes`. It needs root. Containers keep running when it stops; the next start
adopts them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component_flags import parse_gates
from haru.cli.connection import add_connection_arguments, connect
from haru.cli.main import UsageError
from haru.cli.node_api_flags import add_server_arguments, server_options
from haru.cli.node_eviction_flags import add_eviction_arguments, eviction_options, image_gc_options
from haru.event_loop import cancelled
from haru.loop_lag import measured_loop
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.node.agent import Agent, NodeOptions
    from haru.node.api import AgentView, ServerOptions

_ROOT = Path("/var/lib/haru/node")
_KUBELET = Path("/var/lib/kubelet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru node`, named as the kubelet's where it has them."""
    from haru.node.agent import DEFAULT_ENDPOINT

    add_connection_arguments(parser)
    parser.add_argument("--hostname-override", metavar="NAME", help="name of the node (default: the host name)")
    parser.add_argument(
        "--container-runtime-endpoint",
        default=DEFAULT_ENDPOINT,
        metavar="SOCKET",
        help=f"CRI socket of the runtime (default {DEFAULT_ENDPOINT})",
    )
    parser.add_argument("--root-dir", type=Path, default=_ROOT, metavar="DIR", help="directory for volumes")
    parser.add_argument(
        "--kubelet-dir",
        type=Path,
        metavar="DIR",
        help="directory in which DRA drivers register and PodResources is served (default /var/lib/kubelet; "
        "with --root-dir that directory)",
    )
    parser.add_argument(
        "--cdi-dir",
        type=Path,
        action="append",
        metavar="DIR",
        help="directory with CDI files, for a runtime without CDI; may be repeated (default /etc/cdi and /var/run/cdi)",
    )
    parser.add_argument(
        "--pod-logs-dir", type=Path, default=Path("/var/log/pods"), metavar="DIR", help="directory for container logs"
    )
    parser.add_argument("--node-ip", action="append", metavar="IP", help="address of the node; may be repeated")
    parser.add_argument(
        "--node-labels", metavar="KEY=VALUE,…", default="", help="labels to add when the node registers"
    )
    parser.add_argument(
        "--register-with-taints",
        metavar="KEY=VALUE:EFFECT,…",
        default="",
        help="taints to set when the node registers for the first time",
    )
    parser.add_argument(
        "--max-pods", type=int, default=110, metavar="COUNT", help="maximum number of pods (default 110)"
    )
    parser.add_argument(
        "--system-reserved",
        metavar="NAME=QUANTITY,…",
        default="",
        help="resources reserved for the system, not available to pods",
    )
    parser.add_argument(
        "--cluster-dns", metavar="IP,…", default="", help="DNS servers for pods with dnsPolicy ClusterFirst"
    )
    parser.add_argument(
        "--cluster-domain",
        metavar="DOMAIN",
        default="cluster.local",
        help="DNS domain of the cluster (default cluster.local)",
    )
    parser.add_argument(
        "--resolv-conf",
        default="/etc/resolv.conf",
        metavar="FILE",
        help='DNS of this machine, for pods with dnsPolicy Default ("": none; default /etc/resolv.conf)',
    )
    parser.add_argument("--cgroup-root", metavar="GROUP", default="/", help="parent cgroup of kubepods (default /)")
    parser.add_argument(
        "--cgroup-driver",
        choices=("cgroupfs", "systemd"),
        default="cgroupfs",
        help="cgroup driver, if the runtime does not report one (default cgroupfs)",
    )
    parser.add_argument(
        "--pod-max-pids",
        type=int,
        default=-1,
        metavar="COUNT",
        help="maximum number of processes and threads of a pod (default -1: no limit)",
    )
    parser.add_argument("--no-cgroups-per-qos", action="store_true", help="create no cgroups for pods")
    parser.add_argument(
        "--no-fail-cgroup-v1",
        action="store_true",
        help="run on a machine with cgroup v1 too, like failCgroupV1: false",
    )
    add_eviction_arguments(parser)
    add_server_arguments(parser)
    parser.add_argument(
        "--memory-throttling-factor",
        type=float,
        default=0.9,
        metavar="SHARE",
        help="with the gate MemoryQoS: the share of its memory limit above which a container is throttled "
        "(default 0.9)",
    )
    parser.add_argument(
        "--memory-reservation-policy",
        choices=("None", "TieredReservation"),
        default="None",
        help="with the gate MemoryQoS: whether requested memory is protected (default None)",
    )
    parser.add_argument(
        "--feature-gates", metavar="NAME=BOOL,…", default="", help="set feature gates, as in Kubernetes"
    )
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def run(options: argparse.Namespace) -> int:
    """Is a node until it is told to stop."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    return asyncio.run(_run(options))


async def _run(flags: argparse.Namespace) -> int:
    from haru.node.agent import Agent, NodeError
    from haru.node.dra import AgentPods, DeviceOptions, NodeDevices, run_with_devices

    options, own_api = node_options(flags), server_options(flags)
    stop = stop_event()
    async with measured_loop(), connect(flags, "haru-node") as client, contextlib.AsyncExitStack() as serving:
        pods = AgentPods()
        device_options = DeviceOptions(with_health=options.gates.enabled("ResourceHealthStatus"))
        devices = NodeDevices(client, _kubelet_dir(flags), options.name, pods, device_options)
        devices.load()
        view, port = await serving.enter_async_context(_served(client, options, own_api, flags))
        pods.agent = view.agent = agent = Agent(client, options, devices=devices, port=port)
        work = asyncio.create_task(run_with_devices(agent, devices))
        waiting = asyncio.create_task(stop.wait())
        telling = asyncio.create_task(_tell(agent, options))
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        stopped = stop.is_set()
        outcome, *_ = await cancelled(work, waiting, telling)
    if isinstance(outcome, NodeError):
        raise outcome
    if isinstance(outcome, Exception) and not stopped:
        print(f"haru node: stopped: {outcome}", file=sys.stderr)
        return 1
    return 0


def _kubelet_dir(flags: argparse.Namespace) -> Path:
    """Where drivers look for a kubelet; a node with a directory of its own keeps to itself."""
    own: Path = flags.root_dir.absolute()
    return flags.kubelet_dir or (_KUBELET if own == _ROOT else own)


@contextlib.asynccontextmanager
async def _served(
    client: ApiClient, options: NodeOptions, own_api: ServerOptions, flags: argparse.Namespace
) -> AsyncGenerator[tuple[AgentView, int], None]:
    """The node's own API. Raises UsageError where it can not be served as it is asked to."""
    from haru.node.api import serve

    told = {
        name.replace("_", "-"): value
        for name, value in vars(flags).items()
        if name != "token" and isinstance(value, str | int | Path)
    }
    async with contextlib.AsyncExitStack() as stack:
        try:
            served = await stack.enter_async_context(serve(client, options, own_api, told))
        except (OSError, ValueError) as error:
            raise UsageError(f"the node's own API: {error}") from error
        yield served


async def _tell(agent: Agent, options: NodeOptions) -> None:
    """One line as soon as the node is ready."""
    await agent.ready.wait()
    print(f"node {options.name} is ready", flush=True)


def node_options(flags: argparse.Namespace) -> NodeOptions:
    """The flags, checked. Raises UsageError that names the flag, the value and the remedy."""
    from haru.drivers.cdi.reader import DIRECTORIES
    from haru.kube.names import is_dns1123_subdomain
    from haru.node.agent import CgroupOptions, DnsOptions, NodeOptions, RegistrationOptions
    from haru.node.cri import endpoint_target

    name = (flags.hostname_override or socket.gethostname()).lower()
    if problems := is_dns1123_subdomain(name):
        raise UsageError(f'--hostname-override: Invalid value: "{name}": {problems[0]}')
    try:
        endpoint_target(flags.container_runtime_endpoint)
    except ValueError as error:
        raise UsageError(f"--container-runtime-endpoint: Invalid value: {error}") from error
    if flags.max_pods < 1:
        raise UsageError(f"--max-pods: Invalid value: {flags.max_pods}: write 1 or more")
    return NodeOptions(
        name=name,
        root=flags.root_dir.absolute(),
        logs=flags.pod_logs_dir.absolute(),
        endpoint=flags.container_runtime_endpoint,
        addresses=tuple(_address(text) for text in flags.node_ip or ()),
        registration=RegistrationOptions(
            labels=_pairs(flags.node_labels, "--node-labels"),
            taints=tuple(_taint(text) for text in flags.register_with_taints.split(",") if text),
        ),
        max_pods=flags.max_pods,
        reserved=_quantities(flags.system_reserved, "--system-reserved"),
        dns=DnsOptions(
            tuple(_address(text, "--cluster-dns") for text in flags.cluster_dns.split(",") if text),
            flags.cluster_domain,
            Path(flags.resolv_conf) if flags.resolv_conf else None,
        ),
        cgroups=CgroupOptions(
            root=flags.cgroup_root,
            driver=flags.cgroup_driver,
            per_qos=not flags.no_cgroups_per_qos,
            fail_v1=not flags.no_fail_cgroup_v1,
            pod_pids_limit=max(0, flags.pod_max_pids),
            memory_throttling_factor=flags.memory_throttling_factor,
            memory_reservation_policy=flags.memory_reservation_policy,
        ),
        eviction=eviction_options(flags),
        image_gc=image_gc_options(flags),
        gates=parse_gates(flags.feature_gates),
        cdi_directories=tuple(directory.absolute() for directory in flags.cdi_dir or DIRECTORIES),
    )


def _address(text: str, flag: str = "--node-ip") -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UsageError(f'{flag}: Invalid value: "{text}": write an IP address') from None


def _pairs(text: str, flag: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise UsageError(f'{flag}: Invalid value: "{part}": write KEY=VALUE')
        found[key] = value
    return found


def _quantities(text: str, flag: str) -> dict[str, str]:
    from haru.kube.quantity import parse_quantity

    found = _pairs(text, flag)
    for name, value in found.items():
        try:
            parse_quantity(value)
        except ValueError as error:
            raise UsageError(f'{flag}: {name}: Invalid value: "{value}": {error}') from error
    return found


def _taint(text: str) -> dict[str, str]:
    from haru.kube.node_taints import parse_taint

    try:
        return parse_taint(text)
    except ValueError as error:
        raise UsageError(f"--register-with-taints: Invalid value: {error}") from error
