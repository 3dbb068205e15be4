use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use super::window::feature_map;
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Mean over height and width: `GlobalAvgPool`.
    ///
    /// * Input `[C, H, W]`, output `[C]`.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `x.mean((2, 3))`.
    pub struct GlobalAvgPool {
        /// Channels.
        pub channels: u64,
        /// Height and width of the input.
        pub input: [u64; 2],
    }
}

impl Rule for GlobalAvgPool {
    const NAME: &'static str = "GlobalAvgPool";
    const SIGNATURE: Signature = Signature::NONE;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<GlobalAvgPool, Mistake> {
        arguments.matched(&Self::SIGNATURE)?;
        let [channels, height, width] = feature_map(inputs)?;
        Ok(GlobalAvgPool { channels, input: [height, width] })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.channels])
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("GlobalAvgPool"))
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use typenum::Unsigned;

    /// Keeps the channels.
    #[derive(Debug)]
    pub struct GlobalAvgPool;

    impl<C: Unsigned, H: Unsigned, W: Unsigned> ShapeRule<(C, H, W)> for GlobalAvgPool {
        type Out = (C,);
    }
}
