//! Networks of the zoo run on the CPU.
#![allow(missing_docs)]

use gpumem::{Cpu, Net, Tensor};
use gpumem_zoo::lenet::LeNet5;

#[test]
fn lenet_learns_a_batch() {
    let mut net = Net::<LeNet5<4>, _>::load(&Cpu::with_threads(2).unwrap()).unwrap();
    let images = Tensor::from_fn(|index| ((index * 7919) % 1009) as f32 / 504.5 - 1.0);
    let targets = [3, 1, 4, 1].into();
    let first = net.train_step(&images, &targets).unwrap();
    let mut last = first;
    for _ in 0..100 {
        last = net.train_step(&images, &targets).unwrap();
    }
    assert!(last < first / 2.0, "{first} to {last}");
}
