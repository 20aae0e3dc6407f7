#!/bin/sh
# Builds the image of a wheel as an archive: build_image.sh WHEEL ARCHIVE. Needs root, buildah and debootstrap; the root
# file system is kept in build/image for the next time. HARU_DEBIAN_MIRROR: where packages are from (default: as for apt).
set -eu

wheel=$(realpath "$1") archive=$(realpath -m "$2")
here=$(cd "$(dirname "$0")/.." && pwd)
suite=bookworm work=$here/build/image
version=$(basename "$wheel" | cut -d- -f2)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || date +%s)}"
mirror=${HARU_DEBIAN_MIRROR:-$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)*\([^ ]*\).*/\2/p' \
  /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -1)}

mkdir -p "$work"
if [ ! -f "$work/rootfs.tar" ]; then
  rm -rf "$work/root"
  debootstrap --variant=minbase --include=python3,ca-certificates,tzdata "$suite" "$work/root" "$mirror" >"$work/debootstrap.log"
  # What no process in the image reads, and what differs at each run.
  rm -rf "$work/root/usr/share/doc" "$work/root/usr/share/man" "$work/root/usr/share/info" "$work/root/usr/share/locale" \
    "$work/root/var/lib/apt/lists" "$work/root/var/cache" "$work/root/var/log"
  find "$work/root" -name __pycache__ -prune -exec rm -rf {} +
  mkdir -p "$work/root/var/cache" "$work/root/var/log"
  : >"$work/root/etc/machine-id"
  echo 'haru:x:65532:65532::/nonexistent:/usr/sbin/nologin' >>"$work/root/etc/passwd"
  echo 'haru:x:65532:' >>"$work/root/etc/group"
  rm -f "$work/root/etc/resolv.conf" "$work/root/etc/hostname"
  tar -C "$work/root" --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --exclude=./dev/* --exclude=./proc/* \
    --exclude=./sys/* -cf "$work/rootfs.new" .
  mv "$work/rootfs.new" "$work/rootfs.tar"
  rm -rf "$work/root"
fi

rm -rf "$work/wheels" && mkdir "$work/wheels"
${PYTHON:-python3} -m pip download --quiet --disable-pip-version-check --dest "$work/wheels" --only-binary=:all: \
  --python-version 3.11 --implementation cp --platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" \
  --platform "manylinux2014_$(uname -m)" "$wheel" pip

export BUILDAH_ISOLATION=chroot STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}"
storage="--root $work/storage --runroot $work/run"
# shellcheck disable=SC2086
{
  buildah $storage build --quiet --layers=false --timestamp "$SOURCE_DATE_EPOCH" --tag "haru:$version" \
    --file "$here/deploy/image/Containerfile" "$work" >"$work/id"
  rm -f "$archive"
  buildah $storage push --quiet "haru:$version" "docker-archive:$archive:haru:$version"
  buildah $storage rmi --all --force >/dev/null 2>&1 || true
}
rm -rf "$work/wheels" "$work/storage" "$work/run"
echo "$archive"
