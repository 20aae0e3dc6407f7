"""Acting as another user of a server of Haru, over each way there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from haru.cli.main import main
from haru.client.api import ApiClient
from haru.client.credentials import BearerToken
from haru.client.impersonation import Impersonation
from haru.client.kubeconfig import load_kubeconfig
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube import kinds, yaml
from haru.kube.errors import StatusError
from haru.testing import LocalCluster

REVIEWS, NODES = kinds.lookup("authentication.k8s.io", "v1", "selfsubjectreviews"), kinds.lookup("", "v1", "nodes")
assert REVIEWS is not None and NODES is not None
WHOLE = Impersonation("jané", "u-1", ("devs", "ops"), {"example.com/Ünit%": ("a", "b"), "plain": ("c",)})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = UpOptions(profiles=parse_profiles("cpu:1"), listen=("127.0.0.1", 0), dashboard=None)
    with LocalCluster(tmp_path_factory.mktemp("cluster"), options) as running:
        yield running


async def user_of(client: ApiClient) -> Any:
    async with client:
        review = await client.create(REVIEWS, {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
    return review["status"]["userInfo"]


@pytest.mark.parametrize("multiplexed", [False, True])
async def test_server_sees_the_user_of_the_kubeconfig(cluster: LocalCluster, tmp_path: Any, multiplexed: bool) -> None:
    document = yaml.load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] |= {
        "as": WHOLE.user,
        "as-uid": WHOLE.uid,
        "as-groups": list(WHOLE.groups),
        "as-user-extra": {key: list(values) for key, values in WHOLE.extra.items()},
    }
    path = tmp_path / "config"
    path.write_text(yaml.dump(document))
    assert await user_of(ApiClient.from_kubeconfig(path, multiplexed=multiplexed)) == {
        "username": "jané",
        "uid": "u-1",
        "groups": ["devs", "ops", "system:authenticated"],
        "extra": {"example.com/Ünit%": ["a", "b"], "plain": ["c"]},
    }


async def test_view_of_a_client_with_another_token_acts_as_nobody(cluster: LocalCluster) -> None:
    config = load_kubeconfig(cluster.kubeconfig)
    client = ApiClient.from_config(config, impersonated=Impersonation("jane"))
    with pytest.raises(StatusError, match='User "jane" cannot list resource "nodes"'):
        await client.list(NODES)
    assert (await user_of(client.with_token(BearerToken(config.token))))["username"] != "jane"


def test_flags_name_the_user_to_act_as(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["top", "--kubeconfig", str(cluster.kubeconfig), "--as", "jane"]
    assert main(words) == 2
    assert "not allowed to read ResourceSlice" in capsys.readouterr().err
    assert main([*words, "--as-group", "a", "--as-group", "system:masters"]) == 0
