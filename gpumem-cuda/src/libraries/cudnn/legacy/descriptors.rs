//! Descriptors of a convolution for cuDNN.

use crate::calls::Convolution;
use crate::calls::product::Element;
use crate::libraries::cudnn::data_type;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{
    self, cudnnActivationMode_t as Activation, cudnnDataType_t as DataType, cudnnMathType_t as Math,
    cudnnStatus_t as Status,
};
use std::ffi::c_int;

owned!(
    /// Sizes and number format of a tensor.
    Tensor(sys::cudnnTensorDescriptor_t),
    result::destroy_tensor_descriptor
);
owned!(
    /// Sizes and number format of a weight.
    Filter(sys::cudnnFilterDescriptor_t),
    result::destroy_filter_descriptor
);
owned!(
    /// Padding, stride and dilation of windows, and the arithmetic of their sums.
    Windows(sys::cudnnConvolutionDescriptor_t),
    result::destroy_convolution_descriptor
);
owned!(
    /// The activation after the bias.
    Following(sys::cudnnActivationDescriptor_t),
    destroy_activation
);

/// Destroys an activation descriptor; cudarc has no such function.
///
/// # Safety
/// The descriptor was made by the library, and is destroyed once.
// SAFETY: `owned!` calls it, once for each value, with what the value was made of.
unsafe fn destroy_activation(descriptor: sys::cudnnActivationDescriptor_t) -> Result<(), CudnnError> {
    // SAFETY: by contract the library made the descriptor, and it is destroyed once.
    unsafe { sys::cudnnDestroyActivationDescriptor(descriptor) }.result()
}

/// Converts sizes to the library's integers; an error if one is too large. Convolutions with such sizes are not given to the library: see
/// `operations/convolution/library.rs`.
pub(super) fn counted<const N: usize>(sizes: [u64; N]) -> Result<[c_int; N], CudnnError> {
    let mut counted = [0; N];
    for (to, from) in counted.iter_mut().zip(sizes) {
        *to = c_int::try_from(from).map_err(|_| CudnnError(Status::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND))?;
    }
    Ok(counted)
}

/// Returns the arithmetic that algorithms are requested for.
pub(super) fn math(convolution: &Convolution) -> Math {
    match convolution.element {
        // The library's default is TensorFloat-32 on cards that have it.
        Element::F32 if convolution.tf32 => Math::CUDNN_DEFAULT_MATH,
        Element::F32 => Math::CUDNN_FMA_MATH,
        Element::Bf16 | Element::F16 => Math::CUDNN_TENSOR_OP_MATH,
    }
}

impl Tensor {
    pub(super) fn new(element: Element, sizes: [u64; 4]) -> Result<Tensor, CudnnError> {
        let (sizes, tensor) = (counted(sizes)?, Tensor(result::create_tensor_descriptor()?));
        let format = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
        // SAFETY: the descriptor was made above and is alive.
        unsafe { result::set_tensor4d_descriptor(tensor.0, format, data_type(element), sizes) }?;
        Ok(tensor)
    }
}

impl Filter {
    pub(super) fn new(element: Element, sizes: [u64; 4]) -> Result<Filter, CudnnError> {
        let (sizes, filter) = (counted(sizes)?, Filter(result::create_filter_descriptor()?));
        let format = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
        // SAFETY: the descriptor was made above and is alive.
        unsafe { result::set_filter4d_descriptor(filter.0, data_type(element), format, sizes) }?;
        Ok(filter)
    }
}

impl Windows {
    pub(super) fn new(convolution: &Convolution) -> Result<Windows, CudnnError> {
        let Convolution { padding, stride, dilation, groups, .. } = *convolution;
        let [padding, stride, dilation] = [counted(padding)?, counted(stride)?, counted(dilation)?];
        let [groups] = counted([groups])?;
        let windows = Windows(result::create_convolution_descriptor()?);
        let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let sums = DataType::CUDNN_DATA_FLOAT;
        let [y, x] = [0, 1];
        // SAFETY: the descriptor was made above and is alive.
        unsafe {
            result::set_convolution2d_descriptor(
                windows.0,
                padding[y],
                padding[x],
                stride[y],
                stride[x],
                dilation[y],
                dilation[x],
                mode,
                sums,
            )?;
            result::set_convolution_group_count(windows.0, groups)?;
        }
        windows.set_math(math(convolution))?;
        Ok(windows)
    }

    pub(super) fn set_math(&self, math: Math) -> Result<(), CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { result::set_convolution_math_type(self.0, math) }
    }
}

impl Following {
    pub(super) fn new(relu: bool) -> Result<Following, CudnnError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for the handle that is written.
        unsafe { sys::cudnnCreateActivationDescriptor(&mut raw) }.result()?;
        let following = Following(raw);
        let mode = if relu { Activation::CUDNN_ACTIVATION_RELU } else { Activation::CUDNN_ACTIVATION_IDENTITY };
        let nan = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        // SAFETY: the descriptor was made above and is alive.
        unsafe { sys::cudnnSetActivationDescriptor(following.0, mode, nan, 0.0) }.result()?;
        Ok(following)
    }
}

/// Descriptors of a convolution.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) x: Tensor,
    pub(super) w: Filter,
    pub(super) y: Tensor,
    pub(super) windows: Windows,
    /// The bias, and the activation after it; `None` without a bias.
    pub(super) bias: Option<(Tensor, Following)>,
}

impl Description {
    pub(super) fn new(convolution: &Convolution) -> Result<Description, CudnnError> {
        let Convolution { batch, in_channels, out_channels, groups, element, .. } = *convolution;
        let ([height, width], [y_height, y_width]) = (convolution.input, convolution.output);
        let [kernel_height, kernel_width] = convolution.kernel;
        let of_group = in_channels / groups.max(1);
        let bias = convolution.bias.map(|_| {
            let bias = Tensor::new(element, [1, out_channels, 1, 1])?;
            Ok::<_, CudnnError>((bias, Following::new(convolution.relu)?))
        });
        let description = Description {
            x: Tensor::new(element, [batch, in_channels, height, width])?,
            w: Filter::new(element, [out_channels, of_group, kernel_height, kernel_width])?,
            y: Tensor::new(element, [batch, out_channels, y_height, y_width])?,
            windows: Windows::new(convolution)?,
            bias: bias.transpose()?,
        };
        // The library must compute the output size that the program has.
        if description.output()? != counted([batch, out_channels, y_height, y_width])? {
            return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH));
        }
        Ok(description)
    }

    /// Returns the size of the output as the library computes it.
    pub(super) fn output(&self) -> Result<[c_int; 4], CudnnError> {
        let [mut n, mut c, mut h, mut w] = [0; 4];
        // SAFETY: the descriptors are alive; each number is a valid place for what is written.
        unsafe {
            sys::cudnnGetConvolution2dForwardOutputDim(
                self.windows.0,
                self.x.0,
                self.w.0,
                &mut n,
                &mut c,
                &mut h,
                &mut w,
            )
        }
        .result()?;
        Ok([n, c, h, w])
    }
}
