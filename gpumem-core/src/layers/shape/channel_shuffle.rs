use super::permute::permuted;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::{Shape, product};
use alloc::format;
use alloc::vec;

/// `ChannelShuffle(groups)`: interleaves the channels of groups, as between the grouped convolutions of ShuffleNet.
///
/// * Input `[C, ..]` with `C` a multiple of `groups`, output of the same shape: channel `i * groups + g` is `g * (C / groups) + i`
///   of the input.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.ChannelShuffle(groups)`.
#[derive(Clone, Debug)]
pub struct ChannelShuffle {
    groups: u64,
}

impl Layer for ChannelShuffle {
    const NAME: &'static str = "ChannelShuffle";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> ChannelShuffle {
        ChannelShuffle { groups: from.required("groups").positive() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let channels = shape.dims().first().copied().unwrap_or(1);
        if !channels.is_multiple_of(self.groups) {
            return Err(Mistake::of(
                "groups",
                format!(
                    "makes {} groups of {channels} channels, which is no multiple; use a divisor of {channels}",
                    self.groups
                ),
            ));
        }
        let inner = product(shape.dims().get(1..).unwrap_or_default());
        let parts = b.reshaped(x[0], Shape::new(&[self.groups, channels / self.groups, inner]));
        let moved = permuted(b, parts, vec![1, 0, 2])?;
        Ok(b.reshaped(moved, shape))
    }
}
