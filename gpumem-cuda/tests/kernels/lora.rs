//! Low-rank adapters: products with few columns, and sums of two products.

use crate::host::CAPABILITY;
use crate::host::harness::graphs::{chain, join, numbers};
use crate::{check, check_formats};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Lora, NodeId};

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
    // In binary16: an adapter rounds five times on its way, which in bf16 comes to more than a hundredth of a loss whose terms cancel.
    let way = [((Precision::F16, CAPABILITY), 0..1)];
    check_formats("rank 8", &way, 2, alone(8, "Linear(16)"));
    check_formats("rank 3", &way, 2, alone(3, "Linear(16, transposed = true)"));
}
