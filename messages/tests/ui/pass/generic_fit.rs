//! A training loop for every network needs no other bound than `Trains`.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

use gpumem::prelude::*;
use gpumem::{Device, Error, Given, Hosts};

network! {
    /// Of one input.
    pub struct One;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };
    fn forward(x: Features<3>) -> Features<2> { [Linear(2)] }
}

network! {
    /// Of two inputs, and two targets.
    pub struct Two;
    const TRAIN: Train = Train { batch: 2, loss: Mse + CrossEntropy(from = classes, target = classes) };
    fn forward(x: Features<3>, y: Features<3>) -> Features<2> { [Add([], from(y)), Linear(4), tap(classes), Linear(2)] }
}

/// What users write first.
fn fit<N: Trains, D: Device>(net: &mut Net<N, D>, batches: &[(N::Input, N::Target)]) -> Result<f32, Error> {
    let mut last = 0.0;
    for (input, target) in batches {
        last = net.train_step(input, target)?;
    }
    Ok(last)
}

/// The same with what is handed in.
fn step<N: Trains, D: Device>(
    net: &mut Net<N, D>,
    input: Given<'_, N::Input>,
    target: Given<'_, N::Target>,
) -> Result<f32, Error> {
    net.train_step(input, target)
}

/// Runs.
pub fn main() {
    let device = gpumem::default_device().unwrap();
    let mut one = One::on(&device).unwrap();
    let batch = (Tensor::zeros(), Tensor::zeros());
    let before = fit(&mut one, std::slice::from_ref(&batch)).unwrap();
    assert!(step(&mut one, &batch.0, &batch.1).unwrap() <= before);
    let mut two = Two::on(&device).unwrap();
    fit(&mut two, &[((Tensor::zeros(), Tensor::zeros()), (Tensor::zeros(), Tensor::zeros()))]).unwrap();
    let (x, y) = (Tensor::zeros(), Tensor::zeros());
    step(&mut two, (&x, &y), (&Tensor::zeros(), &Tensor::zeros())).unwrap();
    let (both, targets) = ((x, y), (Tensor::zeros(), Tensor::zeros()));
    let before = step(&mut two, both.given(), targets.given()).unwrap();
    assert!(two.train_step(&both, &targets).unwrap() <= before);
    assert!(two.eval_loss((&both.0, &both.1), (&targets.0, &targets.1)).unwrap() <= before);
}
