//! Sliding windows over images and volumes: the coordinates of a window's elements, and the positions whose elements are in the image.

use gpumem_core::error::Error;
use gpumem_core::program::ops;
use std::ops::Range;

/// Largest number that any attribute of a window may have, so that coordinates fit in `i64`.
const LIMIT: u64 = 1 << 31;

/// A sliding window over an image. Along each axis, element `k` of position `o` is at `o * stride + k * dilation - padding`. The last two axes
/// are the height and the width.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Window<const N: usize = 2> {
    pub(in crate::kernels) image: [usize; N],
    pub(in crate::kernels) positions: [usize; N],
    pub(in crate::kernels) kernel: [usize; N],
    pub(in crate::kernels) stride: [usize; N],
    pub(in crate::kernels) padding: [usize; N],
    pub(in crate::kernels) dilation: [usize; N],
}

impl<const N: usize> Window<N> {
    /// Returns a window over an image, with its number of positions along each axis.
    ///
    /// # Errors
    /// Returns an error for a kernel or stride of 0, or for numbers of 2^31 and more.
    pub(in crate::kernels) fn new(
        [image, positions]: [[u64; N]; 2],
        window: &ops::Window<N>,
    ) -> Result<Window<N>, Error> {
        let ops::Window { kernel_size: kernel, stride, padding, dilation } = *window;
        let all = [image, positions, kernel, stride, padding, dilation];
        let zero = kernel.contains(&0) || stride.contains(&0);
        if zero || all.as_flattened().iter().any(|&number| number >= LIMIT) {
            return Err(Error::Damaged("a layer's window has no size, or one that is too large"));
        }
        let [image, positions, kernel, stride, padding, dilation] =
            all.map(|sizes| sizes.map(|number| number as usize));
        Ok(Window { image, positions, kernel, stride, padding, dilation })
    }

    /// Returns the elements of one channel of the image.
    pub(in crate::kernels) fn image_area(&self) -> usize {
        self.image.iter().product()
    }

    /// Returns the elements of one channel of the positions.
    pub(in crate::kernels) fn positions_area(&self) -> usize {
        self.positions.iter().product()
    }

    /// Returns the elements of the kernel.
    pub(in crate::kernels) fn kernel_area(&self) -> usize {
        self.kernel.iter().product()
    }

    /// True if each position covers exactly its own pixel.
    pub(in crate::kernels) fn is_pointwise(&self) -> bool {
        self.kernel == [1; N] && self.stride == [1; N] && self.padding == [0; N] && self.image == self.positions
    }

    /// Returns the coordinate of element `k` of position `o`. `None` if it is outside the image.
    pub(in crate::kernels) fn coordinate(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        let coordinate = (o * self.stride[axis] + k * self.dilation[axis]).checked_sub(self.padding[axis])?;
        (coordinate < self.image[axis]).then_some(coordinate)
    }

    /// Returns the positions whose element `k` is inside the image, and the coordinate of the first of them.
    pub(in crate::kernels) fn inside(&self, axis: usize, k: usize) -> (Range<usize>, usize) {
        let (stride, shift, padding) = (self.stride[axis], k * self.dilation[axis], self.padding[axis]);
        let low = padding.saturating_sub(shift).div_ceil(stride);
        let high = (self.image[axis] + padding).saturating_sub(shift).div_ceil(stride).min(self.positions[axis]);
        if low >= high { (0..0, 0) } else { (low..high, low * stride + shift - padding) }
    }

    /// Returns the coordinates that the window at position `o` covers, without those in the padding. It assumes a dilation of 1.
    pub(in crate::kernels) fn covered(&self, axis: usize, o: usize) -> Range<usize> {
        let start = o * self.stride[axis];
        let clip = |x: usize| x.saturating_sub(self.padding[axis]).min(self.image[axis]);
        clip(start)..clip(start + self.kernel[axis])
    }
}
