//! Attention's forward pass by each kernel that a card has for it: times, as a table.

use crate::card;
use crate::harness::graphs::{layer, numbers, own, plan};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Node, Source};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::program::ops::Attention;
use gpumem_core::program::{Class, Phase, Program};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Half, Update};
use gpumem_cuda::{Cuda, Session};

const REPETITIONS: usize = 10;

/// Time steps of all sequences together.
const TOKENS: u64 = 16_384;

/// Heads, elements of each, time steps, and if the mask is causal.
type Shape = ([u64; 3], bool);

/// A training step of attention alone, with the gradient of its input.
fn program(([heads, width, steps], causal): Shape) -> Program {
    let mut graph = Graph::default();
    let op = Attention::joined([heads, heads, width], 0.0, causal, &[steps]);
    let input = graph.input(numbers(&[steps, op.rows()[0]])).unwrap();
    let value = numbers(&[steps, op.features()]);
    // A layer whose row it is in.
    let inputs = vec![layer(&mut graph, input, "Dropout(0.0)")];
    let row = graph.nodes[inputs[0]].row;
    let source = Source::Op { op: op.into(), inputs, buffers: Vec::new(), in_place: false };
    graph.nodes.push(Node { value, source, row, detached: false });
    let output = graph.nodes.len() - 1;
    let training = Training {
        loss: &[Term::DOT],
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: Descent::PLAIN,
    };
    lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
}

/// The step on a card, with numbers in its input and its target.
fn load(card: &Cuda, program: &Program, batch: u64) -> Session {
    let compiled = plan(program, batch, Precision::Bf16);
    let placed = place(&compiled).unwrap();
    let job = Job {
        name: "attention",
        arena: compiled.budget[Line::Arena],
        reserve: 0,
        batch,
        precision: Precision::Bf16,
        train: Some(placed.clone()),
        evaluation: None,
        served: None,
        others: Vec::new(),
        infer: placed.clone(),
        optimizer: Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }),
        tf32: false,
        deterministic: false,
        settings: 0,
        operations: &own::OPERATIONS,
    };
    let mut session = card.load(job).unwrap();
    for class in [Class::Input, Class::Target, Class::State] {
        program.of_class(class).for_each(|id| fill(&mut session, &placed, id as usize, class));
    }
    session
}

fn fill(session: &mut Session, placed: &Placed, id: usize, class: Class) {
    let bytes = placed.bytes[id] as usize;
    let number = |index: usize| Half::Bf16.narrow((index * 7919 % 2003) as f32 / 1001.5 - 1.0).to_le_bytes();
    let numbers = if class == Class::State { vec![0; bytes] } else { (0..bytes / 2).flat_map(number).collect() };
    session.write(placed.offsets[id], &numbers).unwrap();
}

/// The median of the forward pass's times, in microseconds.
fn time(session: &mut Session) -> f64 {
    let profile = session.profile(REPETITIONS).unwrap();
    let is_it = |phase: Phase, kind: &str| phase == Phase::Forward && kind == "attention";
    let launch = profile.programs[0].launches.iter().find(|it| is_it(it.counted.phase, it.counted.kind())).unwrap();
    let mut us = launch.us.clone();
    us.sort_unstable_by(f64::total_cmp);
    us[us.len() / 2]
}

#[test]
fn times_by_kernel() {
    let Some(card) = card() else { return };
    let own = card.cuda.clone().with_library(false).with_cudnn(false);
    let has_warpgroups = own.capability() == (9, 0);
    println!(
        "| heads x elements | steps | causal | mma us | wgmma us | cuDNN us |\n| --- | --- | --- | --- | --- | --- |"
    );
    let mut left_out = 0;
    for ([heads, width], steps) in [([12, 64], 1024), ([16, 128], 1024), ([12, 64], 4096), ([16, 128], 4096)] {
        for causal in [true, false] {
            let (program, batch) = (program(([heads, width, steps], causal)), TOKENS / steps);
            let mma = time(&mut load(&own, &program, batch));
            let mut wgmma = String::from("-");
            if has_warpgroups {
                let mut session = load(&own.clone().with_wgmma(true), &program, batch);
                let is_there = session.warpgroup_attentions() > 0;
                wgmma = if is_there { format!("{:.1}", time(&mut session)) } else { "left out".into() };
                left_out += usize::from(!is_there);
            }
            let mut session = load(&card.cuda, &program, batch);
            let cudnn = if session.attentions() > 0 { format!("{:.1}", time(&mut session)) } else { "-".into() };
            println!("| {heads} x {width} | {steps} | {causal} | {mma:.1} | {wgmma} | {cudnn} |");
        }
    }
    assert_eq!(left_out, 0, "attention on warpgroup instructions was left out: the notices above say why");
}
