#!/usr/bin/env python3
"""Where the time of a training step goes: a table of a file that `bench --profile` has written.

    scripts/profile_table.py NETWORK.json..

A row for each of the project's files of kernels and each kind of call of a library: launches, their time one by one, what the card's rates
allow at best, bytes and operations a second.
"""

import collections
import json
import pathlib
import sys

SUMS = ("launches", "us", "roof_us", "bytes", "flops")


def row(name, sums):
    rates = (sums["bytes"] / sums["us"] / 1e3, sums["flops"] / sums["us"] / 1e6)
    times = " | ".join(f"{sums[key] / 1e3:.2f}" for key in ("us", "roof_us"))
    return f"| {name} | {sums['launches']} | {times} | {rates[0]:,.0f} | {rates[1]:.0f} |"


def table(profile):
    rows = collections.defaultdict(collections.Counter)
    launches = next(it["launches"] for it in profile["programs"] if it["program"] == "train")
    for launch in launches:
        name = launch.get("file") or f"{launch['call']}s of {launch['computed_by']}"
        size = sum(launch["reads"]) + sum(launch["writes"])
        each = (1, launch["us"], launch["roof_us"], size, launch["flops"])
        for key, value in zip(SUMS, each):
            rows[name][key] += launch["runs"] * value
            rows["all"][key] += launch["runs"] * value
    yield f"{profile['network']}, {profile['precision']}, batch {profile['batch']}: a step takes {profile['step_us'] / 1e3:.2f} ms\n"
    yield "| | launches | ms | roof, ms | GB/s | TFLOP/s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, sums in sorted(rows.items(), key=lambda item: (item[0] == "all", -item[1]["us"])):
        yield row(name, sums)


for path in sys.argv[1:]:
    print("\n".join(table(json.loads(pathlib.Path(path).read_text()))) + "\n")
