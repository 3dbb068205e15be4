//! Attention, causal and not.

use crate::host::CAPABILITY;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_formats, check_narrow, check_products};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Node, NodeId, Source};
use gpumem_core::program::ops::Attention;

fn attends(batch: u64, steps: u64, heads: u64, width: u64, options: &str) {
    let text = format!("CausalAttention({heads}{options})");
    check(&format!("{text} of {steps} steps, heads of {width}"), batch, |graph| {
        let input = graph.input(numbers(&[steps, 3 * heads * width])).unwrap();
        layer(graph, input, &text)
    });
}

#[test]
fn short_sequences_and_narrow_heads() {
    attends(3, 7, 2, 5, "");
    attends(2, 13, 3, 12, "");
    attends(2, 1, 1, 8, "");
}

#[test]
fn several_tiles() {
    attends(2, 67, 3, 8, "");
    attends(1, 130, 1, 64, "");
}

#[test]
fn heads_of_several_chunks() {
    // Two chunks of one block, and three chunks of two.
    attends(1, 70, 1, 80, "");
    attends(1, 66, 1, 150, "");
}

#[test]
fn dropped_weights() {
    // Random draws of four weights begin with each row, or anywhere.
    attends(2, 68, 2, 12, ", dropout = 0.2");
    attends(2, 67, 2, 7, ", dropout = 0.5");
}

/// Heads of queries and of keys, `width` elements each.
fn attends_in_groups(batch: u64, steps: u64, [heads, kv_heads, width]: [u64; 3], options: &str) {
    let text = format!("CausalAttention({heads}, kv_heads = {kv_heads}{options})");
    let network = |graph: &mut Graph| {
        let input = graph.input(numbers(&[steps, (heads + 2 * kv_heads) * width])).unwrap();
        layer(graph, input, &text)
    };
    let what = format!("{text} of {steps} steps, heads of {width}");
    if width % 16 == 0 { check_products(&what, batch, network) } else { check(&what, batch, network) }
}

#[test]
fn heads_that_share_keys() {
    attends_in_groups(2, 13, [4, 2, 5], "");
    attends_in_groups(1, 67, [3, 1, 8], ", dropout = 0.2");
    // By tensor cores: several tiles of queries, and of keys.
    attends_in_groups(1, 9, [4, 2, 16], "");
    attends_in_groups(1, 70, [2, 1, 16], ", dropout = 0.3");
}

#[test]
fn gradients_that_are_added() {
    for width in [12, 7] {
        check("two attentions on the same queries, keys and values", 2, |graph| {
            let input = graph.input(numbers(&[9, 6 * width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let branches =
                [layer(graph, x, "CausalAttention(2)"), layer(graph, x, "CausalAttention(1, dropout = 0.1)")];
            join(graph, &branches, "Add")
        });
    }
}

fn attends_narrowly(batch: u64, steps: u64, heads: u64, width: u64, options: &str) {
    let text = format!("CausalAttention({heads}{options})");
    check_products(&format!("{text} of {steps} steps, heads of {width}"), batch, |graph| {
        let input = graph.input(numbers(&[steps, 3 * heads * width])).unwrap();
        layer(graph, input, &text)
    });
}

/// On tensor cores, and heads that they do not work on.
#[test]
fn sixteen_bits() {
    attends_narrowly(2, 9, 2, 4, "");
    attends_narrowly(2, 7, 2, 16, "");
    attends_narrowly(1, 70, 2, 24, "");
}

/// Several tiles of 64 rows, not all of them whole, and of 32 where heads are wide.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_in_several_tiles() {
    attends_narrowly(1, 131, 1, 16, "");
    attends_narrowly(1, 70, 1, 80, "");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_in_many_tiles() {
    attends_narrowly(1, 201, 2, 16, "");
    attends_narrowly(1, 130, 1, 64, "");
    attends_narrowly(1, 99, 1, 80, "");
    attends_narrowly(1, 131, 1, 128, "");
}

#[test]
fn sixteen_bits_with_dropped_weights() {
    attends_narrowly(1, 92, 1, 16, ", dropout = 0.2");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_with_dropped_weights_of_further_shapes() {
    attends_narrowly(2, 92, 2, 16, ", dropout = 0.2");
    attends_narrowly(1, 77, 2, 32, ", dropout = 0.5");
}

#[test]
fn sixteen_bits_of_gradients_that_are_added() {
    check_products("two attentions on the same queries, keys and values", 2, |graph| {
        let input = graph.input(numbers(&[35, 96])).unwrap();
        let x = layer(graph, input, "Tanh");
        let branches = [layer(graph, x, "CausalAttention(2)"), layer(graph, x, "CausalAttention(1, dropout = 0.1)")];
        join(graph, &branches, "Add")
    });
}

/// Scores far apart: what weights are relative to moves by little and by much while keys pass by. Nearly all of the gradient cancels:
/// of Bf16's eight digits, rounding would be left.
#[test]
fn scores_that_grow() {
    let ways = [((Precision::F16, CAPABILITY), 0..3), ((Precision::F16, (7, 5)), 0..1)];
    check_formats("attention on large queries and keys", &ways, 2, |graph| {
        let input = graph.input(numbers(&[200, 96])).unwrap();
        let twice = join(graph, &[input, input], "Add");
        let x = join(graph, &[twice, twice], "Add");
        layer(graph, x, "CausalAttention(2)")
    });
}

/// The operation without the products around it, whose roundings would hide its own: every step sees all.
fn to_all(steps: u64, [heads, kv_heads, width]: [u64; 3], dropout: f64) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let op = Attention { heads, kv_heads, steps, width, dropout, causal: false };
        let x = graph.input(numbers(&[steps, op.input_features()])).unwrap();
        let value = numbers(&[steps, op.features()]);
        // A layer whose row it is in.
        let inputs = vec![layer(graph, x, "Dropout(0.0)")];
        let row = graph.nodes[inputs[0]].row;
        let source = Source::Op { op: op.into(), inputs, buffers: Vec::new(), in_place: false };
        graph.nodes.push(Node { value, source, row });
        graph.nodes.len() - 1
    }
}

/// By threads and by tensor cores, in one tile and in several, of which the last is not full.
#[test]
fn attention_to_all_steps() {
    check("all of 7 steps", 2, to_all(7, [2, 2, 6], 0.0));
    check("all of 70 steps", 2, to_all(70, [2, 1, 12], 0.0));
    check("all of 128 steps", 1, to_all(128, [1, 1, 7], 0.2));
    check_products("all of 9 steps in 16 bits", 2, to_all(9, [2, 2, 16], 0.0));
    check_products("all of 75 steps in 16 bits", 1, to_all(75, [2, 1, 16], 0.1));
    check_products("all of 64 steps in 16 bits", 1, to_all(64, [1, 1, 112], 0.0));
    check("a layer of it", 2, |graph| {
        let input = graph.input(numbers(&[9, 12])).unwrap();
        layer(graph, input, "MultiHeadAttention(2)")
    });
}

/// Heads that turn, over what they are read from and beside it, and their gradients, also added to others.
fn turned(graph: &mut Graph, features: u64, text: &str) -> NodeId {
    let input = graph.input(numbers(&[7, features])).unwrap();
    let beside = layer(graph, input, text);
    let rows = layer(graph, beside, &format!("Linear({features})"));
    let over = chain(graph, rows, text);
    let both = join(graph, &[over, rows], "Mul");
    layer(graph, both, text)
}

#[test]
fn rotary_positions() {
    for (features, text) in [
        (48, "Rotary(3)"),
        (48, "Rotary(3, dims = 8)"),
        (30, "Rotary(5, base = 50.0)"),
        (24, "Rotary(2, dims = 6, interleaved = true)"),
        (64, "Rotary(2, interleaved = true)"),
    ] {
        check(text, 3, |graph| turned(graph, features, text));
        check_narrow(text, 2, |graph| {
            let input = graph.input(numbers(&[7, features])).unwrap();
            chain(graph, input, &format!("{text} | {text}"))
        });
    }
    // Values are not turned, and rows have more of them than of heads.
    check("queries and keys", 2, |graph| {
        let input = graph.input(numbers(&[5, 40])).unwrap();
        chain(graph, input, "CausalAttention(3, kv_heads = 1, rotary = 100.0, rotary_dims = 4)")
    });
}
