#!/usr/bin/env python3
"""CPU time of single layers beside PyTorch, on one thread, in one alternating run.

    cargo bench -p gpumem-cpu --bench layers --no-run       # prints the path of our program
    scripts/compare_layers.py PATH                          # all layers
    scripts/compare_layers.py PATH conv3-32x96 depthwise7
    scripts/compare_layers.py PATH --before OTHER           # an older program beside it

A ratio is the median of our steps over PyTorch's: below 1 we are faster. PyTorch comes from the Python that runs this.
"""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare_cpu import Contestant  # noqa: E402

PERCEPTRON = (
    "Linear(512) | Relu | Linear(512) | Relu | Linear(10)",
    "nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))",
)
LSTM = ("Lstm(256) | Lstm(256)", "Steps(nn.LSTM(128, 256, num_layers=2, batch_first=True))")


def eight(ours, torch):
    """Eight layers of one kind: one alone is soon done."""
    return " | ".join([ours] * 8), f"nn.Sequential(*({torch} for _ in range(8)))"


# Name: the shape of a sample, the batch, what a step is, the layers, PyTorch's layers.
CASES = {
    "conv3-32x96": ("32x96x96", 4, "gradients", "Conv2d(32, 3, padding = 1)", "nn.Conv2d(32, 32, 3, padding=1)"),
    "conv3-64x48": ("64x48x48", 4, "gradients", "Conv2d(64, 3, padding = 1)", "nn.Conv2d(64, 64, 3, padding=1)"),
    "conv3-128x24": ("128x24x24", 4, "gradients", "Conv2d(128, 3, padding = 1)", "nn.Conv2d(128, 128, 3, padding=1)"),
    "conv3-256x12": ("256x12x12", 4, "gradients", "Conv2d(256, 3, padding = 1)", "nn.Conv2d(256, 256, 3, padding=1)"),
    "conv3-512x7": ("512x7x7", 4, "gradients", "Conv2d(512, 3, padding = 1)", "nn.Conv2d(512, 512, 3, padding=1)"),
    "conv3-128x8": ("128x8x8", 16, "gradients", "Conv2d(128, 3, padding = 1)", "nn.Conv2d(128, 128, 3, padding=1)"),
    "conv3-128x4": ("128x4x4", 32, "gradients", "Conv2d(128, 3, padding = 1)", "nn.Conv2d(128, 128, 3, padding=1)"),
    "conv5-32x32": ("32x32x32", 8, "gradients", "Conv2d(32, 5, padding = 2)", "nn.Conv2d(32, 32, 5, padding=2)"),
    "conv7-stem": ("3x96x96", 4, "training", "Conv2d(64, 7, stride = 2, padding = 3)", "nn.Conv2d(3, 64, 7, 2, 3)"),
    "conv3-stem": ("3x96x96", 4, "training", "Conv2d(32, 3, padding = 1)", "nn.Conv2d(3, 32, 3, padding=1)"),
    "strided3": ("64x48x48", 4, "gradients", "Conv2d(128, 3, stride = 2, padding = 1)", "nn.Conv2d(64, 128, 3, 2, 1)"),
    "strided1": ("64x48x48", 4, "gradients", "Conv2d(128, 1, stride = 2)", "nn.Conv2d(64, 128, 1, 2)"),
    "grouped3": ("64x48x48", 4, "gradients", "Conv2d(64, 3, padding = 1, groups = 4)", "nn.Conv2d(64, 64, 3, 1, 1, 1, 4)"),
    "depthwise7": ("96x28x28", 8, "gradients", "Conv2d(96, 7, padding = 3, groups = 96)", "nn.Conv2d(96, 96, 7, 1, 3, 1, 96)"),
    "depthwise3": ("96x48x48", 8, "gradients", "Conv2d(96, 3, padding = 1, groups = 96)", "nn.Conv2d(96, 96, 3, 1, 1, 1, 96)"),
    "few-outputs": ("32x96x96", 4, "gradients", "Conv2d(2, 3, padding = 1)", "nn.Conv2d(32, 2, 3, padding=1)"),
    "transposed2": ("64x24x24", 4, "gradients", "ConvTranspose2d(32, 2, stride = 2)", "nn.ConvTranspose2d(64, 32, 2, 2)"),
    "conv3-infer-96": ("32x96x96", 1, "inference", "Conv2d(32, 3, padding = 1)", "nn.Conv2d(32, 32, 3, padding=1)"),
    "conv3-infer-7": ("512x7x7", 1, "inference", "Conv2d(512, 3, padding = 1)", "nn.Conv2d(512, 512, 3, padding=1)"),
    "gelu": ("65x768", 32, "gradients", *eight("Gelu", "nn.GELU()")),
    "gelu-infer": ("65x768", 32, "inference", *eight("Gelu", "nn.GELU()")),
    "layer-norm": ("65x192", 32, "gradients", *eight("LayerNorm", "nn.LayerNorm(192)")),
    "layer-norm-infer": ("65x192", 32, "inference", *eight("LayerNorm", "nn.LayerNorm(192)")),
    "softmax": ("64x512", 32, "gradients", *eight("Softmax", "nn.Softmax(-1)")),
    "softmax-infer": ("64x512", 32, "inference", *eight("Softmax", "nn.Softmax(-1)")),
    "lstm": ("64x128", 32, "gradients", *LSTM),
    "lstm-infer": ("64x128", 32, "inference", *LSTM),
    "perceptron-64": ("784", 64, "training", *PERCEPTRON),
    "perceptron-infer-8": ("784", 8, "inference", *PERCEPTRON),
    "perceptron-infer-32": ("784", 32, "inference", *PERCEPTRON),
    "perceptron-infer-128": ("784", 128, "inference", *PERCEPTRON),
}


def serve(name):
    """As gpumem-cpu/benches/layers.rs: steps for each line of the standard input."""
    import torch
    from torch import nn

    class Steps(nn.Module):
        """The outputs of a recurrent layer without its last state."""

        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0]

    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape, batch, mode, _, text = CASES[name]
    layers = eval(text, {"nn": nn, "Steps": Steps})
    x = torch.randn(batch, *map(int, shape.split("x")), requires_grad=mode == "gradients")
    with torch.no_grad():
        target = torch.randn_like(layers(x))
    parameters = list(layers.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-6) if parameters else None

    def step():
        if mode == "inference":
            with torch.inference_mode():
                layers(x)
            return 0.0
        if optimizer:
            optimizer.zero_grad(set_to_none=True)
        x.grad = None
        loss = nn.functional.mse_loss(layers(x), target)
        loss.backward()
        if optimizer:
            optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            value = step()
        print(f'{{"seconds": {time.perf_counter() - start}, "value": {value}}}', flush=True)


def compare(name, options):
    """Takes turns, and returns the median CPU seconds of a step of each program, PyTorch's last."""
    shape, batch, mode, layers, _ = CASES[name]
    ours = [[str(path), shape, str(batch), mode, layers] for path in (options.before, options.program) if path]
    commands = [*ours, [sys.executable, __file__, name, "--serve"]]
    contestants = [Contestant(command, 1) for command in commands]
    steps = [max(1, round(options.chunk / one.run(1)[1])) for one in contestants]
    for _ in range(options.rounds):
        for one, count in zip(contestants, steps):
            one.chunk(count)
    for one in contestants:
        one.end()
    return [statistics.median(one.cpu) for one in contestants]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="our program")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; without any, all")
    parser.add_argument("--before", help="an older one of our programs")
    parser.add_argument("--rounds", type=int, default=9, help="chunks of each")
    parser.add_argument("--chunk", type=float, default=0.15, help="seconds of a chunk")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.program)
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(CASES)}")
    titles = ["before, ms"] * bool(options.before) + ["ours, ms", "PyTorch, ms"] + ["ratio before"] * bool(options.before) + ["ratio"]
    print("| one thread | " + " | ".join(titles) + " |\n| --- |" + " ---: |" * len(titles), flush=True)
    for name in options.cases or CASES:
        *ours, torch = compare(name, options)
        cells = [f"{1e3 * seconds:.3f}" for seconds in [*ours, torch]] + [f"{seconds / torch:.2f}" for seconds in ours]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
