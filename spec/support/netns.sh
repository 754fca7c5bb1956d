#!/bin/sh
# Two machines on this one: network namespaces joined by a pair of virtual
# cards, with the addresses 10.99.0.1 and 10.99.0.2.
# usage: netns.sh COMMAND    as root, with iproute2
# COMMAND is run by sh: "$ONE program" and "$TWO program" run there, "$CUT" parts
# them as a pulled cable does. Both are gone when it ends, with all that runs in
# them. With DISORDER, a number to draw by, packets between them are late and
# overtake each other (disorder.pl). With SPARE, "$THREE program" runs on a third
# one, behind another card of the first: "$REPLACE" has it be 10.99.0.2 in place
# of the second, which "$RETURN" has speak as 10.99.0.3 from then on.
set -eu
one=tfdist-$$-one
two=tfdist-$$-two
three=tfdist-$$-three

disorder=
finish() {
  [ -z "$disorder" ] || kill "$disorder" 2>/dev/null || true
  for name in "$one" "$two" "$three"; do
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
if [ -n "${DISORDER:-}" ]; then
  perl "$(dirname "$0")/disorder.pl" "$DISORDER" "$one" "$two" &
  disorder=$!
  until ip -n "$two" link show card >/dev/null 2>&1; do
    kill -0 $disorder
    sleep 0.01
  done
else
  ip link add card netns "$one" type veth peer name card netns "$two"
fi
ip -n "$one" address add 10.99.0.1/24 dev card
ip -n "$two" address add 10.99.0.2/24 dev card
for name in "$one" "$two"; do
  ip -n "$name" link set lo up
  ip -n "$name" link set card up
done
if [ -n "${SPARE:-}" ]; then
  ip netns add "$three"
  ip link add spare netns "$one" type veth peer name card netns "$three"
  ip -n "$three" address add 10.99.0.2/24 dev card
  ip -n "$two" address add 10.99.0.3/24 dev card
  ip -n "$one" link set spare up
  ip -n "$three" link set lo up
  ip -n "$three" link set card up
  export THREE="ip netns exec $three"
  export REPLACE="ip -n $one route add 10.99.0.2/32 dev spare src 10.99.0.1"
  export RETURN="ip -n $two route add 10.99.0.1/32 dev card src 10.99.0.3"
fi
export ONE="ip netns exec $one" TWO="ip netns exec $two"
export CUT="ip -n $one link set card down"
# Behind, so that signals are heard while it runs.
sh -c "$1" &
wait $!
