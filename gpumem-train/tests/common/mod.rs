//! Networks and data sets that several tests train on.
#![allow(dead_code, reason = "each test takes some of it")]

use gpumem::prelude::*;
use gpumem_data::{Dataset, Draw, LoaderOf, from_fn};

network! {
    /// Two classes of points; padding is left out.
    pub struct Points;

    const TRAIN: Train = Train {
        batch: 8,
        optimizer: Adam { lr: 0.02 },
        loss: CrossEntropy { ignore_index: -100 },
        seed: 3,
    };

    fn forward(point: Features<2>) -> Logits<3> {
        [Linear(16), BatchNorm1d, Relu, Dropout(0.1), Linear(3)]
    }
}

network! {
    /// As [`Points`], with a loss that counts padding.
    pub struct Strict;

    const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, seed: 3 };

    fn forward(point: Features<2>) -> Logits<3> {
        [Linear(16), Relu, Linear(3)]
    }
}

network! {
    /// A number for each point.
    pub struct Line;

    const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: Mse, seed: 3 };

    fn forward(point: Features<2>) -> Features<1> {
        [Linear(1)]
    }
}

/// Points in the unit square, with the third that they lie in as class.
pub fn points(len: usize, seed: u64) -> impl Dataset {
    from_fn(len, move |index, _, sample| {
        let mut draw = Draw::new(seed, 0, index);
        let (x, y) = (draw.uniform() as f32, draw.uniform() as f32);
        sample.input(0)?.put_numbers(&[x, y])?;
        sample.target(0)?.put_label(((x + y) * 1.5) as u32)
    })
}

/// Points with the sum of their coordinates.
pub fn sums(len: usize, seed: u64) -> impl Dataset {
    from_fn(len, move |index, _, sample| {
        let mut draw = Draw::new(seed, 0, index);
        let (x, y) = (draw.uniform() as f32, draw.uniform() as f32);
        sample.input(0)?.put_numbers(&[x, y])?;
        sample.target(0)?.put_numbers(&[x + y])
    })
}

pub fn loader(len: usize) -> LoaderOf<Points> {
    LoaderOf::<Points>::new(points(len, 1)).shuffle().seed(5).workers(1)
}

/// Everything in a network that lasts, as bits.
pub fn state<N: Trains, D: gpumem::Device>(net: &mut Net<N, D>) -> Vec<(String, Vec<u32>)> {
    let names: Vec<String> = net.names().map(String::from).collect();
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    names.into_iter().map(|name| (name.clone(), bits(net.get(&name).unwrap()))).collect()
}
