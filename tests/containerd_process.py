"""A real containerd with state, images, network and a socket of its own, as long as a test needs it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

IMAGE = "haru.test/busybox:1"
_CONFIG = """
version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{root}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  stream_server_port = "0"
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/cni"
    conf_dir = "{root}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""
# A pod's own network: nothing but its loopback, with an address that nobody else has.
_CNI = r"""#!/bin/sh
config=$(cat)
case "$CNI_COMMAND" in
ADD)
  nsenter --net="$CNI_NETNS" busybox ip link set lo up
  exec 9>>"{root}/addresses"; flock 9
  number=$(wc -l <"{root}/addresses"); echo "$CNI_CONTAINERID $CNI_NETNS" >>"{root}/addresses"
  address="10.213.$((number / 250)).$((number % 250 + 2))"
  nsenter --net="$CNI_NETNS" busybox ip addr add "$address/32" dev lo
  echo '{{"cniVersion":"0.4.0","interfaces":[{{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}}],'
  echo '"ips":[{{"version":"4","interface":0,"address":"'"$address"'/32"}}]}}';;
VERSION) echo '{{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}}';;
*) ;;
esac
"""


def missing() -> str:
    """What this machine lacks for it, or nothing."""
    if os.geteuid() != 0:
        return "containers need root"
    lacking = [name for name in ("containerd", "runc", "busybox", "ctr") if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)}: not installed (the packages containerd and busybox-static)"
    dynamic = b"ld-linux" in Path(shutil.which("busybox") or "").read_bytes()[:4096]
    return "busybox is not static (the package busybox-static)" if dynamic else ""


class Containerd:
    """A containerd under `root`, with the image IMAGE; a pod's sandbox is the same image. CDI files are beside it."""

    def __init__(self, root: Path, snapshotter: str = "native") -> None:
        self.root = root
        self.endpoint = f"unix://{root}/containerd.sock"
        self.log = root / "containerd.log"
        self._process: subprocess.Popen[bytes] | None = None
        root.mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(root=root, image=IMAGE, snapshotter=snapshotter, cdi=root.parent / "cdi")
        (root / "config.toml").write_text(config)
        for name in ("loopback", "haru-test"):
            plugin = root / "cni" / name
            plugin.parent.mkdir(exist_ok=True)
            plugin.write_text(_CNI.format(root=root))
            plugin.chmod(0o755)
        (root / "addresses").touch()
        network = {"cniVersion": "0.4.0", "name": "test", "plugins": [{"type": "haru-test"}]}
        (root / "net.d").mkdir(exist_ok=True)
        (root / "net.d" / "10-test.conflist").write_text(json.dumps(network))

    def start(self) -> None:
        """Runs it and imports the image."""
        self._run()
        self.add_image(busybox_image(IMAGE))

    def add_image(self, image: bytes) -> None:
        """Imports an image."""
        archive = self.root / "image.tar"
        archive.write_bytes(image)
        # From 2.0 on the client would have the daemon unpack it, with the snapshotter that the daemon prefers.
        local = [] if re.search(r"Version: +v?1\.", self.ctr("version").stdout) else ["--local"]
        self.ctr("images", "import", *local, "--snapshotter", "native", str(archive))

    def kill(self) -> None:
        """Ends it without a word; containers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def resume(self) -> None:
        """Runs it again, with what it had."""
        self._run()

    def _run(self) -> None:
        with self.log.open("ab") as log:
            command = ["containerd", "-c", str(self.root / "config.toml")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while self.ctr("version", check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"containerd did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def ctr(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of containerd's own client, in the namespace of the CRI."""
        command = ["ctr", "-a", f"{self.root}/containerd.sock", "-n", "k8s.io", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if check and answer.returncode:
            raise AssertionError(f"{command}: {answer.stderr}")
        return answer

    def tasks(self) -> dict[str, int]:
        """The process of each container that runs, by its id."""
        lines = self.ctr("tasks", "ls").stdout.splitlines()[1:]
        return {found[0]: int(found[1]) for line in lines if len(found := line.split()) >= 3 and found[2] == "RUNNING"}

    def stop(self) -> None:
        """Ends all containers, then itself."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            for task in self.tasks():
                self.ctr("tasks", "kill", "-s", "SIGKILL", task, check=False)
            deadline = time.monotonic() + 60
            while self.tasks() and time.monotonic() < deadline:
                time.sleep(0.1)
            for line in self.ctr("containers", "ls", "-q").stdout.split():
                self.ctr("tasks", "rm", "-f", line, check=False)
                self.ctr("containers", "rm", line, check=False)
        finally:
            self.end_shims()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._unmount()

    def end_shims(self) -> None:
        """The helpers of this containerd, by its socket's path in their command lines."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "containerd-shim" in command and str(self.root) in command:
                os.kill(int(entry.name), signal.SIGKILL)

    def _unmount(self) -> None:
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(str(self.root))), key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        # Of sandboxes that a killed containerd has forgotten.
        for space in {line.split()[1] for line in (self.root / "addresses").read_text().splitlines()}:
            subprocess.run(["umount", "-l", space], check=False, capture_output=True)
            with contextlib.suppress(OSError):  # another process has the mount still: its end takes it off
                Path(space).unlink(missing_ok=True)


def busybox_image(name: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """An image of one layer, as `docker save` writes it: static busybox under all its names, and `files`."""
    binary = Path(shutil.which("busybox") or "").read_bytes()
    applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("root", 0o700), ("proc", 0o755)):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "bin/busybox", binary, 0o755)
        for path, content in (files or {}).items():
            _add(tar, path, content, 0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        _add(tar, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000000"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    data = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(data).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        _add(tar, config_name, data)
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return image.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
