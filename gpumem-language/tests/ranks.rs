//! Steps that several ranks share: their memory, and the order of their exchanges.

use gpumem_core::lower::{Blueprint, Steps, Term, tables};
use gpumem_core::memory::budget::{Line, lower_bound_at};
use gpumem_core::program::{Action, Collective, Exchange, Op, Operand, Pass, Program, Slot, TensorId};
use gpumem_core::report::Planned;
use gpumem_core::train::optim::{AdamW, Optimizer};
use gpumem_core::train::ranks::Sharding;
use gpumem_core::train::{Clip, Descent, Ema, Offload, Ranks, Shard};
use gpumem_core::{Half, Precision, Update};
use gpumem_language::source::{Overrides, Text, declared};
use std::collections::BTreeSet;
use std::path::Path;

/// GPT-2 XL: 48 layers of 1600 features. Each rank takes one sample.
fn network(settings: &str) -> String {
    format!(
        "network! {{
            pub struct Gpt2Xl;
            const TRAIN: Train = Train {{
                optimizer: AdamW {{ lr: 6e-4 }}, loss: CrossEntropy, precision: Mixed(Bf16), {settings}
            }};
            fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {{
                let wte = Embedding(50257, 1600, name = \"wte\");
                [
                    Add(wte, PositionEmbedding(1024, 1600, name = \"wpe\")),
                    repeat(48, h(1600, 25)), LayerNorm(name = \"ln_f\"), Tied(wte),
                ]
            }}
            fn h(width: usize, heads: usize) -> Block {{
                [
                    Add([], [LayerNorm(name = \"ln_1\"), attn(width, heads)]),
                    Add([], [LayerNorm(name = \"ln_2\"), mlp(width)]),
                ]
            }}
            fn attn(width: usize, heads: usize) -> Block {{
                [
                    Linear(3 * width, transposed, name = \"c_attn\"), CausalAttention(heads),
                    Linear(width, transposed, name = \"c_proj\"),
                ]
            }}
            fn mlp(width: usize) -> Block {{
                [
                    Linear(4 * width, transposed, name = \"c_fc\"), Gelu(approximate = \"tanh\"),
                    Linear(width, transposed, name = \"c_proj\"),
                ]
            }}
        }}"
    )
}

fn gpt2_xl(settings: &str) -> Planned {
    declared(&network(settings), &Overrides::default()).unwrap().plan().unwrap()
}

/// Returns the bytes of the arena of a rank, and checks that its tensors are packed to their peak unless `slack` bytes are allowed.
fn arena(planned: &Planned, slack: u64) -> u64 {
    let budget = planned.budget(&[]).unwrap();
    let arena = budget[Line::Arena];
    assert!(arena <= budget.lower_bound + slack, "{arena} of {}", budget.lower_bound);
    arena
}

/// Returns the arena of a rank in whole MiB for 2, 4 and 8 ranks.
fn of_ranks(settings: &str, slack: u64) -> [u64; 3] {
    [2, 4, 8].map(|ranks| {
        let planned = gpt2_xl(&format!("{settings}, batch: {ranks}, ranks: {ranks}"));
        (arena(&planned, slack) as f64 / 1_048_576.0).round() as u64
    })
}

#[test]
fn the_arena_of_gpt2_xl_on_2_4_and_8_ranks() {
    assert_eq!(arena(&gpt2_xl("checkpoint: None, batch: 1"), 0), 24_484_493_312);
    let fused = |shard: &str| of_ranks(&format!("checkpoint: None, shard: {shard}"), 0);
    assert_eq!(fused("None"), [23_386, 23_386, 23_386]);
    assert_eq!(fused("Optimizer"), [14_479, 10_026, 7_799]);
    assert_eq!(fused("Gradients"), [14_491, 10_032, 7_802]);
    assert_eq!(fused("Parameters"), [13_161, 7_966, 5_368]);
    assert_eq!(arena(&gpt2_xl("checkpoint: None, update: Separate, batch: 1"), 0), 27_587_256_064);
    // The gradient of the table of tokens is alive from the head to the end of the backward pass, besides the shards.
    let held = |shard: &str| of_ranks(&format!("checkpoint: None, update: Separate, shard: {shard}"), 0);
    assert_eq!(held("None"), [26_309, 26_309, 26_309]);
    assert_eq!(held("Optimizer"), [17_402, 12_949, 10_722]);
    assert_eq!(held("Gradients"), [16_071, 10_875, 8_278]);
    assert_eq!(held("Parameters"), [14_799, 8_861, 5_892]);
}

/// Returns the arena of a rank of 8 in whole MiB, with as much recomputation as there is.
fn leanest(settings: &str) -> u64 {
    let text = network(&format!("checkpoint: Auto, batch: 8, ranks: 8, {settings}"));
    let blueprint = declared(&text, &Overrides::default()).unwrap().blueprint;
    let sizes = gpt2_xl("batch: 8").sizes(&[]);
    let arenas = blueprint.trainings(&sizes).unwrap().into_iter().map(|program| {
        let tables = tables(&program);
        let tables = tables.as_tables().with_workspaces(sizes.workspaces);
        lower_bound_at(&tables, sizes.batch, sizes.precision).unwrap()
    });
    (arenas.min().unwrap() as f64 / 1_048_576.0).round() as u64
}

#[test]
fn the_leanest_arena_of_gpt2_xl_on_8_ranks() {
    let of = |update: &str| Shard::NAMES.map(|shard| leanest(&format!("update: {update}, shard: {shard}")));
    assert_eq!(of("Fused"), [21_175, 5_588, 5_590, 3_188]);
    assert_eq!(of("Separate"), [23_966, 8_379, 5_968, 3_549]);
}

/// The networks of the zoo that are trained, with their names.
fn zoo() -> Vec<(String, Blueprint)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpumem-zoo/src");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let mut texts: Vec<Text> = files.map(|text| Text::read(&text).unwrap()).collect();
    let mut shared = Text::default();
    texts.iter().for_each(|text| shared.add_blocks(text));
    let mut all = Vec::new();
    for text in &mut texts {
        text.add_blocks(&shared);
        for name in text.names() {
            let mut overrides = Overrides::default();
            overrides.set_default("batch", "16").unwrap();
            let blueprint = text.declared(Some(&name), &overrides).unwrap().blueprint;
            all.extend(blueprint.training.is_some().then_some((name, blueprint)));
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Lowers a network with these settings of `TRAIN`.
fn lowered(blueprint: &Blueprint, precision: Precision, set: impl FnOnce(&mut Steps)) -> Program {
    let mut blueprint = blueprint.clone();
    set(blueprint.training.as_mut().unwrap());
    blueprint.training(precision).unwrap().unwrap()
}

#[test]
fn one_rank_changes_no_program() {
    for (name, blueprint) in zoo() {
        let alone = lowered(&blueprint, Precision::F32, |_| {});
        let ranks = Ranks { shard: Shard::Parameters, bucket: 1, channels: 3, least_sharded: 0, ..Ranks::ALONE };
        let written = lowered(&blueprint, Precision::F32, |steps| steps.descent.ranks = ranks);
        assert!(alone.operations == written.operations && alone.tensors == written.tensors, "{name}");
    }
}

/// An exchange that has started: what it sends, and where it receives.
type Running = (Exchange, Vec<(TensorId, TensorId)>);

/// Checks the order of a program's exchanges: each ends, and until then nothing else touches its tensors. Returns the number of exchanges.
fn check_order(name: &str, program: &Program) -> usize {
    let mut running: Vec<Running> = Vec::new();
    let mut count = 0;
    for operation in &program.operations {
        let pairs: Vec<(TensorId, TensorId)> = operation.exchanged().collect();
        if let Action::EndExchange(exchange) = operation.action {
            let at = running.iter().position(|it| *it == (exchange, pairs.clone()));
            running.remove(at.unwrap_or_else(|| panic!("{name}: {operation:?} ends what has not started")));
            continue;
        }
        let busy = running.iter().flat_map(|(_, pairs)| pairs).flat_map(|&(sent, received)| [sent, received]);
        // Copies of states from and to the host name their parameter, and leave it alone.
        let names = |operand: &&Operand| {
            matches!(operation.action, Action::Fetch(_) | Action::Store(_)) && operand.slot == Slot::Parameter
        };
        let own: Vec<TensorId> = (operation.reads.iter().chain(&operation.writes))
            .filter(|operand| !names(operand))
            .map(|operand| operand.tensor)
            .collect();
        let touched: Vec<TensorId> = busy.filter(|id| own.contains(id)).collect();
        assert!(touched.is_empty(), "{name}: {operation:?} touches {touched:?} in an exchange");
        if let Action::Exchange(exchange) = operation.action {
            assert!(!pairs.is_empty() && pairs.len() <= Ranks::MOST_TENSORS, "{name}");
            running.push((exchange, pairs));
            count += 1;
        }
    }
    assert!(running.is_empty(), "{name}: {running:?} never ends");
    count
}

/// Checks that updates read sums over all ranks, that operations read whole parameters, and that all ranks have all parameters after a step.
fn check_numbers(name: &str, program: &Program) {
    let Ranks { count, .. } = program.descent.ranks;
    let sharding = |id: TensorId| program.tensor(id).sharding;
    // Tensors that hold sums over ranks, shards that were updated, and replicated parameters that are whole again.
    let (mut summed, mut stale) = (BTreeSet::new(), BTreeSet::new());
    for operation in &program.operations {
        match &operation.action {
            Action::EndExchange(Exchange { collective: Collective::Sum, .. }) => {
                summed.extend(operation.exchanged().map(|(_, received)| received));
            }
            Action::EndExchange(Exchange { collective: Collective::Gather, .. }) => {
                operation.exchanged().for_each(|(_, received)| _ = stale.remove(&received));
            }
            Action::Collect => {
                let (part, sum) =
                    (operation.read(Slot::Gradient).unwrap(), operation.written(Slot::ParameterGradient).unwrap());
                if matches!(sharding(sum), Sharding::Sharded(_)) {
                    assert!(summed.contains(&part), "{name}: a shard of one rank's gradient is added up");
                    summed.insert(sum);
                }
            }
            Action::Update | Action::UpdatePiece(_) | Action::Check | Action::Squares(_) => {
                let gradient = operation.read(Slot::ParameterGradient).unwrap();
                assert!(summed.contains(&gradient), "{name}: {operation:?} reads the gradient of one rank");
                let parameter = operation.written(Slot::Parameter);
                stale.extend(parameter.filter(|&id| sharding(id) == Sharding::Gathered(count)));
            }
            Action::Run { .. } | Action::Loss(_) => {
                let read = operation.tensors().find(|&id| sharding(id) == Sharding::Sharded(count));
                assert_eq!(read, None, "{name}: {operation:?} reads a shard");
            }
            _ => {}
        }
    }
    assert!(stale.is_empty(), "{name}: ranks have different numbers in {stale:?}");
    assert!(program.results.iter().all(|result| summed.contains(result)), "{name}: the loss is that of one rank");
}

/// Checks that each batch norm of a step reads the statistics and sums of all ranks if they are synchronised. Returns the number of those that do.
fn check_norms(name: &str, program: &Program) -> usize {
    let (mut exchanged, mut count) = (BTreeSet::new(), 0);
    for operation in &program.operations {
        if let Action::EndExchange(_) = operation.action {
            exchanged.extend(operation.exchanged().map(|(_, received)| received));
        }
        let Action::Run { op: op @ (Op::BatchNorm(_) | Op::InplaceNorm(_)), pass } = &operation.action else {
            continue;
        };
        let received = operation.read(Slot::Received(0));
        assert!(received.is_none_or(|sums| exchanged.contains(&sums)), "{name}: {operation:?} reads its own sums");
        count += usize::from(received.is_some());
        let writes = |slot: Slot| operation.written(slot).is_some();
        let by_batch = op.training_only().is_some() && *pass != Pass::Again && program.training;
        if by_batch && (writes(Slot::Output) || writes(Slot::InputGradient(0))) {
            let expected = program.descent.ranks.sync_batch_norm;
            assert_eq!(received.is_some(), expected, "{name}: {operation:?}");
        }
    }
    count
}

/// The settings that change which gradients are exchanged, and when.
fn ways() -> Vec<(Precision, Descent, Update)> {
    let (mixed, narrow) = (Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16));
    let clip = Some(Clip::GlobalNorm(1.0));
    let plain = Descent::PLAIN;
    vec![
        (Precision::F32, plain, Update::Fused),
        (mixed, Descent { micro_batches: 2, ..plain }, Update::Fused),
        (Precision::F32, Descent { micro_batches: 2, clip, ..plain }, Update::Fused),
        (narrow, plain, Update::Fused),
        (mixed, Descent { clip, ..plain }, Update::Fused),
        (
            mixed,
            Descent { offload: Offload::All, ema: Some(Ema { decay: 0.9, ..Ema::DEFAULT }), ..plain },
            Update::Fused,
        ),
        (Precision::F32, Descent { skips: true, offload: Offload::Activations, ..plain }, Update::Separate),
    ]
}

#[test]
fn exchanges_are_in_order_for_every_network() {
    let ways = ways();
    let (mut exchanges, mut synchronised) = (0, 0);
    for (number, (name, blueprint)) in zoo().into_iter().enumerate() {
        for (offset, shard) in Shard::ALL.into_iter().enumerate() {
            let (precision, descent, update) = ways[(number + offset) % ways.len()];
            let ranks =
                Ranks { count: 3, shard, least_sharded: if number % 2 == 0 { 500 } else { 65_536 }, ..Ranks::ALONE };
            let ranks = Ranks { sync_batch_norm: (number + offset) % 2 == 0, ..ranks };
            let program = lowered(&blueprint, precision, |steps| {
                let compares = steps.loss.iter().any(Term::compares_samples);
                let micro_batches = if compares { 1 } else { descent.micro_batches };
                let ranks = if compares { Ranks::ALONE } else { ranks };
                steps.descent = Descent { ranks, micro_batches, ..descent };
                (steps.update, steps.moments) = (update, Optimizer::AdamW(AdamW::DEFAULT).moments());
            });
            if program.descent.ranks.is_alone() {
                continue;
            }
            let name = format!("{name} with {shard:?}, {precision:?}, {descent:?}");
            exchanges += check_order(&name, &program);
            check_numbers(&name, &program);
            synchronised += check_norms(&name, &program);
            // Evaluating the loss needs the exchanges of the forward pass, and no others.
            let evaluation = program.evaluation().unwrap().program;
            check_order(&name, &evaluation);
            assert_eq!(check_norms(&name, &evaluation), 0, "{name}: an evaluation uses running statistics");
        }
    }
    assert!(exchanges > 1000, "{exchanges} exchanges");
    assert!(synchronised > 1000, "{synchronised} norms");
}
