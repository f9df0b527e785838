#!/usr/bin/env bash
# A Slurm cluster of one machine, for tests: `slurm_cluster.sh start FOLDER`, then `export SLURM_CONF=FOLDER/slurm.conf`;
# `slurm_cluster.sh stop FOLDER`. Needs Debian's slurm-wlm and munge, no systemd. FOLDER's path must be short (a socket
# lies below it). Two partitions: `low`, whose jobs are requeued for those of `high`.
set -euo pipefail
root=$2
conf=$root/slurm.conf

if [ "$1" = stop ]; then
  for pid in slurmd slurmctld munge/pid; do
    file=$root/${pid%%/pid}.pid; [ "$pid" = munge/pid ] && file=$root/munge/pid
    [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
  done
  exit 0
fi

host=$(hostname -s)
me=$(id -un)
port=${3:-6817}
mkdir -p "$root"/{munge,state,spool,log}
chmod 700 "$root/munge"
cat > "$conf" <<EOF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$root/munge/socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
ReturnToService=2
SlurmctldPidFile=$root/slurmctld.pid
SlurmdPidFile=$root/slurmd.pid
SlurmdSpoolDir=$root/spool
StateSaveLocation=$root/state
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd.log
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MinJobAge=300
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=8000 State=UNKNOWN
PartitionName=low  Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=$host MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
EOF
[ -f "$root/munge/key" ] || mungekey --create --keyfile="$root/munge/key"
munged --force --key-file="$root/munge/key" --socket="$root/munge/socket" --pid-file="$root/munge/pid" \
  --log-file="$root/munge/log" --seed-file="$root/munge/seed" 2>/dev/null
slurmctld -f "$conf"
slurmd -f "$conf" -N "$host"
