"""A real Slurm on virtual nodes of this machine, for tests.

Everything lives in namespaces of its own: enter() puts the calling program, as the first process, into new mount, network
and process namespaces, which end with it, and with them every daemon, network device, mount and temporary file. A virtual
node is another set of them inside: its own host name, network device, /dev/shm (Open MPI names its files there by host and
job) and process numbers; the temporary folder is what all nodes share. Needs root, Debian's slurmctld, slurmd, slurm-client
and munge, and iproute2.
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare", "nsenter"]
INSIDE = "DTORCH_TEST_CLUSTER_INSIDE"
NETWORK = "10.77.0."
CONTROLLER = "ctl"


def why_not():
    """One sentence that says why no cluster can be started here, or None."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"a private Slurm needs {', '.join(missing)}: run scripts/deps.sh check"
    if os.getuid() != 0:
        return "a private Slurm needs root, for namespaces and for Slurm's daemons"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "dtorch0",
                            "type", "veth", "peer", "name", "dtorch1"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"this machine doesn't allow namespaces with network devices of their own ({tried.stderr.strip()})"
    return None


def end_with_parent():
    """In a child before it becomes another program: however its parent ends, it ends too."""
    PR_SET_PDEATHSIG = 1
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        raise OSError("prctl")


def enter():
    """Runs this program again as the first process of its own namespaces, with an empty temporary folder, and ends with its
    exit code; returns where it runs there already."""
    if os.environ.get(INSIDE) == "1":
        for name in [tempfile.gettempdir(), "/dev/shm"]:
            run("mount", "-t", "tmpfs", "-o", "size=4g,mode=1777", "private", name)
        run("ip", "link", "set", "lo", "up")
        return
    with tempfile.TemporaryDirectory(prefix="dtorch_slurm_") as folder:
        done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-B",
                               *sys.argv], env={**os.environ, INSIDE: "1", "TMPDIR": folder}, check=False, preexec_fn=end_with_parent)
    sys.exit(done.returncode)


def wait_until(what, condition, timeout_s, every_s=0.05):
    """Returns condition()'s first true value; AssertionError after timeout_s. Other programs tell nothing by themselves."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(every_s)


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


# First process of a virtual node, which ends with it. As on a real one, what Slurm's daemon has started outlives it.
NODE = """
hostname "$1"
mount --bind "$2/shm/$1" /dev/shm
mount --bind "$2/hosts" /etc/hosts
shift 2
"$@" &
wait $!
"""
STAYS = """
while true; do
  sleep 3600 &
  wait $!
done
"""
CONF = """
ClusterName=virtual
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=5
SlurmctldTimeout=10
SlurmdTimeout={slurmd_timeout_s}
JobRequeue=1
SlurmdParameters=config_overrides
MailProg=/bin/true
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class Cluster:
    """nodes node1 .. nodeN of `cores` cores each; ready when the constructor returns. Call stop() at the end."""

    def __init__(self, folder, num_nodes, cores=2, slurmd_timeout_s=10):
        self.folder = pathlib.Path(folder)
        self.nodes = [f"node{i + 1}" for i in range(num_nodes)]
        self.daemons = {}
        self.env = dict(os.environ, SLURM_CONF=f"{folder}/slurm.conf")
        for name in ["log", "state", "shm", "munge"]:
            (self.folder / name).mkdir(parents=True)
        self._make_network()
        self._start_munge()
        conf = CONF.format(controller=CONTROLLER, folder=folder, slurmd_timeout_s=slurmd_timeout_s)
        memory_mib = 2000
        for node in self.nodes:
            (self.folder / f"tmp-{node}").mkdir()
            conf += f"NodeName={node} NodeHostname={node} CPUs={cores} RealMemory={memory_mib} State=UNKNOWN\n"
        (self.folder / "slurm.conf").write_text(conf)
        self._start(CONTROLLER, "slurmctld", "-D")
        for node in self.nodes:
            self._start(node, "slurmd", "-D", "-N", node)
        wait_until("all nodes idle", self._all_idle, 60, every_s=0.2)

    def _make_network(self):
        """Every node a network namespace with one device on a common bridge, which is the controller's."""
        hosts = "127.0.0.1 localhost\n"
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "netns", "/run/netns")
        addresses = {CONTROLLER: NETWORK + "254"}
        addresses.update({node: f"{NETWORK}{i + 1}" for i, node in enumerate(self.nodes)})
        for name, address in addresses.items():
            hosts += f"{address} {name}\n"
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            shared_memory = self.folder / "shm" / name
            shared_memory.mkdir()
            run("mount", "-t", "tmpfs", "-o", "size=2g", "shm", str(shared_memory))
        (self.folder / "hosts").write_text(hosts)
        run("ip", "-n", CONTROLLER, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", CONTROLLER, "addr", "add", addresses[CONTROLLER] + "/24", "dev", "bridge")
        run("ip", "-n", CONTROLLER, "link", "set", "bridge", "up")
        for node in self.nodes:
            run("ip", "-n", CONTROLLER, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", node)
            run("ip", "-n", CONTROLLER, "link", "set", node, "master", "bridge", "up")
            run("ip", "-n", node, "addr", "add", addresses[node] + "/24", "dev", "eth0")
            run("ip", "-n", node, "link", "set", "eth0", "up")

    def _start_munge(self):
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        munge.chmod(0o755)
        self.daemons["munged"] = subprocess.Popen(
            ["munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
             f"--seed-file={munge}/seed", f"--log-file={self.folder}/log/munged.log"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        wait_until("munge's socket", (munge / "socket").exists, 20)

    def _on(self, name, *command, script=NODE):
        """The command line that makes a new set of namespaces on a node's network, with its host name."""
        return ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "--mount", "--propagation", "private", "--pid", "--fork",
                "--kill-child", "--mount-proc", "bash", "-c", script, "node", name, str(self.folder), *command]

    def _start(self, name, *command):
        log = open(self.folder / "log" / f"{name}.out", "w", encoding="utf-8")
        self.daemons[name] = subprocess.Popen(self._on(name, *command, script=NODE + STAYS), env=self.env, stdout=log, stderr=log,
                                              stdin=subprocess.DEVNULL)
        log.close()

    def _all_idle(self):
        seen = subprocess.run(self._on(CONTROLLER, "sinfo", "-h", "-N", "-t", "idle", "-o", "%N"), env=self.env, capture_output=True,
                              text=True)
        return set(seen.stdout.split()) == set(self.nodes)

    def command(self, *command, env=None):
        """Runs a command on the controller's host; returns what it prints."""
        done = subprocess.run(self._on(CONTROLLER, *command), env={**self.env, **(env or {})}, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, *arguments, env=None):
        """sbatch; returns the job's number."""
        return self.command("sbatch", "--parsable", *map(str, arguments), env=env).strip()

    def job(self, number):
        """What scontrol says of a job (or task, as 7_2), as a dict: JobState, Restarts, ExitCode, ..."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.command("scontrol", "-o", "show", "job", str(number))))

    def wait(self, number, timeout_s):
        """Waits for the job's end; returns what scontrol says of it then."""
        ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}

        def ended():
            job = self.job(number)
            if job["JobState"] == "PENDING" and job["Reason"] == "BeginTime":
                # Slurm lets a job that was requeued rest for two minutes.
                self.command("scontrol", "update", f"JobId={number}", "StartTime=now")
            return job if job["JobState"] in ends else None

        return wait_until(f"the end of job {number}", ended, timeout_s, every_s=0.25)

    def cancel_all(self):
        """Ends what a failed test left in the queue."""
        self.command("scancel", "--user=root")
        wait_until("an empty queue", lambda: not self.command("squeue", "--noheader").strip(), 60, every_s=0.2)

    def on_node(self, node, *command):
        """Runs a command in the namespaces of a virtual node, where its daemon and jobs run."""
        return run("nsenter", "--target", self._first_process(node), "--mount", "--uts", "--net", "--pid", *command)

    def _first_process(self, node):
        init = self.daemons[node].pid
        return pathlib.Path(f"/proc/{init}/task/{init}/children").read_text().split()[0]

    def processes_of(self, job):
        """Process number -> node, of all that a job has on the nodes that are on: its own, and Slurm's for it."""
        nodes = {os.stat(f"/proc/{self._first_process(node)}/ns/pid").st_ino: node for node in self.nodes if node in self.daemons}
        found = {}
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                node = nodes.get(os.stat(folder / "ns/pid").st_ino)
                of_slurm = (folder / "cmdline").read_text().startswith(f"slurmstepd: [{job}.")
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if node and (of_slurm or f"SLURM_JOB_ID={job}".encode() in environment):
                found[int(folder.name)] = node
        return found

    def kill_daemon(self, node):
        """kill -9 of the node's slurmd; what it has started goes on."""
        self.on_node(node, "pkill", "-KILL", "-x", "slurmd")

    def power_off(self, node, with_network=True):
        """Takes the node off the network and ends all its processes at once."""
        if with_network:
            run("ip", "-n", CONTROLLER, "link", "set", node, "down")
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait()

    def power_on(self, node, is_last=True):
        """The same node anew, with empty shared memory; waits for all of them unless another one follows."""
        for path in (self.folder / "shm" / node).iterdir():
            path.unlink()
        run("ip", "-n", CONTROLLER, "link", "set", node, "up")
        self._start(node, "slurmd", "-D", "-N", node)
        if is_last:
            wait_until("all nodes idle", self._all_idle, 60, every_s=0.2)

    def left_over(self):
        """Files in the shared memory of nodes that are on; jobs that have ended leave none."""
        return [str(path) for node in self.nodes if node in self.daemons for path in (self.folder / "shm" / node).iterdir()]

    def stop(self):
        """Ends all daemons and what runs on the nodes; the rest goes with the namespaces."""
        for daemon in reversed(list(self.daemons.values())):
            daemon.kill()
            daemon.wait()
        self.daemons.clear()
