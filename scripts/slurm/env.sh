# shellcheck shell=bash
# Read by the scripts of this folder: where DTorch is, how its ranks are placed, how a job gives way. Sets functions and
# defaults, starts nothing. docs/slurm.md tells what can be set; site settings belong here or into the environment.
#
# Modules: what the build was made with, on every node (mpirun starts its daemons with this environment):
#   module purge; module load gcc openmpi hdf5 boost
# Containers: DTORCH_CONTAINER is put before the program on every rank; mpirun or srun stays outside, so the Open MPI inside
# must be the version outside:
#   DTORCH_CONTAINER="apptainer exec --nv --bind /scratch /path/dtorch.sif"
# A fabric that Open MPI picks wrongly (several Ethernet interfaces):
#   export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
: "${DTORCH_BUILD:=$DTORCH_HOME/build}"
: "${DTORCH_APP:=$DTORCH_BUILD/bin/dtorch_app}"
: "${DTORCH_LAUNCHER:=mpirun}"     # or srun, where Slurm was built with PMIx
: "${DTORCH_CONTAINER:=}"
: "${DTORCH_LAUNCHER_OPTIONS:=}"   # more options of it, words with blanks between
# 1: training goes on from its last checkpoint on the nodes that are left when a rank or node is lost (dtorch_app supervise,
# which must then run outside of a container too).
if [ -z "${DTORCH_SUPERVISE:-}" ]; then
  DTORCH_SUPERVISE=1
  [ -z "$DTORCH_CONTAINER" ] || DTORCH_SUPERVISE=0
fi
: "${DTORCH_SPARES:=0}"            # nodes that are used only when others are lost
: "${DTORCH_RECOVER:=off}"         # on: training goes on inside the job when a node is lost, from the last snapshot
export DTORCH_RECOVER
: "${DTORCH_ELASTIC:=0}"           # 1: one device a node, data parallelism follows the nodes
: "${DTORCH_MAX_REQUEUES:=100}"
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
# The daemons' step shares the job's cores instead of waiting for free ones, and isn't bound to a part of them. Slurm leaves it
# alone when it finds that one of its nodes is gone: the job notices that itself, earlier, and may go on without.
export OMPI_MCA_plm_slurm_args=${OMPI_MCA_plm_slurm_args:---overlap --cpu-bind=none --no-kill}

# Asked to give way, perhaps before anything was started that could be told.
dtorch_stop=0
trap 'dtorch_stop=1' USR1

dtorch_fail() {
  echo "error: $*" >&2
  exit 1
}

# The job's number, an array's task with its index: names the run, and what is requeued.
dtorch_job() {
  if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    echo "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  else
    echo "$SLURM_JOB_ID"
  fi
}

# dtorch_has NAME OPTION...: whether --NAME or --NAME=value is among the options.
dtorch_has() {
  local name=$1 option
  shift
  for option in "$@"; do
    case $option in "--$name" | "--$name="*) return 0 ;; esac
  done
  return 1
}

# The allocation's nodes into the array dtorch_nodes, whatever their number of tasks and cores.
dtorch_find_nodes() {
  [ -n "${SLURM_JOB_NODELIST:-}" ] || dtorch_fail "this isn't a Slurm job: start it with sbatch"
  [ -x "$DTORCH_APP" ] || dtorch_fail "no program '$DTORCH_APP' on $(hostname): set DTORCH_HOME (where DTorch was built) or DTORCH_APP"
  mapfile -t dtorch_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  [ ${#dtorch_nodes[@]} -gt 0 ] || dtorch_fail "scontrol names no node of '$SLURM_JOB_NODELIST'"
}

# dtorch_launch COMMAND OPTION...: K nodes get K + 1 ranks: 0 (program and controller) and 1 on the first, one on each other.
# USR1 is passed on, which ranks answer by saving at the next step. Returns the job's exit code.
dtorch_launch() {
  dtorch_find_nodes
  local ranks=$((${#dtorch_nodes[@]} + 1)) node status
  local container launcher_options start
  read -ra container <<< "$DTORCH_CONTAINER"
  read -ra launcher_options <<< "$DTORCH_LAUNCHER_OPTIONS"
  case $DTORCH_LAUNCHER in
    mpirun)
      local hosts=${dtorch_nodes[0]}:2
      for node in "${dtorch_nodes[@]:1}"; do hosts+=,$node:1; done
      # Without --bind-to none Open MPI ties a rank with all its threads to one core where there are two ranks.
      start=(mpirun --oversubscribe --bind-to none -H "$hosts" -np "$ranks" "${launcher_options[@]}")
      # Without a supervisor, spare nodes are the job's own, and idle ones without recovery.
      case $DTORCH_RECOVER in
        off | 0 | no | false) export DTORCH_SPARES=0 ;;
        *)
          start+=(--enable-recovery)
          export DTORCH_SPARES
          ;;
      esac
      ;;
    srun)
      dtorch_host_file=$(mktemp)
      printf '%s\n' "${dtorch_nodes[0]}" "${dtorch_nodes[@]}" > "$dtorch_host_file"
      export SLURM_HOSTFILE=$dtorch_host_file
      # Else the others wait for ever for a rank that has ended before its time; a job that recovers goes on without it.
      [ "$DTORCH_RECOVER" = on ] || launcher_options+=(--wait=60)
      start=(srun --mpi=pmix --overlap --distribution=arbitrary --overcommit --cpu-bind=none --ntasks="$ranks" "${launcher_options[@]}")
      ;;
    *) dtorch_fail "DTORCH_LAUNCHER is '$DTORCH_LAUNCHER'; it must be mpirun or srun" ;;
  esac
  dtorch_run "${start[@]}" "${container[@]}" "$DTORCH_APP" "$@"
  status=$?
  [ -z "${dtorch_host_file:-}" ] || rm -f "$dtorch_host_file"
  return "$status"
}

# dtorch_supervise COMMAND OPTION...: the same, started again when it is lost.
dtorch_supervise() {
  dtorch_find_nodes
  local hosts
  hosts=$(IFS=,; echo "${dtorch_nodes[*]}")
  dtorch_guard
  local elastic=() status
  [ "$DTORCH_ELASTIC" = 0 ] || elastic=(--elastic)
  dtorch_run "$DTORCH_APP" supervise "${elastic[@]}" --hosts "$hosts" --spares "$DTORCH_SPARES" --launcher "$DTORCH_LAUNCHER" \
    ${DTORCH_LAUNCHER_OPTIONS:+"--launcher-options=$DTORCH_LAUNCHER_OPTIONS"} \
    ${DTORCH_CONTAINER:+"--wrapper=$DTORCH_CONTAINER"} -- "$@"
  status=$?
  [ -z "${dtorch_guard_pid:-}" ] || kill "$dtorch_guard_pid" 2> /dev/null
  return "$status"
}

# dtorch_run PROGRAM ARGUMENT...: in the background, with signals passed on; returns its exit code.
dtorch_run() {
  local status interrupted
  "$@" &
  local launcher=$!
  trap 'dtorch_stop=1; interrupted=1; kill -USR1 "$launcher" 2> /dev/null' USR1
  # The same for TERM, which mpirun would answer by ending its ranks within a second; whoever sends it decides what comes next.
  trap 'dtorch_terminated=1; interrupted=1; kill -USR1 "$launcher" 2> /dev/null' TERM
  [ "$dtorch_stop" = 0 ] || kill -USR1 "$launcher"
  # A trap ends `wait` with the signal's status, not what is waited for; that one's status is kept for the next `wait`.
  while true; do
    interrupted=0
    wait "$launcher"
    status=$?
    [ "$interrupted" = 1 ] || break
  done
  trap 'dtorch_stop=1' USR1
  trap - TERM
  return "$status"
}

# With --no-kill a job survives its nodes; but when the node that runs this script dies, Slurm lets the rest of the job wait for its
# time limit. So another node looks at it now and then, and puts the job back into the queue; not when that node refuses a
# connection: then only its slurmd is gone, and the job goes on. The guard ends by itself with this start of the job: where slurmd is
# gone nobody else would end it.
dtorch_guard() {
  [ ${#dtorch_nodes[@]} -gt 1 ] || return 0
  # shellcheck disable=SC2016  # expanded on the other node
  srun --overlap --nodes=1 --ntasks=1 --nodelist="${dtorch_nodes[-1]}" --cpu-bind=none --mpi=none --input=none bash -c '
    while sleep 10; do
      case $(scontrol --oneliner show job "$2" 2>&1) in
        *JobState=RUNNING*" Restarts=$3 "* | *JobState=SUSPENDED*" Restarts=$3 "*) ;;
        *JobState=* | *"Invalid job id"*) exit ;;
      esac
      case $(sinfo --noheader --nodes="$1" --format=%T) in
        down*)
          port=$(scontrol show config | sed -n "s/^SlurmdPort *= *\([0-9]*\).*/\1/p")
          case $(LC_ALL=C timeout 5 bash -c ": > /dev/tcp/$1/$port" 2>&1) in *refused*) continue ;; esac
          scontrol requeue "$2" && exit
          ;;
      esac
    done' guard "${dtorch_nodes[0]}" "$(dtorch_job)" "${SLURM_RESTART_COUNT:-0}" > /dev/null 2>&1 &
  dtorch_guard_pid=$!
}

# dtorch_end STATUS: 77 is a job that has saved and gave way: it goes back into the queue and continues from there.
dtorch_end() {
  local status=$1
  # 138: USR1 came before the program could take it.
  if [ "$status" = 138 ] && [ "$dtorch_stop" = 1 ]; then status=77; fi
  if [ "$status" = 77 ] && [ "${dtorch_terminated:-0}" = 0 ]; then
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "$DTORCH_MAX_REQUEUES" ]; then
      dtorch_fail "gave way $((${SLURM_RESTART_COUNT:-0} + 1)) times; DTORCH_MAX_REQUEUES=$DTORCH_MAX_REQUEUES allows no more"
    fi
    echo "job $(dtorch_job): saved and gave way; back into the queue"
    scontrol requeue "$(dtorch_job)" || exit "$status"
  fi
  exit "$status"
}

# dtorch_refuse_shared OPTION...: of what all tasks of an array get, what must be each task's own.
dtorch_refuse_shared() {
  [ -n "${SLURM_ARRAY_TASK_ID:-}" ] || return 0
  local name
  for name in checkpoint-dir metrics result trace; do
    ! dtorch_has "$name" "$@" ||
      dtorch_fail "all tasks of the array would write to the same --$name: set DTORCH_RUN, in which each gets its own folder, or give it in the lines of a sweep (array.sbatch)"
  done
}

# dtorch_train OPTION...: trains as `dtorch_app train` does. What is saved lies in the run's folder, which a requeued job finds
# again: $DTORCH_RUN (an array's task: a folder in it), else runs/slurm-JOB where the job was submitted.
dtorch_train() {
  if [ -n "${DTORCH_RUN:-}" ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then DTORCH_RUN+=/$SLURM_ARRAY_TASK_ID; fi
  : "${DTORCH_RUN:=$PWD/runs/slurm-$(dtorch_job)}"
  local options=("$@")
  dtorch_has checkpoint-dir "$@" || options+=(--checkpoint-dir "$DTORCH_RUN")
  dtorch_has resume "$@" || options+=(--resume)
  if ! dtorch_has metrics "$@"; then
    mkdir -p "$DTORCH_RUN" || dtorch_fail "cannot make the run's folder '$DTORCH_RUN' on $(hostname)"
    options+=(--metrics "$DTORCH_RUN/metrics.jsonl")
  fi
  if [ "$DTORCH_SUPERVISE" = 1 ]; then
    dtorch_supervise train "${options[@]}"
  else
    dtorch_launch train "${options[@]}"
  fi
  dtorch_end $?
}
