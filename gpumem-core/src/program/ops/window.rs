use crate::program::encoding::record;
use alloc::vec::Vec;

record! {
    /// A window that slides over a map, as `[height, width]`: element `k` of position `o` is at
    /// `o * stride + k * dilation - padding`. What lies outside the map is padding; how far that reaches beyond the map's end
    /// follows from the number of positions.
    #[derive(Copy)]
    pub struct Window {
        /// Size of the kernel.
        pub kernel_size: [u64; 2],
        /// Steps between windows.
        pub stride: [u64; 2],
        /// Elements of padding before the map.
        pub padding: [u64; 2],
        /// Steps between the elements of the kernel.
        pub dilation: [u64; 2],
    }
}

impl Window {
    /// Elements of the kernel.
    pub fn area(&self) -> u64 {
        crate::shape::product(&self.kernel_size)
    }

    /// The numbers of the type-level assertion for a window over `input` with `output` positions: kernel, stride, padding,
    /// dilation, and what the last window reads beyond as much padding at the end, for the height, then for the width.
    pub fn proof(&self, input: [u64; 2], output: [u64; 2]) -> Vec<u64> {
        let axis = |axis: usize| {
            let span = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1;
            let reach = (output[axis] - 1) * self.stride[axis] + span;
            let beyond = reach.saturating_sub(input[axis] + 2 * self.padding[axis]);
            [self.kernel_size[axis], self.stride[axis], self.padding[axis], self.dilation[axis], beyond]
        };
        [axis(0), axis(1)].concat()
    }
}
