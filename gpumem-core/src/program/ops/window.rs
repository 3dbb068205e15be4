use crate::program::encoding::record;
use crate::shape::{Shape, product};
use alloc::vec::Vec;

record! {
    /// A window that slides over a map, as `[height, width]`, or over a volume, as `[depth, height, width]`. Element `k` of position
    /// `o` is at `o * stride + k * dilation - padding`. Elements outside of the map are padding. The number of positions decides how far
    /// padding extends beyond the end.
    #[derive(Copy)]
    pub struct Window<const N: usize = 2> {
        /// Size of the kernel.
        pub kernel_size: [u64; N],
        /// Elements between windows.
        pub stride: [u64; N],
        /// Elements of padding before the map.
        pub padding: [u64; N],
        /// Elements between the elements of the kernel.
        pub dilation: [u64; N],
    }
}

impl<const N: usize> Window<N> {
    /// Returns the elements of the kernel.
    pub fn area(&self) -> u64 {
        product(&self.kernel_size)
    }

    /// Returns the window over a volume of one plane if this one is over a map. A window over a volume is returned unchanged.
    pub fn of_volume(&self) -> Window<3> {
        Window {
            kernel_size: of_volume(self.kernel_size, 1),
            stride: of_volume(self.stride, 1),
            padding: of_volume(self.padding, 0),
            dilation: of_volume(self.dilation, 1),
        }
    }

    /// Returns the numbers of the type-level assertion for a window over `input` with `output` positions. For each axis they are kernel, stride,
    /// padding, dilation, and how far the last window reaches beyond equal padding at the end.
    pub fn proof(&self, input: [u64; N], output: [u64; N]) -> Vec<u64> {
        let axis = |axis: usize| {
            let span = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1;
            let reach = (output[axis] - 1) * self.stride[axis] + span;
            let beyond = reach.saturating_sub(input[axis] + 2 * self.padding[axis]);
            [self.kernel_size[axis], self.stride[axis], self.padding[axis], self.dilation[axis], beyond]
        };
        (0..N).flat_map(axis).collect()
    }
}

/// Returns depth, height and width. Axes that `size` lacks come first and are `first`.
pub fn of_volume<const N: usize>(size: [u64; N], first: u64) -> [u64; 3] {
    let mut all = [first; 3];
    all.iter_mut().rev().zip(size.iter().rev()).for_each(|(to, from)| *to = *from);
    all
}

/// Returns the shape of `channels` maps or volumes of this size.
pub(super) fn with_channels<const N: usize>(channels: u64, size: [u64; N]) -> Shape {
    let mut dims = Vec::from([channels]);
    dims.extend(size);
    Shape::new(&dims)
}

/// Returns the name of an operation, or of a type-level rule, for maps or for volumes.
pub(super) const fn name_of<const N: usize>([of_maps, of_volumes]: [&'static str; 2]) -> &'static str {
    if N == 3 { of_volumes } else { of_maps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_a_volume_of_one_plane() {
        let window = Window { kernel_size: [3, 5], stride: [2, 1], padding: [1, 2], dilation: [1, 3] };
        let volume = window.of_volume();
        assert_eq!((volume.kernel_size, volume.stride), ([1, 3, 5], [1, 2, 1]));
        assert_eq!((volume.padding, volume.dilation), ([0, 1, 2], [1, 1, 3]));
        assert_eq!(volume.of_volume(), volume);
        assert_eq!(of_volume([4, 6], 1), [1, 4, 6]);
        assert_eq!(of_volume([2, 4, 6], 1), [2, 4, 6]);
    }
}
