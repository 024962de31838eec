#!/bin/sh
# Makes the namespace and its search attributes where they are missing. Harmless when repeated.
# Which server and which namespace: TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE.
set -eu

again() { # a server that has just started, and a namespace that is new, are known everywhere only after some seconds
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        if "$@"; then return; fi
        sleep 2
    done
    echo "gave up: $*" >&2
    exit 1
}

add() {
    kind="$1"
    shift
    for name in "$@"; do
        again temporal operator search-attribute create --name "$name" --type "$kind"
    done
}

again temporal operator cluster health
if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$TEMPORAL_RETENTION"
fi
add Keyword SurefootStatus SurefootOutcome SurefootReason SurefootTaskType SurefootSite SurefootPolicy
add Bool SurefootWaiting
add Double SurefootSpendUsd
