use gpumem::network;
use gpumem::{Cpu, D, Tensor};

network! {
    pub struct Small;

    const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 8, 8>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = Small::on(&Cpu::new())?;
    let images = Tensor::<f32, (D<64>, D<3>, D<8>, D<9>)>::zeros();
    let _ = net.forward(&images)?; // an image is 8 pixels wide
    Ok(())
}
