"""The programs of the images of Kubernetes' own tests, as far as objects and time decide what they do. Pure.

`agnhost` has `pause`, `entrypoint-tester`, `etc-hosts`, `dns-suffix`, `dns-server-list`, `logs-generator` and
`mounttest`; busybox without a command is a shell that ends.
Source: kubernetes/test/images, as behaviour.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from haru.kube.simulated_containers.executed import FILE_SERVER
from haru.kube.simulated_containers.files import ContainerFiles
from haru.kube.simulated_containers.trivial_shell import TrivialShell

AGNHOST: Final = "agnhost"
_AGNHOST_FILES: Final = ("/localhost.crt", "/localhost.key")
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?)([sm])")
_TEST_IMAGES: Final = "/e2e-test-images/"
_NEW_TEXT: Final = "mount-tester new file\n"
_LOOP_SECONDS: Final = 2.0
_DEFAULT_SECONDS: Final = 180.0
_PORTS: Final[Mapping[str, int]] = {
    "grpc-health-checking": 5000, "liveness": 8080, "netexec": 8080, FILE_SERVER: 80,
}  # fmt: skip
_FAILING_SERVERS: Final[Mapping[str, tuple[float, str]]] = {
    "liveness": (10.0, "HTTP probe failed with statuscode: 500"),
}


def image_argv(container: Mapping[str, Any]) -> list[str]:
    """The command of a container, that of its image included if that is known; empty if nothing is known."""
    command, args = [*(container.get("command") or ())], [*(container.get("args") or ())]
    image = str(container.get("image") or "")
    name = image.rpartition("/")[2].partition(":")[0]
    if command or _TEST_IMAGES not in image:
        return [*command, *args]
    if name == AGNHOST:
        return [f"/{AGNHOST}", *(args or ["pause"])]
    if name == "busybox" and not args:
        return [] if container.get("stdin") else ["true"]
    return args


def image_files(container: Mapping[str, Any]) -> Mapping[str, str]:
    """Files of a container's image that are known to be there, but not what they hold."""
    image = str(container.get("image") or "")
    is_known = _TEST_IMAGES in image and image.rpartition("/")[2].partition(":")[0] == AGNHOST
    return dict.fromkeys(_AGNHOST_FILES, "") if is_known else {}


def served_path(container: Mapping[str, Any], probe: Mapping[str, Any]) -> str:
    """The file that a probe asks the file server of `agnhost` for; empty for another probe."""
    serves = image_argv(container)[:2] == [f"/{AGNHOST}", FILE_SERVER]
    return str((probe.get("httpGet") or {}).get("path") or "") if serves else ""


def probe_failure(container: Mapping[str, Any], probe: Mapping[str, Any]) -> tuple[float, str] | None:
    """From how many seconds on a server of `agnhost` fails a probe, and what the probe says; None if it never does."""
    given = image_argv(container)
    if len(given) < 2 or given[0].rpartition("/")[2] != AGNHOST or given[1] not in _PORTS:
        return None
    server, flags = given[1], dict(_flags(given[2:]))
    action = probe.get("httpGet") or probe.get("tcpSocket") or probe.get("grpc") or {}
    named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
    port = named.get(action.get("port"), action.get("port"))
    if isinstance(port, int) and str(port) not in (str(_PORTS[server]), flags.get("port"), flags.get("http-port")):
        return 0.0, f"dial tcp: port {port}: connect: connection refused"
    return _FAILING_SERVERS.get(server) if "httpGet" in probe else None


def run_agnhost(shell: TrivialShell, files: ContainerFiles, args: Sequence[str]) -> int | None:
    """Run a subcommand; None for one that nothing is known of."""
    if args == ["pause"]:
        shell.say("Paused")
    elif args[:1] == ["entrypoint-tester"]:
        shell.say(f"[{' '.join([shell.name, *args])}]")
        return 0
    elif args == ["etc-hosts"]:
        shell.print_text(files["/etc/hosts"])
        return 0
    elif args in (["dns-suffix"], ["dns-server-list"]):
        _, _, line = files["/etc/resolv.conf"].partition("search " if args == ["dns-suffix"] else "nameserver ")
        shell.say(",".join(line.partition("\n")[0].split()))
        return 0
    elif args[:1] == ["logs-generator"]:
        return _generate_logs(shell, dict(_flags(args[1:])))
    elif args[:1] == ["mounttest"]:
        return _mounttest(shell, files, dict(_flags(args[1:])))
    return None


def _flags(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one, following in zip(args, (*args[1:], "-"), strict=False):
        name, separator, value = one.partition("=")
        if name.startswith("-"):
            yield name.lstrip("-"), value if separator or following.startswith("-") else following


def _generate_logs(shell: TrivialShell, flags: Mapping[str, str]) -> int | None:
    """Print so many lines of made-up requests, evenly over the time."""
    duration = _DURATION.fullmatch(flags.get("run-duration", "1m"))
    total = flags.get("log-lines-total", "10")
    if duration is None or not total.isdecimal() or len(total) > 5 or not int(total):
        return None
    seconds = float(duration[1]) * (60 if duration[2] == "m" else 1)
    for number in range(int(total)):
        verb, namespace = ("GET", "PUT", "POST")[number % 3], ("kube-system", "default", "ns")[number // 3 % 3]
        shell.say(f"{number} {verb} /api/v1/namespaces/{namespace}/pods/{number:x} {200 + number * 7 % 300}")
        shell.last(seconds / int(total))
    return 0


def _mounttest(shell: TrivialShell, files: ContainerFiles, flags: Mapping[str, str]) -> int:
    """Tell type, modes, owner and text of files, in this order; 1 if one is not there."""
    problems = 0
    if path := flags.get("fs_type"):
        shell.say(f'mount type of "{path}": {files.file_system(path)}')
    for mode in (0o644, 0o666, 0o660, 0o777):
        if path := flags.get(f"new_file_{mode:04o}"):
            try:
                files.write(path, _NEW_TEXT, mode)
            except OSError as error:
                shell.say(f'error writing new file "{path}": open {path}: {(error.strerror or "").lower()}')
                problems += 1
            else:
                problems += _content(shell, files, path)
    for flag in ("file_mode", "file_perm", "file_owner"):
        if path := flags.get(flag):
            problems += _told(shell, files, flag, path)
    if path := flags.get("file_content"):
        problems += _content(shell, files, path)
    if path := flags.get("file_content_in_loop"):
        problems += _loop(shell, files, path, flags)
    return 1 if problems else 0


def _told(shell: TrivialShell, files: ContainerFiles, flag: str, path: str) -> int:
    found = files.stat(path)
    if found is None:
        shell.say(f'error from Stat("{path}"): stat {path}: no such file or directory')
        return 1
    if flag == "file_owner":
        shell.say(f'owner UID of "{path}": {found.uid}')
        shell.say(f'owner GID of "{path}": {found.gid}')
        return 0
    text = _mode_text(found.mode & 0o777)
    if flag == "file_perm":
        shell.say(f'perms of file "{path}": -{text}')
        return 0
    bits = (found.is_directory, "d"), (found.mode & stat.S_ISGID, "g"), (found.mode & stat.S_ISVTX, "t")
    kind = "".join(letter for holds, letter in bits if holds)
    shell.say(f'mode of file "{path}": {kind or "-"}{text}')
    return 0


def _mode_text(mode: int) -> str:
    return stat.filemode(mode)[1:]


def _content(shell: TrivialShell, files: ContainerFiles, path: str) -> int:
    text = files.get(path)
    if text is None:
        shell.say(f'error reading file content for "{path}": open {path}: no such file or directory')
        return 1
    shell.print_text(f'content of file "{path}": {text}\n')
    return 0


def _loop(shell: TrivialShell, files: ContainerFiles, path: str, flags: Mapping[str, str]) -> int:
    """Read a file every two seconds, until it has the expected text or the time is over."""
    text = files.get(path)
    expects = flags.get("break_on_expected_content") != "false"
    if expects and text == _NEW_TEXT:
        return _content(shell, files, path)
    if text is None:
        said = f"Error reading file {path}: open {path}: {os.strerror(2).lower()}, retrying\n"
    else:
        said = f'content of file "{path}": {text}\n'
        said += f"Unexpected content. Expected: {_NEW_TEXT}. Retrying\n" if expects else ""
    for line in said.splitlines():
        shell.say(line, every=_LOOP_SECONDS)
    shell.last(float(flags.get("retry_time") or _DEFAULT_SECONDS))
    return int(text is None)
