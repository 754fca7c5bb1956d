#!/bin/sh
# Two machines on this one: network namespaces joined by a pair of virtual
# cards, with the addresses 10.99.0.1 and 10.99.0.2.
# usage: netns.sh COMMAND    as root, with iproute2
# COMMAND is run by sh: "$ONE program" and "$TWO program" run there, "$CUT" parts
# them as a pulled cable does. Both are gone when it ends, with all that runs in
# them.
set -eu
one=tfdist-$$-one
two=tfdist-$$-two

finish() {
  for name in "$one" "$two"; do
    for pid in $(ip netns pids "$name" 2>/dev/null); do
      kill -KILL "$pid" 2>/dev/null || true
    done
    ip netns del "$name" 2>/dev/null || true
  done
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

ip netns add "$one"
ip netns add "$two"
ip link add card netns "$one" type veth peer name card netns "$two"
ip -n "$one" address add 10.99.0.1/24 dev card
ip -n "$two" address add 10.99.0.2/24 dev card
for name in "$one" "$two"; do
  ip -n "$name" link set lo up
  ip -n "$name" link set card up
done
export ONE="ip netns exec $one" TWO="ip netns exec $two"
export CUT="ip -n $one link set card down"
# Behind, so that signals are heard while it runs.
sh -c "$1" &
wait $!
