//! Shapes, orders of axes, parts, joins, tables, and values that are made from sizes alone.

use super::{Bound, Call, Fault, Result, Translator, refuse};
use crate::model::{Argument, Dtype, ValueId};

impl Translator<'_> {
    /// Translates an operation that moves elements or makes them. `None` if it is another one.
    pub(super) fn movement(&mut self, call: &Call<'_, '_>) -> Result<Option<Vec<Bound>>> {
        let one = |value: ValueId| Ok(Some(vec![Bound::Tensor(value)]));
        match call.kind {
            "Identity" => match call.inputs.first() {
                Some(Some(bound)) => Ok(Some(vec![bound.clone()])),
                _ => refuse("it has no input"),
            },
            "Constant" => one(self.literal(call)?),
            "Shape" => {
                let dims = self.dims(call.tensor(0)?);
                let clamp =
                    |at: i64| (if at < 0 { at + dims.len() as i64 } else { at }).clamp(0, dims.len() as i64) as usize;
                let (start, end) = (clamp(call.int("start", 0)), clamp(call.int("end", i64::MAX)));
                let sizes: Vec<i64> = dims.get(start..end).unwrap_or(&[]).iter().map(|&size| size as i64).collect();
                one(self.constant(&sizes, &[sizes.len() as u64])?)
            }
            "Size" => {
                let elements = self.model.values[call.tensor(0)?].elements().unwrap_or(0);
                one(self.constant(&[elements as i64], &[])?)
            }
            "Reshape" => {
                let (value, target) = (call.tensor(0)?, self.integers(call.tensor(1)?)?);
                let shape = self.target(value, &target, call.int("allowzero", 0) == 0)?;
                one(self.reshaped(value, shape)?)
            }
            "Flatten" => {
                let value = call.tensor(0)?;
                let (rank, shape) = (self.rank(value) as i64, self.dims(value));
                let axis = call.int("axis", 1);
                let axis = (if axis < 0 { axis + rank } else { axis }).clamp(0, rank) as usize;
                one(self.reshaped(value, vec![shape[..axis].iter().product(), shape[axis..].iter().product()])?)
            }
            "Transpose" => {
                let value = call.tensor(0)?;
                let rank = self.rank(value);
                let order = match call.ints("perm") {
                    Some(order) => order.into_iter().map(|dim| self.dim(dim, rank)).collect::<Result<_>>()?,
                    None => (0..rank).rev().collect::<Vec<_>>(),
                };
                one(self.permuted(value, &order)?)
            }
            "Unsqueeze" | "Squeeze" => one(self.squeezed(call)?),
            "Expand" => {
                let (value, target) = (call.tensor(0)?, self.integers(call.tensor(1)?)?);
                let shape = self.expanded(value, &target)?;
                one(self.expand(value, shape)?)
            }
            "Tile" => {
                let (value, repeats) = (call.tensor(0)?, self.integers(call.tensor(1)?)?);
                one(self.tiled(value, repeats)?)
            }
            "Slice" => one(self.sliced(call)?),
            "Split" => {
                let parts = self.split(call)?;
                Ok(Some(parts.into_iter().map(Bound::Tensor).collect()))
            }
            "SplitToSequence" => Ok(Some(vec![Bound::Sequence(self.split(call)?)])),
            "SequenceConstruct" => Ok(Some(vec![Bound::Sequence(call.tensors()?)])),
            "SequenceAt" => {
                let Some(Some(Bound::Sequence(values))) = call.inputs.first() else {
                    return refuse("it reads no sequence");
                };
                let at = self.integers(call.tensor(1)?)?.first().copied().unwrap_or(0);
                one(values[self.dim(at, values.len())?])
            }
            "ConcatFromSequence" => {
                let Some(Some(Bound::Sequence(values))) = call.inputs.first() else {
                    return refuse("it reads no sequence");
                };
                let stacks = call.int("new_axis", 0) != 0;
                one(self.joined(&values.clone(), call.int("axis", 0), stacks)?)
            }
            "Concat" => one(self.joined(&call.tensors()?, call.int("axis", 0), false)?),
            "Gather" => one(self.gather(call)?),
            "GatherElements" => {
                let (value, index) = (call.tensor(0)?, call.tensor(1)?);
                let dim = self.dim(call.int("axis", 0), self.rank(value))?;
                let arguments = [
                    ("self", Argument::Tensor(value)),
                    ("dim", Argument::Int(dim as i64)),
                    ("index", Argument::Tensor(index)),
                ];
                one(self.emit("gather", &arguments, self.dtype(value), self.dims(index))?)
            }
            "GatherND" => one(self.gather_nd(call)?),
            "ScatterElements" | "ScatterND" | "Scatter" => {
                let (value, index, source) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
                let mut arguments = vec![("index", Argument::Tensor(index)), ("src", Argument::Tensor(source))];
                if call.kind != "ScatterND" {
                    arguments
                        .insert(0, ("dim", Argument::Int(self.dim(call.int("axis", 0), self.rank(value))? as i64)));
                }
                one(self.of_one(if call.kind == "ScatterND" { "scatter_nd" } else { "scatter" }, value, &arguments)?)
            }
            "Pad" => one(self.pad(call)?),
            "ConstantOfShape" => {
                let shape = self.integers(call.tensor(0)?)?;
                let (number, dtype) = match call.value("value") {
                    Some(tensor) => {
                        (super::super::tensor::data(tensor, self.path), super::super::tensor::shape(tensor))
                    }
                    None => (None, Some((Dtype::F32, vec![1]))),
                };
                let Some((dtype, form)) = dtype else { return refuse("its value has a type that is not read") };
                let number =
                    number.and_then(|data| crate::fold::Tensor::read(&data, &form, dtype)?.numbers().first().copied());
                one(self.full(&shape, number.unwrap_or(0.0), dtype)?)
            }
            "Range" => one(self.range(call)?),
            "Trilu" => {
                let value = call.tensor(0)?;
                let diagonal = match call.optional(1) {
                    Some(value) => self.integers(value)?.first().copied().unwrap_or(0),
                    None => 0,
                };
                let op = if call.int("upper", 1) != 0 { "triu" } else { "tril" };
                one(self.of_one(op, value, &[("diagonal", Argument::Int(diagonal))])?)
            }
            "EyeLike" => {
                let value = call.tensor(0)?;
                if call.int("k", 0) != 0 {
                    return refuse("its diagonal is not the main one");
                }
                let dtype = super::super::tensor::dtype(call.int("dtype", 1) as i32).unwrap_or(Dtype::F32);
                one(self.emit("eye", &[], dtype, self.dims(value))?)
            }
            "RandomUniformLike" | "RandomNormalLike" | "Bernoulli" => {
                let value = call.tensor(0)?;
                let op = match call.kind {
                    "RandomUniformLike" => "rand_like",
                    "RandomNormalLike" => "randn_like",
                    _ => "bernoulli",
                };
                one(self.of_one(op, value, &[])?)
            }
            "RandomUniform" | "RandomNormal" => {
                let op = if call.kind == "RandomUniform" { "rand" } else { "randn" };
                let shape = self.sizes_of(&call.ints("shape").unwrap_or_default())?;
                let sizes = Argument::Ints(shape.iter().map(|&size| size as i64).collect());
                one(self.emit(op, &[("size", sizes)], Dtype::F32, shape)?)
            }
            "DepthToSpace" | "SpaceToDepth" => one(self.depth(call)?),
            _ => Ok(None),
        }
    }

    fn literal(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        if let Some(tensor) = call.value("value") {
            let Some((dtype, shape)) = super::super::tensor::shape(tensor) else {
                return refuse("its value has a type or a shape that is not read");
            };
            let data = super::super::tensor::data(tensor, self.path);
            if let Some(value) = self.uniform(data.as_ref(), dtype, &shape)? {
                return Ok(value);
            }
            let value = self.define(&self.node.clone(), dtype, shape)?;
            let key = self.model.values[value].name.clone();
            self.own(key, value, crate::model::StateKind::Constant, data);
            return Ok(value);
        }
        let (numbers, shape): (Vec<f64>, Vec<u64>) = match (call.ints("value_ints"), call.floats("value_floats")) {
            (Some(numbers), _) => return self.constant(&numbers, &[numbers.len() as u64]),
            (_, Some(numbers)) => (numbers.clone(), vec![numbers.len() as u64]),
            _ if call.has("value_int") => return self.constant(&[call.int("value_int", 0)], &[]),
            _ if call.has("value_float") => (vec![call.float("value_float", 0.0)], vec![]),
            _ => return refuse("its value is no tensor"),
        };
        let value = self.define(&self.node.clone(), Dtype::F32, shape)?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
        let key = self.model.values[value].name.clone();
        self.own(key, value, crate::model::StateKind::Constant, Some(crate::model::Data(bytes.into())));
        Ok(value)
    }

    /// Makes a constant that is one number for all samples by its size, so that it can be made for any batch.
    fn uniform(&mut self, data: Option<&crate::model::Data>, dtype: Dtype, shape: &[u64]) -> Result<Option<ValueId>> {
        if shape.first() != Some(&self.batch.size) || self.is_widened || shape.len() < 2 {
            return Ok(None);
        }
        let tensor = data.and_then(|data| crate::fold::Tensor::read(data, shape, dtype));
        let numbers = tensor.map(|tensor| tensor.numbers()).unwrap_or_default();
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        match numbers.split_first() {
            Some((&first, rest)) if rest.iter().all(|&number| number == first) => {
                self.full(&sizes, first, dtype).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn sizes_of(&self, sizes: &[i64]) -> Result<Vec<u64>> {
        sizes.iter().map(|&size| u64::try_from(size).map_err(|_| Fault(format!("it has a size of {size}")))).collect()
    }

    fn full(&mut self, sizes: &[i64], number: f64, dtype: Dtype) -> Result<ValueId> {
        let shape = self.sizes_of(sizes)?;
        let size = Argument::Ints(sizes.to_vec());
        match number {
            0.0 => self.emit("zeros", &[("size", size)], dtype, shape),
            1.0 => self.emit("ones", &[("size", size)], dtype, shape),
            number => self.emit("full", &[("size", size), ("fill_value", Argument::Float(number))], dtype, shape),
        }
    }

    pub(super) fn expand(&mut self, value: ValueId, shape: Vec<u64>) -> Result<ValueId> {
        if self.dims(value) == shape {
            return Ok(value);
        }
        let sizes = shape.iter().map(|&size| size as i64).collect();
        let dtype = self.dtype(value);
        self.emit("expand", &[("self", Argument::Tensor(value)), ("size", Argument::Ints(sizes))], dtype, shape)
    }

    fn squeezed(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let mut value = call.tensor(0)?;
        let axes = match call.optional(1) {
            Some(axes) => Some(self.integers(axes)?),
            None => call.ints("axes"),
        };
        let (adds, rank) = (call.kind == "Unsqueeze", self.rank(value));
        let axes = match axes {
            Some(axes) => axes,
            None if adds => return refuse("it has no axes"),
            None => (0..rank as i64).filter(|&dim| self.dims(value)[dim as usize] == 1).collect(),
        };
        let whole = if adds { rank.saturating_add(axes.len()) } else { rank };
        let mut dims: Vec<usize> = axes.iter().map(|&dim| self.dim(dim, whole)).collect::<Result<_>>()?;
        dims.sort_unstable();
        if !adds {
            dims.reverse();
        }
        for dim in dims {
            let mut shape = self.dims(value);
            let op = if adds { "unsqueeze" } else { "squeeze" };
            if adds {
                shape.insert(dim.min(shape.len()), 1);
            } else if shape.remove(dim) != 1 {
                return refuse("it drops an axis that is longer than 1");
            }
            let dtype = self.dtype(value);
            value =
                self.emit(op, &[("self", Argument::Tensor(value)), ("dim", Argument::Int(dim as i64))], dtype, shape)?;
        }
        Ok(value)
    }

    fn tiled(&mut self, value: ValueId, repeats: Vec<i64>) -> Result<ValueId> {
        let mut shape = self.dims(value);
        if repeats.len() != shape.len() {
            return refuse("it repeats other axes than the value has");
        }
        if repeats.iter().all(|&repeat| repeat == 1) {
            return Ok(value);
        }
        for (size, repeat) in shape.iter_mut().zip(self.sizes_of(&repeats)?) {
            *size = size.checked_mul(repeat).ok_or_else(|| Fault("it repeats too often".into()))?;
        }
        let dtype = self.dtype(value);
        self.emit("repeat", &[("self", Argument::Tensor(value)), ("repeats", Argument::Ints(repeats))], dtype, shape)
    }

    fn sliced(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let mut value = call.tensor(0)?;
        let rank = self.rank(value);
        let list = |index: usize, name: &str| match call.optional(index) {
            Some(list) => self.integers(list).map(Some),
            None => Ok(call.ints(name)),
        };
        let (starts, ends) = (list(1, "starts")?.unwrap_or_default(), list(2, "ends")?.unwrap_or_default());
        let (axes, steps) = (list(3, "axes")?, list(4, "steps")?);
        let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
        for (place, &axis) in axes.iter().enumerate() {
            let (Some(&start), Some(&end)) = (starts.get(place), ends.get(place)) else {
                return refuse("it has no end");
            };
            let dim = self.dim(axis, rank)?;
            let step = steps.as_ref().and_then(|steps| steps.get(place).copied()).unwrap_or(1);
            value = self.slice(value, dim, start, end, step)?;
        }
        Ok(value)
    }

    pub(super) fn slice(&mut self, value: ValueId, dim: usize, start: i64, end: i64, step: i64) -> Result<ValueId> {
        let mut shape = self.dims(value);
        let dtype = self.dtype(value);
        if step == -1 && start == -1 && end < -(shape[dim] as i64) {
            let dims = Argument::Ints(vec![dim as i64]);
            return self.of_one("flip", value, &[("dims", dims)]);
        }
        let Some(step) = u64::try_from(step).ok().filter(|step| *step > 0) else { return refuse("it runs backwards") };
        let size = shape[dim] as i64;
        let clamp = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(0, size);
        let (first, last) = (clamp(start), clamp(end));
        let length = (last - first).max(0) as u64;
        if length as i64 == size && step == 1 {
            return Ok(value);
        }
        shape[dim] = length.div_ceil(step);
        let mut arguments = vec![
            ("self", Argument::Tensor(value)),
            ("dim", Argument::Int(dim as i64)),
            ("start", Argument::Int(first)),
            ("end", Argument::Int(if last == size { i64::MAX } else { last })),
        ];
        if step > 1 {
            arguments.push(("step", Argument::Int(step as i64)));
        }
        self.emit("slice", &arguments, dtype, shape)
    }

    fn split(&mut self, call: &Call<'_, '_>) -> Result<Vec<ValueId>> {
        let value = call.tensor(0)?;
        let dim = self.dim(call.int("axis", 0), self.rank(value))?;
        let size = self.dims(value)[dim];
        let is_sequence = call.kind == "SplitToSequence";
        let given = match call.optional(1) {
            Some(list) => Some(self.integers(list)?),
            None => call.ints("split"),
        };
        let chunks =
            |size: u64, step: u64| (0..size.div_ceil(step)).map(|at| step.min(size - at * step)).collect::<Vec<_>>();
        let sizes = match given {
            Some(list) if is_sequence && call.optional(1).is_some_and(|list| self.rank(list) == 0) => {
                let step = list.first().and_then(|&step| u64::try_from(step).ok()).filter(|step| *step > 0);
                chunks(size, step.ok_or_else(|| Fault("its parts have no length".into()))?)
            }
            Some(list) => self.sizes_of(&list)?,
            None if is_sequence => vec![1; usize::try_from(size.min(1 << 20)).unwrap_or(0)],
            None => {
                let count = call.int("num_outputs", call.node.output.len() as i64).max(1) as u64;
                chunks(size, size.div_ceil(count).max(1))
            }
        };
        if sizes.iter().try_fold(0u64, |sum, &size| sum.checked_add(size)) != Some(size) || sizes.len() > 1 << 20 {
            return refuse("its parts are not the whole");
        }
        let whole = self.dims(value);
        let shapes: Vec<(Dtype, Vec<u64>)> = sizes
            .iter()
            .map(|&size| {
                let mut shape = whole.clone();
                shape[dim] = size;
                (self.dtype(value), shape)
            })
            .collect();
        let arguments = vec![
            ("self".into(), Argument::Tensor(value)),
            ("split_sizes".into(), Argument::Ints(sizes.iter().map(|&size| size as i64).collect())),
            ("dim".into(), Argument::Int(dim as i64)),
        ];
        let parts = self.emit_all("split_with_sizes", arguments, &shapes)?;
        if !is_sequence || call.int("keepdims", 1) != 0 || call.optional(1).is_some() {
            return Ok(parts);
        }
        let mut dropped = Vec::new();
        for part in parts {
            let mut shape = self.dims(part);
            shape.remove(dim);
            dropped.push(self.reshaped(part, shape)?);
        }
        Ok(dropped)
    }

    fn joined(&mut self, values: &[ValueId], axis: i64, stacks: bool) -> Result<ValueId> {
        let Some(&first) = values.first() else { return refuse("it joins nothing") };
        let rank = self.rank(first) + usize::from(stacks);
        let dim = self.dim(axis, rank)?;
        // An expansion of one sample is left out by exporters: it is written again.
        let batch =
            values.iter().find_map(|&value| self.batch.axes[value]).filter(|axis| self.is_widened && axis.dim != dim);
        let mut parts = Vec::new();
        for &value in values {
            let mut part = value;
            let mut shape = self.dims(value);
            if let Some(axis) =
                batch.filter(|axis| !stacks && self.batch.axes[value].is_none() && shape.get(axis.dim) == Some(&1))
            {
                shape[axis.dim] = self
                    .dims(values.iter().copied().find(|&other| self.batch.axes[other].is_some()).unwrap_or(value))
                    [axis.dim];
                part = self.expand(value, shape)?;
            }
            parts.push(part);
        }
        let mut shape = self.dims(parts[0]);
        let mut total = 0u64;
        for &part in &parts {
            let other = self.dims(part);
            let is_alike =
                other.len() == shape.len() && (0..other.len()).all(|at| stacks || at == dim || other[at] == shape[at]);
            if !is_alike {
                return refuse(format!("it joins {shape:?} and {other:?}"));
            }
            total = total.saturating_add(if stacks { 1 } else { other[dim] });
        }
        if stacks {
            shape.insert(dim, total)
        } else {
            shape[dim] = total
        }
        let dtype = self.dtype(parts[0]);
        let tensors = Argument::Tensors(parts.into_iter().map(Some).collect());
        let op = if stacks { "stack" } else { "cat" };
        self.emit(op, &[("tensors", tensors), ("dim", Argument::Int(dim as i64))], dtype, shape)
    }

    fn gather(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (value, index) = (call.tensor(0)?, call.tensor(1)?);
        let dim = self.dim(call.int("axis", 0), self.rank(value))?;
        let (sizes, picked, dtype) = (self.dims(value), self.dims(index), self.dtype(value));
        let mut shape = sizes[..dim].to_vec();
        shape.extend(&picked);
        shape.extend(&sizes[dim + 1..]);
        let numbers = self.numbers(index);
        if let (Some([at]), []) = (numbers.as_deref(), &picked[..]) {
            let at = *at as i64;
            let arguments = [
                ("self", Argument::Tensor(value)),
                ("dim", Argument::Int(dim as i64)),
                ("index", Argument::Int(if at < 0 { at + sizes[dim] as i64 } else { at })),
            ];
            return self.emit("select", &arguments, dtype, shape);
        }
        if let ([whole], Some(numbers)) = (&sizes[..], &numbers) {
            // All elements in their order: an exporter has written a view as a choice of elements.
            let old = if self.batch.axes[value].is_some() { whole / self.batch.size * self.old_batch } else { *whole };
            let is_view =
                numbers.len() as u64 == old && numbers.iter().enumerate().all(|(at, &number)| at as f64 == number);
            if is_view && picked.len() > 1 {
                let target: Vec<i64> = picked.iter().map(|&size| size as i64).collect();
                let shape = self.target(value, &target, false)?;
                return self.reshaped(value, shape);
            }
        }
        let is_table = dim == 0 && sizes.len() == 2 && self.is_parameter(value);
        let is_named = self.state(value).is_some_and(|state| state.key.ends_with(".weight"));
        if is_table && (self.scope.aten == "embedding" || self.scope.aten.is_empty() && (is_named || numbers.is_none()))
        {
            // A file does not say which row is that of padding.
            let [weight, indices] = [value, index].map(Argument::Tensor);
            let arguments = [("weight", weight), ("indices", indices), ("padding_idx", Argument::None)];
            return self.emit("embedding", &arguments, dtype, shape);
        }
        let mut indices = vec![None; dim];
        indices.push(Some(index));
        self.emit("index", &[("self", Argument::Tensor(value)), ("indices", Argument::Tensors(indices))], dtype, shape)
    }

    fn gather_nd(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (value, index) = (call.tensor(0)?, call.tensor(1)?);
        let (sizes, picked) = (self.dims(value), self.dims(index));
        let Some((&count, outer)) = picked.split_last() else { return refuse("it has no indices") };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if call.int("batch_dims", 0) != 0 || count > sizes.len() {
            return refuse("its indices are those of samples");
        }
        let mut indices = Vec::new();
        for at in 0..count {
            let arguments = [
                ("self", Argument::Tensor(index)),
                ("dim", Argument::Int(outer.len() as i64)),
                ("index", Argument::Int(at as i64)),
            ];
            indices.push(Some(self.emit("select", &arguments, self.dtype(index), outer.to_vec())?));
        }
        let shape = [outer, &sizes[count..]].concat();
        let dtype = self.dtype(value);
        self.emit("index", &[("self", Argument::Tensor(value)), ("indices", Argument::Tensors(indices))], dtype, shape)
    }

    fn pad(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let rank = self.rank(value);
        let pads = match call.optional(1) {
            Some(pads) => self.integers(pads)?,
            None => call.ints("pads").unwrap_or_default(),
        };
        let number = match call.optional(2) {
            Some(number) => self.numbers(number).and_then(|numbers| numbers.first().copied()).unwrap_or(0.0),
            None => call.float("value", 0.0),
        };
        let axes: Vec<usize> = match call.optional(3) {
            Some(axes) => self.integers(axes)?.into_iter().map(|dim| self.dim(dim, rank)).collect::<Result<_>>()?,
            None => (0..rank).collect(),
        };
        if pads.len() != 2 * axes.len() {
            return refuse("it does not pad each axis at both ends");
        }
        let mut sides = vec![(0, 0); rank];
        for (place, &dim) in axes.iter().enumerate() {
            sides[dim] = (pads[place], pads[axes.len() + place]);
        }
        let mode = match call.text("mode").unwrap_or("constant") {
            "edge" => "replicate",
            "wrap" => "circular",
            mode => mode,
        };
        self.padded(value, &sides, mode, number)
    }

    /// Pads the axes of a value, each at both ends.
    pub(super) fn padded(&mut self, value: ValueId, sides: &[(i64, i64)], mode: &str, number: f64) -> Result<ValueId> {
        let mut shape = self.dims(value);
        for (size, &(before, after)) in shape.iter_mut().zip(sides) {
            let wide = (*size as i64).checked_add(before).and_then(|size| size.checked_add(after));
            *size =
                wide.and_then(|size| u64::try_from(size).ok()).ok_or_else(|| Fault("it pads by too much".into()))?;
        }
        if sides.iter().all(|side| *side == (0, 0)) {
            return Ok(value);
        }
        // ATen lists the last axis first, and only those that are padded.
        let first = sides.iter().position(|side| *side != (0, 0)).unwrap_or(0);
        let first = if mode == "constant" { first } else { first.min(sides.len().saturating_sub(2).max(2)) };
        let pads = sides[first..].iter().rev().flat_map(|&(before, after)| [before, after]).collect();
        let mut arguments = vec![("self", Argument::Tensor(value)), ("pad", Argument::Ints(pads))];
        if mode != "constant" {
            arguments.push(("mode", Argument::Text(mode.to_string())));
        } else if number != 0.0 {
            arguments.push(("value", Argument::Float(number)));
        }
        let dtype = self.dtype(value);
        self.emit("pad", &arguments, dtype, shape)
    }

    fn range(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let mut bounds = Vec::new();
        for index in 0..3 {
            let bound = call.tensor(index)?;
            let number = self.numbers(bound).and_then(|numbers| numbers.first().copied());
            bounds.push(number.ok_or_else(|| {
                Fault("its length depends on data, and memory for it is not known before a run".into())
            })?);
        }
        let [start, end, step] = bounds[..] else { return refuse("it has no bounds") };
        let count = ((end - start) / step).ceil().max(0.0);
        if !count.is_finite() || count > 9e15 {
            return refuse("it has no end");
        }
        let dtype = self.dtype(value);
        let number =
            |number: f64| if dtype.is_float() { Argument::Float(number) } else { Argument::Int(number as i64) };
        let mut arguments = vec![("end", number(end))];
        if start != 0.0 || step != 1.0 {
            arguments.insert(0, ("start", number(start)));
        }
        if step != 1.0 {
            arguments.push(("step", number(step)));
        }
        self.emit("arange", &arguments, dtype, vec![count as u64])
    }

    /// Moves blocks of pixels into channels, or back.
    fn depth(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let block = call.int("blocksize", 1).max(1) as u64;
        let &[n, c, h, w] = &self.dims(value)[..] else { return refuse("it reads no images") };
        let square = block.checked_mul(block).ok_or_else(|| Fault("its blocks are too large".into()))?;
        let parts: ([u64; 6], [usize; 6], [u64; 4]) = match (call.kind, call.text("mode")) {
            ("DepthToSpace", _) if !c.is_multiple_of(square) => {
                return refuse("its channels are not a multiple of its blocks");
            }
            ("DepthToSpace", Some("CRD")) => {
                let shape = vec![n, c / square, h.saturating_mul(block), w.saturating_mul(block)];
                let arguments = [("self", Argument::Tensor(value)), ("upscale_factor", Argument::Int(block as i64))];
                return self.emit("pixel_shuffle", &arguments, self.dtype(value), shape);
            }
            ("DepthToSpace", _) => {
                let wide = [n, c / square, h.saturating_mul(block), w.saturating_mul(block)];
                ([n, block, block, c / square, h, w], [0, 3, 4, 1, 5, 2], wide)
            }
            _ if !h.is_multiple_of(block) || !w.is_multiple_of(block) => {
                return refuse("its blocks do not fill the image");
            }
            _ => (
                [n, c, h / block, block, w / block, block],
                [0, 3, 5, 1, 2, 4],
                [n, c.saturating_mul(square), h / block, w / block],
            ),
        };
        let split = self.reshaped(value, parts.0.to_vec())?;
        let turned = self.permuted(split, &parts.1)?;
        self.reshaped(turned, parts.2.to_vec())
    }
}
