//! Every kernel against the CPU backend, on shapes that are not multiples of anything.

#[path = "../host/mod.rs"]
mod host;

mod attention;
mod averages;
mod axes;
mod barriers;
mod bases;
mod binary;
mod cached;
mod chains;
mod channels_last;
mod chunks;
mod codes;
mod contrastive;
mod convolutions;
mod cudnn;
mod curves;
mod descent;
mod digits;
mod eval;
mod factored;
mod fronts;
mod functions;
mod fusions;
mod groups;
mod guards;
mod joins;
mod known_values;
mod layouts;
mod lengths;
mod library;
mod lora;
mod losses;
mod micro_batches;
mod movement;
mod muon;
mod narrow;
mod normalized;
mod norms;
mod offload;
mod optimizers;
mod own;
mod pixels;
mod pointwise;
mod pools;
mod products;
mod ranks;
mod recomputation;
mod recurrent;
mod renormalised;
mod reparametrized;
mod resampling;
mod scans;
mod sides;
mod standardize;
mod tables;
mod triplets;
mod volumes;
mod warpgroups;
mod weights;
mod windows;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Half, Precision, Update};

/// Gradients of everything, inputs included; parameters stay.
pub fn gradients() -> (Training<'static>, Optimizer) {
    let training = Training {
        loss: &[Term::DOT],
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    (training, Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }))
}

/// Compares output, all gradients and running statistics of a network with the CPU backend's.
pub fn check(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (training, optimizer) = gradients();
    host::compare(what, &graph, output, training, batch, optimizer, 1, 5, 1e-5);
}

/// As [`check`], in these formats, where nobody wants the gradient of the input.
pub fn check_trained(what: &str, batch: u64, formats: &[Precision], build: impl FnOnce(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (training, optimizer) = gradients();
    let training = Training { input_gradient: false, ..training };
    let formats: Vec<host::Format> = formats.iter().map(|&precision| (precision, host::CAPABILITY)).collect();
    host::prepare(&formats, (what, &graph, output, training, batch, optimizer));
    for format in formats {
        let label = format!("{what} in {:?}", format.0);
        let tolerance = if format.0 == Precision::F32 { 1e-5 } else { 1e-2 };
        let case = (label.as_str(), &graph, output, training, batch, optimizer);
        host::compare_in(format, 0..1, case, 1, 5, tolerance);
    }
}

/// A number format on a card, and the orders of warps that are tried.
pub type Way = (host::Format, std::ops::Range<i32>);

/// As [`check`], with 16-bit numbers, to 1e-2.
pub fn check_narrow(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    let ways = [Precision::Bf16, Precision::F16].map(|precision| ((precision, host::CAPABILITY), 0..1));
    check_formats(what, &ways, batch, build);
}

/// As [`check_narrow`], where parameters of normalisations have 32 bits.
pub fn check_mixed(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    let ways = [Half::Bf16, Half::F16].map(|half| ((Precision::Mixed(half), host::CAPABILITY), 0..1));
    check_formats(what, &ways, batch, build);
}

/// On tensor cores with all orders of warps, on those of Turing, and without.
const PRODUCTS: [Way; 4] = [
    ((Precision::Bf16, host::CAPABILITY), 0..3),
    ((Precision::F16, host::CAPABILITY), 0..1),
    ((Precision::F16, (7, 5)), 0..1),
    ((Precision::Bf16, (7, 5)), 0..1),
];

/// As [`check_narrow`], for products.
pub fn check_products(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    check_formats(what, &PRODUCTS, batch, build);
}

/// As [`check_products`] with a loss of squares: one whose terms cancel is as wrong as its largest terms.
pub fn check_squares(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    let (training, _) = gradients();
    check_trained_in(what, &PRODUCTS, Training { loss: &[Term::MSE], ..training }, batch, build);
}

/// As [`check_narrow`], in these formats.
pub fn check_formats(what: &str, ways: &[Way], batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    check_trained_in(what, ways, gradients().0, batch, build);
}

fn check_trained_in(
    what: &str,
    ways: &[Way],
    training: Training,
    batch: u64,
    build: impl FnOnce(&mut Graph) -> NodeId,
) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (_, optimizer) = gradients();
    let ways = ways.iter().filter(|(format, _)| !touches_the_bytes_of_another(*format, ways));
    let ways: Vec<&Way> = ways.collect();
    let formats: Vec<host::Format> = ways.iter().map(|(format, _)| *format).collect();
    host::prepare(&formats, (what, &graph, output, training, batch, optimizer));
    for (format, orders) in ways {
        let label = format!("{what} in {format:?}");
        let case = (label.as_str(), &graph, output, training, batch, optimizer);
        host::compare_in(*format, orders.clone(), case, 1, 5, 1e-2);
    }
}

/// Whether the sanitizers, which look at addresses, see in this format what they see in another one of these: binary16 and bfloat16 are as
/// wide, and on the same tensor cores they take the same ways.
fn touches_the_bytes_of_another((precision, capability): host::Format, ways: &[Way]) -> bool {
    let other = match precision {
        Precision::F16 => Precision::Bf16,
        Precision::Mixed(Half::F16) => Precision::Mixed(Half::Bf16),
        _ => return false,
    };
    host::is_apart() && capability >= (8, 0) && ways.iter().any(|(format, _)| *format == (other, capability))
}
