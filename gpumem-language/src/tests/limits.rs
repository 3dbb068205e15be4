//! Networks that are too long, and what is refused of them at once.

use super::{assert_mistakes, forward, mistakes, sound};
use crate::resolve::STEPS;

/// Numbers that unroll to more than anyone means.
#[test]
fn limits() {
    let text = forward("Features<8>", "Features<8>", "[repeat(70000, Relu)]", "");
    let layers = "the network has more than 65534 layers; check its numbers";
    assert_mistakes(&text, &[("70000", layers)]);
    let text =
        forward("Features<8>", "Features<8>", "[repeat(300, [Linear(8), repeat(N, Relu)])]", "const N: u64 = 300;");
    assert_mistakes(&text, &[("300", layers)]);
    let text = forward("Features<8>", "Features<8>", "[Linear(8), repeat(1_000_000_000, [])]", "");
    assert_mistakes(
        &text,
        &[("1_000_000_000", "the network unrolls to more than 1048576 elements; check its numbers")],
    );
}

/// A repetition that is too long is refused after its first round, also where every layer of it would have an adapter.
#[test]
fn what_is_too_long_is_refused_at_once() {
    for body in [
        "[repeat(65536, Linear(8))]",
        "[lora(8, 16.0, repeat(65536, Linear(8)))]",
        "[repeat(65536, lora(8, 16.0, Linear(8), base = Nf4))]",
        "[repeat(256, [lora(8, 16.0, repeat(256, Linear(8)), targets = \"linear\"), Relu])]",
        "[repeat(18446744073709551615, [repeat(18446744073709551615, Relu)])]",
    ] {
        STEPS.set(0);
        let found = mistakes(&forward("Features<8>", "Features<8>", body, ""));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.starts_with("the network ") && found[0].1.contains(" more than "), "{found:?}");
        assert!((1..1000).contains(&STEPS.get()), "{body} resolved {} elements", STEPS.get());
    }
}

/// Each of many layers can have an adapter.
#[test]
fn many_adapters() {
    for body in [
        "[lora(8, 16.0, repeat(4000, Linear(8)), base = Nf4)]",
        "[repeat(2000, lora(8, 16.0, Linear(8), targets = \"linear\"))]",
    ] {
        sound(&forward("Features<8>", "Features<8>", body, ""));
    }
}

/// What is written as 0 is a mistake; what a number comes to may be 0.
#[test]
fn nothing_repeated() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[Linear(8), repeat(0, Relu), stage(1)]",
        "fn stage(n: usize) -> Block { [Linear(8), repeat(n - 1, Relu)] }",
    );
    assert_mistakes(&text, &[("0", "what is repeated 0 times is not there; remove it, or write how often")]);
}
