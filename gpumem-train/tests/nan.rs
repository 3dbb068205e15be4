//! A loss that is no number: where it comes from, and what is left.

mod common;

use common::{Line, state};
use gpumem::Cpu;
use gpumem_data::{Draw, LoaderOf, Position, from_fn};
use gpumem_train::{Error, NotFinite, Origin, Trainer};

/// Sums of points, of which sample number `bad` has a number that is none.
fn loader(bad: Option<usize>) -> LoaderOf<Line> {
    scaled(bad, 1.0)
}

/// As [`loader`], with sums times `factor`.
fn scaled(bad: Option<usize>, factor: f32) -> LoaderOf<Line> {
    let set = from_fn(80, move |index, _, sample| {
        let mut draw = Draw::new(1, 0, index);
        let (x, y) = (draw.uniform() as f32, draw.uniform() as f32);
        sample.input(0)?.put_numbers(&[if Some(index) == bad { f32::NAN } else { x }, y])?;
        sample.target(0)?.put_numbers(&[factor * (x + y)])
    });
    LoaderOf::<Line>::new(set).workers(1)
}

fn not_finite(error: Error) -> NotFinite {
    match error {
        Error::NotFinite(not_finite) => *not_finite,
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_tensor_that_is_not_finite_is_named() {
    for every in [1, 3, 100] {
        let mut expected = Line::on(&Cpu::new()).unwrap();
        let mut batches = loader(None);
        for step in 1..=6 {
            let batch = batches.next_batch().unwrap();
            expected.train_step(&batch.input, &batch.target).unwrap();
            expected.set_lr(0.1 / step as f64).unwrap();
        }
        let mut net = Line::on(&Cpu::new()).unwrap();
        let mut batches = loader(Some(50));
        let error = Trainer::new(&mut net)
            .epochs(2)
            .quiet()
            .snapshot_every(every)
            .on_step(|context| Ok(context.set_lr(0.1 / context.step() as f64)?))
            .run(&mut batches)
            .unwrap_err();
        let text = error.to_string();
        let found = not_finite(error);
        assert_eq!((found.step, found.samples, found.position), (7, 8, Position { epoch: 0, sample: 48 }));
        assert!(found.loss.is_nan() && matches!(found.origin, Origin::Found { step: 7, .. }), "{found:?}");
        assert!(text.starts_with("the loss of step 7 is NaN: the first NaN of the step is in `"), "{text}");
        let end = ". Look at samples 48 to 56 of epoch 0, lower the learning rate, or add `clip: GlobalNorm(1.0)` to `TRAIN`. The network is \
                   as before this step";
        assert!(text.ends_with(end), "{text}");
        // The network is as before the step, and so is the loader.
        assert_eq!(state(&mut net), state(&mut expected));
        assert_eq!((net.steps().unwrap(), batches.position()), (6, found.position));
    }
}

#[test]
fn an_update_that_made_the_network_infinite_is_the_origin() {
    // Gradients are above 1, so that the largest rate makes weights infinite.
    let mut net = Line::on(&Cpu::new()).unwrap();
    let error = Trainer::new(&mut net)
        .max_steps(20)
        .quiet()
        .on_step(|context| {
            if context.step() == 4 {
                context.set_lr(3e38)?;
            }
            Ok(())
        })
        .run(&mut scaled(None, 1e4))
        .unwrap_err();
    let text = error.to_string();
    let found = not_finite(error);
    let Origin::Found { step, ref tensor } = found.origin else { panic!("{text}") };
    assert!(step < found.step, "{text}");
    assert!(
        text.contains(&format!(", and its origin is step {step}: ")) && !tensor.contains("before the step"),
        "{text}"
    );
    assert_eq!(net.steps().unwrap() + 1, found.step);
}

#[test]
fn a_network_that_a_callback_changed_is_replayed_from_there() {
    let mut net = Line::on(&Cpu::new()).unwrap();
    let error = Trainer::new(&mut net)
        .epochs(1)
        .quiet()
        .on_step(|context| {
            if context.step() == 5 {
                let name = context.net().names().next().unwrap().to_string();
                context.net().set(&name, &[f32::INFINITY, 1.0])?;
            }
            Ok(())
        })
        .run(&mut loader(None))
        .unwrap_err();
    let found = not_finite(error);
    assert_eq!(found.step, 6);
    let Origin::Found { step: 6, tensor } = found.origin else { panic!("{found:?}") };
    assert!(tensor.ends_with("has infinity before the step"), "{tensor}");
}

#[test]
fn without_snapshots_the_loss_alone_is_told() {
    let mut net = Line::on(&Cpu::new()).unwrap();
    let error = Trainer::new(&mut net).epochs(1).quiet().snapshot_every(0).run(&mut loader(Some(50))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the loss of step 7 is NaN; `.snapshot_every(100)` would name the first tensor that is not finite. Look at samples 48 to 56 of \
         epoch 0, lower the learning rate, or add `clip: GlobalNorm(1.0)` to `TRAIN`. The network is as after this step"
    );
}

#[test]
fn a_replay_that_fails_or_finds_nothing_says_so() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    // Sample 9 is bad when it is read first, and fails or is fine when it is read again.
    for (fails, expected) in
        [(true, "could not be run again (sample 9: gone; "), (false, "it was finite when the step was run again")]
    {
        let reads = Arc::new(AtomicUsize::new(0));
        let set = from_fn(16, move |index, _, sample| {
            let again = index == 9 && reads.fetch_add(1, Ordering::Relaxed) > 0;
            if again && fails {
                return Err(gpumem_data::Error::format("gone; look for it"));
            }
            let x = if index == 9 && !again { f32::NAN } else { 0.5 };
            sample.input(0)?.put_numbers(&[x, 0.5])?;
            sample.target(0)?.put_numbers(&[1.0])
        });
        let mut net = Line::on(&Cpu::new()).unwrap();
        let error =
            Trainer::new(&mut net).epochs(1).quiet().run(&mut LoaderOf::<Line>::new(set).workers(1)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        let end = if fails {
            "Load the last checkpoint before the training goes on"
        } else {
            "The network is as before this step"
        };
        assert!(text.ends_with(end), "{text}");
    }
}
