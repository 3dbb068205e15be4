//! What uses the network shows no mistakes of its own: its types are not known.

use gpumem::prelude::*;

network! {
    pub struct Net;
    const TRAIN: Train = Train { batch: 4, loss: CrossEntropy };
    fn forward(image: Imag<3, 8, 8>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn step() -> Result<f32, gpumem::Error> {
    let device = gpumem::default_device()?;
    let mut net = Net::on(&device)?;
    let image: Tensor<f32, (D<4>, D<3>, D<8>, D<8>)> = Tensor::zeros();
    let labels: Tensor<u32, (D<4>,)> = Tensor::zeros();
    let logits = net.forward(&image)?;
    assert_eq!(logits.as_slice().len(), 4 * 10 * Net::TRAIN.batch);
    net.train_step(&image, &labels)
}

fn main() {
    println!("{:?}", step().map(|loss| loss * 2.0));
}
