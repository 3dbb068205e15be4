use crate::number::Role;
use crate::program::cache_entry::CacheEntry;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Causal convolution over some time steps of a signal and those before. It is the decoding form of a
    /// [`Convolution`](super::Convolution) whose padding is as wide as its window reaches back.
    ///
    /// * Inputs: x `[in_channels, 1, C]`, a weight `[out_channels, in_channels / groups, 1, kernel_size]` and, with `bias`, a bias
    ///   `[out_channels]`.
    /// * Caches as many earlier columns of x as a window [reaches](CachedConvolution::reach) back, `[in_channels, reach]` of every sample.
    ///   Time step `t` is in column `t % reach`. The state says how many time steps came before, and how many of this call's belong to the
    ///   sequence and are cached. Before the first time step, x is 0.
    /// * It runs in inference only, so it has no gradient.
    pub struct CachedConvolution {
        /// Channels of x.
        pub in_channels: u64,
        /// Channels of y.
        pub out_channels: u64,
        /// Columns of the kernel.
        pub kernel_size: u64,
        /// Time steps between columns of the kernel.
        pub dilation: u64,
        /// Groups of the channels. Each group of y sees its own group of x only.
        pub groups: u64,
        /// True if a bias is added to each output channel.
        pub bias: bool,
        /// Time steps of this call.
        pub steps: u64,
    }
}

impl CachedConvolution {
    /// Returns how many time steps a window reaches back.
    pub fn reach(&self) -> u64 {
        self.kernel_size.saturating_sub(1).saturating_mul(self.dilation)
    }

    /// Returns the dimensions of the weight.
    pub fn weight(&self) -> Shape {
        let each = self.in_channels.checked_div(self.groups).unwrap_or(0);
        Shape::new(&[self.out_channels, each, 1, self.kernel_size])
    }

    /// True if a window reaches back, and groups have equal sizes.
    pub fn is_sound(&self) -> bool {
        let has_groups = |channels: u64| channels > 0 && self.groups > 0 && channels.is_multiple_of(self.groups);
        let is_whole = has_groups(self.in_channels) && has_groups(self.out_channels);
        is_whole && self.steps > 0 && self.reach() > 0 && self.reach() < u64::MAX
    }
}

impl Rule for CachedConvolution {
    fn output(&self) -> Shape {
        Shape::new(&[self.out_channels, 1, self.steps])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn caches(&self) -> Vec<CacheEntry> {
        vec![CacheEntry::state("cached_columns", &[self.in_channels, self.reach()], Role::Activation)]
    }

    fn is_positioned(&self) -> bool {
        true
    }

    fn macs(&self) -> u64 {
        let each = self.in_channels.checked_div(self.groups).unwrap_or(0);
        product(&[self.out_channels, self.steps, each, self.kernel_size])
    }

    /// Returns none: the operation that it decodes for has the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn numbers_that_do_not_fit_are_not_sound() {
        let op = CachedConvolution {
            in_channels: 6,
            out_channels: 4,
            kernel_size: 3,
            dilation: 2,
            groups: 2,
            bias: true,
            steps: 5,
        };
        assert!(op.is_sound());
        assert_eq!((op.reach(), op.weight(), op.macs()), (4, Shape::new(&[4, 3, 1, 3]), 4 * 5 * 3 * 3));
        assert_eq!(op.caches()[0].shape, Shape::new(&[6, 4]));
        for changed in [
            CachedConvolution { in_channels: 0, ..op.clone() },
            CachedConvolution { in_channels: 5, ..op.clone() },
            CachedConvolution { out_channels: 3, ..op.clone() },
            CachedConvolution { kernel_size: 0, ..op.clone() },
            CachedConvolution { kernel_size: 1, ..op.clone() },
            CachedConvolution { kernel_size: u64::MAX, ..op.clone() },
            CachedConvolution { dilation: 0, ..op.clone() },
            CachedConvolution { groups: 0, ..op.clone() },
            CachedConvolution { steps: 0, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
