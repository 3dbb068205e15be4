//! Messages about a `cache` in `INFER` and what layers need for one.

use super::{assert_mistakes, forward};

/// A network of tokens with this in `INFER`.
pub(super) fn stepping(infer: &str, layers: &str) -> String {
    forward(
        "Tokens<8>",
        "TokenLogits<8, 5>",
        &format!("[Embedding(5, 6), {layers}, Linear(5)]"),
        &format!("const INFER: Infer = Infer {{ {infer} }};"),
    )
}

/// Inference with a cache: numbers that stand there.
#[test]
fn caches() {
    let net = stepping;
    let causal = "CausalSelfAttention(2)";
    for sound in [
        "cache: 8",
        "batch: N, cache: 4096, chunk: 64",
        "cache: 3, chunk: 3, precision: Bf16, cards: [T4], headroom: 0",
    ] {
        assert_mistakes(&net(sound, causal), &[]);
    }
    let literal = |name: &str| format!("`{name}` changes the program, so it must be a literal number");
    for (written, place, message) in [
        ("cache: CONTEXT", "CONTEXT", literal("cache").as_str()),
        ("cache: 9, chunk: 2 * 4", "2 * 4", &literal("chunk")),
        ("cache: 0", "0", "`cache` is 0 steps; use at least 1"),
        ("cache: 4, chunk: 0", "0", "`chunk` is 0 steps; use at least 1"),
        ("cache: 4, chunk: 5", "chunk: 5", "a pass has 5 steps, but `cache` keeps only 4; use at most 4"),
        (
            "chunk: 5",
            "chunk: 5",
            "`chunk` says how many steps of a sequence go into one pass; write `cache` too, the most that it can have",
        ),
    ] {
        assert_mistakes(&net(written, causal), &[(place, message)]);
    }
}

/// Asserts that a network expands to an error with this text.
#[track_caller]
pub(super) fn assert_says(text: &str, said: &str) {
    let expansion = crate::network(text.parse().expect("balanced tokens")).to_string();
    assert!(expansion.contains(said), "{said}: {expansion}");
}

/// Inference with a cache: tokens that become rows, and layers that go step by step.
#[test]
fn what_a_cache_needs() {
    let net = stepping;
    assert!(
        !crate::network(net("cache: 9", "CausalSelfAttention(2)").parse().unwrap())
            .to_string()
            .contains("compile_error")
    );
    let several = "does not go step by step: with `cache` in `INFER`, a layer treats each step alone, or is causal attention, a causal `Conv1d`, a \
         `SelectiveScan`, or recurrent";
    let later = "lets a step see later ones, which `cache` in `INFER` does not know when it comes to that step; use causal attention";
    for (layers, layer, message) in [
        ("MultiHeadAttention(2)", "layer 1 `MultiHeadAttention`", later),
        (
            "Lstm(6, bidirectional = true)",
            "layer 1 `Lstm`",
            "goes from the last step to the first, too, which `cache` in `INFER` does not know when it comes to a step before; leave out \
             `bidirectional`",
        ),
        ("Transpose(1, 2), Softmax, Transpose(1, 2)", "layer 2 `Softmax`", several),
        ("Attention(Linear(6), Linear(6), Linear(6), AlibiBias(2), heads = 2, causal)", "layer 5 `Attention`", several),
        (
            "Transpose(1, 2), Conv1d(8, 3, padding = 1), Transpose(1, 2)",
            "layer 2 `Conv1d`",
            "lets a step see later ones, which `cache` in `INFER` does not know when it comes to that step: write `padding = 2`, and after it \
             `Slice(0, -2, dim = -1)`",
        ),
        ("Transpose(1, 2), Conv1d(8, 3, padding = 5, stride = 2), Transpose(1, 2)", "layer 2 `Conv1d`", several),
        ("Transpose(1, 2), ConvTranspose1d(8, 1), Transpose(1, 2)", "layer 2 `ConvTranspose1d`", several),
        ("Roll(1, 1)", "layer 1 `Roll`", several),
        ("Unsqueeze(1), GroupNorm(1), Squeeze(1)", "layer 2 `GroupNorm`", several),
        (
            "Add([], PositionEmbedding(8))",
            "layer 1 `PositionEmbedding`",
            "has 8 positions, but `cache` in `INFER` keeps 9 steps; give it 9 positions, or write `cache: 8`",
        ),
    ] {
        assert_says(&net("cache: 9", layers), &format!("{layer} {message}"));
    }
    let tokens = "`cache` needs a network from tokens to a row for each of them, as `fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, \
                  50257>`";
    for (input, output, layers) in [
        ("Sequence<8, 5>", "Sequence<8, 5>", "[CausalSelfAttention(1), Linear(5)]"),
        ("Tokens<8>", "Logits<5>", "[Embedding(5, 4), Select(-1), Linear(5)]"),
    ] {
        let text = forward(input, output, layers, "const INFER: Infer = Infer { cache: 9 };");
        assert_says(&text, tokens);
    }
}
