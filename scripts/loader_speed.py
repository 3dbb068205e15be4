#!/usr/bin/env python3
"""Compares the loader of gpumem-data with PyTorch's DataLoader, on one folder of images, in turns.

    python3 -m venv venv && venv/bin/pip install torch torchvision
    cargo build --release -p gpumem-data --example loader_speed
    target/release/examples/loader_speed make FOLDER 600
    venv/bin/python scripts/loader_speed.py FOLDER [--rounds 7] [--workers 2]

Both read batches of 32 with RandomResizedCrop(224) and a horizontal flip, to tensors of uint8. A round is a process of each, of which the
first epoch does not count: DataLoader keeps its workers. Printed are the median samples a second and the median of the rounds' ratios.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EPOCHS = 2


def pytorch(folder, workers):
    """Prints the samples a second of each epoch after the first."""
    import torch
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    dataset = datasets.ImageFolder(folder, transforms.Compose(steps))
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=32, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    for epoch in range(EPOCHS + 1):
        start, count = time.perf_counter(), 0
        for images, _ in loader:
            assert images.dtype == torch.uint8 and images.shape[1:] == (3, 224, 224)
            count += len(images)
        assert count == len(dataset)
        if epoch > 0:
            print(f"{count / (time.perf_counter() - start):.1f}")


def measured(command):
    """Returns the median of what a command prints."""
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return statistics.median(float(line) for line in result.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--program", default=ROOT / "target/release/examples/loader_speed")
    parser.add_argument("--pytorch", action="store_true", help="run PyTorch alone")
    asked = parser.parse_args()
    if asked.pytorch:
        return pytorch(asked.folder, asked.workers)
    ours = [asked.program, asked.folder, str(asked.workers), str(EPOCHS)]
    theirs = [sys.executable, __file__, asked.folder, "--workers", str(asked.workers), "--pytorch"]
    rates = []
    for number in range(asked.rounds):
        rates.append((measured(ours), measured(theirs)))
        print(f"round {number + 1}: gpumem-data {rates[-1][0]:.0f}/s, DataLoader {rates[-1][1]:.0f}/s", flush=True)
    medians = [statistics.median(rate) for rate in zip(*rates)]
    ratio = statistics.median(rate / other for rate, other in rates)
    print(f"median: gpumem-data {medians[0]:.0f}/s, DataLoader {medians[1]:.0f}/s; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
