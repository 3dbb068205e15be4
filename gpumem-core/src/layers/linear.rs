use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Parameter, Pass, Proof, Reads, Rule, Value, Workspace};
use crate::program::Init;
use crate::role::Role;
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Affine map of the last axis: `Linear(out_features)` or `Linear(in_features, out_features)`.
    ///
    /// * Options: `bias = true`.
    /// * Input `[in_features]` or `[T, in_features]`, output `[out_features]` or `[T, out_features]`.
    /// * Parameters: `weight` `[out_features, in_features]` and, with `bias`, `bias` `[out_features]`, both uniform
    ///   within `1 / sqrt(in_features)`.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.Linear(in_features, out_features, bias)`.
    pub struct Linear {
        /// Rows a sample: 1 for a vector, T for a sequence.
        pub rows: u64,
        /// Elements of each row of the input.
        pub in_features: u64,
        /// Elements of each row of the output.
        pub out_features: u64,
        /// Whether a number is added to each output feature.
        pub bias: bool,
        /// Dimensions of the output.
        pub shape: Shape,
    }
}

/// A weight and maybe a bias of `bias` elements, uniform within `1 / sqrt(fan_in)`: what PyTorch's
/// `kaiming_uniform_(weight, a = sqrt(5))` comes to.
pub(super) fn weight_and_bias(shape: Shape, fan_in: u64, bias: Option<u64>) -> Vec<Parameter> {
    let init = Init::Uniform(inverse_sqrt(fan_in));
    let weight = Parameter { name: "weight", shape, role: Role::Weight, init };
    let bias = bias.map(|length| Parameter { name: "bias", shape: Shape::new(&[length]), role: Role::Weight, init });
    [Some(weight), bias].into_iter().flatten().collect()
}

/// Terms of a sum that are worth a partial sum of their own.
const SPLIT: u64 = 256;

/// What the products of an affine map can use when their sums are split over a card: an f32 for each element of the result
/// and each 256 terms of its sum.
pub(super) fn product_workspace(pass: Pass, rows: u64, in_features: u64, out_features: u64) -> Option<Workspace> {
    let elements = match pass {
        Pass::Forward | Pass::Inference => product(&[rows, out_features, in_features / SPLIT]),
        Pass::BackwardInput => product(&[rows, in_features, out_features / SPLIT]),
        Pass::BackwardParameters | Pass::Backward => product(&[rows, in_features, out_features]) / SPLIT,
    };
    let shape = Shape::new(&[elements]);
    (elements > 0).then_some(Workspace { role: Role::ProductWorkspace, shape, batched: true })
}

/// `1 / sqrt(n)` by Newton's iteration: `core` has no square root.
fn inverse_sqrt(n: u64) -> f64 {
    let n = n.max(1) as f64;
    let mut root = n;
    for _ in 0..64 {
        root = 0.5 * (root + n / root);
    }
    1.0 / root
}

/// Rows and features of the only input of a layer that works on vectors and sequences.
///
/// # Errors
/// Tokens or a feature map.
pub(super) fn rows(inputs: &[Value], expected: Option<u64>) -> Result<(u64, u64), Mistake> {
    let [Value { shape, index: false, .. }] = inputs else {
        return Err(Mistake::new("works on numbers, but it is given tokens; put `Embedding` before it"));
    };
    match (shape.dims(), expected) {
        (&[features] | &[_, features], Some(expected)) if features != expected => Err(Mistake::new(format!(
            "expects {expected} input features, but the previous layer produces {shape}"
        ))),
        (&[features], _) => Ok((1, features)),
        (&[steps, features], _) => Ok((steps, features)),
        (_, expected) => {
            let elements = shape.elements().unwrap_or(u64::MAX);
            Err(Mistake::new(match expected {
                Some(expected) if expected == elements => format!(
                    "expects {expected} input features, but the previous layer produces {shape}; put `Flatten` before it"
                ),
                Some(expected) => format!(
                    "expects {expected} input features, but the previous layer produces {shape} = {elements}"
                ),
                None => format!(
                    "works on a vector or a sequence, but the previous layer produces {shape}; \
                     put `Flatten` or `GlobalAvgPool` before it"
                ),
            }))
        }
    }
}

impl Rule for Linear {
    const NAME: &'static str = "Linear";
    const SIGNATURE: Signature =
        Signature { forms: &[&["out_features"], &["in_features", "out_features"]], optional: &[], options: &["bias"] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Linear, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let (rows, in_features) = rows(inputs, given.integer("in_features")?)?;
        let out_features = given.positive("out_features")?;
        let shape = inputs[0].shape.with_last(out_features);
        Ok(Linear { rows, in_features, out_features, bias: given.flag("bias", true)?, shape })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn parameters(&self) -> Vec<Parameter> {
        let shape = Shape::new(&[self.out_features, self.in_features]);
        weight_and_bias(shape, self.in_features, self.bias.then_some(self.out_features))
    }

    fn backward(&self) -> Backward {
        Backward::Split {
            input: Reads { parameters: true, ..Reads::default() },
            parameters: Reads { input: true, ..Reads::default() },
        }
    }

    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        product_workspace(pass, self.rows, self.in_features, self.out_features)
    }

    fn macs(&self) -> u64 {
        product(&[self.rows, self.in_features, self.out_features])
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Linear", arguments: vec![self.in_features, self.out_features] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Input features, output features.
    #[derive(Debug)]
    pub struct Linear<I, O>(PhantomData<(I, O)>);

    impl<I: Unsigned, O: Unsigned> ShapeRule<(I,)> for Linear<I, O> {
        type Out = (O,);
    }

    impl<I: Unsigned, O: Unsigned, T: Unsigned> ShapeRule<(T, I)> for Linear<I, O> {
        type Out = (T, O);
    }
}
