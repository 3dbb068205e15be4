#!/usr/bin/env python3
"""Runs the tests of a program in several processes at once, and those that fail once more by themselves.

    scripts/run_tests.py PROGRAM [--jobs N] [--seconds N] [--skip TEXT].. [NAMES]

A fault on a card breaks the context of its process, so that every test after it fails as well; and a kernel that never ends takes the
tests behind it along. What fails in company, or is not reached, is therefore run alone. NAMES select tests, as they do for
the program. The end of the output lists what failed alone, after what it printed. The exit status is 0 if nothing did.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

# Tests of one process, at most.
TOGETHER = 6
# Seconds after which a test is taken for one that never ends.
EACH = 120
# Characters of a line that are shown: tensors are printed whole.
WIDTH = 800
VERDICT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)


def listed(program, names, skipped):
    """The program's tests of these names."""
    options = [option for text in skipped for option in ("--skip", text)]
    command = [program, "--list", "--include-ignored", *options, *names]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.removesuffix(": test") for line in lines if line.endswith(": test")]


def run(program, tests, end):
    """What tests print, run one after the other in one process, which of them are well, and the seconds that it took."""
    seconds = min(EACH * min(len(tests), 2), end - time.monotonic())
    if seconds <= 0:
        return "not run: there was no time left\n", set(), 0.0
    command = [program, "--include-ignored", "--test-threads", "1", "--exact", *tests]
    if len(tests) == 1:
        # What was printed before a process is stopped would be lost.
        command.append("--nocapture")
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        text += f"\nstopped after {seconds:.0f} s\n"
    if len(tests) == 1:
        well = set(tests) if process.returncode == 0 and "1 passed" in text else set()
    else:
        well = {name for name, verdict in VERDICT.findall(text) if verdict == "ok"}
    return text, well, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=500, help="for everything")
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("names", nargs="*")
    # Names may stand behind options.
    options = parser.parse_intermixed_args()
    end = time.monotonic() + options.seconds

    tests = listed(options.program, options.names, options.skip)
    groups = [tests[first : first + TOGETHER] for first in range(0, len(tests), TOGETHER)]
    well, failed = set(), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        first = {pool.submit(run, options.program, group, end): group for group in groups}
        alone = {}
        for done in concurrent.futures.as_completed(first):
            _, passed, seconds = done.result()
            group = first[done]
            well |= passed
            print(f"{len(passed)} of {len(group)} passed in {seconds:.1f} s: {group[0]} to {group[-1]}", flush=True)
            for test in group:
                if test not in passed:
                    alone[pool.submit(run, options.program, [test], end)] = test
        for done in concurrent.futures.as_completed(alone):
            text, passed, seconds = done.result()
            test = alone[done]
            well |= passed
            if passed:
                print(f"passed alone in {seconds:.1f} s: {test}", flush=True)
            else:
                failed.append(test)
                said = "\n".join(line[:WIDTH] for line in text.splitlines())
                print(f"\n== failed in {seconds:.1f} s: {test}\n{said[-4000:]}", flush=True)
    print(f"\n{len(well)} of {len(tests)} passed" + "".join(f"\nfailed: {test}" for test in sorted(failed)))
    sys.exit(1 if failed or not tests else 0)


if __name__ == "__main__":
    main()
