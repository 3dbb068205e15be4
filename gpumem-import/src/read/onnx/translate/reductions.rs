//! Reductions along axes, positions of extremes, sorted parts, sums along an axis.

use super::{Call, Result, Translator, refuse};
use crate::model::{Argument, Dtype, ValueId};

impl Translator<'_> {
    /// Translates a reduction. `None` if it is another operation.
    pub(super) fn reduction(&mut self, call: &Call<'_, '_>) -> Result<Option<Vec<ValueId>>> {
        let one = |value: Result<ValueId>| value.map(|value| Some(vec![value]));
        match call.kind {
            "ReduceMean" => one(self.reduce(call, "mean", &[])),
            "ReduceSum" => one(self.reduce(call, "sum", &[])),
            "ReduceMax" => one(self.reduce(call, "amax", &[])),
            "ReduceMin" => one(self.reduce(call, "amin", &[])),
            "ReduceProd" => one(self.reduce(call, "prod", &[])),
            "ReduceLogSumExp" => one(self.reduce(call, "logsumexp", &[])),
            "ReduceL1" => one(self.reduce(call, "linalg_vector_norm", &[("ord", Argument::Float(1.0))])),
            "ReduceL2" => one(self.reduce(call, "linalg_vector_norm", &[("ord", Argument::Float(2.0))])),
            "ReduceSumSquare" => {
                let value = call.tensor(0)?;
                let square = self.of_one("pow", value, &[("exponent", Argument::Int(2))])?;
                one(self.reduce_of(call, square, "sum", &[]))
            }
            "ArgMax" | "ArgMin" => {
                let value = call.tensor(0)?;
                let dim = self.dim(call.int("axis", 0), self.rank(value))?;
                let keeps = call.int("keepdims", 1) != 0;
                let mut shape = self.dims(value);
                if keeps {
                    shape[dim] = 1;
                } else {
                    shape.remove(dim);
                }
                let op = if call.kind == "ArgMax" { "argmax" } else { "argmin" };
                let arguments = [
                    ("self", Argument::Tensor(value)),
                    ("dim", Argument::Int(dim as i64)),
                    ("keepdim", Argument::Bool(keeps)),
                ];
                one(self.emit(op, &arguments, Dtype::I64, shape))
            }
            "TopK" => {
                let (value, count) = (call.tensor(0)?, self.integers(call.tensor(1)?)?);
                let dim = self.dim(call.int("axis", -1), self.rank(value))?;
                let Some(count) = count.first().and_then(|&count| u64::try_from(count).ok()) else {
                    return refuse("it takes no count");
                };
                let mut shape = self.dims(value);
                shape[dim] = count;
                let arguments = vec![
                    ("self".into(), Argument::Tensor(value)),
                    ("k".into(), Argument::Int(count as i64)),
                    ("dim".into(), Argument::Int(dim as i64)),
                    ("largest".into(), Argument::Bool(call.int("largest", 1) != 0)),
                ];
                let dtype = self.dtype(value);
                self.emit_all("topk", arguments, &[(dtype, shape.clone()), (Dtype::I64, shape)]).map(Some)
            }
            "CumSum" => {
                let (value, dims) = (call.tensor(0)?, self.integers(call.tensor(1)?)?);
                if call.int("exclusive", 0) != 0 || call.int("reverse", 0) != 0 {
                    return refuse("it sums backwards, or without the element itself");
                }
                let dim = self.dim(dims.first().copied().unwrap_or(0), self.rank(value))?;
                one(self.of_one("cumsum", value, &[("dim", Argument::Int(dim as i64))]))
            }
            _ => Ok(None),
        }
    }

    fn reduce(&mut self, call: &Call<'_, '_>, op: &str, more: &[(&str, Argument)]) -> Result<ValueId> {
        self.reduce_of(call, call.tensor(0)?, op, more)
    }

    fn reduce_of(
        &mut self,
        call: &Call<'_, '_>,
        value: ValueId,
        op: &str,
        more: &[(&str, Argument)],
    ) -> Result<ValueId> {
        let rank = self.rank(value);
        let axes = match call.optional(1) {
            Some(axes) => Some(self.integers(axes)?),
            None => call.ints("axes"),
        };
        let axes = axes.unwrap_or_default();
        if axes.is_empty() && call.int("noop_with_empty_axes", 0) != 0 {
            return Ok(value);
        }
        let mut dims = Vec::new();
        for axis in axes {
            dims.push(self.dim(axis, rank)?);
        }
        if dims.is_empty() {
            dims = (0..rank).collect();
        }
        dims.sort_unstable();
        dims.dedup();
        let keeps = call.int("keepdims", 1) != 0;
        let sizes = self.dims(value);
        let shape = sizes.iter().enumerate().filter_map(|(dim, &size)| match dims.contains(&dim) {
            true => keeps.then_some(1),
            false => Some(size),
        });
        let shape = shape.collect();
        let listed = Argument::Ints(dims.iter().map(|&dim| dim as i64).collect());
        let mut arguments = vec![("self", Argument::Tensor(value))];
        arguments.extend(more.iter().cloned());
        arguments.push(("dim", listed));
        arguments.push(("keepdim", Argument::Bool(keeps)));
        let dtype = self.dtype(value);
        self.emit(op, &arguments, dtype, shape)
    }
}
