//! Convolutions, products, normalisations and attention.

use super::pools::{Window, ints};
use super::{Call, Fault, Result, Translator, refuse};
use crate::model::{Argument, Dtype, StateKind, ValueId};

impl Translator<'_> {
    /// Translates an operation with parameters. `None` if it is another one.
    pub(super) fn layer(&mut self, call: &Call<'_, '_>) -> Result<Option<Vec<ValueId>>> {
        let one = match call.kind {
            "Conv" => self.convolution(call)?,
            "ConvTranspose" => self.transposed(call)?,
            "Gemm" => self.gemm(call)?,
            "MatMul" => {
                let (a, b) = (call.tensor(0)?, call.tensor(1)?);
                self.product(a, b)?
            }
            "Einsum" => self.einsum(call)?,
            "BatchNormalization" => self.batch_norm(call)?,
            "InstanceNormalization" => {
                let value = call.tensor(0)?;
                let (weight, bias) = self.affine(call, 1.0)?;
                let more = [
                    ("weight", weight),
                    ("bias", bias),
                    ("running_mean", Argument::None),
                    ("running_var", Argument::None),
                    ("use_input_stats", Argument::Bool(true)),
                    ("momentum", Argument::Float(0.1)),
                    ("eps", Argument::Float(call.float("epsilon", 1e-5))),
                ];
                self.of_input("instance_norm", value, &more)?
            }
            "LayerNormalization" | "RMSNormalization" | "SimplifiedLayerNormalization" => self.row_norm(call)?,
            "GroupNormalization" => self.group_norm(call)?,
            "LpNormalization" => self.lp_norm(call)?,
            "Attention" => return self.attention(call).map(Some),
            _ => return Ok(None),
        };
        Ok(Some(vec![one]))
    }

    /// Adds an operation that keeps shape and type of a value, which is its argument `input`.
    fn of_input(&mut self, op: &str, value: ValueId, more: &[(&str, Argument)]) -> Result<ValueId> {
        let mut arguments = vec![("input", Argument::Tensor(value))];
        arguments.extend(more.iter().cloned());
        let (dtype, shape) = (self.dtype(value), self.dims(value));
        self.emit(op, &arguments, dtype, shape)
    }

    /// Returns a bias. `None` if it is a constant of zeros, as exporters write for none.
    fn bias(&self, value: Option<ValueId>) -> Argument {
        match value {
            Some(value) if !self.is_constant(value, 0.0) => Argument::Tensor(value),
            _ => Argument::None,
        }
    }

    /// True for a computed constant that has this number everywhere.
    fn is_constant(&self, value: ValueId, number: f64) -> bool {
        let is_saved = self.state(value).is_some_and(|state| !matches!(state.kind, StateKind::Constant));
        !is_saved && self.numbers(value).is_some_and(|numbers| numbers.iter().all(|&other| other == number))
    }

    /// Returns the factor and the summand of a normalisation. `None` for constants that change nothing.
    fn affine(&self, call: &Call<'_, '_>, factor: f64) -> Result<(Argument, Argument)> {
        let weight = call.optional(1).filter(|&weight| !self.is_constant(weight, factor));
        Ok((weight.map_or(Argument::None, Argument::Tensor), self.bias(call.optional(2))))
    }

    fn convolution(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (mut value, weight) = (call.tensor(0)?, call.tensor(1)?);
        let (outer, axes) = self.image(value)?;
        let kernel = self.dims(weight);
        let groups = call.int("group", 1).max(1);
        let [filters, inputs, kernel @ ..] = &kernel[..] else { return refuse("its weight has no axes") };
        if inputs.checked_mul(groups as u64) != Some(outer[1]) {
            return refuse(format!("its weight is for {inputs} channels a group, and the value has {}", outer[1]));
        }
        let mut window = Window::read(call, kernel, &axes)?;
        let outputs = window.outputs(&axes)?;
        if window.even().is_none() {
            let sides: Vec<(i64, i64)> = [(0, 0); 2].into_iter().chain(window.sides.iter().copied()).collect();
            value = self.padded(value, &sides, "constant", 0.0)?;
            window.sides = vec![(0, 0); axes.len()];
        }
        let padding = window.even().unwrap_or_default();
        let arguments = [
            ("input", Argument::Tensor(value)),
            ("weight", Argument::Tensor(weight)),
            ("bias", self.bias(call.optional(2))),
            ("stride", ints(window.stride)),
            ("padding", ints(padding)),
            ("dilation", ints(window.dilation)),
            ("groups", Argument::Int(groups)),
        ];
        let dtype = self.dtype(value);
        self.emit(&format!("conv{}d", axes.len()), &arguments, dtype, [&[outer[0], *filters][..], &outputs].concat())
    }

    fn transposed(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (value, weight) = (call.tensor(0)?, call.tensor(1)?);
        let (outer, axes) = self.image(value)?;
        let kernel = self.dims(weight);
        let groups = call.int("group", 1).max(1);
        let [_, filters, kernel @ ..] = &kernel[..] else { return refuse("its weight has no axes") };
        let window = Window::read(call, kernel, &axes)?;
        let mut extra = call.ints("output_padding").unwrap_or_else(|| vec![0; axes.len()]);
        let given = call.ints("output_shape");
        extra.resize(axes.len(), 0);
        let is_size = |size: &i64| (0..1 << 40).contains(size);
        if !extra.iter().chain(given.iter().flatten()).all(is_size) || axes.iter().any(|&size| size > 1 << 40) {
            return refuse("its sizes are none");
        }
        let mut outputs = Vec::new();
        let mut padding = Vec::new();
        for axis in 0..axes.len() {
            let (before, after) = window.sides[axis];
            let span = (kernel[axis] as i64 - 1) * window.dilation[axis] + 1;
            let full = (axes[axis] as i64 - 1).checked_mul(window.stride[axis]).and_then(|size| size.checked_add(span));
            let full = full.ok_or_else(|| Fault("its image is too large".into()))?;
            // More padding at the end than at the start is less output there.
            let (pad, more) = match given.as_ref().and_then(|given| given.get(axis)) {
                Some(size) => {
                    let total = full + extra[axis] - size;
                    (total.max(0).div_euclid(2) + total.max(0) % 2, total.max(0) % 2 + extra[axis])
                }
                None => (before.max(after), before.max(after) * 2 - before - after + extra[axis]),
            };
            if more < 0 || more >= window.stride[axis].max(window.dilation[axis]) {
                return refuse("its padding differs from one end to the other");
            }
            extra[axis] = more;
            padding.push(pad);
            outputs.push(u64::try_from(full - 2 * pad + more).map_err(|_| Fault("its image is empty".into()))?);
        }
        let arguments = [
            ("input", Argument::Tensor(value)),
            ("weight", Argument::Tensor(weight)),
            ("bias", self.bias(call.optional(2))),
            ("stride", ints(window.stride)),
            ("padding", ints(padding)),
            ("output_padding", ints(extra)),
            ("groups", Argument::Int(groups)),
            ("dilation", ints(window.dilation)),
        ];
        let channels = filters.checked_mul(groups as u64).ok_or_else(|| Fault("it has too many channels".into()))?;
        let dtype = self.dtype(value);
        self.emit(
            &format!("conv_transpose{}d", axes.len()),
            &arguments,
            dtype,
            [&[outer[0], channels][..], &outputs].concat(),
        )
    }

    /// Swaps the last two dimensions.
    pub(super) fn turn(&mut self, value: ValueId) -> Result<ValueId> {
        let mut shape = self.dims(value);
        let rank = shape.len();
        if rank < 2 {
            return refuse("it turns a value without two axes");
        }
        shape.swap(rank - 2, rank - 1);
        let dtype = self.dtype(value);
        if rank == 2 {
            return self.emit("t", &[("self", Argument::Tensor(value))], dtype, shape);
        }
        let arguments = [("self", Argument::Tensor(value)), ("dim0", Argument::Int(-2)), ("dim1", Argument::Int(-1))];
        self.emit("transpose", &arguments, dtype, shape)
    }

    fn gemm(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (mut a, mut b) = (call.tensor(0)?, call.tensor(1)?);
        let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
        let mut bias = call.optional(2).filter(|_| beta != 0.0);
        if call.int("transA", 0) != 0 {
            a = self.turn(a)?;
        }
        let (left, right) = (self.dims(a), self.dims(b));
        let ([rows, inner], [first, second]) = (&left[..], &right[..]) else {
            return refuse("it multiplies no matrices");
        };
        let is_turned = self.turned.contains(&b);
        let is_linear = is_turned || call.int("transB", 0) != 0;
        let (inputs, columns) = if is_linear { (*second, *first) } else { (*first, *second) };
        if inputs != *inner {
            return refuse(format!("it multiplies {left:?} and {right:?}"));
        }
        if let Some(given) = bias {
            if self.dims(given).len() == 2 && self.dims(given)[0] == 1 {
                bias = Some(self.reshaped(given, vec![columns])?);
            }
            if beta != 1.0 {
                bias = Some(self.of_one("mul", given, &[("other", Argument::Float(beta))])?);
            }
        }
        let (dtype, shape) = (self.dtype(a), vec![*rows, columns]);
        let is_plain = alpha == 1.0 && bias.is_none_or(|bias| self.dims(bias) == [columns]);
        if is_linear && is_plain {
            let arguments =
                [("input", Argument::Tensor(a)), ("weight", Argument::Tensor(b)), ("bias", self.bias(bias))];
            return self.emit("linear", &arguments, dtype, shape);
        }
        if let (true, false, Some(bias)) = (is_plain, is_linear, bias) {
            let arguments =
                [("self", Argument::Tensor(bias)), ("mat1", Argument::Tensor(a)), ("mat2", Argument::Tensor(b))];
            return self.emit("addmm", &arguments, dtype, shape);
        }
        if is_linear {
            b = self.turn(b)?;
        }
        let mut product =
            self.emit("matmul", &[("self", Argument::Tensor(a)), ("other", Argument::Tensor(b))], dtype, shape)?;
        if alpha != 1.0 {
            product = self.of_one("mul", product, &[("other", Argument::Float(alpha))])?;
        }
        match bias {
            Some(bias) => self.binary("add", product, bias),
            None => Ok(product),
        }
    }

    fn product(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let dtype = self.dtype(a);
        let (left, right) = (self.dims(a), self.dims(b));
        if self.turned.contains(&b) {
            // The exporter has transposed the weight of a linear layer.
            let (Some((&inner, outer)), [columns, inputs]) = (left.split_last(), &right[..]) else {
                return refuse("it has no axis");
            };
            if inner != *inputs {
                return refuse(format!("it multiplies {left:?} and [{inputs}, {columns}]"));
            }
            let arguments = [("input", Argument::Tensor(a)), ("weight", Argument::Tensor(b)), ("bias", Argument::None)];
            return self.emit("linear", &arguments, dtype, [outer, &[*columns]].concat());
        }
        let (mut wide, mut tall) = (left.clone(), right.clone());
        if wide.len() == 1 {
            wide.insert(0, 1);
        }
        if tall.len() == 1 {
            tall.push(1);
        }
        let ([outer_a @ .., rows, inner], [outer_b @ .., depth, columns]) = (&wide[..], &tall[..]) else {
            return refuse("it multiplies numbers");
        };
        if inner != depth {
            return refuse(format!("it multiplies {left:?} and {right:?}"));
        }
        let mut shape = self.common(outer_a, outer_b)?;
        if left.len() > 1 {
            shape.push(*rows);
        }
        if right.len() > 1 {
            shape.push(*columns);
        }
        self.emit("matmul", &[("self", Argument::Tensor(a)), ("other", Argument::Tensor(b))], dtype, shape)
    }

    fn einsum(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let tensors = call.tensors()?;
        let equation: String = call.text("equation").unwrap_or("").chars().filter(|c| !c.is_whitespace()).collect();
        let Some((left, right)) = equation.split_once("->") else { return refuse("its equation has no result") };
        let mut sizes = std::collections::HashMap::new();
        for (letters, &value) in left.split(',').zip(&tensors) {
            let shape = self.dims(value);
            if letters.contains('.') || letters.len() != shape.len() {
                return refuse("its equation leaves out axes");
            }
            sizes.extend(letters.chars().zip(shape));
        }
        let shape: Option<Vec<u64>> = right.chars().map(|letter| sizes.get(&letter).copied()).collect();
        let shape = shape.ok_or_else(|| Fault("its result has an axis that nothing has".into()))?;
        let Some(&first) = tensors.first() else { return refuse("it reads nothing") };
        let arguments = [
            ("equation", Argument::Text(equation.clone())),
            ("tensors", Argument::Tensors(tensors.into_iter().map(Some).collect())),
        ];
        let dtype = self.dtype(first);
        self.emit("einsum", &arguments, dtype, shape)
    }

    fn batch_norm(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let trains = if self.opset >= 14 { call.int("training_mode", 0) != 0 } else { call.has_output(1) };
        let (weight, bias) = self.affine(call, 1.0)?;
        // The statistics of a layer that keeps none are constants.
        let running = |index: usize, number: f64| match call.optional(index) {
            Some(value) if !self.is_constant(value, number) => Argument::Tensor(value),
            _ => Argument::None,
        };
        // ONNX counts what stays, PyTorch what is new.
        let momentum = super::call::shortest(1.0 - call.float("momentum", 0.9), Dtype::F32);
        let more = [
            ("weight", weight),
            ("bias", bias),
            ("running_mean", running(3, 0.0)),
            ("running_var", running(4, 1.0)),
            ("training", Argument::Bool(trains)),
            ("momentum", Argument::Float((momentum * 1e6).round() / 1e6)),
            ("eps", Argument::Float(call.float("epsilon", 1e-5))),
            ("cudnn_enabled", Argument::Bool(true)),
        ];
        self.of_input("batch_norm", value, &more)
    }

    fn row_norm(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let shape = self.dims(value);
        let axis = self.dim(call.int("axis", -1), shape.len())?;
        let eps = Argument::Float(call.float("epsilon", 1e-5));
        let normalized = ints(shape[axis..].iter().map(|&size| size as i64));
        let (weight, bias) = self.affine(call, 1.0)?;
        if call.kind == "LayerNormalization" {
            let more = [
                ("normalized_shape", normalized),
                ("weight", weight),
                ("bias", bias),
                ("eps", eps),
                ("cudnn_enable", Argument::Bool(true)),
            ];
            return self.of_input("layer_norm", value, &more);
        }
        self.of_input("rms_norm", value, &[("normalized_shape", normalized), ("weight", weight), ("eps", eps)])
    }

    fn group_norm(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let groups = call.int("num_groups", 1);
        let (weight, bias) = self.affine(call, 1.0)?;
        if let Argument::Tensor(weight) = weight
            && self.dims(weight) != self.dims(value)[1..2]
        {
            return refuse("its weights are those of groups");
        }
        let more = [
            ("num_groups", Argument::Int(groups)),
            ("weight", weight),
            ("bias", bias),
            ("eps", Argument::Float(call.float("epsilon", 1e-5))),
            ("cudnn_enabled", Argument::Bool(true)),
        ];
        self.of_input("group_norm", value, &more)
    }

    fn lp_norm(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let dim = self.dim(call.int("axis", -1), self.rank(value))?;
        let mut shape = self.dims(value);
        shape[dim] = 1;
        let arguments = [
            ("self", Argument::Tensor(value)),
            ("ord", Argument::Float(call.int("p", 2) as f64)),
            ("dim", ints([dim as i64])),
            ("keepdim", Argument::Bool(true)),
        ];
        let dtype = self.dtype(value);
        let length = self.emit("linalg_vector_norm", &arguments, dtype, shape)?;
        self.binary("div", value, length)
    }

    /// Translates attention of opset 23, of four axes or of three with heads to be split.
    fn attention(&mut self, call: &Call<'_, '_>) -> Result<Vec<ValueId>> {
        if (4..=6).any(|index| call.optional(index).is_some()) || (1..4).any(|index| call.has_output(index)) {
            return refuse("it keeps keys and values of earlier steps");
        }
        if call.float("softcap", 0.0) != 0.0 {
            return refuse("it limits its scores");
        }
        let heads = [call.int("q_num_heads", 0), call.int("kv_num_heads", 0), call.int("kv_num_heads", 0)];
        let mut parts = Vec::new();
        let is_split = self.rank(call.tensor(0)?) == 3;
        for (index, heads) in heads.into_iter().enumerate() {
            let value = call.tensor(index)?;
            let &[batch, steps, width] = &self.dims(value)[..] else {
                parts.push(value);
                continue;
            };
            let Some(heads) = u64::try_from(heads).ok().filter(|&heads| heads > 0 && width % heads == 0) else {
                return refuse("its heads do not divide its features");
            };
            let split = self.reshaped(value, vec![batch, steps, heads, width / heads])?;
            parts.push(self.permuted(split, &[0, 2, 1, 3])?);
        }
        let [query, key, value] = parts[..] else { return refuse("it has no values") };
        let (asked, keys, shape) = (self.dims(query), self.dims(key), self.dims(value));
        let (&[batch, heads, steps, _], &[_, groups, ..], &[.., width]) = (&asked[..], &keys[..], &shape[..]) else {
            return refuse("it has no axes of heads");
        };
        let mut arguments = vec![
            ("query", Argument::Tensor(query)),
            ("key", Argument::Tensor(key)),
            ("value", Argument::Tensor(value)),
        ];
        if let Some(mask) = call.optional(3) {
            arguments.push(("attn_mask", Argument::Tensor(mask)));
        }
        if call.int("is_causal", 0) != 0 {
            arguments.push(("is_causal", Argument::Bool(true)));
        }
        if call.has("scale") {
            arguments.push(("scale", Argument::Float(call.float("scale", 1.0))));
        }
        if groups != heads {
            arguments.push(("enable_gqa", Argument::Bool(true)));
        }
        let dtype = self.dtype(query);
        let made = self.emit("scaled_dot_product_attention", &arguments, dtype, vec![batch, heads, steps, width])?;
        if !is_split {
            return Ok(vec![made]);
        }
        let turned = self.permuted(made, &[0, 2, 1, 3])?;
        Ok(vec![self.reshaped(turned, vec![batch, steps, heads * width])?])
    }
}
