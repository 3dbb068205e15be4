//! Steps on the CPU, as many at a time as asked for. `scripts/compare_cpu.py` runs it in turn with other libraries.
//!
//! ```text
//! cargo build --release --example bench_cpu
//! echo 20 | target/release/examples/bench_cpu resnet18 --threads 1
//! echo 20 | target/release/examples/bench_cpu resnet18-inference --threads 1
//! ```
//!
//! [`steps::answer`] says what it reads and writes. The program of the same form for networks of the zoo is
//! `gpumem-zoo/examples/bench_zoo.rs`.

#[macro_use]
mod networks;
#[path = "networks/small.rs"]
mod small;
#[path = "networks/steps.rs"]
mod steps;

use steps::{Case, Failure, case};

const CASES: [Case; 11] = [
    case::<small::Digits<32>>("digits", 10),
    case::<small::Perceptron<64>>("mlp", 10),
    case::<small::ResNet18<8>>("resnet18", 10),
    case::<small::Gpt<4>>("gpt", 512),
    case::<small::MobileNetV2<16>>("mobilenet", 10),
    case::<small::LongGpt<4>>("gpt-long", 512),
    case::<small::Vit<16>>("vit", 10),
    case::<small::UNet<4>>("unet", 2),
    case::<small::LstmClassifier<32>>("lstm", 10),
    case::<small::Mixer<16>>("mixer", 10),
    case::<small::ConvNeXt<8>>("convnext", 10),
];

fn main() -> Result<(), Failure> {
    steps::run(&CASES)
}
