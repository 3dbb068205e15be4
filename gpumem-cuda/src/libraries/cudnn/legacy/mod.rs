//! Convolutions in f32: the library lists its algorithms for a convolution and runs the chosen one.

mod algorithms;
mod descriptors;

use super::{Library, Places, failure, is_refused, is_unsupported};
use crate::calls::Convolution;
use crate::libraries::autotune::Race;
use crate::libraries::plan_cache::Address;
pub(super) use algorithms::AlgorithmChoice;
use algorithms::{Algorithm, Tail, ranked, tails, workspace};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{self, cudnnConvolutionFwdAlgo_t as ForwardAlgorithm, cudnnStatus_t as Status};
use descriptors::{Description, math};
use gpumem_core::error::Error;
use std::ffi::c_void;

/// A convolution with its addresses and its algorithm.
#[derive(Debug)]
pub(crate) struct Plan {
    // Fields are dropped in this order, so that the handle is last.
    description: Description,
    choice: AlgorithmChoice,
    places: Places,
    /// The factor of the result's previous contents.
    beta: f32,
    name: String,
    library: Library,
}

// SAFETY: descriptors are the library's memory that belongs to this plan and is not changed after `new`; the addresses are only numbers to the
// host.
unsafe impl Send for Plan {}
// SAFETY: as above; a launch uses the handle only on behalf of the one owner that has borrowed the session mutably.
unsafe impl Sync for Plan {}

impl Plan {
    /// Returns a plan; `None` if the library has no algorithm for the convolution.
    pub(super) fn new(
        library: &Library,
        convolution: &Convolution,
        address: &Address<'_>,
    ) -> Result<Option<Plan>, Error> {
        let places = Places::of(convolution, address)?;
        let known = library.choices().get(&convolution.of_any()).copied();
        if known == Some(None) {
            return Ok(None);
        }
        let name = convolution.to_string();
        let description = match Description::new(convolution) {
            Ok(description) => description,
            Err(error) if is_unsupported(error) => return Ok(None),
            Err(error) => return Err(failure(format!("describing {name}"))(error)),
        };
        // A placeholder: each trial replaces it.
        let nothing = AlgorithmChoice {
            algorithm: Algorithm::Forward(ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM),
            math: math(convolution),
            tail: Tail::None,
            memory: 0,
        };
        let beta = if convolution.accumulate { 1.0 } else { 0.0 };
        let mut plan = Plan { description, choice: nothing, places, beta, name, library: library.clone() };
        let choice = match known.flatten() {
            Some(choice) => Some(choice),
            None => {
                let choice = plan.choose(convolution)?;
                library.choices().insert(convolution.of_any(), choice);
                choice
            }
        };
        let Some(choice) = choice else { return Ok(None) };
        plan.take(choice).map_err(failure(format!("describing {}", plan.name)))?;
        Ok(Some(plan))
    }

    fn take(&mut self, choice: AlgorithmChoice) -> Result<(), CudnnError> {
        self.choice = choice;
        self.description.windows.set_math(choice.math)
    }

    /// Returns the first algorithm in the order of the library's heuristics, or with autotuning the fastest. It must keep within the workspace and
    /// not be refused when it is tried. Trials leave arbitrary values in the tensors. `None` if there is no such algorithm.
    fn choose(&mut self, convolution: &Convolution) -> Result<Option<AlgorithmChoice>, Error> {
        let failure = |name: &str| failure(format!("choosing an algorithm for {name}"));
        let handle = self.library.0.handle;
        let ranked = match ranked(handle, convolution.pass, &self.description) {
            Ok(ranked) => ranked,
            Err(error) if is_unsupported(error) => {
                self.library.note(error);
                return Ok(None);
            }
            Err(error) => return Err(failure(&self.name)(error)),
        };
        let bytes = self.places.workspace.1;
        let stream = self.library.0.stream.clone();
        let mut race = Race::new(&stream, self.library.0.autotune && !convolution.deterministic);
        for candidate in ranked {
            let Some(math) = candidate.usable(convolution, bytes) else { continue };
            let algorithm = candidate.algorithm;
            for &tail in tails(convolution, algorithm) {
                let choice = AlgorithmChoice { algorithm, math, tail, memory: 0 };
                match self.attempt(choice) {
                    Ok(Some(choice)) => {
                        // A kernel that fails has broken the context, so no other algorithm can be tried.
                        self.library.wait(&self.name)?;
                        if let Some(choice) = race.enter(choice, |_| self.launch())? {
                            return Ok(Some(choice));
                        }
                        // The remaining choices only add the bias in a slower way.
                        break;
                    }
                    Ok(None) => {}
                    Err(error) if is_refused(error) => self.library.note(error),
                    Err(error) => return Err(failure(&self.name)(error)),
                }
            }
        }
        Ok(race.winner())
    }

    /// Runs a choice once, and records the scratch memory that the library says it needs; `None` if that is more than the workspace.
    fn attempt(&mut self, choice: AlgorithmChoice) -> Result<Option<AlgorithmChoice>, CudnnError> {
        self.take(choice)?;
        let memory = workspace(self.library.0.handle, choice.algorithm, &self.description)?;
        if memory > self.places.workspace.1 {
            return Ok(None);
        }
        self.choice.memory = memory;
        self.run()?;
        Ok(Some(self.choice))
    }

    /// Returns the algorithm and its settings.
    pub(super) fn choice(&self) -> crate::profile::Choice {
        let AlgorithmChoice { algorithm, math, tail, memory } = self.choice;
        let algorithm = match algorithm {
            Algorithm::Forward(algorithm) => format!("{algorithm:?}"),
            Algorithm::Data(algorithm) => format!("{algorithm:?}"),
            Algorithm::Filter(algorithm) => format!("{algorithm:?}"),
        };
        crate::profile::Choice {
            library: "cuDNN",
            algorithm: format!("{algorithm}, {math:?}"),
            settings: vec![("bias_apart".into(), i64::from(tail == Tail::Apart))],
            workspace: memory as u64,
        }
    }

    /// Enqueues the convolution on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the convolution and the library's error.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.run().map_err(|error| failure(self.name.clone())(error))
    }

    fn run(&self) -> Result<(), CudnnError> {
        let Plan { description, choice, library, .. } = self;
        let (handle, alpha, beta) = (library.0.handle, 1f32, self.beta);
        let (one, beta): (*const c_void, *const c_void) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let (x_layout, w_layout, y_layout) = (description.x.0, description.w.0, description.y.0);
        let windows = description.windows.0;
        let Places { x, w, y, .. } = self.places;
        let (x, w, y) = (x as *mut c_void, w as *mut c_void, y as *mut c_void);
        let memory = choice.memory;
        let scratch = if memory == 0 { std::ptr::null_mut() } else { self.places.workspace.0 as *mut c_void };
        // SAFETY: handle and descriptors live as long as this plan. The addresses are of tensors in the arena, which outlives every plan, each of
        // the length that its descriptor says, because `Session` binds a convolution to the tensors of the program that it was made from; the
        // workspace has the bytes that the algorithm needs. Alpha and beta are f32 on the host, as the library requires for all of these formats,
        // and are read before the call returns.
        unsafe {
            match choice.algorithm {
                Algorithm::Forward(algorithm) if choice.tail == Tail::Fused => self.fused(algorithm, one, scratch),
                Algorithm::Forward(algorithm) => {
                    result::convolution_forward(
                        handle, one, x_layout, x, w_layout, w, windows, algorithm, scratch, memory, beta, y_layout, y,
                    )?;
                    if choice.tail == Tail::Apart { self.add_bias(one) } else { Ok(()) }
                }
                Algorithm::Data(algorithm) => result::convolution_backward_data(
                    handle, one, w_layout, w, y_layout, y, windows, algorithm, scratch, memory, beta, x_layout, x,
                ),
                Algorithm::Filter(algorithm) => result::convolution_backward_filter(
                    handle, one, x_layout, x, y_layout, y, windows, algorithm, scratch, memory, beta, w_layout, w,
                ),
            }
        }
    }

    /// Enqueues the forward pass with its bias and activation.
    ///
    /// # Safety
    /// As in `run`, which passes `one` and the workspace.
    unsafe fn fused(
        &self,
        algorithm: ForwardAlgorithm,
        one: *const c_void,
        scratch: *mut c_void,
    ) -> Result<(), CudnnError> {
        let Description { x, w, y, windows, bias } = &self.description;
        let Some((bias, following)) = bias else { return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)) };
        let Places { x: x_at, w: w_at, y: y_at, bias: bias_at, .. } = self.places;
        let none = 0f32;
        // SAFETY: as in `run`. The addend is the result's previous contents times zero, because the library requires a tensor for it.
        unsafe {
            result::convolution_bias_activation_forward(
                self.library.0.handle,
                one,
                x.0,
                x_at as *const c_void,
                w.0,
                w_at as *const c_void,
                windows.0,
                algorithm,
                scratch,
                self.choice.memory,
                (&raw const none).cast(),
                y.0,
                y_at as *const c_void,
                bias.0,
                bias_at as *const c_void,
                following.0,
                y.0,
                y_at as *mut c_void,
            )
        }
    }

    /// Adds the bias to the output.
    ///
    /// # Safety
    /// As in `run`, which passes `one`.
    unsafe fn add_bias(&self, one: *const c_void) -> Result<(), CudnnError> {
        let Description { y, bias, .. } = &self.description;
        let Some((bias, _)) = bias else { return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)) };
        let (from, to) = (self.places.bias as *const c_void, self.places.y as *mut c_void);
        // SAFETY: as in `run`.
        unsafe { sys::cudnnAddTensor(self.library.0.handle, one, bias.0, from, one, y.0, to) }.result()
    }
}

#[cfg(test)]
mod tests;
