use super::arguments::{Arguments, Mistake, Signature};
use super::linear::rows;
use super::rule::{Backward, Parameter, Pass, Proof, Reads, Rule, Value, Workspace};
use super::{Layer, linear};
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The transposed use of a named layer's weight, without bias: `Tied(w)` after `let w = Embedding(..)` or
    /// `let w = Linear(..)`.
    ///
    /// * Input `[D]` or `[T, D]`, output `[V]` or `[T, V]`: where the embedding maps V tokens to D features, or the
    ///   linear layer V features to D.
    /// * Parameters: none of its own; the gradient of the shared weight is the sum over its uses.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.functional.linear(x, w.weight)` for an embedding, `torch.nn.functional.linear(x, w.weight.T)`
    /// for a linear layer.
    pub struct Tied {
        /// Rows a sample: 1 for a vector, T for a sequence.
        pub rows: u64,
        /// Elements of each row of the input.
        pub in_features: u64,
        /// Elements of each row of the output.
        pub out_features: u64,
        /// Whether the weight is stored as `[in_features, out_features]` (a linear layer's) rather than
        /// `[out_features, in_features]` (an embedding's).
        pub transposed: bool,
        /// Dimensions of the output.
        pub shape: Shape,
    }
}

impl Tied {
    /// The transposed use of `owner`'s weight.
    ///
    /// # Errors
    /// An owner that is neither an embedding nor a linear layer, or an input of another width.
    pub fn to(owner: &Layer, inputs: &[Value]) -> Result<Tied, Mistake> {
        let (in_features, out_features, transposed) = match owner {
            Layer::Embedding(embedding) => (embedding.embedding_dim, embedding.num_embeddings, false),
            Layer::Linear(linear) => (linear.out_features, linear.in_features, true),
            other => {
                return Err(Mistake::new(format!(
                    "transposes the weight of an `Embedding` or a `Linear`, not of a `{}`",
                    other.name()
                )));
            }
        };
        let (rows, in_features) = rows(inputs, Some(in_features))?;
        Ok(Tied { rows, in_features, out_features, transposed, shape: inputs[0].shape.with_last(out_features) })
    }
}

impl Rule for Tied {
    const NAME: &'static str = "Tied";
    const SIGNATURE: Signature = Signature { forms: &[&["layer"]], optional: &[], options: &[] };

    fn resolve(_: &Arguments, _: &[Value]) -> Result<Tied, Mistake> {
        Err(Mistake::new("takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`"))
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn parameters(&self) -> Vec<Parameter> {
        let [outer, inner] =
            if self.transposed { [self.in_features, self.out_features] } else { [self.out_features, self.in_features] };
        linear::weight_and_bias(Shape::new(&[outer, inner]), inner, None)
    }

    fn backward(&self) -> Backward {
        Backward::Split {
            input: Reads { parameters: true, ..Reads::default() },
            parameters: Reads { input: true, ..Reads::default() },
        }
    }

    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        linear::product_workspace(pass, self.rows, self.in_features, self.out_features)
    }

    fn macs(&self) -> u64 {
        product(&[self.rows, self.in_features, self.out_features])
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Linear", arguments: vec![self.in_features, self.out_features] })
    }
}

/// The type-level shape rule is that of `Linear`.
pub(super) mod typed {}
