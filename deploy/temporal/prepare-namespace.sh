#!/bin/sh
# Creates nodewarden's namespace and the search attributes by which episodes are found. Harmless to repeat. Which attributes
# there are: activities/contracts/search_attributes.py. Where: TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE; how long ended episodes are kept: RETENTION.
set -eu

if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "${RETENTION:-90d}"
fi

# A type for each name: of several names with one type the CLI adds only the first, and says nothing.
set --
for attribute in Cluster Node Zone Kind Phase Reason Outcome Hardware RepairMode; do
    set -- "$@" --name "$attribute" --type Keyword
done

# A new namespace reaches all parts of the server within seconds, not at once.
tries=0
until temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" "$@"; do
    tries=$((tries + 1))
    [ "$tries" -lt 15 ] || exit 1
    sleep 2
done
