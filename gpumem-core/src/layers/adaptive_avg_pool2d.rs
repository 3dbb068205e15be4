use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use super::window::feature_map;
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;

record! {
    /// Mean over as many windows as the output has elements: `AdaptiveAvgPool2d(output_size)`, a number or a pair
    /// `(height, width)`.
    ///
    /// * Input `[C, H, W]`, output `[C, H', W']`. Row `i` of the output is the mean of rows `floor(i * H / H')` up to,
    ///   not including, `ceil((i + 1) * H / H')`; columns likewise.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `torch.nn.AdaptiveAvgPool2d(output_size)`.
    pub struct AdaptiveAvgPool2d {
        /// Channels.
        pub channels: u64,
        /// Height and width of the input.
        pub input: [u64; 2],
        /// Height and width of the output.
        pub output: [u64; 2],
    }
}

impl Rule for AdaptiveAvgPool2d {
    const NAME: &'static str = "AdaptiveAvgPool2d";
    const SIGNATURE: Signature = Signature { forms: &[&["output_size"]], optional: &[], options: &[] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<AdaptiveAvgPool2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [channels, height, width] = feature_map(inputs)?;
        let output = given.positive_pair("output_size", [1, 1])?;
        Ok(AdaptiveAvgPool2d { channels, input: [height, width], output })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.output[0], self.output[1]])
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "AdaptivePool2d", arguments: vec![self.output[0], self.output[1]] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Height and width of the output.
    #[derive(Debug)]
    pub struct AdaptivePool2d<H, W>(PhantomData<(H, W)>);

    impl<C: Unsigned, H: Unsigned, W: Unsigned, OH: Unsigned, OW: Unsigned> ShapeRule<(C, H, W)>
        for AdaptivePool2d<OH, OW>
    {
        type Out = (C, OH, OW);
    }
}
