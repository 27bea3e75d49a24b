#!/usr/bin/env python3
"""Adds up ctest's JUnit files and the steps of .ci/run; the last line is "N passed, N failed", the exit code 1 if any failed."""
import argparse
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--steps-passed", type=int, required=True)
    parser.add_argument("--steps-failed", nargs="*", required=True)
    options = parser.parse_args()
    num_passed, failed, skipped = options.steps_passed, [f"step: {name}" for name in options.steps_failed], []
    for path in options.results:
        build = path.parent.as_posix()
        if not path.exists():
            failed.append(f"{build}: no test results")
            continue
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = f"{build}: {case.get('name')}"
            if case.get("status") == "run":
                num_passed += 1
            elif case.get("status") in ("notrun", "disabled") and case.find("skipped") is not None:
                skipped.append(name)
            else:
                failed.append(name)
    for name in skipped:
        print("skipped", name)
    for name in failed:
        print("FAILED", name)
    print(f"{num_passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
