//! Matrix products as data, in cuBLASLt's terms.

use super::launch::Argument;
use gpumem_core::program::TensorId;
use gpumem_core::{Format, Precision};
use std::fmt;

/// Number format of every matrix and vector of a product. Sums are f32 in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary16.
    F16,
}

impl Element {
    /// Returns the format of weights and activations at this precision.
    pub fn of(precision: Precision) -> Element {
        match precision.narrow() {
            Format::F32 | Format::U32 | Format::U8 => Element::F32,
            Format::Bf16 => Element::Bf16,
            Format::F16 => Element::F16,
        }
    }

    /// Returns the bytes of one number.
    pub fn bytes(self) -> u64 {
        if self == Element::F32 { 4 } else { 2 }
    }
}

/// A stored matrix, column-major as in the library: element `(row, column)` is number `column * ld + row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matrix {
    /// The tensor. Its first element is the matrix's first.
    pub tensor: Argument,
    /// True if the product takes its transpose.
    pub transposed: bool,
    /// Leading dimension: elements from the start of one column to that of the next.
    pub ld: u64,
}

/// A second matrix of the result's size that the epilogue reads or writes: the input of a GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Auxiliary {
    /// The tensor.
    pub tensor: Argument,
    /// Leading dimension in elements: a multiple of [`Auxiliary::LD`].
    pub ld: u64,
}

impl Auxiliary {
    /// The number that the leading dimension must be a multiple of, in elements.
    pub const LD: u64 = 8;
}

/// An operation on each sum before it is stored. A bias has an element for each row of D. GELU is the approximation with the hyperbolic tangent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// Adds a bias.
    Bias(Argument),
    /// Adds a bias, then takes the maximum with zero. The library turns NaN into zero.
    Relu {
        /// The bias, if any.
        bias: Option<Argument>,
    },
    /// Adds a bias, then applies GELU.
    Gelu {
        /// The bias, if any.
        bias: Option<Argument>,
        /// The matrix that receives the input of GELU; `None` if the backward pass does not need it.
        kept: Option<Auxiliary>,
    },
    /// Multiplies with the derivative of GELU.
    GeluGradient {
        /// The input of GELU in the forward pass.
        input: Auxiliary,
        /// The vector that receives the sum of each row of D: the gradient of the bias that was added before GELU.
        bias_gradient: Option<Argument>,
    },
    /// Also sums the rows of A, over k: an element for each row of D.
    BiasGradientA(Argument),
    /// Also sums the columns of B, over k: an element for each column of D.
    BiasGradientB(Argument),
}

impl Epilogue {
    /// Returns the vector that the epilogue reads or writes: a bias, or the gradient of one; `None` without one.
    pub fn vector(&self) -> Option<Argument> {
        match *self {
            Epilogue::None => None,
            Epilogue::Bias(vector) | Epilogue::BiasGradientA(vector) | Epilogue::BiasGradientB(vector) => Some(vector),
            Epilogue::Relu { bias } | Epilogue::Gelu { bias, .. } => bias,
            Epilogue::GeluGradient { bias_gradient, .. } => bias_gradient,
        }
    }

    /// Returns the auxiliary matrix that the epilogue reads or writes; `None` without one.
    pub fn auxiliary(&self) -> Option<Auxiliary> {
        match *self {
            Epilogue::Gelu { kept, .. } => kept,
            Epilogue::GeluGradient { input, .. } => Some(input),
            _ => None,
        }
    }

    /// Returns the library's name of the epilogue, without the prefix.
    pub fn name(&self) -> &'static str {
        match self {
            Epilogue::None => "DEFAULT",
            Epilogue::Bias(_) => "BIAS",
            Epilogue::Relu { bias: None } => "RELU",
            Epilogue::Relu { bias: Some(_) } => "RELU_BIAS",
            Epilogue::Gelu { bias: None, kept: None } => "GELU",
            Epilogue::Gelu { bias: Some(_), kept: None } => "GELU_BIAS",
            Epilogue::Gelu { bias: None, kept: Some(_) } => "GELU_AUX",
            Epilogue::Gelu { bias: Some(_), kept: Some(_) } => "GELU_AUX_BIAS",
            Epilogue::GeluGradient { bias_gradient: None, .. } => "DGELU",
            Epilogue::GeluGradient { bias_gradient: Some(_), .. } => "DGELU_BGRAD",
            Epilogue::BiasGradientA(_) => "BGRADA",
            Epilogue::BiasGradientB(_) => "BGRADB",
        }
    }
}

impl Epilogue {
    /// Returns this epilogue with all tensor numbers set to 0.
    fn of_any(self) -> Epilogue {
        let any = |vector: Option<Argument>| vector.map(|_| 0);
        let matrix = |matrix: Auxiliary| Auxiliary { tensor: 0, ..matrix };
        match self {
            Epilogue::None => Epilogue::None,
            Epilogue::Bias(_) => Epilogue::Bias(0),
            Epilogue::Relu { bias } => Epilogue::Relu { bias: any(bias) },
            Epilogue::Gelu { bias, kept } => Epilogue::Gelu { bias: any(bias), kept: kept.map(matrix) },
            Epilogue::GeluGradient { input, bias_gradient } => {
                Epilogue::GeluGradient { input: matrix(input), bias_gradient: any(bias_gradient) }
            }
            Epilogue::BiasGradientA(_) => Epilogue::BiasGradientA(0),
            Epilogue::BiasGradientB(_) => Epilogue::BiasGradientB(0),
        }
    }
}

/// Scratch memory of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scratch {
    /// The tensor. It begins at a multiple of 256 bytes.
    pub tensor: Argument,
    /// Its bytes, at least 1.
    pub bytes: u64,
}

/// Several products of one size in one call, whose matrices are at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch {
    /// Number of products.
    pub count: u64,
    /// Elements from one A to the next, 0 if they share it.
    pub a: u64,
    /// Elements from one B to the next, 0 if they share it.
    pub b: u64,
    /// Elements from one C or D to the next. No two products share one.
    pub d: u64,
}

/// `D[m, n] = epilogue(op(A)[m, k] op(B)[k, n] + C[m, n])`, with every matrix stored column after column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// Rows of D.
    pub m: u64,
    /// Columns of D.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// The left factor: m x k, or k x m if it is transposed.
    pub a: Matrix,
    /// The right factor: k x n, or n x k if it is transposed.
    pub b: Matrix,
    /// The addend (beta is 1), in the layout of D; it may be D itself. `None` means that beta is 0.
    pub c: Option<Argument>,
    /// The result.
    pub d: Argument,
    /// Leading dimension of C and D.
    pub ldd: u64,
    /// Number format of all matrices, including the epilogue's vector and matrix.
    pub element: Element,
    /// True if factors of f32 may be rounded to TensorFloat-32.
    pub tf32: bool,
    /// The operation on each sum before it is stored.
    pub epilogue: Epilogue,
    /// The number of products and their distances; `None` for one product. With several, the epilogue has neither a vector nor a matrix.
    pub batch: Option<Batch>,
    /// Scratch memory; `None` if there is none.
    pub workspace: Option<Scratch>,
    /// True if every run must give the same bits.
    pub deterministic: bool,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { m, n, k, a, b, epilogue, .. } = self;
        let times = self.batch.map_or(String::new(), |batch| format!("{} times ", batch.count));
        let t = |matrix: &Matrix| if matrix.transposed { 'T' } else { 'N' };
        let element = match self.element {
            Element::F32 if self.tf32 => "TF32",
            Element::F32 => "F32",
            Element::Bf16 => "Bf16",
            Element::F16 => "F16",
        };
        let added = if self.c.is_some() { ", added" } else { "" };
        let bytes = self.workspace.map_or(0, |workspace| workspace.bytes);
        write!(f, "product {times}m={m} n={n} k={k} {}{} in {element}{added}, ", t(a), t(b))?;
        write!(f, "epilogue {}, workspace of {bytes} bytes", epilogue.name())
    }
}

/// A factor of a product of row-major matrices: a tensor, or its transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The tensor.
    pub tensor: TensorId,
    /// True if the factor is the tensor's transpose.
    pub transposed: bool,
}

impl Factor {
    /// Returns the factor that is the tensor itself.
    pub fn plain(tensor: TensorId) -> Factor {
        Factor { tensor, transposed: false }
    }

    /// Returns the factor's transpose.
    pub fn t(self) -> Factor {
        Factor { transposed: !self.transposed, ..self }
    }
}

impl Product {
    /// Returns the number of multiplications: terms of all sums of all products.
    pub(crate) fn terms(&self) -> u64 {
        let count = self.batch.map_or(1, |batch| batch.count);
        [self.n, self.k, count].into_iter().fold(self.m, u64::saturating_mul)
    }

    /// Returns this product with all tensor numbers set to 0: the key by which a kernel is chosen.
    pub(crate) fn of_any(self) -> Product {
        let any = |matrix: Matrix| Matrix { tensor: 0, ..matrix };
        let workspace = self.workspace.map(|workspace| Scratch { tensor: 0, ..workspace });
        let (a, b, c) = (any(self.a), any(self.b), self.c.map(|_| 0));
        Product { a, b, c, d: 0, epilogue: self.epilogue.of_any(), workspace, ..self }
    }

    /// Returns this product with these pitches, in elements, for the row-major matrices `a`, `b` and `d` of [`Product::row_major`]. `None` keeps
    /// the pitch.
    pub fn with_pitches(mut self, [a, b, d]: [Option<u64>; 3]) -> Product {
        self.b.ld = a.unwrap_or(self.b.ld);
        self.a.ld = b.unwrap_or(self.a.ld);
        self.ldd = d.unwrap_or(self.ldd);
        self
    }

    /// Returns `count` such products. `[a, b, d]` are the elements from one row-major matrix of [`Product::row_major`] to the next.
    pub fn times(self, count: u64, [a, b, d]: [u64; 3]) -> Product {
        // The library's A is our `b`.
        let batch = Batch { count, a: b, b: a, d };
        Product { batch: (count > 1).then_some(batch), ..self }
    }

    /// Returns the library's call for row-major matrices without gaps: `d[rows, columns] = a[rows, depth] b[depth, columns]`. It has neither addend
    /// nor epilogue nor scratch.
    ///
    /// The library is column-major. Read that way, the memory of a row-major matrix holds its transpose, with the row length as leading dimension.
    /// So the library computes `d^T = b^T a^T`: its A is our `b`, its B our `a`, m counts our columns and n our rows. A factor that we use
    /// untransposed is already the transpose that the library needs; one that we use transposed, the library transposes. Our columns are its rows,
    /// so a bias along our columns is a bias along its rows.
    pub fn row_major([rows, columns, depth]: [u64; 3], a: Factor, b: Factor, d: TensorId, element: Element) -> Product {
        // The length of a stored row; for a transposed factor that is its other extent.
        let ld = |factor: Factor, width: u64, height: u64| if factor.transposed { height } else { width };
        let matrix = |factor: Factor, width: u64, height: u64| Matrix {
            tensor: factor.tensor,
            transposed: factor.transposed,
            ld: ld(factor, width, height),
        };
        Product {
            m: columns,
            n: rows,
            k: depth,
            a: matrix(b, columns, depth),
            b: matrix(a, depth, rows),
            c: None,
            d,
            ldd: columns,
            element,
            tf32: false,
            epilogue: Epilogue::None,
            batch: None,
            workspace: None,
            deterministic: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `y[5, 7] = x[5, 3] W^T` with W of `[7, 3]`: the usual call of cuBLAS for PyTorch's Linear, with the weight transposed and the leading
    /// dimensions 3, 3 and 7.
    #[test]
    fn a_linear_layer_is_the_call_that_everyone_writes() {
        let product = Product::row_major([5, 7, 3], Factor::plain(0), Factor::plain(1).t(), 2, Element::F32);
        assert_eq!([product.m, product.n, product.k, product.ldd], [7, 5, 3, 7]);
        assert_eq!(product.a, Matrix { tensor: 1, transposed: true, ld: 3 });
        assert_eq!(product.b, Matrix { tensor: 0, transposed: false, ld: 3 });
    }

    #[test]
    fn products_of_other_tensors_are_of_one_kind() {
        let [x, w, y, bias, kept, scratch] = [7, 8, 9, 10, 11, 12];
        let kind = |[x, w, y, bias, kept, scratch]: [Argument; 6], bytes| {
            let epilogue = Epilogue::Gelu { bias: Some(bias), kept: Some(Auxiliary { tensor: kept, ld: 8 }) };
            let product = Product::row_major([5, 8, 3], Factor::plain(x), Factor::plain(w).t(), y, Element::Bf16);
            Product { epilogue, workspace: Some(Scratch { tensor: scratch, bytes }), c: Some(y), ..product }.of_any()
        };
        let one = kind([x, w, y, bias, kept, scratch], 4096);
        assert_eq!(one, kind([1, 2, 3, 4, 5, 6], 4096));
        assert_ne!(one, kind([x, w, y, bias, kept, scratch], 4095));
        for different in [Product { epilogue: Epilogue::Bias(0), ..one }, Product { c: None, ..one }] {
            assert_ne!(one, different.of_any());
        }
        let vectors = [Epilogue::BiasGradientA, Epilogue::BiasGradientB, Epilogue::Bias];
        assert!(vectors.iter().all(|of| of(bias).of_any() == of(0)));
        let input = Auxiliary { tensor: kept, ld: 8 };
        let gradient = Epilogue::GeluGradient { input, bias_gradient: Some(bias) }.of_any();
        assert_eq!((gradient.vector(), gradient.auxiliary()), (Some(0), Some(Auxiliary { tensor: 0, ld: 8 })));
        assert_eq!(Epilogue::Relu { bias: Some(bias) }.of_any(), Epilogue::Relu { bias: Some(0) });
    }

    #[test]
    fn a_product_says_what_it_is() {
        let mut product = Product::row_major([5, 8, 3], Factor::plain(0), Factor::plain(1).t(), 2, Element::Bf16);
        product.epilogue = Epilogue::Gelu { bias: Some(3), kept: Some(Auxiliary { tensor: 4, ld: 8 }) };
        product.workspace = Some(Scratch { tensor: 5, bytes: 4096 });
        product.c = Some(2);
        assert_eq!(
            product.to_string(),
            "product m=8 n=5 k=3 TN in Bf16, added, epilogue GELU_AUX_BIAS, workspace of 4096 bytes"
        );
        let samples = Product::row_major([5, 8, 3], Factor::plain(0), Factor::plain(1), 2, Element::F32);
        let samples = samples.times(6, [0, 24, 40]);
        assert_eq!(samples.batch, Some(Batch { count: 6, a: 24, b: 0, d: 40 }));
        assert_eq!(
            samples.to_string(),
            "product 6 times m=8 n=5 k=3 NN in F32, epilogue DEFAULT, workspace of 0 bytes"
        );
        assert_eq!(samples.times(1, [0, 24, 40]).batch, None, "one product is none of several");
    }
}
