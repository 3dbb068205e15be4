#!/usr/bin/env python3
"""What the fit check costs: `cargo check` of a crate with one network, beside a crate without any, in the same run.

    scripts/check-cost.py [repetitions]

Prints seconds beyond the empty crate (median over the repetitions), the ratio to it, and the CPU seconds of a first
`cargo check` from an empty target directory. Times on a shared machine are noisy: compare within one run.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = "const TRAIN: Train = Train { batch: %s, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy, checkpoint: %s, cards: [%s] };"

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


def train(batch, card="H200", checkpoint="Norms"):
    return TRAIN % (batch, checkpoint, card)


NETWORKS = {
    "VGG-16": (0.3, VGG % train(32)),
    "ResNet-50": (None, RESNET % (train(32), 4, 6)),
    "ResNet-152": (0.4, RESNET % (train(32), 8, 36)),
    "ResNet-152, all kept": (None, RESNET % (train(32, "H200", "None"), 8, 36)),
    "GPT-2 small": (None, GPT % (train(4), 768, 768, 12, 768, 12)),
    "GPT-2 XL": (0.6, GPT % (train(1), 1600, 1600, 48, 1600, 25)),
    "ResNet-152, recomputation at hand": (None, RESNET % (train(32, "H200", "Auto"), 8, 36)),
    "ResNet-152, recomputed": (2.0, RESNET % (train(128, "RTX_3060", "Auto"), 8, 36)),
    "ResNet-50, largest batch": (2.0, RESNET % (train("Largest", "RTX_3060", "Auto"), 4, 6)),
    "DenseNet-201": (None, DENSENET % train(32)),
    "DenseNet-201, largest batch": (None, DENSENET % train("Largest", "RTX_3060", "Auto")),
    "GPT-2 XL, recomputation at hand": (None, GPT % (train(1, "H200", "Auto"), 1600, 1600, 48, 1600, 25)),
    "GPT-2 XL, recomputed": (3.0, GPT % (train(16, "A100_80GB", "Auto"), 1600, 1600, 48, 1600, 25)),
    "chain of 1000 layers": (4.0, CHAIN % (train(64), "Linear(64), Relu, " * 500)),
    "ResNet-152, refused": (2.0, RESNET % (train(256, "RTX_3060"), 8, 36)),
}


def check(folder):
    """Wall seconds and success of one `cargo check` after the source was touched."""
    (folder / "src/lib.rs").touch()
    start = time.perf_counter()
    done = subprocess.run(["cargo", "check", "-q", "--offline"], cwd=folder, capture_output=True, text=True)
    return time.perf_counter() - start, done


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
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as temporary:
        parent = pathlib.Path(temporary)
        os.environ["CARGO_TARGET_DIR"] = str(parent / "target")
        # A user's edit changes the network; an untouched one would be answered from the incremental cache.
        os.environ["CARGO_INCREMENTAL"] = "0"
        empty = crate(parent, "empty", "pub use gpumem::Network;\n")
        subprocess.run(["cargo", "fetch", "-q"], cwd=empty, check=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _, done = check(empty)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"first check from an empty target directory: {cpu:.1f} CPU seconds (target 15)")
        check(empty)
        for index, (name, (target, body)) in enumerate(NETWORKS.items()):
            folder = crate(parent, f"net{index}", f"gpumem::network! {{{body}}}\n")
            refused = "refused" in name
            _, done = check(folder)
            assert (done.returncode != 0) == refused, done.stderr
            times, base = [], []
            for _ in range(repetitions):
                base.append(check(empty)[0])
                times.append(check(folder)[0])
            beyond = statistics.median(times) - statistics.median(base)
            ratio = statistics.median(times) / statistics.median(base)
            goal = f"(target {target} s)" if target else ""
            print(f"{name:24} {beyond:6.2f} s beyond an empty crate, {ratio:5.2f} times it {goal}", flush=True)


if __name__ == "__main__":
    main()
