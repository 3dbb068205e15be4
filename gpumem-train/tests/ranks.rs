//! A training on several ranks is that of as many micro-batches on one.

mod common;

use common::points;
use gpumem::Cpu;
use gpumem_data::LoaderOf;
use gpumem_train::log::JsonLines;
use gpumem_train::metrics::Accuracy;
use gpumem_train::{Every, Stop, TrainReport, Trainer};
use std::fs;
use std::path::Path;

/// Two classes of points; padding is left out. A half of a batch has other samples than the other one.
macro_rules! points {
    ($name:ident, $($settings:tt)*) => {
        // All have one name, so that each resumes from states of the others.
        mod $name {
            gpumem::network! {
                pub struct Net;

                const TRAIN: Train = Train {
                    batch: 12, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy { ignore_index: -100 }, seed: 3, $($settings)*
                };

                fn forward(point: Features<2>) -> Logits<3> {
                    [Linear(16), Relu, Dropout(0.1), Linear(3)]
                }
            }
        }
    };
}

points!(one, micro_batches: 2);
points!(two, ranks: 2);
points!(three, ranks: 3);

/// A run of a training, with the loss of each step.
type Run = (Vec<f32>, TrainReport);

/// Trains to the end of an epoch, or until a rank stops after a step. Batches are read by one worker.
macro_rules! train {
    ($name:ty, $device:expr, $folder:expr, $epochs:expr, $stops_after:expr) => {{
        let (folder, stops_after): (&Path, Option<u64>) = ($folder, $stops_after);
        let mut net = <$name>::on($device).unwrap();
        let mut losses = Vec::new();
        let mut loader = LoaderOf::<$name>::new(points(43, 1)).shuffle().workers(1);
        let report = Trainer::new(&mut net)
            .epochs($epochs)
            .validate(points(31, 2))
            .metrics(Accuracy::new())
            .log(JsonLines::new(folder.join("log.jsonl")))
            .log_every(1)
            .checkpoint(folder.join("states"), Every::Steps(3))
            .resume_if_any()
            .quiet()
            .on_step(|context| {
                losses.push(context.loss());
                if Some(context.step()) == stops_after {
                    context.stop();
                }
                Ok(())
            })
            .run(&mut loader)
            .unwrap();
        (losses, report)
    }};
}

/// Calls a function for each rank, in a thread of its own.
fn on_ranks<T: Send>(count: usize, run: impl Fn(usize, &Cpu) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let devices = Cpu::ranks(count).unwrap().into_iter().enumerate();
        let run = &run;
        let threads: Vec<_> = devices.map(|(rank, device)| scope.spawn(move || run(rank, &device))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-5 * expected.abs(), "step {step}: {found} and {expected}");
    }
}

fn value(report: &TrainReport, name: &str) -> f64 {
    let values = &report.last.as_ref().unwrap().values;
    values.iter().find(|(other, _)| other == name).unwrap().1
}

#[test]
fn two_ranks_train_as_one_with_two_micro_batches() {
    let (alone, together) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (losses, report): Run = train!(one::Net, &Cpu::new(), alone.path(), 3, None);
    let runs: Vec<Run> = on_ranks(2, |_, device| train!(two::Net, device, together.path(), 3, None));
    let [first, second] = &runs[..] else { panic!("there are two ranks") };
    assert_eq!(first.0, second.0);
    assert_close(&first.0, &losses);
    assert_eq!(first.0[0], losses[0]);
    for (_, other) in &runs {
        assert_eq!((other.stop, other.steps, other.epochs), (Stop::Finished, report.steps, 3));
        for name in ["train_loss", "val_loss", "val_accuracy"] {
            let (found, expected) = (value(other, name), value(&report, name));
            assert!((found - expected).abs() <= 1e-5 * expected, "{name}: {found} and {expected}");
        }
    }
    // The first rank alone writes: each line once.
    let lines = |folder: &Path| fs::read_to_string(folder.join("log.jsonl")).unwrap().lines().count();
    assert_eq!(lines(together.path()), lines(alone.path()));
    assert!(first.1.checkpoint.is_some() && second.1.checkpoint.is_none());
}

#[test]
fn a_rank_that_stops_stops_all_and_other_numbers_of_ranks_resume() {
    let (alone, together) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (losses, _): Run = train!(one::Net, &Cpu::new(), alone.path(), 3, None);
    let runs: Vec<Run> =
        on_ranks(2, |rank, device| train!(two::Net, device, together.path(), 3, (rank == 1).then_some(5)));
    assert!(runs.iter().all(|(_, report)| (report.stop, report.steps) == (Stop::Asked, 5)));
    let mut all = runs[0].0.clone();
    let runs: Vec<Run> =
        on_ranks(3, |rank, device| train!(three::Net, device, together.path(), 3, (rank == 2).then_some(7)));
    assert!(runs.iter().all(|(_, report)| (report.resumed, report.steps) == (Some(5), 7)));
    all.extend(&runs[0].0);
    let (rest, report): Run = train!(one::Net, &Cpu::new(), together.path(), 3, None);
    assert_eq!((report.resumed, report.stop), (Some(7), Stop::Finished));
    all.extend(rest);
    assert_eq!(all.len(), losses.len());
    // Three ranks have other masks of dropout.
    assert_close(&all[..5], &losses[..5]);
    assert!(all.iter().all(|loss| loss.is_finite()));
}

#[test]
fn a_loader_of_another_share() {
    let found = on_ranks(2, |rank, device| {
        let mut net = two::Net::on(device).unwrap();
        let mut loader = LoaderOf::<two::Net>::new(points(24, 1)).shard(1 - rank, 2);
        Trainer::new(&mut net).epochs(1).quiet().run(&mut loader).unwrap_err().to_string()
    });
    assert_eq!(
        found[0],
        "the loader returns shard 1 of 2, and the network is rank 0 of 2; leave `.shard(1, 2)` out, since the trainer sets it"
    );
}
