//! Matrix products by cuBLASLt. Descriptors and algorithms are made once, when a network is loaded; a step only enqueues them.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else. When a network is loaded,
//! one product of each kind is run on the network's own memory, which holds nothing yet, and waited for. The library loads a kernel when it is
//! first launched, which it could not do while a graph is captured.

mod parts;

use super::autotune::{CANDIDATES, Race};
use super::plan_cache::{Address, Planned};
use crate::calls::Argument;
use crate::calls::product::{Batch, Element, Epilogue, Product};
use crate::context::bind;
use crate::profile::Choice;
use crate::warning::notice;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtEpilogue_t as LtEpilogue,
    cublasLtMatmulAlgoConfigAttributes_t as Config, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as LayoutAttribute,
    cublasLtReductionScheme_t as Reduction, cublasStatus_t as Status, cudaDataType,
};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use parts::{ProductPart, parts};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// Alignment of the start of a workspace, in bytes, and the largest alignment that an algorithm asks for.
const ALIGNMENT: u64 = 256;

/// Returns a conversion of the library's failure to an error that names the failed call, `what`.
fn failure(what: String) -> impl Fn(CublasError) -> Error {
    move |error| Error::failed_because("CUDA", format!("cuBLASLt: {what}: {:?}", error.0), error)
}

/// True if the library does not support a request, for this card or at all; false if something went wrong.
fn is_unsupported(error: CublasError) -> bool {
    matches!(error.0, Status::CUBLAS_STATUS_ARCH_MISMATCH | Status::CUBLAS_STATUS_NOT_SUPPORTED)
}

fn refused_card(error: CublasError) {
    notice(&format!(
        "cuBLASLt does not support this card ({:?}): matrix products run on gpumem's own kernels; an older version of the \
         library may support it",
        error.0
    ));
}

/// The library, ready for one network.
#[derive(Clone, Debug)]
pub(crate) struct Library(Arc<Handle>);

/// The key by which an algorithm is chosen: a product of any tensors, and the alignment of all addresses.
type Kind = (Product, [u32; 6]);

#[derive(Debug)]
struct Handle {
    handle: sys::cublasLtHandle_t,
    /// The algorithm of each kind of product; `None` if there is none for it.
    chosen: Mutex<BTreeMap<Kind, Option<Algorithm>>>,
    /// The stream on which the network's work is enqueued.
    stream: Arc<CudaStream>,
    /// True if algorithms are timed.
    autotune: bool,
    /// Guards the notice that the library does not support the card, which is printed once.
    told: Once,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if bind(self.stream.context()).is_ok() {
            // SAFETY: made in `Library::new`; every plan that uses it owns a reference to it, so all plans are gone. A failure to free it leaves
            // nothing to do.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

// SAFETY: a handle may be used by several threads at a time, as the library's documentation says.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Library {
    /// Prepares the library, which [`preflight`](super::preflight) has found, for a network on `stream`. With `autotune`, algorithms are timed.
    /// Returns `None` if the library does not support the card, and says so on stderr.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not start.
    pub(crate) fn new(stream: &Arc<CudaStream>, autotune: bool) -> Result<Option<Library>, Error> {
        bind(stream.context())?;
        let (chosen, stream, told) = (Mutex::default(), stream.clone(), Once::new());
        Ok(handle()?.map(|handle| Library(Arc::new(Handle { handle, chosen, stream, autotune, told }))))
    }

    fn chosen(&self) -> MutexGuard<'_, BTreeMap<Kind, Option<Algorithm>>> {
        self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a notice if the library does not support the card.
    fn note(&self, error: CublasError) {
        if error.0 == Status::CUBLAS_STATUS_ARCH_MISMATCH {
            self.0.told.call_once(|| refused_card(error));
        }
    }
}

/// Returns a handle for the current context; `None` if the library does not support its card. The library must have been found.
fn handle() -> Result<Option<sys::cublasLtHandle_t>, Error> {
    match result::create_handle() {
        Ok(handle) => Ok(Some(handle)),
        Err(error) if is_unsupported(error) => {
            refused_card(error);
            Ok(None)
        }
        Err(error) => Err(failure("making a handle".into())(error)),
    }
}

owned!(
    /// A product without its sizes: operations, epilogue and compute type.
    Descriptor(sys::cublasLtMatmulDesc_t),
    result::destroy_matmul_desc
);
owned!(
    /// Size, leading dimension and element of a matrix.
    Layout(sys::cublasLtMatrixLayout_t),
    result::destroy_matrix_layout
);
owned!(
    /// Limits on the algorithms that may be chosen.
    Wishes(sys::cublasLtMatmulPreference_t),
    result::destroy_matmul_pref
);

/// Addresses of the tensors of a product; 0 for those that it lacks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    /// A, B, C and D. Without an addend, C is D, which is then not read.
    matrices: [CUdeviceptr; 4],
    /// The epilogue's vector.
    vector: CUdeviceptr,
    /// The epilogue's matrix.
    auxiliary: CUdeviceptr,
    /// The workspace and its bytes.
    workspace: (CUdeviceptr, usize),
}

impl Places {
    fn of(part: &ProductPart, address: &Address<'_>) -> Result<Places, Error> {
        let Product { a, b, c, d, element, epilogue, workspace, .. } = &part.product;
        let at = |tensor: Option<Argument>| tensor.map_or(Ok(0), address);
        let start = at(workspace.map(|workspace| workspace.tensor))?;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("the workspace of a product does not begin at a multiple of 256 bytes"));
        }
        let size = usize::try_from(workspace.map_or(0, |workspace| workspace.bytes));
        let size = size.map_err(|_| Error::Damaged("the workspace of a product is larger than any memory"))?;
        let from = |tensor: Argument, elements: u64| Ok::<_, Error>(address(tensor)? + elements * element.bytes());
        let d_at = |tensor: Argument| from(tensor, part.d);
        Ok(Places {
            matrices: [from(a.tensor, part.a)?, from(b.tensor, part.b)?, d_at(c.unwrap_or(*d))?, d_at(*d)?],
            vector: epilogue.vector().map_or(Ok(0), |vector| from(vector, part.vector))?,
            auxiliary: at(epilogue.auxiliary().map(|matrix| matrix.tensor))?,
            workspace: (start, size),
        })
    }
}

fn element(element: Element) -> cudaDataType {
    match element {
        Element::F32 => cudaDataType::CUDA_R_32F,
        Element::Bf16 => cudaDataType::CUDA_R_16BF,
        Element::F16 => cudaDataType::CUDA_R_16F,
    }
}

fn epilogue(epilogue: &Epilogue) -> LtEpilogue {
    match epilogue {
        Epilogue::None => LtEpilogue::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Bias(_) => LtEpilogue::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::Relu { bias: None } => LtEpilogue::CUBLASLT_EPILOGUE_RELU,
        Epilogue::Relu { bias: Some(_) } => LtEpilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
        Epilogue::Gelu { bias: None, kept: None } => LtEpilogue::CUBLASLT_EPILOGUE_GELU,
        Epilogue::Gelu { bias: Some(_), kept: None } => LtEpilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
        Epilogue::Gelu { bias: None, kept: Some(_) } => LtEpilogue::CUBLASLT_EPILOGUE_GELU_AUX,
        Epilogue::Gelu { bias: Some(_), kept: Some(_) } => LtEpilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        Epilogue::GeluGradient { bias_gradient: None, .. } => LtEpilogue::CUBLASLT_EPILOGUE_DGELU,
        Epilogue::GeluGradient { bias_gradient: Some(_), .. } => LtEpilogue::CUBLASLT_EPILOGUE_DGELU_BGRAD,
        Epilogue::BiasGradientA(_) => LtEpilogue::CUBLASLT_EPILOGUE_BGRADA,
        Epilogue::BiasGradientB(_) => LtEpilogue::CUBLASLT_EPILOGUE_BGRADB,
    }
}

impl Descriptor {
    /// Returns a descriptor. It includes the addresses of the epilogue's tensors, because the choice of an algorithm depends on their alignment.
    fn new(product: &Product, places: &Places) -> Result<Descriptor, CublasError> {
        let compute = if product.tf32 { Compute::CUBLAS_COMPUTE_32F_FAST_TF32 } else { Compute::CUBLAS_COMPUTE_32F };
        let descriptor = Descriptor(result::create_matmul_desc(compute, cudaDataType::CUDA_R_32F)?);
        // CUBLAS_OP_N and CUBLAS_OP_T.
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(product.a.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(product.b.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(&product.epilogue) as u32)?;
        if product.epilogue.vector().is_some() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, places.vector)?;
        }
        if let Some(matrix) = product.epilogue.auxiliary() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, places.auxiliary)?;
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, matrix.ld as i64)?;
        }
        Ok(descriptor)
    }

    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), CublasError> {
        // SAFETY: the descriptor is alive; the value is read during the call, with its own number of bytes.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

impl Layout {
    fn new(kind: Element, rows: u64, columns: u64, ld: u64) -> Result<Layout, CublasError> {
        // No arena holds more than `i64::MAX` elements.
        result::create_matrix_layout(element(kind), rows, columns, ld as i64).map(Layout)
    }

    fn set<T: Copy>(&self, attribute: LayoutAttribute, value: T) -> Result<(), CublasError> {
        // SAFETY: as for `Descriptor::set`.
        unsafe { result::set_matrix_layout_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }

    /// Returns the layouts of A, of B, and of C and D.
    fn of(product: &Product) -> Result<[Layout; 3], CublasError> {
        let Product { m, n, k, a, b, ldd, element, .. } = *product;
        let stored = |rows, columns, transposed| if transposed { (columns, rows) } else { (rows, columns) };
        let ((a_rows, a_columns), (b_rows, b_columns)) = (stored(m, k, a.transposed), stored(k, n, b.transposed));
        let layouts = [
            Layout::new(element, a_rows, a_columns, a.ld)?,
            Layout::new(element, b_rows, b_columns, b.ld)?,
            Layout::new(element, m, n, ldd)?,
        ];
        if let Some(Batch { count, a, b, d }) = product.batch {
            for (layout, distance) in layouts.iter().zip([a, b, d]) {
                layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count as i32)?;
                layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, distance as i64)?;
            }
        }
        Ok(layouts)
    }
}

/// Returns the allowed ways to add up sums that are computed in parts, as a mask.
fn reductions(product: &Product) -> u32 {
    let all = [
        // Adds each part in the result itself.
        (Reduction::CUBLASLT_REDUCTION_SCHEME_INPLACE, !product.deterministic),
        (Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, true),
        (Reduction::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, true),
    ];
    // The first and the last round every part to the element: f32 accumulation rules them out for 16 bits.
    let keeps_f32 =
        |scheme| product.element == Element::F32 || scheme == Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    all.into_iter().filter(|&(scheme, may)| may && keeps_f32(scheme)).fold(0, |mask, (scheme, _)| mask | scheme as u32)
}

impl Wishes {
    /// Returns the limits for `product`, with `matrices` as in [`Places`].
    fn new(product: &Product, matrices: [CUdeviceptr; 4]) -> Result<Wishes, CublasError> {
        let wishes = Wishes(result::create_matmul_pref()?);
        let bytes = product.workspace.map_or(0, |workspace| workspace.bytes);
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes)?;
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions(product))?;
        let minimum = [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        for (attribute, address) in minimum.into_iter().zip(matrices) {
            wishes.set(attribute, alignment(address))?;
        }
        Ok(wishes)
    }

    fn set<T: Copy>(&self, attribute: Preference, value: T) -> Result<(), CublasError> {
        // SAFETY: as for `Descriptor::set`.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

/// Returns the largest power of two, up to [`ALIGNMENT`], that divides an address.
fn alignment(address: CUdeviceptr) -> u32 {
    1 << address.trailing_zeros().min(ALIGNMENT.trailing_zeros())
}

/// A product that is ready to run: one call, or the calls of all its parts in order.
#[derive(Debug)]
pub(crate) struct Plan {
    first: Matmul,
    rest: Vec<Matmul>,
}

impl Plan {
    /// Returns a plan; `None` if the library has no algorithm for the product.
    fn new(library: &Library, product: &Product, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let matmul = |part: &ProductPart| Matmul::new(library, part, address);
        if let [first, rest @ ..] = &parts(product)[..]
            && !rest.is_empty()
            && let Some(first) = matmul(first)?
            && let Some(rest) = rest.iter().map(matmul).collect::<Result<Option<Vec<_>>, Error>>()?
        {
            return Ok(Some(Plan { first, rest }));
        }
        Ok(matmul(&ProductPart::from(*product))?.map(|first| Plan { first, rest: Vec::new() }))
    }

    /// Returns the algorithm of the product, or of its largest part.
    pub(crate) fn choice(&self) -> Choice {
        fn larger<'m>(one: &'m Matmul, other: &'m Matmul) -> &'m Matmul {
            if other.terms > one.terms { other } else { one }
        }
        self.rest.iter().fold(&self.first, larger).choice()
    }

    /// Enqueues the product.
    ///
    /// # Errors
    /// [`Error::Device`] with the product and what the library said.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        self.first.launch(stream)?;
        self.rest.iter().try_for_each(|part| part.launch(stream))
    }
}

/// An algorithm of the library for a product.
#[derive(Clone, Copy, Debug)]
struct Algorithm {
    it: sys::cublasLtMatmulAlgo_t,
    /// Bytes of scratch memory that it uses, at most those of the workspace.
    takes: usize,
}

/// A product, or a part of one, with its addresses and its algorithm.
#[derive(Debug)]
struct Matmul {
    // Fields are dropped in this order, so that the handle is last.
    descriptor: Descriptor,
    layouts: [Layout; 3],
    algorithm: Algorithm,
    /// As in [`Places`].
    matrices: [CUdeviceptr; 4],
    workspace: (CUdeviceptr, usize),
    /// The factor of C.
    beta: f32,
    /// The number of multiplications: terms of all sums.
    terms: u64,
    name: String,
    library: Library,
}

// SAFETY: descriptors and layouts are the library's memory that belongs to this plan and is not changed after `new`; the addresses are only numbers
// to the host.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

impl Matmul {
    /// Returns a product that is ready to run; `None` if the library has no algorithm for it.
    fn new(library: &Library, part: &ProductPart, address: &Address<'_>) -> Result<Option<Matmul>, Error> {
        let (product, places) = (&part.product, Places::of(part, address)?);
        let Places { matrices, workspace, .. } = places;
        let name = product.to_string();
        let described = || -> Result<_, CublasError> {
            Ok((Descriptor::new(product, &places)?, Layout::of(product)?, Wishes::new(product, matrices)?))
        };
        let (descriptor, layouts, wishes) = described().map_err(failure(format!("describing {name}")))?;
        let beta = if product.c.is_some() { 1.0 } else { 0.0 };
        let (terms, library) = (product.terms(), library.clone());
        let [a, b, c, d] = matrices;
        let kind = (product.of_any(), [a, b, c, d, places.vector, places.auxiliary].map(alignment));
        let known = library.chosen().get(&kind).copied();
        // With autotuning the choice may differ from run to run, and the bits with it.
        let autotune = library.0.autotune && !product.deterministic;
        let ranked = match known {
            Some(known) => known.into_iter().collect(),
            None => {
                let asked = if autotune { CANDIDATES } else { 1 };
                ranked(&library, (&descriptor, &layouts, &wishes), (asked, workspace.1), &name)?
            }
        };
        let Some(&algorithm) = ranked.first() else { return Ok(None) };
        let mut plan = Matmul { descriptor, layouts, algorithm, matrices, workspace, beta, terms, name, library };
        if known.is_none() {
            let chosen = plan.choose(ranked, autotune)?;
            plan.library.chosen().insert(kind, chosen);
            let Some(chosen) = chosen else { return Ok(None) };
            plan.algorithm = chosen;
        }
        Ok(Some(plan))
    }

    /// Returns the first of these algorithms that the library can run, or with `autotune` the fastest; `None` if it can run none. Each is run once,
    /// which leaves arbitrary values in the tensors.
    fn choose(&mut self, ranked: Vec<Algorithm>, autotune: bool) -> Result<Option<Algorithm>, Error> {
        let stream = &self.library.0.stream.clone();
        let mut race = Race::new(stream, autotune);
        let what = format!("trying {}", self.name);
        for algorithm in ranked {
            self.algorithm = algorithm;
            match self.enqueue(stream) {
                Ok(()) => {
                    stream.synchronize().map_err(crate::error::failure(&format!("cuBLASLt: {what}")))?;
                    if let Some(winner) = race.enter(algorithm, |_| self.launch(stream))? {
                        return Ok(Some(winner));
                    }
                }
                Err(error) if is_unsupported(error) => self.library.note(error),
                Err(error) => return Err(failure(what)(error)),
            }
        }
        Ok(race.winner())
    }

    /// Returns the algorithm and its settings, without settings that this version of the library does not know.
    fn choice(&self) -> Choice {
        let id = setting(&self.algorithm.it, Config::CUBLASLT_ALGO_CONFIG_ID, 4);
        let algorithm = id.map_or("unknown".into(), |id| format!("algorithm {id}"));
        let known = |&(name, attribute, bytes): &(&str, Config, usize)| {
            Some((name.to_string(), setting(&self.algorithm.it, attribute, bytes)?))
        };
        let settings = SETTINGS.iter().filter_map(known).collect();
        Choice { library: "cuBLASLt", algorithm, settings, workspace: self.algorithm.takes as u64 }
    }

    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        self.enqueue(stream).map_err(|error| failure(self.name.clone())(error))
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), CublasError> {
        let ([a, b, c, d], [a_layout, b_layout, d_layout]) = (self.matrices, &self.layouts);
        let (alpha, beta, (workspace, size)) = (1f32, self.beta, self.workspace);
        // SAFETY: handle, descriptor and layouts live as long as this plan. The addresses are of tensors in the arena, which outlives every plan,
        // each of the length that its layout says, because `Session` binds a product to the tensors of the program that it was made from; the
        // workspace is as large as the algorithm was chosen for. Alpha and beta are f32 on the host, which is what the descriptor says, and are
        // read before the call returns.
        unsafe {
            result::matmul(
                self.library.0.handle,
                self.descriptor.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                a as *const c_void,
                a_layout.0,
                b as *const c_void,
                b_layout.0,
                c as *const c_void,
                d_layout.0,
                d as *mut c_void,
                d_layout.0,
                &self.algorithm.it,
                workspace as *mut c_void,
                size,
                stream.cu_stream().cast(),
            )
        }
    }
}

/// Returns up to `asked` algorithms for a product, fastest first by the library's estimate. Considers at most [`CANDIDATES`], and keeps those that
/// need no more than `room` bytes of scratch.
fn ranked(
    library: &Library,
    (descriptor, [a, b, d], wishes): (&Descriptor, &[Layout; 3], &Wishes),
    (asked, room): (usize, usize),
    name: &str,
) -> Result<Vec<Algorithm>, Error> {
    // SAFETY: all zeros is a valid value: the fields are numbers, and a status that has a 0.
    let mut found = [unsafe { std::mem::zeroed::<sys::cublasLtMatmulHeuristicResult_t>() }; CANDIDATES];
    let mut count = 0;
    // SAFETY: handle, descriptor, layouts and preferences are alive; C has the layout of D; there is space for as many results as are requested. Of
    // the pointers in the descriptor only the alignment is used.
    let code = unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            library.0.handle,
            descriptor.0,
            a.0,
            b.0,
            d.0,
            d.0,
            wishes.0,
            asked as c_int,
            found.as_mut_ptr(),
            &mut count,
        )
    };
    match code.result() {
        Ok(()) => {}
        // Some combinations of types and epilogues return this status.
        Err(CublasError(Status::CUBLAS_STATUS_INVALID_VALUE)) => return Ok(Vec::new()),
        Err(error) if is_unsupported(error) => {
            library.note(error);
            return Ok(Vec::new());
        }
        Err(error) => return Err(failure(format!("choosing an algorithm for {name}"))(error)),
    }
    let found = found.iter().take(usize::try_from(count).unwrap_or(0).min(asked));
    Ok(found
        .filter(|found| found.state == Status::CUBLAS_STATUS_SUCCESS && found.workspaceSize <= room)
        .map(|found| Algorithm { it: found.algo, takes: found.workspaceSize })
        .collect())
}

/// The settings of an algorithm, with their sizes in bytes.
const SETTINGS: [(&str, Config, usize); 8] = [
    ("tile", Config::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
    ("split_k", Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
    ("reduction", Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
    ("swizzling", Config::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
    ("custom", Config::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
    ("stages", Config::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
    ("inner_shape", Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
    ("cluster_shape", Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
];

/// Returns a setting of an algorithm, of at most 4 bytes; `None` if the library does not know it.
fn setting(algorithm: &sys::cublasLtMatmulAlgo_t, attribute: Config, bytes: usize) -> Option<i64> {
    let (mut value, mut written) = ([0u8; 4], 0);
    // SAFETY: the algorithm came from the library; the buffer has the stated number of bytes, at most 4.
    let code = unsafe {
        let to = value.as_mut_ptr().cast();
        sys::cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, to, bytes.min(4), &mut written)
    };
    (code == Status::CUBLAS_STATUS_SUCCESS).then(|| u32::from_le_bytes(value).into())
}

impl Planned for Product {
    type Library = Library;
    type Plan = Plan;

    // The tensors hold no data yet, so a new product is run once.
    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Plan::new(library, self, address)
    }
}

#[cfg(test)]
mod tests;
