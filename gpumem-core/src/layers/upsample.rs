use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use super::window::feature_map;
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;

record! {
    /// Repeats rows and columns: `Upsample(scale_factor)`, a number or a pair `(height, width)`.
    ///
    /// * Options: `mode = "nearest"`.
    /// * Input `[C, H, W]`, output `[C, H * scale_factor, W * scale_factor]`.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `torch.nn.Upsample(scale_factor=scale_factor, mode="nearest")`.
    pub struct Upsample {
        /// Channels.
        pub channels: u64,
        /// How often each row and column is repeated.
        pub scale_factor: [u64; 2],
        /// Height and width of the input.
        pub input: [u64; 2],
    }
}

impl Rule for Upsample {
    const NAME: &'static str = "Upsample";
    const SIGNATURE: Signature = Signature { forms: &[&["scale_factor"]], optional: &[], options: &["mode"] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Upsample, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        given.choice("mode", &["nearest"])?;
        let [channels, height, width] = feature_map(inputs)?;
        let scale_factor = given.positive_pair("scale_factor", [1, 1])?;
        Ok(Upsample { channels, scale_factor, input: [height, width] })
    }

    fn output(&self) -> Shape {
        let scaled = |axis: usize| self.input[axis].saturating_mul(self.scale_factor[axis]);
        Shape::new(&[self.channels, scaled(0), scaled(1)])
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Upsample", arguments: vec![self.scale_factor[0], self.scale_factor[1]] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use core::ops::Mul;
    use typenum::{Prod, Unsigned};

    /// Scale of the height and of the width.
    #[derive(Debug)]
    pub struct Upsample<SH, SW>(PhantomData<(SH, SW)>);

    impl<C: Unsigned, H: Mul<SH>, W: Mul<SW>, SH, SW> ShapeRule<(C, H, W)> for Upsample<SH, SW>
    where
        Prod<H, SH>: Unsigned,
        Prod<W, SW>: Unsigned,
    {
        type Out = (C, Prod<H, SH>, Prod<W, SW>);
    }
}
