//! How tensors begin.

use super::encoding::{Reader, Wire};
use crate::number::random::{Stream, exp, ln};
use alloc::vec::Vec;

/// How a tensor is filled before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element the same.
    Constant(f64),
    /// Uniform on `[-bound, bound)`.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// The same, but for some elements that are 0.
    NormalWithZeros {
        /// The standard deviation.
        deviation: f64,
        /// The first of those that are 0, and how many follow each other.
        zeros: [u64; 2],
    },
    /// The logarithms of 1 to `most`, again and again.
    Logarithms {
        /// The last of them.
        most: u64,
    },
    /// What `log(1 + exp(x))` makes a number of whose logarithm is uniform between those of `min` and `max`.
    StepSizes {
        /// The least number.
        min: f64,
        /// The largest one.
        max: f64,
    },
    /// The lengths of the parts of the parameter before it, which are those along the axis that both have: a weight that is the
    /// product of a length and a direction then begins as its direction was drawn. See [`Program::initial`](super::Program::initial).
    Lengths,
}

impl Init {
    /// Element `index` of a tensor that is filled from first to last.
    pub(super) fn draw(self, stream: &mut Stream, index: u64) -> f32 {
        match self {
            Init::Constant(value) => value as f32,
            // Of what there is not, where a program is damaged.
            Init::Lengths => 1.0,
            Init::Uniform(bound) => ((2.0 * stream.uniform() - 1.0) * bound) as f32,
            Init::Normal(deviation) => (stream.normal() * deviation) as f32,
            Init::NormalWithZeros { deviation, zeros: [first, count] } => {
                let drawn = (stream.normal() * deviation) as f32;
                if index.checked_sub(first).is_some_and(|behind| behind < count) { 0.0 } else { drawn }
            }
            Init::Logarithms { most } => ln((index % most.max(1) + 1) as f64) as f32,
            Init::StepSizes { min, max } => {
                let size = exp(ln(min) + stream.uniform() * (ln(max) - ln(min)));
                // The inverse of `log(1 + exp(x))`.
                (size + ln(1.0 - exp(-size))) as f32
            }
        }
    }
}

impl Wire for Init {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, value) = match *self {
            Init::Logarithms { most } => {
                4u64.put(out);
                return most.put(out);
            }
            Init::StepSizes { min, .. } => (5, min),
            Init::Constant(value) => (0u64, value),
            Init::Uniform(bound) => (1, bound),
            Init::Normal(deviation) => (2, deviation),
            Init::NormalWithZeros { deviation, .. } => (3, deviation),
            Init::Lengths => (6, 0.0),
        };
        kind.put(out);
        value.put(out);
        match self {
            Init::NormalWithZeros { zeros, .. } => zeros.put(out),
            Init::StepSizes { max, .. } => max.put(out),
            _ => {}
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Init> {
        let kind = u64::take(from)?;
        if kind == 4 {
            return Some(Init::Logarithms { most: Wire::take(from)? });
        }
        let value = f64::take(from)?;
        match kind {
            0 => Some(Init::Constant(value)),
            1 => Some(Init::Uniform(value)),
            2 => Some(Init::Normal(value)),
            3 => Some(Init::NormalWithZeros { deviation: value, zeros: Wire::take(from)? }),
            5 => Some(Init::StepSizes { min: value, max: Wire::take(from)? }),
            6 => Some(Init::Lengths),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Mamba begins: A is -1 to -N, and steps are of any size between two, on a scale of logarithms.
    #[test]
    fn state_space_models_begin_as_they_should() {
        let mut stream = Stream::new(1, 2);
        let drawn = [0, 1, 2, 3].map(|index| Init::Logarithms { most: 3 }.draw(&mut stream, index));
        assert_eq!(drawn, [0.0, core::f32::consts::LN_2, 1.098_612_3, 0.0]);
        let (low, high) = (ln(0.01), ln(0.5));
        let mut mean = 0.0;
        for index in 0..2000 {
            let bias = f64::from(Init::StepSizes { min: 0.01, max: 0.5 }.draw(&mut stream, index));
            let logarithm = ln(ln(1.0 + exp(bias)));
            assert!((low - 1e-4..high + 1e-4).contains(&logarithm), "{bias}");
            mean += logarithm / 2000.0;
        }
        assert!((mean - (low + high) / 2.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn initialisations_are_read_as_they_were_written() {
        let zeros = Init::NormalWithZeros { deviation: 0.5, zeros: [3, 4] };
        let all = [Init::Constant(1.0), Init::Uniform(0.25), Init::Normal(2.0), zeros];
        let scans = [Init::Logarithms { most: 16 }, Init::StepSizes { min: 0.001, max: 0.1 }];
        for init in all.into_iter().chain(scans) {
            let mut bytes = Vec::new();
            init.put(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Init::take(&mut reader), Some(init));
            assert!(reader.is_empty());
        }
    }
}
