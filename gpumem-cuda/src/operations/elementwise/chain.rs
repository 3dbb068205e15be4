//! The launch of a chain of elementwise operations: `kernels/elementwise/chain.cu`.

use crate::calls::Launch;
use crate::operations::context::{Context, LaunchContext};
use crate::operations::elementwise::binary::Plan;
use crate::operations::elementwise::{activation_mask, binary, dropout, formula, pointwise, sum};
use crate::operations::grid::pieces;
use gpumem_core::Role;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::functions::Kept;
use gpumem_core::program::ops::{Axis, Binary, Formula, Mask, Pointwise, Rectifier, Sum};
use gpumem_core::program::{Action, Layout, Op, Operation, Pass, Slot, TensorId};
use gpumem_core::shape::Shape;
use std::collections::BTreeMap;

/// The most pointers of the kernel, to tensors that it only reads and to tensors that it writes.
const POINTERS: [usize; 2] = [8, 6];

/// The most tensors of a launch: 16 bytes of each are in registers.
const MOST: usize = 12;

/// A tensor that is loaded.
#[derive(Clone)]
struct Load {
    tensor: TensorId,
    /// For a broadcast tensor, an expression for its index from the output element's index `at`. The flag is true if one element serves all
    /// elements of a thread. `None` for a tensor that is not broadcast.
    repeated: Option<(String, bool)>,
    /// The number of its value.
    value: usize,
}

/// Consecutive elementwise operations over equally many elements.
///
/// Every value has a number: `r[number]` in the kernel is the value as memory would have stored it, rounded.
#[derive(Clone)]
pub(crate) struct Chain<'a> {
    placed: &'a Placed,
    setting: LaunchContext,
    /// Elements of every tensor that is not broadcast, and their shape and layout.
    elements: u64,
    lies: (Shape, Layout),
    loads: Vec<Load>,
    /// The number of the latest value of each tensor that is not broadcast.
    held: BTreeMap<TensorId, usize>,
    /// Activation masks, in the order of the kernel's words for them: those that are loaded, then those that are written.
    sides: Vec<TensorId>,
    /// True if broadcast elements are the same for eight elements at a time, as masks require.
    in_eights: bool,
    written: Vec<TensorId>,
    values: usize,
    terms: usize,
    work: Vec<String>,
    state: Option<TensorId>,
    rows: Vec<u32>,
    /// For each random stream, the number of neighbouring elements that share a draw.
    shares: Vec<u64>,
    /// Draws of a micro-batch, if the batch is split: one number for all streams. `None` if nothing is drawn yet.
    drawn: Option<u64>,
}

impl<'a> Chain<'a> {
    /// Returns a chain without operations, over the elements of the tensor that `first` writes; `None` if it writes none.
    pub(crate) fn like(placed: &'a Placed, first: &Operation, setting: LaunchContext) -> Option<Chain<'a>> {
        let tensor = placed.program.tensor(first.writes.first()?.tensor);
        Some(Chain {
            placed,
            setting,
            elements: tensor.stored(setting.batch)?,
            lies: (tensor.shape, tensor.layout),
            loads: Vec::new(),
            held: BTreeMap::new(),
            sides: Vec::new(),
            in_eights: true,
            written: Vec::new(),
            values: 0,
            terms: 0,
            work: Vec::new(),
            state: None,
            rows: Vec::new(),
            shares: Vec::new(),
            drawn: None,
        })
    }

    /// Adds an operation; `None` if it is not elementwise or does not match the others. The chain cannot be used after that.
    pub(crate) fn add(&mut self, operation: &'a Operation) -> Option<()> {
        let keeps_sides = matches!(operation.forward(), Some(Op::Rectifier(_)));
        // Scratch memory is ignored: it is for a fusion with a later operation, which was not possible.
        if operation.writes.iter().filter(|written| !written.slot.is_scratch()).count() != 1 && !keeps_sides {
            return None;
        }
        let context = Context { placed: self.placed, operation, setting: self.setting };
        let from = || operation.read(Slot::Input(0));
        match &operation.action {
            Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => self.forward(&context, op),
            Action::Run { op, pass: Pass::Backward } => self.backward(&context, op),
            Action::Accumulate => {
                let y = operation.written(Slot::Output)?;
                let sum = format!("{}+{}", self.value(y)?, self.value(from()?)?);
                self.put(y, &sum)
            }
            Action::Copy => {
                let number = self.number(from()?)?;
                self.keep(operation.written(Slot::Output)?, number)
            }
            Action::Loss(_)
            | Action::Check
            | Action::Squares(_)
            | Action::Norm
            | Action::Collect
            | Action::Update
            | Action::SumBatch
            | Action::Advance
            | Action::Fetch(_)
            | Action::UpdatePiece(_)
            | Action::Store(_)
            | Action::Settle
            | Action::Park(_)
            | Action::SaveStatistics(_)
            | Action::RestoreStatistics(_)
            | Action::Average
            | Action::AveragePiece(_)
            | Action::Exchange(_)
            | Action::EndExchange(_) => None,
        }
    }

    /// True if the chain reads or writes the tensor.
    pub(crate) fn has(&self, tensor: TensorId) -> bool {
        self.held.contains_key(&tensor)
            || self.sides.contains(&tensor)
            || self.loads.iter().any(|load| load.tensor == tensor)
    }

    /// True if the chain writes the tensor.
    pub(crate) fn writes(&self, tensor: TensorId) -> bool {
        self.written.contains(&tensor)
    }

    /// Returns the tensors that are loaded, each with true if it is broadcast.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (TensorId, bool)> + '_ {
        let bits = self.sides.iter().filter(|id| !self.written.contains(id)).map(|&id| (id, false));
        self.loads.iter().map(|load| (load.tensor, load.repeated.is_some())).chain(bits)
    }

    /// Returns the tensors that are written.
    pub(crate) fn written(&self) -> &[TensorId] {
        &self.written
    }

    /// Returns the launch, with these tensors stored; `None` if there are too many tensors, or none.
    pub(crate) fn launch(&self, stored: &[TensorId]) -> Option<Launch> {
        let mut read: Vec<TensorId> = Vec::new();
        for (tensor, _) in self.loaded() {
            if !read.contains(&tensor) && !stored.contains(&tensor) {
                read.push(tensor);
            }
        }
        // One thread must own whole bytes of a mask.
        if !self.sides.is_empty() && !self.in_eights {
            return None;
        }
        let [reads, writes] = [read.len(), stored.len()];
        // Eight elements in f32 take twice the registers.
        let most = if self.sides.is_empty() || pieces_are_eights(self.setting) { MOST } else { MOST / 2 };
        if writes == 0 || reads > POINTERS[0] || writes > POINTERS[1] || reads + writes > most {
            return None;
        }
        let pointer = |tensor: TensorId| {
            let at = |list: &[TensorId]| list.iter().position(|&other| other == tensor);
            at(stored).map(|y| format!("y{y}")).or(at(&read).map(|x| format!("x{x}")))
        };
        let (mut loads, mut work, mut stores) = (Vec::new(), Vec::new(), Vec::new());
        for (piece, Load { tensor, repeated, value }) in self.loads.iter().enumerate() {
            let from = pointer(*tensor)?;
            loads.push(match repeated {
                Some((place, true)) => format!("in[{piece}]=spread({from}[{place}])"),
                Some((place, false)) => format!("in[{piece}]=load_piece({from},{place})"),
                None => format!("in[{piece}]=load_piece({from},first)"),
            });
            work.push(format!("r[{value}]=in[{piece}].at[e]"));
        }
        for (number, tensor) in self.sides.iter().enumerate() {
            loads.push(match self.written.contains(tensor) {
                true => format!("sides[{number}]=0"),
                false => format!("sides[{number}]=load_sides({},first)", pointer(*tensor)?),
            });
        }
        work.extend(self.work.iter().cloned());
        for (piece, tensor) in stored.iter().enumerate() {
            if let Some(number) = self.sides.iter().position(|it| it == tensor) {
                stores.push(format!("store_sides(sides[{number}],y{piece},first)"));
                continue;
            }
            work.push(format!("out[{piece}].at[e]=r[{}]", self.held.get(tensor)?));
            stores.push(format!("store_piece(out[{piece}],y{piece},first)"));
        }
        let operation = self.placed.program.operations.first()?;
        let context = Context { placed: self.placed, operation, setting: self.setting };
        let kernel = context.kernel("chain.cu", "chain").with("COUNT", format!("{}ull", self.elements));
        let kernel = kernel.with("INPUTS", self.loads.len()).with("LOADS", loads.join(";"));
        let kernel = kernel.with("VALUES", self.values).with("DRAWS", self.rows.len()).with("TERMS", self.terms);
        let shares: Vec<String> = self.shares.iter().chain([&1]).map(|share| format!("{share}ull")).collect();
        let kernel = kernel.with("SHARES", format!("{{{}}}", shares.join(","))).with("WORK", work.join(";"));
        let kernel = kernel.with("OUTPUTS", stored.len()).with("STORES", stores.join(";"));
        let kernel = match self.drawn {
            Some(drawn) => kernel.with("DRAWN", format!("{drawn}ull")),
            None => kernel,
        };
        let (kernel, threads) = match self.sides.len() {
            0 => (kernel, pieces(&context, self.elements)),
            count => (
                activation_mask::in_eights(kernel.with("SIDES", count)),
                self.elements.div_ceil(activation_mask::EIGHT),
            ),
        };
        let mut arguments = vec![self.state];
        for (tensors, pointers) in [&read[..], stored].into_iter().zip(POINTERS) {
            let given = tensors.iter().copied().map(Some);
            arguments.extend(given.chain(std::iter::repeat(None)).take(pointers));
        }
        let rows = self.rows.iter().copied().chain([0]).collect();
        Some(Launch::elementwise(kernel, threads, arguments).with_numbers(rows))
    }

    fn forward(&mut self, context: &Context<'_>, op: &Op) -> Option<()> {
        let (x, y) = (context.operation.read(Slot::Input(0))?, context.operation.written(Slot::Output)?);
        let text = match op {
            Op::Pointwise(op) => format!("{}::value({},{})", op.function.name(), self.value(x)?, arguments(op)),
            Op::Formula(op) => {
                let x = self.value(x)?;
                self.work.push(format!("x={x}"));
                self.formula(&op.value)?
            }
            Op::Sum(op) => self.sum(context, op, y)?,
            Op::Binary(op) => {
                let plan = Plan::new(context, op, y).ok()?;
                let [a, b] = self.operands(&plan)?;
                format!("{}::value({a},{b})", binary::name(op.function))
            }
            Op::Mask(op) => self.dropped(context, op, x)?,
            Op::Rectifier(op) => return self.rectify(context, op, [x, y]),
            _ => return None,
        };
        self.put(y, &text)
    }

    fn backward(&mut self, context: &Context<'_>, op: &Op) -> Option<()> {
        let dy = context.operation.read(Slot::Gradient)?;
        let (input, gradient) = match op {
            Op::Pointwise(op) => (0, self.pointwise_gradient(context, op, dy)?),
            Op::Formula(op) => (0, self.formula_gradient(context, op, dy)?),
            Op::Binary(op) => self.binary_gradient(context, op, dy)?,
            Op::Mask(op) => (0, self.dropped(context, op, dy)?),
            Op::Rectifier(op) => (0, self.rectifier_gradient(context, op, dy)?),
            _ => return None,
        };
        let slot = Slot::InputGradient(input);
        let dx = context.operation.written(slot)?;
        if context.adds(slot) == 0 {
            return self.put(dx, &gradient);
        }
        let sum = format!("{gradient}+{}", self.value(dx)?);
        self.put(dx, &sum)
    }

    fn pointwise_gradient(&mut self, context: &Context<'_>, op: &Pointwise, dy: TensorId) -> Option<String> {
        let kept = match op.function.row().kept {
            Kept::Input => self.value(context.operation.read(Slot::Input(0))?)?,
            Kept::Output => self.value(context.operation.read(Slot::Output)?)?,
            Kept::Nothing => "0.0f".into(),
        };
        Some(format!("{}*{}::slope({kept},{})", self.value(dy)?, op.function.name(), arguments(op)))
    }

    /// Adds a rectifier: its output, and its activation mask if that is saved.
    fn rectify(&mut self, context: &Context<'_>, op: &Rectifier, [x, y]: [TensorId; 2]) -> Option<()> {
        let (name, arguments) = (op.of.function.name(), arguments(&op.of));
        let text = format!("{name}::value({},{arguments})", self.value(x)?);
        self.put(y, &text)?;
        let Some(bits) = context.operation.written(Slot::Saved(0)) else { return Some(()) };
        let (number, y) = (self.bits(bits)?, self.value(y)?);
        self.work.push(format!("sides[{number}]|=side_of<{name}>({y},{arguments})<<e"));
        self.written.push(bits);
        Some(())
    }

    fn rectifier_gradient(&mut self, context: &Context<'_>, op: &Rectifier, dy: TensorId) -> Option<String> {
        let (name, arguments, inside) = (op.of.function.name(), arguments(&op.of), activation_mask::inside(op));
        let number = self.bits(context.operation.read(Slot::Saved(0))?)?;
        Some(format!("{}*slope_of<{name}>(sides[{number}],e,{inside},{arguments})", self.value(dy)?))
    }

    /// Returns the number of the activation mask in a tensor; `None` unless it has a bit for each element in the layout of the other tensors.
    fn bits(&mut self, tensor: TensorId) -> Option<usize> {
        let bits = self.placed.program.tensor(tensor);
        let each = bits.layout.elements(bits.shape)?;
        let samples = if bits.batched { self.setting.batch } else { 1 };
        let is_alike = self.is_laid_out(tensor) && each.checked_mul(samples) == Some(self.elements);
        if !is_alike || self.sides.contains(&tensor) {
            return None;
        }
        self.sides.push(tensor);
        Some(self.sides.len() - 1)
    }

    fn formula_gradient(&mut self, context: &Context<'_>, op: &Formula, dy: TensorId) -> Option<String> {
        if op.slope.reads_x() {
            let x = self.value(context.operation.read(Slot::Input(0))?)?;
            self.work.push(format!("x={x}"));
        }
        if op.slope.reads_y() {
            let y = self.value(context.operation.read(Slot::Output)?)?;
            self.work.push(format!("y={y}"));
        }
        let slope = self.formula(&op.slope)?;
        Some(format!("{}*{slope}", self.value(dy)?))
    }

    /// Returns the input and the expression of its gradient; `None` for a broadcast input, whose gradient is a sum.
    fn binary_gradient(&mut self, context: &Context<'_>, op: &Binary, dy: TensorId) -> Option<(u8, String)> {
        let (input, _) = context.gradient_of_branch(2).ok()?;
        let plan = Plan::new(context, op, dy).ok()?;
        if !plan.is_whole(input.into()) {
            return None;
        }
        let [a, b] = self.operands(&plan)?;
        let function = binary::name(op.function);
        Some((input, format!("{}*{function}::slope({input},{a},{b})", self.value(dy)?)))
    }

    /// Returns the expression of a sum. Terms are added in the order of `kernels/elementwise/sum.cu`: the output's own share, then the others.
    fn sum(&mut self, context: &Context<'_>, op: &Sum, y: TensorId) -> Option<String> {
        let sample = context.tensor(y).layout.elements(op.shape)?;
        let axes = [Axis { length: context.samples(y), has: [false; 2] }, Axis { length: sample, has: [true; 2] }];
        let (own, others) = sum::shares(context, op, y).ok()?;
        if others.len() > sum::AT_ONCE {
            return None;
        }
        let mut terms = if own > 0 { vec![format!("(0.0f+{})*{own}.0f", self.value(y)?)] } else { vec!["0.0f".into()] };
        for x in others {
            let is_whole = context.elements(x) == self.elements;
            terms.push(if is_whole { self.value(x)? } else { self.repeated(x, &axes, 0)? });
        }
        Some(terms.join("+"))
    }

    fn dropped(&mut self, context: &Context<'_>, op: &Mask, x: TensorId) -> Option<String> {
        // An element is drawn by its index in the order of the shape. Whole samples are consecutive in any layout.
        let share = match op.shared {
            _ if op.drops_samples() => self.lies.1.elements(op.shape)?,
            shared if self.is_dense() => shared,
            _ => return None,
        };
        if self.placed.program.descent.parts() > 1 {
            // A value that exists once for all samples is drawn once for all micro-batches.
            let drawn = if context.tensor(x).batched { context.count(x) / op.shared.max(1) } else { 0 };
            if *self.drawn.get_or_insert(drawn) != drawn {
                return None;
            }
        }
        self.state = Some(context.operation.read(Slot::State)?);
        self.rows.push(op.stream(context.operation.row));
        self.shares.push(share);
        let (threshold, scale) = dropout::threshold_and_scale(op.p);
        Some(format!("drop(words[{}][e],{threshold}u,{},{scale:e})", self.rows.len() - 1, self.value(x)?))
    }

    /// Adds the terms of a formula, and returns the last one, which is its value.
    fn formula(&mut self, formula: &gpumem_core::program::formula::Formula) -> Option<String> {
        self.work.push(formula::terms(formula).ok()?);
        self.terms = self.terms.max(formula.terms.len());
        Some(format!("t[{}]", formula.terms.len() - 1))
    }

    /// Returns the expressions of both inputs of a binary function. An input that is not read may be any number.
    fn operands(&mut self, plan: &Plan<'_>) -> Option<[String; 2]> {
        let mut operand = |input: u8| match plan.context.operation.read(Slot::Input(input)) {
            None => Some("0.0f".into()),
            Some(x) if plan.is_whole(input.into()) => self.value(x),
            Some(x) => self.repeated(x, &plan.axes, input.into()),
        };
        Some([operand(0)?, operand(1)?])
    }

    fn is_dense(&self) -> bool {
        self.lies.1.is_dense()
    }

    /// True if a tensor has the number format of activations.
    fn is_real(&self, tensor: TensorId) -> bool {
        let format = |role: Role| role.format(self.setting.precision);
        format(self.placed.program.tensor(tensor).role) == format(Role::Activation)
    }

    /// True if a tensor has as many elements as the others, with their format and layout.
    fn is_alike(&self, id: TensorId) -> bool {
        let stored = self.placed.program.tensor(id).stored(self.setting.batch);
        self.is_laid_out(id) && self.is_real(id) && stored == Some(self.elements)
    }

    /// True if the elements of a tensor are in the order of the others.
    fn is_laid_out(&self, id: TensorId) -> bool {
        let tensor = self.placed.program.tensor(id);
        tensor.layout == self.lies.1 && (self.is_dense() || tensor.shape == self.lies.0)
    }

    /// Returns the number of a tensor's value. The tensor is loaded if no earlier operation has read or written it.
    fn number(&mut self, tensor: TensorId) -> Option<usize> {
        if let Some(&number) = self.held.get(&tensor) {
            return Some(number);
        }
        let value = self.next();
        self.loads.push(Load { tensor, repeated: None, value });
        self.held.insert(tensor, value);
        self.is_alike(tensor).then_some(value)
    }

    /// Returns the value of a tensor as an expression.
    fn value(&mut self, tensor: TensorId) -> Option<String> {
        Some(widened(self.number(tensor)?))
    }

    /// Returns the value of a tensor that is broadcast along some axes of the output, as an expression. `input` is its index in the operation.
    fn repeated(&mut self, tensor: TensorId, axes: &[Axis], input: usize) -> Option<String> {
        let last = axes.last()?;
        // Then a thread's elements are neighbours along the last axis.
        let fits = last.length.is_multiple_of(16 / Role::Activation.bytes(self.setting.precision));
        if !(fits && self.is_dense() && self.is_real(tensor) && self.placed.program.tensor(tensor).layout.is_dense()) {
            return None;
        }
        self.in_eights &= last.length.is_multiple_of(activation_mask::EIGHT);
        let repeated = Some((place(axes, input, self.elements), !last.has[input]));
        let known = self.loads.iter().find(|load| load.tensor == tensor && load.repeated == repeated);
        if let Some(load) = known {
            return Some(widened(load.value));
        }
        let value = self.next();
        self.loads.push(Load { tensor, repeated, value });
        Some(widened(value))
    }

    fn next(&mut self) -> usize {
        self.values += 1;
        self.values - 1
    }

    /// Makes an expression, rounded, the value of a tensor.
    fn put(&mut self, tensor: TensorId, text: &str) -> Option<()> {
        let value = self.next();
        self.work.push(format!("put({text},r[{value}])"));
        self.keep(tensor, value)
    }

    fn keep(&mut self, tensor: TensorId, value: usize) -> Option<()> {
        self.held.insert(tensor, value);
        if !self.written.contains(&tensor) {
            self.written.push(tensor);
        }
        self.is_alike(tensor).then_some(())
    }
}

/// True if 16 bytes always hold eight elements.
fn pieces_are_eights(setting: LaunchContext) -> bool {
    16 / Role::Activation.bytes(setting.precision) == activation_mask::EIGHT
}

fn widened(value: usize) -> String {
    format!("widen(r[{value}])")
}

/// Returns a function's parameters as an expression.
fn arguments(op: &Pointwise) -> String {
    format!("Arguments{}", pointwise::arguments(op))
}

/// Returns the index in input number `input` that belongs to element `at` of the output, as an expression.
fn place(axes: &[Axis], input: usize, elements: u64) -> String {
    // As wide as the kernel's `Index`.
    let number = |value: u64| if elements < 1 << 31 { format!("{value}u") } else { format!("{value}ull") };
    let strides = binary::strides(axes, input);
    let inside = |axis: usize| axes[axis + 1..].iter().fold(1, |product: u64, it| product.saturating_mul(it.length));
    let term = |axis: usize| {
        let mut text = String::from("at");
        if inside(axis) > 1 {
            text += &format!("/{}", number(inside(axis)));
        }
        if axis > 0 {
            text += &format!("%{}", number(axes[axis].length));
        }
        if strides[axis] > 1 { text + &format!("*{}", number(strides[axis])) } else { text }
    };
    let terms: Vec<String> = (0..axes.len()).filter(|&axis| axes[axis].has[input]).map(term).collect();
    if terms.is_empty() { "0".into() } else { terms.join("+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_what_is_repeated() {
        let axes = |has: [bool; 3]| {
            let lengths = [2, 3, 8];
            lengths.iter().zip(has).map(|(&length, has)| Axis { length, has: [true, has] }).collect::<Vec<_>>()
        };
        let at = |has| place(&axes(has), 1, 48);
        assert_eq!(at([true, true, false]), "at/24u*3u+at/8u%3u");
        assert_eq!(at([false, true, true]), "at/8u%3u*8u+at%8u");
        assert_eq!(at([true, false, true]), "at/24u*8u+at%8u");
        assert_eq!(at([false; 3]), "0");
        assert_eq!(place(&axes([true, true, false]), 1, 1 << 31), "at/24ull*3ull+at/8ull%3ull");
    }
}
