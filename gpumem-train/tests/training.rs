//! A training from its first step to its report.

mod common;

use common::{Line, Points, Strict, loader, points, state, sums};
use gpumem::Cpu;
use gpumem::prelude::*;
use gpumem_data::{Batched, Loader, LoaderOf, Position};
use gpumem_train::metrics::{Accuracy, MeanAbsoluteError};
use gpumem_train::{Every, Stop, Trainer};
use std::cell::RefCell;

fn net<N: Trains>() -> Net<N, Cpu> {
    Net::load(&Cpu::new()).unwrap()
}

#[test]
fn a_training_is_the_loop_that_one_would_write() {
    let mut by_hand = net::<Points>();
    let mut batches = loader(61);
    let mut losses = Vec::new();
    for _ in 0..3 {
        for batch in batches.epoch().unwrap() {
            let batch = batch.unwrap();
            losses.push(by_hand.train_step(&batch.input, &batch.target).unwrap());
        }
    }
    let mut trained = net::<Points>();
    let mut batches = loader(61);
    let mut trainer = Trainer::new(&mut trained).epochs(3).quiet();
    let mut steps = trainer.steps(&mut batches).unwrap();
    let made: Vec<_> = steps.by_ref().map(|step| step.unwrap()).collect();
    assert_eq!(made.iter().map(|step| step.loss).collect::<Vec<f32>>(), losses);
    assert_eq!(made.iter().map(|step| step.step).collect::<Vec<u64>>(), (1..=24).collect::<Vec<u64>>());
    assert_eq!(
        made.iter().map(|step| step.epoch).collect::<Vec<u64>>(),
        (0..24).map(|step| step / 8).collect::<Vec<u64>>()
    );
    assert_eq!(made[7].samples, 5);
    // Means are over samples: the last batch of an epoch has 5 of them.
    let sum: f64 =
        losses[..8].iter().zip([8, 8, 8, 8, 8, 8, 8, 5]).map(|(&loss, samples)| f64::from(loss * samples as f32)).sum();
    let train_loss = made[7].evaluation.as_ref().unwrap().get("train_loss").unwrap();
    assert!((train_loss - sum / 61.0).abs() < 1e-6, "{train_loss}");
    assert!(made[..7].iter().all(|step| step.evaluation.is_none()));
    let report = steps.report().unwrap();
    assert_eq!((report.stop, report.steps, report.epochs, report.resumed), (Stop::Finished, 24, 3, None));
    assert!(steps.advance().unwrap().is_none());
    drop(steps);
    assert_eq!(state(&mut trained), state(&mut by_hand));
    // All epochs have been made: nothing is left to do.
    let report = Trainer::new(&mut trained).epochs(3).quiet().run(&mut batches).unwrap();
    assert_eq!((report.steps, report.last), (24, None));
}

/// The mean loss over samples and the accuracy, of one sample at a time.
fn by_hand(net: &mut Net<Points, Cpu>, len: usize) -> (f64, f64) {
    let mut loader = LoaderOf::<Points>::new(points(len, 2)).workers(1);
    let (mut sum, mut right) = (0.0, 0);
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let logits = net.forward(&batch.input).unwrap();
        for (row, class) in logits.argmax().into_iter().enumerate().take(batch.len) {
            let label = batch.target.as_slice()[row];
            right += usize::from(class == label as usize);
            let probability = logits.softmax().as_slice()[row * 3 + label as usize];
            sum -= f64::from(probability).ln();
        }
    }
    (sum / len as f64, right as f64 / len as f64)
}

#[test]
fn validation_counts_each_sample_once() {
    for len in [8, 19, 3] {
        let mut trained = net::<Points>();
        Trainer::new(&mut trained).epochs(2).quiet().run(&mut loader(64)).unwrap();
        let (loss, accuracy) = by_hand(&mut trained, len);
        let mut trainer = Trainer::new(&mut trained).validate(points(len, 2)).metrics(Accuracy::new()).quiet();
        let scores = trainer.evaluate().unwrap();
        assert_eq!(scores, trainer.evaluate().unwrap());
        let given = (scores.get("val_loss").unwrap(), scores.get("val_accuracy").unwrap());
        assert!((given.0 - loss).abs() < 1e-5 && given.1 == accuracy, "{given:?}, {loss}, {accuracy}");
        assert_eq!(scores.values.len(), 2);
    }
}

#[test]
fn padding_that_the_loss_would_count_is_left_out_of_it() {
    let mut trained = net::<Strict>();
    let mut whole = Trainer::new(&mut trained).validate(points(16, 2)).metrics(Accuracy::new());
    let (loss, accuracy) = {
        let scores = whole.evaluate().unwrap();
        (scores.get("val_loss").unwrap(), scores.get("val_accuracy").unwrap())
    };
    drop(whole);
    let mut padded = Trainer::new(&mut trained).validate(points(19, 2)).metrics(Accuracy::new());
    let scores = padded.evaluate().unwrap();
    // The loss is that of the two batches that are whole, and the accuracy that of all samples.
    assert_eq!(scores.get("val_loss"), Some(loss));
    let right = scores.get("val_accuracy").unwrap() * 19.0;
    assert!((right - right.round()).abs() < 1e-9 && right >= accuracy * 16.0, "{right}");

    let mut numbers = net::<Line>();
    let mut mean = |len| {
        let mut trainer = Trainer::new(&mut numbers).validate(sums(len, 2)).metrics(MeanAbsoluteError::new());
        trainer.evaluate().unwrap()
    };
    assert_eq!(mean(16).get("val_loss"), mean(21).get("val_loss"));
    assert_ne!(mean(16).get("val_mae"), mean(21).get("val_mae"));
}

#[test]
fn a_loader_validates_as_it_is_set() {
    let mut trained = net::<Points>();
    let set = LoaderOf::<Points>::new(points(19, 2)).drop_last().workers(1);
    let dropped = Trainer::new(&mut trained).validate(set).evaluate().unwrap();
    assert_eq!(dropped, Trainer::new(&mut trained).validate(points(16, 2)).evaluate().unwrap());
}

#[test]
fn the_best_evaluation_is_reported_and_training_stops_without_a_better_one() {
    let mut trained = net::<Points>();
    let values = [3.0, 2.0, 2.5, 1.0, 1.0, 4.0, f64::NAN, 0.5];
    let mut seen = Vec::new();
    let mut batches = loader(16);
    let mut trainer = Trainer::new(&mut trained)
        .on_epoch(|context| {
            context.log("x", values[context.epoch() as usize]);
            Ok(())
        })
        .best_by_lowest("x")
        .early_stop(3)
        .quiet();
    for step in trainer.steps(&mut batches).unwrap() {
        seen.extend(step.unwrap().evaluation.map(|evaluation| evaluation.is_best));
    }
    assert_eq!(seen, [true, true, false, true, false, false, false]);
    drop(trainer);
    let report =
        Trainer::new(&mut trained).best_by("train_loss").early_stop(1).epochs(60).quiet().run(&mut batches).unwrap();
    let best = report.best.unwrap();
    assert_eq!(report.stop, Stop::Stalled);
    assert_eq!((best.name.as_str(), best.epoch + 2), ("train_loss", report.epochs));
}

#[test]
fn evaluations_come_as_often_as_asked() {
    let mut trained = net::<Points>();
    let mut at = Vec::new();
    let mut batches = loader(64);
    let mut trainer = Trainer::new(&mut trained).max_steps(13).evaluate_every(Every::Steps(5)).quiet();
    for step in trainer.steps(&mut batches).unwrap() {
        let step = step.unwrap();
        at.extend(step.evaluation.map(|_| step.step));
    }
    assert_eq!(at, [5, 10]);
    assert_eq!(batches.position(), Position { epoch: 1, sample: 40 });
}

#[test]
fn callbacks_set_the_learning_rate_and_stop() {
    let rate = |step: u64| 0.1 / step as f64;
    let mut by_hand = net::<Points>();
    let mut batches = loader(64);
    for step in 1..=5 {
        let batch = batches.next_batch().unwrap();
        by_hand.train_step(&batch.input, &batch.target).unwrap();
        by_hand.set_lr(rate(step)).unwrap();
    }
    let mut trained = net::<Points>();
    let report = Trainer::new(&mut trained)
        .epochs(3)
        .quiet()
        .on_step(|context| {
            assert_eq!(context.report().loss, context.loss());
            context.set_lr(rate(context.step()))?;
            if context.step() == 5 {
                context.stop();
            }
            Ok(())
        })
        .run(&mut loader(64))
        .unwrap();
    assert_eq!((report.stop, report.steps, report.epochs), (Stop::Asked, 5, 0));
    assert_eq!(state(&mut trained), state(&mut by_hand));
    // From another thread.
    let mut trainer = Trainer::new(&mut trained).epochs(1_000_000).quiet();
    let stopper = trainer.stopper();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        stopper.stop();
    });
    assert_eq!(trainer.run(&mut loader(64)).unwrap().stop, Stop::Asked);
    thread.join().unwrap();
}

#[test]
fn callbacks_may_change_the_network_and_see_values() {
    let mut trained = net::<Points>();
    let seen = RefCell::new(Vec::new());
    Trainer::new(&mut trained)
        .epochs(1)
        .quiet()
        .validate(points(8, 2))
        .on_step(|context| {
            context.log("twice", f64::from(2.0 * context.loss()));
            assert_eq!(context.value("twice"), Some(f64::from(2.0 * context.loss())));
            assert_eq!(context.value("val_loss"), None);
            let name = context.net().names().next().unwrap().to_string();
            let zeros = vec![0.0; context.net().get(&name)?.len()];
            context.net().set(&name, &zeros)?;
            Ok(())
        })
        .on_epoch(|context| {
            seen.borrow_mut().push(context.value("val_loss").unwrap());
            Ok(())
        })
        .run(&mut loader(16))
        .unwrap();
    assert_eq!(seen.borrow().len(), 1);
    let name = trained.names().next().unwrap().to_string();
    assert!(trained.get(&name).unwrap().iter().all(|&value| value == 0.0));
}

#[test]
fn plain_lines_tell_what_happens() {
    let mut trained = net::<Strict>();
    let mut text = Vec::new();
    let report = Trainer::new(&mut trained)
        .epochs(2)
        .validate(points(8, 2))
        .metrics(Accuracy::new())
        .best_by("val_accuracy")
        .progress_to(&mut text)
        .run(&mut loader_of(16))
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(!text.contains('\u{1b}'));
    let last = report.last.as_ref().unwrap();
    let value = |name: &str| last.get(name).unwrap();
    let expected = format!(
        "epoch 2  step 4  train_loss {:.4}  val_loss {:.4}  val_accuracy {:.4}{}",
        value("train_loss"),
        value("val_loss"),
        value("val_accuracy"),
        if last.is_best { "  (best)" } else { "" }
    );
    assert_eq!(lines[1], expected);
    assert!(lines[0].starts_with("epoch 1  step 2  train_loss ") && lines[0].ends_with("  (best)"), "{text}");
    assert_eq!(lines[2..].join("\n"), report.to_string());
    assert!(lines[2].starts_with("finished after 2 epochs and 4 steps, in "), "{text}");
    assert!(lines[4].starts_with("  best: val_accuracy "), "{text}");
}

#[test]
fn a_batch_of_padding_alone_is_no_step() {
    // Of 17 samples, the second of two ranks has 8, and the first one has a ninth.
    let mut trained = net::<Points>();
    let mut evaluations = 0;
    let mut trainer = Trainer::new(&mut trained).epochs(2).quiet().on_epoch(|_| {
        evaluations += 1;
        Ok(())
    });
    let report = trainer.run(&mut loader(17).shard(1, 2)).unwrap();
    drop(trainer);
    assert_eq!((report.steps, report.epochs, evaluations), (2, 2, 2));
    assert!(report.last.unwrap().get("train_loss").unwrap().is_finite());
}

#[test]
fn a_writer_of_progress_serves_every_run() {
    let mut trained = net::<Points>();
    let mut text = Vec::new();
    let mut trainer = Trainer::new(&mut trained).epochs(1).progress_to(&mut text);
    trainer.run(&mut loader(16)).unwrap();
    trainer.run(&mut loader(16)).unwrap();
    drop(trainer);
    assert_eq!(String::from_utf8(text).unwrap().matches("finished after 1 epoch and").count(), 2);
}

#[test]
fn a_network_that_a_loop_changes_is_followed() {
    let mut trained = net::<Strict>();
    let mut batches = loader_of(16);
    let mut trainer = Trainer::new(&mut trained).max_steps(20).quiet();
    let mut steps = trainer.steps(&mut batches).unwrap();
    assert_eq!(steps.advance().unwrap().unwrap().step, 1);
    steps.net().set_steps(10).unwrap();
    assert_eq!(steps.advance().unwrap().unwrap().step, 11);
    assert_eq!(steps.finish().unwrap().steps, 20);
}

fn loader_of<I: Batched, T: Batched>(len: usize) -> Loader<I, T> {
    Loader::new(points(len, 1)).shuffle().seed(5).workers(1)
}
