"""A KMS plugin in a process of its own, on a real Unix socket, that does what a test tells it to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from haru import kms

ANNOTATION = "version.kms.example.com"


class Plugin:
    """The process, seen by a test. Orders hold until others are given, and over a kill."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "kms.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: dict[str, Any] = {}
        self.tell(key_id="key-1")

    def tell(self, **orders: Any) -> None:
        """`key_id`, `healthz`, `version`, `delay` in seconds, `fails` (a code), `lost` keys, `answer` to Encrypt."""
        self._orders.update(orders)
        new = self.directory / "orders.new"
        new.write_text(json.dumps(self._orders))
        new.replace(self.directory / "orders.json")

    def start(self) -> Plugin:
        command = [sys.executable, __file__, str(self.directory)]
        self._process = subprocess.Popen(command)
        end = time.monotonic() + 30
        while not (self.directory / "ready").exists():
            assert time.monotonic() < end and self._process.poll() is None, "the plugin did not start"
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        for name in ("ready", "kms.sock"):
            (self.directory / name).unlink(missing_ok=True)

    def calls(self) -> Counter[str]:
        """How often each method was called."""
        log = self.directory / "calls"
        return Counter(log.read_text().split() if log.exists() else [])


class _Service:
    """What answers, in the process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _begin(self, method: str, context: grpc.ServicerContext) -> dict[str, Any]:
        with (self._directory / "calls").open("a") as log:
            log.write(f"{method}\n")
        orders: dict[str, Any] = json.loads((self._directory / "orders.json").read_text())
        time.sleep(orders.get("delay", 0))
        if code := orders.get("fails"):
            context.abort(grpc.StatusCode[code], "told to fail")
        return orders

    def status(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        orders = self._begin("Status", context)
        return kms.status_answer(
            kms.Status(orders.get("version", "v2"), orders.get("healthz", "ok"), orders.get("key_id", ""))
        )

    def encrypt(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        orders = self._begin("Encrypt", context)
        plain, uid = kms.read_encrypt_request(request)
        key_id, nonce = orders["key_id"], os.urandom(12)
        sealed = nonce + _kek(key_id).encrypt(nonce, plain, key_id.encode())
        good = kms.Encrypted(sealed, key_id, {ANNOTATION: b"1"})
        assert uid
        answers = {
            "empty": kms.Encrypted(b"", key_id),
            "long": kms.Encrypted(b"x" * 1025, key_id),
            "other_key": kms.Encrypted(sealed, "another"),
            "annotation": kms.Encrypted(sealed, key_id, {"version": b"1"}),
            "annotations": kms.Encrypted(sealed, key_id, {ANNOTATION: b"x" * 40_000}),
        }
        raw = {"huge": b"\x0a" + b"\xe0\xa7\x12" + b"x" * 300_000, "garbage": b"\xff\xff\xff"}
        answer = orders.get("answer")
        return raw.get(answer) or kms.encrypt_answer(answers.get(answer, good))

    def decrypt(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        orders = self._begin("Decrypt", context)
        wanted, uid = kms.read_decrypt_request(request)
        if wanted.key_id in orders.get("lost", []):
            context.abort(grpc.StatusCode.NOT_FOUND, f"the key {wanted.key_id} was destroyed")
        assert uid and wanted.annotations == {ANNOTATION: b"1"}, wanted
        try:
            plain = _kek(wanted.key_id).decrypt(wanted.ciphertext[:12], wanted.ciphertext[12:], wanted.key_id.encode())
        except InvalidTag:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no ciphertext of mine")
            raise
        return kms.decrypt_answer(plain[: orders.get("cut", len(plain))])


def _kek(key_id: str) -> AESGCM:
    return AESGCM(hashlib.sha256(f"kek {key_id}".encode()).digest())


def serve(directory: Path) -> None:
    service = _Service(directory)
    calls = {"Status": service.status, "Encrypt": service.encrypt, "Decrypt": service.decrypt}
    methods = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(kms.SERVICE, methods),))
    server.add_insecure_port(f"unix:{directory}/kms.sock")
    server.start()
    (directory / "ready").touch()
    with contextlib.suppress(KeyboardInterrupt):
        server.wait_for_termination()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
