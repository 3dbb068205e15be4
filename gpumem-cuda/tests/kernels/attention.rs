//! Attention, causal and not.

use crate::host::harness::graphs::{again, chain, join, layer, numbers, tokens};
use crate::host::harness::masked::{GRADIENTS, INPUTS, Masked, NAMES, Sums, cases, most_negative};
use crate::host::{CAPABILITY, Left, run_with};
use crate::{PRODUCTS, Way, check, check_formats, check_narrow, check_products, check_trained};
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
pub fn to_all(steps: u64, [heads, kv_heads, width]: [u64; 3], dropout: f64) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let op = Attention::joined([heads, kv_heads, width], dropout, false, &[steps]);
        let x = graph.input(numbers(&[steps, op.rows()[0]])).unwrap();
        let value = numbers(&[steps, op.features()]);
        // A layer whose row it is in.
        let inputs = vec![layer(graph, x, "Dropout(0.0)")];
        let row = graph.nodes[inputs[0]].row;
        let source = Source::Op { op: op.into(), inputs, buffers: Vec::new(), in_place: false };
        graph.nodes.push(Node { value, source, row, detached: false });
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

/// Queries, keys and values that are parts of one row, and with `bias` what is added to their products. `[T, M, S, V]`, after axes
/// along which sequences do not see each other.
pub fn apart(
    axes: &[u64],
    [heads, kv_heads]: [u64; 2],
    [steps, keys, width, values]: [u64; 4],
    options: &str,
    bias: Option<&[u64]>,
) -> impl Fn(&mut Graph) -> NodeId {
    let bias = bias.map(|front| (front, steps));
    apart_with(axes, [heads, kv_heads], [steps, keys, width, values], options, bias)
}

/// Builds [`apart`], with so many rows in what is added.
fn apart_with(
    axes: &[u64],
    [heads, kv_heads]: [u64; 2],
    [steps, keys, width, values]: [u64; 4],
    options: &str,
    bias: Option<(&[u64], u64)>,
) -> impl Fn(&mut Graph) -> NodeId {
    let with = |front: &[u64], rest: [u64; 2]| front.iter().copied().chain(rest).collect::<Vec<u64>>();
    let rows = [[steps, heads * width], [keys, kv_heads * width], [keys, kv_heads * values]];
    let mut shapes: Vec<Vec<u64>> = rows.iter().map(|&rows| with(axes, rows)).collect();
    shapes.extend(bias.map(|(front, rows)| with(front, [rows, keys])));
    let mut all = 0;
    let mut branches = Vec::new();
    for shape in &shapes {
        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
        let elements: u64 = shape.iter().product();
        branches.push(format!("Slice({all}, {}) | Reshape([{}])", all + elements, dims.join("; ")));
        all += elements;
    }
    let text = format!("Attention(heads = {heads}, kv_heads = {kv_heads}{options})");
    move |graph| {
        let input = graph.input(numbers(&[all])).unwrap();
        let x = layer(graph, input, "Tanh");
        let branches: Vec<NodeId> = branches.iter().map(|branch| chain(graph, x, branch)).collect();
        join(graph, &branches, &text)
    }
}

#[test]
fn keys_and_values_of_another_sequence() {
    // Values of other heads than keys, more keys than queries and fewer, and sequences side by side.
    check("cross-attention", 2, apart(&[], [2, 2], [5, 9, 4, 6], ", scale = 0.25", None));
    check("shared keys", 2, apart(&[2], [4, 2], [70, 7, 6, 3], ", dropout = 0.2", None));
    check("wide values", 1, apart(&[], [1, 1], [5, 67, 8, 150], "", None));
    check("wide keys", 1, apart(&[3], [1, 1], [66, 9, 130, 8], ", causal = true", None));
    check_products("of tensor cores", 1, apart(&[2], [2, 1], [70, 20, 16, 16], "", None));
    check_products(
        "of tensor cores, causal",
        1,
        apart(&[], [1, 1], [70, 20, 16, 16], ", causal = true, scale = 0.3", None),
    );
    check_products(
        "of tensor cores, more keys",
        1,
        apart(&[], [1, 1], [9, 71, 32, 32], ", causal = true, dropout = 0.2", None),
    );
    // Whole tiles of queries, and tiles of keys behind all of them.
    check_products("of tensor cores, keys behind", 1, apart(&[], [2, 1], [64, 200, 16, 16], ", causal = true", None));
    check_products(
        "of tensor cores, wide keys behind",
        1,
        apart(&[], [1, 1], [32, 70, 128, 128], ", causal = true", None),
    );
    check_products(
        "of tensor cores, keys out of sight",
        1,
        apart(&[], [1, 1], [64, 256, 16, 16], ", window = 9", None),
    );
}

#[test]
fn numbers_that_are_added_to_scores() {
    check("a matrix", 2, apart(&[], [2, 1], [5, 7, 4, 4], "", Some(&[])));
    check("a matrix a head", 2, apart(&[3], [2, 2], [5, 7, 4, 6], ", causal = true", Some(&[2])));
    check("a matrix a window", 2, apart(&[3], [2, 2], [5, 7, 4, 4], ", dropout = 0.3", Some(&[3, 1])));
    check("all", 1, apart(&[2], [2, 2], [66, 68, 4, 4], "", Some(&[2, 2])));
    check_products("of tensor cores", 1, apart(&[2], [2, 2], [9, 70, 16, 16], ", scale = 0.5", Some(&[2])));
    check_products(
        "of tensor cores, causal",
        1,
        apart(&[], [1, 1], [66, 66, 16, 16], ", causal = true, dropout = 0.1", Some(&[])),
    );
}

/// Rows that all queries share, in one tile of queries and in several, with gradients that are summed over all of them.
#[test]
fn rows_that_are_added_to_scores() {
    check("a row", 2, apart_with(&[], [2, 1], [5, 7, 4, 4], "", Some((&[], 1))));
    check("a row a head", 2, apart_with(&[3], [2, 2], [70, 7, 4, 6], ", causal = true", Some((&[2], 1))));
    check("a row a window", 2, apart_with(&[3], [2, 2], [5, 67, 4, 4], ", dropout = 0.3", Some((&[3, 1], 1))));
    check("a row in a window of keys", 1, apart_with(&[], [2, 2], [66, 68, 4, 4], ", window = 9", Some((&[2], 1))));
    check_products("a row, of tensor cores", 1, apart_with(&[2], [2, 2], [70, 70, 16, 16], "", Some((&[2], 1))));
    for (width, is_narrow) in [(4, false), (16, true)] {
        let network = move |graph: &mut Graph| {
            let input = graph.input(numbers(&[6, 2 * width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let bias = chain(graph, x, "PositionEmbedding(6, 14) | Slice(0, 1) | Reshape([2; 1; 7])");
            let bias = chain(graph, bias, "Slice(1, dim = 3)");
            let [once, twice] = ["Attention(heads = 2)", "Attention(heads = 2, dropout = 0.2)"]
                .map(|text| join(graph, &[x, x, x, bias], text));
            join(graph, &[once, twice], "Add")
        };
        if is_narrow { check_products("a trained row", 2, network) } else { check("a trained row", 3, network) }
    }
}

/// Output and gradients of a case as all kernels leave them.
fn check_masked(case: &Masked, (format, orders): &Way, tolerance: f64) {
    let (step, optimizer) = case.step();
    let forward = case.forward();
    let inputs: Vec<(&str, &[f32])> = INPUTS.into_iter().zip(case.inputs.iter().map(Vec::as_slice)).collect();
    let with_slope: Vec<(&str, &[f32])> = inputs.iter().copied().chain([("target", &case.slope[..])]).collect();
    let of = |name: &str| step.tensors.iter().position(|tensor| tensor.name == name).unwrap();
    let how = || (*format, orders.clone());
    let many = (case.batch as u64, optimizer, tolerance);
    let check = |left: &Left, name: &str, found: &[f32], expected: &Sums| {
        expected.assert_close(&format!("{}, {}, {format:?}: {name}", case.what, left.who), found, left.tolerance);
    };
    for left in run_with(&forward, how(), many, &inputs, &[forward.results[0] as usize]) {
        check(&left, NAMES[0], &left.found[0], &case.outcome(&left.given)[0]);
    }
    for left in run_with(&step, how(), many, &with_slope, &GRADIENTS.map(of)) {
        let expected = case.outcome(&left.given);
        for ((name, found), expected) in NAMES[1..].iter().zip(&left.found).zip(&expected[1..]) {
            check(&left, name, found, expected);
        }
    }
}

/// A query that sees no key, keys hidden in whole tiles, and the most negative number of each format: in f32 by threads, in 16 bits by
/// tensor cores and where heads are too narrow for them by threads.
#[test]
fn masks_hide_keys() {
    let f32 = ((Precision::F32, CAPABILITY), 0..1);
    check_masked(&Masked::second_sees_none(), &f32, 1e-5);
    for hides in [f32::NEG_INFINITY, most_negative(Precision::F32)] {
        cases(hides).iter().for_each(|case| check_masked(case, &f32, 1e-5));
    }
}

#[test]
fn masks_hide_keys_in_sixteen_bits() {
    for way in &PRODUCTS[..3] {
        check_masked(&Masked::second_sees_none(), way, 1e-2);
        for hides in [f32::NEG_INFINITY, most_negative(way.0.0)] {
            cases(hides).iter().for_each(|case| check_masked(case, way, 1e-2));
        }
    }
}

/// Gradients of some inputs alone: queries are the network's own input, or all that has parameters is added to the scores.
#[test]
fn gradients_that_nobody_wants() {
    for (width, formats) in [(6, &[Precision::F32][..]), (16, &[Precision::F32, Precision::F16])] {
        check_trained("queries as they come", 2, formats, |graph| {
            let queries = graph.input(numbers(&[9, width])).unwrap();
            let [keys, values] = [(); 2].map(|()| layer(graph, queries, &format!("Linear({width}, bias = false)")));
            let attended = join(graph, &[queries, keys, values], "Attention(heads = 1)");
            layer(graph, attended, "Linear(3)")
        });
        check_trained("joined", 2, formats, |graph| {
            let joined = graph.input(numbers(&[9, 6 * width])).unwrap();
            let bias = layer(graph, joined, "RelativePositionBias(2)");
            join(graph, &[joined, bias], "Attention(heads = 2)")
        });
        check_trained("joined, causal", 2, formats, |graph| {
            let joined = graph.input(numbers(&[9, 3 * width])).unwrap();
            let attended = layer(graph, joined, "CausalAttention(1)");
            layer(graph, attended, "Linear(3)")
        });
    }
}

/// Steps that see only those near them: windows of less than a tile and of more, of which rows see the first tile of keys or do not.
#[test]
fn windows_that_slide() {
    for window in [1, 5, 64, 80] {
        let causal = format!("CausalAttention(2, window = {window})");
        check(&causal, 1, |graph| {
            let input = graph.input(numbers(&[150, 36])).unwrap();
            layer(graph, input, &causal)
        });
    }
    let both = |window: u64| format!(", window = {window}");
    check("both ways", 2, apart(&[2], [2, 1], [70, 75, 4, 6], &both(3), Some(&[2])));
    check("dropped", 1, apart(&[], [1, 1], [130, 140, 4, 4], &format!("{}, dropout = 0.2", both(70)), None));
    check_products("of tensor cores, both ways", 1, apart(&[], [2, 1], [70, 150, 16, 16], &both(9), None));
    check_products("of tensor cores, far", 1, apart(&[], [1, 1], [140, 135, 16, 16], &both(70), None));
    for window in [3, 66] {
        let text = format!("CausalAttention(2, window = {window})");
        check_products(&format!("{text} on tensor cores"), 1, |graph| {
            let input = graph.input(numbers(&[140, 96])).unwrap();
            layer(graph, input, &text)
        });
    }
}

/// What is added is a parameter, whose gradient is summed over the batch, and queries are the same for all samples.
#[test]
fn parameters_in_attention() {
    for (width, is_narrow) in [(4, false), (16, true)] {
        let network = move |graph: &mut Graph| {
            let input = graph.input(numbers(&[6, 2 * width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let bias = chain(graph, x, "PositionEmbedding(6, 14) | Reshape([2; 6; 7])");
            let bias = chain(graph, bias, "Slice(1, dim = 3)");
            let queries = layer(graph, x, &format!("PositionEmbedding(6, {})", 2 * width));
            let [once, twice] = ["Attention(heads = 2)", "Attention(heads = 2, dropout = 0.2)"]
                .map(|text| join(graph, &[queries, x, x, bias], text));
            join(graph, &[once, twice], "Add")
        };
        if is_narrow { check_products("parameters", 2, network) } else { check("parameters", 3, network) }
    }
}

/// Tables of biases for the distances of positions, on an axis, in windows and in buckets, also of gradients that are added.
#[test]
fn relative_positions() {
    for (steps, options) in [
        (7, ""),
        (70, ", buckets = 8, max_distance = 20"),
        (20, ", buckets = 8, max_distance = 9, bidirectional = false"),
        (24, ", size = [4; 6]"),
        (24, ", size = [4; 6], absolute = true"),
    ] {
        let text = format!("RelativePositionBias(3{options})");
        check(&text, 2, |graph| {
            let input = graph.input(numbers(&[steps, 12])).unwrap();
            let x = layer(graph, input, "Tanh");
            let bias = layer(graph, x, &text);
            let again = again(graph, x, &text, graph.rows.len() - 1);
            let other = join(graph, &[x, x, x, again], "Attention(heads = 3, causal = true)");
            let attended = join(graph, &[x, other, x, bias], "Attention(heads = 3)");
            join(graph, &[attended, x], "Mul")
        });
    }
    check_products("biases in 16 bits", 2, |graph| {
        let input = graph.input(numbers(&[24, 32])).unwrap();
        let bias = layer(graph, input, "RelativePositionBias(2, size = [4; 6])");
        join(graph, &[input, input, input, bias], "Attention(heads = 2)")
    });
}

/// Windows of a map that was rolled, as Swin has them.
#[test]
fn shifted_windows() {
    for (size, window, shift, windows, steps) in [("[4; 6]", "2", "1", 6, 4), ("[6; 10]", "[3; 5]", "[1; 4]", 4, 15)] {
        let text = format!("ShiftedWindowMask({size}, {window}, {shift})");
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(&[windows, steps, 32])).unwrap();
            let mask = layer(graph, input, &text);
            let bias = layer(graph, input, "RelativePositionBias(2)");
            let bias = join(graph, &[mask, bias], "Add");
            join(graph, &[input, input, input, bias], "Attention(heads = 2)")
        };
        check(&text, 2, network);
        check_products(&format!("{text} in 16 bits"), 1, network);
    }
}

/// Sines and cosines of numbers, of tokens and of positions.
#[test]
fn sinusoids() {
    for text in [
        "SinusoidalEmbedding(10)",
        "SinusoidalEmbedding(300, base = 40.0, shift = 1.0, cosines_first = true) | Linear(3)",
        "Linear(8) | SinusoidalPositions",
        "Linear(8) | SinusoidalPositions(size = [2; 3]) | Affine(2.0)",
        "Linear(12) | SinusoidalPositions(interleaved = true, base = 100.0)",
        "Linear(8) | SinusoidalPositions(size = [2; 3], rows_first = true)",
        "Linear(8) | SinusoidalPositions(parts = true, interleaved = true)",
        "Linear(8) | SinusoidalPositions(size = [3; 2], parts = true, rows_first = true)",
    ] {
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(&[6, 1])).unwrap();
            let x = layer(graph, input, "Affine(3.0)");
            let y = chain(graph, x, text);
            join(graph, &[y, x], "Mul")
        };
        check(text, 2, network);
    }
    check("tokens", 2, |graph| {
        let input = graph.input(tokens(5)).unwrap();
        chain(graph, input, "SinusoidalEmbedding(10, cosines_first = true) | Linear(3)")
    });
    check_narrow("sines in 16 bits", 2, |graph| {
        let input = graph.input(numbers(&[6, 1])).unwrap();
        chain(graph, input, "SinusoidalEmbedding(10, base = 2.0)")
    });
}

/// Queries, keys and values side by side in windows, with what is added.
#[test]
fn windows_side_by_side() {
    for (width, is_narrow) in [(4, false), (16, true)] {
        let network = move |graph: &mut Graph| {
            let input = graph.input(numbers(&[4, 9, 6 * width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let bias = layer(graph, x, "RelativePositionBias(2, size = 3)");
            let mask = layer(graph, x, "ShiftedWindowMask([6; 6], 3, 1)");
            let both = join(graph, &[bias, mask], "Add");
            let attended =
                [join(graph, &[x, both], "Attention(heads = 2)"), join(graph, &[x, bias], "Attention(heads = 2)")];
            join(graph, &attended, "Add")
        };
        if is_narrow { check_products("windows", 2, network) } else { check("windows", 2, network) }
    }
}

/// One value as all three, whose gradients add up.
#[test]
fn attention_of_a_value_to_itself() {
    check("one value three times", 2, |graph| {
        let input = graph.input(numbers(&[9, 12])).unwrap();
        let x = layer(graph, input, "Tanh");
        join(graph, &[x, x, x], "Attention(heads = 3)")
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
        (48, "Rotary(3, dims = 8, size = [7; 1])"),
        (48, "Rotary(3, base = 30.0, size = [2; 3], before = 1)"),
        (24, "Rotary(2, dims = 8, interleaved = true, size = [2; 2], before = 3)"),
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
