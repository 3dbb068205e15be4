//! The network of `examples/digits.rs`, trained for some steps by the kernels and by the CPU backend.

use crate::host::compare;
use crate::host::harness::curves::digits;

#[test]
fn three_steps() {
    let network = digits(4);
    let (training, optimizer) = (network.training(), network.optimizer);
    // Adam divides by the gradient's own size: rounding differences of small gradients show in the parameters.
    compare("digits", &network.graph, network.output, training, network.batch, optimizer, 3, 10, 1e-3);
}
