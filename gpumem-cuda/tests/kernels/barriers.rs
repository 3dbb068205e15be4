//! The test of the tests: a barrier that is deleted on purpose must show.

use crate::gradients;
use crate::host::harness::compile;
use crate::host::harness::graphs::{layer, numbers};
use crate::host::{AMPERE, Simulated, spread};
use gpumem_core::Precision;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::Class;

/// The loss of a step, which is summed over blocks of eight warps.
fn loss(order: i32, change: impl Fn(&str, &str) -> String) -> f32 {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[701])).unwrap();
    let output = layer(&mut graph, input, "Tanh");
    let (training, optimizer) = gradients();
    let program = lower(&graph, output, &Options { training: Some(training) }).unwrap();
    let mut simulated = Simulated::new(compile(&program, 3), 3, 1 << 20, optimizer, (Precision::F32, AMPERE), order);
    simulated.change(change);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(3).unwrap() as usize;
        match tensor.class {
            Class::Input | Class::Target => simulated.write(id, &spread(count, id + 1)),
            Class::State => simulated.write(id, &[1f32.to_bits(); 8]),
            _ => {}
        }
    }
    simulated.step();
    f32::from_bits(simulated.read(program.result as usize)[0])
}

#[test]
fn a_deleted_barrier_is_caught() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let right = loss(0, |_, text| text.to_string());
    assert!(right.is_finite());
    let write = "if (lane == 0) scratch[warp] = x;\n    __syncthreads();";
    let without = |_: &str, text: &str| text.replacen(write, "if (lane == 0) scratch[warp] = x;", 1);
    let found: Vec<f32> = (0..3).map(|order| loss(order, without)).collect();
    assert!(
        found.iter().any(|loss| loss.is_nan() || (loss - right).abs() > 1e-3 * right.abs()),
        "{found:?} beside {right}"
    );
    let unchanged: Vec<f32> = (1..3).map(|order| loss(order, |_, text| text.to_string())).collect();
    assert!(unchanged.iter().all(|loss| loss.to_bits() == right.to_bits()), "{unchanged:?} beside {right}");
}
