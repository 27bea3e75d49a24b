#!/usr/bin/env python3
"""Takes ranks away from small training jobs under mpirun, and checks that the jobs go on as if nothing had happened.

  scripts/fault_table.py BUILD_FOLDER [--repeats 5] [--seed 1] [--only FAULT,...] [--mixed N] [--load N] [--keep FOLDER]

Every run: the losses are bitwise those of a run that nothing happened to, the result file says done, recovery in the
job takes at most 12 s and a restart 20 s, and no process and no file in shared memory is left. One JSON object a run; at
the end the table of
docs/reliability.md. Moments and victims follow from the seed and the number of the run. Of a run that hangs, stacks of
all ranks (gdb) are kept. --mixed: so many runs in all, of all faults in turn. --load: so many busy processes meanwhile.
Exit code 1 when anything was wrong.
"""
import argparse
import collections
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

NODES, SNAPSHOT_EVERY, SAVE_EVERY = 3, 4, 10
STEPS, STEPS_SUPERVISED = 60, 200  # those that end when rank 0 or mpirun is gone take a second to do it
LIMIT_S, LIMIT_SUPERVISED_S = 12, 20  # from the fault to the next step
HANGS_AFTER_S = 120
ENDS_WITHIN_S = 10
MARK = "DTORCH_FAULT_RUN"  # in the environment of all processes of a run
LAYOUTS = {
    "dp2 tp2": ["--devices", "4", "--dp", "2", "--tp", "2", "--batch", "4"],
    "dp3": ["--devices", "3", "--dp", "3", "--tp", "1", "--batch", "6"],
}
MODEL = ["--dim", "32", "--layers", "2", "--heads", "2", "--length", "32", "--dtype", "float64", "--zero", "2",
         "--log-every", "1", "--validation-share", "0", "--save-every", str(SAVE_EVERY)]

Fault = collections.namedtuple("Fault", "name spares layout victims signal in_save then_spare supervised repeats",
                               defaults=["dp2 tp2", 1, signal.SIGKILL, False, False, False, 1])
FAULTS = {
    "kill-spare": Fault("kill -9 of a Sub-Controller, a spare", 1, repeats=4),
    "kill": Fault("the same, no spare", 0),
    "save": Fault("kill -9 of a Sub-Controller in a save, a spare", 1, in_save=True),
    "stop": Fault("SIGSTOP of a Sub-Controller, a spare", 1, signal=signal.SIGSTOP),
    "two": Fault("kill -9 of two at once, two spares", 2, victims=2),
    "two-dp3": Fault("the same, three data parallel devices", 2, "dp3", victims=2),
    "again": Fault("kill -9, and of the spare that takes over while the job recovers, two spares", 2, then_spare=True),
    "rank0": Fault("kill -9 of rank 0 under supervise", 1, supervised="rank 0"),
    "mpirun": Fault("kill -9 of mpirun under supervise", 0, supervised="mpirun"),
}


def environment_of(process):
    try:
        text = pathlib.Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in text.decode(errors="replace").split("\0") if "=" in entry)


def state_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def processes_of(mark):
    """Process number -> environment of what is left of a run."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        environment = environment_of(folder.name)
        if environment.get(MARK) == mark and state_of(folder.name) not in ("Z", "gone"):
            found[int(folder.name)] = environment
    return found


def segments_of(jobs):
    return [path.name for path in pathlib.Path("/dev/shm").iterdir() if any(f".{job}." in path.name for job in jobs)]


def losses(path):
    found = {}
    for line in path.read_text().splitlines():
        step = json.loads(line)
        found[step["step"]] = step["loss"]  # of a step that was done twice, the later one
    return found


class Run:
    """One job that a fault happens to."""

    def __init__(self, fault, build, folder, data, seed):
        self.fault, self.build, self.folder, self.seed = fault, build, folder, seed
        self.random = random.Random(seed)
        self.steps = STEPS_SUPERVISED if fault.supervised else STEPS
        self.mark = f"{os.getpid()}-{seed}"
        self.lines, self.said = queue.Queue(), []
        self.ranks, self.jobs = {}, set()
        self.began = self.noticed = self.again = None
        self.at_step = self.random.randint(3, STEPS * 2 // 3)
        self.part_of_step = self.random.random()
        self.save_delay_s = self.random.random() * 0.02
        self.data = data
        self.step = 0
        self.step_at, self.step_s = time.monotonic(), 0.0

    def command(self):
        app = str(self.build / "bin/dtorch_app")
        train = ["train", "--data", self.data, *MODEL, *LAYOUTS[self.fault.layout], "--steps", self.steps, "--metrics", self.folder / "part.jsonl",
                 "--checkpoint-dir", self.folder / "part", "--recover", "on", "--snapshot-every", str(SNAPSHOT_EVERY)]
        spares, result = ["--spares", str(self.fault.spares)], ["--result", self.folder / "end.json"]
        if self.fault.supervised:
            return [app, "supervise", "--np", str(NODES + 1), *spares, *result, "--", *train]
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-np",
                str(NODES + 1 + self.fault.spares), app, *train, *spares, *result]

    def read(self, stream):
        for line in stream:
            self.lines.put((time.monotonic(), line))
        self.lines.put((time.monotonic(), None))

    def find_ranks(self):
        self.ranks = {}
        for process, environment in processes_of(self.mark).items():
            if "OMPI_COMM_WORLD_RANK" not in environment:
                continue
            self.ranks[int(environment["OMPI_COMM_WORLD_RANK"])] = process
            self.jobs.add(f"{int(environment['OMPI_MCA_ess_base_jobid']):x}")

    def strike(self):
        self.find_ranks()
        self.began = time.monotonic()
        if self.fault.supervised == "rank 0":
            victims = [self.ranks[0]]
        elif self.fault.supervised == "mpirun":
            victims = [int(pathlib.Path(f"/proc/{self.ranks[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])]
        else:
            self.victims = self.random.sample(range(NODES), self.fault.victims)
            victims = [self.ranks[node + 1] for node in self.victims]
        for process in victims:
            os.kill(process, self.fault.signal)

    def note(self, at, line):
        self.said.append(line)
        found = re.search(rf"\] (\d+)/{self.steps} ", line)
        if found:
            step = int(found[1])
            self.step_s = (at - self.step_at) / max(1, step - self.step)
            self.step, self.step_at = step, at
            if self.noticed and not self.again:
                self.again = at
        lost = " is lost (" in line or (self.fault.supervised and "attempt 1" in line)
        if lost and self.began and not self.noticed:
            self.noticed = at
            if self.fault.then_spare:
                taker = int(re.search(r"go to node (\d+)", line)[1])
                os.kill(self.ranks[taker + 1], signal.SIGKILL)

    def is_time(self):
        if self.fault.in_save:
            if self.step < self.at_step or self.step > STEPS * 3 // 4:
                return False
            if not any(".tmp" in path.name or path.name.startswith(".") for path in (self.folder / "part").glob("*")):
                return False
            time.sleep(self.save_delay_s)  # where in the save it strikes
            return True
        return self.step >= self.at_step and time.monotonic() >= self.step_at + self.part_of_step * self.step_s

    def go(self):
        environment = dict(os.environ, **{MARK: self.mark})
        started = time.monotonic()
        with subprocess.Popen([str(word) for word in self.command()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=environment, start_new_session=True) as job:
            threading.Thread(target=self.read, args=[job.stdout], daemon=True).start()
            is_open = True
            while is_open:
                try:
                    at, line = self.lines.get(timeout=0.0005)
                    is_open = line is not None
                    if is_open:
                        self.note(at, line)
                except queue.Empty:
                    pass
                if self.began is None and self.is_time():
                    self.strike()
                if time.monotonic() - started > HANGS_AFTER_S:
                    self.keep_stacks()
                    break
            problems = self.problems(hangs=is_open)
            for process in processes_of(self.mark):
                os.kill(process, signal.SIGKILL)
        return problems

    def keep_stacks(self):
        for process, environment in processes_of(self.mark).items():
            rank = environment.get("OMPI_COMM_WORLD_RANK")
            if rank is None:
                continue
            stacks = subprocess.run(["gdb", "-p", str(process), "-batch", "-ex", "thread apply all bt"], check=False,
                                    capture_output=True, text=True, timeout=60).stdout
            (self.folder / f"rank{rank}.stacks").write_text(stacks)

    def problems(self, hangs):
        if hangs:
            return [f"not at its end after {HANGS_AFTER_S} s"]
        found = []
        deadline = time.monotonic() + ENDS_WITHIN_S
        while processes_of(self.mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left := processes_of(self.mark):
            found.append(f"processes left: {[(number, one.get('OMPI_COMM_WORLD_RANK')) for number, one in left.items()]}")
        if left := segments_of(self.jobs):
            found.append(f"files left: {left}")
        if self.began is None or self.noticed is None or self.again is None:
            found.append("nothing was lost, or nothing went on")
        elif self.again - self.began > (LIMIT_SUPERVISED_S if self.fault.supervised else LIMIT_S):
            found.append(f"running again after {self.again - self.began:.1f} s")
        result = self.folder / "end.json"
        if not result.exists():
            return [*found, "no result"]
        if (end := json.loads(result.read_text()))["status"] != "done":
            found.append(f"ended as {end}")
        wanted = losses(self.folder.parent / f"whole {self.fault.layout} {self.steps}.jsonl")
        if (got := losses(self.folder / "part.jsonl")) != wanted:
            first = min((step for step in wanted if got.get(step) != wanted[step]), default="none")
            found.append(f"other losses, the first at step {first}")
        return found

    def figures(self):
        pieces = re.findall(r"under way again after [\d.]+ s: (\d+) pieces", "".join(self.said))
        figures = {"fault": self.fault.name, "seed": self.seed, "at_step": self.at_step}
        if self.noticed and self.again:
            figures |= {"noticed_s": round(self.noticed - self.began, 3), "again_s": round(self.again - self.began, 3)}
        if self.fault.supervised:
            steps = [json.loads(line)["step"] for line in (self.folder / "part.jsonl").read_text().splitlines()]
            figures["steps_repeated"] = len(steps) - len(set(steps))
        elif pieces:
            figures["pieces_again"] = max(map(int, pieces))
        return figures


def undisturbed(build, folder, data):
    for name, steps in {(fault.layout, STEPS_SUPERVISED if fault.supervised else STEPS) for fault in FAULTS.values()}:
        subprocess.run([build / "bin/dtorch_app", "train", "--data", data, *MODEL, *LAYOUTS[name], "--steps", str(steps),
                        "--metrics", folder / f"whole {name} {steps}.jsonl", "--checkpoint-dir", folder / "whole"],
                       check=True, capture_output=True)
        shutil.rmtree(folder / "whole")


def span(runs, key, form):
    """The median of a figure, and its range."""
    numbers = [run[key] for run in runs if run.get(key) is not None]
    if not numbers:
        return "-"
    return f"{form.format(statistics.median(numbers))} ({form.format(min(numbers))} to {form.format(max(numbers))})"


def table(rows):
    yield "| fault | runs | noticed after | running again after | steps repeated |"
    yield "|---|---|---|---|---|"
    for name, runs in rows.items():
        repeated = "steps_repeated" if any("steps_repeated" in run for run in runs) else "pieces_again"
        yield (f"| {name} | {len(runs)} | {span(runs, 'noticed_s', '{:.2f}')} | {span(runs, 'again_s', '{:.2f}')} | "
               f"{span(runs, repeated, '{:.0f}')} |")


def wanted_runs(options):
    names = options.only.split(",") if options.only else list(FAULTS)
    if options.mixed:
        return [names[i % len(names)] for i in range(options.mixed)]
    return [name for name in names for _ in range(options.repeats * FAULTS[name].repeats)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mixed", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--only", help=", ".join(FAULTS))
    parser.add_argument("--keep", type=pathlib.Path, help="where runs that failed are kept")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fault_table."))
    (folder / "text.txt").write_text("".join(f"line {i * 7919 % 1000} of a small text.\n" for i in range(2000)))
    data = folder / "text.h5"
    subprocess.run([options.build / "bin/dtorch_app", "prepare", "--text", folder / "text.txt", "--out", data], check=True,
                   capture_output=True)
    undisturbed(options.build, folder, data)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    rows, num_wrong = {}, 0
    try:
        for number, name in enumerate(wanted_runs(options)):
            here = folder / "run"
            here.mkdir()
            run = Run(FAULTS[name], options.build, here, data, options.seed * 1000 + number)
            problems = run.go()
            figures = run.figures() | {"name": name, "problems": problems, "load": os.getloadavg()[0]}
            print(json.dumps(figures), flush=True)
            rows.setdefault(FAULTS[name].name, []).append(figures)
            num_wrong += bool(problems)
            if problems and options.keep:
                (here / "said").write_text("".join(run.said))
                shutil.copytree(here, options.keep / f"{name}-{run.seed}", dirs_exist_ok=True)
            shutil.rmtree(here)
    finally:
        for process in busy:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(table(rows)))
    print(f"{sum(map(len, rows.values()))} runs, {num_wrong} wrong")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
