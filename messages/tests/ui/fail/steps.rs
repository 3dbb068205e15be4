//! Calls of a network with several training steps that it does not have.

use gpumem::prelude::*;

network! {
    pub struct Small;

    const HEAD: Train = Train { batch: 4, trains: "head*", loss: CrossEntropy };
    const ALL: Train = Train { batch: 4, loss: CrossEntropy };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), Tanh, Linear(3, name = "head")]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = Small::on(&gpumem::default_device()?)?;
    let (x, labels): (Tensor<f32, (D<4>, D<5>)>, Tensor<u32, (D<4>,)>) = (Tensor::zeros(), Tensor::zeros());
    // The network has no step of its own.
    net.train_step(&x, &labels)?;
    // The first step takes no numbers as labels.
    Small::head(&mut net).train_step(&x, &x)?;
    Ok(())
}
