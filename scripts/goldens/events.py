#!/usr/bin/env python3
"""Reads event files of gpumem-train with TensorBoard's own reader, which checks every checksum.

    python3 -m venv venv && venv/bin/pip install tensorboard pillow
    GPUMEM_EVENTS=DIR cargo test -p gpumem-train --test logs each_run_has_an_event_file
    venv/bin/python scripts/goldens/events.py DIR

The training of the test crashed after step 13 and went on from step 8: every step must be there once.
"""

import io
import pathlib
import sys

from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

STEPS = list(range(1, 25))
EVALUATIONS = [8, 16, 24]


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")
    print(f"{what}: {found}")


def main(folder):
    files = sorted(pathlib.Path(folder).glob("events.out.tfevents.*"))
    for file in files:
        # A record whose checksum is wrong ends the iteration, so the bytes are counted, too.
        records = list(RawEventFileLoader(str(file)).Load())
        size = sum(len(record) + 16 for record in records)
        check(f"{file.name}: bytes of {len(records)} records", size, file.stat().st_size)
        check("version", event_pb2.Event.FromString(records[0]).file_version, "brain.Event:2")
    everything = {name: 0 for name in ("scalars", "images", "histograms")}
    events = event_accumulator.EventAccumulator(str(folder), size_guidance=everything).Reload()
    check("scalars", sorted(events.Tags()["scalars"]), ["loss", "lr", "train_loss", "val_loss"])
    check("steps of `loss`", [event.step for event in events.Scalars("loss")], STEPS)
    check("steps of `val_loss`", [event.step for event in events.Scalars("val_loss")], EVALUATIONS)
    check("images", events.Tags()["images"], ["val_confusion"])
    for image in events.Images("val_confusion"):
        picture = Image.open(io.BytesIO(image.encoded_image_string))
        picture.load()
        check("image", (picture.size, picture.mode), ((image.width, image.height), "L"))
    for tag in events.Tags()["histograms"]:
        for event in events.Histograms(tag):
            values = event.histogram_value
            check(f"histogram of {tag}", sum(values.bucket), values.num)
            assert values.min <= values.sum / values.num <= values.max, tag
    check("histograms", len(events.Tags()["histograms"]), 6)


if __name__ == "__main__":
    main(sys.argv[1])
