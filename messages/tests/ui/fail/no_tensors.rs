//! Arguments of a network that are not tensors, or not of its inputs' types.

use gpumem::prelude::*;

network! {
    pub struct One;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };
    fn forward(x: Features<3>) -> Logits<2> { [Linear(2)] }
}

network! {
    pub struct Two;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };
    fn forward(x: Features<3>, y: Features<3>) -> Logits<2> { [Add([], from(y)), Linear(2)] }
}

fn main() -> Result<(), gpumem::Error> {
    let device = gpumem::default_device()?;
    let mut net = One::on(&device)?;
    let (features, labels) = (vec![0.0_f32; 6], vec![0_u32; 2]);
    net.train_step(&features, &labels)?;
    let labels: Tensor<u32, (D<2>,)> = Tensor::from_vec(labels)?;
    let mut two = Two::on(&device)?;
    let batch = Tensor::from([[0.0; 3]; 2]);
    two.train_step(&batch, &labels)?;
    Ok(())
}
