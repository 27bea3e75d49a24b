#!/usr/bin/env python3
"""Counts the instructions of one operator's call in client, controller and worker, with callgrind; one JSON object a line.

  scripts/instructions.py BUILD_FOLDER [--gate FILE | --record FILE]

--gate: compares with the recorded figures of FILE (bench/instructions.json); exit code 1 when one is more than 10 %
above. --record: writes that file. Timings aren't looked at, so that the load of the machine doesn't matter. Waiting
isn't counted: only what the named functions did.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

CALLS_PER_CASE = 4000  # kCalls of bench/instruction_cases.cc
ROUNDS = 3
FUSED_ROUNDS = 10
FIRST_SEEN_CALLS = 2 * CALLS_PER_CASE // 8
ALLOWED = 1.1


class Profile:
    """Instructions by function, and by (caller, callee) with everything that the callee called."""

    def __init__(self, path):
        self.own, self.calls = {}, {}
        names = {}

        def resolve(text):
            number, _, name = text.partition(" ")
            if name:
                names[number] = name
            return names[number]

        function = callee = None
        for line in path.read_text().splitlines():
            if line.startswith("fn="):
                function = resolve(line[3:])
            elif line.startswith("cfn="):
                callee = resolve(line[4:])
            elif line.startswith("calls="):
                continue
            elif re.match(r"^(\+|-|\*|\d)", line) and function:
                cost = int(line.split()[1])
                if callee:
                    key = (function, callee)
                    self.calls[key] = self.calls.get(key, 0) + cost
                    callee = None
                else:
                    self.own[function] = self.own.get(function, 0) + cost

    def total(self, function):
        """Of a function with what it calls, however it was called."""
        own = sum(cost for name, cost in self.own.items() if re.search(function, name))
        return own + sum(cost for (caller, callee), cost in self.calls.items()
                         if re.search(function, caller) and not re.search(function, callee))

    def edge(self, caller, callee):
        """Of what `caller` calls directly, with everything below."""
        return sum(cost for (a, b), cost in self.calls.items() if re.search(caller, a) and re.search(callee, b))


def run(program, case):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={out}", str(program), case]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"instructions: {' '.join(command)} failed\n{done.stdout}{done.stderr}")
        return Profile(out)


def executor(profile):
    """Whether a piece is sent when it is full or when the client pauses depends on time, so both count."""
    loop = r"EagerGraphExecutor::take_records\("
    pause = r"EagerGraphExecutor::wait_for_records\("
    return (profile.edge(loop, r"EagerGraphExecutor::(take_record|take_matching|send_piece)\(") +
            profile.edge(pause, r"EagerGraphExecutor::send_(piece|replay)\("))


def walk(profile):
    return profile.total(r"KernelStream::(walk|run_calls|replay)\(")


def measure(build):
    program = build / "bin" / "instruction_cases"
    repeated = run(program, "repeated")
    calls = ROUNDS * CALLS_PER_CASE
    all_calls = 2 * calls + 4 * CALLS_PER_CASE  # both cases, and twice more to warm up
    yield "instructions.client_per_op", repeated.total(r"record_without_tape\(") / calls
    yield "instructions.client_per_op.tape", repeated.total(r"record_with_tape\(") / calls
    yield "instructions.controller_per_op", executor(repeated) / all_calls
    # Of these what isn't spent on records that no template knows yet.
    matched = repeated.edge(r"EagerGraphExecutor::take_records\(", r"EagerGraphExecutor::take_matching\(")
    yield "instructions.controller_per_op.matched", matched / all_calls
    arithmetic = repeated.edge(r"ElementwiseKernel::run_(on|loop)\(", r"add_loop|memory_loop")
    yield "instructions.worker_per_op", (walk(repeated) - arithmetic) / all_calls
    yield "instructions.arithmetic_per_op", arithmetic / all_calls
    fused = run(program, "fused")
    loops = fused.edge(r"ElementwiseKernel::run_(on|loop)\(", r"add_loop|memory_loop")
    yield "instructions.worker_per_op.fused", (walk(fused) - loops) / (FUSED_ROUNDS * CALLS_PER_CASE)
    first = run(program, "first_seen")
    yield "instructions.controller_first_seen", executor(first) / FIRST_SEEN_CALLS
    yield "instructions.client_first_seen", first.total(r"record_first_seen\(") / FIRST_SEEN_CALLS
    yield "instructions.worker_first_seen", first.total(r"NodeWork::take_piece\(") / FIRST_SEEN_CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gate", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    options = parser.parse_args()
    recorded = json.loads(options.gate.read_text()) if options.gate else {}
    missing = set(recorded)
    failed, measured = [], {}
    for name, value in measure(options.build):
        line = {"name": name, "value": round(value, 1), "unit": "instructions"}
        missing.discard(name)
        measured[name] = round(value)
        if value <= 0:
            failed.append(f"{name}: nothing was counted; have its functions other names now?")
        if name in recorded:
            line["recorded"] = recorded[name]
            if value > ALLOWED * recorded[name]:
                failed.append(f"{name}: {value:.0f} instructions, recorded are {recorded[name]}")
        print(json.dumps(line), flush=True)
    failed += [f"{name} is recorded and wasn't measured" for name in sorted(missing)]
    for text in failed:
        print("instructions:", text, file=sys.stderr)
    if options.record and not failed:
        options.record.write_text(json.dumps(measured, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
