//! Large products for whose sizes the library lacks wide kernels, split into two for which it has them.
//!
//! In 16 bits the library requires the contiguous dimension of each factor and of the result to be a multiple of 16 bytes, as its documentation
//! says of tensor cores; a padded leading dimension is not enough. On an H100, products with 50,257 logits ran at a tenth of the card's speed
//! without the split.

use crate::calls::product::{Element, Epilogue, Product};

/// Elements in 16 bytes of a 16-bit format.
const PIECE: u64 = 8;

/// The number of multiplications above which the time of a second launch is negligible.
const LARGE: u64 = 1 << 33;

/// A product of parts of matrices. `a`, `b`, `d` and `vector` are the offsets of the parts from their tensors' first elements, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductPart {
    pub(super) product: Product,
    pub(super) a: u64,
    pub(super) b: u64,
    /// The offset in C as well.
    pub(super) d: u64,
    /// The offset in the epilogue's vector.
    pub(super) vector: u64,
}

impl From<Product> for ProductPart {
    fn from(product: Product) -> ProductPart {
        ProductPart { product, a: 0, b: 0, d: 0, vector: 0 }
    }
}

/// Returns the products that compute `product`, in order: itself, or two parts.
pub(super) fn parts(product: &Product) -> Vec<ProductPart> {
    if product.terms() >= LARGE { split(product) } else { vec![ProductPart::from(*product)] }
}

fn split(product: &Product) -> Vec<ProductPart> {
    let whole = ProductPart::from(*product);
    let Product { m, n, k, a, b, ldd, element, epilogue, .. } = *product;
    let is_narrow = element != Element::F32 && product.batch.is_none();
    if !is_narrow || [a.ld, b.ld, ldd].iter().any(|ld| !ld.is_multiple_of(PIECE)) {
        return vec![whole];
    }
    let (m_left, n_left, k_left) = (m % PIECE, n % PIECE, k % PIECE);
    // Splits k, if a factor is contiguous along it. The sum of the first part is rounded when it is stored, so the part with the few terms comes
    // first.
    if k_left > 0 && k > k_left && (a.transposed || !b.transposed) && epilogue == Epilogue::None {
        let from = k - k_left;
        let few = ProductPart {
            product: Product { k: k_left, ..*product },
            a: if a.transposed { from } else { from * a.ld },
            b: if b.transposed { from * b.ld } else { from },
            ..whole
        };
        let many = ProductPart { product: Product { k: from, c: Some(product.d), ..*product }, ..whole };
        return vec![few, many];
    }
    // Splits m: the result is always contiguous along it.
    if m_left > 0 && m > m_left && matches!(epilogue, Epilogue::None | Epilogue::Bias(_)) {
        let from = m - m_left;
        let few = ProductPart {
            product: Product { m: m_left, ..*product },
            a: if a.transposed { from * a.ld } else { from },
            d: from,
            vector: from,
            ..whole
        };
        return vec![ProductPart { product: Product { m: from, ..*product }, ..whole }, few];
    }
    // Splits n, along which B is contiguous if it is transposed.
    if n_left > 0 && n > n_left && b.transposed && matches!(epilogue, Epilogue::None | Epilogue::Bias(_)) {
        let from = n - n_left;
        let few = ProductPart { product: Product { n: n_left, ..*product }, b: from, d: from * ldd, ..whole };
        return vec![ProductPart { product: Product { n: from, ..*product }, ..whole }, few];
    }
    vec![whole]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::product::Matrix;

    fn product([m, n, k]: [u64; 3], [a, b]: [bool; 2]) -> Product {
        let ld = |rows: u64| rows.next_multiple_of(PIECE);
        let matrix = |tensor, transposed, rows, columns| Matrix {
            tensor,
            transposed,
            ld: ld(if transposed { columns } else { rows }),
        };
        Product {
            m,
            n,
            k,
            a: matrix(1, a, m, k),
            b: matrix(2, b, k, n),
            c: None,
            d: 3,
            ldd: ld(m),
            element: Element::Bf16,
            tf32: false,
            epilogue: Epilogue::None,
            batch: None,
            workspace: None,
            deterministic: false,
        }
    }

    /// Adds a part to D, or writes it, with integers. A bias is the index of its element.
    fn run(part: &ProductPart, d: &mut [i64]) {
        let Product { m, n, k, a, b, c, ldd, epilogue, .. } = part.product;
        let at = |ld: u64, transposed: bool, row: u64, column: u64| {
            if transposed { row * ld + column } else { column * ld + row }
        };
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let term = |l: u64| {
                let left = part.a + at(a.ld, a.transposed, i, l);
                let right = part.b + at(b.ld, b.transposed, l, j);
                ((left * 7 + 3) % 11) as i64 * ((right * 5 + 1) % 13) as i64
            };
            let sum: i64 = (0..k).map(term).sum();
            let bias = if epilogue == Epilogue::None { 0 } else { (part.vector + i) as i64 };
            let to = &mut d[(part.d + j * ldd + i) as usize];
            *to = sum + bias + if c.is_some() { *to } else { 0 };
        }
    }

    fn result(whole: &Product, parts: &[ProductPart]) -> Vec<i64> {
        let mut d = vec![1000; (whole.ldd * whole.n) as usize];
        parts.iter().for_each(|part| run(part, &mut d));
        d
    }

    #[test]
    fn parts_are_the_whole() {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            for sizes in [[21, 8, 16], [16, 5, 19], [8, 11, 24], [8, 3, 24]] {
                for (c, epilogue) in [(None, Epilogue::None), (Some(3), Epilogue::None), (None, Epilogue::Bias(4))] {
                    let whole = Product { c, epilogue, ..product(sizes, transposed) };
                    let parts = split(&whole);
                    let [m, n, k] = sizes.map(|size| size > PIECE && !size.is_multiple_of(PIECE));
                    let is_odd =
                        m || n && transposed[1] || k && (transposed[0] || !transposed[1]) && epilogue == Epilogue::None;
                    assert_eq!(parts.len(), 1 + usize::from(is_odd), "{whole}");
                    assert_eq!(result(&whole, &parts), result(&whole, &[ProductPart::from(whole)]), "{whole}");
                }
            }
        }
    }

    #[test]
    fn products_stay_whole_where_that_is_no_help() {
        let odd = product([50_257, 16_384, 768], [true, false]);
        assert_eq!(parts(&odd).len(), 2);
        assert_eq!(parts(&Product { n: 16, ..odd }).len(), 1);
        assert_eq!(parts(&Product { element: Element::F32, ..odd }).len(), 1);
        assert_eq!(parts(&Product { ldd: 50_257, ..odd }).len(), 1);
        assert_eq!(parts(&Product { epilogue: Epilogue::Relu { bias: None }, ..odd }).len(), 1);
    }
}
