//! Programs, plans, budgets and launches of every network of the tests, as digests: a change of structure leaves all of them
//! as they are, and a change of figures shows which.
//!
//! `FIGURES_IN=folder cargo test --test figures` writes the texts behind the digests into a folder, to be compared with those
//! of another version; `UPDATE_FIGURES=1` writes `tests/figures/digests.txt` anew.

#[path = "../../examples/digits.rs"]
#[allow(dead_code, unexpected_cfgs, reason = "the example's network is used, not its program")]
mod digits;
#[path = "../../gpumem-core/tests/common/mod.rs"]
mod graphs;
#[path = "../../tests/networks/mod.rs"]
mod networks;

use digits::Digits;
use gpumem::__private::lower::{Options, Term, Training, lower};
use gpumem::__private::memory::place::Placed;
use gpumem::__private::memory::place::place;
use gpumem::__private::memory::tables::Workspaces;
use gpumem::__private::program::{Class, Program};
use gpumem::Compiled;
use gpumem::optim::{Adam, Optimizer, Sgd};
use gpumem::{Network, Precision, Update};
use gpumem_core::operation::Operations;
use gpumem_cuda::Call;
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::program_calls::steps;
use networks::{AlexNet, Gpt2, Gpt2Dropout, LstmLm, Mlp, MobileNetV2, ResNet18, ResNet50, UNet, Vgg16};
use std::fmt::Write;

const BATCHES: [u64; 3] = [1, 7, 32];

/// Workspaces as they are capped for cards of today.
const WORKSPACES: Workspaces = Workspaces { product: 32 << 20, convolution: 256 << 20 };

/// Random networks.
const RANDOM: u64 = 16;

/// Kinds of choices that they are made of. There may be more by now; these stay what they are.
const KINDS: usize = 60;

/// A program with what its launches depend on.
struct Case {
    name: String,
    program: Program,
    optimizer: Optimizer,
}

fn declared<N: Network>(cases: &mut Vec<Case>) {
    let optimizer = N::TRAIN.map_or(Optimizer::Sgd(Sgd::DEFAULT), |train| train.optimizer);
    for (pass, compiled) in [("train", N::TRAINING), ("infer", Some(N::INFERENCE))] {
        let Some(compiled) = compiled else { continue };
        let program = Program::decode(compiled.program).expect("the macro wrote it");
        cases.push(Case { name: format!("{} {pass}", N::NAME), program, optimizer });
    }
}

/// Every choice of the random networks, in an order that is the same in every run.
fn random(seed: u64, cases: &mut Vec<Case>) {
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let choices: Vec<_> = (0..24).map(|_| (draw(KINDS), draw(20), draw(20))).collect();
    let (graph, output) = graphs::random::network(&choices, true);
    let optimizer = if seed.is_multiple_of(2) { Optimizer::Adam(Adam::DEFAULT) } else { Optimizer::Sgd(Sgd::DEFAULT) };
    let training = Training {
        loss: if seed % 3 == 1 { &[Term::MSE] } else { &[Term::CROSS_ENTROPY] },
        moments: optimizer.moments(),
        update: if seed % 4 < 2 { Update::Fused } else { Update::Separate },
        skips_overflow: false,
        input_gradient: seed % 5 == 1,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    for (pass, training) in [("train", Some(training)), ("infer", None)] {
        let program = lower(&graph, &[output], &Options { training }).expect("a sound network");
        cases.push(Case { name: format!("random {seed} {pass}"), program, optimizer });
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    declared::<Digits>(&mut cases);
    declared::<Mlp>(&mut cases);
    declared::<AlexNet>(&mut cases);
    declared::<Vgg16>(&mut cases);
    declared::<ResNet18>(&mut cases);
    declared::<ResNet50>(&mut cases);
    declared::<MobileNetV2>(&mut cases);
    declared::<UNet>(&mut cases);
    declared::<Gpt2>(&mut cases);
    declared::<Gpt2Dropout>(&mut cases);
    declared::<LstmLm>(&mut cases);
    (0..RANDOM).for_each(|seed| random(seed, &mut cases));
    cases
}

/// Tensors, and for each operation its phase, its layer and its tensors but for parameters. How operations are called is
/// left out.
fn program_text(program: &Program) -> String {
    let mut text = format!(
        "training {} moments {} holds {} result {}\n",
        program.training, program.moments, program.holds_gradients, program.results[0]
    );
    for tensor in &program.tensors {
        let _ = writeln!(
            text,
            "{:?} {:?} {:?} `{}` {} {} {} {:?} {}..{}",
            tensor.class,
            tensor.role,
            tensor.part,
            tensor.name,
            tensor.row,
            tensor.shape,
            tensor.batched,
            tensor.init,
            tensor.first,
            tensor.last
        );
    }
    for operation in &program.operations {
        // Parameters last: which operation reads them changes no lifetime.
        let sorted = |operands: &[gpumem::__private::program::Operand]| {
            let tensors = operands.iter().map(|operand| operand.tensor);
            let mut tensors: Vec<_> = tensors.filter(|&id| program.tensor(id).class != Class::Parameter).collect();
            tensors.sort_unstable();
            tensors
        };
        let path = program.paths.get(operation.row as usize).map_or("-", String::as_str);
        let _ = writeln!(
            text,
            "{:?} {path} {} {:?} {:?}",
            operation.phase(),
            operation.accumulate,
            sorted(&operation.reads),
            sorted(&operation.writes)
        );
    }
    text
}

fn budget_text(compiled: &Compiled<'_>) -> String {
    let budget = &compiled.budget;
    let mut text = String::new();
    for line in budget.shown() {
        let _ = write!(text, "{} {} ", line.name(), budget[line]);
    }
    let _ = writeln!(
        text,
        "lower_bound {} workspace {} peak {} largest {} {}",
        budget.lower_bound, budget.workspace, budget.peak, budget.largest, budget.largest_bytes
    );
    text
}

fn plan_text(placed: &Placed) -> String {
    format!("{:?}\n{:?}\n{:?}\n", placed.offsets, placed.bytes, placed.masters)
}

/// What a card with, and one without libraries is made to do.
fn launches_text(placed: &Placed, case: &Case, batch: u64, precision: Precision) -> String {
    let mut text = String::new();
    for (libraries, capability) in [(false, (8, 0)), (true, (9, 0))] {
        let setting = LaunchContext {
            rank: 0,
            batch,
            precision,
            optimizer: case.optimizer,
            capability,
            multiprocessors: 132,
            tf32: false,
            deterministic: false,
            library: libraries,
            cudnn: libraries,
            operations: &Operations::NONE,
        };
        for step in steps(placed, setting).unwrap_or_else(|error| panic!("{}: {error}", case.name)) {
            let _ = writeln!(text, "{} {}", step.first, step.count);
            for call in &step.calls {
                let _ = match call {
                    Call::Kernel(launch) => {
                        let constants: Vec<String> =
                            launch.kernel.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
                        writeln!(
                            text,
                            "  {} {} {} {:?} {:?} {:?} {:?}",
                            launch.kernel.file,
                            launch.kernel.entry,
                            constants.join(" "),
                            launch.grid,
                            launch.block,
                            launch.arguments,
                            launch.numbers
                        )
                    }
                    other => writeln!(text, "  {other:?}"),
                };
            }
        }
    }
    text
}

/// FNV-1a.
fn digest(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// One line for each program, precision and batch.
fn lines(case: &Case) -> String {
    let mut lines = String::new();
    let folder = std::env::var_os("FIGURES_IN").map(std::path::PathBuf::from);
    for precision in Precision::ALL {
        for batch in BATCHES {
            let compiled = graphs::plan_within(&case.program, batch, precision, WORKSPACES);
            let placed = place(&compiled).unwrap();
            let texts = [
                ("program", program_text(&case.program)),
                ("plan", plan_text(&placed)),
                ("budget", budget_text(&compiled)),
                ("launches", launches_text(&placed, case, batch, precision)),
            ];
            let _ = write!(lines, "{} {} {batch}:", case.name, precision.name());
            for (name, text) in &texts {
                let _ = write!(lines, " {name} {}", digest(text));
            }
            lines.push('\n');
            if let Some(folder) = &folder {
                std::fs::create_dir_all(folder).unwrap();
                let all: String = texts.iter().map(|(name, text)| format!("== {name}\n{text}")).collect();
                let file = format!("{} {} {batch}.txt", case.name, precision.name()).replace(' ', "-");
                std::fs::write(folder.join(file), all).unwrap();
            }
        }
    }
    lines
}

#[test]
fn programs_plans_budgets_and_launches_are_what_they_were() {
    let cases = cases();
    let parts: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|part| {
                let cases = &cases;
                scope.spawn(move || {
                    cases
                        .iter()
                        .enumerate()
                        .filter(|(index, _)| index % 2 == part)
                        .map(|(index, case)| (index, lines(case)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut found: Vec<(usize, String)> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        found.sort();
        found.into_iter().map(|(_, lines)| lines).collect()
    });
    let found = parts.concat();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figures/digests.txt");
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        std::fs::write(path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap();
    let changed: Vec<String> = expected
        .lines()
        .zip(found.lines())
        .filter(|(expected, found)| expected != found)
        .map(|(expected, found)| format!("{expected}\n{found}"))
        .collect();
    assert!(
        changed.is_empty() && expected.lines().count() == found.lines().count(),
        "{} of {} figures have changed; compare the texts of both versions, which `FIGURES_IN=folder` writes:\n{}",
        changed.len(),
        expected.lines().count(),
        changed.iter().take(8).cloned().collect::<Vec<_>>().join("\n")
    );
}
