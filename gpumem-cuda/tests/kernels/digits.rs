//! The network of `examples/digits.rs`, trained for some steps by the kernels and by the CPU backend.

use crate::host::compare;
use crate::host::harness::graphs::{chain, numbers};
use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::Training;
use gpumem_core::optim::{AdamW, Optimizer};
use gpumem_core::program::Measure;

#[test]
fn three_steps() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[1, 8, 8])).unwrap();
    let output = chain(
        &mut graph,
        input,
        "Conv2d(32, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | \
         Conv2d(32, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | \
         Conv2d(64, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | \
         Flatten | Dropout(0.3) | Linear(10)",
    );
    let training = Training { loss: Measure::CrossEntropy, moments: 2, update: Update::Fused, input_gradient: false };
    let optimizer = Optimizer::AdamW(AdamW { lr: 2e-3, weight_decay: 0.01, ..AdamW::DEFAULT });
    // Adam divides by the gradient's own size: rounding differences of small gradients show in the parameters.
    compare("digits", &graph, output, training, 4, optimizer, 3, 10, 1e-3);
}
