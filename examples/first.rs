//! The program of the README: a network that trains on numbers which it makes up.

use gpumem::prelude::*;

network! {
    pub struct Mlp;
    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };
    fn forward(features: Features<64>) -> Logits<10> { [Linear(128), Relu, Dropout(0.1), Linear(10)] }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = Mlp::on(&gpumem::default_device()?)?; // the CPU, or a card with the feature `cuda`
    let features = Tensor::from_fn(|index| (index % 7) as f32); // a batch: [32, 64] numbers
    let labels = Tensor::from_fn(|index| index as u32 % 10); // 32 labels from 0 to 9
    for step in 0..100 {
        println!("step {step}: loss {}", net.train_step(&features, &labels)?);
    }
    Ok(())
}
