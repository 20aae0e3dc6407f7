"""What the shell of a simulated container reads and puts in: files, documents, patterns, sums, random numbers."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.simulated_containers.container_scripts import Script, script_of
from haru.kube.simulated_containers.files import PodSources
from haru.kube.simulated_containers.shell_input import computed

Obj = dict[str, Any]
CONFIG: Obj = {"data": {"a.conf": "one\ntwo\n", "b.conf": "three\n", "c.txt": "x"}}
SOURCES = PodSources(ReferencedObjects({"config": CONFIG}.get, lambda _: None))


def ran(text: str, uid: str = "u", restarts: int = 0) -> Script:
    mounts = [{"name": "config", "mountPath": "/etc/app"}, {"name": "data", "mountPath": "/data"}]
    of = {"name": "c", "image": "busybox", "command": ["sh", "-c", text], "volumeMounts": mounts}
    volumes = [{"name": "config", "configMap": {"name": "config"}}, {"name": "data", "emptyDir": {}}]
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": uid}, "spec": {"containers": [of], "volumes": volumes}}
    status = {"containerStatuses": [{"name": "c", "restartCount": restarts}]}
    return script_of({**pod, "status": status}, of, SOURCES) or Script(understood=False)


def lines(text: str) -> list[str]:
    found = ran(text)
    assert found.ends_after is not None
    return [line for _, line in found.lines]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("ls /etc/app/*.conf", ["/etc/app/a.conf", "/etc/app/b.conf"]),
        ("cat /etc/app/*.conf", ["one", "two", "three"]),
        ("for f in /etc/app/*.conf; do echo \"$f: $(head -n 1 $f)\"; done", [
            "/etc/app/a.conf: one", "/etc/app/b.conf: three"]),
        ("for f in /etc/app/*.none; do echo $f; done", ["/etc/app/*.none"]),
        ("D=/etc/app; for f in $D/?.txt; do echo $f; done", ["/etc/app/c.txt"]),
        ("touch /data/x /data/y; rm -f /data/*; ls /data", []),
        ("echo *", ["*"]),
        ("while read line; do echo \"<$line>\"; done < /etc/app/a.conf", ["<one>", "<two>"]),
        ("while IFS= read -r line\ndo\n  echo $line\ndone < /etc/app/b.conf\necho end", ["three", "end"]),
        ("wc -l < /etc/app/a.conf", ["2"]),
        ("read first < /etc/app/a.conf; echo $first", ["one"]),
        ("cat < /dev/null; echo a", ["a"]),
        ("seq 3 | while read x; do echo $x; [ $x = 2 ] && break; done", ["1", "2"]),
        ("while read x; do last=$x; done < /etc/app/a.conf; echo $last", ["two"]),
        ("while read x; do echo $x; done < /data/none || echo $?", ["sh: can't open /data/none: no such file", "1"]),
        ("wc -l < /data/none || echo $?", ["sh: can't open /data/none: no such file", "1"]),
        ("x=1; read x < /data/none; echo $x", ["sh: can't open /data/none: no such file", "1"]),
        ("< /etc/app/a.conf; 2>/dev/null; echo a", ["a"]),
        ("cat <<EOF\nhello $HOSTNAME\ncosts \\$5\nEOF\necho end", ["hello p", "costs $5", "end"]),
        ("cat <<'EOF'\nhello $HOSTNAME; for x\nEOF", ["hello $HOSTNAME; for x"]),
        ("cat <<-END\n\thello\n\tEND\necho end", ["hello", "end"]),
        ("cat <<EOF > /data/app.ini\n[main]\nname = $HOSTNAME\nEOF\ncat /data/app.ini", ["[main]", "name = p"]),
        ("cat > /data/x <<'EOF'\nif it's; then\nEOF\nwc -l /data/x", ["1 /data/x"]),
        ("tee /data/y <<EOF | wc -l\na\nb\nEOF", ["2"]),
        ("while read x; do echo \"- $x\"; done <<EOF\none\ntwo\nEOF", ["- one", "- two"]),
        ("cat <<EOF\nstarted in $(cat /etc/app/b.conf)\nEOF", ["started in three"]),
    ],
)  # fmt: skip
def test_shell_reads_files_and_documents(text: str, printed: list[str]) -> None:
    assert lines(text) == printed


@pytest.mark.parametrize(
    "text",
    [
        "ls /usr/lib/*.so",
        "for f in /usr/*; do echo $f; done",
        "python < /etc/app/a.conf",
        "cat <<EOF\n$(uname)\nEOF",
    ],
)
def test_what_an_image_holds_is_not_known(text: str) -> None:
    assert not ran(f"{text}; exit 3").understood


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("10 / 3 % 2", "1"),
        ("2 - 5", "-3"),
        ("$a * ${b} + c", "6"),
        ("7 % 0", None),
        ("1 +", None),
        ("9223372036854775807 + 1", "-9223372036854775808"),
    ],
)
def test_sum_is_computed_as_in_a_shell(text: str, value: str | None) -> None:
    assert computed(text, lambda name: {"a": "2", "b": "3"}.get(name, "0")) == value


def test_random_numbers_are_those_of_this_run_of_the_container() -> None:
    text = "echo $RANDOM ${RANDOM}; sleep $((RANDOM % 10)); exit $(( 1 + $RANDOM % 3 ))"
    first = ran(text)
    assert first == ran(text)
    assert first.ends_after is not None and first.ends_after < 10
    assert first.exit_code in (1, 2, 3)
    assert len(set(first.lines[0][1].split())) == 2
    assert first != ran(text, uid="other")
    assert first != ran(text, restarts=1)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'a b c' | awk '{print $2}'", ["b"]),
        ("echo 'a b c' | awk {'print $NF'}", ["c"]),
        ("echo a:b | awk -F: '{ print $2 }'", ["b"]),
        ("echo a,b | awk -F ',' '{print $3}'", [""]),
        ("echo a:b | cut -d: -f2; echo ab | cut -d : -f 2", ["b", "ab"]),
        ("echo one > /tmp/f; echo two >> /tmp/f; n=$(wc -l /tmp/f | awk '{print $1}'); echo $n lines", ["2 lines"]),
        ('echo one > /tmp/f; echo "$(cat /tmp/f | wc -l) line"', ["1 line"]),
        ("n=$(echo one >> /data/n ; wc -l /data/n | awk {'print $1'}); echo $n", ["1"]),
        ("echo $(echo a) $(hostname | cut -d- -f1)", ["a p"]),
        ("HOST=$(echo db:5432 | cut -d: -f1); echo $HOST", ["db"]),
        ("echo one > /tmp/f; grep -q one /tmp/f && echo there; grep -q two /tmp/f || echo not", ["there", "not"]),
        ("echo ready | grep -q READY || echo no; if echo Ready | grep -qi ready; then echo yes; fi", ["no", "yes"]),
        ("printf 'b\\na\\nb\\n' | sort; printf 'b\\na\\nb\\n' | sort -ur", ["a", "b", "b", "b", "a"]),
        (
            "printf 'A=1\\nB=2\\nC=3\\n' | grep -E '(A|C)' | sort -r; printf 'x\\ny\\n' | grep -vE 'x|z'",
            ["C=3", "A=1", "y"],
        ),
        ("echo k=v > /tmp/f; cut -d= -f2 /tmp/f; awk -F= '{print $1}' /tmp/f; grep -v x /tmp/f", ["v", "k", "k=v"]),
    ],
)
def test_fields_and_lines_are_picked(script: str, expected: list[str]) -> None:
    assert lines(script) == expected
