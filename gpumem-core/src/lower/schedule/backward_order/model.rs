//! A model of what the pieces of a backward pass do to memory, in any order.

use crate::graph::{NodeId, Type};
use crate::lower::differentiate::builder::{Builder, GradientPiece};
use crate::lower::draft::Draft;
use crate::lower::liveness::{live_bytes, ranges};
use crate::lower::options::Training;
use crate::lower::sizes::{MOST, Sizes};
use crate::number::Role;
use crate::program::fusion::is_elementwise;
use crate::program::op::Gradient;
use crate::program::{Action, Class, Operation, Pass, Slot, Tensor};
use alloc::vec;
use alloc::vec::Vec;

/// The number that stands for no gradient.
pub(super) const NONE: u32 = u32::MAX;

/// The parameter or the value that a gradient belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Parameter(usize),
    Value(NodeId),
}

/// A gradient that an operation computes.
#[derive(Clone, Debug)]
struct Made {
    target: Target,
    /// The saved tensor that overwrote the input, and the pieces that must run before the gradient overwrites it. `None` if nothing overwrote the
    /// input.
    over: Option<(u32, Vec<usize>)>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Hands the gradient of the output on unchanged.
    HandsOn(NodeId),
    /// Computes gradients. The flag is true if one of them may overwrite the gradient of the output.
    Makes(Vec<Made>, bool),
}

/// The work of a piece.
#[derive(Clone, Debug)]
struct Work {
    node: NodeId,
    kind: Kind,
    /// The tensors of the forward pass that it reads.
    reads: Vec<u32>,
    scratch: u64,
    /// True if the next piece of the default order should follow it in any order. Both may be one pass over memory.
    sticks: bool,
}

impl Work {
    /// Returns the values to whose gradients it adds, once for each addition.
    fn values(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (handed, made) = match &self.kind {
            Kind::HandsOn(to) => (Some(*to), &[][..]),
            Kind::Makes(made, _) => (None, &made[..]),
        };
        let made = made.iter().filter_map(|made| match made.target {
            Target::Value(value) => Some(value),
            Target::Parameter(_) => None,
        });
        handed.into_iter().chain(made)
    }
}

/// A piece of memory: a tensor of the forward pass that is read again, or a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LiveTensor {
    bytes: u64,
    /// A gradient may overwrite it if `batched` and `elements` are equal.
    batched: bool,
    elements: u64,
    /// Pieces that are still to read it, and values whose gradients are in it.
    readers: u32,
    holders: u32,
}

impl LiveTensor {
    fn of(tensor: &Tensor, setting: &Sizes) -> LiveTensor {
        let elements = tensor.shape.elements().unwrap_or(u64::MAX);
        LiveTensor { bytes: padded(tensor, setting), batched: tensor.batched, elements, readers: 0, holders: 0 }
    }

    fn of_gradient(value: Type, setting: &Sizes) -> LiveTensor {
        let elements = value.shape.elements().unwrap_or(u64::MAX);
        let bytes = setting.padded_of(Role::Activation, if value.batched { setting.batch } else { 1 }, elements);
        LiveTensor { bytes, batched: value.batched, elements, readers: 0, holders: 0 }
    }

    fn is_alive(&self) -> bool {
        self.readers > 0 || self.holders > 0
    }
}

/// The backward pass of a step at one setting.
#[derive(Clone, Debug)]
pub(super) struct Model {
    works: Vec<Work>,
    /// The pieces of each node, and the parameters that each node reads.
    pub(super) of_nodes: Vec<Vec<usize>>,
    parameters: Vec<Vec<usize>>,
    /// The gradient of each value as a tensor of its own, and the bytes of each parameter's gradient.
    gradients: Vec<LiveTensor>,
    parameter_bytes: Vec<u64>,
    /// True if a parameter's gradient is freed as soon as it is complete.
    is_fused: bool,
    start: State,
    /// The peak before the backward pass, in bytes.
    pub(super) before: u64,
}

/// The memory between two pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) live: u64,
    held: Vec<LiveTensor>,
    /// The piece of memory with each value's gradient, or [`NONE`]. `missing` counts the pieces that are still to add to it.
    gradients: Vec<u32>,
    missing: Vec<u32>,
    /// True for each piece that has run, and the number of pieces of each node that are still to come.
    pub(super) over: Vec<bool>,
    left: Vec<u32>,
    /// True for each parameter whose gradient has been begun. `uses` counts the nodes that are still to touch the parameter.
    made: Vec<bool>,
    uses: Vec<u32>,
}

impl Model {
    /// Returns the model of these pieces of `builder`, which has come to its loss. `rule` is the step in which they run in this order, with the
    /// operation index at which each begins.
    pub(super) fn new(
        builder: &Builder<'_>,
        training: Training<'_>,
        pieces: &[GradientPiece],
        rule: (&Draft, &[usize]),
        setting: &Sizes,
    ) -> Model {
        let (draft, begins) = rule;
        let nodes = builder.analysis.graph.nodes.len();
        let forward = builder.tensors.len();
        let end = begins.first().copied().unwrap_or(0);
        let mut model = Model {
            works: Vec::with_capacity(pieces.len()),
            of_nodes: vec![Vec::new(); nodes],
            parameters: vec![Vec::new(); nodes],
            gradients: Vec::with_capacity(nodes),
            parameter_bytes: Vec::new(),
            is_fused: !training.defers_updates(),
            start: State {
                live: 0,
                held: builder.tensors.iter().map(|tensor| LiveTensor::of(tensor, setting)).collect(),
                gradients: builder.gradients.iter().map(|gradient| gradient.unwrap_or(NONE)).collect(),
                missing: vec![0; nodes],
                over: vec![false; pieces.len()],
                left: vec![0; nodes],
                made: vec![false; builder.analysis.graph.parameters.len()],
                uses: vec![0; builder.analysis.graph.parameters.len()],
            },
            before: most_alive(draft, end, setting).unwrap_or(0),
        };
        model.gradients.extend((0..nodes).map(|node| LiveTensor::of_gradient(builder.analysis.value(node), setting)));
        let is_held = training.holds_gradients();
        for parameter in &builder.analysis.graph.parameters {
            let elements = if is_held { 0 } else { parameter.shape.elements().unwrap_or(u64::MAX) };
            model.parameter_bytes.push(setting.padded_of(parameter.role, 1, elements));
        }
        for (index, piece) in pieces.iter().enumerate() {
            let until = begins.get(index + 1).copied().unwrap_or(draft.operations.len());
            let operations = &draft.operations[begins[index]..until];
            let work = model.work(builder, *piece, operations, (forward, setting), draft);
            model.of_nodes[piece.node].push(index);
            model.works.push(work);
        }
        model.add_savers(builder, pieces);
        model.begin(builder);
        model
    }

    fn work(
        &self,
        builder: &Builder<'_>,
        piece: GradientPiece,
        operations: &[Operation],
        (forward, setting): (usize, &Sizes),
        draft: &Draft,
    ) -> Work {
        let GradientPiece { node, rule } = piece;
        let is_run = |operation: &&Operation| matches!(operation.action, Action::Run { pass: Pass::Backward, .. });
        let is_kept = |slot: Slot| matches!(slot, Slot::Input(_) | Slot::Output | Slot::Saved(_));
        let is_forward = |id: u32| (id as usize) < forward && draft.tensors[id as usize].class == Class::Transient;
        let reads = operations.iter().filter(is_run).flat_map(|operation| &operation.reads);
        let mut reads: Vec<u32> =
            reads.filter(|it| is_kept(it.slot) && is_forward(it.tensor)).map(|it| it.tensor).collect();
        reads.sort_unstable();
        reads.dedup();
        let scratch = operations.iter().filter(is_run).filter_map(|operation| operation.written(Slot::Workspace));
        let scratch = scratch.map(|id| padded(&draft.tensors[id as usize], setting)).max().unwrap_or(0);
        let is_alike = builder.analysis.op(node).is_none_or(|node| is_elementwise(node.op));
        let sticks = is_alike || builder.analysis.merged[node];
        Work { node, kind: kind(builder, node, rule), reads, scratch, sticks }
    }

    /// Records which pieces read a saved tensor that overwrote an input. They must run before the gradient of the input overwrites it.
    fn add_savers(&mut self, builder: &Builder<'_>, pieces: &[GradientPiece]) {
        for index in 0..self.works.len() {
            let node = self.works[index].node;
            let Some(op) = builder.analysis.op(node).map(|node| node.op) else { continue };
            let rules = op.gradients();
            let reads_saved = |at: &usize| match rules.get(pieces[*at].rule) {
                Some(Gradient::Computed { of, .. }) => of.iter().any(|(_, reads)| reads.saved),
                Some(Gradient::Passes(_)) | None => false,
            };
            let savers: Vec<usize> =
                self.of_nodes[node].iter().copied().filter(|&at| at != index).filter(reads_saved).collect();
            if let Kind::Makes(made, _) = &mut self.works[index].kind {
                made.iter_mut().filter_map(|made| made.over.as_mut()).for_each(|(_, over)| over.clone_from(&savers));
            }
        }
    }

    /// Sets the state at the loss.
    fn begin(&mut self, builder: &Builder<'_>) {
        let start = &mut self.start;
        for work in &self.works {
            work.reads.iter().for_each(|&id| start.held[id as usize].readers += 1);
            work.values().for_each(|value| start.missing[value] += 1);
            start.left[work.node] += 1;
        }
        for (&tensor, &holders) in &builder.holders {
            start.held[tensor as usize].holders = holders as u32;
        }
        start.live = start.held.iter().filter(|held| held.is_alive()).map(|held| held.bytes).sum();
        for node in (0..self.of_nodes.len()).filter(|&node| !self.of_nodes[node].is_empty()) {
            let read =
                builder.analysis.node(node).inputs().iter().filter_map(|&input| builder.analysis.parameter(input));
            self.parameters[node] = read.collect();
            self.parameters[node].iter().for_each(|&parameter| start.uses[parameter] += 1);
        }
        // Gradients of parameters that chunks of the loss left, if they are not complete yet or are used only at the end.
        for parameter in 0..start.made.len() {
            let is_there = builder.parameter_gradients[parameter].is_some();
            if is_there && (start.uses[parameter] > 0 || !self.is_fused) {
                start.made[parameter] = true;
                start.live += self.parameter_bytes[parameter];
            }
        }
    }

    /// Returns the number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.works.len()
    }

    /// Returns a lower bound of the peak of any order, in bytes. It covers all that comes before the backward pass, what is alive when that
    /// begins, and what each piece reads and writes.
    pub(super) fn floor(&self) -> u64 {
        let of_pieces = self.works.iter().map(|work| {
            let read = work.reads.iter().map(|&id| self.start.held[id as usize].bytes);
            let made = match &work.kind {
                Kind::HandsOn(_) => &[][..],
                Kind::Makes(made, _) => &made[..],
            };
            let made = made.iter().map(|made| match made.target {
                Target::Parameter(parameter) => self.parameter_bytes[parameter],
                Target::Value(_) => 0,
            });
            read.chain(made).sum::<u64>() + work.scratch
        });
        of_pieces.fold(self.before.max(self.start.live), u64::max)
    }

    /// True if a piece works element by element. A backend may fuse it with the next one of the default order.
    pub(super) fn sticks(&self, piece: usize) -> bool {
        self.works[piece].sticks
    }

    /// Returns the values to whose gradients a piece adds.
    pub(super) fn values(&self, piece: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.works[piece].values()
    }

    /// True if a piece may run next.
    pub(super) fn is_open(&self, state: &State, piece: usize) -> bool {
        !state.over[piece] && state.missing[self.works[piece].node] == 0
    }

    pub(super) fn start(&self) -> State {
        self.start.clone()
    }

    /// Returns the peak of an order in bytes, forward pass and loss included.
    pub(super) fn peak(&self, order: impl IntoIterator<Item = usize>) -> u64 {
        let mut state = self.start();
        order.into_iter().map(|piece| state.run(self, piece)).fold(self.before, u64::max)
    }
}

/// Returns what a gradient rule of a node's operation does with gradients.
fn kind(builder: &Builder<'_>, node: NodeId, rule: usize) -> Kind {
    let target = |input: NodeId| match builder.analysis.parameter(input) {
        Some(parameter) => Target::Parameter(parameter),
        None => Target::Value(input),
    };
    let makes = |input: NodeId| Kind::Makes(vec![Made { target: target(input), over: None }], false);
    let passes_on = |input: NodeId| match target(input) {
        Target::Value(to) => Kind::HandsOn(to),
        Target::Parameter(_) => makes(input),
    };
    let nothing = Kind::Makes(Vec::new(), false);
    let Some(of) = builder.analysis.op(node) else { return passes_on(builder.analysis.node(node).inputs()[0]) };
    if builder.analysis.merged[node] {
        return passes_on(of.inputs[0]);
    }
    match of.op.gradients().get(rule) {
        Some(Gradient::Passes(input)) => match of.inputs[usize::from(*input)] {
            input if !builder.analysis.needs_gradient(input) => nothing,
            input if builder.analysis.value(input).batched != builder.analysis.value(node).batched => makes(input),
            input => passes_on(input),
        },
        Some(Gradient::Computed { of: inputs, in_place }) => {
            let inputs = inputs.iter().map(|(input, _)| *input);
            let needed = inputs.filter(|&input| builder.analysis.needs_gradient(of.inputs[usize::from(input)]));
            let made = |input: u8| Made {
                target: target(of.inputs[usize::from(input)]),
                over: builder.saved_over(node, of, input).map(|tensor| (tensor, Vec::new())),
            };
            Kind::Makes(needed.map(made).collect(), *in_place)
        }
        None => nothing,
    }
}

/// Returns the bytes of a tensor in an arena, with padding. 0 if it is too large for any plan, which other functions report.
fn padded(tensor: &Tensor, setting: &Sizes) -> u64 {
    setting.padded(tensor).unwrap_or(0)
}

/// Returns the peak of the first `end` operations of a step, in bytes. `None` if the step is too large for any plan.
pub(super) fn most_alive(draft: &Draft, end: usize, setting: &Sizes) -> Option<u64> {
    let all = alive(draft, setting)?;
    all[..end].iter().copied().max().or(Some(0))
}

/// Returns the live bytes at each operation of a step; `None` if the step is too large for any plan.
pub(super) fn alive(draft: &Draft, setting: &Sizes) -> Option<Vec<u64>> {
    let Draft { tensors, operations, .. } = draft;
    let padded: Option<Vec<u64>> = tensors.iter().map(|tensor| setting.padded(tensor)).collect();
    let padded = padded?;
    if padded.iter().map(|&bytes| i128::from(bytes)).sum::<i128>() >= i128::from(MOST) {
        return None;
    }
    let ranges = ranges(operations, tensors.len(), []).into_iter().zip(tensors).zip(padded);
    let transients = ranges.filter(|((_, tensor), _)| tensor.class == Class::Transient);
    let all = transients.filter_map(|((range, _), bytes)| Some((range?, i128::from(bytes))));
    live_bytes(operations.len(), all).into_iter().map(|live| u64::try_from(live).ok()).collect()
}

impl State {
    /// True if no piece is still to add to the gradient of a value.
    pub(super) fn is_complete(&self, value: NodeId) -> bool {
        self.missing[value] == 0
    }

    /// Runs a piece, and returns the peak in bytes while it runs.
    pub(super) fn run(&mut self, model: &Model, piece: usize) -> u64 {
        let work = &model.works[piece];
        let node = work.node;
        self.over[piece] = true;
        self.left[node] -= 1;
        let gradient = self.gradients[node];
        let most = match &work.kind {
            Kind::HandsOn(to) => self.hand_on(model, *to, gradient),
            Kind::Makes(made, in_place) => {
                let overwrite = (*in_place && self.left[node] == 0).then_some(gradient);
                self.make(model, made, overwrite, work.scratch)
            }
        };
        work.values().for_each(|value| self.missing[value] -= 1);
        for &read in &work.reads {
            self.held[read as usize].readers -= 1;
            self.drop(read);
        }
        if self.left[node] == 0 {
            self.release(gradient);
            for &parameter in &model.parameters[node] {
                self.uses[parameter] -= 1;
                if self.uses[parameter] == 0 && self.made[parameter] && model.is_fused {
                    self.live -= model.parameter_bytes[parameter];
                }
            }
        }
        most
    }

    /// Returns the peak in bytes while a piece runs, if it ran now.
    pub(super) fn needs(&self, model: &Model, piece: usize) -> u64 {
        let work = &model.works[piece];
        let copied = |to: NodeId| match self.gradients[to] {
            NONE => 0,
            held if self.held[held as usize].holders == 1 => 0,
            _ => model.gradients[to].bytes,
        };
        match &work.kind {
            Kind::HandsOn(to) if self.gradients[*to] == NONE => self.live,
            Kind::HandsOn(to) => self.live + copied(*to),
            Kind::Makes(made, in_place) => {
                let gradient = self.gradients[work.node];
                let overwrite = (*in_place && self.left[work.node] == 1).then_some(gradient);
                let fresh = made.iter().map(|it| match it.target {
                    Target::Parameter(parameter) if self.made[parameter] => 0,
                    Target::Parameter(parameter) => model.parameter_bytes[parameter],
                    Target::Value(to) if self.gradients[to] != NONE => copied(to),
                    Target::Value(to) if self.place(model, it, to, overwrite).is_some() => 0,
                    Target::Value(to) => model.gradients[to].bytes,
                });
                self.live + fresh.sum::<u64>() + work.scratch
            }
        }
    }

    /// Returns the bytes that are alive after a piece, if it ran now.
    pub(super) fn after(&self, model: &Model, piece: usize) -> u64 {
        let mut state = self.clone();
        state.run(model, piece);
        state.live
    }

    fn hand_on(&mut self, model: &Model, to: NodeId, gradient: u32) -> u64 {
        if self.gradients[to] == NONE {
            self.give(to, gradient);
            return 0;
        }
        self.own(model, to).max(self.live)
    }

    fn make(&mut self, model: &Model, all: &[Made], overwrite: Option<u32>, scratch: u64) -> u64 {
        let (mut most, mut fresh) = (0, 0);
        for made in all {
            match made.target {
                Target::Parameter(parameter) if self.made[parameter] => {}
                Target::Parameter(parameter) => {
                    self.made[parameter] = true;
                    fresh += model.parameter_bytes[parameter];
                }
                Target::Value(to) if self.gradients[to] != NONE => most = most.max(self.own(model, to)),
                Target::Value(to) => match self.place(model, made, to, overwrite) {
                    Some(place) => self.give(to, place),
                    None => {
                        fresh += model.gradients[to].bytes;
                        self.begin(model, to);
                    }
                },
            }
        }
        self.live += fresh;
        most.max(self.live + scratch)
    }

    /// Returns the memory that the first gradient of a value may overwrite; `None` if there is none.
    fn place(&self, model: &Model, made: &Made, to: NodeId, overwrite: Option<u32>) -> Option<u32> {
        let saved = made.over.as_ref().filter(|(_, before)| before.iter().all(|&piece| self.over[piece]));
        let place = saved.map(|(saved, _)| *saved).or(overwrite)?;
        let (held, like) = (&self.held[place as usize], &model.gradients[to]);
        (held.holders <= 1 && (held.batched, held.elements) == (like.batched, like.elements)).then_some(place)
    }

    /// Adds a tensor for the gradient of a value. Its bytes are counted elsewhere.
    fn begin(&mut self, model: &Model, to: NodeId) {
        self.held.push(model.gradients[to]);
        self.give(to, self.held.len() as u32 - 1);
    }

    /// Copies the gradient of a value if others are in that tensor. Returns the peak in bytes meanwhile; 0 without a copy.
    fn own(&mut self, model: &Model, to: NodeId) -> u64 {
        let shared = self.gradients[to];
        if self.held[shared as usize].holders == 1 {
            return 0;
        }
        self.live += model.gradients[to].bytes;
        let most = self.live;
        self.release(shared);
        self.begin(model, to);
        most
    }

    fn give(&mut self, to: NodeId, held: u32) {
        self.gradients[to] = held;
        self.held[held as usize].holders += 1;
    }

    fn release(&mut self, held: u32) {
        self.held[held as usize].holders -= 1;
        self.drop(held);
    }

    /// Frees a piece of memory if nothing reads or holds it any more.
    fn drop(&mut self, held: u32) {
        let held = &self.held[held as usize];
        if !held.is_alive() {
            self.live -= held.bytes;
        }
    }

    /// Returns all that the rest of an order depends on: pieces that have run, and gradients that share memory.
    #[cfg(test)]
    pub(super) fn key(&self) -> (Vec<bool>, Vec<usize>) {
        let first = |held: &u32| self.gradients.iter().position(|other| other == held).unwrap_or(0);
        let is_there = |held: &u32| *held != NONE && self.held[*held as usize].is_alive();
        (
            self.over.clone(),
            self.gradients.iter().map(|held| if is_there(held) { first(held) } else { usize::MAX }).collect(),
        )
    }
}
