//! Steps that are skipped, the norm of gradients, and schedules whose end the trainer knows.

mod common;

use common::state;
use gpumem::Cpu;
use gpumem::prelude::*;
use gpumem_data::{Draw, LoaderOf, Position, from_fn};
use gpumem_train::log::JsonLines;
use gpumem_train::{Error, Origin, Trainer};
use serde_json::Value;

network! {
    /// A number for each point, with running statistics.
    pub struct Guarded;

    const TRAIN: Train = Train {
        batch: 8, optimizer: Sgd { lr: 0.1 }, loss: Mse, skip: NonFinite, measure: GradientNorm, schedule: Linear,
    };

    fn forward(point: Features<2>) -> Features<1> {
        [BatchNorm1d, Linear(1)]
    }
}

/// Sums of points, of which those samples that `is_bad` says have a number that is none.
fn loader(len: usize, is_bad: fn(usize) -> bool) -> LoaderOf<Guarded> {
    let set = from_fn(len, move |index, _, sample| {
        let mut draw = Draw::new(1, 0, index);
        let (x, y) = (draw.uniform() as f32, draw.uniform() as f32);
        sample.input(0)?.put_numbers(&[if is_bad(index) { f32::NAN } else { x }, y])?;
        sample.target(0)?.put_numbers(&[x + y])
    });
    LoaderOf::<Guarded>::new(set).workers(1)
}

#[test]
fn a_training_goes_on_after_a_batch_that_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    let mut net = Guarded::on(&Cpu::new()).unwrap();
    let mut seen = Vec::new();
    let report = Trainer::new(&mut net)
        .epochs(1)
        .quiet()
        .log(JsonLines::new(&path))
        .log_every(1)
        .on_step(|context| {
            seen.push((context.step(), context.report().is_skipped));
            Ok(())
        })
        .run(&mut loader(80, |index| index == 50 || index == 58))
        .unwrap();
    assert_eq!((report.steps, report.epochs), (8, 1));
    let expected: Vec<(u64, bool)> =
        (1..=6).map(|step| (step, false)).chain([(6, true), (6, true), (7, false), (8, false)]).collect();
    assert_eq!(seen, expected);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines: Vec<&Value> = lines.iter().filter(|line| line.get("loss").is_some()).collect();
    assert_eq!(lines.len(), 8);
    for (index, line) in lines.iter().enumerate() {
        assert!(line["gradient_norm"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["skipped"].as_f64(), Some(if index < 6 { 0.0 } else { 2.0 }), "{line}");
    }
    // The same as without these batches, with the same end of the schedule.
    let mut other = Guarded::on(&Cpu::new()).unwrap();
    other.set_total(10).unwrap();
    let mut batches = loader(80, |_| false);
    for number in 0..10 {
        let batch = batches.next_batch().unwrap();
        if !(6..8).contains(&number) {
            other.train_step(&batch.input, &batch.target).unwrap();
        }
    }
    assert_eq!(state(&mut net), state(&mut other));
}

#[test]
fn a_training_of_bad_batches_alone_ends() {
    let lasting = |net: &mut _| {
        let mut all = state(net);
        all.retain(|(name, _)| !name.ends_with(".gradient"));
        all
    };
    let mut net = Guarded::on(&Cpu::new()).unwrap();
    let before = lasting(&mut net);
    let mut data = loader(8, |_| true);
    let error = Trainer::new(&mut net).max_steps(5).quiet().run(&mut data).unwrap_err();
    let text = error.to_string();
    let Error::NotFinite(found) = error else { panic!("{text}") };
    assert_eq!((found.skipped, found.step, found.position), (100, 1, Position { epoch: 99, sample: 0 }));
    assert!(matches!(&found.origin, Origin::Found { step: 1, .. }), "{text}");
    assert!(
        text.starts_with(
            "100 steps in a row were skipped, and the loss of the last is NaN: the first NaN of the step is in `"
        ),
        "{text}"
    );
    assert!(text.ends_with("The network is as before this step"), "{text}");
    assert_eq!(lasting(&mut net), before);
}

#[test]
fn an_open_schedule_ends_with_the_training() {
    let mut net = Guarded::on(&Cpu::new()).unwrap();
    Trainer::new(&mut net).epochs(3).quiet().run(&mut loader(16, |_| false)).unwrap();
    assert_eq!((net.schedule().total(), net.lr().unwrap()), (Some(6), 0.0));
    // One that was set stays.
    let mut net = Guarded::on(&Cpu::new()).unwrap();
    net.set_total(12).unwrap();
    Trainer::new(&mut net).max_steps(6).quiet().run(&mut loader(16, |_| false)).unwrap();
    assert_eq!((net.schedule().total(), net.lr().unwrap()), (Some(12), 0.05));
    let mut net = Guarded::on(&Cpu::new()).unwrap();
    let error = Trainer::new(&mut net).early_stop(3).quiet().run(&mut loader(16, |_| false)).unwrap_err().to_string();
    let message = "the schedule in `TRAIN` has no `total`, and nothing says how many steps the training has; give the trainer `.epochs(n)` or \
                   `.max_steps(n)`, or call `net.set_total(steps)`";
    assert!(error.contains(message), "{error}");
}
