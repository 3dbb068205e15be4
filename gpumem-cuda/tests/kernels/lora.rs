//! Low-rank adapters: products with few columns, and sums of two products.

use crate::host::harness::graphs::{chain, join, numbers};
use crate::host::{CAPABILITY, compare_in, prepare};
use crate::{check, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Lora, NodeId};
use gpumem_core::lower::{Term, Training};

/// Layers with adapters between two without.
fn adapted(rank: u64, layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&[5, 8])).unwrap();
        let x = chain(graph, input, "LayerNorm");
        let first = graph.rows.len();
        let y = chain(graph, x, layers);
        let rows = first..graph.rows.len();
        let sum = join(graph, &[x, y], "Add");
        let output = chain(graph, sum, "Tanh | Linear(6)");
        let places = graph.adapt(&[Lora { rank, alpha: 4.0, targets: Vec::new(), base: None, rows }]);
        places[output]
    }
}

/// One map with its adapter, and nothing around it that rounds once more.
fn alone(rank: u64, layer: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&[5, 8])).unwrap();
        let output = chain(graph, input, layer);
        let places = graph.adapt(&[Lora { rank, alpha: 4.0, targets: Vec::new(), base: None, rows: 0..1 }]);
        places[output]
    }
}

#[test]
fn adapters() {
    check("odd rank", 3, adapted(3, "Linear(11) | Gelu | Linear(8, bias = false)"));
    check("attention", 2, adapted(2, "CausalSelfAttention(2)"));
    check("joint projection", 2, adapted(2, "MultiHeadAttention(2)"));
    sixteen_bits("rank 8", alone(8, "Linear(16)"));
    sixteen_bits("rank 3", alone(3, "Linear(24, transposed = true)"));
}

/// Compares outputs, gradients and a loss of squares in both formats of 16 bits, to 1e-2. An adapter rounds five times on its way, which in
/// bfloat16 comes to more than that of a loss whose terms cancel.
fn sixteen_bits(what: &str, build: impl Fn(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let (training, optimizer) = gradients();
    let training = Training { loss: &[Term::MSE], ..training };
    let formats = [Precision::Bf16, Precision::F16].map(|precision| (precision, CAPABILITY));
    prepare(&formats, (what, &graph, output, training, 2, optimizer));
    for format in formats {
        let label = format!("{what} in {format:?}");
        compare_in(format, 0..1, (&label, &graph, output, training, 2, optimizer), 1, 5, 1e-2);
    }
}
