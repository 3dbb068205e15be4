//! The algorithms that cuDNN's heuristics list, and which of them may be used.

use super::descriptors::{Description, math};
use crate::calls::convolution::{Convolution, Pass};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{
    self, cudnnConvolutionBwdDataAlgo_t as DataAlgorithm, cudnnConvolutionBwdFilterAlgo_t as FilterAlgorithm,
    cudnnConvolutionFwdAlgo_t as ForwardAlgorithm, cudnnMathType_t as Math, cudnnStatus_t as Status,
};
use std::ffi::c_int;

/// The most algorithms that the library is asked for: more than there are, each with several kinds of arithmetic.
const ASKED: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Algorithm {
    Forward(ForwardAlgorithm),
    Data(DataAlgorithm),
    Filter(FilterAlgorithm),
}

/// The way in which a forward pass adds its bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tail {
    /// There is no bias.
    None,
    /// The convolution's pass adds it, and applies the activation.
    Fused,
    /// A separate pass adds it.
    Apart,
}

/// Properties of an algorithm that the library's heuristics report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) algorithm: Algorithm,
    pub(super) status: Status,
    pub(super) memory: usize,
    pub(super) determinism: sys::cudnnDeterminism_t,
    pub(super) math: Math,
}

impl Candidate {
    /// Returns the arithmetic that the algorithm is used with; `None` if it may not be used, or needs more than `bytes` bytes of scratch memory.
    pub(super) fn usable(&self, convolution: &Convolution, bytes: usize) -> Option<Math> {
        let is_deterministic = self.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC;
        // This arithmetic would round f32 to f16.
        let converts = self.math == Math::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
        let fits = self.status == Status::CUDNN_STATUS_SUCCESS && self.memory <= bytes;
        if !fits || converts || (convolution.deterministic && !is_deterministic) {
            return None;
        }
        // For whatever arithmetic the heuristics return, f32 must not be rounded to TensorFloat-32 unless the convolution allows it.
        let is_strict = math(convolution) == Math::CUDNN_FMA_MATH;
        Some(if is_strict { Math::CUDNN_FMA_MATH } else { self.math })
    }
}

/// The library's algorithm for a convolution, with its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::libraries::cudnn) struct AlgorithmChoice {
    pub(super) algorithm: Algorithm,
    pub(super) math: Math,
    pub(super) tail: Tail,
    /// Bytes of scratch memory that it needs.
    pub(super) memory: usize,
}

/// Asks one of the three heuristics for its candidates, the fastest first.
macro_rules! candidates {
    ($ask:path, $perf:ty, $kind:path, $($argument:expr),+) => {{
        // SAFETY: all zeros is a valid value: the fields are numbers, and enumerations that have a 0.
        let mut found = [unsafe { std::mem::zeroed::<$perf>() }; ASKED];
        let mut count = 0;
        // SAFETY: handle and descriptors are alive; there is space for as many results as are requested.
        unsafe { $ask($($argument),+, ASKED as c_int, &mut count, found.as_mut_ptr()) }?;
        let candidate = |perf: &$perf| Candidate {
            algorithm: $kind(perf.algo),
            status: perf.status,
            memory: perf.memory,
            determinism: perf.determinism,
            math: perf.mathType,
        };
        found.iter().take(usize::try_from(count).unwrap_or(0)).map(candidate).collect()
    }};
}

/// Returns the heuristics' candidates for a convolution, the fastest first.
pub(super) fn ranked(handle: sys::cudnnHandle_t, pass: Pass, it: &Description) -> Result<Vec<Candidate>, CudnnError> {
    let (x, w, y, windows) = (it.x.0, it.w.0, it.y.0, it.windows.0);
    Ok(match pass {
        Pass::Forward => candidates!(
            result::get_convolution_forward_algorithm,
            sys::cudnnConvolutionFwdAlgoPerf_t,
            Algorithm::Forward,
            handle,
            x,
            w,
            windows,
            y
        ),
        Pass::BackwardData => candidates!(
            result::get_convolution_backward_data_algorithm,
            sys::cudnnConvolutionBwdDataAlgoPerf_t,
            Algorithm::Data,
            handle,
            w,
            y,
            windows,
            x
        ),
        Pass::BackwardFilter => candidates!(
            result::get_convolution_backward_filter_algorithm,
            sys::cudnnConvolutionBwdFilterAlgoPerf_t,
            Algorithm::Filter,
            handle,
            x,
            y,
            windows,
            w
        ),
    })
}

/// Returns the bytes of scratch memory that an algorithm needs with the description's current arithmetic.
pub(super) fn workspace(
    handle: sys::cudnnHandle_t,
    algorithm: Algorithm,
    it: &Description,
) -> Result<usize, CudnnError> {
    let (x, w, y, windows) = (it.x.0, it.w.0, it.y.0, it.windows.0);
    // SAFETY: handle and descriptors are alive.
    unsafe {
        match algorithm {
            Algorithm::Forward(algorithm) => {
                result::get_convolution_forward_workspace_size(handle, x, w, windows, y, algorithm)
            }
            Algorithm::Data(algorithm) => {
                result::get_convolution_backward_data_workspace_size(handle, w, y, windows, x, algorithm)
            }
            Algorithm::Filter(algorithm) => {
                result::get_convolution_backward_filter_workspace_size(handle, x, y, windows, w, algorithm)
            }
        }
    }
}

/// Returns the ways to add a bias with an algorithm, the better first.
pub(super) fn tails(convolution: &Convolution, algorithm: Algorithm) -> &'static [Tail] {
    // Without a Relu this is the only algorithm that the library fuses a bias with.
    const FUSED: Algorithm = Algorithm::Forward(ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
    match convolution.bias {
        None => &[Tail::None],
        Some(_) if convolution.relu => &[Tail::Fused],
        Some(_) if algorithm == FUSED => &[Tail::Fused, Tail::Apart],
        Some(_) => &[Tail::Apart],
    }
}
