//! Large products whose sizes the library has no wide kernels for, as two that it has some for.
//!
//! In 16 bits it wants what is contiguous in a factor or in the result to be whole pieces of 16 bytes, as its documentation says of
//! tensor cores: a leading dimension that is padded is not enough. On an H100 the products of 50,257 logits ran at a tenth of the
//! card's speed without that.

use crate::calls::product::{Element, Epilogue, Product};

/// Elements of a piece.
const PIECE: u64 = 8;

/// Terms of all sums from which on the time of a second launch is not seen.
const LARGE: u64 = 1 << 33;

/// A product of parts of matrices: where each begins, in elements behind its tensor's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) product: Product,
    pub(super) a: u64,
    pub(super) b: u64,
    /// Of C, too.
    pub(super) d: u64,
    /// The epilogue's vector.
    pub(super) vector: u64,
}

impl From<Product> for Part {
    fn from(product: Product) -> Part {
        Part { product, a: 0, b: 0, d: 0, vector: 0 }
    }
}

/// What a product is computed as: itself, or the parts that it is made of, in this order.
pub(super) fn parts(product: &Product) -> Vec<Part> {
    if product.terms() >= LARGE { split(product) } else { vec![Part::from(*product)] }
}

fn split(product: &Product) -> Vec<Part> {
    let whole = Part::from(*product);
    let Product { m, n, k, a, b, ldd, element, epilogue, .. } = *product;
    let is_narrow = element != Element::F32 && product.batch.is_none();
    if !is_narrow || [a.ld, b.ld, ldd].iter().any(|ld| !ld.is_multiple_of(PIECE)) {
        return vec![whole];
    }
    let (m_left, n_left, k_left) = (m % PIECE, n % PIECE, k % PIECE);
    // Where a factor has the terms of a sum one after the other. Sums in parts are rounded in between: the few terms come first, so that it
    // is their sum that is rounded.
    if k_left > 0 && k > k_left && (a.transposed || !b.transposed) && epilogue == Epilogue::None {
        let from = k - k_left;
        let few = Part {
            product: Product { k: k_left, ..*product },
            a: if a.transposed { from } else { from * a.ld },
            b: if b.transposed { from * b.ld } else { from },
            ..whole
        };
        let many = Part { product: Product { k: from, c: Some(product.d), ..*product }, ..whole };
        return vec![few, many];
    }
    // The result always has its rows one after the other.
    if m_left > 0 && m > m_left && matches!(epilogue, Epilogue::None | Epilogue::Bias(_)) {
        let from = m - m_left;
        let few = Part {
            product: Product { m: m_left, ..*product },
            a: if a.transposed { from * a.ld } else { from },
            d: from,
            vector: from,
            ..whole
        };
        return vec![Part { product: Product { m: from, ..*product }, ..whole }, few];
    }
    // Those of B, where it is transposed.
    if n_left > 0 && n > n_left && b.transposed && matches!(epilogue, Epilogue::None | Epilogue::Bias(_)) {
        let from = n - n_left;
        let few = Part { product: Product { n: n_left, ..*product }, b: from, d: from * ldd, ..whole };
        return vec![Part { product: Product { n: from, ..*product }, ..whole }, few];
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

    /// Adds a part to D, or sets it, with whole numbers: a bias is the number of its element.
    fn run(part: &Part, d: &mut [i64]) {
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

    fn result(whole: &Product, parts: &[Part]) -> Vec<i64> {
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
                    assert_eq!(result(&whole, &parts), result(&whole, &[Part::from(whole)]), "{whole}");
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
