use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{self, MOST_NUMBERS};
use crate::shape::{Shape, product};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// `Constant([[1.0, 0.0], [0.5, 1.0]])` or `Constant(MASK)`: numbers that are written in the network, with
/// `const MASK: [[f64; 2]; 2] = [[1.0, 0.0], [0.5, 1.0]];`.
///
/// * Option: `shape`, as `(2, 3)`; if left out, that of the nested brackets. One number fills all of it.
/// * Input of any kind, which is not read; output of the shape, one for the whole batch, to be added, multiplied with, or used as the mask
///   of an `Attention`.
/// * At most 4096 numbers. Tables with a formula are layers or options: `SinusoidalPositions`, `ShiftedWindowMask`, and `causal` and
///   `window` of attention layers. Make any other large table an input of the network.
/// * Parameters: none. The numbers are part of the program, and in memory while they are needed.
/// * Backward keeps it if the operation that reads it needs it.
///
/// PyTorch: `self.register_buffer("mask", torch.tensor(..), persistent=False)`.
#[derive(Clone, Debug)]
pub struct Constant {
    dims: Vec<u64>,
    numbers: Vec<f64>,
    shape: Option<Vec<u64>>,
}

/// Returns dimensions and numbers of an argument. `None` if it is no such value.
fn table(value: &Argument) -> Option<(Vec<u64>, Vec<f64>)> {
    match value {
        Argument::Table(dims, numbers) => Some((dims.clone(), numbers.clone())),
        other => {
            let numbers = crate::layers::arguments::numbers(other)?;
            Some((vec![numbers.len() as u64], numbers))
        }
    }
}

impl Layer for Constant {
    const NAME: &'static str = "Constant";

    fn read(from: &mut Arguments<'_>) -> Constant {
        let one = || (vec![1], vec![0.0]);
        let (dims, numbers) = from.required("numbers").take(Arguments::TABLE, table, [one(), one()]);
        Constant { dims, numbers, shape: from.option("shape").lengths() }
    }

    fn build(&self, b: &mut Builder<'_>, _: &[Value]) -> Result<Value, Mistake> {
        let count = self.numbers.len();
        if count > MOST_NUMBERS {
            let text = format!(
                "has {count} numbers, but no more than {MOST_NUMBERS} can be written; use a layer that computes them, as \
                 `SinusoidalPositions`, or an input of the network"
            );
            return Err(Mistake::of("numbers", text));
        }
        if let Some(number) = self.numbers.iter().find(|&&number| !(number as f32).is_finite()) {
            let text = format!("has {number:?} among its numbers; a mask hides with -1e9");
            return Err(Mistake::of("numbers", text));
        }
        let dims = self.shape.as_ref().unwrap_or(&self.dims);
        if dims.len() > Shape::MAX_RANK {
            let text = format!("has {} axes; a tensor has no more than {}", dims.len(), Shape::MAX_RANK);
            return Err(Mistake::new(text));
        }
        let shape = Shape::new(dims);
        if count != 1 && product(dims) != count as u64 {
            let text =
                format!("has {count} numbers, but {shape} has {} elements; write as many, or one", product(dims));
            return Err(Mistake::of("shape", text));
        }
        b.op(ops::Constant { shape, numbers: self.numbers.clone() }, &[])
    }
}
