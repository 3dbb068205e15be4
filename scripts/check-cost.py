#!/usr/bin/env python3
"""What the fit check costs: `cargo check` of a crate with networks, beside a crate without any, in the same run.

    scripts/check-cost.py [--repetitions 5] [part of a name]..

Prints CPU seconds beyond the empty crate (median over the repetitions), the ratio to it, and the CPU seconds of a first
`cargo check` from an empty target directory. Compare within one run: a busy machine takes more CPU time for the same work, too.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = "const TRAIN: Train = Train { batch: %s, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy, checkpoint: %s, offload: %s, cards: [%s] };"

RESNET = """
    pub struct Net;
    %s
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            stage(3, 64, 1), stage(%d, 128, 2), stage(%d, 256, 2), stage(3, 512, 2),
            GlobalAvgPool, Linear(1000),
        ]
    }
    fn stage(depth: usize, width: usize, stride: usize) -> Block {
        [
            block(width, stride, [Conv2d(4 * width, 1, stride = stride, bias = false), BatchNorm2d]),
            repeat(depth - 1, block(width, 1, [])),
        ]
    }
    fn block(width: usize, stride: usize, shortcut: Block) -> Block {
        [
            Add(
                [
                    Conv2d(width, 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(4 * width, 1, bias = false), BatchNorm2d,
                ],
                shortcut,
            ),
            Relu(inplace),
        ]
    }
"""

GPT = """
    pub struct Net;
    %s
    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, %d);
        [Add(wte, PositionEmbedding(1024, %d)), repeat(%d, block(%d, %d)), LayerNorm, Tied(wte)]
    }
    fn block(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width)]),
        ]
    }
"""

VGG = """
    pub struct Net;
    %s
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512),
            Flatten,
            Linear(4096), Relu(inplace), Dropout(0.5),
            Linear(4096), Relu(inplace), Dropout(0.5),
            Linear(1000),
        ]
    }
    fn stage(depth: usize, channels: usize) -> Block {
        [repeat(depth, [Conv2d(channels, 3, padding = 1), Relu(inplace)]), MaxPool2d(2)]
    }
"""

DENSENET = """
    pub struct Net;
    %s
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace), MaxPool2d(3, stride = 2, padding = 1),
            repeat(6, layer()), transition(128), repeat(12, layer()), transition(256),
            repeat(48, layer()), transition(896), repeat(32, layer()),
            BatchNorm2d, Relu(inplace), GlobalAvgPool, Linear(1000),
        ]
    }
    fn layer() -> Block {
        [
            Concat(
                [],
                [
                    BatchNorm2d, Relu(inplace), Conv2d(128, 1, bias = false),
                    BatchNorm2d, Relu(inplace), Conv2d(32, 3, padding = 1, bias = false),
                ],
            ),
        ]
    }
    fn transition(channels: usize) -> Block {
        [BatchNorm2d, Relu(inplace), Conv2d(channels, 1, bias = false), AvgPool2d(2)]
    }
"""

CHAIN = """
    pub struct Net;
    %s
    fn forward(features: Features<64>) -> Logits<10> {
        [%s Linear(10)]
    }
"""


def train(batch, card="H200", checkpoint="Norms", offload="None"):
    return TRAIN % (batch, checkpoint, offload, card)


NETWORKS = {
    "VGG-16": VGG % train(32),
    "ResNet-50": RESNET % (train(32), 4, 6),
    "ResNet-152": RESNET % (train(32), 8, 36),
    "ResNet-152, all kept": RESNET % (train(32, "H200", "None"), 8, 36),
    "GPT-2 small": GPT % (train(4), 768, 768, 12, 768, 12),
    "GPT-2 XL": GPT % (train(1), 1600, 1600, 48, 1600, 25),
    "ResNet-152, recomputation at hand": RESNET % (train(32, "H200", "Auto"), 8, 36),
    "ResNet-152, recomputed": RESNET % (train(128, "RTX_3060", "Auto"), 8, 36),
    "ResNet-50, largest batch": RESNET % (train("Largest", "RTX_3060", "Norms"), 4, 6),
    "ResNet-50, largest batch, recomputed": RESNET % (train("Largest", "RTX_3060", "Auto"), 4, 6),
    "ResNet-152, largest batch": RESNET % (train("Largest", "RTX_3060", "Norms"), 8, 36),
    "ResNet-152, largest batch, recomputed": RESNET % (train("Largest", "RTX_3060", "Auto"), 8, 36),
    "DenseNet-201": DENSENET % train(32),
    "DenseNet-201, largest batch, recomputed": DENSENET % train("Largest", "RTX_3060", "Auto"),
    "GPT-2 XL, recomputation at hand": GPT % (train(1, "H200", "Auto"), 1600, 1600, 48, 1600, 25),
    "GPT-2 XL, recomputed": GPT % (train(16, "A100_80GB", "Auto"), 1600, 1600, 48, 1600, 25),
    "ResNet-152, recomputed and parked": RESNET % (train(128, "RTX_3060", "Auto", "Activations"), 8, 36),
    "GPT-2 XL, recomputed and parked": GPT % (train(16, "A100_80GB", "Auto", "Activations"), 1600, 1600, 48, 1600, 25),
    "ResNet-50, eight ranks": RESNET % (train(32, offload="None, ranks: 8"), 4, 6),
    "ResNet-50, eight ranks with shards": RESNET % (train(32, offload="None, ranks: 8, shard: Parameters"), 4, 6),
    "ResNet-152, eight ranks with shards": RESNET % (train(32, offload="None, ranks: 8, shard: Parameters"), 8, 36),
    "GPT-2 XL, eight ranks with shards": GPT % (train(8, offload="None, ranks: 8, shard: Parameters"), 1600, 1600, 48, 1600, 25),
    "chain of 1000 layers": CHAIN % (train(64), "Linear(64), Relu, " * 500),
    "repetition of 4000 layers": CHAIN % (train(64), "repeat(2000, [Linear(4), Relu]),"),
    "ResNet-50, refused": RESNET % (train(512, "RTX_3060"), 4, 6),
    "ResNet-152, refused": RESNET % (train(256, "RTX_3060"), 8, 36),
    "ResNet-152, refused with recomputation": RESNET % (train(4096, "RTX_3060", "Auto"), 8, 36),
    "GPT-2 XL, refused": GPT % (train(1, "RTX_3060"), 1600, 1600, 48, 1600, 25),
    # Ten networks of one crate, whose structs must have names of their own.
    "ten networks": [RESNET % (train(8 * (at + 1)), 4, 6) for at in range(5)]
    + [GPT % (train(at + 1), 768, 768, 12, 768, 12) for at in range(5)],
}
# CPU seconds beyond an empty crate.
GOAL = 2.0


def check(folder):
    """CPU seconds and result of one `cargo check` after the source was touched."""
    (folder / "src/lib.rs").touch()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["cargo", "check", "-q", "--offline"], cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def source(networks):
    """A crate's source: a network, or several that are renamed."""
    if isinstance(networks, str):
        networks = [networks]
    renamed = [body.replace("pub struct Net;", f"pub struct Net{at};") for at, body in enumerate(networks)]
    return "".join(f"gpumem::network! {{{body}}}\n" for body in renamed)


def crate(parent, name, source):
    folder = parent / name
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        f'[package]\nname = "{name}"\nversion = "0.0.0"\nedition = "2024"\n'
        f'[dependencies]\ngpumem = {{ path = "{ROOT}" }}\n[workspace]\n'
    )
    (folder / "Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
    (folder / "src/lib.rs").write_text(source)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="parts of the names of networks; without any, all")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    chosen = {name: body for name, body in NETWORKS.items() if not options.parts or any(part in name for part in options.parts)}
    if not chosen:
        parser.error(f"no name has {' or '.join(options.parts)}; the names are {', '.join(NETWORKS)}")
    with tempfile.TemporaryDirectory() as temporary:
        parent = pathlib.Path(temporary)
        os.environ["CARGO_TARGET_DIR"] = str(parent / "target")
        # A user's edit changes the network; an untouched one would be answered from the incremental cache.
        os.environ["CARGO_INCREMENTAL"] = "0"
        empty = crate(parent, "empty", "pub use gpumem::Network;\n")
        subprocess.run(["cargo", "fetch", "-q"], cwd=empty, check=True)
        cpu, done = check(empty)
        assert done.returncode == 0, done.stderr
        print(f"first check from an empty target directory: {cpu:.1f} CPU seconds")
        check(empty)
        print(f"CPU seconds beyond an empty crate, of which at most {GOAL} are the goal:")
        for index, (name, networks) in enumerate(chosen.items()):
            folder = crate(parent, f"net{index}", source(networks))
            refused = "refused" in name
            _, done = check(folder)
            assert (done.returncode != 0) == refused, done.stderr
            times, base = [], []
            for _ in range(options.repetitions):
                base.append(check(empty)[0])
                times.append(check(folder)[0])
            beyond = statistics.median(times) - statistics.median(base)
            ratio = statistics.median(times) / statistics.median(base)
            over = ", more than the goal" if beyond > GOAL else ""
            print(f"{name:40} {beyond:6.2f} s, {ratio:5.2f} times an empty crate{over}", flush=True)


if __name__ == "__main__":
    main()
