//! A matrix product as cuBLASLt's documentation describes it, element by element: what `cublasLtMatmul` does with matrices
//! stored by columns, their leading dimensions and the epilogues. It knows nothing of how the products came about.

use gpumem_cuda::Argument;
use gpumem_cuda::product::{Auxiliary, Batch, Element, Epilogue, Matrix, Product};
use std::ops::Range;

/// Memory that a product works on.
pub trait Memory {
    /// The bytes of a tensor.
    fn bytes(&mut self, tensor: Argument) -> &mut [u8];

    /// Where they are: tensors that share none have ranges that do not overlap.
    fn range(&self, tensor: Argument) -> Range<u64>;
}

/// An f32 rounded to nearest, as 16 bits.
pub fn rounded(element: Element, x: f32) -> u16 {
    if element == Element::Bf16 {
        let bits = x.to_bits();
        let half = if x.is_nan() { bits >> 16 | 64 } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 };
        return half as u16;
    }
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let size = f64::from(x.abs());
    if size.is_nan() {
        return 0x7e00;
    }
    // The spacing of binary16 numbers of this size; below 2^-14 it stays the same.
    let exponent = size.log2().floor().max(-14.0);
    let steps = (size / (exponent - 10.0).exp2()).round_ties_even();
    // Steps of the first binade count from 0, those of each further one from 1024; a carry moves on to the next.
    let number = (exponent + 14.0) * 1024.0 + steps;
    sign | number.min(f64::from(0x7c00)) as u16
}

fn widened(element: Element, half: u16) -> f32 {
    if element == Element::Bf16 {
        return f32::from_bits(u32::from(half) << 16);
    }
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 1023));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => return if fraction == 0.0 { f32::INFINITY } else { f32::NAN }.copysign(f32::from(half as i16)),
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if half >> 15 == 1 { -size } else { size }
}

/// The numbers of a tensor.
pub fn load(memory: &mut dyn Memory, element: Element, tensor: Argument) -> Vec<f32> {
    let bytes = memory.bytes(tensor);
    if element == Element::F32 {
        return bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect();
    }
    let halves = bytes.chunks_exact(2).map(|half| u16::from_le_bytes(half.try_into().unwrap()));
    halves.map(|half| widened(element, half)).collect()
}

/// Sets one number of a tensor.
pub fn store(memory: &mut dyn Memory, element: Element, tensor: Argument, index: usize, value: f32) {
    let bytes = memory.bytes(tensor);
    if element == Element::F32 {
        bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    } else {
        bytes[2 * index..2 * index + 2].copy_from_slice(&rounded(element, value).to_le_bytes());
    }
}

/// `op(stored)`, `rows` x `columns`, column after column without gaps, of the matrix whose first element is number `from`.
fn factor(
    memory: &mut dyn Memory,
    element: Element,
    (stored, from): (Matrix, usize),
    rows: usize,
    columns: usize,
) -> Vec<f32> {
    let values = &load(memory, element, stored.tensor)[from..];
    let ld = stored.ld as usize;
    assert!(ld >= if stored.transposed { columns } else { rows }, "a leading dimension is too small: {stored:?}");
    let at = |row: usize, column: usize| {
        if stored.transposed { values[row * ld + column] } else { values[column * ld + row] }
    };
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| (row, column)))
        .map(|(row, column)| at(row, column))
        .collect()
}

const SLOPE: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (SLOPE * (x + CUBIC * x * x * x)).tanh())
}

fn gelu_derivative(x: f32) -> f32 {
    let t = (SLOPE * (x + CUBIC * x * x * x)).tanh();
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * SLOPE * (1.0 + 3.0 * CUBIC * x * x)
}

/// What the documentation demands of the operands, and that no output lies where something else is.
fn check(product: &Product, memory: &dyn Memory) {
    let Product { m, n, a, b, c, d, ldd, .. } = *product;
    assert!(ldd >= m, "{product}: the leading dimension of D is too small");
    if let Some(Auxiliary { ld, .. }) = product.epilogue.auxiliary() {
        assert!(ld % 8 == 0 && ld >= m, "{product}: leading dimension {ld} of the auxiliary matrix");
    }
    assert!(m.max(n) < 1 << 31, "{product}");
    if let Some(batch) = product.batch {
        let is_plain = matches!(product.epilogue, Epilogue::None | Epilogue::Relu { bias: None });
        assert!(is_plain, "{product}: an epilogue with operands, which every product would have to have its own of");
        assert!(batch.d >= ldd * n && batch.count > 1 && batch.count < 1 << 31, "{product}: results overlap");
    }
    if let Some(workspace) = product.workspace {
        let range = memory.range(workspace.tensor);
        assert!(range.start % 256 == 0 && workspace.bytes > 0, "{product}");
        assert!(range.end - range.start >= workspace.bytes, "{product}: the workspace is smaller");
    }
    let (vector, auxiliary) = (product.epilogue.vector(), product.epilogue.auxiliary().map(|matrix| matrix.tensor));
    let workspace = product.workspace.map(|workspace| workspace.tensor);
    let (reads, mut writes) = (vec![a.tensor, b.tensor], vec![Some(d), workspace]);
    let mut others = c.into_iter().collect::<Vec<_>>();
    match product.epilogue {
        Epilogue::Gelu { .. } => writes.push(auxiliary),
        _ => others.extend(auxiliary),
    }
    match product.epilogue {
        Epilogue::GeluGradient { .. } | Epilogue::BiasGradientA(_) | Epilogue::BiasGradientB(_) => writes.push(vector),
        _ => others.extend(vector),
    }
    let writes: Vec<Argument> = writes.into_iter().flatten().collect();
    let overlap = |one: Argument, other: Argument| {
        let (one, other) = (memory.range(one), memory.range(other));
        one.start < other.end && other.start < one.end
    };
    for (index, &written) in writes.iter().enumerate() {
        let rest = reads.iter().chain(&writes[index + 1..]);
        // C may be D, and nothing else may be anything that is written.
        let added = others.iter().filter(|&&other| !(Some(other) == c && written == d && other == d));
        for &other in rest.chain(added) {
            assert!(!overlap(written, other), "{product}: tensors {written} and {other} overlap");
        }
    }
}

/// Runs a product, or each of several. Its workspace holds nothing before and after.
pub fn run(product: &Product, memory: &mut dyn Memory) {
    check(product, memory);
    let Batch { count, a, b, d } = product.batch.unwrap_or(Batch { count: 1, a: 0, b: 0, d: 0 });
    for sample in 0..count {
        run_at(product, memory, [a, b, d].map(|distance| (sample * distance) as usize));
    }
}

/// The product whose matrices A, B and D begin at these elements.
fn run_at(product: &Product, memory: &mut dyn Memory, [from_a, from_b, from_d]: [usize; 3]) {
    let Product { element, epilogue, ldd, d, .. } = *product;
    let [m, n, k, ldd] = [product.m, product.n, product.k, ldd].map(|size| size as usize);
    if let Some(workspace) = product.workspace {
        memory.bytes(workspace.tensor)[..workspace.bytes as usize].fill(0xff);
    }
    let a = factor(memory, element, (product.a, from_a), m, k);
    let b = factor(memory, element, (product.b, from_b), k, n);
    let c = product.c.map(|c| load(memory, element, c));
    let vector = epilogue.vector().map(|vector| load(memory, element, vector));
    let bias = vector
        .clone()
        .filter(|_| matches!(epilogue, Epilogue::Bias(_) | Epilogue::Relu { .. } | Epilogue::Gelu { .. }));
    if let Some(bias) = &bias {
        assert_eq!(bias.len(), m, "{product}: a bias has an element for each row of D");
    }
    let input = match epilogue {
        Epilogue::GeluGradient { input, .. } => Some((load(memory, element, input.tensor), input.ld as usize)),
        _ => None,
    };
    let mut row_sums = vec![0f32; m];
    let mut sums = vec![0f32; m];
    for column in 0..n {
        sums.fill(0.0);
        for term in 0..k {
            let factor = b[column * k + term];
            for (sum, left) in sums.iter_mut().zip(&a[term * m..]) {
                *sum += left * factor;
            }
        }
        for row in 0..m {
            let added = c.as_ref().map_or(0.0, |c| c[from_d + column * ldd + row]);
            let x = sums[row] + added + bias.as_ref().map_or(0.0, |bias| bias[row]);
            let y = match epilogue {
                // As cuBLASLt does on a card, a NaN stays one.
                Epilogue::Relu { .. } => {
                    if x < 0.0 {
                        0.0
                    } else {
                        x
                    }
                }
                Epilogue::Gelu { .. } => gelu(x),
                Epilogue::GeluGradient { .. } => {
                    let (input, ld) = input.as_ref().unwrap();
                    x * gelu_derivative(input[column * ld + row])
                }
                _ => x,
            };
            if let Epilogue::Gelu { kept: Some(kept), .. } = epilogue {
                store(memory, element, kept.tensor, column * kept.ld as usize + row, x);
            }
            row_sums[row] += y;
            store(memory, element, d, from_d + column * ldd + row, y);
        }
    }
    let gradient: Option<(Argument, Vec<f32>)> = match epilogue {
        Epilogue::GeluGradient { bias_gradient, .. } => bias_gradient.map(|vector| (vector, row_sums)),
        Epilogue::BiasGradientA(vector) => {
            Some((vector, (0..m).map(|row| (0..k).map(|term| a[term * m + row]).sum()).collect()))
        }
        Epilogue::BiasGradientB(vector) => {
            Some((vector, (0..n).map(|column| b[column * k..(column + 1) * k].iter().sum()).collect()))
        }
        _ => None,
    };
    if let Some((tensor, values)) = gradient {
        let length = vector.map_or(0, |vector| vector.len());
        assert_eq!(length, values.len(), "{product}: a bias gradient has another length");
        values.iter().enumerate().for_each(|(index, &value)| store(memory, element, tensor, index, value));
    }
    if let Some(workspace) = product.workspace {
        memory.bytes(workspace.tensor)[..workspace.bytes as usize].fill(0xff);
    }
}
