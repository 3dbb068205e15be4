//! The memory of a rank: GPT-2 XL and Llama 3 8B on 1 to 64 of them, as the guide shows it.

mod digits;
mod pages;

use digits::grouped;
use gpumem_core::lower::tables;
use gpumem_core::memory::budget::{Line, lower_bound_at};
use gpumem_core::report::Planned;
use gpumem_core::train::Shard;
use gpumem_language::source::{Overrides, Text};
use std::fmt::Write;

const PAGE: &str = "../docs/guide/several-gpus.md";

const RANKS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A network with the blocks that it uses.
struct Source {
    name: &'static str,
    text: Text,
}

impl Source {
    fn gpt2_xl() -> Source {
        Source { name: "Gpt2Xl", text: Text::read(include_str!("../src/gpt2.rs")).unwrap() }
    }

    /// 32 layers of 4,096 features, over 8,192 tokens, with the blocks of its smaller sisters.
    fn llama3_8b() -> Source {
        let mut text = Text::read(
            "network! {
                pub struct Llama8B<const BATCH: usize>;
                use blocks llama_blocks;
                const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 3e-4 }, loss: CrossEntropy };
                fn forward(text: Tokens<8192>) -> TokenLogits<8192, 128256> {
                    [
                        model([
                            Embedding(128256, 4096, name = \"embed_tokens\"),
                            repeat(32, layers(4096, attention(32, 8, 128, 500000.0, false), 14336, Silu, 1e-5)),
                            RmsNorm(eps = 1e-5, name = \"norm\"),
                        ]),
                        Linear(128256, bias = false, name = \"lm_head\"),
                    ]
                }
                fn model(inside: Block) -> Block {
                    [inside]
                }
            }",
        )
        .unwrap();
        text.add_blocks(&Text::read(include_str!("../src/llama.rs")).unwrap());
        Source { name: "Llama8B", text }
    }

    /// Plans a step in which each rank takes one sample, with other settings as given.
    fn plan(&self, ranks: u64, shard: Shard, settings: &[(&str, &str)]) -> (Planned, gpumem_core::lower::Blueprint) {
        let mut overrides = Overrides::default();
        let ranks = ranks.to_string();
        let shared =
            [("batch", ranks.as_str()), ("ranks", &ranks), ("shard", shard.name()), ("precision", "Mixed(Bf16)")];
        for (name, value) in shared.iter().chain(settings) {
            overrides.set(name, value).unwrap();
        }
        let mut declared = self.text.declared(Some(self.name), &overrides).unwrap();
        declared.blueprint.order_for(None);
        (declared.plan().unwrap(), declared.blueprint)
    }
}

fn mib(bytes: u64) -> String {
    grouped((bytes as f64 / f64::from(1 << 20)).round())
}

/// Returns the arena of a rank without recomputation, in bytes.
fn whole(source: &Source, ranks: u64, shard: Shard) -> u64 {
    source.plan(ranks, shard, &[("checkpoint", "None")]).0.budget(&[]).unwrap()[Line::Arena]
}

/// Returns the bytes that are alive at once at the peak of the step that needs least, with all recomputation that the compiler knows.
fn leanest(source: &Source, ranks: u64, shard: Shard) -> u64 {
    let (planned, blueprint) = source.plan(ranks, shard, &[("checkpoint", "Auto")]);
    let sizes = planned.sizes(&[]);
    let peaks = blueprint.trainings(&sizes).unwrap().into_iter().map(|program| {
        let tables = tables(&program);
        lower_bound_at(&tables.as_tables().with_workspaces(sizes.workspaces), sizes.batch, sizes.precision).unwrap()
    });
    peaks.min().unwrap()
}

/// Returns the bytes that a rank needs of its arena.
type Arena = fn(&Source, u64, Shard) -> u64;

/// Compares the guide's table of a network with what the planner says.
fn check(name: &str, source: &Source) {
    let mut text =
        format!("| |{}\n| --- |{}\n", RANKS.map(|ranks| format!(" {ranks} |")).concat(), " ---: |".repeat(RANKS.len()));
    for (suffix, arena) in [("", whole as Arena), (", all recomputation", leanest)] {
        for shard in Shard::ALL {
            let of = |ranks| {
                if ranks == 1 && shard != Shard::None {
                    " |".into()
                } else {
                    format!(" {} |", mib(arena(source, ranks, shard)))
                }
            };
            writeln!(text, "| `{}`{suffix} |{}", shard.name(), RANKS.map(of).concat()).unwrap();
        }
    }
    pages::check(PAGE, name, &text);
}

/// Returns the bytes of parameters, master copies, gradients that are held, and optimizer state.
fn states(source: &Source, ranks: u64, shard: Shard, update: &str) -> u64 {
    let planned = source.plan(ranks, shard, &[("checkpoint", "None"), ("update", update)]).0;
    let budget = planned.budget(&[]).unwrap();
    [Line::Weights, Line::Master, Line::Gradients, Line::Optimizer].map(|line| budget[line]).iter().sum()
}

/// The rules by which others count the states of AdamW in mixed precision: bytes of an element that each rank has, and bytes that are shared.
const RULES: [(&str, u64, u64); 5] = [
    ("ZeRO stage 1", 4, 12),
    ("ZeRO stage 2", 2, 14),
    ("ZeRO stage 3", 0, 16),
    ("Megatron-LM, distributed optimizer", 6, 12),
    ("FSDP2, f32 shards", 0, 16),
];

/// Compares the guide's table of model states with the planner and with the rules of others.
fn check_states(name: &str, source: &Source) {
    let ranks = [1, 2, 4, 8, 64];
    let mut text =
        format!("| |{}\n| --- |{}\n", ranks.map(|ranks| format!(" {ranks} |")).concat(), " ---: |".repeat(ranks.len()));
    let elements = source.plan(1, Shard::None, &[]).0.parameters();
    for (rule, whole, shared) in RULES {
        let of = |ranks| format!(" {} |", mib(elements * whole + elements * shared / ranks));
        writeln!(text, "| {rule} |{}", ranks.map(of).concat()).unwrap();
    }
    for (update, suffix) in [("Separate", ", `update: Separate`"), ("Fused", "")] {
        for shard in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
            let of = |ranks| format!(" {} |", mib(states(source, ranks, shard, update)));
            writeln!(text, "| `shard: {}`{suffix} |{}", shard.name(), ranks.map(of).concat()).unwrap();
        }
    }
    pages::check(PAGE, name, &text);
}

#[test]
fn states_of_gpt2_xl() {
    check_states("states of GPT-2 XL on ranks", &Source::gpt2_xl());
}

#[test]
fn states_of_llama3_8b() {
    check_states("states of Llama 3 8B on ranks", &Source::llama3_8b());
}

#[test]
fn arenas_of_gpt2_xl() {
    check("GPT-2 XL on ranks", &Source::gpt2_xl());
}

#[test]
fn arenas_of_llama3_8b() {
    let source = Source::llama3_8b();
    assert_eq!(source.plan(1, Shard::None, &[]).0.parameters(), 8_030_261_248);
    check("Llama 3 8B on ranks", &source);
}
