#!/bin/sh
# Installs the system packages that Surefoot needs, where it may; otherwise says the exact command.
#   sh deploy/system-packages.sh         what everybody needs
#   sh deploy/system-packages.sh test    what only tests need
#   sh deploy/system-packages.sh proof   what only the slow proofs need
# bubblewrap: the sandbox of workspaces. python3-venv: the environment, which Debian packages apart.
# postgresql: tests start servers of their own; the one that Debian sets up on installation is left alone.
# prometheus: checks alerts and the dashboard. docker.io, debootstrap: build the image on a Debian made on the spot.
set -eu

missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
case "${1:-}" in
test)
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || need postgres postgresql
    ;;
proof)
    need promtool prometheus
    need dockerd docker.io
    need debootstrap debootstrap
    ;;
*)
    need bwrap bubblewrap
    "${PYTHON:-python3}" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
    ;;
esac
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
