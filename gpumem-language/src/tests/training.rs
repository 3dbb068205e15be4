//! One test for each message about what a training step is made of: recomputation, clipping, schedules.

use super::{assert_mistakes, forward, sound};

#[test]
fn mistakes_in_checkpoints() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[checkpoint(Linear(4), Relu), block()]",
        "#[checkpoint(2)] fn block() -> Block { [Relu] }",
    );
    assert_mistakes(
        &text,
        &[
            ("#[checkpoint(2)]", "`#[checkpoint]` takes no arguments; remove them"),
            (
                "checkpoint(Linear(4), Relu)",
                "`checkpoint` takes one element, as `checkpoint([Conv2d(64, 3), Relu])` or `checkpoint(stage(64))`",
            ),
        ],
    );
    let text = "struct Net; #[checkpoint] fn forward(x: Features<4>) -> Logits<4> { [Linear(4)] }";
    let message = "`#[checkpoint]` on `forward` would compute everything a second time and keep nothing less; put it on blocks, \
                   or write `checkpoint: Auto` in `TRAIN`";
    assert_mistakes(text, &[("#[checkpoint]", message)]);
}

/// What is inside a checkpoint runs again in the training step, and in no other program.
#[test]
fn checkpoints_run_again() {
    let step = |body: &str, block: &str| {
        let text =
            forward("Features<4>", "Logits<4>", body, &format!("{block} const TRAIN: Train = Train {{ batch: 4 }};"));
        sound(&text).graph.groups
    };
    let plain = step("[Linear(8), block(), Linear(4)]", "fn block() -> Block { [Tanh, Linear(8), Gelu] }");
    assert!(plain.is_empty());
    let block =
        step("[Linear(8), block(), Linear(4)]", "#[checkpoint] fn block() -> Block { [Tanh, Linear(8), Gelu] }");
    let list = step("[Linear(8), checkpoint([Tanh, Linear(8), Gelu]), Linear(4)]", "");
    assert_eq!(block, list);
    assert_eq!(block.len(), 1);
}

/// How gradients are clipped and how the learning rate changes.
#[test]
fn clipping_and_schedules() {
    let net = |fields: &str| {
        let train = format!("const TRAIN: Train = Train {{ batch: 4, {fields} }};");
        let constants = "const EPOCHS: usize = 3; const STEPS: usize = EPOCHS * 50_000 / 128; const NORM: f64 = 2.5; const LIST: [u64; 1] = [3];";
        forward("Features<4>", "Logits<4>", "[Linear(4)]", &format!("{train} {constants}"))
    };
    let readable = "the macro reads literals, constants that are declared inside the network, as `const STEPS: usize = 5000;`, and \
                    `+ - * / %` of these; what only the running program knows is set there, a rate with `set_lr`, and a `total` that is \
                    left out with `set_total`";
    let unknown = |name: &str| format!("no constant of the network is called `{name}`; {readable}");
    let unread = |part: &str| format!("`{part}` is no number that can be read; {readable}");
    let (limit, total, epochs) = (unknown("LIMIT"), unknown("TOTAL"), unknown("OUTER"));
    let (call, below, array) = (unread("steps()"), unread("3 - 5"), unread("LIST"));
    let all_schedules =
        "no schedule is called `Quadratic`; there are `Constant`, `Cosine`, `Linear`, `Step` and `OneCycle`";
    for (fields, place, message) in [
        (
            "clip: 1.0",
            "1.0",
            "how gradients are clipped must be literal, since the macro reads it; write `GlobalNorm(1.0)` or `Value(0.5)`",
        ),
        ("clip: Nrom(1.0)", "Nrom", "no way to clip gradients is called `Nrom`; there are `GlobalNorm` and `Value`"),
        ("clip: Valeu(1.0)", "Valeu", "no way to clip gradients is called `Valeu`; did you mean `Value`?"),
        ("clip: GlobalNorm", "GlobalNorm", "`GlobalNorm` has one number in parentheses, as `GlobalNorm(1.0)`"),
        ("clip: Value(1.0, 2.0)", "Value(1.0, 2.0)", "`Value` has one number in parentheses, as `Value(1.0)`"),
        ("clip: Value(LIMIT)", "LIMIT", limit.as_str()),
        ("clip: Value(0.0)", "0.0", "the number of `Value` must be above 0 and finite"),
        ("clip: GlobalNorm(-NORM)", "-NORM", "the number of `GlobalNorm` must be above 0 and finite"),
        ("schedule: Cosine { total: OUTER * 100 }", "OUTER", &epochs),
        ("schedule: Cosine { total: 100 * (EPOCHS + OUTER as u64) }", "OUTER", &epochs),
        ("schedule: Cosine { total: steps() * 3 }", "steps()", &call),
        ("schedule: Cosine { total: 100 + (3 - 5) }", "3 - 5", &below),
        ("schedule: Cosine { total: LIST }", "LIST", &array),
        ("clip: GlobalNorm(NORM - 2.5)", "NORM - 2.5", "the number of `GlobalNorm` must be above 0 and finite"),
        (
            "clip: GlobalNorm(1.0), update: Fused",
            "Fused",
            "`clip: GlobalNorm` needs all gradients before the first update, so that updates are `Separate`; remove \
             `update: Fused`, or clip each number by itself, as `clip: Value(0.5)`",
        ),
        (
            "schedule: 5000",
            "5000",
            "the schedule must be literal, since the macro reads it; write it out, as `Cosine { warmup: 100, total: 5000 }`",
        ),
        ("schedule: Quadratic", "Quadratic", all_schedules),
        (
            "schedule: CosineAnnealingLR { total: 3 }",
            "CosineAnnealingLR",
            "no schedule is called `CosineAnnealingLR`; did you mean `Cosine`?",
        ),
        (
            "schedule: Cosine(total = 3)",
            "Cosine(total = 3)",
            "numbers of a schedule stand in braces; write `Cosine { total: 1000 }`",
        ),
        (
            "schedule: Cosine { total: 0 }",
            "0",
            "`total` is 0 steps; use at least 1, or leave it out and call `set_total`",
        ),
        (
            "schedule: OneCycle { pct_start: 1.5 }",
            "1.5",
            "`pct_start` is a share of the steps; it must be above 0 and below 1",
        ),
        ("measure: Norm", "Norm", "no value of `measure` is called `Norm`; there are `None` and `GradientNorm`"),
        (
            "measure: GradientNorm, update: Fused",
            "Fused",
            "`measure: GradientNorm` holds all gradients until their norm is known, so that updates are `Separate`; remove \
             `update: Fused`",
        ),
        ("ema: 1.0", "1.0", "`decay` is the share of the averages that a step keeps; it must be from 0 to below 1"),
        ("ema: Ema { every: 0 }", "0", "`every` is 0 steps; use at least 1"),
        ("ema: Ema { every: 1.5 }", "1.5", "`every` counts steps, so it is a whole number, as `every: 10`"),
        ("ema: Ema { decya: 0.9 }", "decya", "`Ema` has no `decya`; did you mean `decay`?"),
        ("ema: Ema { decay: 0.9, decay: 0.8 }", "decay", "`decay` is given twice; remove one"),
        ("ema: Ema { decay: 0.9, .. }", "..", "fields left out take their defaults; remove this"),
        ("ema: Ema { warmup: 1 }", "1", "`warmup` must be literal, since the macro reads it; write `true` or `false`"),
        (
            "ema: AveragedModel(0.9)",
            "AveragedModel(0.9)",
            "moving averages are written as the share of them that a step keeps, `ema: 0.999`, or with more fields as \
             `Ema { decay: 0.9999, warmup: true }`",
        ),
        ("ema: LIMIT", "LIMIT", limit.as_str()),
        ("skip: 3", "3", "the value of `skip` must be literal, since the macro reads it; write `None` or `NonFinite`"),
        (
            "skip: NonFinite, update: Fused",
            "Fused",
            "`skip: NonFinite` looks at all gradients before the first update; remove `update: Fused`",
        ),
        (
            "schedule: Step { factor: 0.5 }",
            "Step { factor: 0.5 }",
            "`Step` needs `every`, a number of steps; write `Step { every: 1000 }`",
        ),
        ("schedule: Cosine { total: 5, eta_min: 0.0 }", "eta_min", "`Cosine` has no `eta_min`; did you mean `min`?"),
        (
            "schedule: OneCycle { total: 50, anneal: 1 }",
            "anneal",
            "`OneCycle` has no `anneal`; it has `total`, `pct_start`, `div_factor` and `final_div_factor`",
        ),
        ("schedule: Step { every: 5, every: 6 }", "every", "`every` is given twice; remove one"),
        ("schedule: Step { every: 5, .. }", "..", "numbers left out take their defaults; remove this"),
        ("schedule: Step { every: 5.0 }", "5.0", "`every` counts steps, so it is a whole number, as `every: 100`"),
        ("schedule: Linear { total: TOTAL }", "TOTAL", &total),
        (
            "schedule: Linear { warmup: 100, total: 100 }",
            "100",
            "`total` is 100 steps, the 100 of `warmup` among them; it must be more than these",
        ),
        (
            "schedule: Cosine { total: 100, min: -1e-3 }",
            "-1e-3",
            "`min` is a learning rate; it must be 0 or more and finite",
        ),
        ("schedule: Step { every: 0 }", "0", "`every` is 0 steps; use at least 1"),
        ("schedule: Step { every: 1, factor: 0.0 }", "0.0", "`factor` must be above 0 and finite"),
        ("schedule: OneCycle { total: 1 }", "1", "`total` must be at least 2 steps"),
        (
            "schedule: OneCycle { total: 3 }",
            "OneCycle { total: 3 }",
            "`pct_start` is a share of the 3 steps; it must be more than one of them, and below 1",
        ),
        ("schedule: OneCycle { total: 100, div_factor: 0.5 }", "0.5", "`div_factor` must be 1 or more and finite"),
        (
            "schedule: OneCycle { total: 100, final_div_factor: 0 }",
            "0",
            "`final_div_factor` must be 1 or more and finite",
        ),
        (
            "schedule: Constant { warmup: 9_007_199_254_740_992 }",
            "9_007_199_254_740_992",
            "`warmup` is more steps than can be counted",
        ),
    ] {
        assert_mistakes(&net(fields), &[(place, message)]);
    }
    for fields in [
        "clip: GlobalNorm(NORM / 2.0), schedule: Cosine { warmup: STEPS / 10, total: STEPS, min: 1e-6 }",
        "clip: Value(0.5), update: Fused, schedule: Constant",
        "clip: Value(-(NORM - 3.0)), schedule: Cosine { total: EPOCHS * 100, warmup: (0.1 * STEPS as f64) as u64 }",
        "schedule: Step { every: STEPS % 100 + 1 as u64, factor: 1.0 / EPOCHS as f64 }",
        "clip: GlobalNorm(1), update: Separate, schedule: OneCycle { total: 100 }",
        "schedule: Cosine, measure: GradientNorm, skip: NonFinite",
        "ema: 0.999, update: Fused",
        "ema: Ema { decay: 1.0 - 1.0 / STEPS as f64, warmup: true, every: EPOCHS }",
        "schedule: OneCycle { pct_start: 0.1 }, skip: NonFinite, update: Separate",
    ] {
        assert_mistakes(&net(fields), &[]);
    }
}
