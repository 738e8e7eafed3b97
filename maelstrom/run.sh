#!/usr/bin/env bash
# Runs a node under the real Maelstrom: MAELSTROM is the path of its launcher,
# the argument that of the node. Besides Maelstrom's verdict it fails on what
# Maelstrom only logs: a node that it no longer listens to, and answers that
# break the schema. It does not look at the end of the log: of nodes that are torn
# down one after another, the last may write to the first.
set -euo pipefail

node=$(realpath "$1")
: "${MAELSTROM:?is not set: the path of maelstrom\'s launcher}"
launcher=$(realpath "$MAELSTROM")
work=$(mktemp -d)
echo "results: $work/store/kafka/latest"

try() {
	echo "maelstrom test -w kafka --bin $node $*"
	(cd "$work" && PAWL_DIR=$(mktemp -d "$work/data.XXXXXX") "$launcher" test -w kafka --bin "$node" "$@")
	if awk '/Tearing down n/ { exit } /maelstrom.process Error!|Malformed RPC response/ { print; found = 1 } END { exit !found }' \
		"$work/store/kafka/latest/jepsen.log"; then
		echo "the log has errors: $work/store/kafka/latest/jepsen.log" >&2
		return 1
	fi
}

try --node-count 1 --concurrency 4n --rate 200 --time-limit "${SECONDS_EACH:-30}" --availability 0.95
try --node-count 3 --concurrency 2n --rate 100 --time-limit "${SECONDS_EACH:-30}" \
	--nemesis partition --nemesis-interval 5 --availability 0.9
try --node-count 5 --concurrency 2n --rate 100 --time-limit "${SECONDS_EACH:-30}" --latency 10 --latency-dist exponential \
	--nemesis partition --nemesis-interval 10 --availability 0.9
