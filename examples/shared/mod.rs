//! What several examples need: the data that is shipped with them, and random numbers that depend on a seed only.
#![allow(dead_code, reason = "no example needs all of it")]

use flate2::read::GzDecoder;
use std::error::Error;
use std::io::Read;
use std::process::ExitCode;

/// Runs an example on the card, where there is one, or else on the processor, and shows what went wrong.
pub fn on_the_best_device(run: impl FnOnce(&gpumem::AnyDevice) -> Result<(), Box<dyn Error>>) -> ExitCode {
    shown(gpumem::default_device().map_err(Into::into).and_then(|device| run(&device)))
}

/// Shows what went wrong, if anything did.
pub fn shown(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Pixels from 0 to 1, eight rows of eight, and the digit that they show.
pub type Digit = ([f32; 64], u32);

/// 1,797 handwritten digits, in an order in which any part of them has all writers.
pub fn digits() -> Result<Vec<Digit>, Box<dyn Error>> {
    let mut digits: Vec<Digit> =
        unpacked(include_bytes!("../data/digits.csv.gz"))?.lines().map(digit).collect::<Result<_, _>>()?;
    shuffle(&mut digits, 1);
    Ok(digits)
}

fn digit(line: &str) -> Result<Digit, Box<dyn Error>> {
    let numbers: Vec<f32> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let [pixels @ .., label] = &numbers[..] else { return Err("an empty line".into()) };
    let pixels: Vec<f32> = pixels.iter().map(|pixel| pixel / 16.0).collect();
    let pixels = pixels.try_into().map_err(|_| "a line without 64 pixels")?;
    Ok((pixels, *label as u32))
}

/// Shakespeare's Coriolanus.
pub fn play() -> Result<String, Box<dyn Error>> {
    unpacked(include_bytes!("../data/coriolanus.txt.gz"))
}

fn unpacked(compressed: &[u8]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    GzDecoder::new(compressed).read_to_string(&mut text)?;
    Ok(text)
}

/// A small generator of random numbers: Marsaglia's xorshift.
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A whole number from 0 on, below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number from 0 to 1.
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A number of the normal distribution, after Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }
}

/// Fisher and Yates: the order depends on the seed only.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for end in (1..items.len()).rev() {
        items.swap(end, random.below(end + 1));
    }
}

/// A learning rate that rises for a tenth of the steps and then falls to 0 in half a cosine, as a share of the highest.
pub fn warm_and_cosine(step: usize, steps: usize) -> f64 {
    let (done, warm) = (step as f64 / steps as f64, 0.1);
    if done < warm { done / warm } else { 0.5 * (1.0 + (std::f64::consts::PI * (done - warm) / (1.0 - warm)).cos()) }
}
