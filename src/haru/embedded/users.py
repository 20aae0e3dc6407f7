"""The users of `haru up`: the administrator, its components, controllers and nodes, as the API server knows them."""

from __future__ import annotations

from collections.abc import Mapping

from haru.controllers.accounts import NAMESPACE, user_of

ADMIN = "admin"
FRONT_PROXY = "front-proxy-client"
"""Whom the API server is to extension API servers."""
USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("haru-admin", ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controllers": ("system:kube-controller-manager", ()),
    "fleet": ("system:haru-fleet", ()),
    "driver": ("system:haru-driver", ()),
    "provisioner": ("system:haru-provisioner", ()),
    "dashboard": ("system:haru-dashboard", ()),
    "accounting": ("system:haru-accounting", ()),
    "explain": ("system:haru-explain", ()),
}


def controller_user(controller: str) -> tuple[str, tuple[str, ...]]:
    """User and groups of a controller: its ServiceAccount in kube-system."""
    return user_of(controller), ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")


def node_user(node: str) -> tuple[str, tuple[str, ...]]:
    """User and groups of a node, as its kubelet has them."""
    return f"system:node:{node}", ("system:nodes",)
