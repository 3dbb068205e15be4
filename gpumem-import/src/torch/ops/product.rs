//! Products of matrices, and what is made of them.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::layout::elements;
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use super::elementwise::{broadcast, promoted};
use super::views::same;
use std::collections::BTreeMap;

/// The layout of a factor, whose gradient is laid out like it if it is column-major.
#[derive(Clone)]
struct Factor {
    shape: Vec<u64>,
    is_column_major: bool,
}

impl Factor {
    fn of(tensor: &Tensor) -> Factor {
        let is_column_major = matches!((&tensor.shape[..], &tensor.strides[..]), (&[rows, columns], &[1, stride]) if stride == rows && (rows, columns) != (1, 1));
        Factor { shape: tensor.shape.clone(), is_column_major }
    }

    fn gradient(&self, b: &Backward<'_>) -> Tensor {
        match self.shape.first() {
            Some(&rows) if self.is_column_major => b.e.strided(&self.shape, vec![1, rows], b.gradient.dtype),
            _ => b.fresh(&self.shape),
        }
    }
}

/// True if `matmul` flattens the batch of its first factor, so that the second one is not expanded.
///
/// It is always done if the second factor has a gradient, which would be that of an expanded one otherwise.
fn folds(a: &Tensor, b: &Tensor) -> bool {
    let outer = a.rank().saturating_sub(2);
    let is_viewed = |dim: usize| a.strides[dim] == a.strides[dim + 1].saturating_mul(a.shape[dim + 1]);
    b.requires_grad() || a.elements() == 0 || (0..outer).all(is_viewed)
}

/// Returns each factor if the other one needs a gradient.
fn kept<'t>(a: &'t Tensor, b: &'t Tensor) -> Vec<Option<&'t Tensor>> {
    vec![Some(a).filter(|_| b.requires_grad()), Some(b).filter(|_| a.requires_grad())]
}

impl Eager {
    /// `mm(a, b)`.
    fn mm(&self, a: &Tensor, b: &Tensor) -> Result {
        let (&[rows, inner], &[other, columns]) = (&a.shape[..], &b.shape[..]) else {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        };
        if inner != other {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        }
        let output = self.new_tensor(&[rows, columns], a.dtype);
        let (first, second) = (Factor::of(a), Factor::of(b));
        self.record(&[&output], &[Some(a), Some(b)], kept(a, b), move |b| {
            vec![b.needs(0).then(|| first.gradient(b)), b.needs(1).then(|| second.gradient(b))]
        });
        Ok(output)
    }

    /// `mv(a, b)`.
    fn mv(&self, a: &Tensor, b: &Tensor) -> Result {
        let (&[rows, inner], &[other]) = (&a.shape[..], &b.shape[..]) else {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        };
        if inner != other {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        }
        let output = self.new_tensor(&[rows], a.dtype);
        self.record(&[&output], &[Some(a), Some(b)], kept(a, b), move |b| {
            vec![b.needs(0).then(|| b.fresh(&[rows, inner])), b.needs(1).then(|| b.fresh(&[inner]))]
        });
        Ok(output)
    }

    /// `addmm(bias, a, b)`.
    fn addmm(&self, bias: &Tensor, a: &Tensor, b: &Tensor) -> Result {
        let (&[rows, inner], &[other, columns]) = (&a.shape[..], &b.shape[..]) else {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        };
        if inner != other {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        }
        let output = self.new_tensor(&[rows, columns], a.dtype);
        let (first, second) = (Factor::of(a), Factor::of(b));
        self.record(&[&output], &[Some(bias), Some(a), Some(b)], kept(a, b), move |b| {
            let first = b.needs(1).then(|| first.gradient(b));
            let second = b.needs(2).then(|| second.gradient(b));
            vec![b.needs(0).then(|| b.gradient.clone()), first, second]
        });
        Ok(output)
    }

    /// `bmm(a, b)`.
    fn bmm(&self, a: &Tensor, b: &Tensor) -> Result {
        let (&[batch, rows, inner], &[_, other, columns]) = (&a.shape[..], &b.shape[..]) else {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        };
        if inner != other {
            return malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape));
        }
        let output = self.new_tensor(&[batch, rows, columns], a.dtype);
        let (first, second) = (a.shape.clone(), b.shape.clone());
        self.record(&[&output], &[Some(a), Some(b)], kept(a, b), move |b| {
            vec![b.needs(0).then(|| b.fresh(&first)), b.needs(1).then(|| b.fresh(&second))]
        });
        Ok(output)
    }

    /// `matmul(a, b)` outside of autocast: the batch dimensions are flattened, and a factor whose layout forbids that is copied.
    pub fn matmul(&self, a: &Tensor, b: &Tensor) -> Result {
        match (&a.shape[..], &b.shape[..]) {
            ([], _) | (_, []) => malformed("multiplies a number as a matrix"),
            ([_], [_]) => {
                let output = self.new_tensor(&[], a.dtype);
                self.record(&[&output], &[Some(a), Some(b)], kept(a, b), dot_gradients);
                Ok(output)
            }
            ([_], _) => {
                let product = self.matmul(&self.unsqueezed(a, 0), b)?;
                Ok(self.squeezed(&product, &[product.rank() - 2]))
            }
            ([_, _], [_, _]) => self.mm(a, b),
            ([_, _], [_]) => self.mv(a, b),
            (first, [_, columns]) if folds(a, b) => {
                let mut shape = first.to_vec();
                let inner = shape.pop().unwrap_or(1);
                let rows = elements(&shape);
                shape.push(*columns);
                let flat = self.reshape(a, &[rows, inner])?;
                self.renamed(&self.mm(&flat, b)?, &shape)
            }
            (first, [_]) if folds(a, b) => {
                let mut shape = first.to_vec();
                let inner = shape.pop().unwrap_or(1);
                let flat = self.reshape(a, &[elements(&shape), inner])?;
                self.renamed(&self.mv(&flat, b)?, &shape)
            }
            (_, [_]) => {
                let product = self.matmul(a, &self.unsqueezed(b, 1))?;
                Ok(self.squeezed(&product, &[product.rank() - 1]))
            }
            ([_, _], second) if a.requires_grad() => {
                let rank = second.len();
                let turned = self.transposed(b, rank - 2, rank - 1);
                let product = self.matmul(&turned, &self.transposed(a, 0, 1))?;
                let product = self.transposed(&product, product.rank() - 2, product.rank() - 1);
                Ok(self.contiguous(&product))
            }
            (first, second) => {
                let (first_batch, first_matrix) = first.split_at(first.len() - 2);
                let (second_batch, second_matrix) = second.split_at(second.len() - 2);
                let batch = broadcast(&[first_batch, second_batch])?;
                let count = elements(&batch);
                let flat = |tensor: &Tensor, matrix: &[u64]| {
                    let whole = self.expanded(tensor, &[&batch, matrix].concat())?;
                    self.reshape(&whole, &[&[count], matrix].concat())
                };
                let (a, b) = (flat(a, first_matrix)?, flat(b, second_matrix)?);
                let shape = [&batch[..], &first_matrix[..1], &second_matrix[1..]].concat();
                self.renamed(&self.bmm(&a, &b)?, &shape)
            }
        }
    }

    /// `linear(input, weight, bias)` outside of autocast.
    pub fn linear(&self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result {
        if weight.rank() != 2 {
            return malformed(format!("has a weight of shape {:?}", weight.shape));
        }
        let turned = self.transposed(weight, 0, 1);
        match bias {
            Some(bias) if input.rank() == 2 => self.addmm(bias, input, &turned),
            Some(bias) if input.is_contiguous() && input.rank() > 2 => {
                let mut shape = input.shape.clone();
                let inner = shape.pop().unwrap_or(1);
                let flat = self.viewed(input, &[elements(&shape), inner])?;
                shape.push(weight.shape[0]);
                self.viewed(&self.addmm(bias, &flat, &turned)?, &shape)
            }
            _ => {
                let output = self.matmul(input, &turned)?;
                match bias {
                    Some(bias) => self.biased(output, bias),
                    None => Ok(output),
                }
            }
        }
    }

    /// Adds a bias to a product that nothing else has: in place, or out of place where trackers see it.
    pub fn biased(&self, output: Tensor, bias: &Tensor) -> Result {
        if self.rules.tracker {
            return self.added(&output, bias);
        }
        if self.needs(&[Some(&output), Some(bias)]) {
            super::in_place::change(self, &output, &[Some(&output), Some(bias)], Vec::new(), |b| {
                vec![b.needs(0).then(|| b.gradient.clone()), b.needs(1).then(|| b.gradient.clone())]
            });
        }
        Ok(output)
    }
}

fn dot_gradients(b: &Backward<'_>) -> Gradients {
    let one = |index: usize, other: usize| b.saved(other).filter(|_| b.needs(index)).map(|other| b.e.like(other));
    vec![one(0, 1), one(1, 0)]
}

pub(super) fn matmul(c: &Call<'_>) -> Outputs {
    let second = c.node.tensors().nth(1).map(|id| c.value(id)).transpose()?;
    let [a, b] = c.e.lowered([Some(c.first()?), second]);
    match (a, b) {
        (Some(a), Some(b)) => Ok(vec![c.e.matmul(&a, &b)?]),
        _ => malformed("multiplies one tensor"),
    }
}

pub(super) fn linear(c: &Call<'_>) -> Outputs {
    let all = c.e.lowered([Some(c.tensor("input")?), Some(c.tensor("weight")?), c.optional("bias")?]);
    match all {
        [Some(input), Some(weight), bias] => Ok(vec![c.e.linear(&input, &weight, bias.as_ref())?]),
        _ => malformed("has no weight"),
    }
}

pub(super) fn addmm(c: &Call<'_>) -> Outputs {
    match c.e.lowered([Some(c.tensor("self")?), Some(c.tensor("mat1")?), Some(c.tensor("mat2")?)]) {
        [Some(bias), Some(a), Some(b)] => Ok(vec![c.e.addmm(&bias, &a, &b)?]),
        _ => malformed("has no factors"),
    }
}

/// `grouped_mm(input, weight, offsets)`: each group of rows has a matrix of its own. Which rows, data decides; the memory is always the same.
pub(super) fn grouped(c: &Call<'_>) -> Outputs {
    let mut tensors = Vec::new();
    for id in c.node.tensors() {
        tensors.push(c.value(id)?);
    }
    let [input, weight, offsets, ..] = &tensors[..] else { return malformed("has no groups") };
    let (&[rows, inner], &[_, other, columns]) = (&input.shape[..], &weight.shape[..]) else {
        return malformed(format!("multiplies {:?} by {:?}", input.shape, weight.shape));
    };
    if inner != other {
        return malformed(format!("multiplies {:?} by {:?}", input.shape, weight.shape));
    }
    let output = c.e.new_tensor(&[rows, columns], input.dtype);
    c.e.record(&[&output], &[Some(input), Some(weight)], vec![Some(input), Some(weight), Some(offsets)], |b| {
        [0, 1].map(|index| b.saved(index).map(|factor| b.e.like(factor))).into()
    });
    Ok(vec![output])
}

/// `baddbmm(self, a, b)`.
pub(super) fn baddbmm(c: &Call<'_>) -> Outputs {
    match c.e.lowered([Some(c.tensor("self")?), Some(c.tensor("batch1")?), Some(c.tensor("batch2")?)]) {
        [Some(this), Some(a), Some(b)] => {
            let product = c.e.without_memory(&a, &b)?;
            let dtype = promoted(&[&a, &b], false);
            let output = c.e.new_tensor(&product, dtype);
            let (first, second) = (a.shape.clone(), b.shape.clone());
            c.e.record(&[&output], &[Some(&this), Some(&a), Some(&b)], kept(&a, &b), move |b| {
                let factor = |index: usize, shape: &[u64]| b.needs(index).then(|| b.fresh(shape));
                let mut all = same(b);
                all.extend([factor(1, &first), factor(2, &second)]);
                all
            });
            Ok(vec![output])
        }
        _ => malformed("has no factors"),
    }
}

impl Eager {
    /// Returns the shape of a product of lists of matrices.
    fn without_memory(&self, a: &Tensor, b: &Tensor) -> Result<Vec<u64>> {
        match (&a.shape[..], &b.shape[..]) {
            (&[batch, rows, _], &[_, _, columns]) => Ok(vec![batch, rows, columns]),
            _ => malformed(format!("multiplies {:?} by {:?}", a.shape, b.shape)),
        }
    }
}

/// `outer(self, vec2)`.
pub(super) fn outer(c: &Call<'_>) -> Outputs {
    let (a, b) = (c.first()?, c.tensor("vec2")?);
    let column = c.e.unsqueezed(&a, a.rank());
    let dtype = promoted(&[&a, &b], false);
    Ok(vec![c.e.multiplied(Some(&column), Some(&b), dtype)?])
}

/// `bilinear(input1, input2, weight, bias)`: a row of products for each output.
pub(super) fn bilinear(c: &Call<'_>) -> Outputs {
    let (a, b, weight, bias) = (c.tensor("input1")?, c.tensor("input2")?, c.tensor("weight")?, c.optional("bias")?);
    let (Some((_, outer)), Some(&columns)) = (a.shape.split_last(), weight.shape.first()) else {
        return malformed(format!("multiplies {:?} by {:?}", a.shape, weight.shape));
    };
    let output = c.e.new_tensor(&[outer, &[columns]].concat(), a.dtype);
    c.e.record(&[&output], &[Some(&a), Some(&b), Some(&weight)], vec![Some(&a), Some(&b), Some(&weight)], |b| {
        let gradient = |index: usize| b.saved(index).filter(|_| b.needs(index)).map(|saved| b.e.like(saved));
        (0..3).map(gradient).collect()
    });
    Ok(vec![match bias {
        Some(bias) => c.e.biased(output, &bias)?,
        None => output,
    }])
}

/// `einsum` of one or two operands, as PyTorch runs it: dimensions are sorted into kinds, and the operands multiplied by `bmm`.
pub(super) fn einsum(c: &Call<'_>) -> Outputs {
    let equation: String = c.text("equation").unwrap_or("").chars().filter(|letter| !letter.is_whitespace()).collect();
    let Some((left, right)) = equation.split_once("->") else { return malformed("has an equation without a result") };
    let tensors: Vec<Tensor> = c.tensors("tensors")?.into_iter().flatten().collect();
    let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
    let result: Vec<char> = right.chars().collect();
    if terms.len() != tensors.len() || terms.iter().zip(&tensors).any(|(term, tensor)| term.len() != tensor.rank()) {
        return malformed(format!("has the equation `{equation}` for {} tensors", tensors.len()));
    }
    match (&tensors[..], &terms[..]) {
        ([tensor], [term]) => Ok(vec![c.e.sorted(tensor, term, &result)?]),
        ([a, b], [first, second]) => {
            let [a, b] = c.e.lowered([Some(a.clone()), Some(b.clone())]);
            match (a, b) {
                (Some(a), Some(b)) => Ok(vec![c.e.einsum(&a, &b, first, second, &result)?]),
                _ => malformed("has no operands"),
            }
        }
        _ => malformed("multiplies more than two tensors"),
    }
}

impl Eager {
    /// Views a tensor with its letters in another order. Letters that it does not have are left out.
    fn sorted(&self, tensor: &Tensor, term: &[char], wanted: &[char]) -> Result {
        let order: Vec<usize> =
            wanted.iter().filter_map(|letter| term.iter().position(|other| other == letter)).collect();
        match order.len() == tensor.rank() && (0..tensor.rank()).all(|dim| order.contains(&dim)) {
            true => Ok(self.permuted(tensor, &order)),
            false => malformed("sums over letters of one tensor"),
        }
    }

    fn einsum(&self, a: &Tensor, b: &Tensor, first: &[char], second: &[char], result: &[char]) -> Result {
        let mut sizes: BTreeMap<char, u64> = BTreeMap::new();
        for (letter, size) in first.iter().zip(&a.shape).chain(second.iter().zip(&b.shape)) {
            sizes.insert(*letter, *size);
        }
        if result.iter().any(|letter| !sizes.contains_key(letter)) {
            return malformed("has a letter in its result that no tensor has");
        }
        let is_summed = |letter: &&char| second.contains(letter) && !result.contains(letter);
        if !first.iter().any(|letter| is_summed(&letter)) {
            return self.aligned_product(a, b, first, second, result);
        }
        let pick = |letters: &[char], keeps: &dyn Fn(&char) -> bool| {
            letters.iter().copied().filter(|l| keeps(l)).collect::<Vec<char>>()
        };
        let batch = pick(result, &|l| first.contains(l) && second.contains(l));
        let rows = pick(result, &|l| first.contains(l) && !second.contains(l));
        let columns = pick(result, &|l| second.contains(l) && !first.contains(l));
        let summed = pick(first, &|l| is_summed(&l));
        let size = |letters: &[char]| {
            elements(&letters.iter().filter_map(|letter| sizes.get(letter).copied()).collect::<Vec<u64>>())
        };
        let left = self.sorted(a, first, &[&batch[..], &rows, &summed].concat())?;
        let right = self.sorted(b, second, &[&batch[..], &summed, &columns].concat())?;
        let left = self.reshape(&left, &[size(&batch), size(&rows), size(&summed)])?;
        let right = self.reshape(&right, &[size(&batch), size(&summed), size(&columns)])?;
        let order = [&batch[..], &rows, &columns].concat();
        let shape: Vec<u64> = order.iter().filter_map(|letter| sizes.get(letter).copied()).collect();
        let product = self.viewed(&self.bmm(&left, &right)?, &shape)?;
        self.sorted(&product, &order, result)
    }

    /// Multiplies two tensors of which no letter is summed.
    fn aligned_product(&self, a: &Tensor, b: &Tensor, first: &[char], second: &[char], result: &[char]) -> Result {
        let align = |tensor: &Tensor, term: &[char]| -> Result {
            let mut aligned = self.sorted(tensor, term, result)?;
            for (dim, letter) in result.iter().enumerate() {
                if !term.contains(letter) {
                    aligned = self.unsqueezed(&aligned, dim.min(aligned.rank()));
                }
            }
            Ok(aligned)
        };
        let (a, b) = (align(a, first)?, align(b, second)?);
        let dtype = promoted(&[&a, &b], false);
        self.multiplied(Some(&a), Some(&b), dtype)
    }
}
