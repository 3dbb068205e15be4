//! Settings that are not possible, and what is said of them.

mod common;

use common::{Line, Points, Strict, loader, points, sums};
use gpumem::prelude::*;
use gpumem::{Cpu, Device};
use gpumem_data::{Batched, LoaderOf, Position, from_fn};
use gpumem_train::metrics::Accuracy;
use gpumem_train::{Every, Trainer};

/// Returns the error of a training of `Points` that `set` has set.
fn refused(set: impl for<'n> FnOnce(Trainer<'n, 'static, Points, Cpu>) -> Trainer<'n, 'static, Points, Cpu>) -> String {
    let mut net = Points::on(&Cpu::new()).unwrap();
    let error = set(Trainer::new(&mut net).quiet()).run(&mut loader(61)).unwrap_err();
    assert_eq!(net.steps().unwrap(), 0);
    assert_eq!(format!("{error:?}"), error.to_string(), "what a `main` that returns it prints");
    error.to_string()
}

#[test]
fn settings_that_are_not_possible_are_refused_before_the_first_step() {
    assert_eq!(
        refused(|trainer| trainer),
        "nothing says when the training ends; add `.epochs(90)`, `.max_steps(10_000)` or `.early_stop(5)`"
    );
    assert_eq!(
        refused(|trainer| trainer.epochs(1).metrics(Accuracy::new())),
        "metrics need samples that the network is not trained on; add `.validate(set)`"
    );
    assert_eq!(
        refused(|trainer| trainer.epochs(1).validate(points(8, 2)).metrics(Accuracy::new()).metrics(Accuracy::top(1))),
        "two values have the name `val_accuracy`; give one metric a name of its own, as \
         `select(metric, |outputs| outputs, |targets| targets).named(\"other\")` does"
    );
    let interval = "an interval of 0 steps or minutes is none; take `Every::Steps(1)` or more";
    assert_eq!(refused(|trainer| trainer.epochs(1).evaluate_every(Every::Steps(0))), interval);
    assert_eq!(refused(|trainer| trainer.epochs(1).checkpoint("never", Every::Minutes(0))), interval);
    let folder = "`resume`, `resume_if_any` and `keep` are about checkpoints; add `.checkpoint(\"run\", Every::Epoch)`";
    assert_eq!(refused(|trainer| trainer.epochs(1).resume()), folder);
    assert_eq!(refused(|trainer| trainer.epochs(1).resume_if_any()), folder);
    assert_eq!(refused(|trainer| trainer.epochs(1).keep(3)), folder);
    assert_eq!(
        refused(|trainer| trainer.early_stop(0)),
        "early stopping after 0 evaluations stops at once; take `.early_stop(1)` or more"
    );
    assert_eq!(
        refused(|trainer| trainer.epochs(1).validate(points(8, 2)).metrics(Accuracy::new()).best_by("accuracy")),
        "no evaluation has a value `accuracy` to choose the best by; there is `train_loss`, `val_loss`, `val_accuracy`: for a value that a \
         callback logs, take `.best_by_highest(\"accuracy\")` or `.best_by_lowest(\"accuracy\")`"
    );
    assert!(!std::path::Path::new("never").exists());
    let mut net = Points::on(&Cpu::new()).unwrap();
    assert_eq!(
        Trainer::new(&mut net).evaluate().unwrap_err().to_string(),
        "there is nothing to evaluate on; add `.validate(set)`"
    );
}

#[test]
fn padding_that_the_loss_would_count_is_refused() {
    let message = "the last batch of an epoch has 5 of 8 samples, and the loss would count its padding; add `.drop_last()` to the loader, or \
                   `ignore_index: -100` to each term of a loss of classes";
    let mut net = Strict::on(&Cpu::new()).unwrap();
    let mut loader = LoaderOf::<Strict>::new(points(13, 1)).workers(1);
    assert_eq!(Trainer::new(&mut net).epochs(1).quiet().run(&mut loader).unwrap_err().to_string(), message);
    assert_eq!(net.steps().unwrap(), 0);
    let mut numbers = Line::on(&Cpu::new()).unwrap();
    let mut loader = LoaderOf::<Line>::new(sums(13, 1)).workers(1).pad();
    assert_eq!(Trainer::new(&mut numbers).epochs(1).quiet().run(&mut loader).unwrap_err().to_string(), message);
    // A label that the loss does not leave out is met in the batch itself.
    let mut points_net = Points::on(&Cpu::new()).unwrap();
    let mut loader = LoaderOf::<Points>::new(points(13, 1)).workers(1).ignore_label(2);
    assert_eq!(Trainer::new(&mut points_net).epochs(1).quiet().run(&mut loader).unwrap_err().to_string(), message);
    assert_eq!((points_net.steps().unwrap(), loader.position()), (1, Position { epoch: 0, sample: 8 }));
}

#[test]
fn a_validation_set_below_a_batch_needs_a_loss_that_leaves_padding_out() {
    let mut net = Strict::on(&Cpu::new()).unwrap();
    let error = Trainer::new(&mut net).validate(points(3, 2)).evaluate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the validation set fills no batch of 8, and the loss would count the padding of the incomplete one; validate on more samples, or \
         add `ignore_index: -100` to each term of a loss of classes"
    );
}

#[test]
fn errors_of_data_and_network_leave_the_network_trained_so_far() {
    let set = from_fn(32, |index, _, sample| {
        if index == 20 {
            return Err(gpumem_data::Error::format("the sample is damaged; remove it"));
        }
        sample.input(0)?.put_numbers(&[0.0, 1.0])?;
        sample.target(0)?.put_label(if index == 12 { 7 } else { 0 })
    });
    let mut net = Points::on(&Cpu::new()).unwrap();
    let mut loader = LoaderOf::<Points>::new(set).workers(1);
    let error = Trainer::new(&mut net).epochs(1).quiet().run(&mut loader).unwrap_err();
    assert_eq!(error.to_string(), "after step 1: label 7 at position 4 is too large: it must be below 3");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!((net.steps().unwrap(), loader.position()), (1, Position { epoch: 0, sample: 8 }));
    loader.resume(Position { epoch: 0, sample: 16 });
    let error = Trainer::new(&mut net).max_steps(9).quiet().run(&mut loader).unwrap_err();
    assert_eq!(error.to_string(), "sample 20: the sample is damaged; remove it");
    assert!(std::error::Error::source(&error).is_some());
    // Nothing follows an error.
    let mut trainer = Trainer::new(&mut net).max_steps(9).quiet();
    let mut steps = trainer.steps(&mut loader).unwrap();
    assert!(steps.advance().is_err() && steps.advance().unwrap().is_none() && steps.report().is_none());
    let ended = steps.finish().unwrap_err().to_string();
    assert_eq!(ended, "the training ended with an error before; start it again");
}

#[test]
fn a_checkpoint_of_another_training_says_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Strict::on(&Cpu::new()).unwrap();
    let mut data = LoaderOf::<Strict>::new(points(16, 1)).workers(1);
    let mut trainer = Trainer::new(&mut net).epochs(1).checkpoint(folder.path(), Every::Epoch).quiet();
    trainer.run(&mut data).unwrap();
    let error = refused(|trainer| trainer.epochs(1).checkpoint(folder.path(), Every::Epoch).resume_if_any());
    assert!(error.contains("is not a state of network `Points` as it is now:"), "{error}");
    // A data set that has become smaller.
    let mut trainer = Trainer::new(&mut net).max_steps(3).checkpoint(folder.path(), Every::Epoch).resume().quiet();
    trainer.run(&mut data).unwrap();
    let mut smaller = LoaderOf::<Strict>::new(points(8, 1)).drop_last().workers(1);
    let error =
        Trainer::new(&mut net).max_steps(9).checkpoint(folder.path(), Every::Epoch).resume().quiet().run(&mut smaller);
    assert!(error.is_ok() || error.unwrap_err().to_string().contains("beyond"));
}

#[test]
fn two_trainings_do_not_save_to_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Points::on(&Cpu::new()).unwrap();
    let mut data = loader(61);
    let mut trainer = Trainer::new(&mut net).epochs(1).checkpoint(folder.path(), Every::Epoch).quiet();
    let steps = trainer.steps(&mut data).unwrap();
    let error = refused(|trainer| trainer.epochs(1).checkpoint(folder.path(), Every::Epoch));
    assert!(error.starts_with(&folder.path().display().to_string()), "{error}");
    drop(steps);
}

/// The closure of a device that is not used here, so that its bound is.
#[allow(dead_code, reason = "it is compiled, which is the test")]
fn a_trainer_is_for_any_network<N: Trains, D: Device>(net: &mut Net<N, D>)
where
    N::Input: Batched,
    N::Target: Batched,
{
    let trainer = Trainer::new(net).epochs(1);
    drop(trainer);
}
