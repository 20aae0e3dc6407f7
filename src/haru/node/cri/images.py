# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""The messages of `runtime.v1.ImageService` as field tables.

Source: the published CRI, v1 (the one of Kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.messages import Message, flag, one, table, text, texts, whole, wrapped
from haru.node.cri.containers import ImageSpec
from haru.node.cri.messages import PodSandboxConfig


@dataclass(slots=True)
class Image(Message):
    id: str = text(1)
    repo_tags: list[str] = texts(2)
    repo_digests: list[str] = texts(3)
    size: int = whole(4)
    uid: int | None = wrapped(5)
    username: str = text(6)
    spec: ImageSpec | None = one(7, lambda: ImageSpec)
    pinned: bool = flag(8)


@dataclass(slots=True)
class ImageFilter(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)


@dataclass(slots=True)
class ImageStatusRequest(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)
    verbose: bool = flag(2)


@dataclass(slots=True)
class ImageStatusResponse(Message):
    image: Image | None = one(1, lambda: Image)
    info: dict[str, str] = table(2)


@dataclass(slots=True)
class AuthConfig(Message):
    username: str = text(1)
    password: str = text(2)
    auth: str = text(3)
    server_address: str = text(4)
    identity_token: str = text(5)
    registry_token: str = text(6)


@dataclass(slots=True)
class PullImageRequest(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)
    auth: AuthConfig | None = one(2, lambda: AuthConfig)
    sandbox_config: PodSandboxConfig | None = one(3, lambda: PodSandboxConfig)


@dataclass(slots=True)
class PullImageResponse(Message):
    image_ref: str = text(1)
