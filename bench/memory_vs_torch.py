#!/usr/bin/env python3
"""Peak bytes of tensors in three training steps of one Llama (train_torch.py, bench_train.cc): DTorch's over PyTorch's.

  memory_vs_torch.py BUILD_FOLDER

One device, one process, from the model's creation on: parameters, gradients, AdamW's state, activations. PyTorch's is
what its CPU allocator reports to the profiler; DTorch's is the device's counter (client.stats()). Run it with the
Python that train_vs_torch.sh makes: build/train_venv/bin/python. One JSON object a line.
"""
import json
import subprocess
import sys

STEPS = 3


def peak_of(events):
    """Largest sum of allocated bytes; events: (time, bytes), negative when freed."""
    in_use = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        in_use += size
        peak = max(peak, in_use)
    return peak


def torch_peak():
    import torch
    import train_torch

    torch.set_num_threads(1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        trainer = train_torch.Trainer(train_torch.Llama(), range(train_torch.BATCH))
        trainer.steps(STEPS)
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return peak_of((event.start_ns(), event.nbytes()) for event in events)


def our_peak(build):
    command = [f"{build}/bin/bench_train", "--devices", "1", "--peak"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return next(line["value"] for line in map(json.loads, done.stdout.splitlines()) if line["name"] == "memory.peak_bytes")


def main(build):
    ours, theirs = our_peak(build), torch_peak()
    for name, value in (("dtorch", ours), ("torch", theirs)):
        print(json.dumps({"name": f"memory.peak_bytes.{name}", "value": value, "unit": "bytes"}))
    print(json.dumps({"name": "memory.peak_ratio_vs_torch", "value": round(ours / theirs, 4), "unit": "ratio"}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
