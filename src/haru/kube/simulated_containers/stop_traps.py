"""What the shell of a simulated container does that traps the signal by which it is stopped. Pure.

Source: `trap` of POSIX sh: its command, or a function of the script; `''` is to take no notice of the signal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.simulated_containers.container_shell import run_beside
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.test_images import image_argv
from haru.kube.simulated_containers.trivial_shell import SHELLS

STOPPED: Final = 143
"""The exit code of who is ended by SIGTERM, and of a shell that was told so and says no other."""
_TRAP: Final = re.compile(r"(?:^|[;\n{&])[ \t]*trap[ \t]+(?:--[ \t]+)?('[^']*'|\"[^\"]*\"|\w+|-)((?:[ \t]+\w+)+)")
_FUNCTION: Final = r"(?:^|[;\n])[ \t]*(?:function[ \t]+)?{name}[ \t]*(?:\(\))?[ \t\n]*\{{(.*?)(?:[;\n])[ \t]*\}}"


def traps_of(container: Mapping[str, Any]) -> str | None:
    """The commands that a container's shell runs when it is stopped; None if it traps nothing of the kind."""
    argv = image_argv(container)
    if len(argv) < 3 or argv[0].rpartition("/")[2] not in SHELLS or "trap" not in argv[-1]:
        return None
    signal = str((container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM")
    names = {signal, signal.removeprefix("SIG"), *(["15"] if signal == "SIGTERM" else [])}
    found = [one[1] for one in _TRAP.finditer(argv[-1]) if names & set(one[2].split())]
    if not found or found[-1] == "-":
        return None
    text = found[-1].strip("'\"")
    body = re.search(_FUNCTION.format(name=re.escape(text)), argv[-1], re.DOTALL) if text.isidentifier() else None
    return body[1].strip() if body is not None else text


def run_on_stop(pod: Obj, container: Mapping[str, Any]) -> Ran | None:
    """How a container that traps its stop comes to its end; None for one that ends by the signal, or nobody knows how.

    It does not end by itself where it takes no notice. A script that goes on after its trap is taken to end.
    """
    text = traps_of(container)
    if text is None:
        return None
    if not text:
        return Ran()
    ran = run_beside(pod, container, ["sh", "-c", f"{text}\nexit {STOPPED}"])
    return None if ran.unknown else ran
