#!/bin/sh
# Installs the system packages that Surefoot needs, where it may; otherwise says the exact command.
#   sh deploy/system-packages.sh       what everybody needs
#   sh deploy/system-packages.sh dev   what only tests need
# bubblewrap: the sandbox of workspaces. python3-venv: the environment, which Debian packages apart.
# postgresql: tests start servers of their own; the one that Debian sets up on installation is left alone.
set -eu

missing=""
if [ "${1:-}" = dev ]; then
    command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing=" postgresql"
    command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
    command -v dockerd >/dev/null 2>&1 || missing="$missing docker.io"
    command -v debootstrap >/dev/null 2>&1 || missing="$missing debootstrap"
else
    command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
    "${PYTHON:-python3}" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
fi
[ -n "$missing" ] || exit 0

command="apt-get install -y --no-install-recommends$missing"
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    run=""
elif command -v apt-get >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    run="sudo"
else
    echo "Missing:$missing. Install it, then run make again. On Debian or Ubuntu: sudo $command" >&2
    exit 6
fi
set -x
$run apt-get update -qq
DEBIAN_FRONTEND=noninteractive $run $command >/dev/null
# Debian starts it as a service; the tests start their own.
case "$missing" in *prometheus*) $run systemctl disable --now prometheus 2>/dev/null || true ;; esac
