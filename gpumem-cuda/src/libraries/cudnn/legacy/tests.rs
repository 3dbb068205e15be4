use super::algorithms::Candidate;
use super::descriptors::{Filter, Following, Tensor, Windows, counted};
use super::*;
use crate::calls::convolution::Pass;
use crate::calls::convolution::tests::example;
use crate::calls::product::Element;
use crate::libraries::cudnn::tests::library_is_there;
use cudarc::cudnn::sys::{cudnnActivationMode_t as Activation, cudnnDataType_t as DataType, cudnnMathType_t as Math};
use std::ffi::c_int;

const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardData, Pass::BackwardFilter];

#[test]
fn sizes_that_the_library_cannot_count_are_refused() {
    assert_eq!(counted([1, i32::MAX as u64]), Ok([1, i32::MAX]));
    assert_eq!(counted([1 << 31]), Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)));
}

const FIRST: Algorithm = Algorithm::Forward(ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
const GEMM: Algorithm = Algorithm::Forward(ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);

#[test]
fn algorithms_keep_within_the_workspace_and_to_what_is_asked() {
    use sys::cudnnDeterminism_t::{CUDNN_DETERMINISTIC, CUDNN_NON_DETERMINISTIC};
    let good = Candidate {
        algorithm: FIRST,
        status: Status::CUDNN_STATUS_SUCCESS,
        memory: 4096,
        determinism: CUDNN_NON_DETERMINISTIC,
        math: Math::CUDNN_DEFAULT_MATH,
    };
    let plain = example(Pass::Forward);
    assert_eq!(good.usable(&plain, 4095), None);
    let failed = Candidate { status: Status::CUDNN_STATUS_NOT_SUPPORTED, ..good };
    assert_eq!(failed.usable(&plain, 4096), None);
    // The default may be TensorFloat-32, which this convolution does not allow.
    assert_eq!(good.usable(&plain, 4096), Some(Math::CUDNN_FMA_MATH));
    let tf32 = Convolution { tf32: true, ..plain };
    assert_eq!(good.usable(&tf32, 4096), Some(Math::CUDNN_DEFAULT_MATH));
    let converting = Candidate { math: Math::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, ..good };
    assert_eq!(converting.usable(&tf32, 4096), None);
    let half = Convolution { element: Element::F16, ..plain };
    let tensor_cores = Candidate { math: Math::CUDNN_TENSOR_OP_MATH, ..good };
    assert_eq!(tensor_cores.usable(&half, 4096), Some(Math::CUDNN_TENSOR_OP_MATH));
    assert_eq!(good.usable(&half, 4096), Some(Math::CUDNN_DEFAULT_MATH));
    let deterministic = Convolution { deterministic: true, ..plain };
    assert_eq!(good.usable(&deterministic, 4096), None);
    let same_bits = Candidate { determinism: CUDNN_DETERMINISTIC, ..good };
    assert_eq!(same_bits.usable(&deterministic, 4096), Some(Math::CUDNN_FMA_MATH));
}

#[test]
fn a_bias_is_fused_where_the_library_can() {
    let plain = example(Pass::Forward);
    let with = Convolution { bias: Some(5), ..plain };
    let relu = Convolution { relu: true, ..with };
    assert_eq!(tails(&plain, GEMM), [Tail::None]);
    assert_eq!(tails(&with, FIRST), [Tail::Apart]);
    assert_eq!(tails(&with, GEMM), [Tail::Fused, Tail::Apart]);
    assert_eq!(tails(&relu, FIRST), [Tail::Fused]);
}

#[test]
fn arithmetic_is_what_was_asked_for() {
    let plain = example(Pass::Forward);
    let of = |element, tf32| math(&Convolution { element, tf32, ..plain });
    assert_eq!(of(Element::F32, false), Math::CUDNN_FMA_MATH);
    assert_eq!(of(Element::F32, true), Math::CUDNN_DEFAULT_MATH);
    assert_eq!([Element::Bf16, Element::F16].map(|element| of(element, false)), [Math::CUDNN_TENSOR_OP_MATH; 2]);
}

impl Tensor {
    /// Returns element, sizes and strides.
    fn get(&self) -> (DataType, [c_int; 4], [c_int; 4]) {
        let (mut element, mut size, mut stride) = (DataType::CUDNN_DATA_INT8, [0; 4], [0; 4]);
        let ([n, c, h, w], [ns, cs, hs, ws]) = (&mut size, &mut stride);
        // SAFETY: the descriptor is alive; each argument is a valid place for the value that is written.
        unsafe { sys::cudnnGetTensor4dDescriptor(self.0, &mut element, n, c, h, w, ns, cs, hs, ws) }.result().unwrap();
        (element, size, stride)
    }
}

impl Filter {
    fn get(&self) -> (DataType, sys::cudnnTensorFormat_t, [c_int; 4]) {
        let mut element = DataType::CUDNN_DATA_INT8;
        let (mut format, mut size) = (sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC, [0; 4]);
        let [k, c, h, w] = &mut size;
        // SAFETY: as for a tensor.
        unsafe { sys::cudnnGetFilter4dDescriptor(self.0, &mut element, &mut format, k, c, h, w) }.result().unwrap();
        (element, format, size)
    }
}

impl Windows {
    /// Returns padding, stride and dilation, mode, type of the sums, groups and arithmetic.
    fn get(&self) -> ([c_int; 6], sys::cudnnConvolutionMode_t, DataType, c_int, Math) {
        let (mut numbers, mut sums, mut groups) = ([0; 6], DataType::CUDNN_DATA_INT8, 0);
        let (mut mode, mut math) = (sys::cudnnConvolutionMode_t::CUDNN_CONVOLUTION, Math::CUDNN_DEFAULT_MATH);
        let [py, px, sy, sx, dy, dx] = &mut numbers;
        // SAFETY: as for a tensor.
        unsafe {
            sys::cudnnGetConvolution2dDescriptor(self.0, py, px, sy, sx, dy, dx, &mut mode, &mut sums)
                .result()
                .unwrap();
            sys::cudnnGetConvolutionGroupCount(self.0, &mut groups).result().unwrap();
            sys::cudnnGetConvolutionMathType(self.0, &mut math).result().unwrap();
        }
        (numbers, mode, sums, groups, math)
    }
}

impl Following {
    fn get(&self) -> Activation {
        let (mut mode, mut limit) = (Activation::CUDNN_ACTIVATION_ELU, 0.0);
        let mut nan = sys::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
        // SAFETY: as for a tensor.
        unsafe { sys::cudnnGetActivationDescriptor(self.0, &mut mode, &mut nan, &mut limit) }.result().unwrap();
        mode
    }
}

/// Checks that the library keeps what is set, and computes the output size that the program has. It needs no card for that.
#[test]
#[ignore = "needs libcudnn: GPUMEM_CUDA=.../nvidia/cudnn/lib cargo test -p gpumem-cuda --lib -- --ignored cudnn"]
fn the_library_takes_every_description() {
    library_is_there();
    for (pass, relu) in PASSES.into_iter().flat_map(|pass| [(pass, false), (pass, true)]) {
        for (element, expected) in [
            (Element::F32, DataType::CUDNN_DATA_FLOAT),
            (Element::Bf16, DataType::CUDNN_DATA_BFLOAT16),
            (Element::F16, DataType::CUDNN_DATA_HALF),
        ] {
            let convolution = Convolution { element, relu, bias: Some(5), ..example(pass) };
            let it = Description::new(&convolution).unwrap();
            assert_eq!(it.x.get(), (expected, [5, 6, 11, 13], [6 * 11 * 13, 11 * 13, 13, 1]));
            assert_eq!(it.y.get(), (expected, [5, 8, 6, 13], [8 * 6 * 13, 6 * 13, 13, 1]));
            assert_eq!(it.w.get(), (expected, sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW, [8, 3, 3, 4]));
            let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
            let sums = DataType::CUDNN_DATA_FLOAT;
            assert_eq!(it.windows.get(), ([1, 3, 2, 1, 1, 2], mode, sums, 2, math(&convolution)));
            let (bias, following) = it.bias.as_ref().unwrap();
            assert_eq!(bias.get().1, [1, 8, 1, 1]);
            let mode = if relu { Activation::CUDNN_ACTIVATION_RELU } else { Activation::CUDNN_ACTIVATION_IDENTITY };
            assert_eq!(following.get(), mode);
            it.windows.set_math(Math::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION).unwrap();
            assert_eq!(it.windows.get().4, Math::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
            assert_eq!(it.output(), Ok([5, 8, 6, 13]));
        }
    }
}

#[test]
#[ignore = "needs libcudnn, as above"]
fn the_library_sees_the_output_as_the_program_does() {
    library_is_there();
    let error = |it: Convolution| Description::new(&it).unwrap_err();
    let wrong = Convolution { output: [5, 13], ..example(Pass::Forward) };
    assert_eq!(error(wrong), CudnnError(Status::CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH));
    // Checks sizes that are no multiple of anything against the program's.
    for (input, kernel, stride, padding, dilation) in [
        ([7, 5], [3, 3], [1, 1], [0, 0], [1, 1]),
        ([9, 8], [3, 2], [2, 1], [1, 2], [2, 3]),
        ([5, 7], [5, 5], [3, 3], [4, 4], [1, 1]),
        ([224, 224], [7, 7], [2, 2], [3, 3], [1, 1]),
    ] {
        let size = |axis: usize| -> u64 {
            let (input, kernel): ([u64; 2], [u64; 2]) = (input, kernel);
            (input[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1
        };
        let output = [size(0), size(1)];
        let it = Convolution { input, output, kernel, stride, padding, dilation, ..example(Pass::Forward) };
        Description::new(&it).unwrap();
    }
    // The library's own error is returned.
    let groups = Convolution { stride: [0, 1], ..example(Pass::Forward) };
    assert!(is_refused(error(groups)), "{:?}", error(groups));
}
