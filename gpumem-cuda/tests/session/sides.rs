//! Rectifiers that keep a bit of each element beside what else saves memory: host memory, parts of a batch, what is computed again.

use super::offload::{check_replays, trained};
use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_core::graph::NodeId;
use gpumem_core::lower::{Blueprint, Sizes, Steps};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Op, Pass};
use gpumem_core::train::{Checkpoint, ConvNorm, Descent, Offload};

const ADAM: Optimizer = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });

/// Rectifiers whose outputs no other gradient reads, behind convolutions whose outputs are alike.
fn deep() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 5])).unwrap();
    let block = "Conv2d(8, 3, padding = 1) | Relu | Dropout(0.1) | Conv2d(8, 3, padding = 1) | Silu | Conv2d(8, 1) | \
                 LeakyRelu(0.1) | Pad(1) | AvgPool2d(3, 1) | BatchNorm2d";
    let output = chain(&mut graph, input, &format!("{} | Flatten | Linear(5)", [block; 4].join(" | ")));
    (graph, output)
}

/// The step of it that needs least, trained like this.
fn job(offload: Offload, checkpoint: Checkpoint, micro_batches: u64, precision: Precision) -> Job {
    let (graph, output) = deep();
    let descent = Descent { offload, micro_batches, ..Descent::PLAIN };
    let training = Some(Steps {
        loss: vec![Term::CROSS_ENTROPY],
        moments: 2,
        update: Update::Fused,
        checkpoint,
        descent,
        conv_norm: ConvNorm::Fused,
        ordered_at: None,
    });
    let blueprint = Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() };
    let setting = Sizes::new(BATCH * micro_batches, precision, Workspaces::UNLIMITED);
    let steps = blueprint.trainings(&setting).unwrap();
    let job = job_of_programs([steps.last().unwrap(), &blueprint.inference().unwrap()], ADAM, precision, None);
    assert!(sided(&job, Pass::Forward) > 7);
    job
}

/// Rectifiers of the step that write bits, the first time or again.
fn sided(job: &Job, pass: Pass) -> usize {
    let operations = &job.train.as_ref().unwrap().program.operations;
    let is_it = |action: &Action| matches!(action, Action::Run { op: Op::Rectifier(_), pass: found } if *found == pass);
    operations.iter().filter(|operation| is_it(&operation.action)).count()
}

/// To the bit that of activations and states on the card, in parts of a batch or whole, replayed from graphs.
#[test]
fn beside_host_memory() {
    if !on_a_simulated_card("sides::beside_host_memory", &[]) {
        return;
    }
    for (precision, parts) in [(Precision::F32, 3), (Precision::Mixed(Half::F16), 1)] {
        let of = |offload| job(offload, Checkpoint::None, parts, precision);
        let expected = trained(&of(Offload::None));
        for offload in [Offload::OptimizerState, Offload::Activations, Offload::All] {
            let there = of(offload);
            assert!(there.train.as_ref().unwrap().host() > 0);
            let before = counts();
            assert_eq!(trained(&there), expected, "{precision:?}, {parts} parts, {offload:?}");
            let after = counts();
            // Both halves of the input and the forward pass, and for a part of each half; each part is a replay.
            let captured = if parts == 1 { 3 } else { 5 };
            assert_eq!([after[2] - before[2], after[3] - before[3]], [captured, 5 * parts], "{offload:?}");
        }
    }
    check_replays(&job(Offload::All, Checkpoint::None, 1, Precision::F32));
}

/// Bits that are written again, with all in host memory or nothing: the CPU backend's numbers, and the same on the card with graphs and
/// without.
#[test]
fn beside_recomputation() {
    if !on_a_simulated_card("sides::beside_recomputation", &[]) {
        return;
    }
    for parts in [1, 3] {
        let [here, there] =
            [Offload::None, Offload::All].map(|offload| job(offload, Checkpoint::Auto, parts, Precision::F32));
        assert!([&here, &there].iter().all(|job| sided(job, Pass::Again) > 1));
        let (replayed, plain) = (trained(&there), job(Offload::None, Checkpoint::None, parts, Precision::F32));
        assert_eq!(replayed, trained(&here), "{parts} parts");
        if parts == 1 {
            check_replays(&there);
            let (mut card, mut cpu) = (load(&there), Cpu::with_threads(1).unwrap().load(plain.clone()).unwrap());
            begin(&there, &mut card);
            begin(&plain, &mut cpu);
            for step in 0..4 {
                feed(&there, &mut card, step);
                feed(&plain, &mut cpu, step);
                card.train().unwrap();
                cpu.train().unwrap();
                let (found, expected) = (loss(&there, &mut card), loss(&plain, &mut cpu));
                assert!((found - expected).abs() < 1e-4, "step {step}: {found}, {expected}");
            }
            compare("after 4 steps", &state(&there, &mut card), &state(&plain, &mut cpu));
        }
        // SAFETY: this process runs one test alone, in one thread.
        unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags") };
        let before = counts()[3];
        assert_eq!(trained(&there), replayed, "{parts} parts");
        assert_eq!(counts()[3], before, "no graph was replayed");
        // SAFETY: as above.
        unsafe { std::env::remove_var("GPUMEM_SIMULATED_REFUSED") };
    }
}
