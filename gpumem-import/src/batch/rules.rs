//! The batch dimension of what an operation returns, by the batch dimensions of what it reads.

use super::{Axis, Batch};
use crate::model::{Argument, Model, Node, ValueId};

/// The operation mixes samples.
pub(super) struct Mixes;

type Found = Result<Vec<Option<Axis>>, Mixes>;

/// Returns the axis of each output; the last one stands for all that follow.
pub(super) fn outputs(model: &Model, node: &Node, batch: &Batch, makers: &[Option<usize>]) -> Found {
    let rule = Rule { model, node, batch, makers };
    let one = |axis: Option<Axis>| Ok(vec![axis]);
    let op = node.op.strip_suffix('_').unwrap_or(&node.op);
    match op {
        "view" | "reshape" | "_unsafe_view" | "flatten" | "unflatten" | "squeeze" | "unsqueeze" | "reshape_as"
        | "view_as" | "atleast_1d" => one(rule.reshaped()?),
        "transpose" | "t" | "permute" | "movedim" | "moveaxis" | "swapaxes" | "swapdims" | "adjoint" | "numpy_T"
        | "mT" | "mH" => one(rule.permuted()?),
        "select" | "unbind" => one(rule.removed(&[rule.dim("dim", 0)])?),
        "sum" | "mean" | "amax" | "amin" | "max" | "min" | "argmax" | "argmin" | "var" | "std" | "var_mean"
        | "std_mean" | "prod" | "any" | "all" | "linalg_vector_norm" | "norm" | "logsumexp" | "median" | "mode" => {
            one(rule.reduced()?)
        }
        "matmul" | "bmm" | "mm" | "mv" | "dot" => one(rule.product(&rule.inputs())?),
        "addmm" | "baddbmm" | "addbmm" => one(rule.product(&rule.inputs()[1..])?),
        "linear" | "bilinear" => one(rule.of("input").or(rule.of("input1"))),
        "einsum" => one(rule.einsum()?),
        "embedding" => one(rule.of("indices")),
        "embedding_bag" => one(rule.of("indices").map(|_| Axis::of(0))),
        "index" => one(rule.indexed()?),
        "index_select" => rule.along(rule.of("self"), rule.dim("dim", 0)),
        "gather" | "take_along_dim" => rule.along(rule.of("index").or(rule.of("indices")), rule.dim("dim", 0)),
        "softmax" | "_softmax" | "log_softmax" | "cumsum" | "cumprod" | "sort" | "topk" | "argsort"
        | "logcumsumexp" | "diff" => rule.along(rule.of("self"), rule.dim("dim", -1)),
        "flip" | "roll" => match rule.dims("dims") {
            Some(dims) if rule.of("self").is_some_and(|axis| dims.contains(&axis.dim)) => Err(Mixes),
            _ => one(rule.of("self")),
        },
        "cat" | "concat" | "concatenate" => one(rule.concatenated()?),
        "stack" => one(rule.stacked()?),
        "expand" | "expand_as" | "broadcast_to" => one(rule.expanded()),
        "cosine_similarity" => one(rule.compared()?),
        "repeat" | "tile" => one(rule.repeated()),
        "repeat_interleave" => one(rule.interleaved()?),
        "im2col" | "col2im" => one(rule.kept()?),
        "unfold" => rule.along(rule.of("self"), rule.dim("dimension", 0)),
        "zeros" | "ones" | "full" | "empty" | "rand" | "randn" | "randint" | "arange" | "new_zeros" | "new_ones"
        | "new_full" | "new_empty" => one(rule.created()),
        "scaled_dot_product_attention" => one(rule.attended()?),
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => Ok(rule.recurrent()),
        "histc" | "bincount" | "unique" | "nonzero" | "unique_consecutive" => Err(Mixes),
        "batch_norm" | "layer_norm" | "group_norm" | "instance_norm" | "rms_norm" | "native_layer_norm"
        | "native_batch_norm" | "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d"
        | "conv_transpose3d" | "convolution" | "_convolution" | "pad" | "slice" | "narrow" | "split"
        | "split_with_sizes" | "chunk" | "tensor_split" | "one_hot" | "scatter" | "scatter_add" | "index_put"
        | "index_add" | "masked_select" => one(rule.kept()?),
        _ if op.contains("pool") || op.starts_with("upsample") || op.starts_with("pixel_") => one(rule.kept()?),
        _ => one(rule.broadcast()?),
    }
}

/// A dimension that no tensor has, and that may be counted on from.
const NO_DIMENSION: usize = usize::MAX / 2;

/// Returns the index of a dimension that may be counted from the end.
pub(crate) fn index(dim: i64, rank: usize) -> usize {
    let dim = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(dim).unwrap_or(NO_DIMENSION)
}

/// Returns, for each dimension of the result of a change of order, the dimension of the input that it is.
pub(crate) fn order(node: &Node, rank: usize) -> Vec<usize> {
    let dims = |name: &str| match node.argument(name) {
        Some(Argument::Int(dim)) => Some(vec![index(*dim, rank)]),
        Some(Argument::Ints(dims)) => Some(dims.iter().map(|&dim| index(dim, rank)).collect()),
        _ => None,
    };
    if let (Some(from), Some(to)) = (dims("source"), dims("destination")) {
        let mut rest = (0..rank).filter(|dim| !from.contains(dim));
        let place = |dim: usize| match to.iter().position(|&other| other == dim) {
            Some(place) => from.get(place).copied(),
            None => rest.next(),
        };
        return (0..rank).filter_map(place).collect();
    }
    if let Some(dims) = dims("dims") {
        return dims;
    }
    let one = |names: [&str; 2], usual: i64| {
        let dim = names.iter().find_map(|name| dims(name)?.first().copied());
        dim.unwrap_or_else(|| index(usual, rank))
    };
    let usual = if matches!(&node.op[..], "t" | "numpy_T") { 0 } else { -2 };
    let (a, b) = (one(["dim0", "axis0"], usual), one(["dim1", "axis1"], -1));
    (0..rank)
        .map(|dim| {
            if dim == a {
                b
            } else if dim == b {
                a
            } else {
                dim
            }
        })
        .collect()
}

struct Rule<'m> {
    model: &'m Model,
    node: &'m Node,
    batch: &'m Batch,
    makers: &'m [Option<usize>],
}

impl Rule<'_> {
    fn shape(&self, value: ValueId) -> &[u64] {
        &self.model.values[value].shape
    }

    /// Returns the axis of an argument.
    fn of(&self, name: &str) -> Option<Axis> {
        self.node.tensor(name).and_then(|value| self.batch.axes[value])
    }

    fn inputs(&self) -> Vec<ValueId> {
        self.node.tensors().collect()
    }

    /// Returns the first tensor that the operation reads, with its axis. `None` if it has none.
    fn first(&self) -> Option<(ValueId, Axis)> {
        let first = self.node.tensors().next()?;
        Some((first, self.batch.axes[first]?))
    }

    fn output(&self) -> &[u64] {
        self.node.outputs.first().map_or(&[], |&output| self.shape(output))
    }

    fn rank(&self) -> usize {
        self.node.tensors().next().map_or(0, |first| self.shape(first).len())
    }

    /// Returns the index of the dimension that the argument names.
    fn dim(&self, name: &str, default: i64) -> usize {
        let dim = match self.node.argument(name) {
            Some(Argument::Int(dim)) => *dim,
            _ => default,
        };
        index(dim, self.rank())
    }

    /// Returns the dimensions that the argument names. `None` if there is no such argument.
    fn dims(&self, name: &str) -> Option<Vec<usize>> {
        match self.node.argument(name)? {
            Argument::Int(dim) => Some(vec![index(*dim, self.rank())]),
            Argument::Ints(dims) => Some(dims.iter().map(|&dim| index(dim, self.rank())).collect()),
            _ => None,
        }
    }

    /// Returns the axis after a change of the shape that keeps the order of the elements.
    fn reshaped(&self) -> Result<Option<Axis>, Mixes> {
        let Some((first, axis)) = self.first() else { return Ok(None) };
        let inner = self.shape(first)[axis.dim + 1..].iter().product::<u64>() * axis.after;
        // The batch takes the elements `inner` to `inner * size` of the flattened value.
        let mut below = 1;
        for (dim, &size) in self.output().iter().enumerate().rev() {
            let above = below * size;
            if below <= inner
                && inner * self.batch.size <= above
                && inner % below == 0
                && above % (inner * self.batch.size) == 0
            {
                return Ok(Some(Axis { dim, before: above / (inner * self.batch.size), after: inner / below }));
            }
            below = above;
        }
        Err(Mixes)
    }

    fn permuted(&self) -> Result<Option<Axis>, Mixes> {
        let Some((_, axis)) = self.first() else { return Ok(None) };
        let order = order(self.node, self.rank());
        Ok(order.iter().position(|&dim| dim == axis.dim).map(|dim| axis.at(dim)))
    }

    /// Returns the axis after dimensions have gone.
    fn removed(&self, dims: &[usize]) -> Result<Option<Axis>, Mixes> {
        let Some((_, axis)) = self.first() else { return Ok(None) };
        if dims.contains(&axis.dim) {
            return Err(Mixes);
        }
        Ok(Some(axis.at(axis.dim - dims.iter().filter(|&&dim| dim < axis.dim).count())))
    }

    /// Returns the axis of a comparison of vectors along a dimension of two values that are broadcast.
    fn compared(&self) -> Result<Option<Axis>, Mixes> {
        let rank = self.output().len() + 1;
        let dim = match self.node.argument("dim") {
            Some(Argument::Int(dim)) => index(*dim, rank),
            _ => 1,
        };
        match self.common()? {
            Some(axis) if axis.dim == dim => Err(Mixes),
            axis => Ok(axis.map(|axis| if axis.dim > dim { axis.at(axis.dim - 1) } else { axis })),
        }
    }

    fn reduced(&self) -> Result<Option<Axis>, Mixes> {
        let inputs = self.inputs();
        // `max(a, b)` is elementwise.
        if inputs.len() > 1 {
            return self.broadcast();
        }
        let Some((_, axis)) = self.first() else { return Ok(None) };
        let dims = self.dims("dim").filter(|dims| !dims.is_empty()).unwrap_or_else(|| (0..self.rank()).collect());
        if dims.contains(&axis.dim) {
            return Err(Mixes);
        }
        let keeps = self.output().len() == self.rank();
        if keeps { Ok(Some(axis)) } else { self.removed(&dims) }
    }

    /// Returns the axis of a product of two matrices, or of two lists of matrices.
    fn product(&self, inputs: &[ValueId]) -> Result<Option<Axis>, Mixes> {
        let &[a, b, ..] = inputs else { return Ok(None) };
        let rank = self.output().len();
        let mut found: Option<Axis> = None;
        for (value, contracted) in [(a, 1), (b, 2)] {
            let Some(axis) = self.batch.axes[value] else { continue };
            let dims = self.shape(value).len();
            let from_end = dims - axis.dim;
            if from_end == contracted.min(dims) {
                return Err(Mixes);
            }
            // A vector is a row or a column whose other dimension is dropped.
            let at = match (value == a, from_end) {
                (true, _) if self.shape(b).len() == 1 => axis.dim,
                (false, _) if self.shape(a).len() == 1 && from_end > 2 => rank + 1 - from_end,
                _ => match rank.checked_sub(from_end) {
                    Some(at) => at,
                    None => return Err(Mixes),
                },
            };
            let axis = axis.at(at);
            if found.is_some_and(|found| found != axis) {
                return Err(Mixes);
            }
            found = Some(axis);
        }
        Ok(found)
    }

    /// Returns the axis of `einsum`, by the letter of the batch.
    fn einsum(&self) -> Result<Option<Axis>, Mixes> {
        let Some(Argument::Text(equation)) = self.node.argument("equation") else { return Err(Mixes) };
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = equation.split_once("->").ok_or(Mixes)?;
        let mut found = None;
        for (letters, value) in left.split(',').zip(self.inputs()) {
            let Some(axis) = self.batch.axes[value] else { continue };
            let letter = letters.chars().nth(axis.dim).filter(|_| !letters.contains('.')).ok_or(Mixes)?;
            let dim = right.chars().position(|other| other == letter).ok_or(Mixes)?;
            if found.is_some_and(|found| found != axis.at(dim)) {
                return Err(Mixes);
            }
            found = Some(axis.at(dim));
        }
        Ok(found)
    }

    /// Returns the axis of `x[indices]`. Indices of one block of dimensions take its place; those of several come first.
    /// Returns the axis of rows that were sorted, and are put back into the order that they had.
    fn restored(&self, index: ValueId) -> Option<Axis> {
        let maker = |value: ValueId| self.makers.get(value).copied().flatten().map(|maker| &self.model.nodes[maker]);
        let inverse = maker(index)?;
        let order = match (&inverse.op[..], inverse.argument("indices")) {
            ("index_put_" | "index_put", Some(Argument::Tensors(indices))) => (*indices.first()?)?,
            ("argsort", _) => inverse.tensor("self")?,
            _ => return None,
        };
        let sort = maker(order).filter(|node| matches!(&node.op[..], "sort" | "argsort"))?;
        self.batch.axes[sort.tensor("self")?].filter(|axis| axis.dim == 0 && self.shape(index).len() == 1)
    }

    fn indexed(&self) -> Result<Option<Axis>, Mixes> {
        let Some(Argument::Tensors(indices)) = self.node.argument("indices") else { return Err(Mixes) };
        let places: Vec<usize> = (0..indices.len()).filter(|&dim| indices[dim].is_some()).collect();
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return Ok(self.of("self")) };
        if let (&[0], Some(index)) = (&places[..], indices[0])
            && let Some(axis) = self.restored(index)
        {
            return Ok(Some(axis));
        }
        let is_block = last - first + 1 == places.len();
        let start = if is_block { first } else { 0 };
        let rank = indices.iter().flatten().map(|&index| self.shape(index).len()).max().unwrap_or(0);
        let mut found = None;
        for &index in indices.iter().flatten() {
            if let Some(axis) = self.batch.axes[index] {
                found = Some(axis.at(start + rank - self.shape(index).len() + axis.dim));
            }
        }
        let Some(axis) = self.of("self") else { return Ok(found) };
        let is_chosen = indices.get(axis.dim).is_some_and(|index| index.is_some());
        if is_chosen {
            // `x[arange(batch), positions]` takes each sample once.
            return found.map(Some).ok_or(Mixes);
        }
        if found.is_some() {
            return Err(Mixes);
        }
        let before = places.iter().filter(|&&place| place < axis.dim).count();
        Ok(Some(axis.at(if start < axis.dim || !is_block { axis.dim - before + rank } else { axis.dim })))
    }

    /// Keeps an axis if the operation works along another dimension.
    fn along(&self, axis: Option<Axis>, dim: usize) -> Found {
        match axis {
            Some(axis) if axis.dim == dim => Err(Mixes),
            axis => Ok(vec![axis]),
        }
    }

    /// Keeps the axis of the first input. Fails if the dimension has another size.
    fn kept(&self) -> Result<Option<Axis>, Mixes> {
        let Some((first, axis)) = self.first() else { return Ok(None) };
        match self.output().get(axis.dim) == self.shape(first).get(axis.dim) {
            true => Ok(Some(axis)),
            false => Err(Mixes),
        }
    }

    fn concatenated(&self) -> Result<Option<Axis>, Mixes> {
        let dim = self.dim("dim", 0);
        match self.common()? {
            Some(axis) if axis.dim == dim => Err(Mixes),
            axis => Ok(axis),
        }
    }

    fn stacked(&self) -> Result<Option<Axis>, Mixes> {
        let dim = match self.node.argument("dim") {
            Some(Argument::Int(dim)) => index(*dim, self.output().len()),
            _ => 0,
        };
        Ok(self.common()?.map(|axis| if axis.dim >= dim { axis.at(axis.dim + 1) } else { axis }))
    }

    /// Returns the axis that all inputs have which have one.
    fn common(&self) -> Result<Option<Axis>, Mixes> {
        let mut axes = self.node.tensors().filter_map(|value| self.batch.axes[value]);
        let first = axes.next();
        if axes.all(|axis| Some(axis) == first) { Ok(first) } else { Err(Mixes) }
    }

    /// Returns the axis of a value that is repeated along dimensions of size 1, or along new ones.
    fn expanded(&self) -> Option<Axis> {
        let output = self.output();
        let shift = output.len() - self.rank().min(output.len());
        if let Some((_, axis)) = self.first() {
            return Some(axis.at(axis.dim + shift));
        }
        if let Some(axis) = self.of("other") {
            return Some(axis);
        }
        let input = self.node.tensors().next().map_or(&[][..], |first| self.shape(first));
        let is_new = |dim: usize| dim < shift || input[dim - shift] == 1;
        (0..output.len()).find(|&dim| is_new(dim) && output[dim] == self.batch.size).map(Axis::of)
    }

    fn repeated(&self) -> Option<Axis> {
        let output = self.output();
        let shift = output.len() - self.rank().min(output.len());
        let repeats = match self.node.argument("repeats").or(self.node.argument("dims")) {
            Some(Argument::Ints(repeats)) => &repeats[..],
            _ => &[],
        };
        if let Some((_, axis)) = self.first() {
            let dim = axis.dim + shift;
            let repeat = repeats.get(dim).copied().and_then(|repeat| u64::try_from(repeat).ok()).unwrap_or(1);
            return Some(Axis { dim, before: axis.before * repeat, ..axis });
        }
        let dim = repeats.iter().position(|&repeat| u64::try_from(repeat) == Ok(self.batch.size))?;
        let inner = output.get(dim)? / self.batch.size;
        Some(Axis { dim, before: 1, after: inner })
    }

    /// Returns the axis of a value whose elements are repeated one by one.
    fn interleaved(&self) -> Result<Option<Axis>, Mixes> {
        let Some((_, axis)) = self.first() else { return Ok(None) };
        let Some(Argument::Int(_)) = self.node.argument("dim") else { return Err(Mixes) };
        if self.dim("dim", 0) != axis.dim {
            return Ok(Some(axis));
        }
        match self.node.argument("repeats") {
            Some(Argument::Int(repeats)) => {
                let repeats = u64::try_from(*repeats).map_err(|_| Mixes)?;
                Ok(Some(Axis { after: axis.after.checked_mul(repeats).ok_or(Mixes)?, ..axis }))
            }
            _ => Err(Mixes),
        }
    }

    /// Returns the axis of a new tensor: its first dimension if that is as large as the batch. A state of a recurrent layer has it second.
    fn created(&self) -> Option<Axis> {
        let output = *self.node.outputs.first()?;
        let is_recurrent = |node: &&Node| matches!(&node.op[..], "lstm" | "gru" | "rnn_tanh" | "rnn_relu");
        let mut layers = self.model.nodes.iter().filter(is_recurrent);
        let is_state = layers.any(|node| node.tensors().skip(1).any(|value| value == output));
        let dim = usize::from(is_state && self.output().len() == 3);
        (self.output().get(dim) == Some(&self.batch.size)).then(|| Axis::of(dim))
    }

    /// Returns the axis of an attention, which must be before steps and features.
    fn attended(&self) -> Result<Option<Axis>, Mixes> {
        let mut found = None;
        for name in ["query", "key", "value"] {
            let (Some(value), Some(axis)) = (self.node.tensor(name), self.of(name)) else { continue };
            let Some(dim) = (self.output().len() + axis.dim).checked_sub(self.shape(value).len()) else {
                return Err(Mixes);
            };
            if dim + 2 >= self.output().len() || found.is_some_and(|found| found != axis.at(dim)) {
                return Err(Mixes);
            }
            found = Some(axis.at(dim));
        }
        Ok(found)
    }

    fn recurrent(&self) -> Vec<Option<Axis>> {
        let axis = self.of("input");
        let state = axis.map(|axis| axis.at(if self.rank() == 3 { 1 } else { 0 }));
        vec![axis, state]
    }

    /// Returns the axis of an elementwise operation, whose inputs are aligned at their last dimensions.
    fn broadcast(&self) -> Result<Option<Axis>, Mixes> {
        let rank = self.output().len();
        let mut found = None;
        for value in self.inputs() {
            let Some(axis) = self.batch.axes[value] else { continue };
            let Some(dim) = (rank + axis.dim).checked_sub(self.shape(value).len()) else { return Err(Mixes) };
            if found.is_some_and(|found| found != axis.at(dim)) {
                return Err(Mixes);
            }
            found = Some(axis.at(dim));
        }
        Ok(found)
    }
}
