//! A training of several steps that is resumed ends with the same bits as one that was not interrupted.

use gpumem::prelude::*;
use gpumem::{Cpu, HostShape};
use gpumem_state::{Error, NetState, SavedState};

network! {
    /// Two optimizers of one layer, and dropout, which draws by each step's own count.
    pub struct Tuning;

    const HEAD: Train = Train {
        batch: 4,
        trains: "head*",
        optimizer: Sgd { lr: 0.1, momentum: 0.9 },
        schedule: Cosine { total: 30 },
        loss: CrossEntropy,
    };
    const ALL: Train = Train { batch: 4, optimizer: AdamW { lr: 1e-2 }, loss: CrossEntropy, seed: 3 };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), BatchNorm1d(name = "norm"), Tanh, Dropout(0.2), Linear(3, name = "head")]
    }
}

network! {
    /// The same with another optimizer in its second step.
    pub struct Other;

    const HEAD: Train = Train { batch: 4, trains: "head*", optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };
    const ALL: Train = Train { batch: 4, optimizer: Sgd { lr: 1e-2 }, loss: CrossEntropy };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), BatchNorm1d(name = "norm"), Tanh, Dropout(0.2), Linear(3, name = "head")]
    }
}

fn numbers<S: HostShape>(salt: u64) -> Tensor<f32, S> {
    Tensor::from_fn(|index| ((salt * 31 + index as u64 * 7919) % 1009) as f32 / 1009.0 - 0.5)
}

/// Two steps of the first for each of the second.
fn train(net: &mut Net<Tuning, Cpu>, rounds: std::ops::Range<u64>) -> Vec<u32> {
    let mut losses = Vec::new();
    for round in rounds {
        let labels = Tensor::from_fn(|index| (index as u64 + round) as u32 % 3);
        for salt in [2 * round, 2 * round + 1] {
            losses.push(Tuning::head(net).train_step(&numbers(salt), &labels).unwrap().to_bits());
        }
        losses.push(Tuning::all(net).train_step(&numbers(round), &labels).unwrap().to_bits());
    }
    losses
}

#[test]
fn all_steps_go_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let device = Cpu::with_threads(1).unwrap();
    let mut whole = Tuning::on(&device).unwrap();
    Tuning::all(&mut whole).set_lr(0.02).unwrap();
    let losses = train(&mut whole, 0..12);

    let mut first = Tuning::on(&device).unwrap();
    Tuning::all(&mut first).set_lr(0.02).unwrap();
    let before = train(&mut first, 0..6);
    first.save_state(folder.path()).unwrap();
    let mut second = Tuning::on(&device).unwrap();
    // It has been somewhere else before.
    train(&mut second, 50..52);
    let resumed = second.resume(folder.path()).unwrap();
    assert_eq!(resumed.steps, 12);
    assert_eq!([Tuning::head(&mut second).steps().unwrap(), Tuning::all(&mut second).steps().unwrap()], [12, 6]);
    assert_eq!(Tuning::all(&mut second).lr().unwrap(), 0.02);
    let after = train(&mut second, 6..12);
    assert_eq!([before, after].concat(), losses);
    assert_eq!(second.snapshot().unwrap(), whole.snapshot().unwrap());
    let state = SavedState::open(folder.path()).unwrap();
    assert_eq!(state.numbers().steps, 12);
}

#[test]
fn a_state_of_other_steps_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Tuning::on(&Cpu::new()).unwrap();
    train(&mut net, 0..1);
    net.save_state(folder.path()).unwrap();
    let mut other = Other::on(&Cpu::new()).unwrap();
    let before = other.snapshot().unwrap();
    let error = other.resume(folder.path()).unwrap_err();
    let Error::Differs(differences) = &error else { panic!("{error}") };
    let said = "further training steps ALL (AdamW) in the file, ALL (Sgd) in the network";
    assert!(differences.settings.iter().any(|setting| setting == said), "{:?}", differences.settings);
    assert!(
        differences.unexpected.iter().any(|name| name == "body.weight.ALL.exp_avg"),
        "{:?}",
        differences.unexpected
    );
    assert_eq!(other.snapshot().unwrap(), before);
    // What matches is taken, with numbers of a first step.
    let resumed = SavedState::open(folder.path()).unwrap().resume_matching(&mut other).unwrap();
    assert_eq!(resumed.steps, 0);
    assert_eq!(other.get("body.weight").unwrap(), net.get("body.weight").unwrap());
}
