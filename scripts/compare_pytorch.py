#!/usr/bin/env python3
"""Step time and peak memory of the benchmark's networks beside PyTorch's, on the same card in the same run.

    scripts/compare_pytorch.py                       # all networks; eager, torch.compile, and that with CUDA graphs
    scripts/compare_pytorch.py digits gpt2 --modes eager --steps 20
    scripts/compare_pytorch.py --check               # the models alone, on the CPU

Ours is the program `bench` (`cargo build --release --features cuda --example bench`). Each measurement is a process of its
own: one that fails is a line that says why. Results are in compare.json and compare.md, written after each measurement.

PyTorch gets what it is fastest with in the same arithmetic: `Bf16` is a bfloat16 model and optimizer, `Mixed(Bf16)` is
autocast over f32 parameters, f32 is without TF32; 16-bit convolutional networks are channels_last, cuDNN picks its algorithms
by trying, as `autotune` lets ours do; optimizers are fused, gradients are set to None. What is compiled is the network with its loss, so that the two are
fused as well; `compile-graphs` replays CUDA graphs (`mode="reduce-overhead"`).
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

# Name: model, precision, batch, trainable parameters. As in examples/bench.rs.
CASES = {
    "digits": ("digits", "F32", 32, 38_442),
    "resnet50": ("resnet50", "Bf16", 256, 25_557_032),
    "gpt2": ("gpt2", "Bf16", 16, 124_439_808),
    "vgg16-bf16": ("vgg16", "Bf16", 64, 138_357_544),
    "vgg16": ("vgg16", "F32", 64, 138_357_544),
    "resnet50-mixed": ("resnet50", "Mixed(Bf16)", 256, 25_557_032),
    "gpt2-mixed": ("gpt2", "Mixed(Bf16)", 16, 124_439_808),
}
CUSTOMARY = ["digits", "resnet50", "gpt2", "vgg16-bf16", "vgg16"]
# PyTorch's, and ours with algorithms of the libraries chosen by their time.
MODES = {"eager": None, "compile": "default", "compile-graphs": "reduce-overhead"}
AUTOTUNE = "autotune"


# ---------------------------------------------------------------------------------------------------------------- models


def models():
    """The networks, in plain torch."""
    import torch
    from torch import nn
    from torch.nn import functional

    def norm_relu(channels):
        return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]

    def digits():
        def conv(before, channels):
            return [nn.Conv2d(before, channels, 3, padding=1, bias=False), *norm_relu(channels)]

        layers = [*conv(1, 32), *conv(32, 32), nn.MaxPool2d(2), *conv(32, 64)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 10))

    class Bottleneck(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            after = 4 * width
            self.inside = nn.Sequential(
                nn.Conv2d(before, width, 1, bias=False),
                *norm_relu(width),
                nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
                *norm_relu(width),
                nn.Conv2d(width, after, 1, bias=False),
                nn.BatchNorm2d(after),
            )
            self.shortcut = nn.Identity()
            if stride != 1 or before != after:
                projection = nn.Conv2d(before, after, 1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(after))

        def forward(self, x):
            return functional.relu(self.inside(x) + self.shortcut(x), inplace=True)

    def resnet50():
        layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), *norm_relu(64)]
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = 64
        for depth, width, stride in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)]:
            for index in range(depth):
                layers.append(Bottleneck(before, width, stride if index == 0 else 1))
                before = 4 * width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def vgg16():
        layers, before = [], 3
        for depth, channels in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]:
            for _ in range(depth):
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
                before = channels
            layers.append(nn.MaxPool2d(2))
        layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
        for before in (25088, 4096):
            layers += [nn.Linear(before, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        return nn.Sequential(*layers, nn.Linear(4096, 1000))

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

    class Gpt2(nn.Module):
        def __init__(self, tokens=1024, words=50257, width=768, heads=12, depth=12):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
            self.norm = nn.LayerNorm(width)
            # As nanoGPT: a standard normal would make logits of a tied head too large.
            nn.init.normal_(self.wte.weight, std=0.02)
            nn.init.normal_(self.wpe.weight, std=0.02)

        def forward(self, x):
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
            return functional.linear(self.norm(self.blocks(x)), self.wte.weight)

    return {"digits": digits, "resnet50": resnet50, "vgg16": vgg16, "gpt2": Gpt2}


def build(name):
    """A model whose parameters are counted."""
    model, _, _, expected = CASES[name]
    module = models()[model]()
    found = sum(parameter.numel() for parameter in module.parameters())
    assert found == expected, f"{name} has {found} parameters instead of {expected}"
    return module


def optimizer(model, parameters, fused):
    import torch

    if model == "digits":
        return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.01, fused=fused)
    if model == "gpt2":
        return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    rate, decay = {"resnet50": (0.1, 1e-4), "vgg16": (0.01, 5e-4)}[model]
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay, fused=fused)


def batch_of(model, batch):
    """A made-up batch on the host, pinned if there is a card."""
    import torch

    generator = torch.Generator().manual_seed(1)
    if model == "gpt2":
        tensors = [torch.randint(50257, (batch, 1024), generator=generator) for _ in range(2)]
    else:
        shape, classes = ((1, 8, 8), 10) if model == "digits" else ((3, 224, 224), 1000)
        images = torch.randn(batch, *shape, generator=generator)
        tensors = [images, torch.randint(classes, (batch,), generator=generator)]
    return [tensor.pin_memory() if torch.cuda.is_available() else tensor for tensor in tensors]


class Training:
    """A network ready to train on a device."""

    def __init__(self, name, mode, device, batch=None):
        import torch

        model, self.precision, full, _ = CASES[name]
        self.device, batch = device, batch or full
        is_half = self.precision == "Bf16"
        self.channels_last = self.precision != "F32" and model != "gpt2"
        self.dtype = torch.bfloat16 if is_half else torch.float32
        module = build(name).to(device=device, dtype=self.dtype)
        if self.channels_last:
            module = module.to(memory_format=torch.channels_last)
        self.optimizer = optimizer(model, module.parameters(), fused=device == "cuda")
        self.module = module.train()
        self.loss, self.marks_steps = self.loss_of, MODES[mode] == "reduce-overhead"
        if MODES[mode]:
            self.loss = torch.compile(self.loss_of, mode=MODES[mode])
        self.host = batch_of(model, batch)
        self.batch = self.to_device()

    def to_device(self):
        import torch

        inputs, targets = (tensor.to(self.device, non_blocking=True) for tensor in self.host)
        if inputs.is_floating_point():
            inputs = inputs.to(self.dtype)
            if self.channels_last:
                inputs = inputs.to(memory_format=torch.channels_last)
        return inputs, targets

    def loss_of(self, inputs, targets):
        from torch.nn import functional

        logits = self.module(inputs)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    def step(self, batch=None):
        import torch

        inputs, targets = batch or self.batch
        mixed = self.precision.startswith("Mixed")
        autocast = torch.autocast(self.device, torch.bfloat16) if mixed else contextlib.nullcontext()
        if self.marks_steps:
            # The graphs' memory is theirs again: gradients and the loss of the step before are not read any more.
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = self.loss(inputs, targets)
        loss.backward()
        self.optimizer.step()
        # In a graph's memory the next step would overwrite it.
        return loss.detach().clone() if self.marks_steps else loss.detach()


# ----------------------------------------------------------------------------------------------------- one measurement


def measure(name, mode, warm_up, steps, seconds):
    """Runs in a process of its own and prints one line of JSON."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no card")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    began = time.perf_counter()
    training = Training(name, mode, "cuda")
    first = training.step().item()
    for _ in range(max(warm_up, 3) - 1):
        training.step()
    torch.cuda.synchronize()
    load_seconds = time.perf_counter() - began

    times, start, loss = [], time.perf_counter(), None
    while len(times) < steps and (len(times) < 3 or time.perf_counter() - start < seconds):
        # Blocks of ten without waiting between them, so that the card never waits for an event's time to be read.
        events = [torch.cuda.Event(enable_timing=True) for _ in range(min(10, steps - len(times)) + 1)]
        events[0].record()
        for event in events[1:]:
            loss = training.step()
            event.record()
        torch.cuda.synchronize()
        times += [before.elapsed_time(after) for before, after in zip(events, events[1:])]

    def fed(wait):
        """Milliseconds a step with its batch's way from pinned memory to the card."""
        begin, count = time.perf_counter(), min(10, steps)
        for _ in range(count):
            loss = training.step(training.to_device())
            if wait:
                loss.item()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begin) / count

    return {
        "step_ms": statistics.median(times),
        "enqueued_step_ms": statistics.median(fed(wait=False) for _ in range(3)),
        "fed_step_ms": statistics.median(fed(wait=True) for _ in range(3)),
        "timed_steps": len(times),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "load_seconds": load_seconds,
        "first_loss": first,
        "last_loss": loss.item(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


class Watch(threading.Thread):
    """The most that a process takes on the card, context included, as the driver counts it."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.ended, self.process, self.card = pid, threading.Event(), 0, 0
        self.before = card_used()

    def run(self):
        while not self.ended.wait(0.05 if nvml() else 0.5):
            self.process = max(self.process, process_used(self.pid))
            self.card = max(self.card, card_used())

    def peak(self):
        """Bytes, and whether they are the process's own or what the card had more than before it."""
        self.ended.set()
        self.join()
        return (self.process, True) if self.process else (max(0, self.card - self.before), False)


def nvml():
    """NVML and the first visible card, or None where Python has no binding to it."""
    if not hasattr(nvml, "found"):
        nvml.found = None
        with contextlib.suppress(Exception):
            import pynvml

            pynvml.nvmlInit()
            chosen = visible_card()
            if chosen.isdigit():
                nvml.found = (pynvml, pynvml.nvmlDeviceGetHandleByIndex(int(chosen)))
            else:
                nvml.found = (pynvml, pynvml.nvmlDeviceGetHandleByUUID(chosen))
    return nvml.found


def visible_card():
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"


def smi(query):
    command = ["nvidia-smi", "-i", visible_card(), query, "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True).stdout
    return ""


def process_used(pid):
    if nvml():
        binding, card = nvml()
        with contextlib.suppress(Exception):
            for process in binding.nvmlDeviceGetComputeRunningProcesses(card):
                if process.pid == pid:
                    return process.usedGpuMemory or 0
        return 0
    fields = (line.split(",") for line in smi("--query-compute-apps=pid,used_gpu_memory").splitlines())
    own = [used for number, used in fields if number.strip() == str(pid)]
    return int(own[0]) * MIB if own and own[0].strip().isdigit() else 0


def card_used():
    used = smi("--query-gpu=memory.used").strip()
    return int(used) * MIB if used.isdigit() else 0


def run(command, limit):
    """The last line of JSON of a process with what it took of the card, or why there is none."""
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # In a session of its own, so that the workers of torch.compile end with it.
        process = subprocess.Popen(command, start_new_session=True, **pipes)
    except OSError as error:
        return {"failed": str(error)}
    watch = Watch(process.pid)
    watch.start()
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        watch.peak()
        return {"failed": f"not done after {limit:.0f} s"}
    peak, is_own = watch.peak()
    print(errors, file=sys.stderr, end="")
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode != 0 and not (lines and "failed" in lines[-1]):
        return {"failed": reason(errors) or f"exit status {process.returncode}"}
    if not lines:
        return {"failed": "it printed no result"}
    return json.loads(lines[-1]) | {"process_bytes": peak, "process_is_own": is_own}


def reason(errors):
    """What a process said of its failure: its last exception, or its last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (exceptions or lines or [""])[-1][:300]


# ----------------------------------------------------------------------------------------------------------------- all


def compare(options):
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * options.minutes
    given = ["--warm-up", str(options.warm_up), "--steps", str(options.steps), "--seconds", str(options.seconds)]
    results = {"about": about(), "networks": {name: {} for name in options.networks}}
    # All networks before the next column: where time runs out, no network is without what comes first.
    for who in ["ours", *options.modes]:
        for name in options.networks:
            left, found = deadline - time.monotonic(), results["networks"][name]
            limit = min(left, options.limit)
            found[who] = run(command(options.bench, who, name, given), limit) if left > 10 else {"failed": "not run: no time left"}
            print(f"{name}, {who}: {json.dumps(found[who])}", flush=True)
            save(options.out, results)
    print("\n" + markdown(results))
    return all("failed" not in found["ours"] for found in results["networks"].values())


def command(bench, who, name, given):
    """The process that measures one network: our program, or this one."""
    if who in ("ours", AUTOTUNE):
        return [str(bench), *given, *(["--autotune"] if who == AUTOTUNE else []), name]
    return [sys.executable, str(pathlib.Path(__file__).resolve()), "--case", name, "--mode", who, *given]


def about():
    """Card, driver, CUDA of the driver, date."""
    card, _, driver = smi("--query-gpu=name,driver_version").strip().partition(", ")
    cuda = ""
    if nvml():
        version = nvml()[0].nvmlSystemGetCudaDriverVersion()
        cuda = f"{version // 1000}.{version % 1000 // 10}"
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return {"card": card or "no card", "driver": driver or "unknown", "cuda": cuda or "unknown", "date": date}


def save(folder, results):
    (folder / "compare.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "compare.md").write_text(markdown(results))


def markdown(results):
    """Tables for docs/lab/gpu-results.md. A ratio is PyTorch's figure over ours."""
    about, networks = results["about"], results["networks"]
    modes = list(dict.fromkeys(who for found in networks.values() for who in found if who != "ours"))
    versions = [one for found in networks.values() for one in found.values() if "torch" in one]
    heading = f"{about['card']}, driver {about['driver']}, CUDA {about['cuda']}, {about['date']}"
    if versions:
        heading += f"; PyTorch {versions[0]['torch']}, cuDNN {versions[0]['cudnn']}"

    def table(title, columns, own, theirs, scale, digits):
        lines = [title, "", "| network | precision | batch | " + " | ".join(columns + modes) + " |"]
        lines.append("| --- | --- | ---: |" + " ---: |" * (len(columns) + len(modes)))
        for name, found in networks.items():
            _, precision, batch, _ = CASES[name]
            ours = found.get("ours", {})
            cells = [cell(ours.get(key), scale, digits) for key in own]
            for mode in modes:
                figure, base = found.get(mode, {}).get(theirs), ours.get(own[-1])
                ratio = f" ({figure / base:.2f}x)" if figure and base else ""
                cells.append(cell(figure, scale, digits) + ratio)
            lines.append(f"| {name} | {precision} | {batch} | " + " | ".join(cells) + " |")
        return lines

    lines = [heading, ""]
    for key, title in [
        ("step_ms", "Step on a batch that is on the card, ms (median; in brackets PyTorch's over ours):"),
        ("enqueued_step_ms", "The same, each batch copied from pinned memory of the host:"),
        ("fed_step_ms", "The same, and each loss waited for:"),
    ]:
        lines += [*table(title, ["ours"], [key], key, 1, 3), ""]
    columns, keys = ["budget", "ours"], ["budget_total", "process_bytes"]
    title = "Peak memory of the process, MiB, context included:"
    lines += table(title, columns, keys, "process_bytes", MIB, 0)
    title = "PyTorch's allocator alone (`max_memory_reserved`) beside our arena, MiB:"
    lines += ["", *table(title, ["arena"], ["arena"], "max_reserved", MIB, 0)]
    reasons = [
        f"* {name}, {who}: {one.get('refused') or one.get('failed')}"
        for name, found in networks.items()
        for who, one in found.items()
        if "refused" in one or "failed" in one
    ]
    if any(one.get("process_is_own") is False for found in networks.values() for one in found.values()):
        reasons.append("* Processes were not told apart: memory is what the card had more than before.")
    return "\n".join(lines + ([""] + reasons if reasons else [])) + "\n"


def cell(figure, scale, digits):
    return "-" if not figure else f"{figure / scale:.{digits}f}"


def check():
    """Builds each model, counts its parameters and makes two steps of a small batch on the CPU."""
    for name in CASES:
        training = Training(name, "eager", "cpu", batch=2)
        losses = [training.step().item() for _ in range(2)]
        expected = math.log({"digits": 10, "gpt2": 50257}.get(CASES[name][0], 1000))
        assert abs(losses[0] - expected) < 1.5, f"{name}: first loss {losses[0]}, expected about {expected}"
        assert all(math.isfinite(loss) for loss in losses)
        print(f"{name}: {CASES[name][3]} parameters, losses {losses[0]:.3f}, {losses[1]:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(CASES)}; without any, {', '.join(CUSTOMARY)}")
    beside = HERE / "bench"
    built = HERE.parent / "target/release/examples/bench"
    parser.add_argument("--bench", type=pathlib.Path, default=beside if beside.exists() else built, help="our program")
    parser.add_argument("--modes", default=f"{AUTOTUNE},eager,compile,compile-graphs", help=f"comma-separated, of {AUTOTUNE}, {', '.join(MODES)}")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the first timed one")
    parser.add_argument("--steps", type=int, default=50, help="timed steps")
    parser.add_argument("--seconds", type=int, default=15, help="most seconds of timed steps")
    parser.add_argument("--limit", type=float, default=150, help="most seconds of one measurement")
    parser.add_argument("--minutes", type=float, default=9, help="most minutes altogether")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of the results")
    parser.add_argument("--check", action="store_true", help="only check the models, on the CPU")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="eager", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.modes = [mode for mode in options.modes.split(",") if mode]
    options.networks = options.networks or CUSTOMARY
    for given, known in [(options.networks, CASES), (options.modes, [AUTOTUNE, *MODES])]:
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    if options.check:
        check()
    elif options.case:
        print(json.dumps(measure(options.case, options.mode, options.warm_up, options.steps, options.seconds)))
    elif not compare(options):
        sys.exit("ours failed: see above")


if __name__ == "__main__":
    main()
