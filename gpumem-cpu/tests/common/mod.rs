//! Programs of one operation: forward, a loss that makes any gradient reachable, backward.
#![allow(dead_code, unreachable_pub)]

pub mod builder;
#[path = "../../../gpumem-core/tests/common/mod.rs"]
pub mod graphs;

use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::graph::Elements;
use gpumem_core::graph::{Graph, Node, Source, Type};
use gpumem_core::lower::with_normalized_convolutions;
use gpumem_core::program::loss::LossOptions;
use gpumem_core::program::op::{Gradient, Op, Reads, Work};
use gpumem_core::program::{Action, Class, Criterion, Measure, Pass, Slot, StateWord, TensorId};
use gpumem_core::run::device::{Device, Runner};
use gpumem_core::shape::Shape;
use gpumem_cpu::{Cpu, Session};

use builder::Builder;

pub fn write(session: &mut Session, offset: u64, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    session.write(offset, &bytes).unwrap();
}

pub fn write_words(session: &mut Session, offset: u64, values: &[u32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    session.write(offset, &bytes).unwrap();
}

pub fn read(session: &mut Session, offset: u64, length: usize) -> Vec<f32> {
    let mut bytes = vec![0; length * 4];
    session.read(offset, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|x| f32::from_ne_bytes(x.try_into().unwrap())).collect()
}

/// Distinct numbers, evenly spaced on `[-1.5, 1.5] * scale` in a scrambled order: no two of them are close, and none is
/// close to 0.
pub fn numbers(length: usize, seed: usize, scale: f32) -> Vec<f32> {
    let even = length + length % 2;
    let stride = (1..).map(|k| even * 618 / 1000 + k).find(|&s| gcd(s, even) == 1).unwrap();
    (0..length).map(|i| (((i + seed) * stride % even) as f32 + 0.5) / even as f32 * 3.0 * scale - 1.5 * scale).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How a layer is run.
#[derive(Clone, Copy)]
pub struct Options {
    pub batch: u64,
    /// Whether the output overwrites the input.
    pub forward_in_place: bool,
    /// Whether the gradient of the input overwrites that of the output.
    pub backward_in_place: bool,
    pub accumulate: bool,
    pub scale: f32,
    /// Whether inputs are above 0.5.
    pub positive: bool,
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            batch: 2,
            forward_in_place: false,
            backward_in_place: false,
            accumulate: false,
            scale: 1.0,
            positive: false,
            threads: 2,
        }
    }
}

/// An input of a layer.
#[derive(Clone)]
pub enum Input {
    Numbers(Vec<u64>),
    Shared(Vec<u64>),
    Tokens(Vec<u32>),
    /// Indices of these dimensions, those of all samples.
    Indices(Vec<u64>, Vec<u32>),
}

impl Input {
    fn value(&self, batch: u64) -> Type {
        match self {
            Input::Numbers(dims) => Type::numbers(Shape::new(dims)),
            Input::Shared(dims) => Type { batched: false, ..Type::numbers(Shape::new(dims)) },
            Input::Tokens(tokens) => Type::indices(Shape::new(&[tokens.len() as u64 / batch])),
            Input::Indices(dims, _) => Type::indices(Shape::new(dims)),
        }
    }
}

/// The one operation of a layer.
pub struct Single {
    graph: Graph,
    node: Node,
    pub op: Op,
    /// The values that it reads.
    reads: Vec<Node>,
    buffers: Vec<usize>,
}

impl Single {
    /// The operation of a layer that is written as in a network; views of its output are left out.
    pub fn new(text: &str, inputs: &[Input], batch: u64) -> Single {
        let mut graph = Graph::default();
        let nodes: Vec<usize> = inputs.iter().map(|input| graph.input(input.value(batch)).unwrap()).collect();
        graphs::join(&mut graph, &nodes, text);
        Single::last(graph)
    }

    /// The use of another layer's weight on an input of `[3, 5]`: that of a table, or `transposed` that of a product.
    pub fn tied(transposed: bool) -> Single {
        let mut graph = Graph::default();
        let x = graph.input(graphs::numbers(&[3, 5])).unwrap();
        if transposed {
            let other = graph.input(graphs::numbers(&[3, 4])).unwrap();
            graphs::layer(&mut graph, other, "Linear(5)");
        } else {
            let other = graph.input(graphs::tokens(3)).unwrap();
            graphs::layer(&mut graph, other, "Embedding(4, 5)");
        }
        graphs::again(&mut graph, x, "Tied", 0);
        Single::last(graph)
    }

    /// What a layer's weight is made by, on an input that the weight does not depend on.
    pub fn of_weight(text: &str, dims: &[u64]) -> Single {
        let mut graph = Graph::default();
        let x = graph.input(graphs::numbers(dims)).unwrap();
        graphs::layer(&mut graph, x, text);
        let is_made = |node: &Node| matches!(node.source, Source::Op { op: Op::Reparametrize(_), .. });
        let made = graph.nodes.iter().position(is_made).expect("the weight is made of its parameters");
        graph.nodes.truncate(made + 1);
        Single::last(graph)
    }

    /// A convolution of one pixel and the normalisation behind it, which are one in front of a sum: so many channels in and out.
    pub fn normalized(norm: &str, [ins, outs]: [u64; 2], [height, width]: [u64; 2], batch: u64) -> Single {
        let mut graph = Graph::default();
        let x = Input::Numbers(vec![ins, height, width]);
        let x = graph.input(x.value(batch)).unwrap();
        let before = graphs::layer(&mut graph, x, "BatchNorm2d(affine = false)");
        let made = graphs::chain(&mut graph, before, &format!("Conv2d({outs}, 1, bias = false) | {norm}"));
        let sum = graphs::join(&mut graph, &[made, made], "Add");
        let mut graph = with_normalized_convolutions(&graph, &[sum]);
        graph.nodes.truncate(made + 1);
        Single::last(graph)
    }

    fn last(graph: Graph) -> Single {
        let is_op = |node: &&Node| matches!(node.source, Source::Op { .. });
        let node = graph.nodes.iter().rfind(is_op).expect("a layer has an operation").clone();
        let of_layer = graph.nodes.iter().filter(|other| other.row == node.row).filter(is_op).count();
        let Source::Op { op, inputs, buffers, .. } = node.source.clone() else { unreachable!() };
        // In front of a recurrence is the map of what arrives.
        assert!(of_layer == 1 || matches!(op, Op::Recurrence(_)), "{:?}", graph.rows[node.row]);
        let reads = inputs.into_iter().map(|id| graph.nodes[id].clone()).collect();
        Single { node, op, reads, buffers, graph }
    }

    /// Whether the output may overwrite the first input.
    pub fn in_place(&self) -> bool {
        let (first, output) = (self.reads[0].value, self.node.value);
        self.op.in_place() && (first.shape, first.batched) == (output.shape, output.batched)
    }

    /// The operation and the only rule by which it has gradients, if there is one.
    pub fn gradient(&self) -> Option<(Vec<(u8, Reads)>, bool)> {
        match &self.op.gradients()[..] {
            [Gradient::Computed { of, in_place }] => Some((of.clone(), *in_place)),
            _ => None,
        }
    }
}

/// Nothing but a recurrence reads its gates, so that their gradient is never added to another one.
fn adds_to_inputs(op: &Op) -> bool {
    !matches!(op, Op::Recurrence(_))
}

/// A training step of one operation: `sum(op(inputs) * target)` and its gradients.
pub struct OneLayer {
    pub session: Session,
    pub offsets: Vec<u64>,
    pub lengths: Vec<usize>,
    pub inputs: Vec<TensorId>,
    pub parameters: Vec<TensorId>,
    pub buffers: Vec<TensorId>,
    pub output: TensorId,
    pub target: TensorId,
    pub loss: TensorId,
    pub state: TensorId,
    /// Tensors with their gradients.
    pub gradients: Vec<(TensorId, TensorId)>,
    pub before: f32,
    /// Whether gradients of inputs are added to that, as those of parameters are.
    adds_to_inputs: bool,
}

fn slots(kind: fn(u8) -> Slot, tensors: &[TensorId]) -> Vec<(Slot, TensorId)> {
    tensors.iter().enumerate().map(|(i, &tensor)| (kind(i as u8), tensor)).collect()
}

/// A step under construction.
struct Step<'a> {
    builder: Builder,
    single: &'a Single,
    options: Options,
    /// The operation's inputs.
    operands: Vec<TensorId>,
    saved: Vec<TensorId>,
    output: TensorId,
    gradient: TensorId,
    state: TensorId,
    /// The gradients of the operation's inputs, by their numbers.
    gradients: Vec<Option<TensorId>>,
}

impl Step<'_> {
    fn forward(&mut self, buffers: &[TensorId]) {
        let Step { builder, single, output, .. } = self;
        let (output, mut operands) = (*output, self.operands.clone());
        if self.options.forward_in_place {
            let copied = [(Slot::Input(0), operands[0])];
            builder.operation(Action::Copy, &copied, &[(Slot::Output, output)], false);
            operands[0] = output;
        }
        let mut reads = slots(Slot::Input, &operands);
        reads.extend(slots(Slot::Buffer, buffers));
        if single.op.draws() {
            reads.push((Slot::State, self.state));
        }
        let mut writes = vec![(Slot::Output, output)];
        writes.extend(slots(Slot::Saved, &self.saved));
        writes.extend(slots(Slot::Buffer, buffers));
        writes.extend(self.scratch(Work::Training));
        writes.extend(self.workspace(Work::Training));
        let Step { builder, single, .. } = self;
        builder.operation(Action::Run { op: single.op.clone(), pass: Pass::Forward }, &reads, &writes, false);
    }

    /// What a piece of work makes for itself.
    fn scratch(&mut self, work: Work) -> Vec<(Slot, TensorId)> {
        let all = self.single.op.scratch(work);
        let tensors = all.iter().map(|it| self.builder.tensor(Class::Gradient, it.role, it.shape.dims(), it.batched));
        slots(Slot::Scratch, &tensors.collect::<Vec<_>>())
    }

    /// Scratch memory of a piece of work, if it is what every backend needs.
    fn workspace(&mut self, work: Work) -> Option<(Slot, TensorId)> {
        let workspace = self.single.op.workspace(work).filter(|it| it.role == Role::Statistic)?;
        let dims = workspace.shape.dims();
        Some((Slot::Workspace, self.builder.tensor(Class::Gradient, workspace.role, dims, workspace.batched)))
    }

    fn backward(&mut self) {
        for (index, rule) in self.single.op.gradients().into_iter().enumerate() {
            let Gradient::Computed { of, in_place } = rule else { continue };
            let any = |read: fn(&Reads) -> bool| of.iter().any(|(_, reads)| read(reads));
            let mut reads = vec![(Slot::Gradient, self.gradient)];
            let is_read = |slot: &Slot| {
                let Slot::Input(index) = slot else { return false };
                of.iter().any(|(_, reads)| reads.inputs.contains(usize::from(*index)))
            };
            reads.extend(slots(Slot::Input, &self.operands).into_iter().filter(|(slot, _)| is_read(slot)));
            if any(|reads| reads.output) {
                reads.push((Slot::Output, self.output));
            }
            if any(|reads| reads.saved) {
                reads.extend(slots(Slot::Saved, &self.saved));
            }
            if any(|reads| reads.state) {
                reads.push((Slot::State, self.state));
            }
            let in_place = in_place && self.options.backward_in_place && self.single.op.gradients().len() == 1;
            let mut writes = Vec::new();
            for (input, _) in of {
                let node = &self.single.reads[usize::from(input)];
                let is_parameter = matches!(node.source, Source::Parameter(_));
                let id = if in_place && !is_parameter && node.value == self.single.node.value {
                    self.gradient
                } else {
                    let tensor = &self.builder.program.tensors[self.operands[usize::from(input)] as usize];
                    let (role, shape, batched) = (tensor.role, tensor.shape, tensor.batched);
                    self.builder.tensor(Class::Gradient, role, shape.dims(), batched)
                };
                self.gradients[usize::from(input)] = Some(id);
                writes.push((Slot::InputGradient(input), id));
            }
            writes.extend(self.scratch(Work::Gradient(index)));
            writes.extend(self.workspace(Work::Gradient(index)));
            let action = Action::Run { op: self.single.op.clone(), pass: Pass::Backward };
            let is_parameter = |slot: Slot| match slot {
                Slot::InputGradient(input) => {
                    matches!(self.single.reads[usize::from(input)].source, Source::Parameter(_))
                }
                _ => false,
            };
            let adds_to_all = self.options.accumulate && adds_to_inputs(&self.single.op);
            if self.options.accumulate && !adds_to_all {
                reads.extend(writes.iter().copied().filter(|(slot, _)| is_parameter(*slot)));
            }
            self.builder.operation(action, &reads, &writes, adds_to_all);
            self.builder.program.operations.last_mut().unwrap().accumulate = self.options.accumulate;
        }
    }
}

impl OneLayer {
    /// A layer that is written as in a network.
    pub fn new(text: &str, inputs: &[Input], options: Options) -> OneLayer {
        OneLayer::of(&Single::new(text, inputs, options.batch), inputs, options)
    }

    pub fn of(single: &Single, inputs: &[Input], options: Options) -> OneLayer {
        let mut b = Builder::new(true, options.batch);
        let mut values: Vec<(TensorId, Vec<f32>)> = Vec::new();
        let (mut operands, mut activations, mut parameters, mut indices) = (vec![], vec![], vec![], vec![]);
        for node in &single.reads {
            let dims = node.value.shape.dims();
            let length = node.value.shape.elements().unwrap() * if node.value.batched { options.batch } else { 1 };
            let id = match node.source {
                Source::Parameter(number) => {
                    let role = single.graph.parameters[number].role;
                    let id = b.tensor(Class::Parameter, role, dims, false);
                    values.push((id, numbers(length as usize, 3 + parameters.len(), 1.0)));
                    parameters.push(id);
                    id
                }
                _ if node.value.elements == Elements::Indices => {
                    indices.push(b.tensor(Class::Input, Role::Index, dims, true));
                    indices[indices.len() - 1]
                }
                _ => {
                    let id = b.tensor(Class::Input, Role::Activation, dims, node.value.batched);
                    let mut numbers = numbers(length as usize, activations.len() * 7, options.scale);
                    if options.positive {
                        numbers.iter_mut().for_each(|number| *number = number.abs() + 0.5);
                    }
                    values.push((id, numbers));
                    activations.push(id);
                    id
                }
            };
            operands.push(id);
        }
        let buffers: Vec<TensorId> = single
            .buffers
            .iter()
            .map(|&id| &single.graph.buffers[id])
            .map(|buffer| {
                let id = b.tensor(Class::Buffer, Role::Statistic, buffer.shape.dims(), false);
                let gpumem_core::program::Init::Constant(value) = buffer.init else { panic!("{buffer:?}") };
                values.push((id, vec![value as f32; buffer.shape.elements().unwrap() as usize]));
                id
            })
            .collect();
        let state = b.tensor(Class::State, Role::State, &[StateWord::COUNT as u64], false);
        let (shape, batched) = (single.node.value.shape, single.node.value.batched);
        let target = b.tensor(Class::Target, Role::Activation, shape.dims(), batched);
        let length = shape.elements().unwrap() * if batched { options.batch } else { 1 };
        values.push((target, numbers(length as usize, 5, 1.0)));
        // Kept so that tests can read them; in a network most of these are transients.
        let output = b.tensor(Class::Buffer, Role::Activation, shape.dims(), batched);
        let saved = single.op.saved().into_iter();
        let saved = saved.map(|it| b.tensor(Class::Transient, it.role, it.shape.dims(), it.batched)).collect();
        let gradient = b.tensor(Class::Buffer, Role::Activation, shape.dims(), batched);
        let loss = b.tensor(Class::Transient, Role::Statistic, &[1], false);
        b.program.results = vec![loss];
        let gradients = vec![None; operands.len()];
        let mut step = Step { builder: b, single, options, operands, saved, output, gradient, state, gradients };
        step.forward(&buffers);
        let criterion = Criterion::new(Measure::Dot, 1.0, LossOptions::DEFAULT, shape);
        step.builder.operation(
            Action::Loss(criterion),
            &[(Slot::Input(0), output), (Slot::Target, target)],
            &[(Slot::Loss, loss), (Slot::InputGradient(0), gradient)],
            false,
        );
        step.backward();

        let Step { builder: b, operands, gradients, .. } = step;
        let gradients: Vec<(TensorId, TensorId)> =
            operands.into_iter().zip(gradients).filter_map(|(x, dx)| Some((x, dx?))).collect();
        let lengths: Vec<usize> =
            b.program.tensors.iter().map(|tensor| tensor.elements(options.batch).unwrap() as usize).collect();
        let job = b.job();
        let offsets = job.train.as_ref().unwrap().offsets.clone();
        let mut session = Cpu::with_threads(options.threads).unwrap().with_poison(true).load(job).unwrap();
        for (id, values) in values {
            write(&mut session, offsets[id as usize], &values);
        }
        let tokens = inputs.iter().filter_map(|input| match input {
            Input::Tokens(tokens) | Input::Indices(_, tokens) => Some(tokens),
            Input::Numbers(_) | Input::Shared(_) => None,
        });
        for (id, tokens) in indices.into_iter().zip(tokens) {
            write_words(&mut session, offsets[id as usize], tokens);
        }
        write_words(&mut session, offsets[state as usize], &[5, 0, 77, 1]);
        let before = 0.5;
        for &(_, id) in &gradients {
            let fill = vec![before; lengths[id as usize]];
            write(&mut session, offsets[id as usize], &fill);
        }
        OneLayer {
            session,
            offsets,
            lengths,
            inputs: activations,
            parameters,
            buffers,
            output,
            target,
            loss,
            state,
            gradients,
            before: if options.accumulate { before } else { 0.0 },
            adds_to_inputs: adds_to_inputs(&single.op),
        }
    }

    pub fn get(&mut self, id: TensorId) -> Vec<f32> {
        read(&mut self.session, self.offsets[id as usize], self.lengths[id as usize])
    }

    pub fn set(&mut self, id: TensorId, values: &[f32]) {
        assert_eq!(values.len(), self.lengths[id as usize]);
        write(&mut self.session, self.offsets[id as usize], values);
    }

    pub fn run(&mut self) -> Result<f32, Error> {
        self.session.train()?;
        Ok(self.get(self.loss)[0])
    }

    /// Output and all gradients after one step.
    pub fn results(&mut self) -> Vec<Vec<f32>> {
        self.run().unwrap();
        let ids: Vec<TensorId> = self.gradients.iter().map(|&(_, gradient)| gradient).collect();
        let mut results: Vec<Vec<f32>> = ids.into_iter().map(|id| self.get(id)).collect();
        results.push(self.get(self.output));
        results
    }

    /// Compares every gradient with the central difference of the loss.
    pub fn check_gradients(&mut self, what: &str) {
        const STEP: f32 = 4e-3;
        self.run().unwrap();
        let pairs = self.gradients.clone();
        assert!(!pairs.is_empty(), "{what} has no gradients");
        let gradients: Vec<Vec<f32>> = pairs.iter().map(|&(_, gradient)| self.get(gradient)).collect();
        for (&(id, _), gradient) in pairs.iter().zip(&gradients) {
            let values = self.get(id);
            for element in 0..values.len() {
                let mut moved = values.clone();
                let mut loss = |x: f32| {
                    moved[element] = x;
                    self.set(id, &moved);
                    f64::from(self.run().unwrap())
                };
                let (low, high) = (values[element] - STEP, values[element] + STEP);
                let slope = (loss(high) - loss(low)) / f64::from(high - low);
                let is_added = self.adds_to_inputs || self.parameters.contains(&id);
                let found = f64::from(gradient[element] - if is_added { self.before } else { 0.0 });
                assert!(
                    (found - slope).abs() < 3e-3 * slope.abs().max(1.0),
                    "{what}: element {element} of tensor {id}: gradient {found}, difference {slope}"
                );
            }
            self.set(id, &values);
        }
    }
}

/// Whether two lists agree to `tolerance`, relative to the larger of 1 and the number.
pub fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "element {index}: {found} instead of {expected}");
    }
}
