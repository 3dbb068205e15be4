#!/usr/bin/env python3
"""CPU time of a step beside PyTorch, Burn and candle, in one alternating run.

    cargo build --release --example bench_cpu && cargo build --release -p gpumem-zoo --example bench_zoo
    scripts/compare_cpu.py                               # small networks beside PyTorch, training and inference, on one thread
    scripts/compare_cpu.py --drawn 4                     # and four of the zoo, which the hash of the commit draws
    scripts/compare_cpu.py resnet18 gpt-inference --with eager,compile --threads 2
    scripts/compare_cpu.py --with burn,candle            # PyTorch need not be there
    scripts/compare_cpu.py --check                       # the models alone

Each contestant is a process that stays. They take turns, in chunks of steps; of each the median chunk counts, by its CPU time, summed over
its threads as Linux counts them. A ratio is our time over theirs: below 1 we are faster. Memory is the most that a process has had resident,
with its libraries.

PyTorch comes from the Python that runs this. `eager` and `compile` take the optimizer as `torch.optim` gives it, `fused` is eager
with the optimizer's fused kernel. `burn` and `candle` are programs in scripts/contestants, which are built for this machine's
processor when they are asked for.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from statistics import median

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "contestants"))
import pytorch  # noqa: E402

SMALL = list(pytorch.CASES)
ALL = [f"{name}{kind}" for name in [*SMALL, *pytorch.ZOO] for kind in ("", "-inference")]
# What the programs of the other libraries have.
CONTESTED = ["digits", "mlp", "resnet18", "resnet18-inference", "gpt"]
TORCH = ["eager", "fused", "compile"]
RUST = ["burn", "candle"]
# What a library cannot do, and what it does in another way.
LEFT_OUT = {("candle", "resnet18"): "candle has no backward pass of a maximum whose windows overlap"}
REMARKS = {
    ("candle", "digits"): "candle's gradient of a maximum over 2 x 2 is a quarter of the right one, with the same work",
    ("candle", "mlp"): "candle's SGD has no momentum; here it is made of candle's operations, as candle's AdamW is",
    ("candle", "gpt"): "candle's fused layer normalisation and softmax have no backward pass; here are those that have one",
}


def serve(name, mode, threads):
    """Makes steps for each line of the standard input, as examples/networks/steps.rs does."""
    import time

    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    step, parameters = pytorch.step(name, mode)
    for _ in range(3):
        step()
    print("ready", parameters, flush=True)
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
        line = self.process.stdout.readline().split()
        # Programs in Rust of other libraries have been told the number.
        self.parameters = int(line[1]) if len(line) == 2 else None
        if line[:1] != ["ready"]:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("it was not ready; see above")

    def used(self):
        """Seconds that its threads have run."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self):
        """The most bytes that it has had in memory."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

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
        self.process.wait(60)


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
    model = name.removesuffix("-inference")
    if who == "ours":
        return [str(options.bench if model in SMALL else options.bench_zoo), name, *threads]
    if who in RUST:
        case = pytorch.CASES[model]
        return [options.built[who], name, str(case.parameters), str(case.batch)]
    return [sys.executable, __file__, name, "--serve", who, *threads]


def start(who, name, options):
    """A contestant that is ready, or none and a line that says why."""
    inference = name.endswith("-inference")
    if (who, name) in LEFT_OUT or (who == "fused" and inference) or (who in RUST and name not in CONTESTED):
        return None
    try:
        return Contestant(command(who, name, options), options.threads)
    except (OSError, RuntimeError) as error:
        print(f"{name}, {who}: {error}", file=sys.stderr, flush=True)
        return None


def compare(name, options):
    """Takes turns, and gives the median CPU and wall seconds of each contestant, and its memory."""
    started = {who: start(who, name, options) for who in ["ours", *options.against]}
    contestants = {who: one for who, one in started.items() if one}
    counts = {who: one.parameters for who, one in contestants.items() if one.parameters}
    if len(set(counts.values())) > 1:
        sys.exit(f"{name} has other numbers of parameters: {counts}")
    steps = {who: max(1, round(options.chunk / one.run(1)[1])) for who, one in contestants.items()}
    for _ in range(options.rounds):
        for who, one in contestants.items():
            one.chunk(steps[who])
    found = {who: (median(one.cpu), median(one.wall), one.memory()) for who, one in contestants.items()}
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
    """Our milliseconds, and our time over theirs; with several threads by the wall's clock too; and the memory in MiB and as a ratio."""
    columns = ["ours", *options.against]
    kinds = [(0, f"CPU time, threads: {options.threads}", "ms", 1e3)]
    if options.threads > 1:
        kinds.append((1, f"wall time, threads: {options.threads}", "ms", 1e3))
    kinds.append((2, "resident memory", "MiB", 1 / 2**20))
    lines = []
    for kind, title, unit, factor in kinds:
        lines.append(f"| {title} | ours, {unit} | " + " | ".join(columns[1:]) + " |")
        lines.append("| --- |" + " ---: |" * len(columns))
        for name, found in results.items():
            own = found.get("ours")
            cells = [f"{factor * own[kind]:.3f}" if own else "-"]
            for who in columns[1:]:
                other = found.get(who)
                cells.append(f"{own[kind] / other[kind]:.2f}" if own and other else "-")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def drawn(count):
    """Networks of the zoo that the hash of the commit draws, in training and in inference: nobody can choose them."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    order = sorted(pytorch.ZOO, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())
    print(f"drawn by commit {commit[:12]}: {', '.join(order[:count])}", file=sys.stderr)
    return [f"{name}{kind}" for name in order[:count] for kind in ("", "-inference")]


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
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(ALL)}; without any, the small networks")
    built = HERE.parent / "target/release/examples"
    parser.add_argument("--bench", type=pathlib.Path, default=built / "bench_cpu", help="our program")
    parser.add_argument("--bench-zoo", type=pathlib.Path, default=built / "bench_zoo", help="our program for the zoo")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="add N networks of the zoo, drawn by the hash of the commit")
    parser.add_argument("--with", dest="against", default="eager,fused", help="comma-separated, of " + ", ".join(TORCH + RUST))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8, help="chunks of each")
    parser.add_argument("--chunk", type=float, default=0.5, help="seconds of a chunk")
    parser.add_argument("--check", action="store_true", help="only check the models")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.cases = options.cases or [name for name in ALL if name.removesuffix("-inference") in SMALL]
    if options.drawn:
        options.cases += drawn(options.drawn)
    options.against = [who for who in options.against.split(",") if who]
    for given, known in [(options.cases, ALL), (options.against, TORCH + RUST)]:
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
        results = {}
        for name in options.cases:
            print(f"{name} ...", file=sys.stderr, flush=True)
            results[name] = compare(name, options)
        print(table(results, options))
    for sentence in remarks(options):
        print(sentence)


if __name__ == "__main__":
    main()
