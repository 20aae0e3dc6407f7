#!/bin/sh
# Makes the virtual environment for development. Where it runs as root on Debian, it installs what Python itself needs
# (venv) and the programs that the integration tests use (kubectl) when they are missing; elsewhere those tests skip.
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

if can_install; then
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || install_package python3 python3-venv
  command -v kubectl >/dev/null 2>&1 || install_package kubernetes-client || echo "kubectl is not to be had: its tests skip" >&2
fi

"$PYTHON" - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Haru needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Name another one: make PYTHON=python3.12 ...")
PY

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
