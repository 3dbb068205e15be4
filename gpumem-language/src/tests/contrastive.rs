//! Losses that compare all samples of a batch with each other: what they take, and what is said of what they do not.

use super::{assert_mistakes, sound};

/// A network of two values for each sample, a scale and others that are tapped, and more settings.
fn with(loss: &str, settings: &str) -> String {
    format!(
        "struct Net; const TRAIN: Train = Train {{ {settings} loss: {loss} }};
         fn forward(image: Features<8>, text: Features<9>) -> Features<5> {{
             [Constant(2.5), tap(t), Constant([1.0, 2.0]), tap(pair), from(image),
              Concat([Linear(5), L2Norm, tap(one), Add([], from(t))], [from(text), Linear(5), L2Norm, tap(other)],
                     [Linear(2), Add([], from(pair))], [Linear(6), tap(wide)],
                     [Linear(6), Unsqueeze(1), tap(rows), Flatten], [Linear(6), Unsqueeze(1), tap(more), Flatten]),
              Concat([], from(one), from(other), from(wide), [from(rows), Flatten], [from(more), Flatten]),
              Linear(5)]
         }}"
    )
}

#[test]
fn losses_of_batches() {
    for loss in [
        "Contrastive(from = (one, other))",
        "Contrastive { temperature: 0.1 }(from = (one, other))",
        "Contrastive { scale: t }(from = (one, other)) + 0.5 * Contrastive(from = (other, one))",
        "Siglip(from = (one, other))",
        "Siglip { temperature: 0.2, bias: -3 }(from = (one, other))",
        "Siglip { scale: t, bias: t }(from = (one, other))",
        "NtXent { temperature: 0.2 }(from = (one, other)) + Mse",
        "NtXent { scale: t }(from = (one, other))",
    ] {
        sound(&with(loss, "batch: 4,"));
    }
    // Two outputs.
    sound(
        "struct Net; const TRAIN: Train = Train { batch: 4, loss: Contrastive };
         fn forward(image: Features<8>, text: Features<9>) -> (Features<5>, Features<5>) {
             Outputs([Linear(5), L2Norm], [from(text), Linear(5), L2Norm])
         }",
    );
}

#[test]
fn mistakes_of_losses_of_batches() {
    let whole = |loss: &'static str| loss;
    for (loss, place, message) in [
        (
            "Contrastive",
            whole("Contrastive"),
            "`Contrastive` compares two values, but `forward` returns one; return both, or name both, as \
             `Contrastive(from = (x, y))` with `tap(x)` and `tap(y)` in `forward`",
        ),
        ("Siglip(from = one)", "from = one", "`Siglip` compares two values; write `from = (x, y)`"),
        ("NtXent((one, other))", "(one, other)", "expected `from = (x, y)`, as `NtXent(from = (x, y))`"),
        (
            "NtXent(from = (one, other), target = ids)",
            "target = ids",
            "`NtXent` compares with no target; remove `target`",
        ),
        (
            "Contrastive(from = (one, other), weights = w)",
            "weights",
            "`Contrastive` has no option `weights`; `from` stands here, and in braces after the name `temperature` and `scale`",
        ),
        (
            "Contrastive(from = (one, wide))",
            whole("Contrastive(from = (one, wide))"),
            "`Contrastive` compares two values of one shape, but `one` is [5] and `wide` is [6]",
        ),
        (
            "Contrastive(from = (one, one))",
            whole("Contrastive(from = (one, one))"),
            "`Contrastive` compares `one` with itself; name another value",
        ),
        (
            "Contrastive(from = (rows, more))",
            whole("Contrastive(from = (rows, more))"),
            "`Contrastive` compares vectors, but `rows` is [1, 6]; flatten it first",
        ),
        ("Contrastive { temperature: 0 }(from = (one, other))", "0", "`temperature` is above 0 and finite"),
        (
            "Contrastive { temperature: T }(from = (one, other))",
            "T",
            "`temperature` changes the program, so it must be a literal, as `temperature: 0.5`",
        ),
        (
            "Contrastive { scale: 14.3 }(from = (one, other))",
            "14.3",
            "`scale` is the name of a value that is tapped and that all samples share, whose exponential multiplies the products; \
             for a number write `temperature: 0.07`",
        ),
        (
            "Contrastive { temperature: 0.1, scale: t }(from = (one, other))",
            "temperature",
            "products are divided by `temperature` or multiplied with the exponential of `scale`; remove one",
        ),
        (
            "Contrastive { scale: u }(from = (one, other))",
            "u",
            "`forward` taps no value as `u`; put `tap(u)` into `forward` where the value is",
        ),
        (
            "Contrastive { scale: wide }(from = (one, other))",
            "wide",
            "`scale` is one number that all samples share, but `wide` differs between samples",
        ),
        (
            "Siglip { bias: pair }(from = (one, other))",
            "pair",
            "`bias` is one number that all samples share, but `pair` is [2]",
        ),
        (
            "Contrastive { bias: t }(from = (one, other))",
            "bias",
            "`Contrastive` has no option `bias`; its options are `temperature` and `scale`",
        ),
        ("ClipLoss", "ClipLoss", "no loss is called `ClipLoss`; did you mean `Contrastive`?"),
        ("InfoNCE", "InfoNCE", "no loss is called `InfoNCE`; did you mean `NtXent`?"),
        ("SigLipLoss", "SigLipLoss", "no loss is called `SigLipLoss`; did you mean `Siglip`?"),
        ("NTXentLoss(0.1)", "NTXentLoss(0.1)", "no loss is called `NTXentLoss`; did you mean `NtXent`?"),
    ] {
        assert_mistakes(&with(loss, "batch: 4,"), &[(place, message)]);
    }
    let said = "a part of a batch knows none of the others, and `Siglip` compares all of them; remove `micro_batches`, or use \
                `checkpoint: Auto`";
    let text = with("Mse + Siglip(from = (one, other))", "batch: 4, micro_batches: 2,");
    assert_mistakes(&text, &[("2", said)]);
}
