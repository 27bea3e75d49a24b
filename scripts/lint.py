#!/usr/bin/env python3
"""Checks what the compiler can't: include order between rooms, doors to outside libraries, file length, banned words.

Prints file:line: what is wrong, and exits with 1 if anything is. `// lint: allow` on a line excuses that line from the
banned words; nothing excuses the other rules.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 400

# A room may include its own headers and those of rooms above it. Rooms on one line are one level and may include each other.
LEVELS = [
    ["runtime/base"],
    ["mesh"],
    ["runtime/graph"],
    ["ops/def"],
    ["runtime/client"],
    ["ops/create", "ops/math", "ops/shape", "ops/index", "ops/nn", "ops/image", "ops/loss", "ops/move"],
    ["ops"],
    ["runtime/autograd"],
    ["runtime/worker/native"],
    ["runtime/comm"],
    ["runtime/accelerator", "runtime/kernel_source", "runtime/gpu"],
    ["runtime/worker", "runtime/simulation"],
    ["runtime/cuda"],
    ["runtime/controller"],
    ["nn"],
    ["io"],
    ["runtime/launch"],
    ["dtorch", "checker"],
    ["apps", "bench"],
    ["tests"],
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
OPS = LEVELS[5] + ["ops"]
OUTSIDE_LIBRARY = ["apps", "bench", "tests"]  # rooms that aren't part of the library

# Outside headers and the rooms that may include them.
DOORS = [
    (r"mpi\.h", ["runtime/comm", "runtime/launch", "bench", "tests"]),
    (r"(hdf5|H5[A-Z]\w*|hdf5_hl)\.h", ["io", "tests"]),
    (r"pcre2\.h", ["io"]),
    (r"(ATen|c10|torch|caffe2)/.*", OPS + ["runtime/worker/native", "runtime/accelerator", "runtime/worker", "runtime/cuda", "bench", "tests"]),
    (r"boost/(asio|beast)/.*", ["runtime/launch", "tests"]),
    (r"boost/program_options.*", ["runtime/base", "runtime/launch", "apps", "tests"]),
    (r"(cuda|nccl|nvrtc|nvml).*\.h", ["runtime/cuda"]),
]
ATEN_HEADERS_OUTSIDE = ["dtorch/kernel.h"]  # includes ops/def only, so rooms after that may include it
BANNED_INCLUDES = {"torch/torch.h", "torch/all.h", "torch/script.h", "torch/extension.h", "ATen/ATen.h"}
APPS_INCLUDE_ONLY = "dtorch"

ENDS_PROCESS = re.compile(r"(?<![\w.>:~])(?:std::|::)?(exit|_exit|_Exit|abort|terminate|quick_exit)\s*\(")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SWALLOWED = re.compile(r"catch\s*\(\s*\.\.\.\s*\)\s*\{\s*\}")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def room_of(path):
    """The room that holds a file given relative to the root, or None."""
    parts = path.split("/")[:-1]
    for length in (3, 2, 1):
        room = "/".join(parts[:length])
        if len(parts) >= length and room in LEVEL_OF:
            return room
    return None


def without_comments(text):
    """The same lines with comments blanked; string literals emptied."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: '""' if m.group()[0] == '"' else "\n" * m.group().count("\n"), text)


def check_include(path, room, header, quoted):
    if header in BANNED_INCLUDES:
        yield f"<{header}> costs seconds a file; include the narrow headers"
    for pattern, rooms in DOORS:
        if re.fullmatch(pattern, header) and room not in rooms and not (
                path in ATEN_HEADERS_OUTSIDE and header.startswith(("ATen/", "c10/"))):
            yield f"{room} may not include <{header}>"
    target = room_of(header)
    if target is None or (not quoted and target != "dtorch"):
        return
    if room == "apps":
        if target not in ("apps", APPS_INCLUDE_ONLY):
            yield f"apps include public headers only (dtorch/...), not {header}"
    elif LEVEL_OF[target] > LEVEL_OF[room] and header not in ATEN_HEADERS_OUTSIDE:
        yield f"{room} comes before {target} and may not include {header}"


def check_file(path):
    room = room_of(path)
    if room is None:
        return
    text = (ROOT / path).read_text()
    lines = text.split("\n")
    num_lines = text.count("\n")
    if num_lines > MAX_LINES:
        yield 1, f"{num_lines} lines; at most {MAX_LINES}"
    described_by_header = path.endswith(".cc") and (ROOT / path).with_suffix(".h").exists()
    if not lines[0].startswith("//") and not described_by_header:
        yield 1, "a file starts with a comment that says what it is (or its header does)"
    if path.endswith(".h") and "#pragma once" not in text:
        yield 1, "a header needs #pragma once"
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            for problem in check_include(path, room, match.group(2), match.group(1) == '"'):
                yield number, problem
        if UNFINISHED.search(line):
            yield number, "a mark of unfinished work"
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        if room not in OUTSIDE_LIBRARY and "lint: allow" not in lines[number - 1]:
            if ENDS_PROCESS.search(line):
                yield number, "library code doesn't end the process"
            if SWALLOWED.search(line):
                yield number, "an error is swallowed"


def main():
    sources = []
    for top in sorted({room.split("/")[0] for room in LEVEL_OF}):
        sources += [p.relative_to(ROOT).as_posix() for p in (ROOT / top).rglob("*") if p.suffix in (".h", ".cc", ".cpp")]
    num_problems = 0
    for path in sorted(sources):
        for number, problem in sorted(set(check_file(path))):
            print(f"{path}:{number}: {problem}")
            num_problems += 1
    print(f"lint: {len(sources)} files, {num_problems} problems")
    return 1 if num_problems else 0


if __name__ == "__main__":
    sys.exit(main())
