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
