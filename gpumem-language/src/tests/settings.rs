//! One test for each message about `TRAIN`, `INFER` and the items around `forward`.

use super::caches::stepping;
use super::{assert_mistakes, forward, mistakes};
use crate::settings::loss;
use gpumem_core::layers::mistake::listed;
use gpumem_core::train::optim::Optimizer;

#[test]
fn training_settings() {
    let train = |fields: &str| {
        let batch = if fields.contains("batch:") { "" } else { "batch: 4, " };
        let fields = format!("{batch}{fields}");
        forward("Features<4>", "Logits<4>", "[Linear(4)]", &format!("const TRAIN: Train = Train {{ {fields} }};"))
    };
    for (fields, place, message) in [
        ("micro_batches: N", "N", "`micro_batches` changes the program, so it must be a literal"),
        (
            "ranks: N",
            "N",
            "`ranks` changes the program, so it must be a literal; `GPUMEM_RANKS=4 cargo build` replaces it",
        ),
        ("ranks: 0", "0", "`ranks` must be at least 1"),
        ("ranks: -2", "-2", "`ranks` must be at least 1"),
        ("ranks: 70000", "70000", "`ranks` must be at most 65536"),
        ("ranks: 3", "3", "a batch of 4 does not split over 3 ranks; use a batch of 3 or 6"),
        (
            "ranks: 2, micro_batches: 4",
            "2",
            "a batch of 4 does not split over 2 ranks with 4 micro-batches each; use a batch of 8",
        ),
        (
            "ranks: 2, shard: Weights",
            "Weights",
            "no value of `shard` is called `Weights`; there are `None`, `Optimizer`, `Gradients` and `Parameters`",
        ),
        (
            "shard: Gradients",
            "Gradients",
            "one rank has nothing to share; write how many there are, as `ranks: 8, shard: Gradients`",
        ),
        (
            "ranks: 2, shard: Optimizer, optimizer: Muon { lr: 1e-3 }",
            "Optimizer",
            "`shard: Optimizer` lets a rank update its part of a parameter, but `Muon` does not treat each element by itself; choose one \
             that does, as `AdamW` or `Lion`, or leave `shard` out",
        ),
        ("ranks: 2, bucket: 0", "0", "a bucket has at least 1 byte; write its size, as `bucket: mib(32.0)`"),
        (
            "ranks: 2, bucket: SIZE",
            "SIZE",
            "`bucket` changes the program, so it must be literal; write its size, as `bucket: mib(32.0)`",
        ),
        ("ranks: 2, channels: 65", "65", "`channels` is a literal from 1 to 64, the most that NCCL has"),
        (
            "ranks: 2, sync_batch_norm: SYNC",
            "SYNC",
            "`sync_batch_norm` changes the program, so it must be literal; write `true` or `false`",
        ),
        (
            "sync_batch_norm: true",
            "true",
            "one rank has nothing to synchronise; write how many there are, as `ranks: 8, sync_batch_norm: true`",
        ),
        ("world_size: 8", "world_size", "`TRAIN` has no field `world_size`; did you mean `ranks`, as `ranks: 8`?"),
        ("fsdp: true", "fsdp", "`TRAIN` has no field `fsdp`; did you mean `shard`, as `ranks: 8, shard: Parameters`?"),
        ("optimizer: Adam { 1e-3 }", "1e-3", "values have names here; write `lr: 1e-3`"),
        ("optimizer: Adam { -1, 2 }", "-", "values have names here; write `lr: -1`"),
        ("loss: Huber { 0.5 }", "0.5", "values have names here; write `delta: 0.5`"),
        ("loss: Ctc { 32 }", "32", "values have names here; write `target_length: 32`"),
        ("loss: BceWithLogits { [2.0, 3.0] }", "[2.0, 3.0]", "values have names here; write `pos_weight: [2.0, 3.0]`"),
        ("loss: Mse { 0.5 }", "0.5", "values have names here, as `name: 0.5`; write the one that is meant"),
        ("schedule: Cosine { 5000 }", "5000", "values have names here; write `total: 5000`"),
        ("schedule: Constant { 100 }", "100", "values have names here; write `warmup: 100`"),
        ("batch: 1, batch: 2", "batch", "`batch` is given twice; remove one"),
        ("precision: F61", "F61", "no precision is called `F61`; did you mean `F16`?"),
        ("precision: Mixed(F32)", "F32", "no 16-bit format is called `F32`; there are `Bf16` and `F16`"),
        ("loss: CrossEntropyy", "CrossEntropyy", "no loss is called `CrossEntropyy`; did you mean `CrossEntropy`?"),
        ("update: Later", "Later", "no update is called `Later`; there are `Fused` and `Separate`"),
        ("conv_norm: Apart", "Apart", "no value of `conv_norm` is called `Apart`; there are `Fused` and `Separate`"),
        (
            "conv_norm: false",
            "false",
            "the value of `conv_norm` must be literal, since the macro reads it; write `Fused` or `Separate`",
        ),
        ("checkpoint: Auot", "Auot", "no checkpoint is called `Auot`; did you mean `Auto`?"),
        (
            "checkpoint: Sqrt",
            "Sqrt",
            "no checkpoint is called `Sqrt`; there are `Norms`, `None`, `Cheap`, `Auto` and `Budget(0.6)`",
        ),
        (
            "checkpoint: 0.6",
            "0.6",
            "the checkpoint must be literal, since the macro reads it; write `Norms`, `None`, `Cheap`, `Auto` or `Budget(0.6)`",
        ),
        (
            "checkpoint: Budget(60)",
            "60",
            "the budget is a share of what activations take without recomputation, above 0 and at most 1, as `Budget(0.6)`",
        ),
        (
            "checkpoint: Budget(SHARE)",
            "SHARE",
            "the budget must be literal, since the macro reads it; write a number, as `Budget(0.6)`",
        ),
        ("optimizer: Adam { beta: 1 }", "beta", "`Adam` has no hyperparameter `beta`; did you mean `betas`?"),
        (
            "optimizer: Sgd { lr: 1.0, maximize: true }",
            "maximize",
            "`Sgd` has no hyperparameter `maximize`; a step makes the loss smaller; what is to grow has `Affine(-1.0)` after it, \
             with `loss: Mean`",
        ),
        (
            "optimizer: AdamW { foreach: true }",
            "foreach",
            "`AdamW` has no hyperparameter `foreach`; how it runs is no choice; leave it out",
        ),
        (
            "loss: HingeEmbedding",
            "HingeEmbedding",
            &format!("no loss is called `HingeEmbedding`; there are {}", listed(&loss::names())),
        ),
        (
            "schedule: ExponentialLR { gamma: 0.9 }",
            "ExponentialLR",
            "no schedule is called `ExponentialLR`; it is `Step { every: 1, factor: 0.95 }`",
        ),
        (
            "schedule: CosineAnnealingWarmRestarts { t_0: 3 }",
            "CosineAnnealingWarmRestarts",
            "no schedule is called `CosineAnnealingWarmRestarts`; a training loop says with `set_lr` what no schedule says",
        ),
        ("optimizer: Adam { eps: 1, eps: 1 }", "eps", "`eps` is given twice; remove one"),
        ("optimizer: Sgd { lr: 1.0, .. }", "..", "hyperparameters left out take PyTorch's defaults; remove this"),
        (
            "optimizer: make()",
            "make()",
            "the optimizer must be literal, since the macro reads it; write it out, as `Sgd { lr: 0.01 }`",
        ),
        ("cards: CARDS", "CARDS", "the cards are read by the macro as they stand; write a list, as `[RTX_3060]`"),
    ] {
        assert_mistakes(&train(fields), &[(place, message)]);
    }
    let optimizers: Vec<String> = Optimizer::ROWS.iter().map(|row| format!("`{}`", row.name)).collect();
    let (last, others) = optimizers.split_last().expect("there are some");
    let message = format!("no optimizer is called `Lbfgs`; there are {} and {last}", others.join(", "));
    assert_mistakes(&train("optimizer: Lbfgs { lr: 0.1 }"), &[("Lbfgs", &message)]);
    assert_mistakes(&train("batch: N * 2, optimizer: AdamW, update: Separate, cards: [RTX_3080, T4], seed: 3"), &[]);
    assert_mistakes(&train("checkpoint: Auto"), &[]);
    assert_mistakes(&train("conv_norm: Separate"), &[]);
    assert_mistakes(&train("conv_norm: ConvNorm::Fused"), &[]);
    assert_mistakes(&train("checkpoint: Checkpoint::Budget(0.5)"), &[]);
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[Linear(4)]",
        "const TRAIN: Train = Train { batch: 4, loss: CrossEntropy };",
    );
    assert_mistakes(
        &text,
        &[(
            "CrossEntropy",
            "`CrossEntropy` compares classes, but `forward` returns `Features<4>`; return `Logits`, `TokenLogits` or `Map`, or \
             use `loss: Mse`",
        )],
    );
    let text = forward(
        "Volume<1, 2, 3, 4>",
        "Volume<5, 2, 3, 4>",
        "[Conv3d(5, 1)]",
        "const TRAIN: Train = Train { batch: 4, loss: CrossEntropy };",
    );
    assert_mistakes(
        &text,
        &[(
            "CrossEntropy",
            "`CrossEntropy` compares classes, but `forward` returns `Volume<5, 2, 3, 4>`; its voxels are the pixels of \
             `Map<5, 6, 4>` after `Reshape(5, 6, 4)`",
        )],
    );
    let text = forward("Features<4>", "Features<4>", "[Linear(4)]", "const INFER: Infer = Infer { loss: Mse };");
    assert_mistakes(
        &text,
        &[(
            "loss",
            "`INFER` has no field `loss`; its fields are `batch`, `precision`, `cards`, `headroom`, `cache` and `chunk`",
        )],
    );
}

/// Fields that rustc evaluates: a literal that they cannot be is said in their own words, all at once.
#[test]
fn literals_of_fields() {
    let net = |constant: &str, fields: &str| {
        let settings = match constant {
            "TRAIN" => format!("const TRAIN: Train = Train {{ {fields} }};"),
            _ => format!("const INFER: Infer = Infer {{ {fields} }};"),
        };
        forward("Features<4>", "Logits<4>", "[Linear(4)]", &settings)
    };
    let batch = "the batch is a whole number of samples, as `batch: 32`";
    let seed = "`seed` is a whole number from 0 to 18446744073709551615, as `seed: 1`";
    for (fields, place, message) in [
        ("batch: -4", "-4", "the batch is -4; a step needs at least 1 sample"),
        ("batch: (0)", "(0)", "the batch is 0; a step needs at least 1 sample"),
        ("batch: 32.0", "32.0", "the batch is a whole number of samples; write `batch: 32`"),
        ("batch: 0.5", "0.5", batch),
        ("batch: \"8\"", "\"8\"", batch),
        ("batch: None", "None", batch),
        ("batch: 4, headroom: 1", "1", "`headroom` is 1 byte here; write a size as `gib(1.0)` or `mib(1.0)`"),
        (
            "batch: 4, headroom: 512",
            "512",
            "`headroom` is 512 bytes here; write a size as `gib(512.0)` or `mib(512.0)`",
        ),
        ("batch: 4, headroom: 1.5", "1.5", "`headroom` counts bytes; write a size as `gib(1.5)` or `mib(1.5)`"),
        ("batch: 4, headroom: -1", "-1", "`headroom` is a size from 0 on; write it as `gib(1.5)` or `mib(512.0)`"),
        (
            "batch: 4, headroom: \"1GiB\"",
            "\"1GiB\"",
            "`headroom` is a size from 0 on; write it as `gib(1.5)` or `mib(512.0)`",
        ),
    ] {
        for constant in ["TRAIN", "INFER"] {
            assert_mistakes(&net(constant, fields), &[(place, message)]);
            // Nothing is left for rustc to say.
            let expansion = crate::network(net(constant, fields).parse().expect("balanced tokens")).to_string();
            assert!(!expansion.contains(": - 4") && !expansion.contains("\"8\""), "{expansion}");
        }
    }
    for (fields, place, message) in [
        ("seed: -1", "-1", seed),
        ("seed: 0.5", "0.5", seed),
        ("seed: \"a\"", "\"a\"", seed),
        ("seed: 18446744073709551616", "18446744073709551616", seed),
        ("seed: None", "None", "there is always a seed, 0 if it is left out; leave it out"),
        ("tf32: \"yes\"", "\"yes\"", "`tf32` is `true` or `false`, not `\"yes\"`"),
        ("tf32: -1", "-1", "`tf32` is `true` or `false`, not `-1`"),
        ("deterministic: 1", "1", "`deterministic` is `true` or `false`, not `1`"),
        ("deterministic: True", "True", "write `true`"),
        ("conv_workspace: 64", "64", "`conv_workspace` is 64 bytes here; write a size as `gib(64.0)` or `mib(64.0)`"),
        ("micro_batches: -2", "-2", "`micro_batches` must be at least 1"),
    ] {
        assert_mistakes(&net("TRAIN", &format!("batch: 4, {fields}")), &[(place, message)]);
    }
    let several = net("TRAIN", "batch: -1, seed: -2, tf32: 0, headroom: 2, schedule: Cosine { total: N }");
    assert_eq!(mistakes(&several).len(), 5);
    for fields in [
        "batch: N, seed: S + 1, tf32: FAST, headroom: gib(1.5), conv_workspace: 0",
        "batch: 4, headroom: 1 << 10, conv_workspace: 1048576",
    ] {
        assert_mistakes(&net("TRAIN", fields), &[]);
    }
    assert_mistakes(&stepping("cache: -1", "CausalSelfAttention(2)"), &[("-1", "`cache` is -1 steps; use at least 1")]);
}

/// A constant without its type, or without its value.
#[test]
fn settings_without_a_type() {
    for (written, constant) in [
        ("const TRAIN = Train { batch: 4 };", "TRAIN"),
        ("const TRAIN: Train { batch: 4 };", "TRAIN"),
        ("const INFER = Infer { batch: 4 };", "INFER"),
        ("static INFER = Infer { batch: 4 };", "INFER"),
    ] {
        let kind = if constant == "TRAIN" { "Train" } else { "Infer" };
        let said = format!("write its type and its value: `const {constant}: {kind} = {kind} {{ .. }};`");
        let found = mistakes(&forward("Features<4>", "Logits<4>", "[Linear(4)]", written));
        assert!(found.contains(&(constant.to_string(), said)), "{found:#?}");
        assert!(found.len() == 1 || written.starts_with("static"), "{found:#?}");
    }
}

/// Attributes and documentation where there are none.
#[test]
fn attributes_within() {
    let condition = "no part of a network has a condition; put `#[cfg(..)]` before `pub struct ..;`, where it is for the whole network, and \
                     write a second network for the other case";
    let docs = "documentation stands before the struct and before a `fn`; here write a comment, with `//`";
    let none = "no attributes stand here; remove it";
    let freeze = "`#[freeze]` stands before a block's `fn`; around layers write `freeze([..])`";
    for (body, place, message) in [
        ("[#[cfg(test)] Relu, Linear(4)]", "#[cfg(test)]", condition),
        ("[/// The head.\n Linear(4)]", "/// The head.", docs),
        ("[/// One.\n /// Two.\n Linear(4)]", "/// One.\n /// Two.", docs),
        ("[Linear(4), /// The end.\n]", "/// The end.", docs),
        ("[#[allow(unused)] Linear(4)]", "#[allow(unused)]", none),
        ("[#[freeze] Relu, Linear(4)]", "#[freeze]", freeze),
        ("[Add([], #[cfg(test)] Linear(4))]", "#[cfg(test)]", condition),
        ("[Linear(4, #[cfg(test)] bias = false)]", "#[cfg(test)]", condition),
        ("/// The head.\n let w = Linear(4); [w]", "/// The head.", docs),
        ("let w = Linear(4); #[cfg(test)] [w]", "#[cfg(test)]", condition),
    ] {
        assert_mistakes(&forward("Features<4>", "Features<4>", body, ""), &[(place, message)]);
    }
    let train = "const TRAIN: Train = Train { #[cfg(test)] batch: 4, /// The loss.\n loss: Mse };";
    assert_mistakes(
        &forward("Features<4>", "Features<4>", "[Linear(4)]", train),
        &[("#[cfg(test)]", condition), ("/// The loss.", docs)],
    );
    let block = "fn block(#[cfg(test)] n: usize) -> Block { [Linear(n)] }";
    assert_mistakes(&forward("Features<4>", "Features<4>", "[block(4)]", block), &[("#[cfg(test)]", condition)]);
    let operation = "operation! { fn Twice(x) { value: 2.0 * x, #[cfg(test)] derivative: 2.0 } }";
    assert_mistakes(
        &forward("Features<4>", "Features<4>", "[Linear(4), Twice]", operation),
        &[("#[cfg(test)]", condition)],
    );
}

/// A batch that nobody has is expanded as any other, and refused by its numbers.
#[test]
fn enormous_batches() {
    for batch in ["1_000_000_000_000", "18446744073709551615"] {
        let fields = format!("batch: {batch}, optimizer: Adam {{ lr: 1e-3 }}, loss: CrossEntropy, cards: [GTX_1650]");
        let network = format!(
            "struct Net; const TRAIN: Train = Train {{ {fields} }};
             fn forward(x: Features<64>) -> Logits<10> {{ [Linear(64), Relu, Linear(10)] }}"
        );
        let expanded = crate::network(network.parse().unwrap()).to_string();
        assert!(expanded.contains("__TRAINING") && !expanded.contains("compile_error"));
    }
}

#[test]
fn generic_batches() {
    let network = |constant: &str| {
        format!("struct Net<const BATCH: usize>; {constant} fn forward(x: Features<4>) -> Logits<4> {{ [Linear(4)] }}")
    };
    assert_mistakes(&network("const TRAIN: Train = Train { batch: BATCH };"), &[]);
    assert_mistakes(
        &network("const TRAIN: Train = Train { batch: 2 * BATCH };"),
        &[("2 * BATCH", "a network over `BATCH` has `batch: BATCH`; compute it where the network is used")],
    );
    assert_mistakes(
        &network(""),
        &[("BATCH", "nothing uses `BATCH`; add `const INFER: Infer = Infer { batch: BATCH };`")],
    );
    let of_32_bits = "struct Net<const N: u32>; const INFER: Infer = Infer { batch: N };
                      fn forward(x: Features<4>) -> Logits<4> { Linear(4) }";
    assert_mistakes(of_32_bits, &[("u32", "a batch is a `usize`; write `const N: usize`")]);
    let text = "struct Net<T>; fn forward(x: Features<4>) -> Logits<4> { [Linear(4)] }";
    assert_mistakes(
        text,
        &[("Net", "a network has no other parameter than its batch: `pub struct Net<const BATCH: usize>;`")],
    );
}

#[test]
fn fields_of_train() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[Linear(8)]",
        "const TRAIN: Train = Train {
            batch: 4, micro_batches: 0, loss: Mse, optimizer: Sgd { 0: 0.1 }, cards: [3, TOASTER], precision: half(),
         };",
    );
    assert_mistakes(
        &text,
        &[
            ("0", "`micro_batches` must be at least 1"),
            ("0", "expected a hyperparameter's name"),
            ("3", "expected the name of a card, such as `RTX_3060`"),
            (
                "TOASTER",
                "no card is called `TOASTER`; see `gpumem::cards` for their names, or give a size with `GPUMEM_VRAM=11.5GiB`",
            ),
            (
                "half()",
                "the precision must be literal, since the macro reads it; write `F32`, `Bf16`, `F16`, `Mixed(Bf16)` or `Mixed(F16)`",
            ),
        ],
    );
}

/// A card that does not exist: all that begin with what was written, or else the nearest.
#[test]
fn unknown_cards() {
    for (card, hint) in [
        ("A100_", "there are `A100_40GB`, `A100_80GB` and `A100_PCIE_80GB`"),
        ("a100", "there are `A100_40GB`, `A100_80GB` and `A100_PCIE_80GB`"),
        ("H100_S", "did you mean `H100_SXM`?"),
        ("RTX_4060_TI_", "there are `RTX_4060_TI_8GB` and `RTX_4060_TI_16GB`"),
        ("gb10", "did you mean `GB10_DGX_SPARK`?"),
        ("rtx_3060", "did you mean `RTX_3060`?"),
        ("RTX3060", "did you mean `RTX_3060`?"),
        ("h200", "did you mean `H200`?"),
        ("h100_80gb", "did you mean `H100_80GB`?"),
        ("JETSON_NANO", "did you mean `JETSON_ORIN_NANO`?"),
        ("JETSON_XAVIER", "did you mean `JETSON_XAVIER_NX_8GB`?"),
        ("RTX_3061", "did you mean `RTX_3060`?"),
        ("H100_MIG_1G", "there are `H100_80GB_MIG_1G_10GB` and `H100_80GB_MIG_1G_20GB`"),
        ("A100_40GB_MIG_1G", "there are `A100_40GB_MIG_1G_5GB` and `A100_40GB_MIG_1G_10GB`"),
        ("MIG_1G_5GB", "did you mean `A100_40GB_MIG_1G_5GB`?"),
        ("A100_40GB_MIG_1G_6GB", "did you mean `A100_40GB_MIG_1G_5GB`?"),
    ] {
        assert_mistakes(&aimed_at(card), &[(card, &format!("no card is called `{card}`; {hint}"))]);
    }
    let why = "a K80 has compute capability 3.7, and the CUDA backend needs 6.0 or newer: name another card";
    assert_mistakes(&aimed_at("K80"), &[("K80", why)]);
    let whole = gpumem_core::cards::ALL.iter().filter(|card| card.constant.starts_with("RTX_")).count();
    let many = format!("no card is called `RTX_`; {whole} begin like that, see `gpumem::cards`");
    assert_mistakes(&aimed_at("RTX_"), &[("RTX_", &many)]);
}

/// Other names of cards are names.
#[test]
fn aliases_of_cards() {
    for alias in gpumem_core::cards::ALIASES {
        assert_mistakes(&aimed_at(alias.constant), &[]);
    }
    assert_mistakes(&aimed_at("A100, H100, RTX_4060_TI, GB10, JETSON_THOR"), &[]);
}

fn aimed_at(cards: &str) -> String {
    let train = format!("const TRAIN: Train = Train {{ batch: 4, loss: Mse, cards: [{cards}] }};");
    forward("Features<8>", "Features<8>", "[Linear(8)]", &train)
}

/// Mistakes of the whole network, which show when it is lowered.
#[test]
fn nothing_to_train() {
    let text = forward("Features<8>", "Features<8>", "[Relu]", "const TRAIN: Train = Train { batch: 4, loss: Mse };");
    let expansion = crate::network(text.parse().expect("balanced tokens")).to_string();
    let said =
        "the network has no parameters, so there is nothing to train; use `const INFER` instead of `const TRAIN`";
    assert!(expansion.contains(said), "{expansion}");
}

/// Declarations that contradict each other, or that the language does not have.
#[test]
fn declarations() {
    let text = "struct Net; const WIDTH: usize = 8;
        const TRAIN: Train = Train { batch: 4, loss: Mse }; const TRAIN: Train = Train { batch: 4, loss: Mse };
        fn forward(x: Features<8>) -> Features<8> {
            let a = Linear(8); let a = Linear(8); let b = [b];
            [a, b, WIDTH, one(2), repeat(1, two()), if true { let c = Linear(8); [c] } else { [] }, Relu(3, 4)]
        }
        #[inline] fn one(n: i32) -> Block { [] }
        fn two() -> Features<8> { [] }
        fn Relu(n) -> Block { [] }
        const OTHER: usize = 3";
    assert_mistakes(
        text,
        &[
            ("TRAIN", "`TRAIN` is defined twice; remove one"),
            ("let", "`let` stands at the start of a function's body, not inside `if`"),
            ("#[inline]", "blocks have no such attribute; remove it"),
            ("n", "`n` has no type; write `n: usize`"),
            ("", "unexpected end of input, expected `;` after `const OTHER`"),
            ("i32", "a block's parameters are `usize`, `f64`, `bool` or `Block`; use one of these"),
            ("Features<8>", "a block returns `Block`, not `Features`"),
            ("Relu", "`Relu` has a meaning already; rename the block"),
            ("a", "`a` is bound twice; rename one"),
            ("b", "`b` uses itself"),
            ("WIDTH", "expected a layer, but `WIDTH` is a constant"),
        ],
    );
    for (dimension, place, said) in [
        ("{ 8 8 }", "8", "expected one number"),
        ("*", "*", "expected a number, a constant or `{ .. }` around a longer expression"),
    ] {
        let text = format!("struct Net; fn forward(x: Features<{dimension}>) -> Features<8> {{ [Linear(8)] }}");
        let found = mistakes(&text);
        assert_eq!(found[0], (place.to_string(), said.to_string()), "{found:#?}");
    }
    assert_mistakes(
        &forward("Features<8>", "Features<8>", "[Linear(8), block()]", "fn block(n: usize) -> Block { [Linear(n)] }"),
        &[("block()", "block `block` takes (n: usize), but nothing is given")],
    );
    let twice = "fn block(n: usize, n: usize) -> Block { [Linear(n)] }";
    assert_mistakes(
        &forward("Features<8>", "Features<8>", "[block(8, 4)]", twice),
        &[("n", "`n` is declared twice; rename one")],
    );
}

/// Fields that stand somewhere else, and forms of an optimizer that it has elsewhere.
#[test]
fn settings_in_other_words() {
    let train = |fields: &str| {
        forward(
            "Features<4>",
            "Logits<4>",
            "[Linear(4)]",
            &format!("const TRAIN: Train = Train {{ batch: 4, {fields} }};"),
        )
    };
    let loop_around = "it says what one step is; how often `train_step` is called, and with which samples, is up to the loop around it";
    for (field, hint) in [
        ("lr: 0.1", "it belongs to the optimizer, as `optimizer: Sgd { lr: 0.1 }`"),
        ("betas: (0.9, 0.99)", "it belongs to the optimizer, as `optimizer: Adam { betas: (0.9, 0.99) }`"),
        ("epochs: 10", loop_around),
        ("shuffle: true", loop_around),
        (
            "device: cuda",
            "where a network runs is said where it is loaded, `Net::on(&device)`; the cards that it must fit are \
             `cards: [RTX_3060]`",
        ),
        ("dtype: bf16", "did you mean `precision`, as `precision: Mixed(Bf16)`?"),
        ("criterion: Mse", "did you mean `loss`?"),
        ("grad_scaler: true", "did you mean `skip`, as `skip: NonFinite`?"),
        ("ema_decay: 0.99", "did you mean `ema`, as `ema: 0.99`?"),
        ("track_grad_norm: 2", "did you mean `measure`, as `measure: GradientNorm`?"),
        ("max_grad_norm: 1.0", "did you mean `clip`, as `clip: GlobalNorm(1.0)`?"),
        ("lr_scheduler: cosine", "did you mean `schedule`, as `schedule: Cosine { warmup: 100, total: 5000 }`?"),
    ] {
        let name = field.split(':').next().unwrap_or_default();
        assert_mistakes(&train(field), &[(name, &format!("`TRAIN` has no field `{name}`; {hint}"))]);
    }
    assert_mistakes(
        &train("optimizer: AdamW { eps: 1e-8 }, lr: 3e-4"),
        &[("lr", "`TRAIN` has no field `lr`; it belongs to the optimizer, as `optimizer: AdamW { lr: 3e-4 }`")],
    );
    let found = mistakes(&train("toaster: 1"));
    assert!(found[0].1.contains("`clip`, `schedule`") && found[0].1.contains("`headroom`"), "{found:#?}");
    for (written, instead) in [
        ("Adam(lr = 1e-3)", "Adam { lr: 1e-3 }"),
        ("Adam(lr = 1e-3, betas = (0.9, 0.99))", "Adam { lr: 1e-3, betas: (0.9, 0.99) }"),
        ("AdamW(1e-3)", "AdamW { lr: 1e-3 }"),
        ("Sgd::new(0.1, 0.9)", "Sgd { lr: 0.1, momentum: 0.9 }"),
        ("Lion()", "Lion"),
    ] {
        let said = format!("hyperparameters stand in braces; write `{instead}`");
        assert_mistakes(&train(&format!("optimizer: {written}")), &[(written, &said)]);
    }
    // A loss that was not written is not judged.
    let text =
        forward("Features<4>", "Features<1>", "[Linear(1)]", "const TRAIN: Train = Train { batch: 4, loss: Focal };");
    let losses = format!("no loss is called `Focal`; there are {}", listed(&loss::names()));
    assert_mistakes(&text, &[("Focal", &losses)]);
}

#[test]
fn checks_of_instantiations() {
    let fits = |text: &str| crate::instantiation::fits(text.parse().expect("balanced tokens")).to_string();
    for text in ["", "A; RTX_3060", "A(3)", "A<3>, RTX_3060 T4"] {
        assert!(fits(text).contains("`fits!` takes networks and the cards that they must fit, as"), "{text}");
    }
    for text in ["A<3>, RTX_3060", "A<3>,", "A<3> + nets::B, RTX_3060, T4"] {
        assert!(!fits(text).contains("compile_error"), "{text}");
    }
}
