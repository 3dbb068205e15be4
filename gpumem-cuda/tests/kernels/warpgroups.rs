//! Attention on Hopper's warpgroup instructions, in all orders of warps.

use crate::attention::{apart, to_all};
use crate::host::harness::assert_close;
use crate::host::harness::graphs::{join, layer, numbers};
use crate::host::{CAPABILITY, HOPPER, run_with};
use crate::{Way, check_trained_in, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};

/// Both formats of 16 bits.
const WAYS: [Way; 2] = [((Precision::Bf16, HOPPER), 0..3), ((Precision::F16, HOPPER), 0..3)];

/// With a loss of squares: one whose terms cancel is as wrong as its largest terms.
fn check(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    let (training, _) = gradients();
    check_trained_in(what, &WAYS, Training { loss: &[Term::MSE], ..training }, batch, build);
}

/// Causal attention whose queries, keys and values are adjacent.
pub fn packed(steps: u64, [heads, kv_heads, width]: [u64; 3]) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&[steps, (heads + 2 * kv_heads) * width])).unwrap();
        layer(graph, input, &format!("CausalAttention({heads}, kv_heads = {kv_heads})"))
    }
}

/// Fewer time steps than a tile has, exactly as many, and several tiles, the last of which is not full; heads that share keys.
#[test]
fn causal_attention() {
    check("a time step", 2, packed(1, [1, 1, 64]));
    check("part of a tile", 1, packed(70, [2, 1, 64]));
    check("two tiles of wide heads", 1, packed(130, [2, 1, 128]));
}

/// Every place in shared memory is filled more than once: the third tile of keys is the first that waits for its place.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn causal_attention_in_many_tiles() {
    check("a whole tile", 1, packed(128, [2, 2, 64]));
    check("whole tiles", 1, packed(256, [1, 1, 128]));
    check("many tiles", 1, packed(400, [1, 1, 64]));
    check("many tiles of wide heads", 1, packed(300, [1, 1, 128]));
}

/// Barriers come to their third phase with the fifth tile of keys.
#[test]
fn attention_to_all_keys() {
    check("all of 9 steps", 2, to_all(9, [2, 1, 64], 0.0));
    check("more keys than queries", 1, apart(&[], [2, 1], [10, 600, 64, 64], "", None));
    check("more queries than keys", 1, apart(&[2], [1, 1], [140, 20, 128, 128], "", None));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn attention_to_all_keys_in_many_tiles() {
    check("all of 200 steps", 1, to_all(200, [2, 2, 128], 0.0));
    check("whole tiles", 1, apart(&[2], [2, 2], [128, 256, 64, 64], ", scale = 0.1", None));
    check("many tiles of wide heads", 1, apart(&[], [1, 1], [5, 520, 128, 128], "", None));
}

/// Keys that end before the queries do, and keys after all of them.
#[test]
fn causal_attention_to_another_sequence() {
    let causal = ", causal = true";
    check("keys that end early", 1, apart(&[], [2, 1], [140, 20, 64, 64], causal, None));
    check("keys after the queries", 1, apart(&[], [1, 1], [70, 300, 64, 64], causal, None));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn causal_attention_to_another_sequence_of_further_shapes() {
    let causal = ", causal = true";
    check("keys that end within the diagonal", 1, apart(&[2], [2, 2], [300, 200, 64, 64], causal, None));
    check("wide keys that end at a tile", 1, apart(&[], [1, 1], [300, 128, 128, 128], causal, None));
}

/// The output of a forward pass by itself, which saves no logarithms, beside that of the kernel of other cards.
fn compare_outputs(what: &str, build: impl FnOnce(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let (case, wanted) = ((1, gradients().1, 1e-2), [program.results[0] as usize]);
    let [own, left] = [(CAPABILITY, 0..1), (HOPPER, 0..3)]
        .map(|(card, orders)| run_with(&program, ((Precision::F16, card), orders), case, &[], &wanted));
    for left in left {
        assert_close(&format!("{what}, {}", left.who), &left.found[0], &own[0].found[0], left.tolerance);
    }
}

#[test]
fn a_forward_pass_by_itself() {
    compare_outputs("three tiles", packed(260, [2, 1, 64]));
}

/// Scores far apart: what weights are relative to moves by little and by much while keys pass by.
#[test]
fn scores_that_grow() {
    compare_outputs("large queries and keys", |graph| {
        let input = graph.input(numbers(&[300, 3 * 64])).unwrap();
        let twice = join(graph, &[input, input], "Add");
        let x = join(graph, &[twice, twice], "Add");
        layer(graph, x, "CausalAttention(1)")
    });
}
