//! The network of `examples/digits.rs`, trained for some steps by the kernels and by the CPU backend.

use crate::host::harness::curves::digits;
use crate::host::{CAPABILITY, compare_in};
use gpumem_core::Precision;
use std::ops::Range;

#[test]
fn three_steps() {
    train(0..1);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn three_steps_in_every_order_of_warps() {
    train(0..3);
}

fn train(orders: Range<i32>) {
    let network = digits(4);
    let (training, optimizer) = (network.training(), network.optimizer);
    // Adam divides by the gradient's own size: rounding differences of small gradients show in the parameters.
    let case = ("digits", &network.graph, network.output, training, network.batch, optimizer);
    compare_in((Precision::F32, CAPABILITY), orders, case, 3, 10, 1e-3);
}
