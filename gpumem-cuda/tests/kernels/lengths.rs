//! Layers inside of `lengths` and `segments`. Lengths of samples are two thirds of the steps, 0, all and 1.

use crate::host::harness::graphs::{counted, layer, numbers, within};
use crate::{check, check_narrow, check_products, gradients, host};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Measure;
use gpumem_core::program::loss::{LossOptions, Reduction};
use gpumem_core::program::ops::Seen;
use std::borrow::Cow;

/// Queries `[T, heads * S]` of one input, keys and values `[M, kv_heads * S]` of another one, of which the first ones count, and so many rows
/// of numbers that are added.
fn cross(
    [heads, kv_heads]: [u64; 2],
    [steps, keys, width]: [u64; 3],
    options: &str,
    rows: u64,
) -> impl Fn(&mut Graph) -> NodeId {
    let text = format!("Attention(heads = {heads}, kv_heads = {kv_heads}{options})");
    move |graph| {
        let q = graph.input(numbers(&[steps, heads * width])).unwrap();
        let m = graph.input(numbers(&[keys, kv_heads * width])).unwrap();
        let mut branches = vec![q, m, m];
        branches.extend((rows > 0).then(|| graph.input(numbers(&[rows, keys])).unwrap()));
        let (_, lengths) = counted(graph, Seen::Lengths, m, keys);
        within(graph, &[lengths], &branches, &text)
    }
}

/// Queries, keys and values side by side.
fn own(seen: Seen, [heads, kv_heads, width]: [u64; 3], steps: u64, options: &str) -> impl Fn(&mut Graph) -> NodeId {
    let text = format!("Attention(heads = {heads}, kv_heads = {kv_heads}{options})");
    move |graph| {
        let x = graph.input(numbers(&[steps, (heads + 2 * kv_heads) * width])).unwrap();
        let (_, counts) = counted(graph, seen, x, steps);
        within(graph, &[counts], &[x], &text)
    }
}

#[test]
fn attention_to_the_first_keys() {
    check("7 steps", 4, own(Seen::Lengths, [2, 2, 5], 7, ""));
    // The end of a tile, and within one: 64 of 96 keys, and 46 and 1 of 70.
    check("96 steps", 3, own(Seen::Lengths, [1, 1, 8], 96, ""));
    check("70 steps, causal", 4, own(Seen::Lengths, [2, 1, 8], 70, ", causal = true"));
    check("70 steps in a window", 4, own(Seen::Lengths, [1, 1, 12], 70, ", window = 9"));
    check("68 steps, dropped", 3, own(Seen::Lengths, [2, 2, 12], 68, ", dropout = 0.2"));
    check("more queries", 4, cross([2, 1], [70, 9, 6], ", scale = 0.3", 0));
    check("more keys", 4, cross([2, 2], [5, 131, 6], ", causal = true", 0));
    check("wide heads", 3, cross([1, 1], [9, 70, 150], "", 0));
    check("a matrix", 4, cross([2, 2], [9, 70, 4], "", 9));
    check("a row", 4, cross([2, 2], [70, 9, 4], ", dropout = 0.3", 1));
}

#[test]
fn attention_to_the_first_keys_in_sixteen_bits() {
    check_products("9 steps", 4, own(Seen::Lengths, [2, 2, 16], 9, ""));
    check_products("96 steps", 3, own(Seen::Lengths, [2, 1, 16], 96, ""));
    check_products(
        "75 steps, causal, dropped",
        3,
        own(Seen::Lengths, [1, 1, 16], 75, ", causal = true, dropout = 0.1"),
    );
    check_products("70 steps in a window", 3, own(Seen::Lengths, [1, 1, 32], 70, ", window = 9"));
    check_products("more keys", 4, cross([1, 1], [9, 140, 16], "", 0));
    check_products("more queries and a row", 3, cross([2, 1], [70, 20, 16], "", 1));
    check_products("wide heads", 3, cross([1, 1], [40, 66, 112], "", 0));
    check_products("no tensor cores", 3, cross([1, 1], [9, 70, 12], "", 9));
}

#[test]
fn attention_within_segments() {
    check("7 steps", 3, own(Seen::Segments, [2, 2, 5], 7, ""));
    check("70 steps", 3, own(Seen::Segments, [2, 1, 8], 70, ""));
    check("131 steps, causal", 4, own(Seen::Segments, [1, 1, 8], 131, ", causal = true"));
    check("130 steps in a window", 4, own(Seen::Segments, [1, 1, 8], 130, ", window = 9, dropout = 0.2"));
    check_products("9 steps in 16 bits", 3, own(Seen::Segments, [2, 2, 16], 9, ""));
    check_products("131 steps in 16 bits", 3, own(Seen::Segments, [2, 1, 16], 131, ""));
    check_products("192 steps in 16 bits", 2, own(Seen::Segments, [1, 1, 16], 192, ", causal = true, dropout = 0.1"));
    check_products("wide heads in 16 bits", 2, own(Seen::Segments, [1, 1, 112], 70, ", causal = true, window = 20"));
}

/// A chain of layers over a sequence of numbers.
fn over(seen: Seen, [steps, width]: [u64; 2], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let x = graph.input(numbers(&[steps, width])).unwrap();
        let (_, counts) = counted(graph, seen, x, steps);
        within(graph, &[counts], &[x], text)
    }
}

#[test]
fn reductions_over_steps() {
    for reduction in ["Sum", "Mean", "Max"] {
        check(reduction, 4, over(Seen::Lengths, [35, 3], &format!("{reduction}(1)")));
        // A row of one element.
        check(reduction, 4, over(Seen::Lengths, [70, 1], &format!("{reduction}(1)")));
        check_narrow(reduction, 4, over(Seen::Lengths, [19, 40], &format!("{reduction}(1)")));
    }
}

#[test]
fn recurrent_layers() {
    for text in ["Lstm(5, 2, bidirectional = true)", "Gru(5, bidirectional = true)", "Rnn(5)"] {
        check(text, 4, over(Seen::Lengths, [7, 3], text));
    }
    // Of two stacked layers the rounding of the first is in all gradients of the second.
    for text in ["Lstm(5, bidirectional = true)", "Gru(5)"] {
        check_narrow(text, 4, over(Seen::Lengths, [7, 3], text));
    }
}

#[test]
fn positions_in_segments() {
    for text in ["PositionEmbedding(40, 6)", "SinusoidalPositions(6)"] {
        check(text, 3, |graph| {
            let x = graph.input(numbers(&[37, 6])).unwrap();
            let (_, segments) = counted(graph, Seen::Segments, x, 37);
            let positions = within(graph, std::slice::from_ref(&segments), &[x], text);
            within(graph, &[segments], &[x, positions], "Add")
        });
    }
}

/// Means over the elements that count, sums, and means over samples, in one launch of many blocks.
#[test]
fn losses_of_the_first_steps() {
    let plain = LossOptions { counted: 7, ..LossOptions::DEFAULT };
    let weights = Cow::Borrowed(&[0.5, 2.0, 1.25][..]);
    for (measure, options) in [
        (Measure::Mse, plain.clone()),
        (Measure::Mean, plain.clone()),
        (Measure::L1, LossOptions { reduction: Reduction::Sum, ..plain.clone() }),
        (Measure::BceWithLogits, LossOptions { weights, ..plain.clone() }),
        (Measure::KlDiv, LossOptions { reduction: Reduction::BatchMean, log_target: true, ..plain.clone() }),
    ] {
        let mut graph = Graph::default();
        let x = graph.input(numbers(&[7, 3])).unwrap();
        let (n, _) = counted(&mut graph, Seen::Lengths, x, 7);
        let output = layer(&mut graph, x, "Tanh");
        let loss = [Term { counted: Some(n), options, weight: 0.7, ..Term::of(measure) }];
        let (training, optimizer) = gradients();
        let training = Training { loss: &loss, ..training };
        let what = format!("{measure:?}");
        host::compare(&what, &graph, output, training, 4, optimizer, 1, 5, 1e-5);
        let format = (Precision::Bf16, host::CAPABILITY);
        let case = (what.as_str(), &graph, output, training, 4, optimizer);
        host::prepare(&[format], case);
        host::compare_in(format, 0..1, case, 1, 5, 1e-2);
    }
}
