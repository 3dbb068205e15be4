//! A training that is resumed ends with the same bits as one that was not interrupted.

use gpumem::prelude::*;
use gpumem::{Cpu, Snapshot};
use gpumem_state::{NetState, Progress, SavedState, Saver};

/// Training steps of each test, half of them before the state is saved.
const STEPS: u64 = 100;

/// Returns the features of a step: another batch each time.
fn features<S: gpumem::HostShape>(step: u64) -> Tensor<f32, S> {
    Tensor::from_fn(|index| {
        let mixed = (step * 7919 + index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// Returns the labels of a step.
fn labels<S: gpumem::HostShape>(step: u64, classes: u32) -> Tensor<u32, S> {
    Tensor::from_fn(|index| ((step * 31 + index as u64 * 17) % u64::from(classes)) as u32)
}

/// Declares a network, and a test that trains it with and without an interruption, on one thread and on two.
macro_rules! exact {
    ($test:ident, $name:ident, { $($train:tt)* }, [$($body:tt)*]) => {
        mod $test {
            use super::*;

            network! {
                pub struct $name;

                const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, $($train)* };

                fn forward(image: Image<2, 6, 6>) -> Logits<5> {
                    [$($body)*]
                }
            }

            fn train(net: &mut Net<$name, Cpu>, steps: std::ops::Range<u64>) -> Vec<u32> {
                steps.map(|step| net.train_step(&features(step), &labels(step, 5)).unwrap().to_bits()).collect()
            }

            #[test]
            fn goes_on_bit_for_bit() {
                let folder = tempfile::tempdir().unwrap();
                let one = Cpu::with_threads(1).unwrap().emulate();
                let mut whole = $name::on(&one).unwrap();
                whole.set_lr(0.003).unwrap();
                let losses = train(&mut whole, 0..STEPS);

                let mut first = $name::on(&one).unwrap();
                first.set_lr(0.003).unwrap();
                let before = train(&mut first, 0..STEPS / 2);
                first.save_state(folder.path()).unwrap();
                drop(first);
                let mut second = $name::on(&Cpu::with_threads(2).unwrap().emulate()).unwrap();
                // It has been somewhere else before.
                train(&mut second, 500..503);
                let resumed = second.resume(folder.path()).unwrap();
                assert_eq!(resumed.steps, STEPS / 2);
                let after = train(&mut second, STEPS / 2..STEPS);

                assert_eq!([before, after].concat(), losses);
                assert!(losses.windows(2).any(|pair| pair[0] != pair[1]), "nothing was trained");
                assert_eq!(second.snapshot().unwrap(), whole.snapshot().unwrap());
            }
        }
    };
}

exact!(sgd, WithSgd, { optimizer: Sgd { lr: 0.05 } }, [Flatten, Linear(16), Relu, Dropout(0.2), Linear(5)]);
exact!(
    momentum,
    WithMomentum,
    { optimizer: Sgd { lr: 0.05, momentum: 0.9, nesterov: true } },
    [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Linear(5)]
);
exact!(adam, WithAdam, { optimizer: Adam { lr: 0.01 } }, [Flatten, Linear(16), Gelu, Dropout(0.1), Linear(5)]);
exact!(
    adamw_schedule,
    WithAdamW,
    { optimizer: AdamW { lr: 0.01 }, schedule: Cosine { total: 120, warmup: 10 }, clip: GlobalNorm(0.5), seed: 12345678901234 },
    [Flatten, Linear(16), LayerNorm, Relu, Dropout(0.3), Linear(5)]
);
exact!(adamw8bit, WithAdamW8bit, { optimizer: AdamW8bit { lr: 0.01 } }, [Flatten, Linear(80), Relu, Dropout(0.1), Linear(5)]);
exact!(nadam, WithNAdam, { optimizer: NAdam { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(radam, WithRAdam, { optimizer: RAdam { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(adamax, WithAdamax, { optimizer: Adamax { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(rmsprop, WithRmsProp, { optimizer: RmsProp { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(adagrad, WithAdagrad, { optimizer: Adagrad { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(adadelta, WithAdadelta, { optimizer: Adadelta { lr: 1.0 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(adafactor, WithAdafactor, { optimizer: Adafactor { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(muon, WithMuon, { optimizer: Muon { lr: 0.01 } }, [Flatten, Linear(8), Relu, Linear(5)]);
exact!(
    averages,
    WithAverages,
    { optimizer: AdamW { lr: 0.01 }, ema: Ema { decay: 0.99, warmup: true, every: 3 } },
    [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Dropout(0.1), Linear(5)]
);
exact!(lion, WithLion, { optimizer: Lion { lr: 0.001 } }, [Flatten, Linear(8), Relu, Dropout(0.5), Linear(5)]);
exact!(
    mixed_precision,
    Mixed16,
    { optimizer: AdamW { lr: 0.01 }, precision: Mixed(Bf16) },
    [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Dropout(0.1), Linear(5)]
);
exact!(
    loss_scale,
    Scaled16,
    { optimizer: Sgd { lr: 0.05, momentum: 0.9 }, precision: Mixed(F16) },
    [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Linear(5)]
);
exact!(
    micro_batches,
    InParts,
    { optimizer: AdamW { lr: 0.01 }, micro_batches: 2 },
    [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Dropout(0.2), Linear(5)]
);
exact!(
    offloaded,
    Offloaded,
    { optimizer: AdamW { lr: 0.01 }, offload: OptimizerState },
    [Flatten, Linear(16), Relu, Dropout(0.2), Linear(5)]
);
exact!(
    recomputed,
    Recomputed,
    { optimizer: AdamW { lr: 0.01 }, clip: Value(0.1) },
    [checkpoint([Flatten, Linear(16), Relu, Dropout(0.2)]), Linear(5)]
);
exact!(
    adapters_int8,
    AdaptedInt8,
    { optimizer: AdamW { lr: 0.01 } },
    [Flatten, lora(2, 4.0, base = Int8, [Linear(64), Relu, Dropout(0.1)]), Linear(5)]
);
exact!(
    adapters_nf4,
    AdaptedNf4,
    { optimizer: AdamW { lr: 0.01 } },
    [Flatten, lora(2, 4.0, base = Nf4, [Linear(64), Relu, Dropout(0.1)]), Linear(5)]
);
exact!(
    adapters_nf4_double,
    AdaptedNf4Double,
    { optimizer: AdamW8bit { lr: 0.01 } },
    [Flatten, lora(2, 4.0, base = Nf4Double, [Linear(64), Relu, Dropout(0.1)]), Linear(5)]
);

mod every_optimizer {
    use gpumem_core::train::optim::{Corrections, Extent, Optimizer, Row};

    /// The optimizers that have a test above.
    const TESTED: &[&str] = &[
        "Sgd",
        "Adam",
        "AdamW",
        "AdamW8bit",
        "NAdam",
        "RAdam",
        "Adamax",
        "RmsProp",
        "Adagrad",
        "Adadelta",
        "Adafactor",
        "Muon",
        "Lion",
    ];

    /// Returns the data from which a training continues: its states, and true if the rule depends on the number of the step.
    fn resumed(row: &Row) -> (Vec<Extent>, bool) {
        (row.states.iter().map(|state| state.extent).collect(), row.corrections != Corrections::None)
    }

    #[test]
    fn has_a_test_or_goes_on_from_the_same_as_one_that_has() {
        let (tested, others): (Vec<&Row>, Vec<&Row>) =
            Optimizer::ROWS.iter().partition(|row| TESTED.contains(&row.name));
        assert_eq!(tested.len(), TESTED.len());
        for row in others {
            let is_tested = tested.iter().any(|tested| resumed(tested) == resumed(row));
            assert!(is_tested, "add an `exact!` of {}", row.name);
        }
    }
}

network! {
    pub struct Small;

    const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, optimizer: AdamW { lr: 0.01 } };

    fn forward(features: Features<8>) -> Logits<3> {
        [Linear(16, name = "hidden"), Relu, Dropout(0.2), Linear(3, name = "head")]
    }
}

fn step(net: &mut Net<Small, Cpu>, number: u64) -> f32 {
    net.train_step(&features(number), &labels(number, 3)).unwrap()
}

#[test]
fn training_goes_on_while_a_state_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Small::on(&Cpu::new()).unwrap();
    let mut saver = Saver::open(folder.path()).unwrap().keep(2);
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for number in 0..6 {
        step(&mut net, number);
        let progress = Progress { epoch: number / 4, sample: number % 4 * 4, ..Progress::default() };
        if number == 1 {
            saver.save_marked(&mut net, &progress, "best").unwrap();
        } else {
            saver.save(&mut net, &progress).unwrap();
        }
        snapshots.push(net.snapshot().unwrap());
    }
    let last = saver.wait().unwrap().unwrap();
    assert!(last.ends_with("step-00000006"), "{last:?}");
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".lock", "best", "latest", "step-00000002", "step-00000005", "step-00000006"]);

    let mut other = Small::on(&Cpu::new()).unwrap();
    let best = SavedState::open_marked(folder.path(), "best").unwrap();
    assert_eq!((best.network(), best.numbers().steps, best.progress().sample), ("Small", 2, 4));
    best.resume(&mut other).unwrap();
    assert_eq!(other.snapshot().unwrap(), snapshots[1]);
    let resumed = other.resume(folder.path()).unwrap();
    assert_eq!((resumed.steps, resumed.progress.epoch, resumed.progress.sample), (6, 1, 4));
    assert_eq!((resumed.left.len(), resumed.unused.len()), (0, 0));
    assert_eq!(other.snapshot().unwrap(), snapshots[5]);
    // A state is one of the folders, too.
    other.resume(folder.path().join("step-00000005")).unwrap();
    assert_eq!(other.snapshot().unwrap(), snapshots[4]);
}

#[test]
fn a_training_that_went_back_keeps_its_own_states() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Small::on(&Cpu::new()).unwrap();
    let save = |net: &mut Net<Small, Cpu>| {
        let mut saver = Saver::open(folder.path()).unwrap().keep(2);
        saver.save(net, &Progress::default()).unwrap();
        saver.wait().unwrap().unwrap()
    };
    step(&mut net, 0);
    save(&mut net);
    (1..5).for_each(|number| _ = step(&mut net, number));
    save(&mut net);
    // As many steps once more: the state has another name, and `latest` names it.
    assert!(save(&mut net).ends_with("step-00000005-1"));
    net.resume(folder.path().join("step-00000005")).unwrap();
    net.set_steps(2).unwrap();
    assert!(save(&mut net).ends_with("step-00000002"));
    assert_eq!(net.resume(folder.path()).unwrap().steps, 2);
    assert!(!folder.path().join("step-00000005").exists(), "of a training that was given up");
}

#[test]
fn a_snapshot_goes_back() {
    let mut net = Small::on(&Cpu::new()).unwrap();
    step(&mut net, 0);
    let snapshot = net.snapshot().unwrap();
    assert_eq!(snapshot.len() as u64, net.state_tensors().iter().map(|tensor| tensor.bytes).sum::<u64>());
    let losses = [step(&mut net, 1), step(&mut net, 2)];
    net.restore(&snapshot).unwrap();
    assert_eq!([step(&mut net, 1), step(&mut net, 2)], losses);
}

#[test]
fn the_first_run_of_a_program_has_nothing_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Small::on(&Cpu::new()).unwrap();
    assert!(net.resume_if_any(folder.path().join("none")).unwrap().is_none());
    assert!(net.resume_if_any(folder.path()).unwrap().is_none());
    net.save_state(folder.path()).unwrap();
    assert_eq!(net.resume_if_any(folder.path()).unwrap().unwrap().steps, 0);
    assert_eq!(net.resume_if_any(folder.path().join("step-00000000")).unwrap().unwrap().steps, 0);
}

/// A schedule whose end the program says, and steps that were skipped before the state is saved.
#[test]
fn a_total_that_was_set_and_skipped_steps_are_saved() {
    network! {
        pub struct Guarded;

        const TRAIN: Train = Train {
            batch: 4, loss: Mse, optimizer: AdamW { lr: 0.01 }, schedule: Cosine { warmup: 3 }, skip: NonFinite,
        };

        fn forward(image: Image<2, 6, 6>) -> Features<5> {
            [Conv2d(4, 3), BatchNorm2d, Relu, Flatten, Linear(5)]
        }
    }
    fn train(net: &mut Net<Guarded, Cpu>, steps: std::ops::Range<u64>) {
        for step in steps {
            let target = Tensor::from_fn(|index| if step % 5 == 4 { f32::NAN } else { index as f32 / 9.0 });
            net.train_step(&features(step), &target).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut whole = Guarded::on(&Cpu::new()).unwrap();
    whole.set_total(20).unwrap();
    train(&mut whole, 0..12);
    whole.save_state(folder.path()).unwrap();
    let mut resumed = Guarded::on(&Cpu::new()).unwrap();
    let state = resumed.resume(folder.path()).unwrap();
    assert_eq!((state.steps, resumed.skipped().unwrap()), (10, 2));
    assert_eq!((resumed.schedule(), resumed.lr().unwrap()), (whole.schedule(), whole.lr().unwrap()));
    for net in [&mut whole, &mut resumed] {
        train(net, 12..24);
    }
    assert_eq!(resumed.snapshot().unwrap(), whole.snapshot().unwrap());
    assert_eq!(resumed.skipped().unwrap(), 4);
}

/// Averages that a state has not are missing, by name, and nothing is taken.
#[test]
fn a_state_without_averages_is_refused() {
    mod with {
        use super::*;
        network! {
            pub struct Averaging;
            const TRAIN: Train = Train { batch: 4, loss: Mse, ema: 0.9 };
            fn forward(x: Features<3>) -> Features<2> { [Linear(2, name = "fc")] }
        }
    }
    mod without {
        use super::*;
        network! {
            pub struct Averaging;
            const TRAIN: Train = Train { batch: 4, loss: Mse };
            fn forward(x: Features<3>) -> Features<2> { [Linear(2, name = "fc")] }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    without::Averaging::on(&Cpu::new()).unwrap().save_state(folder.path()).unwrap();
    let mut net = with::Averaging::on(&Cpu::new()).unwrap();
    let before = net.snapshot().unwrap();
    let error = net.resume(folder.path()).unwrap_err().to_string();
    assert!(error.contains("fc.weight.average") && error.contains("fc.bias.average"), "{error}");
    assert_eq!(net.snapshot().unwrap(), before);
    // What matches may be taken, and averages begin at the parameters then.
    let mut other = with::Averaging::on(&Cpu::new()).unwrap();
    SavedState::open(folder.path()).unwrap().resume_matching(&mut other).unwrap();
    other.reset_averages().unwrap();
    assert_eq!(other.get("fc.weight.average").unwrap(), other.get("fc.weight").unwrap());
}
