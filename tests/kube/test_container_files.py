"""What simulated containers see of their objects: variables, files of volumes, and what they have written."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.kube.names import format_time
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.volume_files import asks_for_tokens
from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.container_scripts import RUNS_ON, Script, script_of, termination_message
from haru.kube.simulated_containers.executed import Executed, executed_in, names_files, with_executed
from haru.kube.simulated_containers.files import PodSources, VolumeContents, volume_problem
from haru.kube.simulated_containers.found_files import FOUND, begins_empty, found_annotation, found_in
from haru.kube.simulated_containers.shell_output import Change
from haru.kube.simulated_containers.test_images import probe_failure
from haru.kube.simulated_containers.text import as_printed

Obj = dict[str, Any]
BEGAN = datetime(2026, 11, 28, tzinfo=UTC)
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.56"
CONFIG: Obj = {"data": {"data-1": "value-1", "lines": "a\nb\n"}}
SECRET: Obj = {"data": {"key": base64.b64encode(b"hidden").decode()}}
SOURCES = PodSources(
    ReferencedObjects({"config": CONFIG}.get, {"secret": SECRET}.get),
    {"cpu": "8", "memory": "1Gi"},
    (("KUBERNETES_SERVICE_HOST", "10.96.0.1"),),
)


def pod(*volumes: Obj, **spec: Any) -> Obj:
    metadata = {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "web"}}
    status = {"podIPs": [{"ip": "10.1.0.5"}], "hostIPs": [{"ip": "10.0.0.1"}], "podIP": "10.1.0.5"}
    return {"metadata": metadata, "spec": {"containers": [], "volumes": list(volumes), **spec}, "status": status}


def container(script: str = "", **more: Any) -> Obj:
    return {"name": "c", **({"command": ["sh", "-c", script]} if script else {}), **more}


def lines(of: Obj, what: Obj) -> list[str]:
    found = script_of(of, what, SOURCES)
    assert found is not None and found.ends_after is not None
    return [text for _, text in found.lines]


def mounted(name: str, path: str = "/v", **more: Any) -> list[Obj]:
    return [{"name": name, "mountPath": path, **more}]


CONFIG_VOLUME = {"name": "config", "configMap": {"name": "config", "defaultMode": 0o400}}
EMPTY: Obj = {"name": "empty", "emptyDir": {}}


def test_environment_has_values_of_config_maps_secrets_and_fields() -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "data-1"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "E", "value": "$(A)-$(C)"},
    ]
    of = container("env", env=env, envFrom=[{"prefix": "p_", "configMapRef": {"name": "config"}}])
    printed = lines({**pod(), "spec": {"containers": [of]}}, of)
    expected = ["A=value-1", "B=hidden", "C=10.1.0.5", "D=8", "E=value-1-10.1.0.5", "p_data-1=value-1"]
    assert set(expected) <= set(printed)
    assert "KUBERNETES_SERVICE_HOST=10.96.0.1" in printed


@pytest.mark.parametrize(
    ("volume", "path", "text"),
    [
        (CONFIG_VOLUME, "/v/data-1", "value-1"),
        ({"name": "config", "secret": {"secretName": "secret"}}, "/v/key", "hidden"),
        (
            {"name": "config", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            "/v/l",
            'app="web"',
        ),
        (
            {"name": "config", "projected": {"sources": [{"configMap": {"name": "config"}}, {"downwardAPI": {}}]}},
            "/v/data-1",
            "value-1",
        ),
    ],
)  # fmt: skip
def test_cat_prints_a_file_of_a_volume_from_objects(volume: Obj, path: str, text: str) -> None:
    assert lines(pod(volume), container(f"cat {path}", volumeMounts=mounted("config"))) == [text]
    assert lines(pod(volume), container("cat /v/none || echo no", volumeMounts=mounted("config")))[1] == "no"


def test_mounted_sub_path_is_one_file() -> None:
    mounts = mounted("config", "/etc/one", subPath="data-1")
    assert lines(pod(CONFIG_VOLUME), container("cat /etc/one", volumeMounts=mounts)) == ["value-1"]


def test_directory_of_a_sub_path_with_variables_is_in_its_volume() -> None:
    env = [{"name": "NAME", "value": "p"}]
    mounts = [*mounted("empty", "/logs", subPathExpr="$(NAME)"), *mounted("empty", "/all")]
    of = container("test -d /all/p; echo $?; touch /logs/x; test -f /all/p/x; echo $?", env=env, volumeMounts=mounts)
    assert lines(pod(EMPTY), of) == ["0", "0"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("..", "unable to provision SubPath `..`: must not contain '..'"),
        ("/tmp", "error SubPath `/tmp` must not be an absolute path"),
        ("", "missing value for NAME"),
    ],
)
def test_bad_sub_path_keeps_the_container_from_starting(value: str, message: str) -> None:
    env = [{"name": "NAME", "value": value}]
    of = container("true", env=env, volumeMounts=mounted("empty", subPathExpr="$(NAME)"))
    with pytest.raises(ConfigError) as caught:
        script_of(pod(EMPTY), of, SOURCES)
    assert str(caught.value) == message


def mounttest(of: Obj, *flags: str, **more: Any) -> list[str]:
    what = container(image=AGNHOST, args=["mounttest", *(f"--{flag}" for flag in flags)], **more)
    return lines(of, what)


def test_mounttest_tells_mode_owner_and_text_of_a_config_map_file() -> None:
    found = mounttest(
        pod(CONFIG_VOLUME), "file_mode=/v/data-1", "file_content=/v/lines", volumeMounts=mounted("config")
    )
    assert found == ['mode of file "/v/data-1": -r--------', 'content of file "/v/lines": a', "b", ""]
    grouped = pod(CONFIG_VOLUME, securityContext={"fsGroup": 1001, "runAsUser": 1000})
    found = mounttest(grouped, "file_mode=/v/data-1", "file_owner=/v/data-1", volumeMounts=mounted("config"))
    assert found == [
        'mode of file "/v/data-1": -r--r-----', 'owner UID of "/v/data-1": 0', 'owner GID of "/v/data-1": 1001',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("medium", "fs", "directory"), [("Memory", "tmpfs", "dtrwxrwxrwx"), ("", "ext4", "drwxrwxrwx")]
)
def test_mounttest_writes_into_an_empty_directory(medium: str, fs: str, directory: str) -> None:
    volume = {"name": "empty", "emptyDir": {"medium": medium}}
    flags = ("fs_type=/v", "new_file_0666=/v/f", "file_perm=/v/f", "file_mode=/v")
    found = mounttest(pod(volume), *flags, volumeMounts=mounted("empty"))
    assert found == [
        f'mount type of "/v": {fs}',
        'content of file "/v/f": mount-tester new file',
        "",
        f'mode of file "/v": {directory}',
        'perms of file "/v/f": -rw-rw-rw-',
    ]


@pytest.mark.parametrize(
    ("volume", "sub_path", "expected"),
    [
        ({"emptyDir": {"medium": "Memory"}}, "below", "dtrwxrwxrwx"),
        ({"emptyDir": {}}, "below", "drwxrwxrwx"),
        ({"hostPath": {"path": "/tmp"}}, "", "dtrwxrwxrwx"),
        ({"hostPath": {"path": "/data"}}, "", "drwxrwxrwx"),
    ],
)
def test_mounted_directory_has_the_sticky_bit_of_its_volume(volume: Obj, sub_path: str, expected: str) -> None:
    of = pod({"name": "v", **volume})
    found = mounttest(of, "file_mode=/v", volumeMounts=mounted("v", "/v", subPath=sub_path))
    assert found == [f'mode of file "/v": {expected}']


def test_file_that_is_read_in_a_loop_is_told_again_and_again() -> None:
    flags = ["mounttest", "--break_on_expected_content=false", "--retry_time=10", "--file_content_in_loop=/v/data-1"]
    of = container(image=AGNHOST, args=flags, volumeMounts=mounted("config"))
    found = script_of(pod(CONFIG_VOLUME), of, SOURCES) or RUNS_ON
    assert (found.ends_after, found.repeats) == (10, ((0, 2, 'content of file "/v/data-1": value-1'),))


@pytest.mark.parametrize(
    ("spec", "script", "expected"),
    [
        ({"securityContext": {"runAsUser": 1001, "runAsGroup": 2002}}, "id", ["uid=1001 gid=2002 groups=2002"]),
        ({"securityContext": {"runAsUser": 1001}}, "id -u", ["1001"]),
        ({"securityContext": {"runAsUser": 1001}}, 'test $(id -u) -eq 1001 && echo "$(hostname) x"', ["p x"]),
        ({"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}}, "sysctl a.b", ["a.b = 1"]),
        ({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x", "y"]}]}, "cat /etc/hosts", ["1.2.3.4\tx\ty"]),
    ],
)
def test_programs_tell_what_the_pod_was_given(spec: Obj, script: str, expected: list[str]) -> None:
    assert lines(pod(**spec), container(script))[-1:] == expected


@pytest.mark.parametrize(
    ("limits", "limits_of_pod", "resource", "expected"),
    [
        ({}, {}, "limits.cpu", "8"),
        ({}, {"cpu": "1250m"}, "limits.cpu", "2"),
        ({"cpu": "3"}, {"cpu": "5"}, "limits.cpu", "3"),
        ({"cpu": "0"}, {"cpu": "5"}, "limits.cpu", "5"),
        ({}, {"cpu": "5"}, "limits.memory", str(1 << 30)),
        ({}, {"cpu": "5"}, "requests.cpu", "0"),
        ({}, {"hugepages-2Mi": "4Mi"}, "limits.hugepages-2Mi", "0"),
    ],
)
def test_container_without_a_limit_is_told_that_of_its_pod_or_node(
    limits: Obj, limits_of_pod: Obj, resource: str, expected: str
) -> None:
    env = [{"name": "N", "valueFrom": {"resourceFieldRef": {"resource": resource}}}]
    of = container("echo $N", env=env, resources={"limits": limits})
    assert lines(pod(containers=[of], resources={"limits": limits_of_pod}), of) == [expected]


@pytest.mark.parametrize(("resources", "score"), [({}, "1000"), ({"requests": {"memory": "1Gi"}}, "750")])
def test_container_sees_how_soon_the_kernel_would_end_it(resources: Obj, score: str) -> None:
    of = container("cat /proc/1/oom_score_adj", resources=resources)
    found = script_of(pod(containers=[of]), of, replace(SOURCES, memory=4 << 30))
    assert found is not None and found.lines == ((0, score),)


def test_read_only_root_refuses_to_be_written() -> None:
    of = container("echo x > /file; echo $?", securityContext={"readOnlyRootFilesystem": True})
    assert lines(pod(), of) == ["sh: can't create /file: Read-only file system", "1"]


def test_echo_without_line_break_is_continued_and_ends_no_message() -> None:
    of = container("echo -n a; echo b; echo -n DONE; false", terminationMessagePolicy="FallbackToLogsOnError")
    assert lines(pod(), of) == ["ab", "DONE"]
    assert termination_message(of, script_of(pod(), of) or RUNS_ON, BEGAN) == "ab\nDONE"
    written = container("/bin/echo -n OK > /dev/termination-log")
    assert termination_message(written, script_of(pod(), written) or RUNS_ON, BEGAN) == "OK"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("if [ $(expr ${INDEX} % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi", 1),
        ("if [ $((INDEX + 1)) -eq 5 ]; then exit 7; fi", 0),
        ("if [[ -r /v/foo ]]\nthen\n exit 0\nelse\n touch /v/foo\n exit 42\nfi", 42),
        ("if false; then exit 1; fi; exit 3", 3),
    ],
)
def test_if_chooses_by_the_code_of_its_condition(script: str, code: int) -> None:
    of = container(script, env=[{"name": "INDEX", "value": "3"}], volumeMounts=mounted("empty"))
    found = script_of(pod(EMPTY), of)
    assert found is not None and (found.ends_after, found.exit_code) == (0, code)


def test_restarted_container_finds_what_it_has_written_into_a_volume() -> None:
    of = container("if [ -f /v/foo ]; then exit 0; else touch /v/foo; exit 1; fi", volumeMounts=mounted("empty"))
    again = pod(EMPTY)
    assert (script_of(again, of) or RUNS_ON).exit_code == 1
    again["status"]["containerStatuses"] = [{"name": "c", "restartCount": 1}]
    assert (script_of(again, of) or RUNS_ON).exit_code == 0


def test_container_sees_what_its_first_hook_has_written_by_then() -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo early > /tmp/h; sleep 3; echo late > /tmp/h"]}}}
    of = container("cat /tmp/h; sleep 1; cat /tmp/h; sleep 3; cat /tmp/h", lifecycle=hook)
    assert lines(pod(), of) == ["early", "early", "late"]
    slow = {"postStart": {"exec": {"command": ["sh", "-c", "sleep 3; touch /tmp/h"]}}}
    of = container("[ -f /tmp/h ]; echo $?; sleep 4; [ -f /tmp/h ]; echo $?", lifecycle=slow)
    assert lines(pod(), of) == ["1", "0"]
    answers = [run_in_container(pod(), of, ["cat", "/tmp/h"], elapsed=at).exit_code for at in (1, 4)]
    assert answers == [1, 0]


def test_command_in_a_container_sees_what_was_written_by_then() -> None:
    of = container("echo ok > /tmp/health; sleep 10; rm -rf /tmp/health; sleep 600")
    answers = [run_in_container(pod(), of, ["cat", "/tmp/health"], elapsed=at).exit_code for at in (1, 11)]
    assert answers == [0, 1]


def test_missing_object_of_a_volume_is_told_in_the_words_of_a_kubelet() -> None:
    missing = pod({"name": "v", "configMap": {"name": "none"}})
    assert volume_problem(missing, SOURCES) == 'MountVolume.SetUp failed for volume "v" : configmap "none" not found'
    optional = pod({"name": "v", "configMap": {"name": "none", "optional": True}}, CONFIG_VOLUME)
    assert volume_problem(optional, SOURCES) == ""


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ({"args": ["entrypoint-tester", "x", "y"]}, "[/agnhost entrypoint-tester x y]"),
        ({"command": ["/agnhost-2"], "args": ["entrypoint-tester"]}, "[/agnhost-2 entrypoint-tester]"),
    ],
)
def test_entrypoint_tester_prints_its_words(given: Obj, printed: str) -> None:
    assert script_of(pod(), container(image=AGNHOST, **given)) == Script(((0.0, printed),), 0.0)


def test_etc_hosts_prints_the_aliases_of_the_pod() -> None:
    aliased = pod(hostAliases=[{"ip": "1.2.3.4", "hostnames": ["x", "y"]}])
    assert lines(aliased, container(image=AGNHOST, args=["etc-hosts"]))[-1] == "1.2.3.4\tx\ty"


@pytest.mark.parametrize(
    ("args", "probe", "expected"),
    [
        (["liveness"], {"httpGet": {"port": 8080}}, (10.0, "HTTP probe failed with statuscode: 500")),
        (["test-webserver"], {"httpGet": {"port": 81}}, (0.0, "dial tcp: port 81: connect: connection refused")),
        (["netexec", "--http-port=81"], {"httpGet": {"port": 81}}, None),
        (["netexec"], {"tcpSocket": {"port": "http"}}, None),
        (["grpc-health-checking"], {"grpc": {"port": 2333}}, (0.0, "dial tcp: port 2333: connect: connection refused")),
        (["grpc-health-checking"], {"grpc": {"port": 5000}}, None),
        (["pause"], {"httpGet": {"port": 81}}, None),
    ],
)  # fmt: skip
def test_server_of_agnhost_answers_probes_of_its_port(args: list[str], probe: Obj, expected: Any) -> None:
    assert probe_failure(container(image=AGNHOST, args=args), probe) == expected


def test_container_reads_what_an_init_container_has_written_into_a_volume() -> None:
    first = container("echo made > /made/x", volumeMounts=mounted("empty", "/made")) | {"name": "first"}
    second = container("cat /v/x; echo more >> /v/x", volumeMounts=mounted("empty")) | {"name": "second"}
    main = container("cat /v/x", volumeMounts=mounted("empty"))
    of = pod(EMPTY, initContainers=[first, second])
    assert lines(of, second) == ["made"]
    assert lines(of, main) == ["made", "more"]


def test_command_reads_what_another_container_has_written_into_a_volume() -> None:
    writer = container("sleep 5; echo hello > /w/x; sleep 100", volumeMounts=mounted("empty", "/w")) | {"name": "w"}
    main = container("sleep 1000", volumeMounts=mounted("empty"))
    of = pod(EMPTY, containers=[writer, main])
    assert run_in_container(of, main, ["cat", "/v/x"], SOURCES, 1).exit_code == 1
    assert [line.text for line in run_in_container(of, main, ["cat", "/v/x"], SOURCES, 6).lines] == ["hello"]


def test_init_container_sees_nothing_of_containers_that_start_after_it() -> None:
    first = container("sleep 100", volumeMounts=mounted("empty")) | {"name": "first"}
    of = pod(EMPTY, initContainers=[first], containers=[container("touch /v/x", volumeMounts=mounted("empty"))])
    assert run_in_container(of, first, ["cat", "/v/x"], SOURCES, 6).exit_code == 1
    of["spec"]["initContainers"] = [sidecar := {**first, "restartPolicy": "Always"}]
    assert run_in_container(of, sidecar, ["cat", "/v/x"], SOURCES, 6).exit_code == 0


def test_logs_generator_prints_its_lines_over_its_time() -> None:
    of = container(image=AGNHOST, args=["logs-generator", "--log-lines-total", "4", "--run-duration", "10s"])
    found = script_of(pod(), of) or RUNS_ON
    assert (found.ends_after, [at for at, _ in found.lines]) == (10, [0, 2.5, 5, 7.5])
    assert "/api/v1/namespaces" in found.lines[0][1]


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (
            "mkdir /v/d; [ -d /v/d ] && echo directory; [ -f /v/d ] || echo no file; ls /v",
            ["directory", "no file", "d"],
        ),
        ("mkdir -p /tmp/d/e; touch /tmp/d/x; [ -d /tmp/d ] && echo directory; ls /tmp/d", ["directory", "e", "x"]),
        ("mkdir -p /app/data && [ -d /app ] && echo directory", ["directory"]),
        ("mkdir /v/d; touch /v/d/x /v/y; rm -rf /v/d; [ -e /v/d/x ] || echo gone; ls /v", ["gone", "y"]),
        ("mkdir /v/d; touch /v/d/x; rm -r /v/*; ls /v; echo end", ["end"]),
        ("mkdir /v/d; cp /etc/hostname /v/d; cat /v/d/hostname", ["p"]),
    ],
)
def test_directory_that_was_made_is_one_and_goes_with_its_files(script: str, printed: list[str]) -> None:
    assert lines(pod(EMPTY), container(script, volumeMounts=mounted("empty"))) == printed


def test_long_listing_tells_modes_owners_sizes_and_times() -> None:
    script = "echo hello > /v/a; sleep 61; echo -n > /v/b; ls -l /v; ls -l /v/a; ls -l /c"
    mounts = [*mounted("empty"), *mounted("config", "/c")]
    of = container(script, volumeMounts=mounts, securityContext={"runAsUser": 1000, "runAsGroup": 0})
    printed = [as_printed(line, BEGAN) for line in lines(pod(EMPTY, CONFIG_VOLUME), of)]
    assert printed == [
        "total 4",
        "-rw-r--r--    1 1000     root             6 Nov 28 00:00 a",
        "-rw-r--r--    1 1000     root             0 Nov 28 00:01 b",
        "-rw-r--r--    1 1000     root             6 Nov 28 00:00 /v/a",
        "total 0",
        "lrwxrwxrwx    1 root     root            13 Nov 28 00:00 data-1 -> ..data/data-1",
        "lrwxrwxrwx    1 root     root            12 Nov 28 00:00 lines -> ..data/lines",
    ]
    for text in ("ls -l /usr/bin", "mkdir /v/d; ls -l /v"):
        unknown = script_of(pod(EMPTY), container(f"{text}; exit 3", volumeMounts=mounted("empty")), SOURCES)
        assert unknown is None or not unknown.understood


def test_listing_tells_inode_and_human_size_of_a_directory_itself_and_of_files() -> None:
    script = "dd if=/dev/zero of=/v/a bs=1 count=2048; ls -idlh /v; ls -lh /v/a; ls -d /v; ls -idlh /v; ls -dl /v/none"
    of = container(script, volumeMounts=mounted("empty"))
    directory, file, plain, again, missing = [as_printed(one, BEGAN) for one in lines(pod(EMPTY), of)[2:]]
    assert re.fullmatch(r"[ \d]{7} drwxrwxrwx    2 root     root        4.0K Nov 28 00:00 /v", directory)
    assert file == "-rw-r--r--    1 root     root        2.0K Nov 28 00:00 /v/a"
    assert plain == "/v" and again == directory and missing == "ls: /v/none: No such file or directory"


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("find /v", ["/v"]),
        ("mkdir -p /v/d/e; echo a > /v/d/f; find /v; find /v/d/f", ["/v", "/v/d", "/v/d/e", "/v/d/f", "/v/d/f"]),
        ("find /v/none; find /v -type f; exit 3", ["find: /v/none: No such file or directory"]),
        ("ln -s /v/a /v/b; echo x > /v/b; cat /v/a /v/b; rm /v/b; ls /v", ["x", "x", "a"]),
        ("ln -s a /v/b; cat /v/b; echo x > /v/a; cat /v/b", ["cat: can't open '/v/b': No such file or directory", "x"]),
        ("echo x > /v/a; ln -s /v/c /v/a", ["ln: /v/a: File exists"]),
        ("ln -s a /v/b; ls -l /v", ["total 0", "lrwxrwxrwx    1 root     root             1 Nov 28 00:00 b -> a"]),
        ("ln -s /v/b /v/a; ln -s /v/a /v/b; test -e /v/a || echo none", ["none"]),
        ("echo $(hostname) | dd of=/v/a conv=fsync; cat /v/a", ["0+1 records in", "0+1 records out", "p"]),
        ("echo a | dd of=/c/a", ["dd: can't open '/c/a': Read-only file system"]),
    ],
)
def test_programs_list_directories_and_link_files(script: str, printed: list[str]) -> None:
    mounts = [*mounted("empty"), *mounted("config", "/c")]
    found = script_of(pod(EMPTY, CONFIG_VOLUME), container(script, volumeMounts=mounts), SOURCES)
    assert found is not None and [as_printed(text, BEGAN) for _, text in found.lines] == printed


def test_link_in_a_volume_leads_later_commands_to_its_file() -> None:
    of, what = pod(EMPTY), container("sleep 900", volumeMounts=mounted("empty"))
    commands = ["ln -s /v/a /v/b", "echo x > /v/b", "cat /v/a", "rm /v/b", "ls /v"]
    status = {"name": "c", "restartCount": 0, "state": {"running": {"startedAt": format_time(BEGAN)}}}
    of["status"]["containerStatuses"] = [status]
    executed, printed = list[Executed](), list[str]()
    for second, command in enumerate(commands, 1):
        sources = replace(SOURCES, executed=tuple(executed))
        ran = run_in_container(of, what, ["sh", "-c", command], sources, float(second))
        executed.append(Executed("c", 0, BEGAN + timedelta(seconds=second), ran.changes))
        printed += [one.text for one in ran.lines]
    assert printed == ["x", "a"]


def env_of(init: str, **ref: Any) -> tuple[Obj, Obj]:
    """A pod whose container has a variable from a file that an init container writes, and that container."""
    source = {"fileKeyRef": {"volumeName": "empty", "path": "app/config.env", "key": "LEVEL", **ref}}
    main = container("echo level=$LEVEL", env=[{"name": "LEVEL", "valueFrom": source}])
    first = {**container(init, volumeMounts=mounted("empty")), "name": "setup"}
    of = pod(EMPTY)
    of["spec"] |= {"initContainers": [first], "containers": [main]}
    return of, main


@pytest.mark.parametrize(
    ("init", "ref", "printed"),
    [
        ("echo \"LEVEL='high'\" > /v/app/config.env", {}, "level=high"),
        ("echo \"A='1'\" > /v/app/config.env; echo \"LEVEL='low'\" >> /v/app/config.env", {}, "level=low"),
        ("echo \"A='1'\" > /v/app/config.env", {"optional": True}, "level="),
        ("python setup.py", {}, "level="),
    ],
)
def test_variable_comes_from_a_file_that_an_init_container_has_written(init: str, ref: Obj, printed: str) -> None:
    of, main = env_of(init, **ref)
    assert lines(of, main) == [printed]


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        ("true", "couldn't parse env file"),
        ("echo LEVEL=high > /v/app/config.env", "couldn't parse env file"),
        (
            "echo \"A='1'\" > /v/app/config.env",
            'environment variable key "LEVEL" not found in file '
            '"/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/empty/app/config.env"',
        ),
    ],
)
def test_variable_that_is_in_no_file_is_a_config_error(init: str, problem: str) -> None:
    of, main = env_of(init)
    of["metadata"]["uid"] = "u"
    with pytest.raises(ConfigError) as told:
        lines(of, main)
    assert str(told.value) == problem


def test_file_that_another_container_wrote_before_its_restart_is_still_there() -> None:
    writer = {**container("touch /v/ready; sleep 5; exit 1", volumeMounts=mounted("empty")), "name": "writer"}
    reader = container("if [ -f /v/ready ]; then echo there; else echo missing; fi", volumeMounts=mounted("empty"))
    of = pod(EMPTY)
    of["spec"]["containers"] = [reader, writer]
    began = {"reader": "2026-01-01T00:00:03Z", "writer": "2026-01-01T00:00:30Z"}
    statuses = [
        {"name": "c", "restartCount": 0, "state": {"running": {"startedAt": began["reader"]}}},
        {"name": "writer", "restartCount": 1, "state": {"running": {"startedAt": began["writer"]}}},
    ]
    of["status"] = {"containerStatuses": statuses}
    assert lines(of, reader) == ["there"]
    statuses[1]["restartCount"] = 0
    assert lines(of, reader) == ["missing"]


def ran(of: Obj, what: Obj, command: str) -> tuple[list[str], int]:
    found = run_in_container(of, what, ["sh", "-c", command], SOURCES)
    return [line.text for line in found.lines], found.exit_code


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, ["max 100000", "1", "max"]),
        ({"limits": {"cpu": "250m", "memory": "64Mi"}}, ["25000 100000", "10", "67108864"]),
        ({"requests": {"cpu": "1"}, "limits": {"memory": "5000"}}, ["max 100000", "39", "4096"]),
    ],
)
def test_control_group_files_say_what_a_container_has(resources: Obj, expected: list[str]) -> None:
    of = container("sleep 1", resources=resources)
    files = ("cpu.max", "cpu.weight", "memory.max")
    assert ran(pod(), of, "; ".join(f"head -n 1 /sys/fs/cgroup/{name}" for name in files)) == (expected, 0)
    assert ran(pod(), of, "mount -t cgroup2")[0][0].startswith("cgroup on /sys/fs/cgroup ")


def test_control_group_files_follow_what_a_status_tells_in_place_of_what_a_spec_asks() -> None:
    of = container("sleep 1", resources={"limits": {"memory": "128Mi"}})
    having = {"name": "c", "resources": {"limits": {"memory": "64Mi"}}}
    resized = {**pod(), "status": {"containerStatuses": [having]}}
    assert ran(resized, of, "cat /sys/fs/cgroup/memory.max") == (["67108864"], 0)


def test_pod_in_the_network_of_its_node_has_the_name_and_the_hosts_of_the_node() -> None:
    of = pod(hostNetwork=True, nodeName="node-1")
    managed, *hosts = ran(of, container(), "cat /etc/hosts")[0]
    assert managed == "# Kubernetes-managed hosts file (host network)."
    assert hosts == ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    assert ran(of, container(), "hostname; echo $HOSTNAME") == (["node-1", "node-1"], 0)


def test_hosts_of_the_node_are_read_where_they_are_mounted() -> None:
    of = pod({"name": "hosts", "hostPath": {"path": "/etc/hosts"}}, nodeName="node-1")
    what = container(volumeMounts=mounted("hosts", "/etc/hosts-original"))
    assert ran(of, what, "test -f /etc/hosts-original && head -n 1 /etc/hosts-original") == (
        ["127.0.0.1\tlocalhost"],
        0,
    )


def test_directory_of_the_node_can_be_written() -> None:
    of = pod({"name": "logs", "hostPath": {"path": "/var/log"}})
    what = container("echo one > /v/x; cat /v/x", volumeMounts=mounted("logs"))
    assert lines(of, what) == ["one"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {},
            ["search n.svc.cluster.local svc.cluster.local cluster.local", "nameserver 10.96.0.10", "options ndots:5"],
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a.local"]}},
            ["search a.local", "nameserver 1.1.1.1"],
        ),
        (
            {"dnsConfig": {"searches": ["a.local"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}},
            [
                "search n.svc.cluster.local svc.cluster.local cluster.local a.local",
                "nameserver 10.96.0.10",
                "options ndots:2 edns0",
            ],
        ),
        ({"hostNetwork": True, "nodeName": "n", "dnsPolicy": "ClusterFirst"}, []),
        ({"dnsPolicy": "Default", "dnsConfig": {"nameservers": ["1.1.1.1"]}}, ["nameserver 1.1.1.1"]),
    ],
)
def test_resolver_is_that_of_the_policy_and_of_the_pod(spec: Obj, expected: list[str]) -> None:
    assert ran(pod(**spec), container(), "cat /etc/resolv.conf") == (expected, 0)


def test_agnhost_tells_the_resolver() -> None:
    of = pod(dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"], "searches": ["a.local", "b.local"]})
    what = container(image=AGNHOST)
    assert ran(of, what, "/agnhost dns-suffix; /agnhost dns-server-list") == (["a.local,b.local", "1.1.1.1"], 0)


@pytest.mark.parametrize(
    ("more", "command", "expected"),
    [
        ({}, "", False),
        ({}, "cat /tokens/a", True),
        ({"command": ["sleep", "1"]}, "", False),
        ({"command": ["cat", "/tokens/a"]}, "", True),
        ({"command": ["sh", "-c", "cat $WHERE"], "env": [{"name": "WHERE", "value": "/tokens/a"}]}, "", True),
        ({"livenessProbe": {"exec": {"command": ["test", "-f", "/tokens/a"]}}}, "", True),
    ],
)
def test_tokens_are_asked_for_only_where_a_container_names_their_place(more: Obj, command: str, expected: bool) -> None:
    volume = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}}
    of = pod(volume, containers=[container(volumeMounts=mounted("t", "/tokens"), **more)])
    assert asks_for_tokens(of, *([command] if command else [])) is expected


def test_command_replaces_an_earlier_one_of_whose_files_nothing_is_left() -> None:
    def ran(*changes: Change, restarts: int = 0) -> Executed:
        return Executed("main", restarts, BEGAN, changes)

    one, other = Change(0.0, "/tmp/x", "a"), Change(0.0, "/tmp/y", "b")
    again, removed = Change(0.0, "/tmp/x", "c"), Change(0.0, "/tmp/x", None)
    assert ran(again).replaces(ran(one)) and ran(removed, other).replaces(ran(one))
    assert not ran(again).replaces(ran(one, other))
    assert not ran(Change(0.0, "/tmp/x", "c", appends=True)).replaces(ran(one))
    assert not ran(Change(9.0, "/tmp/x", "c")).replaces(ran(one))
    assert not ran(again, restarts=1).replaces(ran(one))


@pytest.mark.parametrize(
    ("path", "more", "named"),
    [
        ("/tmp/go", {"command": ["sh", "-c", "until [ -f /tmp/go ]; do sleep 1; done"]}, True),
        ("/tmp/go", {"args": ["sleep 9"], "env": [{"name": "F", "value": "/tmp/go"}]}, True),
        ("/tmp/go", {"command": ["go"]}, False),
        ("empty:go", {"command": ["sh", "-c", "ls /v"], "volumeMounts": mounted("empty")}, True),
        ("empty:go", {"command": ["sh", "-c", "ls /v"], "volumeMounts": mounted("config")}, False),
    ],
)
def test_script_names_a_file_by_its_path_or_that_of_its_volume(path: str, more: Obj, named: bool) -> None:
    assert names_files({"name": "c", **more}, [Change(0.0, path, "")]) == named


def test_pod_tells_what_it_has_found_in_volumes() -> None:
    found = {"v": VolumeContents({"a/b": "text", "c": ""}, is_whole=True), "w": VolumeContents({}, is_whole=True)}
    of = pod()
    of["metadata"]["annotations"] = {FOUND: found_annotation(found)}
    assert found_in(of) == {"v": found["v"]}
    for other in ("[1]", "{", '{"v": 1}', '{"v": [1, 2]}', ""):
        of["metadata"]["annotations"] = {FOUND: other}
        assert found_in(of) == {} == found_in(pod())
    too_much = {"v": VolumeContents({"a": "x" * 200_000}, is_whole=True)}
    assert found_annotation({"w": found["w"]}) == ""
    of["metadata"]["annotations"] = {FOUND: found_annotation(too_much)}
    assert found_in(of) == {"v": VolumeContents({}, is_whole=False)}


@pytest.mark.parametrize(
    ("volume", "claim", "is_empty"),
    [
        ({"hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}, None, True),
        ({"hostPath": {"path": "/a", "type": "Directory"}}, None, False),
        ({"hostPath": {"path": "/a"}}, None, False),
        ({"persistentVolumeClaim": {"claimName": "a"}}, "volumes.simulated.haru.dev", True),
        ({"persistentVolumeClaim": {"claimName": "a"}}, "csi.example.com", False),
        ({"persistentVolumeClaim": {"claimName": "a"}}, None, False),
    ],
)
def test_volume_is_known_to_be_empty_at_first_if_it_was_made_for_the_pod(
    volume: Obj, claim: str | None, is_empty: bool
) -> None:
    named = {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": claim}}} if claim else None
    assert begins_empty(volume, named) == is_empty


def test_pod_tells_what_commands_have_changed() -> None:
    changes = [Change(0.0, "/tmp/x", "a"), Change(1.5, "v:/y", None), Change(2.0, "/z", "b", True, 1.0, 9.0)]
    first, second = Executed("main", 0, BEGAN, changes[:2]), Executed("main", 1, BEGAN, changes[2:])
    of = with_executed(with_executed(pod(), first), second)
    assert executed_in(of) == (first, second)
    long = Executed("main", 0, BEGAN, [Change(0.0, "/tmp/x", "a" * 100_000)])
    assert executed_in(with_executed(with_executed(of, long), long)) == (long,)
    of["metadata"]["annotations"] = {"simulated.haru.dev/executed": "[[1]]"}
    assert executed_in(of) == () == executed_in(pod())


def test_dd_writes_zeros_into_a_file() -> None:
    command = "dd if=/dev/zero of=/tmp/go bs=1 count=2 conv=fsync && test -s /tmp/go"
    ran = run_in_container(pod(), container("sleep 9"), ["sh", "-c", command])
    assert [(one.text, one.is_error) for one in ran.lines] == [("2+0 records in", True), ("2+0 records out", True)]
    assert ran.exit_code == 0
    for other in ("dd if=/dev/sda of=/tmp/go bs=1 count=1", "dd if=/dev/zero of=/tmp/go bs=1M count=9"):
        assert run_in_container(pod(), container("sleep 9"), ["sh", "-c", other]).exit_code == 127
