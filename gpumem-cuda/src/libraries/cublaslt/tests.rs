use super::*;
use crate::calls::product::{Auxiliary, Factor, Scratch};

fn product(element: Element, epilogue: Epilogue) -> Product {
    let product = Product::row_major([24, 16, 8], Factor::plain(0), Factor::plain(1).t(), 2, element);
    Product { epilogue, workspace: Some(Scratch { tensor: 5, bytes: 4 << 20 }), ..product }
}

/// Returns every epilogue, with its vector in tensor 3 and its matrix in tensor 4.
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

/// Returns an address for a tensor, a MiB above that of the tensor before.
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
    // The library's A is our second factor.
    let expected = Places { matrices: [b, a, d, d], vector: 0, auxiliary: 0, workspace: (0, 0) };
    assert_eq!(Places::of(&plain.into(), &address), Ok(expected));
    let full = Product { c: Some(6), ..product(Element::F32, epilogues()[7]) };
    let [vector, auxiliary, scratch, c] = [3, 4, 5, 6].map(|tensor| address(tensor).unwrap());
    let expected = Places { matrices: [b, a, c, d], vector, auxiliary, workspace: (scratch, 4 << 20) };
    assert_eq!(Places::of(&full.into(), &address), Ok(expected));
}

#[test]
fn a_workspace_in_the_wrong_place_is_an_error() {
    let error = Places::of(&product(Element::F32, Epilogue::None).into(), &|_| Ok(128)).unwrap_err();
    assert!(error.to_string().contains("multiple of 256 bytes"), "{error}");
    let outside = Error::Range { offset: 1, length: 2, arena: 2 };
    let error = Places::of(&product(Element::F32, Epilogue::None).into(), &|_| Err(outside.clone())).unwrap_err();
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

/// Fails if the library is not found.
fn library_is_there() {
    let libraries = crate::libraries::preflight::libraries();
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
        // SAFETY: the descriptor is alive; `written` gives a valid place of the stated size.
        written(|at, size, bytes| unsafe { sys::cublasLtMatmulDescGetAttribute(self.0, attribute, at, size, bytes) })
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
        written(|at, size, bytes| unsafe { sys::cublasLtMatrixLayoutGetAttribute(self.0, attribute, at, size, bytes) })
            .unwrap()
    }
}

/// Checks that the library accepts each attribute. It refuses attributes of a wrong size or value, which needs no card.
#[test]
#[ignore = "needs libcublasLt: GPUMEM_CUDA=.../nvidia/cublas/lib cargo test -p gpumem-cuda --lib -- --ignored cublaslt"]
fn the_library_takes_every_description() {
    library_is_there();
    for element in [Element::F32, Element::Bf16, Element::F16] {
        for kind in epilogues() {
            let product = product(element, kind);
            let places = Places::of(&product.into(), &address).unwrap();
            let descriptor = Descriptor::new(&product, &places).unwrap();
            use Attribute as At;
            assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_TRANSA), 1);
            assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_TRANSB), 0);
            assert_eq!(descriptor.get::<u32>(At::CUBLASLT_MATMUL_DESC_EPILOGUE), epilogue(&kind) as u32);
            assert_eq!(descriptor.get::<u64>(At::CUBLASLT_MATMUL_DESC_BIAS_POINTER), places.vector);
            assert_eq!(descriptor.get::<u64>(At::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER), places.auxiliary);
            let ld = kind.auxiliary().map_or(0, |matrix| matrix.ld as i64);
            assert_eq!(descriptor.get::<i64>(At::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), ld);
            assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_POINTER_MODE), 0, "scale factors on the host");
            assert_eq!(descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_SCALE_TYPE), 0, "scale factors of f32");
            let compute = descriptor.get::<i32>(At::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
            assert_eq!(compute, Compute::CUBLAS_COMPUTE_32F as i32);
        }
    }
    let tf32 = Product { tf32: true, ..product(Element::F32, Epilogue::None) };
    let descriptor = Descriptor::new(&tf32, &Places::of(&tf32.into(), &address).unwrap()).unwrap();
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
    let batch = |product: Product| {
        let of = |layout: &Layout| {
            let distance = layout.get::<i64>(At::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
            (layout.get::<i32>(At::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), distance)
        };
        Layout::of(&product).unwrap().each_ref().map(of)
    };
    assert_eq!(batch(product), [(1, 0); 3]);
    assert_eq!(batch(product.times(6, [0, 128, 384])), [(6, 128), (6, 0), (6, 384)]);
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
