import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from fake_api import FakeApi
from hypothesis import given
from hypothesis import strategies as st

from haru.client.api import ApiClient
from haru.client.events import Correlator, EventRecorder
from haru.kube.container_events import container_of, image_was_pulled
from haru.kube.errors import StatusError

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "5"},
}


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
async def recorder(api):
    client = ApiClient.in_process(api)
    recorder = EventRecorder(
        client, "tests", instance="tests-1", now=lambda: datetime(2026, 1, 1, tzinfo=UTC), monotonic=lambda: 0.0
    )
    yield recorder
    await recorder.close()


def events(api):
    return [obj for (plural, _, _), obj in api.objects.items() if plural == "events"]


async def test_event_has_core_v1_form(api, recorder):
    recorder.event(POD, "Normal", "Started", "it runs", action="Starting", related=POD)
    await recorder.flush()
    (event,) = events(api)
    metadata = event.pop("metadata")
    assert metadata["namespace"] == "ns"
    assert metadata["name"].startswith("a.")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "u1", "resourceVersion": "5"}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": about,
        "related": about,
        "type": "Normal",
        "reason": "Started",
        "message": "it runs",
        "action": "Starting",
        "source": {"component": "tests"},
        "reportingComponent": "tests",
        "reportingInstance": "tests-1",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }


async def test_event_of_a_node_names_its_host(api):
    recorder = EventRecorder(ApiClient.in_process(api), "kubelet", instance="n", host="n")
    recorder.event(POD, "Normal", "Started", "it runs")
    await recorder.flush()
    await recorder.close()
    (event,) = events(api)
    assert event["source"] == {"component": "kubelet", "host": "n"}


async def test_event_of_a_container_names_it(api, recorder):
    containers = {
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "b"}],
        "ephemeralContainers": [{"name": "c"}],
    }
    for name in "abcd":
        recorder.event(container_of({**POD, "spec": containers}, name), "Normal", "Started", "it runs")
    await recorder.flush()
    assert [(e["involvedObject"]["name"], e["involvedObject"]["fieldPath"]) for e in events(api)] == [
        ("a", "spec.containers{a}"),
        ("a", "spec.initContainers{b}"),
        ("a", "spec.ephemeralContainers{c}"),
        ("a", "implicitly required container d"),
    ]


async def test_repeated_event_increments_count(api, recorder):
    for version in ("5", "6", "7"):
        changed = {**POD, "metadata": {**POD["metadata"], "resourceVersion": version}}
        recorder.event(changed, "Warning", "Failed", "no")
    recorder.event(POD, "Warning", "Failed", "other")
    await recorder.flush()
    assert sorted((e["message"], e["count"]) for e in events(api)) == [("no", 3), ("other", 1)]


async def test_same_event_that_waits_to_be_written_is_written_once_with_its_count(api, recorder):
    for number in range(3):
        recorder.event(POD, "Warning", "FailedScheduling", "no room")
        recorder.event({**POD, "metadata": {**POD["metadata"], "uid": f"u{number}"}}, "Normal", "Other", "x")
    assert recorder._queue.qsize() == 4
    await recorder.flush()
    assert sorted((event["reason"], event["count"]) for event in events(api)) == [
        ("FailedScheduling", 3),
        *[("Other", 1)] * 3,
    ]
    assert len(api.log) == 4


async def test_expired_event_is_created_again(api, recorder):
    recorder.event(POD, "Normal", "A", "m")
    await recorder.flush()
    api.objects.clear()
    recorder.event(POD, "Normal", "A", "m")
    await recorder.flush()
    assert [e["count"] for e in events(api)] == [1]


async def test_event_of_cluster_scoped_object_goes_to_default_namespace(api, recorder):
    recorder.event({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "uid": "n"}}, "Normal", "A", "m")
    await recorder.flush()
    assert events(api)[0]["metadata"]["namespace"] == "default"


async def test_recording_malformed_object_never_raises(api, recorder):
    recorder.event({"metadata": None}, "Normal", "A", "m" * 5000)
    recorder.event(object(), "Normal", "A", "m")  # type: ignore[arg-type]
    await recorder.flush()
    api.fail("POST", 500)
    recorder.event(POD, "Normal", "A", "lost")
    recorder.event(POD, "Normal", "A", "kept")
    await recorder.flush()
    assert recorder.dropped == 2
    assert [len(e["message"]) for e in events(api) if e["message"].startswith("mmm")] == [1024]
    assert [e["message"] for e in events(api)][-1] == "kept"


@pytest.mark.parametrize(
    ("failures", "tries", "dropped"),
    [
        ([ConnectionError()], 2, 0),
        ([TimeoutError(), StatusError(409, "AlreadyExists", "it was written all the same")], 2, 0),
        ([ConnectionError()] * 20, 12, 1),
        ([StatusError(403, "Forbidden", "no")], 1, 1),
    ],
)
async def test_event_is_written_once_when_the_api_is_back(monkeypatch, failures, tries, dropped):
    names = []

    async def create(kind, event):
        names.append(event["metadata"]["name"])
        if failures:
            raise failures.pop(0)

    monkeypatch.setattr("haru.client.events._PAUSE_SECONDS", 0.0)
    recorder = EventRecorder(SimpleNamespace(create=create), "tests", instance="t")
    recorder.event(POD, "Normal", "Started", "it runs")
    await recorder.flush()
    assert (len(names), len(set(names)), recorder.dropped) == (tries, 1, dropped)
    await recorder.close()


def test_event_outside_event_loop_is_dropped(api):
    recorder = EventRecorder(ApiClient.in_process(api), "tests")
    recorder.event(POD, "Normal", "A", "m")
    assert recorder.dropped == 1


def pod(number: int) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": "ns", "uid": f"u{number}"},
    }


async def test_no_event_of_burst_is_lost(api, recorder):
    for number in range(3_000):
        recorder.event(pod(number), "Normal", "Scheduled", "bound")
    await recorder.flush(60)
    assert (len(events(api)), recorder.dropped) == (3_000, 0)


async def test_event_that_is_written_late_says_when_it_happened(api):
    times = iter(datetime(2026, 1, 1, second=second, tzinfo=UTC) for second in range(60))
    recorder = EventRecorder(ApiClient.in_process(api), "tests", now=lambda: next(times))
    for number in range(3):
        recorder.event(pod(number), "Normal", "Scheduled", "bound")
    await recorder.close()
    assert [e["firstTimestamp"][-3:] for e in events(api)] == ["00Z", "01Z", "02Z"]
    assert [e["eventTime"][17:19] for e in events(api)] == ["00", "01", "02"]


async def test_dropped_events_are_logged_once(api, recorder, monkeypatch, caplog):
    monkeypatch.setattr("haru.client.events._QUEUE", 2)
    recorder = EventRecorder(ApiClient.in_process(api), "tests")
    for number in range(5):
        recorder.event(pod(number), "Normal", "Scheduled", "bound")
    await recorder.close()
    assert recorder.dropped == 3
    assert [record.message for record in caplog.records] == ["2 events wait to be written: more are dropped"]


async def test_events_dropped_while_some_wait_are_logged_once(api, monkeypatch, caplog):
    monkeypatch.setattr("haru.client.events._QUEUE", 3)
    recorder, may = EventRecorder(ApiClient.in_process(api), "tests"), asyncio.Semaphore(0)

    async def write(event, at):
        await may.acquire()

    monkeypatch.setattr(recorder, "_write", write)
    for number in range(20):
        recorder.event(pod(number), "Normal", "Scheduled", "bound")
        if number > 3 and number % 2:
            may.release()  # one is written, and there is room for another
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert recorder.dropped > 5
    assert len(caplog.records) == 1
    for _ in range(20):
        may.release()
    await recorder.flush()
    for number in range(20, 30):
        recorder.event(pod(number), "Normal", "Scheduled", "bound")
    assert len(caplog.records) == 2
    await recorder.close()


async def test_many_similar_events_are_combined(api, recorder):
    for number in range(15):
        recorder.event(POD, "Warning", "Failed", f"attempt {number}")
    await recorder.flush()
    combined = [e for e in events(api) if e["message"].startswith("(combined from similar events)")]
    assert len(events(api)) == 10
    assert [(e["message"], e["count"]) for e in combined] == [("(combined from similar events): attempt 14", 6)]


def messages(correlator, said):
    """What is written of (seconds, message)."""
    return [correlator.admit(("a",), "Normal", "r", message, now)[0] for now, message in said]


def test_known_message_is_not_combined_and_quiet_time_begins_anew():
    correlator = Correlator()
    assert messages(correlator, [(0, str(n)) for n in range(9)]) == [str(n) for n in range(9)]
    assert messages(correlator, [(1, "9"), (1, "3")]) == ["(combined from similar events): 9", "3"]
    assert messages(correlator, [(601, "9")]) == ["(combined from similar events): 9"]  # 600 s after the last one
    assert messages(correlator, [(1202, "9")]) == ["9"]


def test_events_of_one_object_are_rate_limited():
    correlator = Correlator()
    admitted = sum(correlator.admit(("u",), "Normal", f"r{n}", "m", 0.0)[1] for n in range(100))
    assert admitted == 25
    assert not correlator.admit(("u",), "Normal", "r", "m", 299)[1]
    assert correlator.admit(("u",), "Normal", "r", "m", 301) == ("m", True)
    assert correlator.admit(("other",), "Normal", "r", "m", 301) == ("m", True)


def test_rate_of_one_component_and_type_does_not_hold_another_back():
    correlator = Correlator()
    for _ in range(30):
        correlator.admit(("kubelet", "u"), "Normal", "r", "m", 0)
    assert not correlator.admit(("kubelet", "u"), "Normal", "r", "m", 0)[1]
    assert correlator.admit(("kubelet", "u"), "Warning", "r", "m", 0)[1]
    assert correlator.admit(("scheduler", "u"), "Normal", "r", "m", 0)[1]


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(0, 3), st.integers(0, 20)), max_size=150))
def test_any_object_has_bounded_events_by_time(told):
    correlator, now, written = Correlator(), 0.0, 0
    for pause, reason, message in told:
        now += pause
        written += correlator.admit(("u",), "Normal", str(reason), str(message), now)[1]
        assert written <= 25 + now / 300 + 1e-6


async def test_count_includes_events_that_were_held_back(api):
    seconds = [0.0]
    recorder = EventRecorder(ApiClient.in_process(api), "tests", monotonic=lambda: seconds[0])
    for _ in range(30):
        recorder.event(POD, "Warning", "BackOff", "again")
        await recorder.flush()
    assert [e["count"] for e in events(api)] == [25]
    seconds[0] = 301.0
    recorder.event(POD, "Warning", "BackOff", "again")
    await recorder.flush()
    assert [e["count"] for e in events(api)] == [31]
    await recorder.close()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.2504, "250ms"), (1.5, "1.5s"), (83.25, "1m23.25s"), (3600, "1h0m0s")]
)
def test_pull_says_how_long_it_took(seconds, text):
    said = f'Successfully pulled image "i" in {text} ({text} including waiting). Image size: 7 bytes.'
    assert image_was_pulled("i", seconds, 7) == said
