//! Settings in other words.
use gpumem::network;

network! {
    pub struct Fields;
    const TRAIN: Train = Train { batch_size: 8, lr: 0.1, epochs: 10 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Optimizer;
    const TRAIN: Train = Train { batch: 8, optimizer: Adam(lr = 1e-3) };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Siamese;
    const TRAIN: Train = Train { batch: 8, loss: MseLoss };
    fn forward(x: Features<8>) -> Features<1> {
        [Linear(1)]
    }
}

network! {
    pub struct Untrained;
    fn forward(x: Features<8>) -> Features<1> {
        [Linear(1)]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = Untrained::on(&gpumem::default_device()?)?;
    let (x, y) = (gpumem::Tensor::zeros(), gpumem::Tensor::<f32, (gpumem::D<1>, gpumem::D<1>)>::zeros());
    net.train_step(&x, &y)?;
    Ok(())
}
