"""What a container is made of: its environment, its configuration, what the runtime is told, whose image it is."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from haru.kube.pod_environment.environment import ReferencedObjects, command_of, environment, expand
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts, field_value, resource_value
from haru.node.agent.images import ImageManager, StartError, check_user, credentials, pull_policy, registry_of
from haru.node.agent.options import DnsOptions
from haru.node.cgroups.amounts import Amounts
from haru.node.cri.errors import CriError
from haru.node.podworker import container_start
from haru.node.podworker.config import ContainerInputs, SandboxInputs, container_config, sandbox_config
from haru.node.podworker.dns import dns_of
from haru.node.podworker.host_names import hosts_text
from haru.node.podworker.observed import MESSAGE_POLICY, ContainerFiles, SeenContainer
from haru.node.podworker.runtime_status import termination_message
from haru.node.probes.schedule import ProbeState, target_port
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]
NOBODY = ReferencedObjects(lambda _: None, lambda _: None)
PLACE = DownwardFacts(("192.0.2.1",), ("10.0.0.1", "fd00::1"), {"cpu": "4", "memory": "8Gi"})


def pod(*containers: Obj, **spec: Any) -> Obj:
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": {"l": "1"}, "annotations": {"a": "2"}}
    whole = {
        "nodeName": "here",
        **spec,
        "containers": [{"image": "i", **one} for one in containers or ({"name": "c"},)],
    }
    return {"metadata": meta, "spec": whole}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("$$(A)", "$(A)"),
        ("$(X)", "$(X)"),
        ("$A", "$A"),
        ("100$", "100$"),
        ("$$$(A)", "$1"),
        ("$(A", "$(A"),
    ],
)
def test_variable_references_are_expanded(text: str, result: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == result


def test_variable_may_reference_earlier_ones() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "$(B)"}]
    values = environment(pod(), {"name": "c", "env": env}, NOBODY, PLACE, [("A", "0"), ("G", "given")])
    assert values == {"A": b"1", "G": b"given", "B": b"1$(C)", "C": b"1$(C)"}
    assert command_of({"command": ["x", "$(A)"], "args": ["$(G)"]}, values) == (["x", "1"], ["given"])


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"configMapKeyRef": {"name": "x", "key": "k"}}, 'configmap "x" not found'),
        ({"secretKeyRef": {"name": "x", "key": "k"}}, 'secret "x" not found'),
        ({"configMapKeyRef": {"name": "there", "key": "k"}}, "couldn't find key k in ConfigMap n/there"),
        ({"fieldRef": {"fieldPath": "spec.nobody"}}, "unsupported fieldPath: spec.nobody"),
        ({"fileKeyRef": {"volumeName": "v"}}, "fileKeyRef is not supported on this node"),
    ],
)
def test_missing_environment_source_is_reported(variable: Obj, message: str) -> None:
    sources = ReferencedObjects(lambda name: {} if name == "there" else None, lambda _: None)
    with pytest.raises(ConfigError, match=message):
        environment(pod(), {"name": "c", "env": [{"name": "A", "valueFrom": variable}]}, sources, PLACE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['l']", "1"),
        ("metadata.annotations['a']", "2"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "here"),
        ("status.hostIP", "192.0.2.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
    ],
)
def test_downward_api_field_values(path: str, value: str) -> None:
    assert field_value(pod(), path, PLACE) == value


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"),
        ({"resource": "requests.cpu"}, "0"),
    ],
)
def test_downward_api_resource_values(ref: Obj, value: str) -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}}
    assert resource_value(pod(container), container, ref, PLACE) == value


# -- what the runtime is told -----------------------------------------------------------------------------------------


def test_container_config_for_runtime() -> None:
    one = {
        "name": "c",
        "image": "i",
        "securityContext": {
            "runAsUser": 7,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        },
    }
    whole = pod(one, securityContext={"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]})
    amounts = Amounts(102, 10_000, 1 << 20, oom_score_adj=-997, unified={"memory.oom.group": "1"})
    inputs = ContainerInputs(
        "s", 3, {"A": b"\xff"}, amounts=amounts, cdi=("v/c=d",), throttle_paths=("/sys/cpu0/warm",)
    )
    config = container_config(whole, one, inputs)
    assert config.labels == {
        "io.kubernetes.pod.name": "p",
        "io.kubernetes.pod.namespace": "n",
        "io.kubernetes.pod.uid": "u",
        "io.kubernetes.container.name": "c",
    }
    assert config.annotations["io.kubernetes.container.restartCount"] == "3"
    assert (config.metadata.name, config.metadata.attempt) == ("c", 3)
    assert config.envs[0].value == b"\xff"
    assert [device.name for device in config.CDI_devices] == ["v/c=d"]
    linux = config.linux
    assert (linux.resources.cpu_quota, linux.resources.oom_score_adj) == (10_000, -997)
    assert linux.resources.unified == {"memory.oom.group": "1"}
    security = linux.security_context
    assert (security.run_as_user.value, security.run_as_group.value) == (7, 2)
    assert (security.no_new_privs, security.readonly_rootfs) == (True, True)
    assert security.supplemental_groups == [4, 3]
    assert security.capabilities.drop_capabilities == ["ALL"]
    assert not security.HasField("apparmor")
    assert {"/proc/kcore", "/proc/interrupts", "/sys/cpu0/warm"} <= set(security.masked_paths)
    assert security.seccomp.profile_type == cri.SecurityProfile.Unconfined


def test_ephemeral_container_joins_process_namespace_of_target() -> None:
    of = pod({"name": "c"})
    made = container_config(of, of["spec"]["containers"][0], ContainerInputs("s", 0, {}, target="runtime-id"))
    options = made.linux.security_context.namespace_options
    assert (options.pid, options.target_id) == (cri.TARGET, "runtime-id")


def test_privileged_container_has_no_masked_paths() -> None:
    one = {
        "name": "c",
        "image": "i",
        "securityContext": {"privileged": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    linux = container_config(pod(one), one, ContainerInputs("s", 0, {})).linux
    assert linux.security_context.privileged
    assert linux.security_context.masked_paths == []
    assert linux.security_context.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault


@pytest.mark.parametrize(("host", "network", "hostname", "ports"), [(False, cri.POD, "p", 1), (True, cri.NODE, "", 0)])
def test_sandbox_config_for_runtime(host: bool, network: int, hostname: str, ports: int) -> None:
    one = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}
    whole = pod(one, hostNetwork=host)
    config = sandbox_config(whole, 2, SandboxInputs("/logs", "/kubepods/x"))
    assert (config.hostname, len(config.port_mappings)) == (hostname, ports)
    assert config.labels["l"] == "1" and config.labels["io.kubernetes.pod.uid"] == "u"
    options = config.linux.security_context.namespace_options
    assert options.network == network
    assert config.metadata.attempt == 2


def test_seccomp_profile_of_this_machine_is_a_file_of_the_node() -> None:
    profile = {"type": "Localhost", "localhostProfile": "a/b.json"}
    whole = pod({"name": "c"}, securityContext={"seccompProfile": profile, "appArmorProfile": profile})
    made = container_config(whole, whole["spec"]["containers"][0], ContainerInputs("s", 0, {}, seccomp="/root/seccomp"))
    assert made.linux.security_context.seccomp.localhost_ref == "/root/seccomp/a/b.json"
    assert made.linux.security_context.apparmor.localhost_ref == "a/b.json", "a name of the kernel's, no file"
    sandbox = sandbox_config(whole, 0, SandboxInputs("/logs", seccomp="/root/seccomp"))
    assert sandbox.linux.security_context.seccomp.localhost_ref == "/root/seccomp/a/b.json"


def test_host_name_that_is_too_long_with_its_domain_is_refused() -> None:
    whole = pod({"name": "c"}, hostname="h" * 40, subdomain="s" * 20, setHostnameAsFQDN=True)
    with pytest.raises(ConfigError) as refused:
        sandbox_config(whole, 0, SandboxInputs("/logs"))
    full = f"{'h' * 40}.{'s' * 20}.n.svc.cluster.local"
    why = f"FQDN {full} is too long (64 characters is the max, {len(full)} characters requested)"
    assert str(refused.value) == f"failed to construct FQDN from pod hostname and cluster domain, {why}"


@pytest.mark.parametrize(
    ("spec", "kernel", "names"),
    [
        ({}, "p", "p"),
        ({"hostname": "h"}, "h", "h"),
        ({"hostname": "h", "subdomain": "s"}, "h", "h.s.ns.svc.x.test\th"),
        ({"subdomain": "s", "setHostnameAsFQDN": True}, "p.s.ns.svc.x.test", "p.s.ns.svc.x.test\tp"),
        ({"subdomain": "s", "hostnameOverride": "o.test"}, "o.test", "o.test"),
        ({"hostname": "a" * 62 + "-b"}, "a" * 62, "a" * 62),
    ],
)
def test_pod_has_host_name_and_domain(spec: dict[str, Any], kernel: str, names: str) -> None:
    whole = pod({"name": "c"}, **spec)
    whole["metadata"]["namespace"] = "ns"
    assert sandbox_config(whole, 0, SandboxInputs("/logs", domain="x.test")).hostname == kernel
    lines = hosts_text(whole, ["10.0.0.1", "fd00::1"], "x.test").splitlines()
    assert lines[-2:] == [f"10.0.0.1\t{names}", f"fd00::1\t{names}"]
    assert "127.0.0.1\tlocalhost" in lines


def test_user_namespace_mappings_are_passed_to_runtime() -> None:
    one = {"name": "c", "image": "i"}
    users = cri.IDMapping(host_id=65_536, length=65_536)
    sandbox = sandbox_config(pod(one), 0, SandboxInputs("/l", users=users))
    made = container_config(pod(one), one, ContainerInputs("s", 0, {}, users=users))
    for options in (sandbox.linux.security_context.namespace_options, made.linux.security_context.namespace_options):
        assert (options.userns_options.mode, list(options.userns_options.uids)) == (cri.POD, [users])


CLUSTER = ["n.svc.cluster.local", "svc.cluster.local", "cluster.local"]
RESOLV = """
nameserver 192.0.2.53
search ignored
search example.org. . cluster.local
options edns0 timeout:1
options timeout:2
"""
HOST = (["192.0.2.53"], ["example.org", "cluster.local"], ["edns0", "timeout:2"])


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        ({}, ["10.96.0.10"], [*CLUSTER, "example.org"], ["ndots:5"]),
        ({"dnsPolicy": "Default"}, *HOST),
        ({"hostNetwork": True}, *HOST),
        (
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            ["10.96.0.10"],
            [*CLUSTER, "example.org"],
            ["ndots:5"],
        ),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["1.1.1.1"], "options": [{"name": "ndots", "value": "2"}]},
            },
            ["1.1.1.1"],
            [],
            ["ndots:2"],
        ),
        (
            {
                "dnsConfig": {
                    "nameservers": ["10.96.0.10", "1.1.1.1"],
                    "searches": ["x", "cluster.local"],
                    "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}],
                }
            },
            ["10.96.0.10", "1.1.1.1"],
            [*CLUSTER, "example.org", "x"],
            ["ndots:1", "edns0"],
        ),
    ],
)  # fmt: skip
def test_dns_config_of_pod(
    tmp_path: Path, spec: Obj, servers: list[str], searches: list[str], options: list[str]
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(RESOLV)
    found, notes = dns_of(pod(**spec), DnsOptions(["10.96.0.10"], "cluster.local", file))
    assert (found.servers, found.searches, found.options, notes) == (servers, searches, options, [])


def test_dns_without_cluster_servers_is_the_machines_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(RESOLV)
    found, [(reason, message)] = dns_of(pod(), DnsOptions(resolv_conf=file))
    assert (found.servers, found.searches, found.options) == HOST
    assert reason == "MissingClusterDNS" and 'Falling back to "Default" policy.' in message
    # --resolv-conf "" leaves pods without DNS rather than with the runtime's own choice.
    found, _ = dns_of(pod(dnsPolicy="Default"), DnsOptions(["10.96.0.10"], resolv_conf=None))
    assert (found.servers, found.searches) == (["127.0.0.1"], ["."])


def test_dns_beyond_the_limits_is_cut_with_an_event() -> None:
    long = [f"{number}.{'x' * 100}" for number in range(40)]
    own = {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"], "searches": ["y" * 254, *long]}
    found, notes = dns_of(pod(dnsConfig=own), DnsOptions(["10.96.0.10"], resolv_conf=None))
    assert found.servers == ["10.96.0.10", "1.1.1.1", "2.2.2.2"]
    assert list(found.searches) == [*CLUSTER, *long[:19]] and len(" ".join(found.searches)) <= 2048
    assert [reason for reason, _ in notes] == ["DNSConfigForming"] * 2
    assert notes[0][1].endswith("the applied nameserver line is: 10.96.0.10 1.1.1.1 2.2.2.2")
    assert notes[1][1].startswith("Search Line limits were exceeded, some search paths have been omitted")


# -- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "policy"),
    [
        ({"image": "x:1"}, "IfNotPresent"),
        ({"image": "x"}, "Always"),
        ({"image": "x:latest"}, "Always"),
        ({"image": "host:5000/x"}, "Always"),
        ({"image": "x@sha256:1"}, "IfNotPresent"),
        ({"image": "x", "imagePullPolicy": "Never"}, "Never"),
    ],
)
def test_pull_policy_follows_image_tag(container: Obj, policy: str) -> None:
    assert pull_policy(container) == policy


def test_image_pull_secret_is_chosen_by_registry() -> None:
    auths = {
        "https://r.example:5000/v2/": {"auth": base64.b64encode(b"me:pass:word").decode()},
        "https://index.docker.io/v1/": {"username": "hub", "password": "x"},
    }
    data = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    secrets: list[Obj] = [{"data": {".dockerconfigjson": data}}, {"data": {".dockerconfigjson": "e30="}}]
    assert registry_of("r.example:5000/a/b:1") == "r.example:5000"
    assert [(one.username, one.password) for one in credentials("r.example:5000/a:1", secrets)] == [("me", "pass:word")]
    assert [one.username for one in credentials("library/a", secrets)] == ["hub"]
    assert credentials("other.example/a", secrets) == []


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"1",
        b'{"auths": []}',
        b'{"auths": {"r.example": "x"}}',
        b'{"auths": {"r.example": {"auth": "!"}}}',
        b'{"auths": {"r.example": {"auth": 5}}}',
        b'{"auths": {"r.example": {"username": 5, "password": null}}}',
    ],
)
def test_image_pull_secret_that_makes_no_sense_gives_nothing(content: bytes) -> None:
    good = base64.b64encode(b'{"auths": {"r.example": {"username": "me", "password": "x"}}}').decode()
    secrets: list[Obj] = [{"data": {".dockerconfigjson": base64.b64encode(content).decode()}}]
    secrets.append({"data": {".dockerconfigjson": good}})
    assert [one.username for one in credentials("r.example/a", secrets)] == ["me"]


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("T stdout F one\nT stderr F two\n", "one\ntwo\n"),
        ("T stdout P half of \nT stdout P a line", "half of a line"),
        (
            "".join(f"T stdout F {number}\n" for number in range(100)),
            "".join(f"{number}\n" for number in range(20, 100)),
        ),
    ],
)
def test_end_of_the_log_is_the_message_of_who_left_none(log: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_text(log)
    files = ContainerFiles(str(tmp_path / "0.log"))
    failed = SeenContainer("c", "main", exit_code=1, files=files, annotations={MESSAGE_POLICY: "FallbackToLogsOnError"})
    assert termination_message(failed) == text


async def test_image_name_that_no_runtime_takes_is_told_before_the_policy_is_looked_at() -> None:
    told: list[tuple[str, str]] = []
    recorder: Any = SimpleNamespace(event=lambda about, kind, reason, text: told.append((reason, text)))
    sources = ReferencedObjects(lambda name: None, lambda name: None)
    with pytest.raises(StartError) as refused:
        await ImageManager(SimpleNamespace(), recorder).ensure(  # type: ignore[arg-type]
            {"metadata": {"uid": "u"}, "spec": {}},
            {"image": "A", "imagePullPolicy": "Never"},
            sources,
            cri.PodSandboxConfig(),
        )
    assert refused.value.reason == "InvalidImageName" and told == [("InspectFailed", str(refused.value))]


async def test_pull_secrets_that_are_not_there_are_told_and_the_image_is_used() -> None:
    class Runtime:
        async def image(self, name: str) -> cri.Image:
            return cri.Image(id=name)

    told: list[tuple[str, str]] = []
    recorder: Any = SimpleNamespace(event=lambda about, kind, reason, text: told.append((reason, text)))
    secrets = [{"name": "none"}, {"name": "there"}, {}, {"name": "gone"}]
    whole = {"metadata": {"uid": "u"}, "spec": {"imagePullSecrets": secrets}}
    sources = ReferencedObjects(lambda name: None, lambda name: {"data": {}} if name == "there" else None)
    images = ImageManager(Runtime(), recorder)  # type: ignore[arg-type]
    assert (await images.ensure(whole, {"image": "a:1"}, sources, cri.PodSandboxConfig())).id == "a:1"
    text = "Unable to retrieve some image pull secrets (none, gone); attempting to pull the image may not succeed."
    assert told[0] == ("FailedToRetrieveImagePullSecret", text) and told[1][0] == "Pulled"


async def test_nothing_is_kept_of_images_of_a_pod_that_has_gone() -> None:
    class NoRegistry:
        async def image(self, name: str) -> None:
            return None

        async def pull(self, *_: Any) -> str:
            raise CriError("pull", "UNAVAILABLE", "no such host")

    images = ImageManager(NoRegistry(), SimpleNamespace(event=lambda *_: None))  # type: ignore[arg-type]
    sources = ReferencedObjects(lambda name: None, lambda name: None)
    pod = {"metadata": {"uid": "u"}, "spec": {}}

    async def reason(name: str) -> str:
        with pytest.raises(StartError) as refused:
            await images.ensure(pod, {"image": name}, sources, cri.PodSandboxConfig())
        return refused.value.reason

    assert [await reason("a:1"), await reason("a:1"), await reason("b:1")] == [
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImagePull",
    ]
    images.forget("other")
    assert await reason("a:1") == "ImagePullBackOff"
    images.forget("u")
    assert not images._pulls
    assert await reason("a:1") == "ErrImagePull"


@pytest.mark.parametrize(
    ("context", "image", "problem"),
    [
        ({}, cri.Image(uid=cri.Int64Value(value=0)), ""),
        ({"runAsNonRoot": True}, cri.Image(uid=cri.Int64Value(value=7)), ""),
        ({"runAsNonRoot": True, "runAsUser": 1}, cri.Image(uid=cri.Int64Value(value=0)), ""),
        ({"runAsNonRoot": True}, cri.Image(uid=cri.Int64Value(value=0)), "image will run as root"),
        ({"runAsNonRoot": True, "runAsUser": 0}, cri.Image(uid=cri.Int64Value(value=7)), "breaks non-root policy"),
        ({"runAsNonRoot": True}, cri.Image(username="app"), "non-numeric user"),
    ],
)
def test_run_as_non_root_refuses_root_image(context: Obj, image: cri.Image, problem: str) -> None:
    one = {"name": "c", "securityContext": context}
    if not problem:
        check_user(pod(one), one, image)
        return
    with pytest.raises(StartError, match=problem) as failed:
        check_user(pod(one), one, image)
    assert failed.value.reason == "CreateContainerConfigError"


# -- probes -----------------------------------------------------------------------------------------------------------


def test_probe_result_changes_at_threshold() -> None:
    streak = ProbeState({"failureThreshold": 3, "successThreshold": 2}, "readiness")
    heard = [streak.heard(well) for well in (True, True, False, False, True, False, False, False, True, True)]
    assert heard == [False, True, False, False, False, False, False, True, False, True]


def test_startup_probe_ends_after_success_and_liveness_after_failure() -> None:
    startup = ProbeState({}, "startup")
    assert startup.heard(True) and startup.is_final
    liveness = ProbeState({"failureThreshold": 1}, "liveness")
    assert liveness.heard(True) and not liveness.is_final
    assert liveness.heard(False) and liveness.is_final


def test_probe_delay_follows_initial_delay_and_period() -> None:
    streak = ProbeState({"initialDelaySeconds": 5}, "liveness")
    assert (streak.period, streak.timeout) == (10, 1)
    assert streak.delay(100.0, 102.0) == 3.0
    assert streak.delay(100.0, 200.0) == 0.0


def test_probe_port_is_resolved_by_name() -> None:
    one = {"ports": [{"name": "web", "containerPort": 80}]}
    assert [target_port(one, port) for port in (81, "82", "web", "none")] == [81, 82, 80, None]


# -- CDI --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "has"),
    [
        ("containerd", "1.6.20~ds1", False),
        ("containerd", "v1.7.0", True),
        ("containerd", "2.1.3", True),
        ("cri-o", "1.30.0", True),
        ("containerd", "unknown", False),
    ],
)
def test_runtime_versions_with_cdi_support(name: str, version: str, has: bool) -> None:
    assert container_start.runtime_has_cdi(name, version) is has


def spec(tmp_path: Path, **edits: Any) -> None:
    device = {"name": "d", "containerEdits": edits}
    whole = {"cdiVersion": "0.6.0", "kind": "v.example/c", "devices": [device], "containerEdits": {"env": ["ALL=1"]}}
    (tmp_path / "v.json").write_text(json.dumps(whole))


def test_cdi_edits_are_applied_to_container_config(tmp_path: Path) -> None:
    spec(
        tmp_path,
        env=["A=1"],
        deviceNodes=[{"path": "/dev/null"}],
        mounts=[{"hostPath": "/tmp", "containerPath": "/opt", "options": ["ro", "bind"]}],
    )
    config = cri.ContainerConfig()
    container_start.apply(config, ["v.example/c=d"], [tmp_path])
    assert {one.key: one.value for one in config.envs} == {"ALL": b"1", "A": b"1"}
    assert [(one.container_path, one.host_path) for one in config.devices] == [("/dev/null", "/dev/null")]
    assert [(one.container_path, one.host_path, one.readonly) for one in config.mounts] == [("/opt", "/tmp", True)]


def test_cdi_hooks_are_refused(tmp_path: Path) -> None:
    spec(tmp_path, hooks=[{"hookName": "createContainer", "path": "/bin/true"}])
    with pytest.raises(container_start.CdiError, match="hook"):
        container_start.apply(cri.ContainerConfig(), ["v.example/c=d"], [tmp_path])


def test_unknown_cdi_device_is_reported(tmp_path: Path) -> None:
    with pytest.raises(container_start.CdiError, match=r"v\.example/c=x"):
        container_start.apply(cri.ContainerConfig(), ["v.example/c=x"], [tmp_path])
