//! A training step on tensors without data: forward, loss, backward, update.

use super::autocast;
use super::call::{Call, Fault, malformed};
use super::frames::last_uses;
use super::layout::elements;
use super::meta::{Eager, Tensor};
use super::ops;
use super::report::{Report, UnknownOperation};
use super::trace::{Phase, Purpose, Site};
use super::{Loss, Request};
use crate::batch::Batch;
use crate::fold::{Tensor as Numbers, origins};
use crate::model::{Argument, Dtype, Model, StateKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The most dimensions that PyTorch's tensors have.
const MOST_DIMENSIONS: usize = 64;
/// The steps that are run. In the first one the optimizer makes its state, so that the second one is reported.
const STEPS: usize = 2;

/// The reason why nothing is predicted.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// There are operations of which nothing is known.
    Unknown(Vec<UnknownOperation>),
    /// An operation's arguments do not fit together.
    Malformed {
        /// The name of the node.
        node: String,
        /// The operation.
        operation: String,
        /// The fault.
        what: String,
    },
    /// The model has no batch that could be changed, or no memory for this one can be addressed.
    Batch(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(all) => {
                write!(f, "the memory of {} operations is not known:", all.len())?;
                for unknown in all {
                    write!(f, "\n  {}, {} times, first in {}", unknown.operation, unknown.count, unknown.first)?;
                }
                Ok(())
            }
            Refusal::Malformed { node, operation, what } => write!(f, "`{node}` ({operation}) {what}"),
            Refusal::Batch(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Refusal {}

/// Predicts what PyTorch needs for a training step of a model.
///
/// # Errors
/// Refuses models with operations of which nothing is known, unless the request is for a part, and batches that the model does not have.
pub fn predict(model: &Model, request: &Request) -> Result<Report, Refusal> {
    check(model)?;
    let model = &*without_idle_masks(model, request.rules.tracker);
    let resized = at_batch(model, request.batch)?;
    let running = resized.as_ref().unwrap_or(model);
    let run = |keeps_unknown, scales| {
        let mut step = Training::new(running, model, request, keeps_unknown)?;
        step.scales = scales;
        step.run()
    };
    // If sizes do not fit together, the batch may be a factor of literals that nothing tells from others.
    let mut scales = false;
    let mut report = run(true, scales).or_else(|refusal| {
        if !matches!(refusal, Refusal::Malformed { .. }) || resized.is_none() {
            return Err(refusal);
        }
        scales = true;
        run(true, scales).map_err(|_| refusal)
    })?;
    if !report.unknown.is_empty() {
        if !request.partial {
            return Err(Refusal::Unknown(report.unknown));
        }
        report.at_least = run(false, scales)?.allocated.min(report.allocated);
    }
    Ok(report)
}

/// Returns the operations whose outputs have another shape or other strides than the file says, at the exported batch.
///
/// # Errors
/// Refuses what [`predict`] refuses.
pub fn differences(model: &Model, request: &Request) -> Result<Vec<String>, Refusal> {
    check(model)?;
    let mut step = Training::new(model, model, request, true)?;
    step.differences = Some(Vec::new());
    step.run_forward()?;
    Ok(step.differences.unwrap_or_default())
}

/// Returns the model for another batch. `None` if it has that batch.
fn at_batch(model: &Model, batch: Option<u64>) -> Result<Option<Model>, Refusal> {
    let Some(batch) = batch.filter(|&batch| Some(batch) != model.batch) else { return Ok(None) };
    if batch == 0 {
        return Err(Refusal::Batch("a step has at least one sample".into()));
    }
    let Some(followed) = Batch::follow(model) else {
        return Err(Refusal::Batch(
            "was exported with a batch of 1, which cannot be told from other dimensions of 1; export it with a batch of 2, or with a \
             symbol for it"
                .into(),
        ));
    };
    match followed.resized(model, batch) {
        Some(resized) => Ok(Some(resized)),
        None => {
            Err(Refusal::Batch(format!("has a tensor of 2^63 bytes or more at batch {batch}; choose a smaller one")))
        }
    }
}

/// Returns the model without masks of attention that let everything through, and those of causal attention, which has a flag. [`predict`] does this
/// for every batch, and has nothing to do if it is done before.
///
/// Libraries make them for every sample when they export, and pass none in a run. A mask that all samples share is the model's own.
pub fn without_idle_masks(model: &Model, is_tracked: bool) -> Cow<'_, Model> {
    let mask = |index: usize| {
        let node = model.nodes.get(index)?;
        let mask = node.tensor("attn_mask").filter(|_| node.op == "scaled_dot_product_attention")?;
        let shape = &model.values.get(mask)?.shape;
        (shape.len() == 4 && shape.first() == model.batch.as_ref() && model.batch > Some(1)).then_some(mask)
    };
    let masked: Vec<usize> = (0..model.nodes.len()).filter(|&index| mask(index).is_some()).collect();
    let mut running = Cow::Borrowed(model);
    if masked.is_empty() {
        return running;
    }
    let origins = origins(model);
    // All layers of a model usually read one mask.
    let mut last: Option<(&Numbers, Option<Mask>)> = None;
    for index in masked {
        let Some(numbers) = mask(index).and_then(|mask| origins.get(mask)?.numbers()) else { continue };
        let kind = match last {
            Some((other, kind)) if other.is_same(numbers) => kind,
            _ => Mask::of(numbers),
        };
        last = Some((numbers, kind));
        let Some(kind) = kind else { continue };
        // With fake tensors, which a tracker sees, libraries pass the mask of causal attention, too.
        if kind == Mask::Causal && is_tracked {
            continue;
        }
        let Some(node) = running.to_mut().nodes.get_mut(index) else { continue };
        node.arguments.retain(|(name, _)| name != "attn_mask" && name != "is_causal");
        node.arguments.push(("is_causal".into(), Argument::Bool(kind == Mask::Causal)));
    }
    running
}

/// Masks that need no memory.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Mask {
    All,
    Causal,
}

impl Mask {
    fn of(mask: &Numbers) -> Option<Mask> {
        let &[.., rows, columns] = &mask.shape[..] else { return None };
        let numbers = mask.numbers();
        let is_open = |number: f64| if mask.dtype == Dtype::Bool { number != 0.0 } else { number == 0.0 };
        if numbers.iter().all(|&number| is_open(number)) {
            return Some(Mask::All);
        }
        let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
        let is_causal = |(index, &number): (usize, &f64)| {
            let (row, column) = (index / columns % rows, index % columns);
            is_open(number) == (column <= row)
        };
        (columns > 0 && rows > 0 && numbers.iter().enumerate().all(is_causal)).then_some(Mask::Causal)
    }
}

fn check(model: &Model) -> Result<(), Refusal> {
    match model.values.iter().find(|value| value.shape.len() > MOST_DIMENSIONS) {
        Some(value) => {
            let what = format!(
                "has a tensor `{}` of {} dimensions, and PyTorch has at most {MOST_DIMENSIONS}",
                value.name,
                value.shape.len()
            );
            Err(Refusal::Batch(what))
        }
        None => Ok(()),
    }
}

/// Steps of a model.
struct Training<'m> {
    e: Eager,
    model: &'m Model,
    exported: &'m Model,
    request: &'m Request,
    /// The tensors that live before and after a step: parameters, buffers, inputs.
    owned: Vec<Option<Tensor>>,
    parameters: Vec<Tensor>,
    target: Option<Tensor>,
    loss: Loss,
    /// The keys of parameters and buffers, by the number of their storage.
    keys: BTreeMap<u32, String>,
    dies: Vec<Vec<usize>>,
    unknown: BTreeMap<String, (usize, String)>,
    keeps_unknown: bool,
    /// True if the sizes to which first dimensions are expanded are scaled with the batch.
    scales: bool,
    /// Differences from the file. `None` if nothing is compared.
    differences: Option<Vec<String>>,
}

impl<'m> Training<'m> {
    fn new(model: &'m Model, exported: &'m Model, request: &'m Request, keeps_unknown: bool) -> Result<Self, Refusal> {
        let e = Eager::new(request.rules);
        let mut training = Training {
            e,
            model,
            exported,
            request,
            owned: vec![None; model.values.len()],
            parameters: Vec::new(),
            target: None,
            loss: request.loss.unwrap_or_else(|| Loss::of(exported)),
            keys: BTreeMap::new(),
            dies: last_uses(model),
            unknown: BTreeMap::new(),
            keeps_unknown,
            scales: false,
            differences: None,
        };
        training.own_state();
        for &input in &model.inputs {
            let value = &model.values[input];
            let tensor = training.e.new_tensor(&value.shape, value.dtype);
            tensor.mark(Purpose::InputOutput);
            training.owned[input] = Some(tensor);
        }
        training.own_target();
        Ok(training)
    }

    /// Makes parameters, buffers and constants. Tied ones are one tensor.
    fn own_state(&mut self) {
        let mut made: Vec<Option<Tensor>> = vec![None; self.model.state.len()];
        // A tensor comes before those that are tied to it, or after them.
        for pass in 0..2 {
            for (index, state) in self.model.state.iter().enumerate() {
                let owner = state.tied_to.filter(|&owner| owner != index && owner < made.len());
                let tensor = match (owner, pass) {
                    (None, 0) => self.state(index),
                    (Some(owner), 1) => match made[owner].clone() {
                        Some(tensor) => tensor,
                        None => self.state(index),
                    },
                    _ => continue,
                };
                made[index] = Some(tensor.clone());
                self.owned[state.value] = Some(tensor);
            }
        }
    }

    fn state(&mut self, index: usize) -> Tensor {
        let state = &self.model.state[index];
        let value = &self.model.values[state.value];
        let is_parameter = matches!(state.kind, StateKind::Parameter { .. });
        let tensor = match &value.strides {
            Some(strides) if strides.len() == value.shape.len() && spans_less(&value.shape, strides) => {
                self.e.strided(&value.shape, strides.clone(), value.dtype)
            }
            _ => self.e.new_tensor(&value.shape, value.dtype),
        };
        tensor.mark(if is_parameter { Purpose::Parameter } else { Purpose::Buffer });
        if let Some(storage) = tensor.storage_index() {
            self.keys.insert(storage, state.key.clone());
        }
        if matches!(state.kind, StateKind::Parameter { trains: true }) {
            tensor.require_grad();
            self.parameters.push(tensor.clone());
        }
        tensor
    }

    /// Makes the target of the loss, which is on the device before the step.
    fn own_target(&mut self) {
        let mut outputs = self.model.outputs.iter().filter_map(|&output| self.model.values.get(output));
        let Some(first) = outputs.find(|value| value.dtype.is_float()) else { return };
        if let Some(count) = ops::target_elements(self.loss, &first.shape) {
            let target = self.e.new_tensor(&[count], Dtype::I64);
            target.mark(Purpose::InputOutput);
            self.target = Some(target);
        }
    }

    fn run(&mut self) -> Result<Report, Refusal> {
        let mut states = Vec::new();
        let mut begins = 0;
        for _ in 0..STEPS {
            self.parameters.iter().for_each(Tensor::clear_gradient);
            begins = self.e.trace().borrow().events.len();
            let outputs = self.run_forward()?;
            if !self.unknown.is_empty() && !self.request.partial {
                break;
            }
            self.e.begin(Phase::Loss);
            let floats: Vec<Tensor> = outputs.iter().filter(|output| output.is_float()).cloned().collect();
            let loss = self.e.loss(self.loss, &floats, self.target.as_ref());
            drop(floats);
            let loss = loss.map_err(|fault| refused("loss", "loss", fault))?;
            // The context of autocast ends: copies of weights live on where autograd saved them.
            self.e.casts.borrow_mut().clear();
            self.e.begin(Phase::Backward);
            self.e.backward(&loss);
            self.e.begin(Phase::Update);
            self.e.update(&self.parameters, &self.request.optimizer, &mut states);
        }
        self.report(begins)
    }

    fn report(&mut self, begins: usize) -> Result<Report, Refusal> {
        let trace = self.e.trace().replace(super::trace::Trace::new(1));
        if trace.overflows() {
            return Err(Refusal::Batch("has a tensor of 2^62 bytes or more; choose a smaller batch".into()));
        }
        let mut report = Report::new(self.model, &self.keys, trace, begins);
        let unknown = std::mem::take(&mut self.unknown).into_iter();
        report.unknown =
            unknown.map(|(operation, (count, first))| UnknownOperation { operation, count, first }).collect();
        Ok(report)
    }

    /// Runs the forward pass. Returns what the network returns.
    fn run_forward(&mut self) -> Result<Vec<Tensor>, Refusal> {
        self.unknown.clear();
        self.e.begin(Phase::Forward);
        let mut values = self.owned.clone();
        for index in 0..self.model.nodes.len() {
            self.node(index, &mut values)?;
            for &value in self.dies.get(index).into_iter().flatten() {
                values[value] = None;
            }
        }
        self.e.set_records(true);
        let outputs: Vec<Tensor> = self.model.outputs.iter().filter_map(|&output| values[output].clone()).collect();
        outputs.iter().filter(|output| !output.is_leaf()).for_each(|output| output.mark(Purpose::InputOutput));
        Ok(outputs)
    }

    fn node(&mut self, index: usize, values: &mut [Option<Tensor>]) -> Result<(), Refusal> {
        let node = &self.model.nodes[index];
        if node.op.starts_with("_assert") || node.op.starts_with("sym_constrain") {
            return Ok(());
        }
        self.e.enter(Site { node: Some(index), label: "" });
        self.e.set_records(node.has_gradient);
        let converts = self.e.autocast().is_some() && autocast::runs_in_f32(&node.op);
        let call = Call {
            e: &self.e,
            node,
            model: self.model,
            exported: self.exported,
            values,
            converts,
            scales: self.scales,
        };
        let made = match ops::run(&call) {
            Err(Fault::Unknown) => {
                let entry = self.unknown.entry(node.op.clone()).or_insert_with(|| (0, node.name.clone()));
                entry.0 += 1;
                ops::unknown(&call, self.keeps_unknown)
            }
            made => made,
        };
        let made = made.and_then(|made| match made.len() >= node.outputs.len() {
            true => Ok(made),
            false => malformed(format!("returns {} tensors, and {} are read", made.len(), node.outputs.len())),
        });
        let made = made.map_err(|fault| refused(&node.name, &node.op, fault))?;
        for (&output, tensor) in node.outputs.iter().zip(made) {
            self.compare(index, output, &tensor);
            values[output] = Some(tensor);
        }
        Ok(())
    }

    /// Notes a difference between a tensor and what the file says of it.
    fn compare(&mut self, index: usize, output: usize, tensor: &Tensor) {
        let Some(differences) = &mut self.differences else { return };
        let (node, value) = (&self.model.nodes[index], &self.model.values[output]);
        let has_strides =
            value.strides.as_ref().is_none_or(|strides| strides.len() == tensor.rank() && tensor.has_strides(strides));
        let is_empty = elements(&value.shape) == 0;
        if tensor.shape != value.shape || (!has_strides && !is_empty) || tensor.dtype != value.dtype {
            differences.push(format!(
                "{} {}: {:?} {:?} {}, and the file says {:?} {:?} {}",
                node.op, node.name, tensor.shape, tensor.strides, tensor.dtype, value.shape, value.strides, value.dtype
            ));
        }
    }
}

fn refused(node: &str, operation: &str, fault: Fault) -> Refusal {
    let what = match fault {
        Fault::Malformed(what) => what,
        Fault::Unknown => "is not known".into(),
    };
    Refusal::Malformed { node: node.into(), operation: operation.into(), what }
}

/// True if the elements of a tensor lie within as many places as there are elements.
fn spans_less(shape: &[u64], strides: &[u64]) -> bool {
    let all = elements(shape);
    let last = shape.iter().zip(strides).map(|(&dim, &stride)| stride.saturating_mul(dim.saturating_sub(1)));
    all > 0 && last.max().unwrap_or(0) < all
}
