//! Matrix products through cuBLASLt: what it needs to know of each is made once, when a network is loaded; a step only hands
//! it over.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else.

use crate::device::Cuda;
use crate::launch::Argument;
use crate::plans::{Address, Planned};
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
use std::ffi::c_void;
use std::sync::Arc;

/// Bytes that the start of a workspace must be a multiple of, and the largest alignment that an algorithm asks for.
const ALIGNMENT: u64 = 256;

/// A failure of the library as an error.
fn failure(what: String) -> impl Fn(CublasError) -> Error {
    move |error| Error::Device { device: "CUDA", what: format!("cuBLASLt: {what}: {:?}", error.0) }
}

/// The library, ready for one network.
#[derive(Clone, Debug)]
pub(crate) struct Library(Arc<Handle>);

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

// SAFETY: a handle may be used by several threads at a time, as the library's documentation says.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Library {
    /// Readies the library for a network on `card`, which exists only if [`preflight`](crate::preflight) found the library.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not start.
    pub(crate) fn new(card: &Cuda) -> Result<Library, Error> {
        card.context.bind_to_thread().map_err(crate::device::failure("binding the context"))?;
        Ok(Library(Arc::new(Handle { handle: handle()?, context: card.context.clone() })))
    }
}

/// A handle for the current context. The library must have been found.
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

/// Where everything is that a product works on; 0 for what it has not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    /// A, B, C and D. Without a C it is D, which is not read then.
    matrices: [CUdeviceptr; 4],
    /// The epilogue's vector.
    vector: CUdeviceptr,
    /// The epilogue's matrix.
    auxiliary: CUdeviceptr,
    /// The workspace and its bytes.
    workspace: (CUdeviceptr, usize),
}

impl Places {
    fn of(product: &Product, address: &Address<'_>) -> Result<Places, Error> {
        let Product { a, b, c, d, epilogue, workspace, .. } = product;
        let at = |tensor: Option<Argument>| tensor.map_or(Ok(0), address);
        let start = at(workspace.map(|workspace| workspace.tensor))?;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("the workspace of a product does not begin at a multiple of 256 bytes"));
        }
        let size = usize::try_from(workspace.map_or(0, |workspace| workspace.bytes));
        let size = size.map_err(|_| Error::Damaged("the workspace of a product is larger than any memory"))?;
        Ok(Places {
            matrices: [address(a.tensor)?, address(b.tensor)?, address(c.unwrap_or(*d))?, address(*d)?],
            vector: at(epilogue.vector())?,
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
    /// The addresses of what the epilogue names are part of it: the choice of an algorithm looks at their alignment.
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
    /// `matrices` as in [`Places`].
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
    /// As in [`Places`].
    matrices: [CUdeviceptr; 4],
    workspace: (CUdeviceptr, usize),
    /// What C is multiplied with.
    beta: f32,
    name: String,
    library: Library,
}

// SAFETY: descriptors and layouts are memory of the library's that belongs to this plan and is not changed after `new`; the
// addresses are numbers to the host.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    /// `None` if the library has no algorithm for the product.
    fn new(library: &Library, product: &Product, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let places = Places::of(product, address)?;
        let Places { matrices, workspace, .. } = places;
        let name = product.to_string();
        let described = || -> Result<_, CublasError> {
            Ok((Descriptor::new(product, &places)?, Layout::of(product)?, Wishes::new(product, matrices)?))
        };
        let (descriptor, layouts, wishes) = described().map_err(failure(format!("describing {name}")))?;
        let [a, b, d] = &layouts;
        // SAFETY: handle, descriptor, layouts and preferences were made above and are alive; C has the layout of D. The
        // pointers in the descriptor are looked at for their alignment only.
        let found =
            unsafe { result::get_matmul_algo_heuristic(library.0.handle, descriptor.0, a.0, b.0, d.0, d.0, wishes.0) };
        let algorithm = match found {
            Ok(found) if found.workspaceSize <= workspace.1 => found.algo,
            // The second is what some combinations of types and epilogues get.
            Ok(_)
            | Err(CublasError(Status::CUBLAS_STATUS_NOT_SUPPORTED))
            | Err(CublasError(Status::CUBLAS_STATUS_INVALID_VALUE)) => return Ok(None),
            Err(error) => return Err(failure(format!("choosing an algorithm for {name}"))(error)),
        };
        let beta = if product.c.is_some() { 1.0 } else { 0.0 };
        let library = library.clone();
        Ok(Some(Plan { descriptor, layouts, algorithm, matrices, workspace, beta, name, library }))
    }

    /// Enqueues the product.
    ///
    /// # Errors
    /// [`Error::Device`] with the product and what the library said.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let ([a, b, c, d], [a_layout, b_layout, d_layout]) = (self.matrices, &self.layouts);
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

impl Planned for Product {
    type Library = Library;
    type Plan = Plan;

    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Plan::new(library, self, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::{Auxiliary, Factor, Scratch};

    fn product(element: Element, epilogue: Epilogue) -> Product {
        let product = Product::row_major([24, 16, 8], Factor::plain(0), Factor::plain(1).t(), 2, element);
        Product { epilogue, workspace: Some(Scratch { tensor: 5, bytes: 4 << 20 }), ..product }
    }

    /// Every epilogue, with its vector in tensor 3 and its matrix in tensor 4.
    fn epilogues() -> [Epilogue; 12] {
        let matrix = Auxiliary { tensor: 4, ld: 16 };
        let [with, without] = [Some(3), None];
        [
            Epilogue::None,
            Epilogue::Bias(3),
            Epilogue::Relu { bias: without },
            Epilogue::Relu { bias: with },
            Epilogue::Gelu { bias: without, kept: None },
            Epilogue::Gelu { bias: with, kept: None },
            Epilogue::Gelu { bias: without, kept: Some(matrix) },
            Epilogue::Gelu { bias: with, kept: Some(matrix) },
            Epilogue::GeluGradient { input: matrix, bias_gradient: without },
            Epilogue::GeluGradient { input: matrix, bias_gradient: with },
            Epilogue::BiasGradientA(3),
            Epilogue::BiasGradientB(3),
        ]
    }

    /// Each tensor a MiB after the one before.
    fn address(tensor: Argument) -> Result<CUdeviceptr, Error> {
        Ok(0x7f00_0000_0000 + (u64::from(tensor) << 20))
    }

    #[test]
    fn epilogues_have_the_names_that_the_library_gives_them() {
        for kind in epilogues() {
            assert_eq!(format!("{:?}", epilogue(&kind)), format!("CUBLASLT_EPILOGUE_{}", kind.name()));
        }
    }

    #[test]
    fn what_a_product_has_not_has_no_address() {
        let plain = Product { workspace: None, ..product(Element::F32, Epilogue::None) };
        let [a, b, d] = [0, 1, 2].map(|tensor| address(tensor).unwrap());
        // A of the library's is our second factor.
        let expected = Places { matrices: [b, a, d, d], vector: 0, auxiliary: 0, workspace: (0, 0) };
        assert_eq!(Places::of(&plain, &address), Ok(expected));
        let full = Product { c: Some(6), ..product(Element::F32, epilogues()[7]) };
        let [vector, auxiliary, scratch, c] = [3, 4, 5, 6].map(|tensor| address(tensor).unwrap());
        let expected = Places { matrices: [b, a, c, d], vector, auxiliary, workspace: (scratch, 4 << 20) };
        assert_eq!(Places::of(&full, &address), Ok(expected));
    }

    #[test]
    fn a_workspace_in_the_wrong_place_is_an_error() {
        let error = Places::of(&product(Element::F32, Epilogue::None), &|_| Ok(128)).unwrap_err();
        assert!(error.to_string().contains("multiple of 256 bytes"), "{error}");
        let outside = Error::Range { offset: 1, length: 2, arena: 2 };
        let error = Places::of(&product(Element::F32, Epilogue::None), &|_| Err(outside.clone())).unwrap_err();
        assert_eq!(error, outside);
    }

    #[test]
    fn alignments_are_powers_of_two() {
        let found = [0, 256, 512, 384, 16, 2, 1].map(alignment);
        assert_eq!(found, [256, 256, 256, 128, 16, 2, 1]);
    }

    #[test]
    fn parts_of_16_bit_sums_stay_f32() {
        let with = |element, deterministic| reductions(&Product { deterministic, ..product(element, Epilogue::None) });
        assert_eq!([with(Element::F32, false), with(Element::F32, true)], [7, 6]);
        assert_eq!([Element::Bf16, Element::F16].map(|element| with(element, false)), [2, 2]);
        assert_eq!([Element::Bf16, Element::F16].map(|element| with(element, true)), [2, 2]);
    }

    #[test]
    fn failures_name_the_product_and_the_status() {
        let what = format!("choosing an algorithm for {}", product(Element::F32, Epilogue::None));
        let error = failure(what)(CublasError(Status::CUBLAS_STATUS_INTERNAL_ERROR));
        assert_eq!(
            error.to_string(),
            "CUDA: cuBLASLt: choosing an algorithm for product m=16 n=24 k=8 TN in F32, epilogue DEFAULT, workspace of \
             4194304 bytes: CUBLAS_STATUS_INTERNAL_ERROR"
        );
    }

    /// Fails where the library is not found.
    fn library_is_there() {
        let libraries = crate::preflight::libraries();
        let library = libraries.iter().find(|library| library.name.contains("cuBLASLt")).unwrap();
        library.found.as_ref().unwrap();
    }

    fn written<T: Copy + Default>(
        what: impl FnOnce(*mut c_void, usize, *mut usize) -> sys::cublasStatus_t,
    ) -> Result<T, CublasError> {
        let (mut value, mut bytes) = (T::default(), 0);
        what((&raw mut value).cast(), size_of::<T>(), &mut bytes).result()?;
        assert_eq!(bytes, size_of::<T>());
        Ok(value)
    }

    impl Descriptor {
        fn get<T: Copy + Default>(&self, attribute: Attribute) -> T {
            // SAFETY: the descriptor is alive; `written` gives a valid place of the size that it says.
            written(|at, size, bytes| unsafe {
                sys::cublasLtMatmulDescGetAttribute(self.0, attribute, at, size, bytes)
            })
            .unwrap()
        }
    }

    impl Wishes {
        fn get<T: Copy + Default>(&self, attribute: Preference) -> T {
            // SAFETY: as for the descriptor.
            written(|at, size, bytes| unsafe {
                sys::cublasLtMatmulPreferenceGetAttribute(self.0, attribute, at, size, bytes)
            })
            .unwrap()
        }
    }

    impl Layout {
        fn get<T: Copy + Default>(&self, attribute: sys::cublasLtMatrixLayoutAttribute_t) -> T {
            // SAFETY: as for the descriptor.
            written(|at, size, bytes| unsafe {
                sys::cublasLtMatrixLayoutGetAttribute(self.0, attribute, at, size, bytes)
            })
            .unwrap()
        }
    }

    /// Attributes of a wrong size or value are refused by the library, which needs no card for that.
    #[test]
    #[ignore = "needs libcublasLt: GPUMEM_CUDA=.../nvidia/cublas/lib cargo test -p gpumem-cuda --lib -- --ignored cublaslt"]
    fn the_library_takes_every_description() {
        library_is_there();
        for element in [Element::F32, Element::Bf16, Element::F16] {
            for kind in epilogues() {
                let product = product(element, kind);
                let places = Places::of(&product, &address).unwrap();
                let descriptor = Descriptor::new(&product, &places).unwrap();
                use Attribute as At;
                assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_TRANSA), 1);
                assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_TRANSB), 0);
                assert_eq!(descriptor.get::<u32>(At::CUBLASLT_MATMUL_DESC_EPILOGUE), epilogue(&kind) as u32);
                assert_eq!(descriptor.get::<u64>(At::CUBLASLT_MATMUL_DESC_BIAS_POINTER), places.vector);
                assert_eq!(descriptor.get::<u64>(At::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER), places.auxiliary);
                let ld = kind.auxiliary().map_or(0, |matrix| matrix.ld as i64);
                assert_eq!(descriptor.get::<i64>(At::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), ld);
                assert_eq!(
                    descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_POINTER_MODE),
                    0,
                    "scale factors on the host"
                );
                assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_SCALE_TYPE), 0, "scale factors of f32");
                let compute = descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
                assert_eq!(compute, Compute::CUBLAS_COMPUTE_32F as i32);
            }
        }
        let tf32 = Product { tf32: true, ..product(Element::F32, Epilogue::None) };
        let descriptor = Descriptor::new(&tf32, &Places::of(&tf32, &address).unwrap()).unwrap();
        let compute = descriptor.get::<i32>(Attribute::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
        assert_eq!(compute, Compute::CUBLAS_COMPUTE_32F_FAST_TF32 as i32);
        let error = descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, 1u8).unwrap_err();
        assert_eq!(error.0, Status::CUBLAS_STATUS_INVALID_VALUE, "so a wrong size would have shown");
    }

    #[test]
    #[ignore = "needs libcublasLt, as above"]
    fn the_library_takes_every_layout_and_preference() {
        library_is_there();
        use sys::cublasLtMatrixLayoutAttribute_t as At;
        let product = Product { deterministic: true, ..product(Element::Bf16, Epilogue::None) };
        // 24 x 8 times 8 x 16 by rows: 16 x 8, stored as 8 x 16, times 8 x 24 by columns.
        let sizes = [(8, 16, 8), (8, 24, 8), (16, 24, 16)];
        for (layout, (rows, columns, ld)) in Layout::of(&product).unwrap().iter().zip(sizes) {
            assert_eq!(layout.get::<u64>(At::CUBLASLT_MATRIX_LAYOUT_ROWS), rows);
            assert_eq!(layout.get::<u64>(At::CUBLASLT_MATRIX_LAYOUT_COLS), columns);
            assert_eq!(layout.get::<i64>(At::CUBLASLT_MATRIX_LAYOUT_LD), ld);
            assert_eq!(layout.get::<u32>(At::CUBLASLT_MATRIX_LAYOUT_TYPE), cudaDataType::CUDA_R_16BF as u32);
            assert_eq!(layout.get::<u32>(At::CUBLASLT_MATRIX_LAYOUT_ORDER), 0, "columns");
        }
        let wishes = Wishes::new(&product, [256, 64, 16, 512]).unwrap();
        assert_eq!(wishes.get::<u64>(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 4 << 20);
        assert_eq!(wishes.get::<u32>(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK), 2);
        assert_eq!(wishes.get::<u32>(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 256);
        assert_eq!(wishes.get::<u32>(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 64);
        assert_eq!(wishes.get::<u32>(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 16);
        assert_eq!(wishes.get::<u32>(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 256);
    }

    #[test]
    #[ignore = "needs libcublasLt, as above, and no driver"]
    fn without_a_driver_there_is_no_handle_and_no_panic() {
        library_is_there();
        let error = handle().unwrap_err();
        assert_eq!(error.to_string(), "CUDA: cuBLASLt: making a handle: CUBLAS_STATUS_NOT_INITIALIZED");
    }
}
