//! Low-rank adapters (LoRA) of a program: the weight of each, and its product that is added to that weight.

use super::functions::Function;
use super::ops::{CodedProduct, Pointwise, Product};
use super::{Class, Op, Operation, Program, Slot, TensorId};
use alloc::string::String;
use alloc::vec::Vec;

/// An adapter: with it, the weight is `W + factor * B A`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapter {
    /// The weight W.
    pub weight: TensorId,
    /// A, `[rank, in_features]`.
    pub a: TensorId,
    /// B, `[out_features, rank]`.
    pub b: TensorId,
    /// Factor of the product B A.
    pub factor: f64,
    /// Columns of A (`in_features`), rows of B (`out_features`), and rows of A (`rank`).
    pub sizes: [usize; 3],
    /// True if W is stored as `[in_features, out_features]`.
    pub transposed: bool,
}

/// End of the name of an adapter's A.
const A: &str = "lora_A.weight";
/// End of the name of an adapter's B.
const B: &str = "lora_B.weight";

/// True if `name` is that of an adapter's parameter.
pub fn is_of_adapter(name: &str) -> bool {
    [A, B].iter().any(|end| name.strip_suffix(end).is_some_and(|stem| stem.is_empty() || stem.ends_with('.')))
}

impl Program {
    /// Returns the adapters that the operations of a forward pass apply.
    pub fn adapters(&self) -> Vec<Adapter> {
        let parameters = self.of_class(Class::Parameter);
        parameters.filter_map(|a| self.adapter(a, self.tensor(a).name.strip_suffix(A)?)).collect()
    }

    /// Returns the adapter whose A is this tensor and whose names begin with `stem`. `None` if the parameters do not form an adapter.
    fn adapter(&self, a: TensorId, stem: &str) -> Option<Adapter> {
        if !stem.is_empty() && !stem.ends_with('.') {
            return None;
        }
        let named = |end: &str| {
            let name = String::from(stem) + end;
            self.of_class(Class::Parameter).find(|&id| self.tensor(id).name == name)
        };
        let b = named(B)?;
        let weight = named("weight").or_else(|| named("in_proj_weight"))?;
        let (down, up) = (self.map_by(a)?, self.map_by(b)?);
        let transposed = self.map_by(weight)?.1.transposed;
        let sizes = [down.1.in_features, up.1.out_features, up.1.in_features].map(|size| size as usize);
        let [columns, rows, rank] = sizes.map(|size| size as u64);
        let elements = |id: TensorId| self.tensor(id).shape.elements();
        let is_sound = elements(a) == rank.checked_mul(columns)
            && elements(b) == rank.checked_mul(rows)
            && elements(weight) == rows.checked_mul(columns);
        let factor = self.factor_between(down.0, up.0)?;
        is_sound.then_some(Adapter { weight, a, b, factor, sizes, transposed })
    }

    /// Returns the first linear operation with this weight, which may be quantized.
    fn map_by(&self, weight: TensorId) -> Option<(&Operation, &Product)> {
        let mut readers = self.operations.iter().filter(|operation| operation.read(Slot::Input(1)) == Some(weight));
        readers.find_map(|operation| match operation.forward() {
            Some(Op::Product(op) | Op::CodedProduct(CodedProduct { product: op, .. })) => Some((operation, op)),
            _ => None,
        })
    }

    /// Returns the factor between the output of `down` and the input of `up`. `None` if they are not connected.
    fn factor_between(&self, down: &Operation, up: &Operation) -> Option<f64> {
        let (made, read) = (down.written(Slot::Output)?, up.read(Slot::Input(0))?);
        let scales = self.operations.iter().find_map(|operation| match operation.forward() {
            Some(Op::Pointwise(Pointwise { function: Function::Affine, arguments, .. }))
                if operation.read(Slot::Input(0)) == Some(made) && operation.written(Slot::Output) == Some(read) =>
            {
                arguments.first().copied()
            }
            _ => None,
        });
        scales.or((made == read).then_some(1.0))
    }
}

impl Adapter {
    /// Adds `factor * B A` to the elements of W.
    pub fn merge(&self, weight: &mut [f32], a: &[f32], b: &[f32]) {
        let [columns, rows, rank] = self.sizes;
        let mut row = alloc::vec![0.0f64; columns];
        for (out, b) in b.chunks_exact(rank.max(1)).enumerate().take(rows) {
            row.fill(0.0);
            for (&b, a) in b.iter().zip(a.chunks_exact(columns.max(1))) {
                row.iter_mut().zip(a).for_each(|(sum, &a)| *sum += f64::from(b) * f64::from(a));
            }
            for (column, sum) in row.iter().enumerate() {
                let at = if self.transposed { column * rows + out } else { out * columns + column };
                if let Some(weight) = weight.get_mut(at) {
                    *weight = (f64::from(*weight) + self.factor * sum) as f32;
                }
            }
        }
    }
}
