"""Time that a test makes pass: everything in the cluster goes by it, in its order, and nobody waits for it."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from kubernetes import client, config, watch

from haru.kube.names import parse_time
from haru.testing import Cluster, WaitTimeoutError
from haru.testing.virtual_time import Limits, VirtualTimeLoop

Obj = dict[str, Any]

# The clock of a cluster goes on by itself, too: a busy machine is that much late at what is due.
LATE = 20

CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 * * * *"
  jobTemplate:
    spec:
      ttlSecondsAfterFinished: 5400
      template:
        metadata: {annotations: {simulated.haru.dev/run-seconds: "120"}}
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox}]
"""


def pod(name: str, seconds: int, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"simulated.haru.dev/run-seconds": str(seconds)}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def ran(found: Obj | None) -> tuple[datetime, datetime]:
    assert found is not None
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    return parse_time(ended["startedAt"]), parse_time(ended["finishedAt"])


def is_ready(node: Obj) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def test_advance_lets_an_hour_pass_at_once(haru_cluster: Cluster) -> None:
    haru_cluster.apply(pod("short", 600), pod("long", 3000), pod("longer", 7200))
    for name in ("short", "long", "longer"):
        haru_cluster.wait("Pod", name)
    before, began = haru_cluster.now, time.monotonic()
    after = haru_cluster.advance(3600, timeout=600)
    assert timedelta(hours=1) <= after - before < timedelta(seconds=3600 + time.monotonic() - began + 1)
    for name, seconds in (("short", 600), ("long", 3000)):
        started, ended = ran(haru_cluster.get("Pod", name))
        assert timedelta(seconds=seconds) <= ended - started <= timedelta(seconds=seconds + LATE), name
    longer = haru_cluster.get("Pod", "longer")
    assert longer is not None and longer["status"]["phase"] == "Running"
    assert all(map(is_ready, haru_cluster.list("Node")))
    (lease,) = haru_cluster.list("Lease", "kube-node-lease")
    assert after - parse_time(lease["spec"]["renewTime"]) < timedelta(seconds=10 + LATE)


def test_cron_jobs_and_ttl_follow_advanced_time(haru_cluster: Cluster) -> None:
    haru_cluster.apply(CRON_JOB)
    haru_cluster.advance(2.5 * 3600, timeout=600)
    jobs = haru_cluster.list("Job", "default")
    begun = sorted(parse_time(job["metadata"]["creationTimestamp"]) for job in jobs)
    assert all(at.minute == 0 and at.second <= LATE for at in begun)
    # One of each full hour, and each is gone an hour and a half after its end.
    assert 1 <= len(jobs) <= 2
    oldest = haru_cluster.now - timedelta(seconds=5400 + 120 + LATE)
    assert all(at > oldest for at in begun)


def test_toleration_seconds_follow_advanced_time(haru_cluster: Cluster) -> None:
    tolerations = [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
    haru_cluster.apply(pod("worker", 86400, tolerations=tolerations))
    haru_cluster.wait("Pod", "worker")
    taint = {"key": "broken", "effect": "NoExecute"}
    haru_cluster.patch("Node", "cpu-0", {"spec": {"taints": [taint]}})
    haru_cluster.wait_for("Node", "cpu-0", lambda node: node["spec"].get("taints"))
    haru_cluster.advance(290)
    assert haru_cluster.get("Pod", "worker") is not None
    haru_cluster.advance(60)
    assert haru_cluster.get("Pod", "worker") is None


def test_expired_token_is_refused_after_advance(haru_cluster: Cluster) -> None:
    api = client.ApiClient(_configuration(haru_cluster))
    body = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    core = client.CoreV1Api(api)
    token = core.create_namespaced_service_account_token("default", "default", body).status.token
    own = client.Configuration(host=haru_cluster.url, api_key={"authorization": f"Bearer {token}"})
    own.ssl_ca_cert = api.configuration.ssl_ca_cert
    reviews = client.AuthenticationV1Api(client.ApiClient(own))
    asked = client.V1SelfSubjectReview()
    found = reviews.create_self_subject_review(asked).status.user_info.username
    assert found == "system:serviceaccount:default:default"
    haru_cluster.advance(540)
    reviews.create_self_subject_review(asked)
    haru_cluster.advance(150)  # clocks may disagree by a minute
    with pytest.raises(client.ApiException) as caught:
        reviews.create_self_subject_review(asked)
    assert caught.value.status == 401


@pytest.fixture
def relay(haru_cluster: Cluster) -> Iterator[None]:
    """An operator outside: when one pod has ended, it creates the next."""
    core = client.CoreV1Api(client.ApiClient(_configuration(haru_cluster)))
    stream = watch.Watch()

    def run() -> None:
        done: set[str] = set()
        for event in stream.stream(core.list_namespaced_pod, "default"):
            name, phase = event["object"].metadata.name, event["object"].status.phase
            if phase == "Succeeded" and name not in done:
                done.add(name)
                if len(done) < 3:
                    core.create_namespaced_pod("default", pod(f"step-{len(done)}", 600))
                else:
                    stream.stop()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.usefixtures("relay")
def test_external_operator_keeps_up_with_advanced_time(haru_cluster: Cluster) -> None:
    haru_cluster.apply(pod("step-0", 600))
    haru_cluster.wait("Pod", "step-0")
    haru_cluster.advance(1800 + 130, settle=0.8, timeout=600)
    spans = [ran(haru_cluster.get("Pod", f"step-{number}")) for number in range(3)]
    for (_, ended), (started, _) in itertools.pairwise(spans):
        # An operator that a busy machine holds up lets some timers of the cluster go first, each ten seconds apart.
        assert timedelta(0) <= started - ended <= timedelta(seconds=60)


def test_invalid_advance_is_refused(haru_cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="seconds: Invalid value: -1: time does not go back"):
        haru_cluster.advance(-1)
    with pytest.raises(WaitTimeoutError, match=r"of 1e\+08 s, [0-9.e+]+ are still to pass after [0-9.]+ s of waiting"):
        haru_cluster.advance(1e8, timeout=0.3)
    haru_cluster.advance(1)


def test_virtual_time_waits_for_threads() -> None:
    """A timer that is due later comes after the work that another thread does at the moment."""
    order = []

    async def work(loop: VirtualTimeLoop) -> None:
        async def slow() -> None:
            await asyncio.sleep(1)
            await asyncio.to_thread(time.sleep, 0.2)
            order.append(("thread", loop.time()))

        async def timer() -> None:
            await asyncio.sleep(2)
            order.append(("timer", loop.time()))

        both = asyncio.gather(slow(), timer())
        await loop.advance(5, Limits(settle=0, timeout=30), lambda: False, lambda: None)
        await both

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        runner.run(work(loop))
    assert [name for name, _ in order] == ["thread", "timer"]


def _configuration(cluster: Cluster) -> client.Configuration:
    made = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=made)
    return made
