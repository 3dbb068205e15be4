//! Outputs of normalisations that are made again beside their gradients change no bit: random networks of convolutions, whose steps are
//! compared with those that keep them.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so that what is read after its last reader shows.

mod harness;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Sizes, Term, Training, lower, lower_for};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Op, Operation, Pass, Program, Slot};
use gpumem_core::train::Descent;
use gpumem_core::{Precision, Update};
use harness::filled::trained;
use harness::graphs::random::BATCH;
use harness::graphs::{again, chain, join, layer, numbers, plan_within};
use proptest::prelude::*;

fn options(update: Update) -> Options<'static> {
    let (loss, descent) = (&[Term::MSE], Descent::PLAIN);
    Options {
        training: Some(Training { loss, moments: 1, update, skips_overflow: false, input_gradient: false, descent }),
    }
}

/// Pieces of networks, which keep the size of a map.
const PIECES: &[&str] = &[
    "Conv2d({}, 3, padding = 1, bias = false) | BatchNorm2d | Relu",
    "BatchNorm2d | Relu | Conv2d({}, 1)",
    "Conv2d({}, 1) | BatchNorm2d | Relu6 | Conv2d({}, 3, padding = 1)",
    "BatchNorm2d | Conv2d({}, 1, bias = false)",
    "BatchNorm2d(affine = false) | Relu(inplace = true) | Conv2d({}, 5, padding = 2) | Tanh",
    "BatchNorm2d | LeakyRelu(0.1) | Conv2d({}, 1)",
    "BatchNorm2d | Relu | Dropout(0.2) | Conv2d({}, 1)",
    "BatchNorm2d | Relu | ConvTranspose2d({}, 3, padding = 1)",
    "BatchNorm2d | Silu | Conv2d({}, 1)",
    "Conv2d({}, 1) | BatchNorm2d(affine = false) | Hardswish | Conv2d({}, 3, padding = 1)",
];

/// Joins of a map with what another piece makes of it.
const JOINS: usize = 5;

/// A network of such pieces: which one, whether and how it is joined with what went in, and how many channels it has.
fn network(choices: &[(usize, usize, u64)]) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let mut x = graph.input(numbers(&[3, 6, 5])).unwrap();
    x = layer(&mut graph, x, "Conv2d(8, 1)");
    for &(piece, how, channels) in choices {
        let channels = if how % JOINS == 1 { 8 } else { channels };
        let text = PIECES[piece % PIECES.len()].replace("{}", &channels.to_string());
        let before = if how % JOINS == 1 { chain(&mut graph, x, "Conv2d(8, 1)") } else { x };
        let made = chain(&mut graph, before, &text);
        x = match how % JOINS {
            1 => join(&mut graph, &[made, before], "Add"),
            2 => join(&mut graph, &[before, made], "Concat"),
            // One normalisation and one weight, each of several maps.
            4 => {
                let row = graph.rows.len();
                let norm = layer(&mut graph, made, "BatchNorm2d");
                let same = graph.value(made).shape.dims()[0];
                let once = chain(&mut graph, norm, &format!("Relu | Conv2d({same}, 1)"));
                let twice = again(&mut graph, once, "BatchNorm2d", row);
                let first = chain(&mut graph, twice, "Relu | Conv2d(8, 1) | BatchNorm2d | Relu");
                let row = graph.rows.len();
                let once = layer(&mut graph, first, "Conv2d(8, 3, padding = 1)");
                let between = chain(&mut graph, once, "BatchNorm2d | Relu");
                let twice = again(&mut graph, between, "Conv2d(8, 3, padding = 1)", row);
                let between = chain(&mut graph, twice, "BatchNorm2d | Relu");
                again(&mut graph, between, "Conv2d(8, 3, padding = 1)", row)
            }
            // Two weights read one output.
            3 => {
                let both = chain(&mut graph, made, "BatchNorm2d | Relu");
                let branches =
                    [1, 3].map(|size| layer(&mut graph, both, &format!("Conv2d(8, {size}, padding = {})", size / 2)));
                join(&mut graph, &branches, "Add")
            }
            _ => made,
        };
    }
    let output = chain(&mut graph, x, "GlobalAvgPool | Linear(3)");
    (graph, output)
}

/// Scratch memory would be most of what such small networks need.
const NO_SCRATCH: Workspaces = Workspaces { product: 0, convolution: 0 };

/// Normalisations that run again.
fn norms_again(program: &Program) -> usize {
    let is_it = |action: &Action| matches!(action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Again });
    program.operations.iter().filter(|operation| is_it(&operation.action)).count()
}

/// How many normalisations run again where nothing else decides about the order of the backward pass.
fn compare(choices: &[(usize, usize, u64)], update: Update) -> usize {
    let (graph, output) = network(choices);
    let rule = lower(&graph, &[output], &options(update)).unwrap();
    let found = lower_for(&graph, &[output], &options(update), &Sizes::new(BATCH, Precision::F32, NO_SCRATCH)).unwrap();
    let count = norms_again(&found);
    assert_eq!(norms_again(&rule), 0);
    if count > 0 {
        let [most, less] =
            [&rule, &found].map(|program| plan_within(program, BATCH, Precision::F32, NO_SCRATCH).budget[Line::Arena]);
        assert!(less < most, "{rule}\n{found}");
        assert_eq!(trained(&rule, 1), trained(&found, 2), "{rule}\n{found}");
        // A plan is checked fastest where tensors come in the order in which they begin.
        assert!(found.transients().map(|id| found.tensor(id).first).is_sorted(), "{found}");
    }
    count
}

/// Normalisations that run again by themselves, not in front of their own gradients.
fn alone(program: &Program) -> usize {
    let operations = &program.operations;
    let is_norm = |operation: &Operation, wanted: Pass| matches!(&operation.action, Action::Run { op: Op::BatchNorm(_), pass } if *pass == wanted);
    let is_beside = |at: &usize| {
        let following = operations[at + 1..].iter().find(|it| it.forward().is_none());
        following.is_some_and(|it| {
            is_norm(it, Pass::Backward) && it.read(Slot::Saved(0)) == operations[*at].read(Slot::Saved(0))
        })
    };
    let again = (0..operations.len()).filter(|&at| is_norm(&operations[at], Pass::Again));
    again.filter(|at| !is_beside(at)).count()
}

/// What a network that is a chain comes to: normalisations that run again, and those of them by themselves.
fn of_chain(input: &[u64], text: &str) -> [usize; 2] {
    let mut graph = Graph::default();
    let x = graph.input(numbers(input)).unwrap();
    let output = chain(&mut graph, x, text);
    let rule = lower(&graph, &[output], &options(Update::Fused)).unwrap();
    let found =
        lower_for(&graph, &[output], &options(Update::Fused), &Sizes::new(BATCH, Precision::F32, NO_SCRATCH)).unwrap();
    assert_eq!(trained(&rule, 1), trained(&found, 2), "{rule}\n{found}");
    [norms_again(&found), alone(&found)]
}

/// Where the peak is beside a gradient that waits, it does not. Where little is there beside what is kept, all of them do.
#[test]
fn what_is_made_by_itself() {
    let block = "Conv2d(8, 3, padding = 1) | BatchNorm2d | Relu | Conv2d(8, 3, padding = 1) | BatchNorm2d | Relu";
    let [all, alone] = of_chain(&[3, 6, 5], &format!("{block} | {block} | {block} | Conv2d(2, 1) | GlobalAvgPool"));
    assert!(all == 6 && (1..6).contains(&alone), "{alone}");
    let [wide, narrow] = [48, 4].map(|channels| block.replace("Conv2d(8", &format!("Conv2d({channels}")));
    let narrow = format!("MaxPool2d(2) | {narrow} | {narrow} | {narrow} | {narrow}");
    assert_eq!(of_chain(&[3, 6, 5], &format!("{wide} | {narrow} | Conv2d(2, 1) | GlobalAvgPool"))[1], 0);
}

/// Views between a normalisation, its activation and what reads that, and a normalisation of an input, which has no gradient.
#[test]
fn views_and_inputs() {
    let signal = "Conv1d(8, 3, padding = 1) | BatchNorm1d | Silu | ".repeat(4);
    assert!(of_chain(&[3, 30], &format!("{signal}Conv1d(2, 1) | Flatten | Linear(3)"))[0] > 0);
    let volume = "Conv3d(8, 3, padding = 1) | BatchNorm3d | Relu | ".repeat(4);
    assert!(of_chain(&[3, 4, 3, 4], &format!("{volume}Conv3d(2, 1) | Flatten | Linear(3)"))[0] > 0);
    let rows = "Linear(64) | BatchNorm1d | Relu | ".repeat(4);
    assert!(of_chain(&[64], &format!("{rows}Linear(3)"))[0] > 0);
    let map = "BatchNorm2d | Relu | Conv2d(3, 3, padding = 1) | ".repeat(4);
    assert!(of_chain(&[3, 6, 5], &format!("{map}BatchNorm2d | Relu | Flatten | Linear(3)"))[0] > 0);
}

#[test]
fn each_piece_runs_again() {
    for (piece, text) in PIECES.iter().enumerate() {
        // After a rectifier with a slope, its own gradient reads the output.
        let is_kept = piece == 5;
        let choices = [(piece, 0, 8); 4];
        assert_eq!(compare(&choices, Update::Fused) == 0, is_kept, "{text}");
    }
    for how in 1..JOINS {
        assert!(compare(&[(2, how, 8); 6], Update::Separate) > 0, "{how}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn outputs_that_are_made_again_change_no_bit(
        choices in prop::collection::vec((0..PIECES.len(), 0..2 * JOINS, 4u64..12), 1..7),
        separate: bool,
    ) {
        compare(&choices, if separate { Update::Separate } else { Update::Fused });
    }
}
