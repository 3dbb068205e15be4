//! `batch: Largest` and `max_batch!`: the largest batch that fits the cards.
#![deny(warnings, missing_docs)]

use gpumem::__private::memory::budget::budget_at;
use gpumem::cards::{GTX_1050_TI, RTX_3060};
use gpumem::prelude::*;
use gpumem::{Cpu, Line, Precision};

macro_rules! perceptron {
    ($(#[$doc:meta])* $name:ident, $($settings:tt)*) => {
        network! {
            $(#[$doc])*
            pub struct $name;
            $($settings)*
            fn forward(x: Features<64>) -> Logits<10> { [Linear(256), Relu, Linear(256), Relu, Linear(10)] }
        }
    };
}

perceptron! {
    /// On two cards, of which one has 4 GiB less.
    TwoCards,
    const TRAIN: Train = Train { batch: Largest, optimizer: Adam { lr: 1e-3 }, cards: [RTX_3060, GTX_1050_TI] };
}

perceptron! {
    /// In what is left of a card.
    Left,
    const TRAIN: Train =
        Train { batch: Largest, optimizer: Sgd { lr: 0.1 }, cards: [GTX_1050_TI], headroom: ROOM };
    const ROOM: u64 = GTX_1050_TI.usable() - GTX_1050_TI.reserve() - mib(8.0);
    const INFER: Infer = Infer { batch: Largest, cards: [GTX_1050_TI], headroom: ROOM, precision: Bf16 };
}

perceptron! {
    /// A number of samples that says nothing of a card.
    Small,
    const TRAIN: Train = Train { batch: 4, optimizer: Adam { lr: 1e-3 } };
}

perceptron! {
    /// Without training.
    Served,
    const INFER: Infer = Infer { batch: Largest, cards: [T4] };
}

/// The plan of this batch fits, and that of one more does not.
fn assert_largest<N: Network>(batch: usize, room: u64) {
    let Some(program) = N::TRAINING else { panic!("no training") };
    let arena = |batch| budget_at(program.tables, batch, program.precision).unwrap()[Line::Arena];
    let batch = batch as u64;
    assert!(arena(batch) <= room && arena(batch + 1) > room, "{}: {batch}", N::NAME);
}

#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let room = GTX_1050_TI.usable() - GTX_1050_TI.reserve();
    assert_largest::<TwoCards>(TwoCards::TRAIN.batch, room);
    assert_eq!(TwoCards::PROGRAM.batch, TwoCards::TRAIN.batch as u64);
    assert_largest::<Left>(Left::TRAIN.batch, 8 << 20);
    assert_eq!(TwoCards::TRAIN.cards.len(), 2);
}

#[test]
fn of_another_network_and_card() {
    const BATCH: usize = max_batch!(Small, RTX_3060);
    assert_largest::<Small>(BATCH, RTX_3060.usable() - RTX_3060.reserve());
    assert_eq!(max_batch!(Small, RTX_3060, GTX_1050_TI), TwoCards::TRAIN.batch);
    assert_eq!(max_batch!(Left, GTX_1050_TI), Left::TRAIN.batch);
    assert_eq!(max_batch!(Served, T4), Served::INFER.batch);
}

#[test]
fn what_is_inferred_has_a_batch_of_its_own() {
    let program = Left::INFERENCE;
    assert_eq!((program.batch, program.precision), (Left::INFER.batch as u64, Precision::Bf16));
    let [trained, served] = [Left::TRAIN.batch, Left::INFER.batch];
    assert!(served > 2 * trained, "{served} beside {trained}");
}

/// Batches have the size in their types.
#[test]
fn it_trains() {
    const BATCH: usize = Left::TRAIN.batch;
    let mut net = Left::on(&Cpu::new()).unwrap();
    let x: Tensor<f32, (D<BATCH>, D<64>)> = Tensor::from_fn(|index| (index % 5) as f32);
    let labels: Tensor<u32, (D<BATCH>,)> = Tensor::from_fn(|index| index as u32 % 10);
    let first = net.train_step(&x, &labels).unwrap();
    assert!(net.train_step(&x, &labels).unwrap() < first);
}
