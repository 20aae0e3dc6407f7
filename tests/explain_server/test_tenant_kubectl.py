"""A tenant asks with the real kubectl, in a cluster as `haru up` makes it: aggregation, RBAC, and no foreign name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kubectl_runner import BINARY, require_kubectl

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.explain_api import EmbeddedExplainApi
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, UsageOptions, parse_profiles
from haru.kube.kinds import known_kind
from waiting import until

Obj = dict[str, Any]
PATH = "/apis/explain.haru.dev/v1alpha1/namespaces/team-a/pods/training/explanation"


def pod(namespace: str, name: str, cpu: str) -> Obj:
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


WORK: list[Obj] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "jane", "namespace": "team-a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    },
    pod("team-b", "notebook-7", "20"),
]
PODS = known_kind("v1", "Pod")


async def test_tenant_gets_full_answer_without_right_to_list_nodes(tmp_path: Path) -> None:
    require_kubectl()
    usage = UsageOptions(history=False)
    options = UpOptions(profiles=parse_profiles("cpu:1"), listen=("127.0.0.1", 0), dashboard=None, usage=usage)
    cluster = EmbeddedCluster(options, tmp_path / "cluster")
    await cluster.start()
    explaining = EmbeddedExplainApi(cluster.client("explain"), cluster.client(ADMIN), delay=0.0)
    await explaining.start()
    admin = cluster.client(ADMIN)

    async def kubectl(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(BINARY, f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={tmp_path}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    try:
        for obj in WORK:
            await admin.create(known_kind(obj["apiVersion"], obj["kind"]), obj)

        async def runs() -> bool:
            return bool((await admin.get(PODS, "notebook-7", "team-b"))["spec"].get("nodeName"))

        await until(runs)
        await admin.create(PODS, pod("team-a", "training", "16"))
        await explaining.ready.wait()
        answers: list[str] = []

        async def answered() -> bool:
            # The APIService is looked at, and the role reaches `edit` by a controller, a moment later.
            code, out = await kubectl("get", "--raw", f"{PATH}?output=wide", "--as=jane")
            answers.append(out)
            return code == 0

        await until(answered)
        assert answers[-1].startswith("Pod team-a/training: FitsLater: insufficient cpu")
        assert "end 1 pod of another namespace" in answers[-1]
        assert "notebook-7" not in answers[-1] and "team-b" not in answers[-1]
        assert "notebook-7" in (await kubectl("get", "--raw", f"{PATH}?output=wide"))[1]
        listed = f"{PATH.rpartition('/namespaces/')[0]}/visibleexplanations?output=text"
        code, out = await kubectl("get", "--raw", listed, "--as=jane")
        assert code == 0 and "pod/training" in out and "1 pod of 1 workload waits in the namespaces" in out
        assert "nothing waits" in (await kubectl("get", "--raw", listed, "--as=bob"))[1]
        code, out = await kubectl("get", "explanations.explain.haru.dev", "-n", "team-a", "--as=jane")
        head, row = out.splitlines()
        assert code == 0 and head.split() == ["WHAT", "PODS", "SINCE", "VERDICT", "SHORT", "BY", "FIRST", "REMEDY"]
        assert row.split()[:2] == ["pod/training", "1"] and "FitsLater" in row and "notebook-7" not in row
        assert (await kubectl("get", "explanations", "-n", "team-a", "-o", "name"))[1].strip().endswith("/pod.training")
        assert "STARTS" in (await kubectl("get", "explanations", "-n", "team-a", "-o", "wide"))[1].splitlines()[0]
        # Of the namespace that is asked for, not of all.
        assert "No resources found in team-b" in (await kubectl("get", "explanations", "-n", "team-b"))[1]
        assert "pod/training" in (await kubectl("get", "visibleexplanations", "--as=jane"))[1]
        code, out = await kubectl("get", "explanations", "-A")
        assert code == 0 and out.split()[:2] == ["NAMESPACE", "WHAT"] and out.splitlines()[1].startswith("team-a ")
        assert (await kubectl("get", "explanations", "-A", "--as=jane"))[0] == 1
        code, out = await kubectl("get", "explanations", "-n", "team-a", "--watch-only")
        assert code == 1 and "MethodNotAllowed" in out
        one = ("explanation", "pod.training", "-n", "team-a", "--as=jane")
        code, out = await kubectl("get", *one)
        assert code == 0 and out.splitlines()[1].split()[:2] == ["pod/training", "1"]
        code, out = await kubectl("get", *one, "-o", "yaml")
        assert code == 0 and "workload: pod/training" in out and "notebook-7" not in out
        assert (await kubectl("get", *one, "-o", "name"))[1].strip() == "explanation.explain.haru.dev/pod.training"
        code, out = await kubectl("describe", *one)
        assert code == 0 and "FitsLater" in out
        code, out = await kubectl("explain", "explanations.explanation.verdict", "--as=jane")
        assert code == 0 and "KIND:       Explanation" in out and "FitsLater" in out
        code, out = await kubectl("get", "explanation", "pod.none", "-n", "team-a", "--as=jane")
        assert code == 1 and "(NotFound)" in out and '"pod.none" not found' in out
        code, out = await kubectl("get", "--raw", PATH, "--as=bob")
        assert code == 1 and "cannot get resource" in out
    finally:
        await explaining.stop()
        await cluster.stop()
