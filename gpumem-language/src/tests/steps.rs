//! `lengths` and `segments`.

use super::caches::assert_says;
use super::{assert_mistakes, mistakes, mistakes_with, sound};
use crate::resolve::Resolved;
use gpumem_core::graph::Source;
use gpumem_core::program::Op;
use gpumem_core::program::ops::Seen;

/// A network over a sequence of 12 steps, with its lengths.
fn padded(output: &str, body: &str, items: &str) -> String {
    format!("pub struct Net; fn forward(x: Sequence<12, 8>, n: Lengths<12>) -> {output} {{ {body} }} {items}")
}

/// A network over a row of 12 steps, with its segments.
fn packed(body: &str) -> String {
    format!("pub struct Net; fn forward(x: Sequence<12, 8>, rows: Segments<12>) -> Sequence<12, 8> {{ {body} }}")
}

/// A decoder of 6 steps that attends to 12 steps of memory.
fn decoder(memory: &str, body: &str) -> String {
    format!(
        "pub struct Net; fn forward(x: Sequence<6, 8>, n: Lengths<6>, y: Sequence<{memory}, 8>, m: Lengths<{memory}>) -> Sequence<6, 8> \
         {{ [from(y), Linear(8), tap(memory), from(x), {body}] }}
         fn layer() -> Block {{ [MultiHeadAttention(2), Attention([], from(memory), from(memory), heads = 2), Linear(8)] }}"
    )
}

/// Which keys each attention of a network sees, and the node that says it.
fn seen(resolved: &Resolved) -> Vec<(Seen, Option<usize>)> {
    let attention = resolved.graph.nodes.iter().filter_map(|node| match &node.source {
        Source::Op { op: Op::Attention(op), inputs, .. } => {
            Some((op.seen, op.seen_by().map(|input| inputs[usize::from(input)])))
        }
        _ => None,
    });
    attention.collect()
}

/// How often each of the operations that know of steps is there: attention, reductions, masks.
fn counts(resolved: &Resolved) -> [usize; 3] {
    let mut found = [0; 3];
    for node in &resolved.graph.nodes {
        match &node.source {
            Source::Op { op: Op::Attention(op), .. } if op.seen != Seen::All => found[0] += 1,
            Source::Op { op: Op::Reduce(op), .. } if op.counted => found[1] += 1,
            Source::Op { op: Op::SequenceMask(_), .. } => found[2] += 1,
            _ => {}
        }
    }
    found
}

#[test]
fn every_attention_and_reduction_inside_counts_steps() {
    for (body, expected) in [
        ("[lengths(n, [repeat(3, TransformerBlock(8, 2, 16)), Mean(1)])]", [3, 1, 0]),
        ("[lengths(n, [block(CausalSelfAttention(2)), Max(1)])]", [1, 1, 0]),
        ("[lengths(n, [block(MultiHeadAttention(2, rotary = 10.0)), Linear(8)]), Mean(1)]", [1, 0, 0]),
        // Steps that are another axis for a while.
        ("[lengths(n, [Transpose(1, 2), Relu, Transpose(1, 2), MultiHeadAttention(2), Sum(1)])]", [1, 1, 0]),
        ("[lengths(n, [MultiHeadAttention(2, dropout = 0.1), Select(0)])]", [1, 0, 0]),
        // What looks at earlier steps only.
        (
            "[lengths(n, [Transpose(1, 2), Conv1d(8, 3, padding = 2), Slice(0, 12, dim = 2), Transpose(1, 2), Mean(1)])]",
            [0, 1, 0],
        ),
        ("[lengths(n, [Transpose(1, 2), Relu, AdaptiveMaxPool1d(1), Flatten])]", [0, 1, 0]),
        // Before it and after it, and for each direction before the recurrence and after it.
        ("[lengths(n, [Lstm(4, bidirectional = true), Mean(1)])]", [0, 1, 4]),
        ("[lengths(n, [Gru(8, 2), Mean(1)])]", [0, 1, 3]),
        // Over features there is nothing to count.
        ("[lengths(n, [MultiHeadAttention(2), Linear(8), Add([], Mean(2, keepdim = true)), Max(1)])]", [1, 1, 0]),
    ] {
        let block = if body.contains("block(") {
            "fn block(x: Block) -> Block { [Add([], [LayerNorm, x]), Dropout(0.1)] }"
        } else {
            ""
        };
        assert_eq!(counts(&sound(&padded("Features<8>", body, block))), expected, "{body}");
    }
    // Blocks of another crate know nothing of it.
    let text = padded("Sequence<12, 8>", "[lengths(n, encoder(2))]", "");
    let text =
        format!("use blocks other::parts; {text}").replace("lengths(n, encoder(2))", "lengths(n, parts::encoder(2))");
    let module = "pub fn encoder(depth: usize) -> Block { [repeat(depth, TransformerBlock(8, 2, 16))] }";
    assert_eq!(mistakes_with(&text, &[module]), []);
}

/// An attention belongs to the lengths of the value that its keys are computed from, also where both have as many steps.
#[test]
fn cross_attention_has_the_lengths_of_its_memory() {
    for memory in ["12", "6"] {
        let resolved = sound(&decoder(memory, "lengths(n, lengths(m, of = memory, repeat(2, layer())))"));
        assert_eq!(seen(&resolved), [[(Seen::Lengths, Some(1)), (Seen::Lengths, Some(3))]; 2].concat(), "{memory}");
        // The other way round, and within a block.
        let resolved = sound(&decoder(memory, "lengths(m, of = memory, lengths(n, [layer(), layer()]))"));
        assert_eq!(seen(&resolved), [[(Seen::Lengths, Some(1)), (Seen::Lengths, Some(3))]; 2].concat(), "{memory}");
    }
    // All steps of the memory count.
    let text = decoder("12", "lengths(n, lengths(12, of = memory, layer()))").replace(", m: Lengths<12>", "");
    assert_eq!(seen(&sound(&text)), [(Seen::Lengths, Some(1)), (Seen::All, None)]);
    // Nothing says so of a memory that has lengths of its own.
    let unknown = "layer 2 `Attention` attends to 12 keys that are not computed from the value of `lengths(n, ..)`; say how many of them \
                   count, as `lengths(m, of = memory, ..)`, or that all do, as `lengths(12, of = memory, ..)`, where `memory` is what they \
                   are computed from (in `layer()`)";
    let text = decoder("12", "lengths(n, layer())").replace(", m: Lengths<12>", "");
    assert_mistakes(&text, &[("Attention([], from(memory), from(memory), heads = 2)", unknown)]);
    // Keys that are the same for all samples have no steps to count.
    let text = "pub struct Net; fn forward(x: Sequence<12, 8>, n: Lengths<12>) -> Sequence<12, 8> {
        [lengths(n, [MultiHeadAttention(2), Attention([], table(), table())])] }
        fn table() -> Block { PositionEmbedding(12, 8) }";
    assert_eq!(seen(&sound(text)), [(Seen::Lengths, Some(1)), (Seen::All, None)]);
}

#[test]
fn what_looks_at_steps_after_the_end() {
    for (layers, layer) in [
        ("Transpose(1, 2), Conv1d(8, 3, padding = 1), Transpose(1, 2)", "Conv1d(8, 3, padding = 1)"),
        ("Transpose(1, 2), MaxPool1d(2)", "MaxPool1d(2)"),
        ("Transpose(1, 2), AdaptiveAvgPool1d(2)", "AdaptiveAvgPool1d(2)"),
        ("Transpose(1, 2), BatchNorm1d", "BatchNorm1d"),
        ("Transpose(1, 2), InstanceNorm1d", "InstanceNorm1d"),
        ("Linear(8), Softmax(1)", "Softmax(1)"),
        ("MatMul([], [], transpose_b = true)", "MatMul([], [], transpose_b = true)"),
        ("Linear(8), Flatten, Linear(8)", "Linear(8)"),
        ("Slice(11, 12, dim = 1), Linear(8)", "Slice(11, 12, dim = 1)"),
    ] {
        let found = mistakes(&padded("Sequence<12, 8>", &format!("[lengths(n, [{layers}])]"), ""));
        let (place, message) = found.first().unwrap_or_else(|| panic!("{layers}"));
        assert_eq!(place, layer);
        let said = " looks at steps after the end of a sample; put it outside of `lengths(n, ..)`";
        assert!(message.ends_with(said), "{layers}: {message}");
    }
    // Statistics at rest are those of a channel.
    sound(&padded(
        "Sequence<12, 8>",
        "[lengths(n, [Transpose(1, 2), eval(BatchNorm1d), Transpose(1, 2), MultiHeadAttention(2)])]",
        "",
    ));
}

#[test]
fn segments_are_apart() {
    let resolved = sound(&packed(
        "[segments(rows, [Add([], PositionEmbedding(12)), repeat(2, TransformerBlock(8, 2, 16, causal = true))])]",
    ));
    assert_eq!(seen(&resolved), [(Seen::Segments, Some(1)); 2]);
    let is_counted =
        |node: &gpumem_core::graph::Node| matches!(node.source, Source::Op { op: Op::SegmentPositions(_), .. });
    assert_eq!(resolved.graph.nodes.iter().filter(|node| is_counted(node)).count(), 1);
    sound(&packed("[segments(rows, [Add([], SinusoidalPositions), MultiHeadAttention(2, rotary = 100.0)])]"));
    for (layer, said) in [
        ("Lstm(8)", "looks at steps of other segments; put it outside of `segments(rows, ..)`"),
        ("Mean(1, keepdim = true)", "looks at steps of other segments; put it outside of `segments(rows, ..)`"),
        (
            "Add([], SinusoidalPositions(size = (3, 4)))",
            "places steps on a map, which documents in a row are not; leave `size` and `parts` out",
        ),
    ] {
        let found = mistakes(&packed(&format!("[segments(rows, [MultiHeadAttention(2), {layer}])]")));
        assert!(found.first().is_some_and(|(_, message)| message.ends_with(said)), "{layer}: {found:?}");
    }
    let text = "pub struct Net; fn forward(x: Tokens<12>, rows: Segments<12>) -> Sequence<12, 8> {
        [segments(rows, [Add(Embedding(9, 8), PositionEmbedding(14, 8, padding_idx = 1)), MultiHeadAttention(2)])] }";
    let said = "layer 1 `PositionEmbedding` counts tokens from the beginning of a row, whatever document they are of; leave `padding_idx` out";
    assert_mistakes(text, &[("padding_idx = 1", said)]);
    // Memory has no segments.
    let text =
        "pub struct Net; fn forward(x: Sequence<12, 8>, rows: Segments<12>, y: Sequence<12, 8>) -> Sequence<12, 8> {
        [from(x), Linear(8), tap(own), from(y), segments(rows, of = own, Attention([], from(own), from(own)))] }";
    let said = "layer 1 `Attention` attends to segments from another sequence; put it outside of `segments(rows, of = own, ..)`";
    assert_mistakes(text, &[("Attention([], from(own), from(own))", said)]);
}

#[test]
fn what_is_wrong_with_the_words() {
    let body = |body: &str| padded("Sequence<12, 8>", body, "");
    let usual = "`lengths(n, [repeat(12, TransformerBlock(768, 12, 3072)), Mean(1)])`";
    for written in ["lengths", "lengths()", "lengths(n)", "lengths(n, Relu, Relu)", "lengths(n, x = Relu)"] {
        let found = mistakes(&body(&format!("[lengths(n, MultiHeadAttention(2)), {written}]")));
        let expected = format!("`lengths` takes the name of an input and one element, as {usual}");
        assert!(found.contains(&(written.to_string(), expected)), "{found:?}");
    }
    let own = "MultiHeadAttention(2)";
    for (written, place, said) in [
        ("lengths(k, X)", "k", "no input is called `k`; declare it after the others, as `k: Lengths<512>`"),
        ("lengths(mm, X)", "mm", "no input is called `mm`; declare it after the others, as `mm: Lengths<512>`"),
        ("lengths(x, X)", "x", "`lengths` takes an input of the type `Lengths`, but `x` is a value"),
        ("segments(n, X)", "n", "`segments` takes an input of the type `Segments`, but `n` is `Lengths<12>`"),
        ("lengths(1.5, X)", "1.5", "`lengths` takes the name of an input, but `1.5` is a number with a fraction"),
        ("lengths(n, of = 3, X)", "of = 3", "`of` names a value that was tapped, or an input, as `of = memory`"),
        (
            "lengths(n, of = n, X)",
            "n",
            "`n` says which steps count and is no value; write `lengths(n, ..)` around the layers",
        ),
        (
            "lengths(n, of = memory, X)",
            "memory",
            "no value was tapped as `memory` before this; put `tap(memory)` where the value is",
        ),
    ] {
        let found = mistakes(&body(&format!("[lengths(n, {own}), {}]", written.replace('X', own))));
        assert_eq!(found, [(place.to_string(), said.to_string())], "{written}");
    }
    let twice = "`lengths(n, ..)` stands inside of `lengths(n, ..)`, which is about the same value; keep one";
    assert_mistakes(
        &body("[lengths(n, lengths(n, MultiHeadAttention(2)))]"),
        &[("lengths(n, MultiHeadAttention(2))", twice)],
    );
    let short =
        "`lengths(n, ..)` is about a sequence of 12 steps, but its value is [7, 8]; use one [12, D], or another type";
    let text = "[lengths(n, MultiHeadAttention(2)), Slice(5, dim = 1), lengths(n, Relu), Select(0)]";
    assert_mistakes(&padded("Features<8>", text, ""), &[("lengths(n, Relu)", short)]);
    let read = "`n` says which steps count and is no value; write `lengths(n, ..)` around the layers";
    assert_mistakes(&body("[lengths(n, MultiHeadAttention(2)), from(n)]"), &[("from(n)", read)]);
    let first = "`n` says which steps of a sequence count; put the sequence first";
    let text = "pub struct Net; fn forward(n: Lengths<12>, x: Sequence<12, 8>) -> Sequence<12, 8> { [from(x), lengths(n, Lstm(8))] }";
    assert_mistakes(text, &[("n", first)]);
    let nothing = "nothing asks how many steps count in `n`; put attention, recurrent layers or reductions over steps into \
                   `lengths(n, ..)`, or remove it";
    assert_mistakes(&body("[lengths(n, Linear(8))]"), &[("n", nothing)]);
    let nothing = "nothing asks for the segments in `rows`; put attention into `segments(rows, ..)`, or remove it";
    assert_mistakes(&packed("[Linear(8)]"), &[("rows", nothing)]);
    // Two sequences of as many steps are no one.
    let text = "pub struct Net; fn forward(x: Sequence<6, 8>, n: Lengths<6>, y: Sequence<6, 8>, m: Lengths<6>) -> Sequence<6, 8> {
        [from(y), Linear(8), tap(memory), from(x), lengths(n, lengths(m, of = memory, [MultiHeadAttention(2), Add([], from(memory))]))] }";
    let joins = "layer 2 `Add` joins steps of `lengths(n, ..)` with those of `lengths(m, of = memory, ..)`; join them outside of both";
    assert!(mistakes(text).iter().any(|(_, message)| message == joins), "{:?}", mistakes(text));
}

#[test]
fn decoding_knows_no_lengths() {
    let text = "pub struct Net; const INFER: Infer = Infer { batch: 1, cache: 12 };
        fn forward(x: Tokens<12>, n: Lengths<12>) -> TokenLogits<12, 9> {
            [Embedding(9, 8), lengths(n, CausalSelfAttention(2)), Linear(9)] }";
    let said = "`cache` counts steps as they come and knows no `lengths` and `segments`; decode with a network of the same layers \
                without them";
    assert_says(text, said);
}

/// A network that gives a number or classes for each step, with this loss.
fn measured(loss: &str, output: &str, body: &str) -> String {
    padded(
        output,
        body,
        &format!("const TRAIN: Train = Train {{ batch: 4, optimizer: Sgd {{ lr: 0.1 }}, loss: {loss} }};"),
    )
}

/// A mean over steps says which of them count.
#[test]
fn losses_of_steps_that_do_not_all_count() {
    let steps = "[lengths(n, MultiHeadAttention(2)), Linear(8)]";
    let tapped = "[lengths(n, [MultiHeadAttention(2), tap(inner)]), Linear(8)]";
    let sequence = "Sequence<12, 8>";
    for loss in [
        "Mse(lengths = n)",
        "Mse { reduction: Sum }",
        "Huber { delta: 0.5 }(lengths = n) + 0.5 * L1(from = inner, lengths = n, target = other)",
        "Mean(lengths = n)",
    ] {
        sound(&measured(loss, sequence, if loss.contains("inner") { tapped } else { steps }));
    }
    sound(&measured("CrossEntropy { ignore_index: -100 }", "TokenLogits<12, 8>", steps));
    // One value a sample.
    sound(&measured("Mse", "Features<8>", "[lengths(n, [MultiHeadAttention(2), Mean(1)]), Linear(8)]"));
    let silently = |loss: &str, instead: &str| {
        format!(
            "`{loss}` counts steps after the end of a sample like the others, which `n` says do not count; {instead}, or \
             `{loss} {{ reduction: Sum }}` if that is meant"
        )
    };
    for (loss, output, instead) in [
        ("Mse", sequence, "write `Mse(lengths = n)`"),
        ("Mean", sequence, "write `Mean(lengths = n)`"),
        (
            "CrossEntropy",
            "TokenLogits<12, 8>",
            "write `CrossEntropy { ignore_index: -100 }`, and label steps after the end -100",
        ),
    ] {
        let found = mistakes(&measured(loss, output, steps));
        assert_eq!(found, [(loss.to_string(), silently(loss, instead))]);
    }
    let found = mistakes(&measured("Mse(lengths = n) + Mse(from = inner, target = y)", sequence, tapped));
    assert_eq!(found[0].1, silently("Mse", "write `Mse(lengths = n)`"));
    for (loss, output, place, said) in [
        ("Mse(lengths = x)", sequence, "x", "`lengths` names an input of the type `Lengths`, but `x` is none"),
        ("Mse(lengths = k)", sequence, "k", "`lengths` names an input of the type `Lengths`, but `k` is none"),
        ("Mse(lengths = n, lengths = n)", sequence, "lengths", "`lengths` is given twice; remove one"),
        (
            "CrossEntropy(lengths = n)",
            "TokenLogits<12, 8>",
            "lengths",
            "`CrossEntropy` leaves out steps by their labels; write `CrossEntropy { ignore_index: -100 }`, and label steps after the end \
             -100",
        ),
    ] {
        let found = mistakes(&measured(loss, output, steps));
        assert!(found.contains(&(place.to_string(), said.to_string())), "{loss}: {found:?}");
    }
    let text = measured("Mse(lengths = n)", "Features<8>", "[lengths(n, [MultiHeadAttention(2), Mean(1)]), Linear(8)]");
    let said = "`n` is `Lengths<12>`, but the output is [8], whose first axis has other steps";
    assert_eq!(mistakes(&text), [("n".to_string(), said.to_string())]);
}

/// A mask says which steps count, as lengths do, and no term has both.
#[test]
fn losses_of_steps_with_factors() {
    let steps = "[lengths(n, MultiHeadAttention(2)), Linear(8)]";
    let (sequence, classes) = ("Sequence<12, 8>", "TokenLogits<12, 8>");
    sound(&measured("Mse(mask = m)", sequence, steps));
    sound(&measured("CrossEntropy(mask = m)", classes, steps));
    sound(&measured("0.5 * Mse(mask = m) + Mse(lengths = n)", sequence, steps));
    sound(&measured("Mse { reduction: Sum }(weights = w)", sequence, steps));
    let mask = "write `Mse(mask = m)` with a mask that is 0 after the end";
    for (loss, place, said) in [
        ("Mse(lengths = n, mask = m)", "mask", format!("`Mse` takes `lengths` or `mask`, not both; {mask}")),
        ("Mse(mask = m, lengths = n)", "lengths", format!("`Mse` takes `lengths` or `mask`, not both; {mask}")),
        (
            "Mse(lengths = n, weights = w)",
            "weights",
            format!("`Mse` takes `lengths` or `weights`, not both; {mask}, and the weight of the sample before"),
        ),
        (
            "Mse { reduction: Sum }(weights = w, lengths = n)",
            "lengths",
            format!("`Mse` takes `lengths` or `weights`, not both; {mask}, and the weight of the sample before"),
        ),
    ] {
        assert_eq!(mistakes(&measured(loss, sequence, steps)), [(place.to_string(), said)], "{loss}");
    }
    let targets = "CrossEntropy { targets: Probabilities }(lengths = n)";
    let said =
        "`CrossEntropy` leaves out steps by a mask; write `CrossEntropy(mask = m)` with a mask that is 0 after the end";
    let found = mistakes(&measured(targets, classes, steps));
    assert!(found.contains(&("lengths".to_string(), said.to_string())), "{found:?}");
}

/// Means over padding with factors, of classes that are no labels, and of several values.
#[test]
fn means_of_padding_that_a_mask_leaves_out() {
    let steps = "[lengths(n, MultiHeadAttention(2)), Linear(8)]";
    let two = "[lengths(n, [MultiHeadAttention(2), tap(a), Linear(8), tap(b), Linear(8), tap(c)]), Mean(1)]";
    let turned = "[lengths(n, MultiHeadAttention(2)), Linear(1), Flatten, tap(a), from(x), Flatten, Linear(12), tap(b), Linear(8)]";
    let mask = |loss: &str| format!("write `{loss}(mask = m)` with a mask that is 0 after the end");
    let weighted = |loss: &str| format!("{}, and the weight of the sample before", mask(loss));
    let inside = "measure what a reduction inside of `lengths` leaves".to_string();
    for (loss, name, output, body, instead) in [
        ("Mse(weights = w)", "Mse", "Sequence<12, 8>", steps, weighted("Mse")),
        (
            "CrossEntropy { ignore_index: -100 }(weights = w)",
            "CrossEntropy",
            "TokenLogits<12, 8>",
            steps,
            weighted("CrossEntropy"),
        ),
        ("CrossEntropy { targets: Probabilities }", "CrossEntropy", "TokenLogits<12, 8>", steps, mask("CrossEntropy")),
        ("CosineEmbedding(from = (a, b))", "CosineEmbedding", "Features<8>", two, mask("CosineEmbedding")),
        ("TripletMargin(from = (a, b, c))", "TripletMargin", "Features<8>", two, mask("TripletMargin")),
        ("MarginRanking(from = (b, a))", "MarginRanking", "Features<8>", two, mask("MarginRanking")),
        ("CosineEmbedding(from = (b, a))", "CosineEmbedding", "Features<8>", turned, inside.clone()),
    ] {
        let said = format!(
            "`{name}` counts steps after the end of a sample like the others, which `n` says do not count; {instead}, or \
             `{name} {{ reduction: Sum }}` if that is meant"
        );
        let found = mistakes(&measured(loss, output, body));
        assert!(found.iter().any(|(_, message)| *message == said), "{loss}: {found:?}");
    }
    let said = format!(
        "`NtXent` counts steps after the end of a sample like the others, which `n` says do not count; {inside}"
    );
    let found = mistakes(&measured("NtXent(from = (a, b))", "Features<8>", turned));
    assert!(found.iter().any(|(_, message)| *message == said), "{found:?}");
}
