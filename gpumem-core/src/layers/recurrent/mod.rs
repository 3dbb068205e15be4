//! Recurrent layers, as `Lstm(650, layers = 2)`, which take one time step after the other.

mod gru;
mod lstm;
mod rnn;

pub use gru::Gru;
pub use lstm::Lstm;
pub use rnn::Rnn;

use super::Entry;
use super::arguments::Arguments;
use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::program::ops::{Cell, Concat, Mask, Product, Recurrence};
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<Lstm>(), Entry::of::<Gru>(), Entry::of::<Rnn>()];

/// The largest number of stacked layers.
const MOST_LAYERS: u64 = 256;

/// The options that `Lstm`, `Gru` and `Rnn` share: a stack of layers.
#[derive(Clone, Copy, Debug)]
struct Stack {
    hidden: u64,
    layers: u64,
    bias: bool,
    dropout: f64,
    bidirectional: bool,
    /// True if the plan has the memory that cuDNN needs.
    cudnn: bool,
    /// The outputs of a direction after a projection. `None` without one.
    projected: Option<u64>,
}

impl Stack {
    fn read(from: &mut Arguments<'_>) -> Stack {
        Stack {
            hidden: from.required("hidden").positive(),
            layers: from.trailing("layers").positive(1),
            bias: from.option("bias").flag(true),
            dropout: from.option("dropout").probability(0.0),
            bidirectional: from.option("bidirectional").flag(false),
            cudnn: from.option("cudnn").flag(false),
            projected: None,
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: Value, cell: Cell) -> Result<Value, Mistake> {
        let Stack { layers, dropout, .. } = *self;
        x.sequence()?;
        if layers > MOST_LAYERS {
            let text = format!(
                "has layers = {layers}, but stacks at most {MOST_LAYERS}; the width of what arrives is known, so only the hidden \
                 units are written: `layers` is how many follow each other"
            );
            b.report(Mistake::of("layers", text));
        }
        // Each layer reads zeros after the end of a sample. Later layers get them from the layer before.
        let mut y = match b.lengths_of(&x) {
            Some(lengths) => b.first_steps(x, lengths, false)?,
            None => x,
        };
        for layer in 0..layers.min(MOST_LAYERS) {
            if layer > 0 && dropout > 0.0 {
                y = b.op(Mask { shape: y.shape, p: dropout, shared: 1, site: layer - 1 }, &[y])?;
            }
            y = self.layer(b, y, cell, layer)?;
        }
        Ok(y)
    }

    /// Adds one layer: for each direction a linear map of all steps at once, and then one step after the other.
    fn layer(&self, b: &mut Builder<'_>, x: Value, cell: Cell, layer: u64) -> Result<Value, Mistake> {
        let all = if self.bidirectional { &["", "_reverse"][..] } else { &[""] };
        let Some(lengths) = b.lengths_of(&x) else { return self.directions(b, x, cell, (layer, all)) };
        // The reverse direction begins at the end of each sample, step `n - 1`.
        let mut directions = Vec::new();
        for (suffix, reverse) in all.iter().zip([false, true]) {
            let arriving = if reverse { b.first_steps(x, lengths, true)? } else { x };
            let y = self.directions(b, arriving, cell, (layer, &[*suffix]))?;
            directions.push(b.first_steps(y, lengths, reverse)?);
        }
        let [steps, width] = directions[0].sequence()?;
        match directions.len() {
            1 => Ok(directions[0]),
            _ => b.op(
                Concat { axis: 1, lengths: [width; 2].to_vec(), shape: Shape::new(&[steps, 2 * width]) },
                &directions,
            ),
        }
    }

    /// Adds one layer in the directions of these suffixes.
    fn directions(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        cell: Cell,
        (layer, suffixes): (u64, &[&str]),
    ) -> Result<Value, Mistake> {
        let ([steps, in_features], Stack { hidden, bias, cudnn, .. }) = (x.sequence()?, *self);
        let (outputs, directions) = (self.projected.unwrap_or(hidden), suffixes.len() as u64);
        let op = Recurrence { cell, steps, hidden, outputs, directions, bias, cudnn };
        let (width, mut inputs) = (op.width(), Vec::new());
        let init = Init::Uniform(inverse_sqrt(hidden));
        for suffix in suffixes {
            let mut parameter =
                |kind: &str, shape: &[u64]| b.parameter(&format!("{kind}_l{layer}{suffix}"), shape, Role::Weight, init);
            let mut mapped = [x, parameter("weight_ih", &[width, in_features])].to_vec();
            let mut repeated = [parameter("weight_hh", &[width, outputs])].to_vec();
            if bias {
                mapped.push(parameter("bias_ih", &[width]));
                repeated.push(parameter("bias_hh", &[width]));
            }
            if op.is_projected() {
                repeated.push(parameter("weight_hr", &[outputs, hidden]));
            }
            let shape = Shape::new(&[steps, width]);
            let (rows, out_features) = (steps, width);
            let map = Product { rows, in_features, out_features, bias, transposed: false, shape };
            inputs.push(b.op(map, &mapped)?);
            inputs.extend(repeated);
        }
        b.op(op, &inputs)
    }
}
