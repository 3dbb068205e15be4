//! Attention as its definition says, score by score: what cuDNN is asked for. It knows nothing of how the calls came about, and computes
//! in f64 what it rounds once.

use super::product::{Memory, load, store};
use gpumem_cuda::Argument;
use gpumem_cuda::attention::Attention;
pub use gpumem_cuda::attention::Pass;
use gpumem_cuda::product::Element;

/// What the documentation demands of the operands, and that no output lies where something else is.
fn check(it: &Attention, memory: &mut dyn Memory) {
    assert!(it.element != Element::F32 && it.width.is_multiple_of(8), "{it}");
    assert!(it.heads.is_multiple_of(it.kv_heads), "{it}");
    let (mut read, mut written) = (vec![it.x], Vec::new());
    match it.pass {
        Pass::Forward => written.extend([Some(it.y), it.logs].into_iter().flatten()),
        Pass::Backward { dy, dx } => {
            read.extend([it.y, dy, it.logs.expect("a gradient reads what the forward pass left")]);
            written.push(dx);
        }
    }
    if let Some(scratch) = it.workspace {
        let range = memory.range(scratch.tensor);
        assert!(range.start % 256 == 0 && range.end - range.start >= scratch.bytes, "{it}: the workspace is smaller");
        written.push(scratch.tensor);
    }
    for (index, &one) in written.iter().enumerate() {
        for &other in read.iter().chain(&written[..index]) {
            let (a, b) = (memory.range(one), memory.range(other));
            assert!(a.end <= b.start || b.end <= a.start, "{it}: tensors {one} and {other} overlap");
        }
    }
}

/// A head of queries of a sample, with what it needs.
struct Head {
    sample: usize,
    head: usize,
}

impl Head {
    /// Where row `step` of queries, keys or values begins.
    fn row(&self, it: &Attention, part: usize, step: usize) -> usize {
        let head = if part == 0 { self.head } else { self.head / (it.heads / it.kv_heads) as usize };
        let step = self.sample * it.steps as usize + step;
        step * it.row() as usize + it.parts()[part] as usize + head * it.width as usize
    }

    /// The same of the output.
    fn output(&self, it: &Attention, step: usize) -> usize {
        let step = self.sample * it.steps as usize + step;
        (step * it.heads as usize + self.head) * it.width as usize
    }

    /// The number of a query among those of all heads.
    fn query(&self, it: &Attention, step: usize) -> usize {
        (self.sample * it.heads as usize + self.head) * it.steps as usize + step
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Runs it. Its workspace holds nothing before and after.
pub fn run(it: &Attention, memory: &mut dyn Memory) {
    check(it, memory);
    let spoil = |memory: &mut dyn Memory| {
        if let Some(scratch) = it.workspace {
            memory.bytes(scratch.tensor)[..scratch.bytes as usize].fill(0xff);
        }
    };
    spoil(memory);
    let mut read = |element: Element, tensor: Argument| -> Vec<f64> {
        load(memory, element, tensor).into_iter().map(f64::from).collect()
    };
    let x = read(it.element, it.x);
    assert_eq!(x.len() as u64, it.batch * it.steps * it.row(), "{it}: the tensors have another length");
    let (width, steps, scale) = (it.width as usize, it.steps as usize, f64::from(it.scale()));
    let heads =
        || (0..it.batch as usize).flat_map(|sample| (0..it.heads as usize).map(move |head| Head { sample, head }));
    let of = |values: &[f64], at: usize| values[at..at + width].to_vec();
    let score = |head: &Head, query: usize, key: usize| {
        scale * dot(&of(&x, head.row(it, 0, query)), &of(&x, head.row(it, 1, key)))
    };
    match it.pass {
        Pass::Forward => {
            for head in heads() {
                for query in 0..steps {
                    let scores: Vec<f64> = (0..=query).map(|key| score(&head, query, key)).collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                    let log = largest + sum.ln();
                    for element in 0..width {
                        let term =
                            |(key, score): (usize, &f64)| (score - log).exp() * x[head.row(it, 2, key) + element];
                        let value: f64 = scores.iter().enumerate().map(term).sum();
                        store(memory, it.element, it.y, head.output(it, query) + element, value as f32);
                    }
                    if let Some(logs) = it.logs {
                        store(memory, Element::F32, logs, head.query(it, query), log as f32);
                    }
                }
            }
        }
        Pass::Backward { dy, dx } => {
            let (y, dy) = (read(it.element, it.y), read(it.element, dy));
            let logs = read(Element::F32, it.logs.expect("checked"));
            let mut gradient = vec![0.0; x.len()];
            for head in heads() {
                for query in 0..steps {
                    let (at, own) = (head.output(it, query), head.row(it, 0, query));
                    let (dy, delta) = (of(&dy, at), dot(&of(&dy, at), &of(&y, at)));
                    for key in 0..=query {
                        let (keys, values) = (head.row(it, 1, key), head.row(it, 2, key));
                        let weight = (score(&head, query, key) - logs[head.query(it, query)]).exp();
                        let slope = weight * (dot(&dy, &of(&x, values)) - delta) * scale;
                        for element in 0..width {
                            gradient[values + element] += weight * dy[element];
                            gradient[own + element] += slope * x[keys + element];
                            gradient[keys + element] += slope * x[own + element];
                        }
                    }
                }
            }
            for (index, value) in gradient.into_iter().enumerate() {
                store(memory, it.element, dx, index, value as f32);
            }
        }
    }
    spoil(memory);
}
