//! Images as they are stored: bytes that become numbers on the device.

use gpumem::prelude::*;
use gpumem::{Cpu, Error, Line, Network};

network! {
    /// Takes images as files have them.
    pub struct Bytes;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Images<u8, 3, 5, 6>) -> Logits<4> {
        [Normalize((0.5, 0.4, 0.25), (0.2, 0.25, 0.5)), Conv2d(4, 3, name = "conv"), Tanh, Flatten, Linear(4, name = "head")]
    }
}

network! {
    /// Takes the same images as numbers.
    pub struct Numbers;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 5, 6>) -> Logits<4> {
        [Conv2d(4, 3, name = "conv"), Tanh, Flatten, Linear(4, name = "head")]
    }
}

network! {
    /// In 16 bits, with bytes beside numbers.
    pub struct Halves;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, precision: Bf16 };

    fn forward(image: Images<u8, 1, 4, 4>, more: Features<3>) -> Logits<2> {
        [Normalize, Flatten, Concat([], from(more)), Linear(2)]
    }
}

fn brightness(index: usize) -> u8 {
    (index * 97 + 31) as u8
}

fn images() -> <Bytes as Network>::Input {
    Tensor::from_fn(brightness)
}

fn normalized() -> <Numbers as Network>::Input {
    let numbers = [(0.5, 0.2), (0.4, 0.25), (0.25, 0.5)];
    Tensor::from_fn(|index| {
        let (mean, std) = numbers[index / 30 % 3];
        ((f64::from(brightness(index)) / 255.0 - mean) / std) as f32
    })
}

#[test]
fn bytes_train_as_the_numbers_that_they_stand_for() {
    let device = Cpu::new();
    let (mut bytes, mut numbers) = (Bytes::on(&device).unwrap(), Numbers::on(&device).unwrap());
    numbers.copy_from(&mut bytes).unwrap();
    let labels = Tensor::from([0, 3, 2, 1]);
    for step in 0..5 {
        let losses =
            [bytes.train_step(&images(), &labels).unwrap(), numbers.train_step(&normalized(), &labels).unwrap()];
        assert!((losses[0] - losses[1]).abs() < 1e-5 * losses[1], "step {step}: {losses:?}");
    }
    let (found, expected) = (bytes.forward(&images()).unwrap(), numbers.forward(&normalized()).unwrap());
    assert!(found.as_slice().iter().zip(expected.as_slice()).all(|(found, expected)| (found - expected).abs() < 1e-4));
    let (found, expected) =
        (bytes.eval_loss(&images(), &labels).unwrap(), numbers.eval_loss(&normalized(), &labels).unwrap());
    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
}

/// A byte for each channel of each pixel, twice, and labels of four bytes.
#[test]
fn bytes_take_a_quarter_of_the_memory() {
    let of = |batch: u64, each: u64| 2 * (batch * each + batch * 4);
    assert_eq!(Bytes::BUDGET[Line::BatchIo], of(4, 3 * 5 * 6));
    assert_eq!(Numbers::BUDGET[Line::BatchIo], of(4, 3 * 5 * 6 * 4));
    assert_eq!(Halves::BUDGET[Line::BatchIo], of(2, 4 * 4 + 2 * 3));
}

#[test]
fn bytes_beside_numbers_in_sixteen_bits() {
    let mut net = Halves::on(&Cpu::new().emulate()).unwrap();
    net.set("linear.weight", &[1.0; 2 * 19]).unwrap();
    net.set("linear.bias", &[0.0, 1.0]).unwrap();
    let (image, more) =
        (Tensor::from_fn(|index| if index < 16 { 255 } else { 51 }), Tensor::from([[1.0; 3], [2.0; 3]]));
    let logits = net.forward((&image, &more)).unwrap();
    for (found, expected) in logits.as_slice().iter().zip([19.0, 20.0, 9.2, 10.2]) {
        assert!((found - expected).abs() < 1e-4, "{logits:?}");
    }
}

#[test]
fn pixels_are_taken_apart() {
    type Images = Tensor<u8, (D<2>, D<3>, D<1>, D<2>)>;
    let (batch, count) = Images::from_pixels([[1, 2, 3, 4, 5, 6]]).unwrap();
    assert_eq!((batch.as_slice(), count), (&[1, 4, 2, 5, 3, 6, 0, 0, 0, 0, 0, 0][..], 1));
    let error = Images::from_pixels([[1, 2, 3]]).unwrap_err();
    assert!(matches!(error, Error::Length { expected: 6, found: 3, .. }), "{error}");
    let error = Images::from_pixels([[0; 6]; 3]).unwrap_err();
    assert!(matches!(error, Error::Samples { batch: 2, found: 3 }), "{error}");
}
