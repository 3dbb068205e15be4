//! Inference with a cache: some steps of a sequence behind others.

use crate::host::harness::graphs::{chain, join, layer};
use crate::host::{CAPABILITY, compare_cached};
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Cached, lower_cached};
use gpumem_core::number::Precision;
use gpumem_core::shape::Shape;

/// A network of `steps` tokens, `chunk` at a time, at the beginning, behind some steps, and where the cache ends.
fn check(what: &str, [steps, chunk]: [u64; 2], build: impl Fn(&mut Graph, NodeId) -> NodeId) {
    let mut graph = Graph::default();
    let tokens = graph.input(Type::indices(Shape::new(&[steps]))).unwrap();
    let output = build(&mut graph, tokens);
    let program = lower_cached(&graph, &[output], Cached { steps, chunk }).unwrap();
    let befores = [0, 1, steps / 2, steps - chunk, steps - 1];
    compare_cached(what, &program, (Precision::F32, CAPABILITY), &befores, 7, 1e-5);
    let halves = [(Precision::Bf16, 3e-2), (Precision::F16, 4e-3)];
    for (precision, tolerance) in halves {
        compare_cached(what, &program, (precision, CAPABILITY), &befores, 7, tolerance);
    }
}

/// Keys and values side by side, heads that share them, windows, and widths of which no pack is a part.
#[test]
fn attention_behind_other_steps() {
    for (features, options, [steps, chunk]) in [
        (16, "2", [9, 1]),
        (32, "8, kv_heads = 2", [12, 5]),
        (24, "4, kv_heads = 4, window = 3", [10, 4]),
        (10, "2, window = 100", [7, 7]),
        (64, "1", [6, 2]),
        // More keys than a tile has, in parts.
        (16, "2, kv_heads = 1", [600, 1]),
        (16, "2, window = 290", [600, 2]),
    ] {
        let text = format!("CausalSelfAttention({options})");
        check(&text, [steps, chunk], |graph, tokens| {
            chain(graph, tokens, &format!("Embedding(7, {features}) | {text}"))
        });
    }
}

/// Queries, keys and values apart, with values of another width, wide heads among them.
#[test]
fn attention_of_parts() {
    for (heads, [query, value], [steps, chunk]) in [(2, [8, 24], [8, 3]), (3, [15, 6], [5, 1]), (1, [280, 300], [4, 2])]
    {
        check(&format!("{heads} heads of {query} and {value}"), [steps, chunk], |graph, tokens| {
            let x = layer(graph, tokens, "Embedding(7, 8)");
            let q = layer(graph, x, &format!("Linear({query})"));
            let k = layer(graph, x, &format!("Linear({query})"));
            let v = layer(graph, x, &format!("Linear({value})"));
            join(graph, &[q, k, v], &format!("Attention(heads = {heads}, causal = true)"))
        });
    }
}

/// Positions of a table, sines and cosines of them, and rotary ones.
#[test]
fn positions_behind_other_steps() {
    for options in ["", "(interleaved = true, shift = 0.5)"] {
        check("sines", [9, 4], |graph, tokens| {
            let x = layer(graph, tokens, "Embedding(7, 6)");
            let positions = layer(graph, x, &format!("SinusoidalPositions{options}"));
            let sum = join(graph, &[x, positions], "Add");
            layer(graph, sum, "Sigmoid")
        });
    }
    for features in [16, 6] {
        check("a table", [9, 4], |graph, tokens| {
            let x = layer(graph, tokens, &format!("Embedding(7, {features})"));
            let positions = layer(graph, x, "PositionEmbedding(11)");
            let sum = join(graph, &[x, positions], "Add");
            layer(graph, sum, "Sigmoid")
        });
    }
    for (features, options) in [
        (16, "2, rotary = 100.0"),
        (24, "3, rotary = 10.0, rotary_dims = 4"),
        (12, "3, rotary = 50.0, interleaved = true"),
        (16, "4, kv_heads = 2, rotary = 50.0, qk_norm = \"RmsNorm\""),
    ] {
        check(options, [9, 4], |graph, tokens| {
            chain(graph, tokens, &format!("Embedding(7, {features}) | CausalSelfAttention({options})"))
        });
    }
}

/// States of a scan, with one lane a channel and with several, and chunks that are filled up.
#[test]
fn scans_behind_other_steps() {
    for (features, states, [steps, chunk]) in [(3, 1, [6, 1]), (35, 7, [9, 4]), (12, 16, [30, 19]), (5, 40, [8, 3])] {
        check(&format!("{features} channels of {states} states"), [steps, chunk], |graph, tokens| {
            let x = layer(graph, tokens, &format!("Embedding(7, {features})"));
            let sizes = layer(graph, x, &format!("StepSizes({features})"));
            let [b, c] = [0; 2].map(|_| layer(graph, x, &format!("Linear({states})")));
            join(graph, &[x, sizes, b, c], "SelectiveScan")
        });
    }
}

/// Columns of one channel's own and of all, windows that reach further than a chunk, and ones that are one column.
#[test]
fn convolutions_behind_other_steps() {
    for (features, convolution, reach, [steps, chunk]) in [
        (6, "Conv1d(6, 4, padding = 3, groups = 6)", 3, [9, 1]),
        (6, "Conv1d(4, 3, padding = 2)", 2, [12, 5]),
        (8, "Conv1d(12, 2, padding = 5, dilation = 5, groups = 4, bias = false)", 5, [11, 3]),
        (3, "Conv1d(3, 3, padding = 2)", 2, [7, 7]),
        (4, "Conv1d(5, 1)", 0, [6, 4]),
    ] {
        check(convolution, [steps, chunk], |graph, tokens| {
            let x = chain(graph, tokens, &format!("Embedding(7, {features}) | Transpose(1, 2) | {convolution}"));
            let x = if reach > 0 { layer(graph, x, &format!("Slice(0, -{reach}, dim = -1)")) } else { x };
            layer(graph, x, "Transpose(1, 2)")
        });
    }
}

/// Each cell, with one block of units and with several, one step and chunks that are filled up.
#[test]
fn recurrence_behind_other_steps() {
    for (layer, [steps, chunk]) in [
        ("Lstm(5)", [6, 1]),
        ("Lstm(70, layers = 2)", [9, 4]),
        ("Lstm(10, proj_size = 3)", [6, 1]),
        ("Lstm(67, layers = 2, bias = false, proj_size = 9)", [9, 4]),
        ("Gru(12)", [7, 3]),
        ("Gru(9, bias = false)", [5, 1]),
        ("Rnn(10)", [9, 4]),
        ("Rnn(3, nonlinearity = \"relu\")", [6, 6]),
    ] {
        check(layer, [steps, chunk], |graph, tokens| chain(graph, tokens, &format!("Embedding(7, 6) | {layer}")));
    }
}
