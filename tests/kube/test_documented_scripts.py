"""Containers of Kubernetes' documented examples: logs in shared volumes that others follow, pipes, lists of files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.kube.names import format_time
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.container_scripts import Script, script_of, termination_message
from haru.kube.simulated_containers.files import PodSources
from haru.kube.simulated_containers.text import as_printed

Obj = dict[str, Any]
BEGAN = datetime(2026, 11, 28, 9, 59, 58, tzinfo=UTC)
SOURCES = PodSources(ReferencedObjects({"sport": {"data": {"sport": "hockey", "team": "a\nb\n"}}}.get, lambda _: None))
COUNT = """
i=0;
while true;
do
  echo "$i: $(date)" >> /var/log/1.log;
  echo "$(date) INFO $i" >> /var/log/2.log;
  i=$((i+1));
  sleep 1;
done
"""


def container(name: str, text: str, **more: Any) -> Obj:
    mounts = [{"name": "log", "mountPath": "/var/log"}, {"name": "config", "mountPath": "/etc/config"}]
    return {"name": name, "image": "busybox", "args": ["/bin/sh", "-c", text], "volumeMounts": mounts, **more}


def pod(*containers: Obj, init: tuple[Obj, ...] = (), begun: dict[str, float] | None = None) -> Obj:
    """A pod whose containers have begun so many seconds after 09:59:58."""
    spec: Obj = {"containers": list(containers), "initContainers": list(init)}
    spec["volumes"] = [{"name": "log", "emptyDir": {}}, {"name": "config", "configMap": {"name": "sport"}}]
    statuses = [
        {"name": name, "state": {"running": {"startedAt": format_time(BEGAN + timedelta(seconds=seconds))}}}
        for name, seconds in (begun or {}).items()
    ]
    status = {"containerStatuses": statuses} if begun is not None else {}
    return {"metadata": {"name": "counter", "namespace": "n", "uid": "u"}, "spec": spec, "status": status}


def log(of: Obj, name: str, until: float, began: float = 0.0) -> list[tuple[float, str]]:
    """What a container prints, by seconds from its start."""
    spec = of["spec"]
    one = next(each for each in (*spec["initContainers"], *spec["containers"]) if each["name"] == name)
    found = script_of(of, one, SOURCES) or Script()
    begins = BEGAN + timedelta(seconds=began)
    return [(round(at, 2), as_printed(line, begins)) for at, line in found.printed(until)]


def of_shell(text: str, until: float = 100.0) -> list[str]:
    return [line for _, line in log(pod(container("main", text)), "main", until)]


def exec_in(of: Obj, name: str, text: str, elapsed: float) -> list[str]:
    """What `kubectl exec` prints in a container that has run so long since 09:59:58."""
    one = next(each for each in of["spec"]["containers"] if each["name"] == name)
    ran = run_in_container(of, one, ["sh", "-c", text], SOURCES, elapsed)
    return [as_printed(line.text, BEGAN + timedelta(seconds=elapsed)) for line in ran.lines]


@pytest.mark.parametrize("begun", [None, {"count": 0, "one": 0, "two": 0}])
def test_sidecars_print_what_a_container_appends_to_files_when_it_does(begun: dict[str, float] | None) -> None:
    follow = "tail -n+1 -F /var/log/{}.log".format
    of = pod(container("count", COUNT), container("one", follow(1)), container("two", follow(2)), begun=begun)
    assert log(of, "count", 3) == []
    assert log(of, "one", 2.5) == [
        (0, "0: Sat Nov 28 09:59:58 UTC 2026"),
        (1, "1: Sat Nov 28 09:59:59 UTC 2026"),
        (2, "2: Sat Nov 28 10:00:00 UTC 2026"),
    ]
    assert log(of, "two", 7200)[-1] == (7200, "Sat Nov 28 11:59:58 UTC 2026 INFO 7200")


def test_follower_that_begins_later_or_earlier_prints_the_same_dates() -> None:
    late = pod(container("count", COUNT), container("f", "tail -F /var/log/1.log"), begun={"count": 0, "f": 12})
    assert [line[:12] for _, line in log(late, "f", 1.5, 12)] == [
        *(f"{n}: Sat Nov 28"[:12] for n in range(3, 13)),
        "13: Sat Nov ",
    ]
    assert log(late, "f", 1.5, 12)[-2:] == [
        (0, "12: Sat Nov 28 10:00:10 UTC 2026"),
        (1, "13: Sat Nov 28 10:00:11 UTC 2026"),
    ]
    sidecar = container("f", "tail -F /var/log/1.log", restartPolicy="Always")
    early = pod(container("count", COUNT), init=(sidecar,), begun={"count": 2, "f": 0})
    assert log(early, "f", 3.5) == [
        (0, "tail: can't open '/var/log/1.log': No such file or directory"),
        (2, "tail: /var/log/1.log has appeared; following end of new file"),
        (2, "0: Sat Nov 28 10:00:00 UTC 2026"),
        (3, "1: Sat Nov 28 10:00:01 UTC 2026"),
    ]


def test_follower_whose_writer_has_not_begun_or_has_ended_prints_no_more() -> None:
    of = pod(container("f", "tail -F /var/log/1.log"), container("count", COUNT), begun={"f": 0})
    assert [line for _, line in log(of, "f", 50)] == ["tail: can't open '/var/log/1.log': No such file or directory"]
    of = pod(container("f", "tail -F /var/log/1.log"), container("count", COUNT), begun={"f": 0, "count": 1})
    ended = {"startedAt": "2026-11-28T09:59:59Z", "finishedAt": "2026-11-28T10:00:01Z"}
    of["status"]["containerStatuses"][1]["state"] = {"terminated": ended}
    assert [line[:2] for _, line in log(of, "f", 50)][2:] == ["0:", "1:", "2:"]


def test_followed_file_that_is_written_anew_is_read_from_where_one_had_come() -> None:
    texts = ("echo a > {0}", "echo b > {0}", "echo longer > {0}", "echo d > {0}", "rm {0}; echo e > {0}")
    writer = container("w", "; sleep 1; ".join(texts).format("/var/log/x"))
    printed = log(pod(writer, container("f", "tail -n+1 -F /var/log/x")), "f", 9)
    assert printed[:3] == [(0, "a"), (2, "nger"), (3, "d")]
    assert printed[3:] == [(4, "tail: /var/log/x has been replaced; following end of new file"), (4, "e")]


def test_adapter_changes_each_line_that_it_follows() -> None:
    text = 'touch /var/log/raw; tail -F /var/log/raw | while read line; do echo "adapted: $line"; done'
    adapter = container("adapter", text, restartPolicy="Always")
    main = container("main", 'while true; do echo "$(date +%T) raw event" >> /var/log/raw; sleep 2; done')
    of = pod(main, init=(adapter,), begun={"adapter": 0, "main": 1})
    assert log(of, "adapter", 4) == [(1, "adapted: 09:59:59 raw event"), (3, "adapted: 10:00:01 raw event")]


def test_container_reads_what_another_one_writes_meanwhile() -> None:
    writer = container("w", 'while true; do echo "$(date +%T) $(cat /etc/config/sport)" > /var/log/x; sleep 10; done')
    reader = container("r", "while true; do cat /var/log/x; sleep 10; done")
    of = pod(writer, reader)
    assert log(of, "r", 25) == [(0, "09:59:58 hockey"), (10, "10:00:08 hockey"), (20, "10:00:18 hockey")]
    assert exec_in(of, "r", "cat /var/log/x; date +%T", 3605) == ["10:59:58 hockey", "11:00:03"]


def test_exec_sees_files_of_endless_loops_as_they_are_by_then() -> None:
    of = pod(container("count", COUNT), container("other", "sleep infinity"))
    for name in ("count", "other"):
        assert exec_in(of, name, "wc -l /var/log/1.log; tail -n 1 /var/log/2.log; ls /var/log", 100.5) == [
            "101 /var/log/1.log",
            "Sat Nov 28 10:01:38 UTC 2026 INFO 100",
            "1.log",
            "2.log",
        ]


def test_dates_that_init_containers_wrote_are_theirs() -> None:
    init = container("i", "date +%T > /var/log/x; sleep 5")
    of = pod(container("main", "cat /var/log/x"), init=(init,), begun={"i": 0, "main": 6})
    assert log(of, "main", 1, 6) == [(0, "09:59:58")]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("ls /etc/config/; ls /etc/config/sport", ["sport", "team", "/etc/config/sport"]),
        ('echo "sport is $(cat /etc/config/sport)"', ["sport is hockey"]),
        ('echo $(cat /etc/config/team) "$(cat /etc/config/team)"', ["a b a", "b"]),
        ("cat /etc/config/team | wc -l; wc /etc/config/team", ["2", "        2         2         4 /etc/config/team"]),
        ("env | grep HOSTNAME", ["HOSTNAME=counter"]),
        ("seq 9 | tail -n 2; seq 9 | head -1; seq 4 | tail -n +4", ["8", "9", "1", "4"]),
        ("echo a | tee /tmp/x; cat /tmp/x; echo b | tee -a /tmp/x > /dev/null; cat /tmp/x", ["a", "a", "a", "b"]),
        ("touch /tmp/b /tmp/a; ls /tmp; ls /tmp/c", ["a", "b", "ls: /tmp/c: No such file or directory"]),
        ("seq 2 | while read n; do echo $n > /tmp/$n; done; ls /tmp; cat /tmp/2", ["1", "2", "2"]),
        ("date +%T > /tmp/x; sleep 5; cat /tmp/x", ["09:59:58"]),
        ("echo a; sleep 9 & wait; echo b; sleep 1 & wait $!; date +%T", ["a", "b", "10:00:08"]),
        ("printf a; echo b > /tmp/x; echo c", ["ac"]),
        ("\nitems=(foo 'b r' baz)\nI=1\necho ${items[$I]} ${items[0]} ${items[9]}.\nenv | grep foo", ["b r foo ."]),
        ("a=(foo bar); echo ${a[1]} > /var/log/data.txt; rev /var/log/data.txt", ["rab"]),
    ],
)  # fmt: skip
def test_programs_of_documented_tasks_are_understood(text: str, lines: list[str]) -> None:
    assert of_shell(text) == lines


def test_loop_whose_output_goes_through_tee_is_in_the_log_and_in_the_file() -> None:
    of = pod(container("c", "while [ true ]; do echo 'Hello'; sleep 10; done | tee -a /var/log/hello.txt"))
    assert log(of, "c", 25) == [(0, "Hello"), (10, "Hello"), (20, "Hello")]
    assert exec_in(of, "c", "cat /var/log/hello.txt", 25) == ["Hello"] * 3


def test_condition_in_an_endless_loop_is_looked_at_in_later_turns() -> None:
    text = "i=0; while true; do i=$((i+1)); echo $i; if [ $i -ge 9 ]; then exit 7; fi; sleep 1; done"
    found = script_of(pod(), container("c", text))
    assert found is not None and (found.ends_after, found.exit_code, len(found.lines)) == (8, 7, 9)


def test_termination_message_has_the_date_at_which_it_was_written() -> None:
    one = container("c", "sleep 2; date +%T > /dev/termination-log")
    found = script_of(pod(one), one)
    assert found is not None and termination_message(one, found, BEGAN) == "10:00:00\n"


def test_endless_loops_are_told_of_by_their_last_turns() -> None:
    loops = "while true; do echo x >> /var/log/1.log; sleep 0.001; done"
    of = pod(container("w", loops), container("f", "tail -n+1 -F /var/log/1.log"))
    assert len(log(of, "f", 1e7)) < 100_010
    assert exec_in(of, "w", "wc -l /var/log/1.log", 1e7) == ["100003 /var/log/1.log"]
    reader = container("r", "for i in $(seq 50); do sleep 1h; wc -l /var/log/1.log; done")
    assert log(pod(of["spec"]["containers"][0], reader), "r", 1e6)[-1][0] == 36000


@pytest.mark.parametrize(
    "text",
    [
        "while true; do sleep 1; done | grep a \\",
        "| grep -v a\n\nexport A=$(date) if",
        "\1 | \2 0",
        "echo \0001:2:x\0 \0 >> /var/log/x; cat /var/log/x",
        "seq 2 | cat /var/log/x",
        "a=(';'); echo ${a[0]}${a[$B]} |",
        "tail -n; head -n -1 /var/log/x; wc; ls; tee; rev",
        "x=a; while [ 1 = 1 ]; do x=$x$x; done",
        "echo a > /tmp/x; while [ 1 = 1 ]; do cat /tmp/x >> /tmp/x; done",
        "while true; do [ 1 = 1 ]; x=a$x$x; cat /tmp/x; echo $x >> /tmp/x; done",
        "i=9; while [ $i != 1 ]; do i=$((i*i)); done",
        "sleep " + "9" * 5000 + "; exit 1",
        "exit " + "9" * 5000,
        "[ " + "9" * 5000 + " -lt 1 ] || seq 1 " + "9" * 5000 + " | tail -n " + "9" * 5000,
        "i=" + "9" * 5000 + "; while true; do i=$((i+1)); echo $i; done",
    ],
)
def test_odd_script_is_understood_or_not_but_is_no_error(text: str) -> None:
    of_shell(text)
    exec_in(pod(container("main", text)), "main", text, 10.5)
