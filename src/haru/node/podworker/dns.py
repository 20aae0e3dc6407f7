"""What stands in a pod's resolv.conf, by its dnsPolicy and dnsConfig.

Source: the kubelet's DNS configurer of 1.36, as behaviour; its limits, events and their messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from haru.kube.meta import Obj
from haru.node.agent.options import DnsOptions
from haru.node.podworker.plan import uses_host_network
from haru.proto import cri_pb2 as cri

_MOST_SERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_LONGEST_SEARCH: Final = 253
_LONGEST_LINE: Final = 2048
Note = tuple[str, str]
"""Reason and message of a warning."""


def dns_of(pod: Obj, options: DnsOptions) -> tuple[cri.DNSConfig, list[Note]]:
    """The servers, searches and options for a pod, and what it is warned of."""
    spec, notes = pod["spec"], list[Note]()
    policy, own = spec.get("dnsPolicy") or "ClusterFirst", spec.get("dnsConfig") or {}
    if policy == "ClusterFirst" and uses_host_network(pod):
        policy = "Default"
    found = _host_dns(options.resolv_conf)
    if policy == "None":
        found = cri.DNSConfig()
    elif policy != "Default" and options.servers:
        domain = options.domain
        cluster = [f"{pod['metadata']['namespace']}.svc.{domain}", f"svc.{domain}", domain] if domain else []
        found = cri.DNSConfig(servers=options.servers, searches=[*cluster, *found.searches], options=["ndots:5"])
    else:
        if policy != "Default":
            notes.append(("MissingClusterDNS", _no_cluster_dns(pod)))
        if options.resolv_conf is None:
            found = cri.DNSConfig(servers=["127.0.0.1"], searches=["."])
    servers = list(dict.fromkeys([*found.servers, *(own.get("nameservers") or ())]))
    searches = list(dict.fromkeys([*found.searches, *(own.get("searches") or ())]))
    set_ = (
        f"{one.get('name', '')}:{one['value']}" if one.get("value") else one["name"] for one in own.get("options") or ()
    )
    kept_servers, kept_searches = servers[:_MOST_SERVERS], _within_limits(searches)
    if kept_servers != servers:
        notes.append(("DNSConfigForming", _omitted("Nameserver limits", "nameservers", "nameserver", kept_servers)))
    if kept_searches != searches:
        notes.append(("DNSConfigForming", _omitted("Search Line limits", "search paths", "search", kept_searches)))
    return cri.DNSConfig(
        servers=kept_servers, searches=kept_searches, options=_last_of_each([*found.options, *set_])
    ), notes


def _host_dns(file: Path | None) -> cri.DNSConfig:
    """What this machine's file says: the last line of searches, each option as it is set last."""
    found, lines = cri.DNSConfig(), list[str]()
    with contextlib.suppress(OSError):
        lines = file.read_text().splitlines() if file is not None else []
    for line in lines:
        word, *values = line.split() or [""]
        if word == "nameserver":
            found.servers.extend(values[:1])
        elif word == "search":
            found.searches[:] = [value.removesuffix(".") for value in values if value != "."]
        elif word == "options":
            found.options[:] = _last_of_each([*found.options, *values])
    return found


def _last_of_each(options: Iterable[str]) -> list[str]:
    return list({one.partition(":")[0]: one for one in options}.values())


def _within_limits(searches: Sequence[str]) -> list[str]:
    kept = [one for one in searches[:_MOST_SEARCHES] if len(one) <= _LONGEST_SEARCH]
    while len(" ".join(kept)) > _LONGEST_LINE:
        kept.pop()
    return kept


def _omitted(limits: str, what: str, line: str, kept: Sequence[str]) -> str:
    return f"{limits} were exceeded, some {what} have been omitted, the applied {line} line is: {' '.join(kept)}"


def _no_cluster_dns(pod: Obj) -> str:
    meta = pod["metadata"]
    return (
        f'pod: "{meta["name"]}_{meta["namespace"]}({meta.get("uid", "")})". kubelet does not have ClusterDNS IP '
        'configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.'
    )
