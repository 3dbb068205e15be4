use super::arguments::{Arguments, Mistake, Signature};
use super::conv2d::check_in_channels;
use super::rule::{Backward, Buffer, Parameter, Pass, Proof, Reads, Rule, Saved, Value, Workspace};
use super::window::feature_map;
use crate::program::Init;
use crate::role::Role;
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Batch normalisation of feature maps: `BatchNorm2d` or `BatchNorm2d(num_features)`.
    ///
    /// * Options: `eps = 1e-5`, `momentum = 0.1`, `affine = true`.
    /// * Input and output `[C, H, W]`. In training each channel is normalised with the mean and the biased variance over
    ///   batch, height and width; in inference with the running statistics.
    /// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
    /// * Buffers: `running_mean` `[C]` = 0 and `running_var` `[C]` = 1, which move by `momentum` towards the batch's mean
    ///   and unbiased variance.
    /// * Backward keeps the input and two statistics a channel: mean and `1 / sqrt(variance + eps)`.
    ///
    /// PyTorch: `torch.nn.BatchNorm2d(num_features, eps, momentum, affine)`.
    pub struct BatchNorm2d {
        /// Channels.
        pub num_features: u64,
        /// Height and width.
        pub size: [u64; 2],
        /// Added to the variance.
        pub eps: f64,
        /// Share of the batch's statistics in the running ones.
        pub momentum: f64,
        /// Whether there is a scale and a shift.
        pub affine: bool,
    }
}

/// A scale of ones and a shift of zeros.
pub(super) fn scale_and_shift(features: u64) -> Vec<Parameter> {
    let parameter = |name, value| Parameter {
        name,
        shape: Shape::new(&[features]),
        role: Role::Norm,
        init: Init::Constant(value),
    };
    vec![parameter("weight", 1.0), parameter("bias", 0.0)]
}

/// Parts of the batch that the sums of a channel are split into, so that a card has enough to do where channels are few.
const PARTS: u64 = 32;

impl Rule for BatchNorm2d {
    const NAME: &'static str = "BatchNorm2d";
    const SIGNATURE: Signature = Signature {
        forms: &[&[], &["num_features"]],
        optional: &[],
        options: &["eps", "momentum", "affine"],
    };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<BatchNorm2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [num_features, height, width] = feature_map(inputs)?;
        check_in_channels(given.integer("num_features")?, num_features, inputs[0].shape)?;
        Ok(BatchNorm2d {
            num_features,
            size: [height, width],
            eps: given.float("eps", 1e-5)?,
            momentum: given.float("momentum", 0.1)?,
            affine: given.flag("affine", true)?,
        })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.num_features, self.size[0], self.size[1]])
    }

    fn parameters(&self) -> Vec<Parameter> {
        if self.affine { scale_and_shift(self.num_features) } else { Vec::new() }
    }

    fn buffers(&self) -> Vec<Buffer> {
        let buffer = |name, value| Buffer { name, shape: Shape::new(&[self.num_features]), value };
        vec![buffer("running_mean", 0.0), buffer("running_var", 1.0)]
    }

    fn saved(&self) -> Vec<Saved> {
        let shape = Shape::new(&[2, self.num_features]);
        vec![Saved { name: "mean and 1/std", shape, batched: false, role: Role::Statistic }]
    }

    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        // Two sums a channel, each over so many parts of the batch.
        let shape = Shape::new(&[2, self.num_features, PARTS]);
        (pass != Pass::Inference).then_some(Workspace { role: Role::Statistic, shape, batched: false })
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
        Some(Proof { name: "BatchNorm2d", arguments: vec![self.num_features] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Channels.
    #[derive(Debug)]
    pub struct BatchNorm2d<C>(PhantomData<C>);

    impl<C: Unsigned, H: Unsigned, W: Unsigned> ShapeRule<(C, H, W)> for BatchNorm2d<C> {
        type Out = (C, H, W);
    }
}
