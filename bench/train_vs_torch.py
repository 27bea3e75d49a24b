"""The driver of train_vs_torch.sh: starts the trainers, hands out slices of steps in turn, compares losses, prints."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

TOKENS = 8 * 256  # a step
WARM_UP = 2


class Trainer:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while (line := self.process.stdout.readline()) != "ready\n":
            if not line:
                sys.exit(f"{' '.join(command)}: ended early")

    def ask(self, number):
        print(number, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.process.args)}: ended early")
        return [float(word) for word in line.split()]

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit(f"{' '.join(self.process.args)}: exit code {self.process.returncode}")


def show(name, value, unit, **more):
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, **more}), flush=True)


def main(build, rounds, steps):
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "weights")
        ours = [os.path.join(build, "bin", "bench_train"), "--devices", "2", "--serve"]
        torch = [sys.executable, os.path.join(os.path.dirname(__file__), "train_torch.py")]
        dp = Trainer(*ours, weights)
        trainers = {
            "dtorch_dp": dp,
            "torch": Trainer(*torch, "one", weights),
            "dtorch_zero3": Trainer(*ours, weights + ".zero", "--zero"),
            "fsdp2": Trainer(*torch, "fsdp2", weights),
        }
        assert open(weights, "rb").read() == open(weights + ".zero", "rb").read(), "the layout changed the weights"
        peak = Trainer(*torch, "peak")
        seconds = {name: [] for name in trainers}
        cpu_seconds = {name: [] for name in trainers}
        peaks = []
        for trainer in trainers.values():
            trainer.ask(WARM_UP)
        for _ in range(rounds):
            losses = {}
            for name, trainer in trainers.items():
                taken, on_cores, losses[name] = trainer.ask(steps)
                seconds[name].append(taken / steps)
                cpu_seconds[name].append(on_cores / steps)
            if max(losses.values()) - min(losses.values()) > 1e-3 * abs(losses["torch"]):
                sys.exit(f"the trainers don't compute the same: {losses}")
            peaks.append(peak.ask(1))
        for trainer in (*trainers.values(), peak):
            trainer.end()
    for name, values in seconds.items():
        show(f"train.tokens_per_s.{name}", TOKENS / statistics.median(values), "tokens/s")
    load = os.getloadavg()[0] / os.cpu_count()  # above 1: others wanted the cores too
    for name, mine, theirs in (("torch", "dtorch_dp", "torch"), ("fsdp2", "dtorch_zero3", "fsdp2")):
        ratios = [b / a for a, b in zip(seconds[mine], seconds[theirs])]
        show(f"train.tokens_ratio_vs_{name}", statistics.median(ratios), "x", load_per_core=round(load, 1))
        # On a busy machine this says more: what the same work costs, whoever else wanted the cores.
        costs = [b / a for a, b in zip(cpu_seconds[mine], cpu_seconds[theirs])]
        show(f"train.cpu_ratio_vs_{name}", statistics.median(costs), "x")
    # What the products alone take with at::mm over the whole step: the share of its GFLOP/s that training reaches.
    for name, values in seconds.items():
        share = statistics.median(p[0] / s for p, s in zip(peaks, values))
        gflops = statistics.median(p[1] / s for p, s in zip(peaks, values)) / 1e9
        show(f"train.gflops_over_mm_peak.{name}", share, "x", gflops=round(gflops, 1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
