//! Methods that are typed first and are called otherwise here.

use gpumem::prelude::*;

network! {
    pub struct One;
    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };
    fn forward(x: Features<3>) -> Logits<2> { [Linear(2)] }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = One::on(&gpumem::default_device()?)?;
    net.save("weights.bin");
    net.load_state_dict("weights.bin");
    net.state_dict();
    net.eval();
    net.train();
    Ok(())
}
