//! A network that says how it is not used.

use gpumem::prelude::*;

network! {
    pub struct Served;
    const INFER: Infer = Infer { batch: 2 };
    fn forward(x: Features<3>) -> Features<2> { [Linear(2)] }
}

network! {
    pub struct Trained;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };
    fn forward(x: Features<3>) -> Features<2> { [Linear(2)] }
}

fn main() -> Result<(), gpumem::Error> {
    let device = gpumem::default_device()?;
    let (x, y) = (Tensor::from([[0.0; 3]; 2]), Tensor::from([[0.0; 2]; 2]));
    let mut net = Served::on(&device)?;
    net.train_step(&x, &y)?;
    net.eval_loss(&x, &y)?;
    let _ = Trained::infer_on(&device)?;
    let _ = Trained::shared_on(&device)?;
    let _ = Trained::on(&device)?.infer(&x)?;
    Ok(())
}

/// A network of any kind may not be one that trains.
fn fit<N: Network>(net: &mut Net<N, AnyDevice>, x: &N::Input, y: &N::Target) -> Result<f32, gpumem::Error> {
    net.train_step(x, y)
}
