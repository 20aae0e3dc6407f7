"""What a command answers that is run in a simulated container (`kubectl exec`). Pure.

First what the annotation `exec` lists, then the commands of `trivial_shell.py` and a few that look around. Anything
else fails with code 127 and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from haru.kube.container_scripts import TERMINATION_LOG, memory_limit, variables_of
from haru.kube.meta import Obj
from haru.kube.simulation import DOMAIN, EXEC, Answer, exec_answers
from haru.kube.trivial_shell import SHELLS, Ran, TrivialShell

NOT_FOUND: Final = 127
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_LOOPBACK: Final = ("127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback")
_NAME_SERVER: Final = "10.96.0.10"


def run_in_container(pod: Obj, container: Mapping[str, Any], argv: Sequence[str]) -> Ran:
    """What a command prints in a running container, and how it ends. Raises ValueError for a malformed annotation."""
    answers = exec_answers(pod, container["name"])
    variables = {"PATH": _PATH, **variables_of(pod, container), "HOME": "/root"}
    shell = _ContainerShell(variables, memory_limit(container), _files(pod, container), answers)
    shell.container, shell.directory = container["name"], container.get("workingDir") or "/"
    return shell.answer(argv)


def is_interactive(argv: Sequence[str]) -> bool:
    """Whether a command is a shell that reads what to do."""
    return argv[0].rpartition("/")[2] in SHELLS and all(word.startswith("-") and "c" not in word for word in argv[1:])


class _ContainerShell(TrivialShell):
    """A shell in a container, whose programs may be listed with their answers."""

    container, directory = "", "/"

    def __init__(
        self, variables: Mapping[str, str], memory: float, files: Mapping[str, str], answers: Mapping[str, Answer]
    ) -> None:
        super().__init__(variables, memory, files)
        self._answers = answers

    def answer(self, argv: Sequence[str]) -> Ran:
        """Run a command as it was given."""
        listed = self._answers.get(" ".join(argv))
        if listed is None:
            return self.run(argv)
        self._print(listed)
        return Ran(self.lines, 0.0, listed.exit_code)

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        listed = self._answers.get(" ".join(words))
        if listed is None:
            return super().command(words)
        self._print(listed)
        return listed.exit_code

    def other(self, words: Sequence[str]) -> int:
        """A program that looks around, or one that is not there."""
        shown = {
            "hostname": [self.variables["HOSTNAME"]],
            "pwd": [self.directory],
            "whoami": ["root"],
            "id": ["uid=0(root) gid=0(root) groups=0(root)"],
            "env": [f"{name}={value}" for name, value in self.variables.items()],
            "printenv": [self.variables[name] for name in words[1:] if name in self.variables]
            or [f"{name}={value}" for name, value in self.variables.items() if len(words) == 1],
        }.get(words[0])
        if shown is not None and (len(words) == 1 or words[0] == "printenv"):
            for line in shown:
                self.say(line)
            return 0 if shown else 1
        if words[0] == "cat" and len(words) > 1:
            missing = next(path for path in words[1:] if path not in self.files)
            self.say(f"cat: can't open '{missing}': No such file or directory", is_error=True)
            return 1
        hint = f"list its answer in the annotation {EXEC}.{DOMAIN}/{self.container}"
        self.say(f"{words[0]}: this container is simulated and runs no programs: {hint}", is_error=True)
        return NOT_FOUND

    def _print(self, answer: Answer) -> None:
        for line in answer.stdout.splitlines():
            self.say(line)
        for line in answer.stderr.splitlines():
            self.say(line, is_error=True)


def _files(pod: Obj, container: Mapping[str, Any]) -> dict[str, str]:
    """The files that kubelets write into every container."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    name, namespace = spec.get("hostname") or metadata["name"], metadata.get("namespace") or "default"
    hosts = [*_LOOPBACK, *([f"{status['podIP']}\t{name}"] if status.get("podIP") else [])]
    searched = " ".join(f"{prefix}svc.cluster.local" for prefix in (f"{namespace}.", "")) + " cluster.local"
    resolver = [f"search {searched}", f"nameserver {_NAME_SERVER}", "options ndots:5"]
    return {
        "/etc/hostname": f"{name}\n",
        "/etc/hosts": "# Kubernetes-managed hosts file.\n" + "".join(f"{line}\n" for line in hosts),
        "/etc/resolv.conf": "".join(f"{line}\n" for line in resolver),
        _NAMESPACE_FILE: namespace,
        container.get("terminationMessagePath") or TERMINATION_LOG: "",
    }
