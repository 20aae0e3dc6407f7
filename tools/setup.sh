#!/bin/sh
# Makes the virtual environment for development. Where it runs as root on Debian, it installs what Python itself needs
# (venv) and the programs that the integration tests use (kubectl, chromium, etcd, softhsm2, containerd with runc, nftables, a
# static busybox, buildah with debootstrap, zsh and fish) when they are missing; elsewhere those tests skip. npm fetches the
# scripts of the dashboard's charts; without it there are none.
set -eu

PYTHON="${PYTHON:-python3}"
VENV="${VENV:-.venv}"

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_updated=""
install_package() {
  if [ -z "$apt_updated" ]; then
    apt-get update -qq >&2 || return 1
    apt_updated=yes
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# kubectl before 1.27 asks for OpenAPI v2 only, which the API server does not serve: of no use here.
install_kubectl() {
  [ -n "$apt_updated" ] || { apt-get update -qq >&2 && apt_updated=yes; } || return 0
  candidate=$(apt-cache policy kubernetes-client 2>/dev/null | sed -n 's/^ *Candidate: *//p')
  if [ -n "$candidate" ] && dpkg --compare-versions "$candidate" ge 1.27; then
    install_package kubernetes-client || echo "kubectl could not be installed: its tests skip" >&2
  else
    echo "this Debian has no kubectl of 1.27 or newer: its tests skip" >&2
  fi
}

if can_install; then
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || install_package python3 python3-venv
  command -v kubectl >/dev/null 2>&1 || install_kubectl
  command -v chromium >/dev/null 2>&1 || install_package chromium fonts-dejavu-core ||
    echo "chromium could not be installed: the tests of the dashboard skip" >&2
  command -v npm >/dev/null 2>&1 || install_package npm ||
    echo "npm could not be installed: the dashboard has no charts, and its tests of them skip" >&2
  command -v curl >/dev/null 2>&1 || install_package curl ||
    echo "curl could not be installed: its test of HTTP/2 skips" >&2
  command -v etcd >/dev/null 2>&1 || install_package etcd-server ||
    echo "etcd could not be installed: the tests of API servers that share a store skip" >&2
  command -v softhsm2-util >/dev/null 2>&1 || install_package softhsm2 ||
    echo "softhsm2 could not be installed: the tests of keys in a module skip" >&2
  if ! command -v containerd >/dev/null 2>&1 || ! command -v runc >/dev/null 2>&1; then
    install_package containerd runc || echo "containerd could not be installed: the tests of real nodes skip" >&2
  fi
  if ! command -v buildah >/dev/null 2>&1 || ! command -v debootstrap >/dev/null 2>&1; then
    install_package buildah debootstrap || echo "buildah could not be installed: the nightly test of the image skips" >&2
  fi
  if ! command -v nft >/dev/null 2>&1 || ! command -v ip >/dev/null 2>&1; then
    install_package nftables iproute2 || echo "nftables could not be installed: the tests of haru proxy skip" >&2
  fi
  if ! command -v iptables >/dev/null 2>&1 || [ ! -e /usr/lib/cni/ptp ]; then
    install_package iptables containernetworking-plugins ||
      echo "containernetworking-plugins could not be installed: the nightly tests of two nodes skip" >&2
  fi
  if ! command -v zsh >/dev/null 2>&1 || ! command -v fish >/dev/null 2>&1; then
    install_package zsh fish || echo "zsh and fish could not be installed: the tests of completion in them skip" >&2
  fi
  # A dynamic busybox does not run where there is nothing else.
  dpkg -s busybox-static >/dev/null 2>&1 || install_package busybox-static ||
    echo "busybox-static could not be installed: the tests of real nodes skip" >&2
fi

"$PYTHON" - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Haru needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Name another one: make PYTHON=python3.12 ...")
PY

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
# Python compiles what is imported; compiling all that is installed takes a quarter of a minute, and most is never used.
"$VENV/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
