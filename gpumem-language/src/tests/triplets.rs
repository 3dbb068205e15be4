//! Losses of three values, of two of which one is to be larger, and terms that are multiplied with what is handed in.

use super::{assert_mistakes, mistakes, sound};

/// A network of values of three shapes that are tapped.
fn with(loss: &str) -> String {
    format!(
        "struct Net; const TRAIN: Train = Train {{ batch: 4, loss: {loss} }};
         fn forward(x: Sequence<3, 5>) -> Logits<4> {{
             [Linear(5), tap(a), Linear(5), tap(p), Linear(5), tap(n), Linear(2), tap(wide), Flatten, tap(flat), Linear(6), tap(other),
              Reshape(1, 2, 3), tap(map), Flatten,
              Concat([], from(flat), from(other), [from(a), Flatten], [from(p), Flatten], [from(n), Flatten], [from(wide), Flatten],
                     [from(map), Flatten]), Linear(4)]
         }}"
    )
}

#[test]
fn losses_of_three_values() {
    for loss in [
        "TripletMargin(from = (a, p, n))",
        "TripletMargin { margin: 0.2, p: 1, swap: true, reduction: Sum }(from = (a, p, n), weights = w)",
        "TripletMargin { margin: 0, mining: Hardest }(from = flat, target = ids)",
        "CrossEntropy + 0.5 * TripletMargin { mining: Hardest, reduction: Sum }(from = other, target = ids)",
        "MarginRanking(from = (flat, other), target = y)",
        "MarginRanking { margin: -0.5 }(from = (a, p), target = y, mask = m)",
        "CrossEntropy(weights = w)",
        "CrossEntropy { ignore_index: -100 }(mask = m)",
        "Mse(from = flat, target = y, mask = m) + Huber(from = other, target = z, mask = m)",
        "Mean(from = flat, weights = w)",
    ] {
        sound(&with(loss));
    }
    sound(
        "struct Net; const TRAIN: Train = Train { batch: 4, loss: TripletMargin };
         fn forward(x: Features<8>, y: Features<8>, z: Features<8>) -> (Features<5>, Features<5>, Features<5>) {
             let encoder = Linear(5);
             Outputs(encoder, [from(y), encoder], [from(z), encoder])
         }",
    );
}

#[test]
fn mistakes_of_losses_of_three_values() {
    for (loss, place, message) in [
        (
            "TripletMargin",
            "TripletMargin",
            "`TripletMargin` compares three values, but `forward` returns fewer; return all of them, or name them, as \
             `TripletMargin(from = (a, p, n))` with `tap(a)`, `tap(p)` and `tap(n)` in `forward`",
        ),
        (
            "TripletMargin(from = (a, p))",
            "from = (a, p)",
            "`TripletMargin` compares three values; write `from = (a, p, n)`",
        ),
        (
            "TripletMargin(from = (a, p, n), target = ids)",
            "target = ids",
            "`TripletMargin` compares with no target; remove `target`",
        ),
        (
            "TripletMargin(from = (a, p, wide))",
            "TripletMargin(from = (a, p, wide))",
            "`TripletMargin` compares three values of one shape, but `a` is [3, 5] and `wide` is [3, 2]",
        ),
        (
            "TripletMargin(from = (a, p, a))",
            "TripletMargin(from = (a, p, a))",
            "`TripletMargin` compares `a` with itself; name another value",
        ),
        ("TripletMargin { p: 0.5 }(from = (a, p, n))", "0.5", "`p` is at least 1 and finite"),
        ("TripletMargin { margin: -1 }(from = (a, p, n))", "-1", "`margin` is at least 0 and finite"),
        (
            "TripletMargin { mining: SemiHard }(from = flat, target = ids)",
            "SemiHard",
            "`mining` is `Hardest`; leave it out for vectors of three values",
        ),
        (
            "TripletMargin { mining: Hardest, swap: true }(from = flat, target = ids)",
            "swap",
            "with `mining` distances are plain ones between samples; remove `swap`",
        ),
        (
            "TripletMargin { mining: Hardest }(from = (a, p, n), target = ids)",
            "from = (a, p, n)",
            "`from` is one name here; write `TripletMargin(from = a)`",
        ),
        (
            "TripletMargin { mining: Hardest }(from = a, target = ids)",
            "TripletMargin { mining: Hardest }(from = a, target = ids)",
            "`TripletMargin` compares vectors, but `a` is [3, 5]; flatten it first",
        ),
        ("MarginRanking { margin: 1e999 }(from = (flat, other))", "1e999", "`margin` is finite"),
        ("CrossEntropy(weights = w, mask = m)", "mask", "terms have `weights` or a `mask`; remove one"),
        ("CrossEntropy(weights = w, weights = v)", "weights", "`weights` is given twice; remove one"),
        (
            "CrossEntropy { mask: m }",
            "mask",
            "`CrossEntropy` has no option `mask`; it stands in parentheses after the options, as `(mask = name)`",
        ),
        (
            "Mean(from = flat, weights = other)",
            "other",
            "`weights` names what `train_step` is given, but `other` is a value of `forward`; choose another name",
        ),
        (
            "Mse(from = flat, target = y, mask = m) + Mse(from = a, target = z, mask = m)",
            "Mse(from = a, target = z, mask = m)",
            "this term compares with numbers of shape [3, 5], but the target is numbers of shape [6]; give it one of its own, as \
             `target = name`",
        ),
    ] {
        let found = mistakes(&with(loss));
        assert!(found.contains(&(place.to_string(), message.to_string())), "{loss}: {found:#?}");
    }
    let lost = with("NtXent(from = (flat, other), mask = m)");
    let said =
        "`NtXent` has no option `mask`; `from` stands here, and in braces after the name `temperature` and `scale`";
    assert_mistakes(&lost, &[("mask", said)]);
}
