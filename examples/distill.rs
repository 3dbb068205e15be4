//! Distillation: a large network reads digits; a small one learns from what it says, without a label, and beside it one from few labels.
//!
//! ```text
//! cargo run --release --example distill
//! ```

mod shared;

use gpumem::AnyDevice;
use gpumem::prelude::*;
use gpumem::weights::Weights;
use shared::{Digit, shuffle};
use std::error::Error;
use std::process::ExitCode;

blocks! {
    /// The layers that the networks read digits with.
    pub mod readers {
        fn teacher() -> Block {
            [conv(32), conv(32), MaxPool2d(2), conv(64), Flatten, Dropout(0.3), Linear(10)]
        }

        fn conv(channels: usize) -> Block {
            [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
        }

        fn student() -> Block {
            [Flatten, Linear(24), Relu, Linear(10)]
        }
    }
}

network! {
    pub struct Teacher;

    use blocks readers;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 2e-3 }, loss: CrossEntropy, seed: 7 };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> { [teacher()] }
}

network! {
    pub struct Student;

    use blocks readers;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 5e-3 }, loss: CrossEntropy, seed: 8 };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> { [student()] }
}

network! {
    /// Both: the divergence of what the student says from what the teacher says, both at a temperature of 4. The teacher rests, so that its
    /// statistics stay, it drops nothing, and it has no gradient and no state of the optimizer.
    pub struct Distilled;

    use blocks readers;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 5e-3 }, loss: 16.0 * Mean(from = divergence), seed: 8 };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> {
        [
            student(), tap(logits), Affine(0.25), LogSoftmax, tap(said),
            from(image), freeze(eval(teacher())), Affine(0.25), LogSoftmax,
            Mul(Exp, Sub([], from(said))), Sum(1), tap(divergence),
            from(logits),
        ]
    }
}

const BATCH: usize = 32;
/// Digits that have a label.
const FEW: usize = 64;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &AnyDevice) -> Result<(), Box<dyn Error>> {
    let digits = shared::digits()?;
    let (test, train) = digits.split_at(digits.len() / 5);

    let mut teacher = Teacher::on(device)?;
    for batch in batches(train, 10) {
        teacher.train_step(&images(&batch), &labels(&batch))?;
    }
    println!(
        "teacher, {} labels: {:.1} % of {} held-back digits",
        train.len(),
        share(test, |x| teacher.forward(x))?,
        test.len()
    );

    let mut student = Student::on(device)?;
    for batch in batches(&train[..FEW], 400) {
        student.train_step(&images(&batch), &labels(&batch))?;
    }
    println!("student, {FEW} labels: {:.1} %", share(test, |x| student.forward(x))?);

    let file = std::env::temp_dir().join(format!("gpumem-teacher-{}.safetensors", std::process::id()));
    teacher.save_weights(&file)?;
    let mut distilled = Distilled::on(device)?;
    Weights::open(&file)?.skip("student.*").load_into(&mut distilled)?;
    std::fs::remove_file(&file)?;
    for batch in batches(train, 20) {
        distilled.train_step(&images(&batch), ())?;
    }
    println!("student, no label, with the teacher: {:.1} %", share(test, |x| distilled.forward(x))?);
    Ok(())
}

/// Whole batches of some epochs, each in an order of its own.
fn batches(digits: &[Digit], epochs: u64) -> impl Iterator<Item = Vec<Digit>> {
    let mut digits = digits.to_vec();
    (0..epochs).flat_map(move |epoch| {
        shuffle(&mut digits, 2 + epoch);
        digits.chunks_exact(BATCH).map(<[Digit]>::to_vec).collect::<Vec<_>>()
    })
}

/// The images of a batch; one that is too short is filled with blank ones.
fn images(batch: &[Digit]) -> <Teacher as Network>::Input {
    Tensor::from_fn(|index| batch.get(index / 64).map_or(0.0, |(pixels, _)| pixels[index % 64]))
}

fn labels(batch: &[Digit]) -> <Teacher as Network>::Target {
    Tensor::from_fn(|index| batch[index].1)
}

/// The share of digits that are read as they are, in per cent.
fn share(
    digits: &[Digit],
    mut forward: impl FnMut(&<Teacher as Network>::Input) -> Result<<Teacher as Network>::Output, gpumem::Error>,
) -> Result<f64, gpumem::Error> {
    let mut right = 0;
    for batch in digits.chunks(BATCH) {
        let logits = forward(&images(batch))?;
        for ((_, label), logits) in batch.iter().zip(logits.samples()) {
            let read = (0..10).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
            right += usize::from(read == Some(*label as usize));
        }
    }
    Ok(100.0 * right as f64 / digits.len() as f64)
}
