//! Matrix products through cuBLASLt: what it needs to know of each is made once, when a network is loaded; a step only hands
//! it over.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else.

use crate::product::{Element, Epilogue, Product};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtEpilogue_t as LtEpilogue,
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulPreferenceAttributes_t as Preference,
    cublasLtReductionScheme_t as Reduction, cublasStatus_t as Status, cudaDataType,
};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream};
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that the start of a workspace must be a multiple of, and the largest alignment that an algorithm asks for.
const ALIGNMENT: u64 = 256;

/// A failure of the library as an error.
fn failure(what: String) -> impl Fn(CublasError) -> Error {
    move |error| Error::Device { device: "CUDA", what: format!("cuBLASLt: {what}: {error}") }
}

/// The library, ready for one network.
#[derive(Clone, Debug)]
pub(crate) struct Library(Rc<Handle>);

#[derive(Debug)]
struct Handle {
    handle: sys::cublasLtHandle_t,
    context: Arc<CudaContext>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: made in `Library::new`; every plan that uses it holds it, and is gone therefore. A failure to free it
            // leaves nothing to do.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

impl Library {
    /// Opens the library for the card of `context`.
    ///
    /// # Errors
    /// [`Error::Library`] if it is not there, [`Error::Device`] if it does not start.
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Library, Error> {
        is_there()?;
        context.bind_to_thread().map_err(crate::device::failure("binding the context"))?;
        let handle = handle()?;
        Ok(Library(Rc::new(Handle { handle, context: context.clone() })))
    }
}

/// Checks that the library can be loaded: calling it would be a panic otherwise.
fn is_there() -> Result<(), Error> {
    // SAFETY: opening NVIDIA's library runs its initialisers, which is what using it means.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    Err(Error::Library {
        name: "cuBLASLt (libcublasLt)",
        found: None,
        wanted: "12.2 or newer",
        package: "the package nvidia-cublas (CUDA 13) or nvidia-cublas-cu12 with pip, or libcublas of the CUDA toolkit",
    })
}

/// A handle for the current context. The library must be there.
fn handle() -> Result<sys::cublasLtHandle_t, Error> {
    result::create_handle().map_err(failure("making a handle".into()))
}

/// Something of the library's that is made, filled with attributes and destroyed.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident($raw:ty), $destroy:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $name($raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by whoever made this value, which is the only one to hold it. A failure to free it leaves
                // nothing to do.
                let _ = unsafe { $destroy(self.0) };
            }
        }
    };
}

owned!(
    /// What a product computes, without the sizes.
    Descriptor(sys::cublasLtMatmulDesc_t),
    result::destroy_matmul_desc
);
owned!(
    /// Size, leading dimension and element of a matrix.
    Layout(sys::cublasLtMatrixLayout_t),
    result::destroy_matrix_layout
);
owned!(
    /// What algorithms may be chosen.
    Wishes(sys::cublasLtMatmulPreference_t),
    result::destroy_matmul_pref
);

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
    /// `vector` and `auxiliary` are the addresses of what the product's epilogue names; the choice of an algorithm looks at
    /// their alignment.
    fn new(product: &Product, vector: CUdeviceptr, auxiliary: CUdeviceptr) -> Result<Descriptor, CublasError> {
        let compute = if product.tf32 { Compute::CUBLAS_COMPUTE_32F_FAST_TF32 } else { Compute::CUBLAS_COMPUTE_32F };
        let descriptor = Descriptor(result::create_matmul_desc(compute, cudaDataType::CUDA_R_32F)?);
        // CUBLAS_OP_N and CUBLAS_OP_T.
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(product.a.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(product.b.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(&product.epilogue) as u32)?;
        if product.epilogue.vector().is_some() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector)?;
        }
        if let Some(matrix) = product.epilogue.auxiliary() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary)?;
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, matrix.ld as i64)?;
        }
        Ok(descriptor)
    }

    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), CublasError> {
        // SAFETY: the descriptor is alive; the value is read during the call, and as many bytes of it as it has.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

impl Layout {
    fn new(kind: Element, rows: u64, columns: u64, ld: u64) -> Result<Layout, CublasError> {
        // More than `i64::MAX` elements are in no arena.
        result::create_matrix_layout(element(kind), rows, columns, ld as i64).map(Layout)
    }

    /// Those of A, of B, and of C and D.
    fn of(product: &Product) -> Result<[Layout; 3], CublasError> {
        let Product { m, n, k, a, b, ldd, element, .. } = *product;
        let stored = |rows, columns, transposed| if transposed { (columns, rows) } else { (rows, columns) };
        let ((a_rows, a_columns), (b_rows, b_columns)) = (stored(m, k, a.transposed), stored(k, n, b.transposed));
        Ok([
            Layout::new(element, a_rows, a_columns, a.ld)?,
            Layout::new(element, b_rows, b_columns, b.ld)?,
            Layout::new(element, m, n, ldd)?,
        ])
    }
}

/// How sums may be put together that are computed in parts.
fn reductions(product: &Product) -> u32 {
    let all = [
        // In the result itself, part after part.
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
    /// `addresses` are those of A, B, C and D.
    fn new(product: &Product, addresses: [CUdeviceptr; 4]) -> Result<Wishes, CublasError> {
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
        for (attribute, address) in minimum.into_iter().zip(addresses) {
            wishes.set(attribute, alignment(address))?;
        }
        Ok(wishes)
    }

    fn set<T: Copy>(&self, attribute: Preference, value: T) -> Result<(), CublasError> {
        // SAFETY: as for `Descriptor::set`.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

/// The largest power of two, up to [`ALIGNMENT`], that an address is a multiple of.
fn alignment(address: CUdeviceptr) -> u32 {
    1 << address.trailing_zeros().min(ALIGNMENT.trailing_zeros())
}

/// A product with its addresses and its algorithm.
#[derive(Debug)]
pub(crate) struct Plan {
    // Fields are dropped in this order: the handle last.
    descriptor: Descriptor,
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Of A, B, C and D.
    addresses: [CUdeviceptr; 4],
    workspace: (CUdeviceptr, usize),
    /// What C is multiplied with.
    beta: f32,
    name: String,
    library: Library,
}

impl Plan {
    /// `None` if the library has no algorithm for the product.
    fn new(library: &Library, product: &Product, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let addresses = [product.a.tensor, product.b.tensor, product.c.unwrap_or(product.d), product.d];
        let [a, b, c, d] = addresses.map(address);
        let addresses = [a?, b?, c?, d?];
        let at = |tensor: Option<u32>| tensor.map_or(Ok(0), address);
        let vector = at(product.epilogue.vector())?;
        let auxiliary = at(product.epilogue.auxiliary().map(|matrix| matrix.tensor))?;
        let workspace = at(product.workspace.map(|workspace| workspace.tensor))?;
        let size = product.workspace.map_or(0, |workspace| workspace.bytes);
        let size = usize::try_from(size).map_err(|_| Error::Damaged("a workspace is larger than the memory"))?;
        if !workspace.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("a workspace does not begin at a multiple of 256 bytes"));
        }
        let name = product.to_string();
        let described = || -> Result<_, CublasError> {
            let descriptor = Descriptor::new(product, vector, auxiliary)?;
            Ok((descriptor, Layout::of(product)?, Wishes::new(product, addresses)?))
        };
        let (descriptor, layouts, wishes) = described().map_err(failure(format!("describing {name}")))?;
        let [a, b, d] = &layouts;
        // SAFETY: handle, descriptor, layouts and preferences were made above and are alive; C has the layout of D. The
        // pointers in the descriptor are looked at for their alignment only.
        let found =
            unsafe { result::get_matmul_algo_heuristic(library.0.handle, descriptor.0, a.0, b.0, d.0, d.0, wishes.0) };
        let algorithm = match found {
            Ok(found) if found.workspaceSize <= size => found.algo,
            // The second is what some combinations of types and epilogues get.
            Ok(_)
            | Err(CublasError(Status::CUBLAS_STATUS_NOT_SUPPORTED))
            | Err(CublasError(Status::CUBLAS_STATUS_INVALID_VALUE)) => return Ok(None),
            Err(error) => return Err(failure(format!("choosing an algorithm for {name}"))(error)),
        };
        let beta = if product.c.is_some() { 1.0 } else { 0.0 };
        let workspace = (workspace, size);
        let library = library.clone();
        Ok(Some(Plan { descriptor, layouts, algorithm, addresses, workspace, beta, name, library }))
    }

    /// Enqueues the product.
    ///
    /// # Errors
    /// [`Error::Device`] with the product and what the library said.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let ([a, b, c, d], [a_layout, b_layout, d_layout]) = (self.addresses, &self.layouts);
        let (alpha, beta, (workspace, size)) = (1f32, self.beta, self.workspace);
        // SAFETY: handle, descriptor and layouts live as long as this plan. The addresses are of tensors in the arena, which
        // outlives every plan, each of the length that its layout says, because `Session` binds a product to the tensors of
        // the program that it was made from; the workspace has the bytes that the algorithm was chosen for. Alpha and beta
        // are f32 on the host, which is what the descriptor says, and are read before the call returns.
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
                &self.algorithm,
                workspace as *mut c_void,
                size,
                stream.cu_stream().cast(),
            )
        }
        .map_err(|error| failure(self.name.clone())(error))
    }
}

/// Where a tensor is on the card.
pub(crate) type Address<'a> = dyn Fn(u32) -> Result<CUdeviceptr, Error> + 'a;

/// The plans of one program, made as they are asked for.
pub(crate) struct Plans<'a> {
    library: Option<&'a Library>,
    address: &'a Address<'a>,
    /// With `None` for products that there is no algorithm for.
    made: BTreeMap<Product, Option<Rc<Plan>>>,
}

impl<'a> Plans<'a> {
    /// Without the library there is no algorithm for anything.
    pub(crate) fn new(library: Option<&'a Library>, address: &'a Address<'a>) -> Plans<'a> {
        Plans { library, address, made: BTreeMap::new() }
    }

    /// The plan of a product; `None` if the library has no algorithm for it.
    ///
    /// # Errors
    /// [`Error::Device`] with the product and what the library said.
    pub(crate) fn get(&mut self, product: &Product) -> Result<Option<Rc<Plan>>, Error> {
        if let Some(plan) = self.made.get(product) {
            return Ok(plan.clone());
        }
        let Some(library) = self.library else { return Ok(None) };
        let plan = Plan::new(library, product, self.address)?.map(Rc::new);
        self.made.insert(*product, plan.clone());
        Ok(plan)
    }
}
