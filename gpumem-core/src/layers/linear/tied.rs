use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::ops::{Gather, Product};
use crate::program::{Init, Op};
use alloc::format;
use alloc::vec;

/// `Tied(w)` or `Tied(w, bias)`, after `let w = Embedding(..)` or `let w = Linear(..)`: the transposed use of a named layer's weight.
///
/// * Option: `bias = false`.
/// * Input `[D]` or `[T, D]`, output `[V]` or `[T, V]`. The embedding maps V tokens to D features, or the linear layer V features to D.
/// * Parameters: with `bias`, `bias` `[V]`, uniform within `1 / sqrt(D)`; else none of its own. The gradient of the shared weight is the
///   sum over its uses.
/// * Backward keeps the input.
///
/// PyTorch: `torch.nn.functional.linear(x, w.weight, bias)` for an embedding, `torch.nn.functional.linear(x, w.weight.T, bias)`
/// for a linear layer.
#[derive(Clone, Debug)]
pub struct Tied {
    bias: bool,
}

impl Layer for Tied {
    const NAME: &'static str = "Tied";

    /// Reads `bias` only. The name of the layer is no value: it is resolved with the names of the network.
    fn read(from: &mut Arguments<'_>) -> Tied {
        Tied { bias: from.option("bias").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let Some(kind) = b.tied_kind() else {
            return Err(Mistake::new("takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`"));
        };
        let (weight, in_features, out_features, transposed) = match b.tied_weight() {
            Some((weight, Op::Gather(Gather { rows, width, .. }))) => (weight, width, rows, false),
            Some((weight, Op::Product(Product { in_features, out_features, transposed, .. }))) if kind == "Linear" => {
                (weight, out_features, in_features, !transposed)
            }
            _ => {
                let text = format!("transposes the weight of an `Embedding` or a `Linear`, not of a `{kind}`");
                return Err(Mistake::new(text));
            }
        };
        let [rows, _] = x[0].rows(Some(in_features))?;
        if let Some(mistake) = x[0].unexpected_features(Some(in_features)) {
            return Err(mistake);
        }
        let shape = x[0].shape.with_last(out_features);
        let op = Product { rows, in_features, out_features, bias: self.bias, transposed, shape };
        let mut inputs = vec![x[0], weight];
        if self.bias {
            inputs.push(b.parameter("bias", &[out_features], Role::Weight, Init::Uniform(inverse_sqrt(in_features))));
        }
        b.op(op, &inputs)
    }
}
