//! What whole networks launch, move and multiply, kept in a file: a change of it shows in review. `UPDATE_FIGURES=1` writes it.

#[path = "../../tests/networks/mod.rs"]
mod networks;
mod planned;

use gpumem::cards::{Card, H200};
use gpumem::report::roofline::{Rates, flops};
use gpumem::{Checkpoint, Line, Network, Precision, network};
use gpumem_core::lower::Blueprint;
use gpumem_cuda::traffic::{Counted, launches};
use gpumem_cuda::{Call, Launch};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figures/launches.txt");

/// Files with constants: what is compiled.
fn compiled(all: &[Counted]) -> usize {
    let file = |launch: &Counted| match &launch.call {
        Call::Kernel(Launch { kernel, .. }) => Some((kernel.file, kernel.constants.clone())),
        Call::Product(_)
        | Call::Convolution(_)
        | Call::Attention(_)
        | Call::Recurrence(_)
        | Call::Passage(_)
        | Call::Exchange(_) => None,
    };
    all.iter().filter_map(file).collect::<BTreeSet<_>>().len()
}

/// A line of the file.
fn line<N: Network>(card: &Card, precision: Precision, batch: u64) -> String {
    line_with::<N>(card, precision, batch, "", |_| {})
}

/// That of a step that keeps all.
fn kept<N: Network>(card: &Card, precision: Precision, batch: u64) -> String {
    line_with::<N>(card, precision, batch, ", all kept", |blueprint| {
        blueprint.training.as_mut().unwrap().checkpoint = Checkpoint::None;
    })
}

fn line_with<N: Network>(
    card: &Card,
    precision: Precision,
    batch: u64,
    what: &str,
    change: impl FnOnce(&mut Blueprint),
) -> String {
    let planned = planned::training_with::<N>(card, Some(precision), Some(batch), true, change);
    let (placed, setting, budget) = planned.unwrap();
    let all = launches(&placed, setting).unwrap();
    let sum = |value: fn(&Counted) -> u64| all.iter().map(value).sum::<u64>();
    let multiplied = sum(|launch| launch.flops);
    // None is lost between the program and its launches, but for what does not divide.
    let whole: u64 = placed.program.operations.iter().map(|operation| flops(operation, batch)).sum();
    assert!(multiplied.abs_diff(whole) <= all.len() as u64, "{}: {multiplied} of {whole}", N::NAME);
    let rates = Rates::of(card, precision, false).unwrap();
    let roof: f64 = all.iter().map(|launch| rates.ms(launch.bytes(), launch.flops)).sum();
    let mut text = format!("{} {} {} {batch}{what}:", N::NAME, card.slug, precision.name());
    let _ = write!(
        text,
        " {} launches of {} compiled files, {:.4} GB, {:.4} TFLOP,",
        all.len(),
        compiled(&all),
        sum(Counted::bytes) as f64 / 1e9,
        multiplied as f64 / 1e12
    );
    let _ = write!(text, " at least {roof:.3} ms; arena of {} bytes,", budget[Line::Arena]);
    let _ = writeln!(text, " packed {}", if budget.lower_bound == budget[Line::Arena] { "whole" } else { "with gaps" });
    text
}

#[test]
fn figures() {
    let text = [
        line::<networks::ResNet50>(&H200, Precision::Bf16, 256),
        line::<networks::Vgg16>(&H200, Precision::Bf16, 64),
        line::<networks::UNet>(&H200, Precision::Bf16, 16),
        line::<networks::Gpt2>(&H200, Precision::Bf16, 16),
        line::<networks::MobileNetV2>(&H200, Precision::Bf16, 256),
        line::<networks::LstmLm>(&H200, Precision::F32, 20),
        line::<planned::Digits>(&H200, Precision::F32, 32),
        kept::<networks::ResNet50>(&H200, Precision::Bf16, 256),
        kept::<networks::UNet>(&H200, Precision::Bf16, 16),
        kept::<networks::MobileNetV2>(&H200, Precision::Bf16, 256),
    ]
    .concat();
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    // Bounds that hold even after the file is written anew: launches, and MB that are moved. ResNet-50 has three launches for each
    // convolution that is one with its normalisation. They do nothing unless a channel would lose its digits. GPT-2 makes outputs of row
    // norms and of `Gelu` again, each by a launch of its own.
    for (network, launches, megabytes) in [("ResNet50", 330, 70_000.0), ("Gpt2", 305, 41_000.0), ("Digits", 26, 9.0)] {
        let line = text.lines().find(|line| line.starts_with(network)).unwrap();
        let mut numbers = line.split_once(": ").unwrap().1.split(' ').filter_map(|word| word.parse::<f64>().ok());
        let [counted, _, gigabytes] = [(); 3].map(|()| numbers.next().unwrap());
        assert!(counted <= f64::from(launches) && gigabytes * 1000.0 <= megabytes, "{line}");
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(text, kept, "write the file anew with UPDATE_FIGURES=1, and look at the difference");
}

network! {
    /// A gate and a residual with dropout.
    struct Gated;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Features<64>) -> Features<64> {
        [Linear(64), Add([], [Mul(Linear(64), [Linear(64), Silu]), Dropout(0.2)])]
    }
}

/// A chain reads what it is given once, and writes what is read later alone.
#[test]
fn a_chain_moves_no_tensor_between_its_operations() {
    let (placed, setting, _) = planned::training::<Gated>(&H200, Some(Precision::F32), Some(4), true).unwrap();
    let all = launches(&placed, setting).unwrap();
    let is_chain = |it: &&Counted| matches!(&it.call, Call::Kernel(launch) if launch.kernel.entry == "chain");
    let moved: Vec<_> = all.iter().filter(is_chain).map(|it| (it.reads.clone(), it.writes.clone())).collect();
    let map = 4 * 4 * 64;
    // Silu, product, dropout and sum: of the two factors, the residual and the state; what the product's gradient reads, and the
    // sum.
    assert_eq!(moved[0], (vec![104, map, map, map], vec![map; 2]));
}

/// A product by itself, counted by hand.
#[test]
fn a_launch_moves_each_tensor_once() {
    let (placed, setting, _) = planned::training::<planned::Digits>(&H200, None, None, false).unwrap();
    let all = launches(&placed, setting).unwrap();
    let product = all.iter().find(|launch| launch.path == "linear" && launch.kind() == "kernel").unwrap();
    // x [32, 1024], the weight [10, 1024], the bias and y [32, 10] in f32.
    assert_eq!(product.reads.iter().sum::<u64>(), 4 * (32 * 1024 + 10 * 1024 + 10));
    assert_eq!((product.writes.as_slice(), product.flops), (&[4 * 32 * 10][..], 2 * 32 * 1024 * 10));
}
