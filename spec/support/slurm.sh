#!/bin/sh
# A Slurm of two nodes on this machine, in a folder of its own, for one command.
# usage: slurm.sh COMMAND [ARGUMENT...]    as root, on Debian's slurm-wlm and munge
# The nodes are called like loopback addresses, so that programs can listen on
# them. All daemons have ended when it ends, however it does; 77 means that they
# did not come up.
set -eu
PATH=$PATH:/usr/sbin:/sbin
dir=$(mktemp -d /tmp/tfdist-slurm-XXXXXX)
chmod 755 "$dir"

# All of Slurm's processes, tasks included, have the folder in their environment.
ours() {
  grep -lsF "SLURM_CONF=$dir/" /proc/[0-9]*/environ | cut -d/ -f3
}
finish() {
  unset SLURM_CONF # of the programs that look for them
  rounds=0
  while [ -n "$(ours)" ] && [ "$rounds" -lt 30 ]; do
    for pid in $(ours); do kill -KILL "$pid" 2>/dev/null || true; done
    rounds=$((rounds + 1))
    sleep 0.1
  done
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

free_ports() {
  # below those that connections get by themselves
  perl -e 'use Socket; while (@s < 3) { socket(my $s, PF_INET, SOCK_STREAM, 0);
    my $p = 20000 + int rand 12000;
    bind($s, sockaddr_in($p, INADDR_LOOPBACK)) or next; push @s, $s;
    print "$p " }'
}
read -r port one two <<PORTS
$(free_ports)
PORTS

# Others may run this at the same time.
net=127.$((16 + $$ / 250 % 200)).$((1 + $$ % 250))

cat >"$dir/slurm.conf" <<CONF
ClusterName=spec
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SchedulerType=sched/builtin
ReturnToService=2
KillWait=5
MpiDefault=none
NodeName=$net.1 NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) Port=$one CPUs=2
NodeName=$net.2 NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) Port=$two CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
CONF
mkdir "$dir/state" "$dir/spool.$net.1" "$dir/spool.$net.2"
export SLURM_CONF="$dir/slurm.conf"

# In the foreground each, so that they are this shell's to end.
dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 2>/dev/null
chmod 600 "$dir/munge.key"
munged --foreground --force --key-file="$dir/munge.key" \
  --socket="$dir/munge.sock" --pid-file="$dir/munge.pid" \
  --seed-file="$dir/munge.seed" >"$dir/munge.log" 2>&1 &
slurmctld -D -i -c >"$dir/ctld.log" 2>&1 &
for node in "$net.1" "$net.2"; do
  slurmd -D -N "$node" >"$dir/$node.log" 2>&1 &
done

tries=0
until [ "$(sinfo -h -t idle -o '%D' 2>/dev/null)" = 2 ]; do
  tries=$((tries + 1))
  # A node that has ended (the last one stands for both) never comes up.
  if [ "$tries" -gt 300 ] || ! kill -0 $! 2>/dev/null; then
    echo 'slurm.sh: the nodes did not come up' >&2
    tail -n 5 "$dir"/*.log >&2
    exit 77
  fi
  sleep 0.1
done
# Behind, so that signals are heard while it runs.
"$@" &
wait $!
