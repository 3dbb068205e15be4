#!/usr/bin/env python3
"""CPU time of a step beside PyTorch, Burn and candle, in one alternating run.

    cargo build --release --example bench_cpu
    scripts/compare_cpu.py                               # all networks beside PyTorch, on one thread
    scripts/compare_cpu.py resnet18 gpt --with eager,compile --threads 2
    scripts/compare_cpu.py --with burn,candle            # PyTorch need not be there
    scripts/compare_cpu.py --check                       # the models alone

Each contestant is a process that stays. They take turns, in chunks of steps; of each the chunk that took least CPU time counts,
summed over its threads as Linux counts them. A ratio is our time over theirs: below 1 we are faster.

PyTorch comes from the Python that runs this. `eager` and `compile` take the optimizer as `torch.optim` gives it, `fused` is eager
with the optimizer's fused kernel. `burn` and `candle` are programs in scripts/contestants, which are built for this machine's
processor when they are asked for.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Name: parameters, batch. As in examples/bench_cpu.rs.
CASES = {
    "digits": (38_442, 32),
    "mlp": (669_706, 64),
    "resnet18": (11_181_642, 8),
    "resnet18-inference": (11_181_642, 1),
    "gpt": (3_454_464, 4),
}
TORCH = ["eager", "fused", "compile"]
RUST = ["burn", "candle"]
# What a library cannot do, and what it does in another way.
LEFT_OUT = {("candle", "resnet18"): "candle has no backward pass of a maximum whose windows overlap"}
REMARKS = {
    ("candle", "digits"): "candle's gradient of a maximum over 2 x 2 is a quarter of the right one, with the same work",
    ("candle", "mlp"): "candle's SGD has no momentum; here it is made of candle's operations, as candle's AdamW is",
    ("candle", "gpt"): "candle's fused layer normalisation and softmax have no backward pass; here are those that have one",
}


# ---------------------------------------------------------------------------------------------------------------- PyTorch


def models():
    """The networks, in plain torch."""
    from torch import nn
    from torch.nn import functional

    def conv(before, after, size=3, stride=1):
        return nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)

    def norm_relu(channels):
        return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]

    def digits():
        layers = [conv(1, 32), *norm_relu(32), conv(32, 32), *norm_relu(32), nn.MaxPool2d(2), conv(32, 64), *norm_relu(64)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 10))

    def mlp():
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    class Basic(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            first, second = conv(before, width, stride=stride), conv(width, width)
            self.inside = nn.Sequential(first, *norm_relu(width), second, nn.BatchNorm2d(width))
            self.shortcut = nn.Identity()
            if stride != 1:
                self.shortcut = nn.Sequential(conv(before, width, 1, stride), nn.BatchNorm2d(width))

        def forward(self, x):
            return functional.relu(self.inside(x) + self.shortcut(x), inplace=True)

    def resnet18():
        layers, before = [conv(3, 64, 7, 2), *norm_relu(64), nn.MaxPool2d(3, stride=2, padding=1)], 64
        for width in (64, 128, 256, 512):
            layers += [Basic(before, width, 1 if width == before else 2), Basic(width, width, 1)]
            before = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            batch, steps, width = x.shape
            parts = self.qkv(x).split(width, dim=2)
            q, k, v = (part.view(batch, steps, self.heads, width // self.heads).transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.proj(y.transpose(1, 2).reshape(batch, steps, width))

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
            gelu = nn.GELU(approximate="tanh")
            self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.attention(x)
            return x + self.mlp(x)

    class Gpt(nn.Module):
        def __init__(self, steps=128, words=512, width=256, heads=8, depth=4):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(steps, width)
            self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.wte(x) + self.wpe.weight)))

    return {"digits": digits, "mlp": mlp, "resnet18": resnet18, "gpt": Gpt}


def torch_step(name, mode):
    """A function that makes one step and gives its loss, or a logit."""
    import torch
    from torch.nn import functional

    expected, batch = CASES[name]
    model = name.removesuffix("-inference")
    module = models()[model]()
    found = sum(parameter.numel() for parameter in module.parameters())
    assert found == expected, f"{name} has {found} parameters instead of {expected}"
    shape, classes = {"digits": ((1, 8, 8), 10), "mlp": ((784,), 10), "resnet18": ((3, 64, 64), 10)}.get(model, ((), 512))
    if model == "gpt":
        inputs, targets = (torch.randint(classes, (batch, 128)) for _ in range(2))
    else:
        inputs, targets = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    run = torch.compile(module) if mode == "compile" else module
    if name != model:
        module.eval()

        def infer():
            with torch.inference_mode():
                return run(inputs)[0, 0].item()

        return infer
    fused = mode == "fused"
    if model == "digits":
        optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.01, fused=fused)
    elif model == "gpt":
        optimizer = torch.optim.AdamW(module.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    else:
        decay = 1e-4 if model == "resnet18" else 0
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=decay, fused=fused)

    def train():
        optimizer.zero_grad(set_to_none=True)
        logits = run(inputs)
        loss = functional.cross_entropy(logits.view(-1, classes), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


def serve(name, mode, threads):
    """As examples/bench_cpu.rs: steps for each line of the standard input."""
    import time

    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    step = torch_step(name, mode)
    for _ in range(3):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            value = step()
        print(json.dumps({"seconds": time.perf_counter() - start, "value": value}), flush=True)


# ---------------------------------------------------------------------------------------------------------- taking turns


class Contestant:
    """A process that makes steps when it is asked to."""

    def __init__(self, command, threads):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | {"RAYON_NUM_THREADS": str(threads)}, **pipes)
        self.cpu, self.wall = [], []
        line = self.process.stdout.readline()
        if line.strip() != "ready":
            self.process.kill()
            self.process.wait()
            raise RuntimeError("it was not ready; see above")

    def used(self):
        """Seconds that its threads have run."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def ask(self, steps):
        """Its answer, once it has made them."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def run(self, steps):
        """CPU and wall seconds of a step."""
        before = self.used()
        seconds = self.ask(steps)["seconds"]
        return (self.used() - before) / steps, seconds / steps

    def chunk(self, steps):
        cpu, wall = self.run(steps)
        self.cpu.append(cpu)
        self.wall.append(wall)

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


def build(who):
    """Builds a contestant in Rust, and gives its path."""
    cargo = ["cargo", "build", "--release", "--locked", "--message-format", "json-render-diagnostics"]
    # Cargo takes the settings of the folder that it runs in.
    folder = HERE / "contestants"
    built = subprocess.run([*cargo, "--package", f"contestant-{who}"], cwd=folder, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(f"{who} could not be built; see above")
    messages = map(json.loads, built.stdout.splitlines())
    return next(message["executable"] for message in messages if message.get("executable"))


def command(who, name, options):
    """What starts a contestant."""
    threads = ["--threads", str(options.threads)]
    if who == "ours":
        return [str(options.bench), name, *threads]
    if who in RUST:
        return [options.built[who], name, *map(str, CASES[name])]
    return [sys.executable, __file__, name, "--serve", who, *threads]


def start(who, name, options):
    """A contestant that is ready, or none and a line that says why."""
    if (who, name) in LEFT_OUT or (who == "fused" and name.endswith("inference")):
        return None
    try:
        return Contestant(command(who, name, options), options.threads)
    except (OSError, RuntimeError) as error:
        print(f"{name}, {who}: {error}", file=sys.stderr, flush=True)
        return None


def compare(name, options):
    """Takes turns, and gives the best CPU and wall seconds of each contestant."""
    started = {who: start(who, name, options) for who in ["ours", *options.against]}
    contestants = {who: one for who, one in started.items() if one}
    steps = {who: max(1, round(options.chunk / one.run(1)[1])) for who, one in contestants.items()}
    for _ in range(options.rounds):
        for who, one in contestants.items():
            one.chunk(steps[who])
    found = {who: (min(one.cpu), min(one.wall)) for who, one in contestants.items()}
    for one in contestants.values():
        one.end()
    return found


def check(name, options):
    """Starts each contestant, which counts its parameters, and prints two losses, or the same logit twice."""
    for who in options.against:
        one = start(who, name, options)
        if one:
            print(f"{name}, {who}: " + ", ".join(f"{one.ask(1)['value']:.3f}" for _ in range(2)), flush=True)
            one.end()


def table(results, options):
    """Our milliseconds, and our time over theirs; with several threads by the wall's clock too."""
    columns = ["ours", *options.against]
    kinds = ["CPU time"] if options.threads == 1 else ["CPU time", "wall time"]
    lines = []
    for kind, title in enumerate(kinds):
        lines.append(f"| {title}, threads: {options.threads} | ours, ms | " + " | ".join(columns[1:]) + " |")
        lines.append("| --- |" + " ---: |" * len(columns))
        for name, found in results.items():
            own = found.get("ours")
            cells = [f"{1e3 * own[kind]:.3f}" if own else "-"]
            for who in columns[1:]:
                other = found.get(who)
                cells.append(f"{own[kind] / other[kind]:.2f}" if own and other else "-")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def remarks(options):
    """A sentence for each network that a contestant leaves out, or runs in a way of its own."""
    for name in options.cases:
        for who in options.against:
            if why := LEFT_OUT.get((who, name)):
                yield f"{name}: left out for {who}, since {why}."
            if remark := REMARKS.get((who, name)):
                yield f"{name}: {remark}."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; without any, all")
    built = HERE.parent / "target/release/examples/bench_cpu"
    parser.add_argument("--bench", type=pathlib.Path, default=built, help="our program")
    parser.add_argument("--with", dest="against", default="eager,fused", help="comma-separated, of " + ", ".join(TORCH + RUST))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8, help="chunks of each")
    parser.add_argument("--chunk", type=float, default=0.5, help="seconds of a chunk")
    parser.add_argument("--check", action="store_true", help="only check the models")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.cases = options.cases or list(CASES)
    options.against = [who for who in options.against.split(",") if who]
    for given, known in [(options.cases, list(CASES)), (options.against, TORCH + RUST)]:
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    if options.serve:
        serve(options.cases[0], options.serve, options.threads)
        return
    options.built = {who: build(who) for who in options.against if who in RUST}
    if options.check:
        for name in options.cases:
            check(name, options)
    else:
        results = {name: compare(name, options) for name in options.cases}
        print(table(results, options))
    for sentence in remarks(options):
        print(sentence)


if __name__ == "__main__":
    main()
