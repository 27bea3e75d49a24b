#!/usr/bin/env python3
"""Takes nodes, daemons and ranks away from small training jobs under a private Slurm (tests/slurm/cluster.py; needs root).

  scripts/fault_table_slurm.py BUILD_FOLDER [--repeats 5] [--seed 1] [--only FAULT,...] [--keep FOLDER]

Every run is scripts/slurm/train.sbatch with recovery and a supervisor, and is looked at as in fault_table.py: the losses are
bitwise those of a run that nothing happened to, the job completes, recovery in the job takes at most 12 s from the last fault
and a restart by the supervisor 20 s, and no process and no file in shared memory is left on a node that is on. One JSON object a run; at the end the
table of docs/reliability.md. Moments and victims follow from the seed and the number of the run. Exit code 1 when anything was
wrong, 4 where no Slurm can be started.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "tests/slurm")]
import cluster  # noqa: E402
import fault_table  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[1]
MAX_SPARES = 2
STEPS, LAST_AT, SAVE_EVERY, SNAPSHOT_EVERY = 30, 14, 6, 4
TRAIN = ["--dim", "16", "--layers", "1", "--heads", "2", "--length", "16", "--batch", "3", "--dtype", "float64", "--zero", "2",
         "--devices", "3", "--dp", "3", "--log-every", "1", "--validation-share", "0", "--save-every", str(SAVE_EVERY),
         "--steps", str(STEPS)]
JOB_S = 240
ENDS_WITHIN_S = 40  # the guard of scripts/slurm/env.sh looks every 10 s

Fault = collections.namedtuple("Fault", "name strike spares victims in_save then_spare of_first requeued is_noticed supervised",
                               defaults=[0, 1, False, False, False, False, True, True])
FAULTS = {
    "kill": Fault("kill -9 of a Sub-Controller", "kill"),
    "save": Fault("the same in a save, a spare", "kill", 1, in_save=True),
    "stop": Fault("SIGSTOP of a Sub-Controller, a spare", "stop", 1),
    "rank0": Fault("kill -9 of rank 0", "rank0"),
    "orted": Fault("kill -9 of a node's Open MPI daemon (orted)", "orted"),
    "stepd": Fault("kill -9 of the slurmstepd above it", "stepd", is_noticed=False),
    "slurmd": Fault("kill -9 of a node's slurmd", "slurmd", is_noticed=False),
    "slurmd-first": Fault("the same of the first node", "slurmd", of_first=True, is_noticed=False),
    "power": Fault("node powered off", "power"),
    "power-spare": Fault("the same, a spare", "power", 1),
    "two": Fault("two nodes powered off at once, two spares", "power", 2, victims=2),
    "again": Fault("node powered off, and the spare that takes over while the job recovers, two spares", "power", 2, then_spare=True),
    "first": Fault("the first node powered off (the job is requeued)", "power", of_first=True, requeued=True),
}


def parent_of(process):
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


class Run(fault_table.Run):
    """One job under Slurm that a fault happens to."""

    def __init__(self, fault, nodes, build, folder, data, seed):
        super().__init__(fault, build, folder, data, seed)
        self.nodes, self.steps = nodes, STEPS
        self.at_step = self.random.randint(3, LAST_AT)
        self.hosts = {}  # by rank
        self.off = []    # nodes that were switched off or have no daemon
        self.last_fault = None
        self.is_over = False

    def submit(self):
        arguments = ["--data", self.data, *TRAIN, "--metrics", self.folder / "part.jsonl", "--snapshot-every", SNAPSHOT_EVERY]
        return self.nodes.submit("--chdir", self.folder, "-N", fault_table.NODES + self.fault.spares,
                                 SOURCE / "scripts/slurm/train.sbatch", *arguments, env={
                                     "DTORCH_HOME": str(SOURCE), "DTORCH_APP": str(self.build / "bin/dtorch_app"),
                                     "DTORCH_RUN": str(self.folder / "part"), "DTORCH_RECOVER": "on",
                                     "DTORCH_SPARES": str(self.fault.spares)})

    def find_ranks(self):
        self.ranks, self.hosts = {}, {}
        for process, host in self.nodes.processes_of(self.job).items():
            rank = fault_table.environment_of(process).get("OMPI_COMM_WORLD_RANK")
            if rank is not None:
                self.ranks[int(rank)], self.hosts[int(rank)] = process, host

    def daemon_on(self, host, name):
        return next(process for process, at in self.nodes.processes_of(self.job).items()
                    if at == host and pathlib.Path(f"/proc/{process}/comm").read_text().strip() == name)

    def power_off(self, hosts):
        self.off += hosts
        for host in hosts:
            self.nodes.power_off(host)

    def strike(self):
        self.find_ranks()
        # Node n has rank n + 1; the first host is node 0's and rank 0's.
        others = self.random.sample(range(1, fault_table.NODES), self.fault.victims)
        hosts = [self.hosts[node + 1] for node in others]
        any_node = self.ranks[self.random.randrange(fault_table.NODES) + 1]
        if self.fault.of_first:
            hosts = [self.hosts[0]]
        orted = self.daemon_on(hosts[0], "orted") if self.fault.strike in ("orted", "stepd") else None
        stepd = parent_of(orted) if orted else None
        self.began = self.last_fault = time.monotonic()
        kill = {"kill": (any_node, signal.SIGKILL), "stop": (any_node, signal.SIGSTOP), "rank0": (self.ranks[0], signal.SIGKILL),
                "orted": (orted, signal.SIGKILL), "stepd": (stepd, signal.SIGKILL)}
        if self.fault.strike == "power":
            self.power_off(hosts)
        elif self.fault.strike == "slurmd":
            self.off.append(hosts[0])
            self.nodes.kill_daemon(hosts[0])
        else:
            os.kill(*kill[self.fault.strike])

    def note(self, at, line):
        self.said.append(line)
        found = re.search(rf"\] (\d+)/{self.steps} ", line)
        if found:
            step = int(found[1])
            # A job that is requeued says nothing of it.
            goes_on = step <= self.step if self.fault.requeued else self.noticed
            if self.began and goes_on and not self.again:
                self.again = at
            self.step_s = (at - self.step_at) / max(1, step - self.step)
            self.step, self.step_at = step, at
        if self.began and not self.noticed and (" is lost (" in line or "supervise: attempt" in line):
            self.noticed = at
            if self.fault.then_spare:
                taker = int(re.search(r"go to node (\d+)", line)[1])
                self.power_off([self.hosts[taker + 1]])
                self.last_fault = time.monotonic()

    def follow(self):
        """Reads what the job says, and strikes when it is time."""
        path, place, rest = self.folder / f"dtorch_train-{self.job}.out", 0, ""
        while True:
            is_last = self.is_over
            text = ""
            if path.exists():
                with open(path, encoding="utf-8", errors="replace") as stream:
                    stream.seek(place)
                    text, place = stream.read(), stream.tell()
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self.note(time.monotonic(), line + "\n")
            if self.began is None and self.is_time():
                self.strike()
            if is_last:
                return
            time.sleep(0.002)  # nothing tells when a file has grown

    def go(self):
        self.job = self.submit()
        follower = threading.Thread(target=self.follow, daemon=True)
        follower.start()
        found = []
        try:
            end = self.nodes.wait(self.job, JOB_S)
            if (end["JobState"], end["ExitCode"]) != ("COMPLETED", "0:0"):
                found.append(f"ended as {end['JobState']} {end['ExitCode']}")
        except AssertionError as error:
            found.append(str(error))
        self.is_over = True
        follower.join()
        found += self.problems_after()
        self.nodes.cancel_all()
        for host in self.off:
            if host in self.nodes.daemons:
                self.nodes.power_off(host)
        for host in self.off:
            self.nodes.power_on(host, is_last=host == self.off[-1])
        return found

    def problems_after(self):
        found = []
        deadline = time.monotonic() + ENDS_WITHIN_S
        while (left := self.nodes.processes_of(self.job)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process, host in left.items():
            found.append(f"left on {host}: {pathlib.Path(f'/proc/{process}/cmdline').read_text()[:80]}")
        if files := self.nodes.left_over():
            found.append(f"files left: {files}")
        if self.began is None or (self.fault.is_noticed and self.again is None):
            found.append("nothing was lost, or nothing went on")
        elif self.again and not self.fault.requeued:
            limit = fault_table.LIMIT_SUPERVISED_S if self.was_restarted() else fault_table.LIMIT_S
            if self.again - self.last_fault > limit:
                found.append(f"running again after {self.again - self.last_fault:.1f} s")
        wanted = fault_table.losses(self.folder.parent / "whole.jsonl")
        if (got := fault_table.losses(self.folder / "part.jsonl")) != wanted:
            first = min((step for step in wanted if got.get(step) != wanted[step]), default="none")
            found.append(f"other losses, the first at step {first}")
        return found

    def was_restarted(self):
        return "starting again from" in "".join(self.said) or self.fault.requeued

    def figures(self):
        figures = {"fault": self.fault.name, "seed": self.seed, "at_step": self.at_step, "restarted": self.was_restarted()}
        for name, at in [("noticed_s", self.noticed), ("again_s", self.again)]:
            if at:
                figures[name] = round(at - self.began, 3)
        steps = re.findall(rf"\] (\d+)/{self.steps} ", "".join(self.said))
        figures["steps_repeated"] = len(steps) - len(set(steps))
        return figures


def table(rows):
    yield "| fault | runs | started again | noticed after (s) | running again after (s) | steps repeated |"
    yield "|---|---|---|---|---|---|"
    for name, runs in rows.items():
        yield (f"| {name} | {len(runs)} | {sum(run['restarted'] for run in runs)} | {fault_table.span(runs, 'noticed_s', '{:.2f}')} | "
               f"{fault_table.span(runs, 'again_s', '{:.2f}')} | {fault_table.span(runs, 'steps_repeated', '{:.0f}')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help=", ".join(FAULTS))
    parser.add_argument("--keep", type=pathlib.Path, help="where runs that failed are kept")
    options = parser.parse_args()
    if not os.environ.get(cluster.INSIDE) and (reason := cluster.why_not()):
        print("skipped:", reason)
        return 4
    cluster.enter()
    return run_all(options)


def run_all(options):
    build = options.build.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fault_table."))
    (folder / "text.txt").write_text("".join(f"line {i * 7919 % 1000} of a small text.\n" for i in range(2000)))
    data = folder / "text.h5"
    app = build / "bin/dtorch_app"
    subprocess.run([app, "prepare", "--text", folder / "text.txt", "--out", data], check=True, capture_output=True)
    subprocess.run([app, "train", "--data", data, *TRAIN, "--metrics", folder / "whole.jsonl", "--checkpoint-dir",
                    folder / "whole"], check=True, capture_output=True)
    nodes = cluster.Cluster(folder / "cluster", fault_table.NODES + MAX_SPARES)
    rows, num_wrong = {}, 0
    names = [name for _ in range(options.repeats) for name in (options.only.split(",") if options.only else FAULTS)]
    try:
        for number, name in enumerate(names):
            here = folder / f"run{number}"
            here.mkdir()
            run = Run(FAULTS[name], nodes, build, here, data, options.seed * 1000 + number)
            problems = run.go()
            figures = run.figures() | {"name": name, "problems": problems, "load": os.getloadavg()[0]}
            print(json.dumps(figures), flush=True)
            rows.setdefault(FAULTS[name].name, []).append(figures)
            num_wrong += bool(problems)
            if problems and options.keep:
                shutil.copytree(here, options.keep / f"{name}-{run.seed}", dirs_exist_ok=True)
                shutil.copytree(folder / "cluster/log", options.keep / f"{name}-{run.seed}/log", dirs_exist_ok=True)
            shutil.rmtree(here)
    finally:
        nodes.stop()
    print("\n".join(table(rows)))
    print(f"{sum(map(len, rows.values()))} runs, {num_wrong} wrong")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
