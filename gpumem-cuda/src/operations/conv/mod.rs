//! Convolutions and poolings.

pub(in crate::operations) mod average_pool;
pub(in crate::operations) mod average_pool3d;
pub(crate) mod convolution;
pub(in crate::operations) mod convolution3d;
pub(crate) mod max_pool;
pub(in crate::operations) mod max_pool3d;
pub(crate) mod normalized_convolution;

use crate::calls::Kernel;
use gpumem_core::program::ops::Window;

/// Adds the constants of `volumes.cuh` to a kernel.
fn volumes(kernel: Kernel, [input, output]: [[u64; 3]; 2], window: &Window<3>, adaptive: bool) -> Kernel {
    let constants = [
        (["DEPTH", "HEIGHT", "WIDTH"], input),
        (["OUT_DEPTH", "OUT_HEIGHT", "OUT_WIDTH"], output),
        (["KERNEL_D", "KERNEL_H", "KERNEL_W"], window.kernel_size),
        (["STRIDE_D", "STRIDE_H", "STRIDE_W"], window.stride),
        (["PADDING_D", "PADDING_H", "PADDING_W"], window.padding),
        (["DILATION_D", "DILATION_H", "DILATION_W"], window.dilation),
    ];
    let all = constants.into_iter().flat_map(|(names, sizes)| names.into_iter().zip(sizes));
    all.fold(kernel, |kernel, (name, size)| kernel.with(name, size)).with("ADAPTIVE", u8::from(adaptive))
}
