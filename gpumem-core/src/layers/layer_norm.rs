use super::arguments::{Arguments, Mistake, Signature};
use super::batch_norm2d::scale_and_shift;
use super::linear::rows;
use super::rule::{Backward, Parameter, Pass, Proof, Reads, Rule, Saved, Value, Workspace};
use crate::role::Role;
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Layer normalisation of the last axis: `LayerNorm` or `LayerNorm(normalized_shape)`.
    ///
    /// * Options: `eps = 1e-5`, `elementwise_affine = true`, `bias = true`.
    /// * Input and output `[N]` or `[T, D]`. Each row is normalised with its own mean and biased variance.
    /// * Parameters: with `elementwise_affine`, `weight` `[D]` = 1 and, with `bias`, `bias` `[D]` = 0.
    /// * Backward keeps the input and two statistics a row: mean and `1 / sqrt(variance + eps)`.
    ///
    /// PyTorch: `torch.nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias)`.
    pub struct LayerNorm {
        /// Rows a sample.
        pub rows: u64,
        /// Elements of a row.
        pub features: u64,
        /// Added to the variance.
        pub eps: f64,
        /// Whether there is a scale.
        pub affine: bool,
        /// Whether there is a shift.
        pub bias: bool,
        /// Dimensions of input and output.
        pub shape: Shape,
    }
}

/// Parts of the rows that the gradients of scale and shift are split into.
const PARTS: u64 = 64;

impl Rule for LayerNorm {
    const NAME: &'static str = "LayerNorm";
    const SIGNATURE: Signature = Signature {
        forms: &[&[], &["normalized_shape"]],
        optional: &[],
        options: &["eps", "elementwise_affine", "bias"],
    };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<LayerNorm, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let (rows, features) = rows(inputs, given.integer("normalized_shape")?)?;
        let affine = given.flag("elementwise_affine", true)?;
        let bias = given.flag("bias", true)? && affine;
        Ok(LayerNorm { rows, features, eps: given.float("eps", 1e-5)?, affine, bias, shape: inputs[0].shape })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn parameters(&self) -> Vec<Parameter> {
        let count = usize::from(self.affine) + usize::from(self.bias);
        scale_and_shift(self.features).into_iter().take(count).collect()
    }

    fn saved(&self) -> Vec<Saved> {
        let shape = Shape::new(&[2, self.rows]);
        vec![Saved { name: "mean and 1/std", shape, batched: true, role: Role::Statistic }]
    }

    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        // The gradients of scale and shift, each over so many parts of the rows.
        let shape = Shape::new(&[2, PARTS, self.features]);
        (pass == Pass::Backward).then_some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    fn backward(&self) -> Backward {
        let reads = Reads { input: true, saved: true, parameters: self.affine, ..Reads::default() };
        if self.affine { Backward::Joint { reads, in_place: true } } else { Backward::Input { reads, in_place: true } }
    }

    /// Its own backward pass reads the input, so this is for inference.
    fn in_place(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "LayerNorm", arguments: vec![self.features] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Elements of a row.
    #[derive(Debug)]
    pub struct LayerNorm<N>(PhantomData<N>);

    impl<N: Unsigned> ShapeRule<(N,)> for LayerNorm<N> {
        type Out = (N,);
    }

    impl<N: Unsigned, T: Unsigned> ShapeRule<(T, N)> for LayerNorm<N> {
        type Out = (T, N);
    }
}
