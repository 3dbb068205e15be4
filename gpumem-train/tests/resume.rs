//! A training that goes on is the one that was interrupted, bit for bit.

mod common;

use common::{Points, loader, points, state};
use gpumem::Cpu;
use gpumem_state::SavedState;
use gpumem_train::log::{Csv, JsonLines, TensorBoard};
use gpumem_train::metrics::{Accuracy, ConfusionMatrix};
use gpumem_train::{Every, Stop, TrainReport, Trainer};
use std::fs;
use std::path::Path;

type State = Vec<(String, Vec<u32>)>;

/// Trains for some steps with all that a checkpoint must remember.
fn train(folder: &Path, steps: u64, stop_after: Option<u64>) -> (State, TrainReport) {
    let mut net = Points::on(&Cpu::new()).unwrap();
    let report = Trainer::new(&mut net)
        .max_steps(steps)
        .validate(points(19, 2))
        .metrics(Accuracy::new())
        .metrics(ConfusionMatrix::new())
        .log(JsonLines::new(folder.join("log.jsonl")))
        .log(Csv::new(folder.join("log.csv")))
        .log(TensorBoard::new(folder.join("events")).histograms())
        .log_every(3)
        .checkpoint(folder.join("states"), Every::Steps(7))
        .best_by("val_accuracy")
        .early_stop(50)
        .keep(2)
        .resume_if_any()
        .snapshot_every(5)
        .on_step(|context| {
            context.set_lr(0.02 / (1.0 + context.step() as f64 / 10.0))?;
            if Some(context.step()) == stop_after {
                context.stop();
            }
            Ok(())
        })
        .quiet()
        .run(&mut loader(61))
        .unwrap();
    (state(&mut net), report)
}

/// The lines of a log without the time.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let without_time = |line: &str| match line.split_once("\"seconds\":") {
        Some((before, after)) => format!("{before}{}", after.split_once(',').unwrap().1),
        None => line
            .split(',')
            .enumerate()
            .filter(|(column, _)| *column != 2)
            .map(|(_, field)| field)
            .collect::<Vec<_>>()
            .join(","),
    };
    text.lines().map(without_time).collect()
}

#[test]
fn an_interrupted_training_goes_on_exactly() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, report) = train(whole.path(), 40, None);
    assert_eq!((report.stop, report.steps, report.epochs), (Stop::Finished, 40, 5));
    // Inside an epoch, at its end, and twice at one step.
    for stops in [&[11][..], &[8], &[3, 20, 29], &[16, 17]] {
        let parts = tempfile::tempdir().unwrap();
        for &stop in stops {
            let (_, report) = train(parts.path(), 40, Some(stop));
            assert_eq!((report.stop, report.steps), (Stop::Asked, stop));
        }
        let (found, last) = train(parts.path(), 40, None);
        assert_eq!(last.resumed, stops.last().copied());
        assert!(found == expected, "stopped at {stops:?}");
        assert_eq!((&last.best, &last.last), (&report.best, &report.last), "stopped at {stops:?}");
        for log in ["log.jsonl", "log.csv"] {
            assert_eq!(lines(&parts.path().join(log)), lines(&whole.path().join(log)), "{log}, stopped at {stops:?}");
        }
    }
}

#[test]
fn a_crash_loses_only_what_follows_the_checkpoint() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(whole.path(), 24, None);
    let crashed = tempfile::tempdir().unwrap();
    let mut net = Points::on(&Cpu::new()).unwrap();
    // The steps after the checkpoint of step 14 are logged, but no state is saved at the end.
    let log = crashed.path().join("log.jsonl");
    let error = Trainer::new(&mut net)
        .max_steps(24)
        .validate(points(19, 2))
        .metrics(Accuracy::new())
        .metrics(ConfusionMatrix::new())
        .log(JsonLines::new(&log))
        .log_every(3)
        .checkpoint(crashed.path().join("states"), Every::Steps(7))
        .quiet()
        .on_step(|context| {
            context.set_lr(0.02 / (1.0 + context.step() as f64 / 10.0))?;
            if context.step() == 19 { Err("the power failed")? } else { Ok(()) }
        })
        .run(&mut loader(61))
        .unwrap_err();
    assert_eq!(error.to_string(), "a callback failed after step 19: the power failed");
    // It had written half of a line.
    let mut text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("\"step\":18"), "{text}");
    text += "{\"step\":21,\"epo";
    fs::write(&log, text).unwrap();
    let (found, report) = train(crashed.path(), 24, None);
    assert_eq!(report.resumed, Some(14));
    assert!(found == expected);
    assert_eq!(lines(&log), lines(&whole.path().join("log.jsonl")));
}

#[test]
fn the_best_checkpoint_is_marked_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (_, report) = train(folder.path(), 60, None);
    let best = report.best.unwrap();
    let saved = SavedState::open_marked(folder.path().join("states"), "best").unwrap();
    assert_eq!(saved.numbers().steps, best.step);
    let latest = SavedState::open(folder.path().join("states")).unwrap();
    assert_eq!((latest.numbers().steps, report.checkpoint.as_deref()), (60, Some(latest.path())));
    let mut net = Points::on(&Cpu::new()).unwrap();
    saved.resume(&mut net).unwrap();
    let scores = Trainer::new(&mut net).validate(points(19, 2)).metrics(Accuracy::new()).evaluate().unwrap();
    assert_eq!(scores.get("val_accuracy"), Some(best.value));
}

#[test]
fn a_new_training_leaves_an_earlier_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let log = folder.path().join("log.jsonl");
    let run = |resume: bool, states: &Path| {
        let mut net = Points::on(&Cpu::new()).unwrap();
        let trainer = Trainer::new(&mut net).max_steps(4).log_every(1).checkpoint(states, Every::Epoch).quiet();
        let trainer = trainer.log(JsonLines::new(&log));
        let mut trainer = if resume { trainer.resume() } else { trainer };
        trainer.run(&mut loader(61))
    };
    let none = run(true, &states).unwrap_err().to_string();
    assert!(none.contains("has no state of a training"), "{none}");
    run(false, &states).unwrap();
    let first = fs::read_to_string(&log).unwrap();
    assert_eq!(
        run(false, &states).unwrap_err().to_string(),
        format!(
            "`{}`: has states of an earlier training; go on from the newest with `.resume_if_any()`, or choose another folder",
            states.display()
        )
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), first);
    run(false, &folder.path().join("others")).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("log.1.jsonl")).unwrap(), first);
    assert_eq!(lines(&log), lines(&folder.path().join("log.1.jsonl")));
    // All steps have been made.
    assert_eq!(run(true, &states).unwrap().resumed, Some(4));
}

#[test]
fn a_training_that_stalled_makes_no_further_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let mut net = Points::on(&Cpu::new()).unwrap();
        let trainer = Trainer::new(&mut net).checkpoint(folder.path(), Every::Epoch).resume_if_any().quiet();
        let mut trainer = trainer.best_by_highest("x").early_stop(2).on_epoch(|context| {
            context.log("x", 1.0 / (context.epoch() + 1) as f64);
            Ok(())
        });
        trainer.run(&mut loader(16)).unwrap()
    };
    let (first, again) = (run(), run());
    assert_eq!((first.stop, first.epochs, first.resumed), (Stop::Stalled, 3, None));
    assert_eq!((again.stop, again.epochs, again.resumed), (Stop::Stalled, 3, Some(first.steps)));
    assert_eq!(again.best, first.best);
}

#[test]
fn an_evaluation_that_was_broken_off_is_made_again() {
    use gpumem_data::{Draw, from_fn};
    use gpumem_train::Stopper;
    use std::sync::{Arc, Mutex};

    let run = |folder: &Path, breaks: bool| {
        let asks: Arc<Mutex<Option<Stopper>>> = Arc::default();
        let held = asks.clone();
        let set = from_fn(40, move |index, _, sample| {
            if let Some(stopper) = held.lock().unwrap().as_ref().filter(|_| index == 20) {
                stopper.stop();
            }
            sample.input(0)?.put_numbers(&[Draw::new(9, 0, index).uniform() as f32, 0.5])?;
            sample.target(0)?.put_label(1)
        });
        let validation = gpumem_data::LoaderOf::<Points>::new(set).workers(1).prefetch(1);
        let mut seen = Vec::new();
        let mut net = Points::on(&Cpu::new()).unwrap();
        let trainer = Trainer::new(&mut net)
            .epochs(2)
            .validate(validation)
            .log(JsonLines::new(folder.join("log.jsonl")))
            .log_every(1)
            .checkpoint(folder.join("states"), Every::Epoch)
            .best_by("val_loss")
            .on_epoch(|context| {
                seen.push((context.step(), context.loss()));
                Ok(())
            })
            .resume_if_any()
            .quiet();
        let mut trainer = trainer;
        *asks.lock().unwrap() = breaks.then(|| trainer.stopper());
        let report = trainer.run(&mut loader(61)).unwrap();
        drop(trainer);
        (seen, report, state(&mut net))
    };
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (seen, report, expected) = run(whole.path(), false);
    let (none, broken, _) = run(parts.path(), true);
    assert_eq!((none.len(), broken.stop, broken.steps, broken.last), (0, Stop::Asked, 8, None));
    let (again, last, found) = run(parts.path(), false);
    assert_eq!((again, last.best, last.stop), (seen, report.best, Stop::Finished));
    assert!(found == expected);
    assert_eq!(lines(&parts.path().join("log.jsonl")), lines(&whole.path().join("log.jsonl")));
}
