"""The trivial commands that simulated containers run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from haru.kube.simulated_containers.container_scripts import RUNS_ON, Script, script_of
from haru.kube.simulated_containers.stopped_runs import stopped_script
from haru.kube.simulated_containers.text import as_printed

ENV = [{"name": "X", "value": "v"}, {"name": "SECRET", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def script(*command: str, **container: Any) -> Script | None:
    return script_of({"metadata": {"name": "p"}}, {"name": "c", "command": list(command), "env": ENV, **container})


@pytest.mark.parametrize(
    ("command", "after", "code"),
    [
        (["true"], 0, 0),
        (["/bin/false"], 0, 1),
        (["sleep", "5"], 5, 0),
        (["sleep", "1.5m", "2"], 92, 0),
        (["sleep", "soon"], 0, 1),
        (["sh", "-c", "exit 3"], 0, 3),
        (["sh"], 0, 0),
        (["sh", "-c", "exit 300"], 0, 44),
        (["sh", "-c", "false; exit"], 0, 1),
        (["sh", "-c", "false; true"], 0, 0),
        (["bash", "-ec", "sleep 2; false; sleep 9"], 2, 1),
        (["sh", "-e", "-c", "false || true; sleep 3"], 3, 0),
        (["sh", "-c", "set -e\nfalse\nsleep 9"], 0, 1),
        (["sh", "-c", "true && sleep 4 || sleep 8"], 4, 0),
        (["sh", "-c", "exec sleep 3; exit 9"], 3, 0),
        (["sh", "-c", "# exit 1\nsleep 1 # exit 2\nexit 3"], 1, 3),
        (["sh", "-c", "echo 'never closed"], 0, 2),
        (["sh", "-c", "exit $(X)5"], 0, 2),
        (["sh", "-c", "trap 'exit 9' TERM INT; sleep 2; exit 3"], 2, 3),
        (["sh", "-c", "trap 'echo $(date); exit 9' TERM; sleep 2; exit 3"], 2, 3),
        (["sh", "-c", "end() {\n  kill 0\n  exit 9\n}\ntrap end TERM INT\nsleep 2; exit 3"], 2, 3),
        (["sh", "-c", "cp /tmp/none /tmp/b; exit $?"], 0, 1),
        (["sh", "-ec", "if false; then sleep 9; fi; sleep 2; exit 3"], 2, 3),
        (["sh", "-ec", "i=0; while [ $i -lt 4 ]; do sleep 1; i=$((i+1)); done; exit $i"], 4, 4),
        (["sh", "-c", "i=0; until [ $i = 2 ]; do i=$(expr $i + 1); sleep 1; done"], 2, 0),
        (
            ["sh", "-c", "i=0\nwhile [ $i -le 9 ]\ndo\nif [ $i = 3 ]; then exit 7; fi\ni=$((i+1))\nsleep 1\ndone\n"],
            3,
            7,
        ),
        (["sh", "-ec", "while [ 1 -lt 2 ]; do sleep 1; false; done"], 1, 1),
        (["sh", "-c", "for i in 1 2; do sleep 1; if [ $i = 2 ]; then exit 4; fi; done"], 2, 4),
        (["sh", "-c", "for i in 1 2 3; do sleep 1; [ $i = 2 ] && break; done; exit $i"], 2, 2),
        (["sh", "-c", "i=0; while true; do sleep 1; i=$((i+1)); if [ $i = 3 ]; then break; fi; done; exit 5"], 3, 5),
        (["sh", "-c", "! false && exit 6"], 0, 6),
        *(
            (
                ["sh", "-c", f"x={x}; if [ $x = 1 ]; then exit 11; elif [ $x = 2 ]; then exit 12\nelse\n exit 13; fi"],
                0,
                code,
            )
            for x, code in ((1, 11), (2, 12), (3, 13))
        ),
        (["sh", "-c", "if false; then exit 1; elif false; then exit 2; fi; exit $?"], 0, 0),
        (["sh", "-c", f"{'! ' * 5001} false && exit 6"], 0, 6),
        (["sh", "-c", "break; exit 7"], 0, 7),
        (["sh", "-c", "for i in 1 2; do break; done; break; exit 7"], 0, 7),
        (["sh", "-c", "x=5; seq 3 | while read x; do echo $x; done; exit $x"], 0, 5),
        (["sh", "-c", "i=0; while [ $i -lt 2 ]; do i=$((i+1)); sleep $((i*2)); done; exit 1"], 6, 1),
        (["sh", "-c", "sleep $((1 + 7 % 4 * 2 - 3)); exit $(( 2*3 ))"], 4, 6),
        (["sh", "-ec", "! true; exit 7"], 0, 7),
        (["sh", "-c", "A='1 2'; for i in $A; do sleep $i; done"], 3, 0),
        (["sh", "-c", "sleep 1 & exit 1"], 0, 1),
        (["sh", "-c", "[ -e /tmp/x ] || { touch /tmp/x; sleep 2; exit 4; }; exit 5"], 2, 4),
        (["sh", "-c", "true || { exit 3; }; exit 5"], 0, 5),
        (["sh", "-c", "sleep 1\ntrue && {\n  sleep 2\n  exit 6\n}\nexit 7"], 3, 6),
        (["sh", "-c", "sleep 5 & P=$!; wait $P; exit 3"], 5, 3),
        (["sh", "-c", 'sleep 5 &\nPID=$!\nsleep 2\nwait "${PID}"\nexit $?'], 5, 0),
        (["sh", "-c", "sleep 1 & A=$!; sleep 4 & B=$!; wait $A; exit 3"], 1, 3),
        (["sh", "-c", "sleep 1 & A=$!; sleep 4 & wait; exit 3"], 4, 3),
        (["sh", "-c", "false & wait $!; exit $?"], 0, 1),
        (["sh", "-c", "python x & sleep 3; exit 4"], 3, 4),
        (["sh", "-c", "wait; wait 77; exit $?"], 0, 127),
        (["sh", "-c", "true & env | grep -q '!' && exit 3"], 0, 1),
    ],
)
def test_understood_command_ends_after_time_with_code(command: list[str], after: float, code: int) -> None:
    found = script(*command)
    assert found is not None and (found.ends_after, found.exit_code) == (after, code)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["sleep", "infinity"],
        ["sh", "-c", "while true; do sleep 1; done"],
        ["sh", "-c", "ls | wc; exit 1"],
        ["sh", "-c", "exit `date`"],
        ["sh", "-c", "touch /tmp/$(date +%s); exit 1"],
        ["sh", "-c", 'test "$(date +%H)" -lt 25 && exit 1'],
        ["sh", "-c", "echo '$(date)'; exit 1"],
        ["date", "-d", "yesterday"],
        ["date", "+%Q"],
        ["sh", "-c", "python x & P=$!; sleep 2; wait $P; exit 1"],
        ["sh", "-c", "sleep infinity & P=$!; wait $P; exit 1"],
        ["sh", "-c", "(sleep 1; echo x) & exit 1"],
        ["sh", "-c", "for i in 1 2; do for j in 1 2; do echo $i $j; done; done; exit 1"],
        ["sh", "-c", "for i in *; do echo $i; done; exit 1"],
        ["sh", "-c", "trap 'echo bye' EXIT; exit 1"],
        ["sh", "-c", "while [ 1 -lt 2 ]; do sleep 1; done; exit 1"],
        ["sh", "-c", "i=0; while [ $i -lt 2 ]; do i=$((i+1)); while [ 1 = 2 ]; do true; done; done; exit 1"],
        ["sh", "-c", "until nslookup db; do echo waiting; sleep 2; done; exit 1"],
        ["sh", "-c", "until [ -f /data/ready ]; do sleep 1; done; exit 1"],
        ["sh", "-c", "printf '%.2f' 1; exit 1"],
        ["sh", "-c", "printf '%d' many; exit 1"],
        ["sh", "-c", "echo -e '\\x41'; exit 1"],
        ["sh", "-c", 'printf "$(date) %s" a; exit 1'],
        ["sh", "-c", 'echo "$(seq 2)"; exit 1'],
        ["seq", "1", "1000000"],
        ["sh", "-c", "cp -r /tmp /data; exit 1"],
        ["sh", "-c", "cp /bin/ls /tmp; exit 1"],
        ["sh", "-c", "if true; then true; fi; " * 2000],
        ["sh", "run.sh"],
    ],
)
def test_other_command_runs_on(command: list[str]) -> None:
    found = script(*command)
    assert found is None or found.ends_after is None


def test_echo_prints_expanded_words_at_their_times() -> None:
    found = script("sh", "-c", 'echo "start  $X" ${HOSTNAME} "a; b"; sleep 2; false; echo $? >&2; python x; echo never')
    assert found == Script(((0.0, "start  v p a; b"), (2.0, "1")), understood=False)
    assert script("echo", "$(X)", "$(Y)") == Script(((0.0, "v $(Y)"),), 0.0)


def test_memory_above_the_limit_is_an_oom_kill() -> None:
    args = ["--vm", "2", "--vm-bytes", "250M", "--vm-hang", "1"]
    limits = {"limits": {"memory": "300Mi"}}
    killed = script("stress", args=args, resources=limits)
    assert killed is not None and (killed.exit_code, killed.reason) == (137, "OOMKilled")
    assert script("stress", args=args, resources={"limits": {"memory": "1Gi"}}) is None
    assert script("stress", args=args) is None


def test_builtin_of_a_shell_is_no_program() -> None:
    found = script("exit", "1")
    assert found is not None and (found.exit_code, found.reason) == (128, "StartError")
    assert 'exec: "exit": executable file not found in $PATH' in found.message


def test_container_without_command_has_no_script() -> None:
    assert script_of({"metadata": {"name": "p"}}, {"name": "c", "image": "i"}) is None


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "for i in 1 2 3; do echo step $i; sleep 2; done; echo end",
            [(0, "step 1"), (2, "step 2"), (4, "step 3"), (6, "end")],
        ),
        ("for i in $(seq 2 3); do echo $i; done", [(0, "2"), (0, "3")]),
        (
            'i=1; echo go; while [ "$i" -le 2 ]; do echo $i; i=$((i+1)); sleep 5; done; echo end',
            [(0, "go"), (0, "1"), (5, "2"), (10, "end")],
        ),
        ("for i in `seq 2`; do echo $i; done", [(0, "1"), (0, "2")]),
        ("seq 3 -1 2; seq 5 9 1; echo $(seq 3)", [(0, "3"), (0, "2"), (0, "1 2 3")]),
        (
            'echo -e "a\\tb\\nc" \'d\\n\'; echo -en "\\n"; echo "e\\n" -n',
            [(0, t) for t in ("a\tb", "c d", "", "", "e\\n -n")],
        ),
        (
            "printf '%s is %03d%%\\n' a 7 b; sleep 1; printf x; printf 'y\\n' z",
            [(0, "a is 007%"), (0, "b is 000%"), (1, "xy")],
        ),
        ("trap : TERM INT; echo a", [(0, "a")]),
        ("echo a > /tmp/x; cp /tmp/x /tmp/y; cp /tmp/y /home; cat /tmp/y /home/y", [(0, "a"), (0, "a")]),
        ("N=5; export M=6; echo $N $M", [(0, "5 6")]),
        ("echo a > /tmp/x; echo b >> /tmp/x; echo $(wc -l </tmp/x) $(head -n 1 < /tmp/x)", [(0, "2 a")]),
        ("echo a > /tmp/x; echo b >> /tmp/x; echo c > /dev/null; sleep 1; cat /tmp/x", [(1, "a"), (1, "b")]),
        ("echo 1 2>&1", [(0, "1")]),
        ('X=wrong echo "$X"; A=b printenv A; echo "$A"', [(0, "v"), (0, "b"), (0, "")]),
    ],
)
def test_loops_over_words_variables_and_files_are_understood(text: str, lines: list[tuple[float, str]]) -> None:
    found = script("sh", "-c", text)
    assert found is not None and (found.exit_code, list(found.lines)) == (0, lines)
    assert found.ends_after is not None


def test_endless_loop_prints_again_and_again() -> None:
    found = script("sh", "-c", "echo begin; while true; do echo polo; sleep 2; done")
    assert found is not None and found.ends_after is None
    assert found.printed(5) == [(0, "begin"), (0, "polo"), (2, "polo"), (4, "polo")]
    assert found.printed(5, 2) == [(4, "polo")]
    assert (found.next_line(0), found.next_line(4.5)) == (2, 6)
    found = script("sh", "-c", 'while [ 1 ]; do echo -en "\\n"; printenv X; sleep 3; done')
    assert found is not None and found.printed(3) == [(0, ""), (0, "v"), (3, ""), (3, "v")]


BEGAN = datetime(2026, 11, 8, 9, 59, 58, tzinfo=UTC)


def printed(text: str, until: float = 3.5) -> list[str]:
    found = script("sh", "-c", text)
    assert found is not None
    return [as_printed(line, BEGAN) for _, line in found.printed(until)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("date; echo Hello", ["Sun Nov  8 09:59:58 UTC 2026", "Hello"]),
        ("date -u +%FT%TZ; sleep 2; date '+%H:%M %Z'", ["2026-11-08T09:59:58Z", "10:00 UTC"]),
        ('sleep 3; echo "at $(date +%s)" `date +%Y`', ["at 1794132001 2026"]),
        ("printf '%s: %s\\n' \"$(date +%T)\" begin", ["09:59:58: begin"]),
        ("START=$(date +%T); sleep 2; echo $START $(date +%T)", ["09:59:58 10:00:00"]),
        ("while true; do date +%T; sleep 2; done", ["09:59:58", "10:00:00"]),
        (
            "START=$(date +%T); while true; do echo $START $(date +%T); sleep 2; done",
            ["09:59:58 09:59:58", "09:59:58 10:00:00"],
        ),
    ],
)
def test_dates_are_those_of_the_moment_at_which_they_are_asked_for(text: str, lines: list[str]) -> None:
    assert printed(text) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            'i=0; while true; do echo "$i: $(date +%T)"; i=$((i+1)); sleep 1; done',
            ["0: 09:59:58", "1: 09:59:59", "2: 10:00:00", "3: 10:00:01", "4: 10:00:02"],
        ),
        ("i=9; while true; do i=$((i-3)); echo v$i of 7; sleep 1; done", [f"v{n} of 7" for n in (6, 3, 0, -3, -6)]),
        ("i=1; while true; do echo $i; i=$((i*2)); sleep 1; done", ["1", "2", "4"]),  # and then is not told
        ("i=1; while true; do [ $i = 3 ] && exit 1; echo $i; i=$((i+1)); sleep 1; done", ["1", "2"]),
    ],
)
def test_endless_loop_whose_turns_differ_goes_on_as_it_began(text: str, lines: list[str]) -> None:
    assert printed(text, 4) == lines


def test_date_of_another_time_zone_is_not_understood() -> None:
    assert script("sh", "-c", "date; exit 1", env=[{"name": "TZ", "value": "Europe/Berlin"}]) is None


def annotated(**annotations: str) -> Script:
    metadata = {"name": "p", "annotations": {f"simulated.haru.dev/{key}": text for key, text in annotations.items()}}
    return script_of({"metadata": metadata}, {"name": "c"}) or RUNS_ON


def test_log_of_annotation_has_times_and_repetitions() -> None:
    found = annotated(log="loading\n@5 epoch 1; loss 3\n@every 10 alive")
    assert found.printed(20) == [(0, "loading"), (5, "epoch 1; loss 3"), (10, "alive"), (20, "alive")]


@pytest.mark.parametrize(
    ("container", "ends", "lines"),
    [
        ({"image": "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"}, True, []),
        ({"image": "registry.k8s.io/e2e-test-images/busybox:1.36.1-1", "stdin": True}, False, []),
        ({"image": "registry.k8s.io/e2e-test-images/agnhost:2.56"}, False, [(0, "Paused")]),
        ({"image": "registry.k8s.io/e2e-test-images/agnhost:2.56", "args": ["pause"]}, False, [(0, "Paused")]),
        ({"image": "busybox"}, False, []),
    ],
)
def test_test_image_does_without_command_what_it_does(
    container: dict[str, Any], ends: bool, lines: list[tuple[float, str]]
) -> None:
    found = script_of({"metadata": {"name": "p"}}, {"name": "c", **container}) or RUNS_ON
    assert (found.ends_after is not None, list(found.lines)) == (ends, lines)


def test_trap_of_a_sidecar_prints_once_the_containers_have_ended_that_it_is_there_for() -> None:
    side = {"name": "side", "restartPolicy": "Always", "command": ["sh", "-c", "trap 'echo bye' TERM; sleep infinity"]}
    began = datetime(2026, 1, 1, tzinfo=UTC)
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
        "spec": {"initContainers": [side], "containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    }
    assert stopped_script(pod, side, RUNS_ON, began) == RUNS_ON
    ended = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:15Z"}
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    stopped = stopped_script(pod, side, RUNS_ON, began)
    assert stopped.printed(60) == [(15.0, "bye")] and stopped.ends_after == 15.0
