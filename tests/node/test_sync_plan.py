"""What a pod needs next, as a table and as a property over whole lives of pods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.container_restarts import CrashLoop
from haru.node.podworker.attempts import RUN_ERROR, failed_to_run
from haru.node.podworker.observed import CREATED, EXITED, HASH, RUNNING, SeenContainer, SeenPod, SeenSandbox
from haru.node.podworker.plan import Kill, Pauses, Plan, ProbeResults, container_hash, decide
from haru.node.podworker.restarts import should_restart

Obj = dict[str, Any]
NOW = 1_000.0
SANDBOX = SeenSandbox("s0", ips=("10.0.0.1",))


def pod(*containers: str | Obj, init: tuple[str | Obj, ...] = (), **spec: Any) -> Obj:
    def whole(one: str | Obj) -> Obj:
        return {"name": one, "image": "i"} if isinstance(one, str) else {"image": "i", **one}

    body = {"containers": [whole(one) for one in containers], **spec}
    if init:
        body["initContainers"] = [whole(one) for one in init]
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": body}


def runs(name: str, **more: Any) -> SeenContainer:
    return SeenContainer(f"id-{name}", name, sandbox="s0", **{"state": RUNNING, **more})


def ended(name: str, code: int = 0, *, at: float = 0.0, **more: Any) -> SeenContainer:
    more = {"state": EXITED, "exit_code": code, "finished_at": int(at * 1e9), **more}
    return SeenContainer(f"id-{name}", name, **{"sandbox": "s0", **more})


def seen(*containers: SeenContainer, sandbox: SeenSandbox | None = SANDBOX) -> SeenPod:
    return SeenPod.of([sandbox] if sandbox is not None else [], containers)


def plan(pod: Obj, seen: SeenPod, probed: dict[str, ProbeResults] | None = None, loop: CrashLoop | None = None) -> Plan:
    return decide(pod, seen, probed or {}, Pauses(loop or CrashLoop(), NOW))


SIDE = {"name": "side", "restartPolicy": "Always"}
DEBUG = {"ephemeralContainers": [{"name": "debug", "image": "i"}]}
PROBED_SIDE = {**SIDE, "startupProbe": {"exec": {}}}


@pytest.mark.parametrize(
    ("what", "pod", "seen", "starts"),
    [
        ("all containers together", pod("a", "b"), seen(), ["a", "b"]),
        ("only who does not run", pod("a", "b"), seen(runs("a")), ["b"]),
        ("nothing is to do", pod("a"), seen(runs("a")), []),
        ("one that was made and never started", pod("a"), seen(runs("a", state=CREATED)), ["a"]),
        ("the first init container alone", pod("a", init=("x", "y")), seen(), ["x"]),
        ("while it runs, nothing", pod("a", init=("x", "y")), seen(runs("x")), []),
        ("then the next", pod("a", init=("x", "y")), seen(ended("x")), ["y"]),
        ("then the containers", pod("a", "b", init=("x", "y")), seen(ended("x"), ended("y")), ["a", "b"]),
        ("a failed one again", pod("a", init=("x", "y")), seen(ended("x", 1)), ["x"]),
        ("a sidecar runs, the next may start", pod("a", init=(SIDE, "y")), seen(runs("side")), ["y"]),
        ("one that has not started yet", pod("a", init=(PROBED_SIDE, "y")), seen(runs("side")), []),
        ("a sidecar that ended, alone", pod("a", init=(SIDE, "y")), seen(ended("side"), ended("y")), ["side"]),
        ("beside what runs", pod("a", init=(SIDE,)), seen(ended("side"), runs("a")), ["side"]),
        ("init is not repeated once containers ran", pod("a", init=("x",)), seen(ended("a", 1)), ["a"]),
        ("always means always", pod("a"), seen(ended("a", 0)), ["a"]),
        ("an ephemeral container before the init ones", pod("a", init=("x",), **DEBUG), seen(), ["debug", "x"]),
        ("an ephemeral container beside what runs", pod("a", **DEBUG), seen(runs("a")), ["debug"]),
        ("an ephemeral container only once", pod("a", **DEBUG), seen(runs("a"), ended("debug", 1)), []),
        ("on failure", pod("a", "b", restartPolicy="OnFailure"), seen(ended("a", 1), ended("b", 0)), ["a"]),
        (
            "a rule of a container",
            pod({"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}, "b", restartPolicy="Never"),
            seen(ended("a", 42), runs("b")),
            ["a"],
        ),
        (
            "a policy of a container",
            pod({"name": "a", "restartPolicy": "OnFailure"}, "b", restartPolicy="Never"),
            seen(ended("a", 1), ended("b", 1)),
            ["a"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_containers_to_start_are_chosen(what: str, pod: Obj, seen: SeenPod, starts: list[str]) -> None:
    made = plan(pod, seen)
    assert list(made.starts) == starts
    assert not made.end_pod and not made.make_sandbox and not made.kills


def ruled(name: str, action: str = "RestartAllContainers") -> Obj:
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
    return {"name": name, "restartPolicy": "Never", "restartPolicyRules": [rule]}


@pytest.mark.parametrize(
    ("what", "pod", "seen", "removes"),
    [
        ("who asks goes last", pod(ruled("a"), "b", init=("x",)), seen(ended("a", 42), runs("b"), ended("x")), "bxa"),
        ("an init container", pod("a", init=(SIDE, ruled("x"))), seen(runs("side"), ended("x", 42)), "sidex"),
        ("who is left goes on", pod(ruled("a"), "b", init=("x",)), seen(ended("a", 42)), "a"),
        ("every start", pod(ruled("a"), "b"), seen(ended("a", 42, attempt=1), replace(ended("a"), id="old")), "aa"),
        ("other ends", pod(ruled("a"), "b"), seen(ended("a", 41), runs("b")), ""),
        ("an earlier end", pod(ruled("a")), seen(runs("a", attempt=1), replace(ended("a", 42), id="o")), ""),
        ("a rule before it", pod({**ruled("a"), "restartPolicyRules": [
            *ruled("a", "Restart")["restartPolicyRules"], *ruled("a")["restartPolicyRules"],
        ]}), seen(ended("a", 42)), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_all_containers_are_removed_once_a_rule_asks_for_it(what: str, pod: Obj, seen: SeenPod, removes: str) -> None:
    made = plan(pod, seen)
    assert "".join(one.name for one in made.removes) == removes
    assert not made.removes or not (made.starts or made.kills or made.end_pod or made.make_sandbox)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_container_killed_to_be_replaced_starts_again_however_it_ended(policy: str) -> None:
    found, of = seen(ended("a")), pod("a", restartPolicy=policy)
    assert plan(of, found).is_over
    replaced = decide(of, found, {}, Pauses(CrashLoop(), NOW), {"id-a"})
    assert list(replaced.starts) == ["a"] and not replaced.is_over


def test_older_duplicate_container_is_killed() -> None:
    older = replace(runs("a"), id="older")
    made = plan(pod("a", "b"), seen(runs("a", attempt=1), older, runs("b")))
    assert made.kills == (Kill("older", "a", "Container a runs twice"),) and not made.starts


@pytest.mark.parametrize(
    ("what", "pod", "seen", "over"),
    [
        ("all succeeded", pod("a", restartPolicy="OnFailure"), seen(ended("a")), True),
        ("all ended", pod("a", "b", restartPolicy="Never"), seen(ended("a", 1), ended("b")), True),
        ("one still runs", pod("a", "b", restartPolicy="Never"), seen(ended("a", 1), runs("b")), False),
        (
            "only an ephemeral one is left",
            pod("a", restartPolicy="Never", **DEBUG),
            seen(ended("a"), runs("debug")),
            True,
        ),
        ("only a sidecar is left", pod("a", init=(SIDE,), restartPolicy="Never"), seen(ended("a"), runs("side")), True),
        ("init failed for good", pod("a", init=("x",), restartPolicy="Never"), seen(ended("x", 1)), True),
        ("without a sandbox", pod("a", restartPolicy="Never"), seen(ended("a"), sandbox=None), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pod_is_finished_or_not(what: str, pod: Obj, seen: SeenPod, over: bool) -> None:
    made = plan(pod, seen)
    assert made.is_over is over
    assert not (over and (made.starts or made.make_sandbox))


@pytest.mark.parametrize(
    ("what", "sandbox", "attempt", "ends"),
    [
        ("there is none", None, 0, False),
        ("it has ended", replace(SANDBOX, ready=False, attempt=4), 5, False),
        ("it has no address", replace(SANDBOX, ips=()), 1, True),
        ("it is of the host's network", replace(SANDBOX, network=2), 1, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sandbox_is_created_when_missing_or_dead(
    what: str, sandbox: SeenSandbox | None, attempt: int, ends: bool
) -> None:
    made = plan(pod("a"), seen(sandbox=sandbox))
    assert (made.make_sandbox, made.attempt, made.end_pod) == (True, attempt, ends)
    assert not made.starts


def test_containers_of_dead_sandbox_are_killed_first() -> None:
    dead = replace(SANDBOX, ready=False)
    made = plan(pod("a", "b"), seen(runs("a"), ended("b"), sandbox=dead))
    assert made.end_pod and made.make_sandbox
    made = plan(pod("a", "b"), seen(ended("a", 137), ended("b"), sandbox=dead))
    assert not made.end_pod and made.make_sandbox
    over = plan(pod("a", restartPolicy="Never"), seen(ended("a", 137), sandbox=dead))
    assert not over.end_pod and over.is_over


@pytest.mark.parametrize(("policy", "again"), [("Always", ("id-a",)), ("OnFailure", ("id-a",)), ("Never", ())])
def test_container_that_ends_well_with_its_dead_sandbox_has_work_left(policy: str, again: tuple[str, ...]) -> None:
    dead, of = replace(SANDBOX, ready=False), pod("a", restartPolicy=policy)
    assert plan(of, seen(runs("a"), sandbox=dead)).again == again
    ended_well = seen(ended("a"), sandbox=dead)
    made = decide(of, ended_well, {}, Pauses(CrashLoop(), NOW), set(again))
    assert (made.make_sandbox, made.is_over) == (bool(again), not again)


def test_new_sandbox_starts_with_init_containers() -> None:
    old = [ended("x", sandbox="old"), ended("a", 137, sandbox="old")]
    assert plan(pod("a", init=("x",)), seen(*old)).starts == ("x",)


def test_container_in_backoff_is_not_started() -> None:
    loop = CrashLoop()
    loop.started(f"a_{container_hash({'name': 'a', 'image': 'i'})}", NOW - 20, NOW - 18)
    made = plan(pod("a", "b"), seen(ended("a", 1, at=NOW - 4)), loop=loop)
    assert made.starts == ("b",)
    assert made.crashing == {"a": "back-off 10s restarting failed container=a pod=p_n(u)"}
    assert made.wake_after == pytest.approx(6.0)


def test_backoff_doubles_to_five_minutes_and_resets() -> None:
    loop, now = CrashLoop(), 0.0
    pauses = []
    for _ in range(8):
        loop.started("k", now, now)
        pauses.append(loop.wait("k", now, now)[1])
        now += pauses[-1]
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert loop.wait("k", now + 700, now + 700) == (0.0, 0.0)


def test_failed_liveness_or_startup_probe_kills_container() -> None:
    two = seen(runs("a"), runs("b"))
    made = plan(pod("a", "b"), two, {"id-a": ProbeResults(liveness=False), "id-b": ProbeResults(readiness=False)})
    assert made.kills == (Kill("id-a", "a", "Container a failed liveness probe, will be restarted", "liveness", True),)
    made = plan(pod("a", "b", restartPolicy="Never"), two, {"id-a": ProbeResults(startup=False)})
    assert made.kills == (Kill("id-a", "a", "Container a failed startup probe", "startup"),)


def test_pod_ends_as_a_whole_when_a_probe_ends_the_last_of_its_containers() -> None:
    made = plan(pod("a", restartPolicy="Never"), seen(runs("a")), {"id-a": ProbeResults(startup=False)})
    assert made.end_pod and made.is_over and not made.kills


def test_sidecar_that_fails_a_probe_is_killed_as_an_init_container() -> None:
    side = {"name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": {}}
    made = plan(pod("a", init=(side,)), seen(runs("s")), {"id-s": ProbeResults(startup=False)})
    assert made.kills == (Kill("id-s", "s", "Init container s failed startup probe", "startup", True),)


def test_changed_container_definition_restarts_it() -> None:
    made = plan(pod("a"), seen(runs("a", annotations={HASH: "of-another"})))
    assert made.kills == (Kill("id-a", "a", "Container a definition changed, will be restarted", again=True),)


# -- whole lives ------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A runtime that does what plans say, and containers that end when they are told to."""

    pod: Obj
    now: float = NOW
    containers: list[SeenContainer] = field(default_factory=list)
    sandboxes: list[SeenSandbox] = field(default_factory=list)
    loop: CrashLoop = field(default_factory=CrashLoop)
    started: list[str] = field(default_factory=list)
    over: bool = False

    @property
    def seen(self) -> SeenPod:
        return SeenPod.of(self.sandboxes, self.containers)

    def spec(self, name: str) -> Obj:
        listed = [*self.pod["spec"].get("initContainers", ()), *self.pod["spec"]["containers"]]
        return next(one for one in listed if one["name"] == name)

    def step(self) -> Plan:
        """Decide and do."""
        pauses = Pauses(self.loop, self.now)
        made = decide(self.pod, self.seen, {}, pauses)
        assert made == decide(self.pod, self.seen, {}, pauses), "a decision is a value"
        if made.end_pod:
            self.containers = [self._ended(one, 137) if one.runs else one for one in self.containers]
            self.sandboxes = [replace(one, ready=False) for one in self.sandboxes]
        self.over = self.over or made.is_over
        if made.make_sandbox:
            self.sandboxes.append(SeenSandbox(f"s{made.attempt}", made.attempt, ips=("10.0.0.1",)))
        for name in made.starts:
            self.start(name)
        return made

    def start(self, name: str) -> None:
        last = self.seen.newest(name)
        self.check(name, last)
        if last is not None and last.state == EXITED:
            self.loop.started(f"{name}_{container_hash(self.spec(name))}", last.finished_at / 1e9, self.now)
        attempt = last.attempt + 1 if last is not None else 0
        sandbox = self.seen.sandboxes[0].id
        made = SeenContainer(f"{name}-{attempt}", name, attempt, RUNNING, int(self.now * 1e9), sandbox=sandbox)
        self.containers.append(made)
        self.started.append(name)

    def check(self, name: str, last: SeenContainer | None) -> None:
        """What must hold whenever something is started."""
        init = [one["name"] for one in self.pod["spec"].get("initContainers", ())]
        assert not self.over
        assert self.seen.sandboxes and self.seen.sandboxes[0].ready
        assert last is None or not last.runs, "nothing runs twice"
        sandbox = self.seen.sandboxes[0].id
        in_sandbox = any(one.sandbox == sandbox and one.name not in init for one in self.containers)
        before = init[: init.index(name)] if name in init else init
        for earlier in () if in_sandbox else before:
            done = self.seen.newest(earlier)
            assert done is not None and done.sandbox == sandbox
            sidecar = self.spec(earlier).get("restartPolicy") == "Always"
            assert done.runs if sidecar else (done.state == EXITED and done.exit_code == 0), "in their order"
        if last is not None and last.sandbox == sandbox:
            assert should_restart(self.pod, self.spec(name), last, init=name in init)

    def end(self, name: str, code: int) -> None:
        for number, one in enumerate(self.containers):
            if one.name == name and one.runs:
                self.containers[number] = self._ended(one, code)

    def _ended(self, one: SeenContainer, code: int) -> SeenContainer:
        return replace(one, state=EXITED, exit_code=code, finished_at=int(self.now * 1e9))


NAMES = ("a", "b", "x", "y", "side")
EVENTS = st.one_of(
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.sampled_from([0, 1])),
    st.tuples(st.just("wait"), st.integers(0, 700), st.just(0)),
    st.tuples(st.just("sandbox dies"), st.just(0), st.just(0)),
)
INITS = st.sampled_from([(), ("x",), ("x", "y"), (SIDE,), ("x", SIDE, "y"), (SIDE, "x")])


@given(INITS, st.sampled_from(["Always", "OnFailure", "Never"]), st.lists(EVENTS, max_size=25))
def test_random_pod_histories_keep_start_order(init: Any, policy: str, events: list[tuple[str, Any, int]]) -> None:
    world = World(pod("a", "b", init=init, restartPolicy=policy))
    for what, value, code in events:
        world.step()
        if what == "end":
            world.end(value, code)
        elif what == "wait":
            world.now += value
        else:
            world.sandboxes = [replace(one, ready=False) for one in world.sandboxes]
            world.containers = [world._ended(one, 137) if one.runs else one for one in world.containers]
    ordinary = [name for name in world.started if name != "side"]
    if policy == "Never" and len(world.sandboxes) < 2:
        assert len(ordinary) == len(set(ordinary)), "nothing is repeated"


@given(INITS, st.sampled_from(["OnFailure", "Never"]), st.integers(0, 3))
def test_pod_whose_containers_succeed_finishes(init: Any, policy: str, failures: int) -> None:
    """Whatever fails a few times first, a pod whose containers succeed comes to its end, by itself."""
    world = World(pod("a", "b", init=init, restartPolicy=policy))
    left = dict.fromkeys(NAMES, failures)
    for _ in range(60):
        if world.over:
            break
        made = world.step()
        world.now += made.wake_after or 1.0
        for one in [one for one in world.containers if one.runs and one.name != "side"]:
            code = 1 if left[one.name] > 0 else 0
            left[one.name] -= 1
            world.end(one.name, code)
    assert world.over
    assert not any(one.runs for one in world.containers)


@pytest.mark.parametrize(
    ("reason", "last", "names"),
    [
        (RUN_ERROR, ended("a", 128), ["a"]),
        (RUN_ERROR, runs("a", state=CREATED), []),  # this runtime keeps it as it was made
        ("CreateContainerError", ended("a", 1), []),  # the end of an earlier start
    ],
)
def test_failed_start_that_the_runtime_ended_waits_as_a_crash_does(
    reason: str, last: SeenContainer, names: list[str]
) -> None:
    assert failed_to_run({"a": (reason, "no such file")}, seen(last)) == names
