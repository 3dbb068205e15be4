//! Logits that are there for some steps at a time.

use super::common::compile;
use super::{again, chain, check, numbers, plan, tokens, training};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{MOST_CHUNKS, Options, Term, Training, lower, unchunkable};
use gpumem_core::memory::budget::Line;
use gpumem_core::number::Half;
use gpumem_core::program::loss::{Chunks, LossOptions};
use gpumem_core::program::{Action, Measure, NO_ROW, Op, Operation, Pass, Phase, Program, Slot, Tensor};
use gpumem_core::report::roofline::{flops, traffic};
use gpumem_core::train::Descent;
use gpumem_core::{Precision, Update};

fn term(chunks: u64) -> Term {
    Term { options: LossOptions { chunks: Chunks::Count(chunks), ..LossOptions::DEFAULT }, ..Term::CROSS_ENTROPY }
}

/// A language model with a head of its own, or with its embedding's weight.
fn network(is_tied: bool, classes: u64) -> (Graph, NodeId) {
    network_of_width(is_tied, classes, 16)
}

fn network_of_width(is_tied: bool, classes: u64, width: u64) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(tokens(10)).unwrap();
    let hidden =
        chain(&mut graph, input, &format!("Embedding({classes}, 8) | Linear({width}) | Gelu | Linear(8) | LayerNorm"));
    let output = match is_tied {
        true => again(&mut graph, hidden, "Tied", 0),
        false => chain(&mut graph, hidden, &format!("Linear({classes})")),
    };
    (graph, output)
}

fn step(network: &(Graph, NodeId), chunks: u64) -> Program {
    step_in(network, Chunks::Count(chunks), Update::Fused)
}

fn step_in((graph, output): &(Graph, NodeId), chunks: Chunks, update: Update) -> Program {
    let loss = &[Term { options: LossOptions { chunks, ..LossOptions::DEFAULT }, ..Term::CROSS_ENTROPY }];
    let training = Training { loss, update, ..training(2).training.unwrap() };
    let program = lower(graph, &[*output], &Options { training: Some(training) }).unwrap();
    check(&program);
    program
}

#[test]
fn chunks_take_turns() {
    let program = step(&network(false, 40), 4);
    let losses = program.operations.iter().filter_map(|it| match &it.action {
        Action::Loss(criterion) => Some([criterion.first, criterion.outer, criterion.whole, criterion.divisor(3)]),
        _ => None,
    });
    // As equal as can be, and each divided by what all are.
    assert_eq!(losses.collect::<Vec<_>>(), [[0, 2, 10, 30], [2, 3, 10, 30], [5, 2, 10, 30], [7, 3, 10, 30]]);
    let kind = |it: &Operation| match &it.action {
        Action::Loss(_) => "loss",
        Action::Run { op: Op::Slice(_), pass: Pass::Chunk } => "cut",
        Action::Run { op: Op::Product(_), pass: Pass::Chunk } => "logits",
        Action::Run { op: Op::Product(_), pass: Pass::Backward } => "gradient",
        Action::Run { op: Op::Slice(_), pass: Pass::Backward } => "put",
        _ => "other",
    };
    let first = program.operations.iter().position(|it| it.phase() == Phase::Loss).unwrap();
    // The update of what is complete may come where it likes.
    let rest: Vec<&Operation> = program.operations[first..].iter().filter(|it| !it.action.is_update()).collect();
    let found: Vec<&str> = rest.iter().map(|it| kind(it)).take(24).collect();
    assert_eq!(found, ["cut", "logits", "loss", "gradient", "gradient", "put"].repeat(4));
    // The first makes the sums, and the others add to them. The gradient of the logits is where they were.
    let all = rest[..24].chunks(6).enumerate();
    for (chunk, operations) in all {
        assert_eq!([3, 4, 5].map(|at| operations[at].accumulate), [chunk > 0, false, chunk > 0]);
        assert_eq!(operations[2].read(Slot::Input(0)), operations[2].written(Slot::InputGradient(0)));
        assert_eq!(operations[2].read(Slot::Loss).is_some(), chunk > 0);
    }
    assert!(program.operations[..first].iter().all(|it| it.phase() == Phase::Forward));
}

/// No product is computed twice, and evaluation has its chunks too.
#[test]
fn as_many_products_as_without() {
    for is_tied in [false, true] {
        let network = network(is_tied, 40);
        let all = |program: &Program| program.operations.iter().map(|it| flops(it, 3)).sum::<u64>();
        let [whole, chunked] = [1, 7].map(|chunks| step(&network, chunks));
        assert_eq!(all(&whole), all(&chunked));
        let [whole, chunked] = [whole, chunked].map(|program| program.evaluation().unwrap().program);
        check(&chunked);
        assert_eq!(all(&whole), all(&chunked));
        let logits = chunked.operations.iter().filter(|it| matches!(it.action, Action::Loss(_)));
        assert_eq!(logits.count(), 7);
    }
}

/// Of activations, their gradients and targets each chunk moves its own part, and no more than all of them together.
#[test]
fn each_chunk_moves_its_part() {
    let placed = compile(&step(&network(false, 40), 4), 3);
    let bytes = |name: Slot| -> Vec<u64> {
        let moved = placed.program.operations.iter().filter(|it| it.row == u32::from(NO_ROW) || it.accumulate);
        let of = |it: &Operation| -> Option<u64> {
            let id = it.read(name)?;
            let is_part = match name {
                Slot::Target => matches!(it.action, Action::Loss(_)),
                _ => matches!(it.action, Action::Run { op: Op::Slice(_), pass: Pass::Backward }),
            };
            let [read, _] = traffic(&placed, it);
            read.into_iter().find(|(tensor, _)| is_part && *tensor == id).map(|(_, bytes)| bytes)
        };
        moved.filter_map(of).collect()
    };
    assert_eq!(bytes(Slot::Target), [2, 3, 2, 3].map(|steps| 3 * steps * 4));
    // The first chunk makes the gradient.
    assert_eq!(bytes(Slot::InputGradient(0)), [3, 2, 3].map(|steps| 3 * steps * 8 * 4));
}

/// Packed at the bound in every format, and by nearly all of the logits below a step without chunks.
#[test]
fn plans() {
    let half = Half::Bf16;
    for precision in [Precision::F32, Precision::Bf16, Precision::F16, Precision::Mixed(half)] {
        for is_tied in [false, true] {
            let network = network(is_tied, 4000);
            let needs = [1, 5, 10].map(|chunks| {
                let budget = plan(&step(&network, chunks), 64, precision).budget;
                assert_eq!(budget[Line::Arena], budget.lower_bound, "{chunks} {precision:?}");
                budget[Line::Arena]
            });
            // In 16 bits rows have gaps.
            let logits = 64 * 10 * if precision == Precision::F32 { 4000 * 4 } else { 4032 * 2 };
            let saved = [needs[0] - needs[1], needs[0] - needs[2]];
            assert!(saved[0] > logits * 3 / 5 && saved[1] > saved[0], "{saved:?} of {logits}");
        }
    }
}

#[test]
fn what_has_no_chunks() {
    let (graph, output) = network(false, 40);
    let why = |loss: &[Term]| unchunkable(&graph, &[output], loss, 0).unwrap_or_default();
    assert_eq!(why(&[term(10)]), "");
    assert!(why(&[term(11)]).starts_with("10 steps are no 11 chunks"));
    assert!(why(&[term(2), term(1)]).contains("something else in training reads them"));
    assert!(why(&[Term { measure: Measure::Nll, ..term(2) }]).contains("`CrossEntropy` alone"));
    let of_hidden = Term { from: Some(output - 3), ..Term::of(Measure::Mean) };
    assert_eq!(why(&[term(2), of_hidden]), "");
    let mut long = Graph::default();
    let input = long.input(numbers(&[400, 3])).unwrap();
    let output = chain(&mut long, input, "Linear(5)");
    let why = |chunks| unchunkable(&long, &[output], &[term(chunks)], 0);
    assert_eq!(why(MOST_CHUNKS), None);
    assert!(why(MOST_CHUNKS + 1).unwrap().contains("at most 256"));
    let descent = Descent::PLAIN;
    let training = Training { loss: &[term(401)], update: Update::Separate, descent, ..training(0).training.unwrap() };
    assert!(lower(&long, &[output], &Options { training: Some(training) }).is_err());
}

/// The gradient of a weight that the head shares begins after all other gradients, and the step needs nearly all of it less.
#[test]
fn logits_twice() {
    let gradient = |program: &Program| {
        let of = |it: &&Tensor| it.name.ends_with("weight.gradient") && it.shape.dims() == [4000, 8];
        let tensor = program.tensors.iter().find(of).unwrap();
        [tensor.first as usize, tensor.last as usize]
    };
    // Layers between whose tensors need more than a chunk of the logits.
    let network_of = |is_tied| network_of_width(is_tied, 4000, 2048);
    let [once, twice] =
        [Chunks::Count(5), Chunks::Twice(5)].map(|chunks| step_in(&network_of(true), chunks, Update::Fused));
    let turn = |program: &Program| program.operations.iter().rposition(|it| it.phase() == Phase::Loss).unwrap();
    assert!(gradient(&once)[0] < turn(&once) && gradient(&once)[1] == gradient(&twice)[1] - (5 * 3));
    assert!(gradient(&twice)[0] > turn(&twice));
    let late = &twice.operations[gradient(&twice)[0]..];
    let of_others = |it: &&Operation| matches!(it.action, Action::Run { pass: Pass::Backward, .. });
    // One of each chunk, and that of the embedding.
    assert_eq!(late.iter().filter(of_others).count(), 6);
    let again = twice.operations.iter().filter(|it| it.phase() == Phase::Again);
    assert_eq!(again.count(), 5 * 3, "each chunk is cut, mapped and measured again");
    assert_eq!(once.evaluation().unwrap().program.operations, twice.evaluation().unwrap().program.operations);
    let needs = [&once, &twice].map(|program| plan(program, 1, Precision::F32).budget[Line::Arena]);
    assert!(needs[0] - needs[1] > 4000 * 8 * 4 / 2, "{needs:?}");
    // Nothing is shared, or the gradient lives to the end anyway.
    for (is_tied, update) in [(false, Update::Fused), (true, Update::Separate)] {
        let [once, twice] =
            [Chunks::Count(5), Chunks::Twice(5)].map(|chunks| step_in(&network_of(is_tied), chunks, update));
        assert!(once == twice, "{is_tied} {update:?}");
    }
}
