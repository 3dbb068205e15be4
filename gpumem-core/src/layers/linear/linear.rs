use super::{Reparametrization, weight_and_bias};
use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Product;
use crate::shape::{Shape, product};

/// `Linear(out_features, bias = true, transposed = false)`: an affine map of the last axis. With `in_features` first,
/// `Linear(in_features, out_features)`, the input is checked.
///
/// * Options: `bias = true`; `transposed = false`; if true, the weight is stored as `[in_features, out_features]`, as GPT-2 has it.
/// * Options of a weight that is computed from other parameters: [`weight_norm`, `spectral_norm`, and `standardized` with `gamma` and
///   `eps`](super).
/// * Input `[in_features]` or `[T, in_features]`, output `[out_features]` or `[T, out_features]`. With `in_features` written, the input may
///   have more axes, as `[8, 7, in_features]`.
/// * Parameters: `weight` `[out_features, in_features]`, or with `transposed` `[in_features, out_features]`, and, with `bias`, `bias` `[out_features]`, both uniform
///   within `1 / sqrt(in_features)`.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.Linear(in_features, out_features, bias)`; with `transposed`, `transformers.pytorch_utils.Conv1D(out_features, in_features)`.
#[derive(Clone, Debug)]
pub struct Linear {
    in_features: Option<u64>,
    out_features: u64,
    bias: bool,
    transposed: bool,
    made: Reparametrization,
}

impl Linear {
    /// Returns a map to rows of so many features.
    pub(crate) fn to(out_features: u64, bias: bool) -> Linear {
        Linear { in_features: None, out_features, bias, transposed: false, made: Reparametrization::default() }
    }
}

impl Linear {
    /// Adds the map of the last axis of more than two. `None` unless `in_features` shows that this is meant.
    fn of_more_axes(&self, b: &mut Builder<'_>, x: Value) -> Option<Result<Value, Mistake>> {
        let is_meant =
            x.elements == Elements::Numbers && x.shape.rank() > 2 && self.in_features == Some(x.shape.last());
        is_meant.then(|| {
            let (rows, _) = x.last_axes(Some(&[x.shape.last()]))?;
            let rows = b.view(x, rows);
            let y = Layer::build(self, b, &[rows])?;
            Ok(b.view(y, x.shape.with_last(self.out_features)))
        })
    }
}

impl Layer for Linear {
    const NAME: &'static str = "Linear";

    fn read(from: &mut Arguments<'_>) -> Linear {
        Linear {
            in_features: from.leading("in_features").integer(),
            out_features: from.required("out_features").positive(),
            bias: from.option("bias").flag(true),
            transposed: from.option("transposed").flag(false),
            made: Reparametrization::read(from),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let mut x = x[0];
        if let Some(wide) = self.of_more_axes(b, x) {
            return wide;
        }
        let [rows, in_features] = match x.rows(self.in_features) {
            Ok(sizes) => {
                b.report(x.unexpected_features(self.in_features));
                sizes
            }
            // A value that is neither a vector nor a sequence was most probably meant to be flattened.
            Err(mistake) if x.elements == Elements::Numbers => {
                b.report(mistake);
                let elements = product(x.shape.dims());
                x = b.view(x, Shape::new(&[elements]));
                [1, elements]
            }
            Err(mistake) => return Err(mistake),
        };
        let Linear { out_features, bias, transposed, ref made, .. } = *self;
        let sizes = if transposed { [in_features, out_features] } else { [out_features, in_features] };
        let weight = Shape::new(&sizes);
        let inputs = weight_and_bias(b, x, weight, in_features, bias.then_some(out_features), made)?;
        let shape = x.shape.with_last(out_features);
        b.op(Product { rows, in_features, out_features, bias, transposed, shape }, &inputs)
    }
}
