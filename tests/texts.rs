//! Networks of this file, compiled by rustc and read as text: both give one blueprint, one plan and one budget.

use gpumem::__private::number::Precision;
use gpumem::prelude::*;
use gpumem::{Line, Network};
use gpumem_language::source::{Declared, Overrides, Text};

/// Blocks that networks of this file use.
mod shared {
    gpumem::blocks! {
        pub mod parts {
            fn down(channels: usize) -> Block {
                [Conv2d(channels, 3, stride = 2, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
            }
        }
    }
}

network! {
    /// A literal batch, cards, and a precision of 16 bits.
    pub struct Plain;

    use blocks shared::parts;

    const TRAIN: Train = Train {
        batch: 32,
        precision: Mixed(Bf16),
        optimizer: AdamW { lr: 1e-3 },
        loss: CrossEntropy,
        headroom: mib(512.0),
        cards: [RTX_3060, T4],
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [parts::down(16), parts::down(32), Conv2d(128, 1), BatchNorm2d, Relu, GlobalAvgPool, Linear(10)]
    }
}

network! {
    /// Recomputes what the smaller of its cards asks for.
    pub struct Recomputed;

    const TRAIN: Train = Train {
        batch: 256, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy, checkpoint: Auto, cards: [GTX_1050_TI, H100_SXM],
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [repeat(12, [Conv2d(64, 3, padding = 1), BatchNorm2d, Tanh]), GlobalAvgPool, Linear(10)]
    }
}

network! {
    /// Has half of the memory for activations.
    pub struct Shared;

    const TRAIN: Train = Train { batch: 8, micro_batches: 4, loss: CrossEntropy, checkpoint: Budget(0.5), cards: [T4] };

    fn forward(tokens: Tokens<128>) -> TokenLogits<128, 1000> {
        [Embedding(1000, 64), repeat(4, TransformerBlock(64, 4, causal)), LayerNorm, Linear(1000)]
    }
}

network! {
    /// The largest batch, with recomputation.
    pub struct Largest;

    const TRAIN: Train = Train { batch: Largest, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy, checkpoint: Auto, cards: [GTX_1050_TI] };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [repeat(6, [Conv2d(64, 3, padding = 1), BatchNorm2d, Tanh]), GlobalAvgPool, Linear(10)]
    }
}

network! {
    /// The largest batches of a step without recomputation, and of a forward pass.
    pub struct Both;

    const TRAIN: Train = Train { batch: Largest, loss: CrossEntropy, cards: [T4] };
    const INFER: Infer = Infer { batch: Largest, precision: F16, cards: [GTX_1050_TI] };

    fn forward(features: Features<512>) -> Logits<10> {
        [repeat(3, [Linear(512), Relu]), Linear(10)]
    }
}

network! {
    /// Decodes with a cache.
    pub struct Decoder;

    const INFER: Infer = Infer { batch: 4, cache: 64, chunk: 8, precision: Bf16, cards: [T4] };

    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 500> {
        [Embedding(500, 64), repeat(2, TransformerBlock(64, 4, causal)), LayerNorm, Linear(500)]
    }
}

network! {
    /// Two steps, of which the second needs more memory.
    pub struct Steps;

    const TRAIN: Train = Train { batch: 4, trains: "linear*", loss: CrossEntropy };
    const WIDE: Train = Train { batch: 64, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy, headroom: 1048576 };

    fn forward(features: Features<256>) -> Logits<10> {
        [Linear(512), Relu, Linear(10)]
    }
}

network! {
    /// Has neither constant.
    pub struct Bare;

    fn forward(features: Features<8>) -> Features<2> {
        [Linear(4), Gelu, Linear(2)]
    }
}

network! {
    /// Generic over its batch.
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Conv2d(32, 3), BatchNorm2d, Relu, Flatten, Linear(10)]
    }
}

fn text() -> Text {
    Text::read(include_str!("texts.rs")).unwrap().in_file("tests/texts.rs")
}

/// Compares a network with what its text says.
fn check<N: Network>(name: &str, declared: &Declared) {
    assert_eq!(declared.name, N::NAME);
    let plan = declared.plan().unwrap();
    let budget = plan.written().unwrap();
    let compiled = N::PROGRAM;
    assert_eq!((plan.batch, plan.precision), (compiled.batch, compiled.precision), "{name}");
    for line in Line::ALL {
        assert_eq!(budget[line], compiled.budget[line], "{name}: {}", line.name());
    }
    assert_eq!(
        (budget.workspace, budget.lower_bound),
        (compiled.budget.workspace, compiled.budget.lower_bound),
        "{name}"
    );
    assert_eq!(plan.program.encode(), compiled.program, "{name}: the program");
    assert_eq!(plan.parameters(), N::LAYERS.iter().map(|layer| layer.parameters).sum::<u64>(), "{name}");
    if let (Some(train), Some(written)) = (N::TRAINED, &declared.train) {
        let slugs: Vec<&str> = train.cards.iter().map(|card| card.slug).collect();
        let own: Vec<&str> = written.cards.iter().map(|card| card.slug).collect();
        assert_eq!(
            (written.headroom, written.convolution_workspace, own),
            (train.headroom, train.conv_workspace, slugs),
            "{name}"
        );
    }
    assert_eq!(declared.train.is_some(), N::TRAINED.is_some(), "{name}");
}

fn network<N: Network>(name: &str) {
    let declared = text().declared(Some(name), &Overrides::default()).unwrap();
    check::<N>(name, &declared);
    assert!(declared.is_largest || declared.blueprint.encode() == N::BLUEPRINT, "{name}: the blueprint");
}

#[test]
fn a_batch_that_is_written() {
    network::<Plain>("Plain");
    network::<Bare>("Bare");
    network::<Decoder>("Decoder");
}

#[test]
fn recomputation_that_cards_or_a_share_ask_for() {
    network::<Recomputed>("Recomputed");
    network::<Shared>("Shared");
    for level in [Recomputed::PROGRAM.level, Shared::PROGRAM.level, Largest::PROGRAM.level] {
        assert!(level.number > 0, "{level:?}");
    }
}

#[test]
fn largest_batches() {
    // The compiler takes a level that was searched at a batch nearby, and `cargo gpumem fit` one of this batch: they may differ in some bytes.
    let largest = text().declared(Some("Largest"), &Overrides::default()).unwrap();
    assert_eq!(largest.plan().unwrap().batch, Largest::PROGRAM.batch);
    assert_eq!(largest.blueprint.encode(), Largest::BLUEPRINT);
    network::<Both>("Both");
    let both = text().declared(Some("Both"), &Overrides::default()).unwrap();
    assert_eq!(both.infer.unwrap().batch, Some(Both::INFERENCE.batch));
}

#[test]
fn the_largest_of_several_steps() {
    network::<Steps>("Steps");
    let steps = text().declared(Some("Steps"), &Overrides::default()).unwrap();
    assert!(steps.is_largest && steps.blueprint.step_name() == Some("WIDE"));
}

#[test]
fn a_batch_that_is_given() {
    let mut overrides = Overrides::default();
    overrides.set("batch", "16").unwrap();
    let generic = text().declared(Some("Generic"), &overrides).unwrap();
    check::<Generic<16>>("Generic<16>", &generic);
    assert_eq!(generic.blueprint.encode(), Generic::<16>::BLUEPRINT);
    let none = text().declared(Some("Generic"), &Overrides::default()).unwrap();
    assert_eq!(none.plan().unwrap_err().to_string(), "it is generic over its batch, and none is given");
}

/// Fields of a caller are those of a text that has them.
#[test]
fn fields_of_a_caller() {
    let mut overrides = Overrides::default();
    for (name, value) in [
        ("batch", "32"),
        ("precision", "Mixed(Bf16)"),
        ("loss", "CrossEntropy"),
        ("headroom", "mib(512.0)"),
        ("cards", "[RTX_3060, T4]"),
        ("optimizer", "Sgd { lr: 0.1 }"),
    ] {
        overrides.set(name, value).unwrap();
    }
    overrides.set_optimizer("adam-w").unwrap();
    overrides.set_default("headroom", "mib(1.0)").unwrap();
    overrides.set("headroom", "mib(512.0)").unwrap();
    let text = include_str!("texts.rs");
    let start = text.find("const TRAIN").unwrap();
    let end = start + text[start..].find("};").unwrap() + 2;
    let without = Text::read(&format!("{}{}", &text[..start], &text[end..])).unwrap();
    check::<Plain>("Plain", &without.declared(Some("Plain"), &overrides).unwrap());
    let precision = without.declared(Some("Recomputed"), &overrides).unwrap().train.unwrap().precision;
    assert_eq!(precision, Precision::Mixed(gpumem::Half::Bf16));

    let mistakes = |name: &str, value: &str| {
        let mut overrides = Overrides::default();
        overrides.set(name, value).unwrap();
        let found = without.declared(Some("Bare"), &overrides).unwrap_err();
        found.iter().map(|mistake| mistake.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(mistakes("batch", "0"), ["the batch is 0; a step needs at least 1 sample"]);
    assert_eq!(
        mistakes("batch", "SIZE"),
        ["`batch` is an expression, which only the compiler evaluates; here it must be a number"]
    );
    assert!(mistakes("cards", "[RTX_3061]")[0].starts_with("no card is called `RTX_3061`"));
    assert!(mistakes("bach", "3")[0].starts_with("`TRAIN` has no field `bach`; did you mean `batch`?"));
    assert_eq!(
        Overrides::default().set_optimizer("adamx").unwrap_err(),
        "no optimizer is called adamx; did you mean Adam?"
    );
    assert!(Overrides::default().set("batch", "3 +").unwrap_err().starts_with("`batch: 3 +` cannot be read: "));
}
