"""The names that a pod has for itself: its host name, its domain by a subdomain, and its file of hosts. Pure.

Source: GeneratePodHostNameAndDomain and the managed hosts file of the kubelet of 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError

_LONGEST = 63
_LONGEST_FQDN = 64
"""What the kernel takes as a host name."""
_LOCAL = (
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    "fe00::0\tip6-localnet",
    "fe00::0\tip6-mcastprefix",
    "fe00::1\tip6-allnodes",
    "fe00::2\tip6-allrouters",
)


def host_name(pod: Obj) -> str:
    """Return the short host name of a pod, at most 63 characters."""
    spec = pod["spec"]
    given = spec.get("hostnameOverride") or spec.get("hostname") or pod["metadata"]["name"]
    return str(given)[:_LONGEST].rstrip("-.")


def host_domain(pod: Obj, cluster_domain: str) -> str:
    """Return the domain of a pod with a subdomain; else nothing."""
    spec = pod["spec"]
    if not spec.get("subdomain") or spec.get("hostnameOverride"):
        return ""
    return f"{spec['subdomain']}.{pod['metadata']['namespace']}.svc.{cluster_domain}"


def kernel_name(pod: Obj, cluster_domain: str) -> str:
    """Return what `hostname` prints in a pod: with its domain if `setHostnameAsFQDN` says so. Raises `ConfigError`."""
    name, domain = host_name(pod), host_domain(pod, cluster_domain)
    if not domain or not pod["spec"].get("setHostnameAsFQDN"):
        return name
    full = f"{name}.{domain}"
    if len(full) > _LONGEST_FQDN:
        limits = f"({_LONGEST_FQDN} characters is the max, {len(full)} characters requested)"
        raise ConfigError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long {limits}"
        )
    return full


def hosts_text(pod: Obj, addresses: Sequence[str], cluster_domain: str) -> str:
    """Return the hosts file of a pod that has a network of its own, without its hostAliases."""
    name, domain = host_name(pod), host_domain(pod, cluster_domain)
    names = f"{name}.{domain}\t{name}" if domain else name
    return "\n".join(["# Kubernetes-managed hosts file.", *_LOCAL, *(f"{ip}\t{names}" for ip in addresses)])
