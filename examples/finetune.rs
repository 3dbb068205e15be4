//! Teaches a network to read digits, then another one, which has its convolutions, to tell from a few examples whether a digit has a loop;
//! and compares that with learning the same from nothing.
//!
//! ```text
//! cargo run --release --example finetune
//! ```

mod shared;

use gpumem::prelude::*;
use gpumem::{D, Line};
use shared::{Digit, shuffle};
use std::error::Error;
use std::process::ExitCode;

blocks! {
    /// What the networks see digits with.
    pub mod eye {
        fn backbone() -> Block {
            [conv(24), conv(24), MaxPool2d(2), conv(48), MaxPool2d(2), Flatten]
        }

        fn conv(channels: usize) -> Block {
            [Conv2d(channels, 3, padding = 1, bias = false), GroupNorm(4), Relu(inplace)]
        }
    }
}

network! {
    /// Reads digits.
    pub struct Reader;

    use blocks eye;

    const TRAIN: Train = Train { batch: 20, optimizer: AdamW { lr: 3e-3 }, loss: CrossEntropy, seed: 3 };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> { [backbone(), Linear(10)] }
}

network! {
    /// Learns whether a digit has a loop, all of it.
    pub struct Whole;

    use blocks eye;

    const TRAIN: Train = Train { batch: 20, optimizer: AdamW { lr: 3e-3 }, loss: CrossEntropy, seed: 3 };

    fn forward(image: Image<1, 8, 8>) -> Logits<2> { [backbone(), Linear(2)] }
}

network! {
    /// The same by its last layer alone: nothing is kept for what is frozen, which has no gradients and no state of the optimizer.
    pub struct Tuned;

    use blocks eye;

    const TRAIN: Train = Train { batch: 20, optimizer: AdamW { lr: 3e-2 }, loss: CrossEntropy, seed: 4 };

    fn forward(image: Image<1, 8, 8>) -> Logits<2> { [freeze(backbone()), Linear(2)] }
}

const BATCH: usize = 20;
/// Examples of each digit that are seen with the second question.
const FEW: usize = 2;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    let digits = shared::digits()?;
    let (test, train) = digits.split_at(digits.len() / 5);
    let mut reader = Reader::on(device)?;
    learn(&mut reader, train, 12)?;
    println!(
        "{} examples, which digit it is: {:.1} % of {} held-back digits right",
        train.len(),
        share(&mut reader, test)?,
        test.len()
    );

    let loops = |digits: &[Digit]| -> Vec<Digit> {
        digits.iter().map(|(pixels, label)| (*pixels, u32::from([0, 6, 8, 9].contains(label)))).collect()
    };
    let mut few: Vec<Digit> = Vec::new();
    for digit in train {
        if few.iter().filter(|(_, label)| *label == digit.1).count() < FEW {
            few.push(*digit);
        }
    }
    let (few, test) = (loops(&few), loops(test));
    let mut tuned = Tuned::on(device)?;
    let names: Vec<String> = tuned.names().filter(|name| name.starts_with("backbone.")).map(String::from).collect();
    for name in names {
        tuned.set(&name, &reader.get(&name)?)?;
    }
    learn(&mut tuned, &few, 60)?;
    let mut whole = Whole::on(device)?;
    learn(&mut whole, &few, 60)?;
    println!("{} examples, whether it has a loop, of {} held-back digits right:", few.len(), test.len());
    println!("    with what the first network sees, frozen: {:.1} %", share(&mut tuned, &test)?);
    println!("    from nothing: {:.1} %", share(&mut whole, &test)?);
    let bytes = |memory: u64| memory as f64 / f64::from(1 << 10);
    println!(
        "a training step needs {:.0} KiB with the frozen part, and {:.0} KiB without",
        bytes(Tuned::BUDGET[Line::Arena]),
        bytes(Whole::BUDGET[Line::Arena])
    );
    Ok(())
}

/// Some passes over all examples, in batches.
fn learn<N>(net: &mut Net<N, gpumem::AnyDevice>, digits: &[Digit], epochs: u64) -> Result<(), gpumem::Error>
where
    N: Network<Input = <Reader as Network>::Input, Target = <Reader as Network>::Target>,
{
    let mut digits = digits.to_vec();
    for epoch in 0..epochs {
        shuffle(&mut digits, epoch);
        for batch in digits.chunks_exact(BATCH) {
            let (images, _) = Tensor::from_samples(batch.iter().map(|(pixels, _)| pixels))?;
            net.train_step(&images, &Tensor::from_fn(|index| batch[index].1))?;
        }
    }
    Ok(())
}

/// The percentage of digits whose largest logit is that of their label.
fn share<N, const CLASSES: usize>(net: &mut Net<N, gpumem::AnyDevice>, digits: &[Digit]) -> Result<f64, gpumem::Error>
where
    N: Network<Input = <Reader as Network>::Input, Output = Tensor<f32, (D<BATCH>, D<CLASSES>)>>,
{
    let mut right = 0;
    for batch in digits.chunks(BATCH) {
        let (images, count) = Tensor::from_samples(batch.iter().map(|(pixels, _)| pixels))?;
        let classes = net.forward(&images)?.argmax();
        right += batch.iter().zip(&classes[..count]).filter(|((_, label), class)| *label as usize == **class).count();
    }
    Ok(100.0 * right as f64 / digits.len() as f64)
}
