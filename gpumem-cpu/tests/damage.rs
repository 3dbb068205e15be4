//! Damaged programs: whatever bytes are changed, decoding, loading and running end in an error or a result, never in a
//! panic.

mod harness;

use gpumem_core::Precision;
use gpumem_core::Update;
use gpumem_core::graph::Lora;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::place;
use gpumem_core::number::Coding;
use gpumem_core::operation::Operations;
use gpumem_core::program::Program;
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::{Adam, Optimizer};
use gpumem_core::train::{Clip, Descent, Schedule};
use gpumem_cpu::Cpu;
use harness::graphs::plan;
use harness::graphs::random::{BATCH, KINDS, network};
use proptest::prelude::*;

/// A forward pass, or a training step of one of three kinds.
fn options(kind: usize) -> Options<'static> {
    let clip = [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(0.5))][kind % 3];
    let schedule = Schedule::Cosine { warmup: 1, total: 9, min: 0.0 };
    let training = (kind > 0).then_some(Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 2,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent { clip, schedule, ..Descent::PLAIN },
    });
    Options { training }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_program_is_refused_or_runs(
        choices in prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..8),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        kind in 0usize..6,
    ) {
        let (mut graph, mut output) = network(&choices, true);
        if kind >= 3 {
            let (base, rows) = (Some(Coding::ALL[kind % 2]), 0..graph.rows.len());
            output = graph.adapt(&[Lora { rank: 2, alpha: 3.0, targets: Vec::new(), base, rows }])[output];
        }
        let compiled = plan(&lower(&graph, &[output], &options(kind)).unwrap(), BATCH, Precision::F32);
        let Placed { offsets, .. } = place(&compiled).unwrap();
        let mut bytes = place(&compiled).unwrap().program.encode();
        for (at, byte) in damages {
            *at.get_mut(&mut bytes[..]) = byte;
        }
        let Some(program) = Program::decode(&bytes) else { return Ok(()) };
        let _ = place(&Compiled { program: &bytes, ..compiled });
        let arena = offsets.iter().max().unwrap() + (1 << 20);
        let placed = Placed::new(program, offsets, BATCH, Precision::F32);
        let job = Job {
            name: "Damaged",
            arena,
            reserve: 0,
            batch: BATCH,
            precision: Precision::F32,
            train: Some(placed.clone()),
            evaluation: placed.evaluation().ok(),
            served: None,
            others: Vec::new(), infer: placed,
            optimizer: Optimizer::Adam(Adam::DEFAULT),
            tf32: false,
            deterministic: false,
            settings: 0,
            operations: &Operations::NONE,
        };
        if let Ok(mut session) = Cpu::with_threads(1).unwrap().load(job) {
            let _ = session.train();
            let _ = session.infer();
        }
    }
}
