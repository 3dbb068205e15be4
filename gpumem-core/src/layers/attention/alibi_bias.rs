use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::random::sqrt;
use crate::program::ops::{Binary, BinaryFunction, Constant, MOST_NUMBERS};
use crate::shape::Shape;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// `AlibiBias(heads)`: the bias of attention with linear biases, in place of position embeddings. It is the index of a key times a slope of
/// the head, so that earlier keys count less. It is the last branch of [`Attention`](super::Attention), the fourth or the second, used with
/// `causal`.
///
/// * Input tokens `[T]` or rows `[.., T, D]` with up to 4096 steps; only the length matters. Output `[heads, T, T]`, one for the whole
///   batch: rows are queries, columns keys.
/// * Slopes are `2^(-8 k / n)` for `k` from 1 to `n`, where `n` is the largest power of two up to `heads`. Further heads take every other
///   slope of `2 n` heads, from the first on.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `build_alibi_tensor` of `transformers.models.bloom.modeling_bloom`, without padding.
#[derive(Clone, Debug)]
pub struct AlibiBias {
    heads: u64,
}

/// Returns `2^(-8 / heads)`, by repeated square roots, so that it is equal to the bit on every machine. The heads are a power of two.
fn first_slope(heads: u64) -> f64 {
    let mut slope = 1.0 / 256.0;
    let mut left = heads;
    while left > 1 {
        slope = sqrt(slope);
        left /= 2;
    }
    slope
}

/// Returns the slope of each head.
fn slopes(heads: u64) -> Vec<f64> {
    let powers = |first: f64| core::iter::successors(Some(first), move |slope| Some(slope * first));
    let near = 1 << heads.ilog2();
    let twice = powers(first_slope(2 * near)).step_by(2);
    powers(first_slope(near)).take(near as usize).chain(twice).take(heads as usize).collect()
}

impl Layer for AlibiBias {
    const NAME: &'static str = "AlibiBias";

    fn read(from: &mut Arguments<'_>) -> AlibiBias {
        AlibiBias { heads: from.required("heads").positive() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let (heads, shape) = (self.heads, x[0].shape);
        let steps = match (shape.dims(), x[0].elements) {
            (&[steps], Elements::Indices) | (&[.., steps, _], Elements::Numbers) => steps,
            _ => {
                let text = format!("works on tokens or a sequence [.., T, D], but the previous layer produces {shape}");
                return Err(Mistake::new(text));
            }
        };
        for (what, count) in [("heads", heads), ("steps", steps)] {
            if count > MOST_NUMBERS as u64 {
                let text = format!(
                    "has {count} {what}; use no more than {MOST_NUMBERS}, or make the bias an input of the network"
                );
                return Err(Mistake::new(text));
            }
        }
        let mut of = |dims: [u64; 3], numbers: Vec<f64>| b.op(Constant { shape: Shape::new(&dims), numbers }, &[]);
        let slopes = of([heads, 1, 1], slopes(heads))?;
        let keys = of([1, 1, steps], (0..steps).map(|key| key as f64).collect())?;
        let queries = of([1, steps, 1], vec![0.0])?;
        let mut joined = |function, left: Value, right: Value| {
            b.op(Binary { function, left: left.shape, right: right.shape }, &[left, right])
        };
        let biases = joined(BinaryFunction::Multiply, slopes, keys)?;
        joined(BinaryFunction::Add, biases, queries)
    }
}

#[cfg(test)]
mod tests {
    use super::slopes;

    /// Compares with the slopes of the paper, and with those of twelve heads in transformers.
    #[test]
    fn slopes_are_those_of_the_paper() {
        assert_eq!(slopes(8), [1, 2, 3, 4, 5, 6, 7, 8].map(|k| f64::powi(0.5, k)));
        let of_twelve = slopes(12);
        let expected = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625];
        assert_eq!(of_twelve[..8], expected);
        for (found, power) in of_twelve[8..].iter().zip([0.5, 1.5, 2.5, 3.5]) {
            assert!((found - f64::powf(2.0, -power)).abs() < 1e-15);
        }
        assert_eq!(slopes(1), [1.0 / 256.0]);
    }
}
