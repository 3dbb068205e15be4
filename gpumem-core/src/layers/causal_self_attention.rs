use super::arguments::{Arguments, Mistake, Signature};
use super::causal_attention::{check_heads, sequence};
use super::rule::{Backward, Parameter, Proof, Reads, Rule, Value};
use super::{CausalAttention, Layer, Linear};
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Multi-head self-attention in which a step sees itself and the steps before it: `CausalSelfAttention(heads)`.
    ///
    /// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training; `bias = true`.
    /// * Input and output `[T, D]`. `Linear(3 * D)` makes queries, keys and values, [`CausalAttention`] attends,
    ///   `Linear(D)` projects.
    /// * Parameters: `qkv.weight` `[3 * D, D]`, `qkv.bias` `[3 * D]`, `proj.weight` `[D, D]`, `proj.bias` `[D]`,
    ///   initialised as those of [`Linear`]: `4 * D * D + 4 * D` in all.
    /// * Backward keeps the input, queries, keys and values, the attention's output and one f32 a row and head. There is
    ///   never a T x T tensor in memory.
    ///
    /// PyTorch: `torch.nn.MultiheadAttention(D, heads, dropout, bias, batch_first=True)(x, x, x, is_causal=True)`.
    pub struct CausalSelfAttention {
        /// Heads.
        pub heads: u64,
        /// Steps of the sequence.
        pub steps: u64,
        /// Elements of a row.
        pub features: u64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
        /// Whether both projections have a bias.
        pub bias: bool,
    }
}

impl CausalSelfAttention {
    fn parts(&self) -> [(&'static str, Layer); 3] {
        let CausalSelfAttention { heads, steps, features, dropout, bias } = *self;
        let linear = |in_features: u64, out_features: u64| {
            let shape = Shape::new(&[steps, out_features]);
            Layer::Linear(Linear { rows: steps, in_features, out_features, bias, shape })
        };
        let attention = Layer::CausalAttention(CausalAttention { heads, steps, features, dropout });
        [("qkv", linear(features, features.saturating_mul(3))), ("", attention), ("proj", linear(features, features))]
    }
}

impl Rule for CausalSelfAttention {
    const NAME: &'static str = "CausalSelfAttention";
    const SIGNATURE: Signature = Signature { forms: &[&["heads"]], optional: &[], options: &["dropout", "bias"] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<CausalSelfAttention, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [steps, features] = sequence(inputs)?;
        let heads = given.positive("heads")?;
        check_heads(heads, features)?;
        let dropout = given.probability("dropout", 0.0)?;
        Ok(CausalSelfAttention { heads, steps, features, dropout, bias: given.flag("bias", true)? })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.features])
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parts().iter().flat_map(|(_, part)| part.parameters()).collect()
    }

    /// That of its parts; this layer is never an operation itself.
    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn macs(&self) -> u64 {
        self.parts().iter().fold(0, |sum: u64, (_, part)| sum.saturating_add(part.macs()))
    }

    fn expand(&self) -> Option<Vec<(&'static str, Layer)>> {
        Some(self.parts().to_vec())
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "CausalSelfAttention", arguments: vec![self.heads] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use core::ops::Rem;
    use typenum::{Mod, U0, Unsigned};

    /// Heads, which must divide the width.
    #[derive(Debug)]
    pub struct CausalSelfAttention<Heads>(PhantomData<Heads>);

    impl<T: Unsigned, N: Unsigned + Rem<Heads>, Heads> ShapeRule<(T, N)> for CausalSelfAttention<Heads>
    where
        Mod<N, Heads>: IsZero,
    {
        type Out = (T, N);
    }

    /// Holds for 0 only.
    pub trait IsZero {}
    impl IsZero for U0 {}
}
