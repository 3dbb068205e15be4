use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Saved, Value};
use crate::role::Role;
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Causal scaled dot-product attention on projected queries, keys and values: `CausalAttention(heads)`.
    ///
    /// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training.
    /// * Input `[T, 3 * D]`: queries, keys and values side by side, each split into `heads` parts. Output `[T, D]`: in
    ///   each head `softmax(q k^T / sqrt(D / heads)) v`, where a step sees itself and the steps before it.
    /// * Parameters: none.
    /// * Backward keeps the input, the output and one f32 a row and head, the logarithm of the softmax's denominator.
    ///   There is never a T x T tensor in memory.
    ///
    /// PyTorch: `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)`.
    pub struct CausalAttention {
        /// Heads.
        pub heads: u64,
        /// Steps of the sequence.
        pub steps: u64,
        /// Elements of a row of the output, over all heads.
        pub features: u64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
    }
}

/// `heads`, checked to divide the width.
pub(super) fn check_heads(heads: u64, features: u64) -> Result<(), Mistake> {
    if features.is_multiple_of(heads) {
        return Ok(());
    }
    Err(Mistake::new(format!(
        "has {heads} heads, which do not divide its width of {features}; use a number of heads that divides {features}"
    )))
}

/// `[T, D]` of the only input of a layer that works on sequences.
pub(super) fn sequence(inputs: &[Value]) -> Result<[u64; 2], Mistake> {
    match inputs {
        [Value { shape, index: false, .. }] => <[u64; 2]>::try_from(shape.dims()).map_err(|_| {
            Mistake::new(format!("works on a sequence [T, D], but the previous layer produces {shape}"))
        }),
        _ => Err(Mistake::new("works on a sequence [T, D], but it is given tokens; put `Embedding` before it")),
    }
}

impl Rule for CausalAttention {
    const NAME: &'static str = "CausalAttention";
    const SIGNATURE: Signature = Signature { forms: &[&["heads"]], optional: &[], options: &["dropout"] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<CausalAttention, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [steps, width] = sequence(inputs)?;
        if !width.is_multiple_of(3) {
            return Err(Mistake::new(format!(
                "takes queries, keys and values side by side, but a width of {width} is not divisible by 3; \
                 put `Linear(3 * D)` before it, or use `CausalSelfAttention`"
            )));
        }
        let heads = given.positive("heads")?;
        check_heads(heads, width / 3)?;
        Ok(CausalAttention { heads, steps, features: width / 3, dropout: given.probability("dropout", 0.0)? })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.features])
    }

    fn saved(&self) -> Vec<Saved> {
        let shape = Shape::new(&[self.heads, self.steps]);
        vec![Saved { name: "log-sum-exp", shape, batched: true, role: Role::Statistic }]
    }

    fn backward(&self) -> Backward {
        let reads = Reads { input: true, output: true, saved: true, state: self.draws(), parameters: false };
        Backward::Input { reads, in_place: false }
    }

    fn draws(&self) -> bool {
        self.dropout > 0.0
    }

    /// Both products over the full T x T square, as `FlopCounterMode` counts them.
    fn macs(&self) -> u64 {
        product(&[2, self.steps, self.steps, self.features])
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "CausalAttention", arguments: vec![3] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use core::ops::Div;
    use typenum::{Quot, Unsigned};

    /// Parts that the width is divided into: queries, keys, values.
    #[derive(Debug)]
    pub struct CausalAttention<Parts>(PhantomData<Parts>);

    impl<T: Unsigned, M: Unsigned + Div<Parts>, Parts> ShapeRule<(T, M)> for CausalAttention<Parts>
    where
        Quot<M, Parts>: Unsigned,
    {
        type Out = (T, Quot<M, Parts>);
    }
}
