//! Networks of one layer, built by hand: forward, a loss that makes any gradient reachable, backward.
#![allow(dead_code, unreachable_pub)]

use gpumem_core::device::{Device, Job, Placed, Runner};
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::layers::rule::{Backward, Reads};
use gpumem_core::optim::{Optimizer, Sgd};
use gpumem_core::program::{
    Action, Class, Criterion, Init, Measure, Operand, Operation, Program, Slot, Tensor, TensorId,
};
use gpumem_core::shape::Shape;
use gpumem_core::step::Part;
use gpumem_core::{Precision, Role};
use gpumem_cpu::{Cpu, Session};

/// A program in the making.
pub struct Builder {
    pub program: Program,
    pub batch: u64,
}

impl Builder {
    pub fn new(training: bool, batch: u64) -> Builder {
        let program = Program {
            training,
            moments: 0,
            holds_gradients: false,
            tensors: Vec::new(),
            operations: Vec::new(),
            paths: vec!["layer".into()],
            result: 0,
        };
        Builder { program, batch }
    }

    pub fn tensor(&mut self, class: Class, role: Role, dims: &[u64], batched: bool) -> TensorId {
        self.program.tensors.push(Tensor {
            class,
            role,
            part: Part::Output,
            name: String::new(),
            row: 0,
            shape: Shape::new(dims),
            batched,
            init: Init::Constant(0.0),
            first: u32::MAX,
            last: 0,
        });
        self.program.tensors.len() as TensorId - 1
    }

    /// Appends an operation; `accumulate` adds what it writes to gradients to what it reads.
    pub fn operation(
        &mut self,
        action: Action,
        reads: &[(Slot, TensorId)],
        writes: &[(Slot, TensorId)],
        accumulate: bool,
    ) {
        let operands = |list: &[(Slot, TensorId)]| -> Vec<Operand> {
            list.iter().map(|&(slot, tensor)| Operand { slot, tensor }).collect()
        };
        let mut reads = operands(reads);
        if accumulate {
            let gradient = |slot| matches!(slot, Slot::InputGradient(_) | Slot::ParameterGradient(_));
            reads.extend(operands(writes).into_iter().filter(|operand| gradient(operand.slot)));
        }
        let index = self.program.operations.len() as u32;
        let operation = Operation { action, row: 3, accumulate, reads, writes: operands(writes) };
        for tensor in operation.tensors() {
            let tensor = &mut self.program.tensors[tensor as usize];
            tensor.first = tensor.first.min(index);
            tensor.last = tensor.last.max(index);
        }
        self.program.operations.push(operation);
    }

    /// Every tensor at a place of its own, and the size of the arena.
    pub fn place(self) -> (Placed, u64) {
        let mut offsets = Vec::new();
        let mut end = 0u64;
        for tensor in &self.program.tensors {
            offsets.push(end);
            end += (tensor.elements(self.batch).unwrap() * 4).next_multiple_of(256);
        }
        (Placed::new(self.program, offsets, self.batch, Precision::F32), end)
    }

    pub fn job(self) -> Job {
        let batch = self.batch;
        let training = self.program.training;
        let (placed, arena) = self.place();
        let infer = if training { empty() } else { placed.clone() };
        Job {
            name: "Test",
            arena,
            reserve: 0,
            batch,
            precision: Precision::F32,
            train: training.then_some(placed),
            infer,
            optimizer: Optimizer::Sgd(Sgd::DEFAULT),
            tf32: false,
            deterministic: false,
        }
    }
}

/// A program that does nothing.
pub fn empty() -> Placed {
    Placed::new(Builder::new(false, 1).program, Vec::new(), 1, Precision::F32)
}

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
}

/// A training step of one layer: `sum(layer(inputs) * target)` and its gradients.
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
    pub input_gradients: Vec<Option<TensorId>>,
    pub parameter_gradients: Vec<TensorId>,
    pub state: TensorId,
    pub before: f32,
}

fn slots(kind: fn(u8) -> Slot, tensors: &[TensorId]) -> Vec<(Slot, TensorId)> {
    tensors.iter().enumerate().map(|(i, &tensor)| (kind(i as u8), tensor)).collect()
}

impl OneLayer {
    pub fn new(layer: &Layer, inputs: &[Input], options: Options) -> OneLayer {
        let mut b = Builder::new(true, options.batch);
        let mut input_ids = Vec::new();
        let mut values: Vec<(TensorId, Vec<f32>)> = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            input_ids.push(match input {
                Input::Numbers(dims) | Input::Shared(dims) => {
                    let batched = matches!(input, Input::Numbers(_));
                    let id = b.tensor(Class::Input, Role::Activation, dims, batched);
                    let length = dims.iter().product::<u64>() * if batched { options.batch } else { 1 };
                    values.push((id, numbers(length as usize, index * 7, options.scale)));
                    id
                }
                Input::Tokens(tokens) => {
                    b.tensor(Class::Input, Role::Index, &[tokens.len() as u64 / options.batch], true)
                }
            });
        }
        let mut parameters = Vec::new();
        for (index, parameter) in layer.parameters().iter().enumerate() {
            let id = b.tensor(Class::Parameter, parameter.role, parameter.shape.dims(), false);
            values.push((id, numbers(parameter.shape.elements().unwrap() as usize, 3 + index, 1.0)));
            parameters.push(id);
        }
        let mut buffers = Vec::new();
        for buffer in layer.buffers() {
            let id = b.tensor(Class::Buffer, Role::Statistic, buffer.shape.dims(), false);
            values.push((id, vec![buffer.value as f32; buffer.shape.elements().unwrap() as usize]));
            buffers.push(id);
        }
        let state = b.tensor(Class::State, Role::State, &[8], false);
        let batched = !layer.ignores_input();
        let shape = layer.output();
        let target = b.tensor(Class::Target, Role::Activation, shape.dims(), batched);
        let length = shape.elements().unwrap() * if batched { options.batch } else { 1 };
        values.push((target, numbers(length as usize, 5, 1.0)));
        // Kept so that tests can read them; in a network most of these are transients.
        let output = b.tensor(Class::Buffer, Role::Activation, shape.dims(), batched);
        let mut saved = Vec::new();
        for tensor in layer.saved() {
            saved.push(b.tensor(Class::Transient, tensor.role, tensor.shape.dims(), tensor.batched));
        }
        let gradient = b.tensor(Class::Buffer, Role::Activation, shape.dims(), batched);
        let loss = b.tensor(Class::Transient, Role::Statistic, &[1], false);
        b.program.result = loss;

        let mut read_ids = input_ids.clone();
        let result = if options.forward_in_place {
            b.operation(Action::Copy, &[(Slot::Input(0), input_ids[0])], &[(Slot::Output, output)], false);
            read_ids[0] = output;
            output
        } else {
            output
        };
        let mut reads = slots(Slot::Input, &read_ids);
        reads.extend(slots(Slot::Parameter, &parameters));
        reads.extend(slots(Slot::Buffer, &buffers));
        if layer.draws() {
            reads.push((Slot::State, state));
        }
        let mut writes = vec![(Slot::Output, result)];
        writes.extend(slots(Slot::Saved, &saved));
        writes.extend(slots(Slot::Buffer, &buffers));
        b.operation(Action::Forward(layer.clone()), &reads, &writes, false);
        let criterion = Criterion { kind: Measure::Dot, outer: 1, classes: shape.elements().unwrap(), inner: 1 };
        b.operation(
            Action::Loss(criterion),
            &[(Slot::Input(0), output), (Slot::Target, target)],
            &[(Slot::Loss, loss), (Slot::InputGradient(0), gradient)],
            false,
        );

        let before = 0.5;
        let mut prefilled = Vec::new();
        let mut input_gradients = vec![None; inputs.len()];
        let mut parameter_gradients = Vec::new();
        let reads_of = |reads: Reads| -> Vec<(Slot, TensorId)> {
            let mut list = vec![(Slot::Gradient, gradient)];
            if reads.input {
                list.extend(slots(Slot::Input, &input_ids));
            }
            if reads.output {
                list.push((Slot::Output, output));
            }
            if reads.parameters {
                list.extend(slots(Slot::Parameter, &parameters));
            }
            if reads.saved {
                list.extend(slots(Slot::Saved, &saved));
            }
            if reads.state {
                list.push((Slot::State, state));
            }
            list
        };
        let of_parameters = |b: &mut Builder| -> Vec<TensorId> {
            let list = layer.parameters();
            list.iter().map(|p| b.tensor(Class::Gradient, p.role, p.shape.dims(), false)).collect()
        };
        let mut of_input = |b: &mut Builder, index: usize, in_place: bool| -> TensorId {
            let id = match &inputs[index] {
                _ if in_place && options.backward_in_place => gradient,
                Input::Numbers(dims) | Input::Shared(dims) => b.tensor(Class::Gradient, Role::Activation, dims, true),
                Input::Tokens(_) => unreachable!(),
            };
            input_gradients[index] = Some(id);
            id
        };
        match layer.backward() {
            _ if matches!(layer, Layer::Add(_)) => {}
            Backward::Input { reads, in_place } => {
                let join = matches!(layer, Layer::Mul(_) | Layer::Concat(_));
                for index in 0..if join { inputs.len() } else { 1 } {
                    let id = of_input(&mut b, index, in_place && !join);
                    prefilled.push(id);
                    let mut reads = reads_of(reads);
                    if join {
                        reads.retain(|(slot, _)| *slot != Slot::Input(index as u8));
                    }
                    let writes = [(Slot::InputGradient(index as u8), id)];
                    b.operation(Action::BackwardInput(layer.clone()), &reads, &writes, options.accumulate);
                }
            }
            Backward::Parameters { reads } => {
                parameter_gradients = of_parameters(&mut b);
                let writes = slots(Slot::ParameterGradient, &parameter_gradients);
                b.operation(Action::BackwardParameters(layer.clone()), &reads_of(reads), &writes, options.accumulate);
            }
            Backward::Split { input, parameters } => {
                parameter_gradients = of_parameters(&mut b);
                let writes = slots(Slot::ParameterGradient, &parameter_gradients);
                let action = Action::BackwardParameters(layer.clone());
                b.operation(action, &reads_of(parameters), &writes, options.accumulate);
                let id = of_input(&mut b, 0, false);
                prefilled.push(id);
                let writes = [(Slot::InputGradient(0), id)];
                b.operation(Action::BackwardInput(layer.clone()), &reads_of(input), &writes, options.accumulate);
            }
            Backward::Joint { reads, in_place } => {
                parameter_gradients = of_parameters(&mut b);
                let id = of_input(&mut b, 0, in_place);
                let mut writes = slots(Slot::ParameterGradient, &parameter_gradients);
                writes.push((Slot::InputGradient(0), id));
                b.operation(Action::Backward(layer.clone()), &reads_of(reads), &writes, options.accumulate);
                prefilled.push(id);
            }
        }
        prefilled.extend(&parameter_gradients);

        let lengths: Vec<usize> =
            b.program.tensors.iter().map(|tensor| tensor.elements(options.batch).unwrap() as usize).collect();
        let job = b.job();
        let offsets = job.train.as_ref().unwrap().offsets.clone();
        let mut session = Cpu::with_threads(options.threads).unwrap().with_poison(true).load(job).unwrap();
        for (id, values) in values {
            write(&mut session, offsets[id as usize], &values);
        }
        for (&id, input) in input_ids.iter().zip(inputs) {
            if let Input::Tokens(tokens) = input {
                write_words(&mut session, offsets[id as usize], tokens);
            }
        }
        write_words(&mut session, offsets[state as usize], &[5, 0, 77, 1]);
        for id in prefilled {
            let fill = vec![before; lengths[id as usize]];
            write(&mut session, offsets[id as usize], &fill);
        }
        OneLayer {
            session,
            offsets,
            lengths,
            inputs: input_ids,
            parameters,
            buffers,
            output,
            target,
            loss,
            input_gradients,
            parameter_gradients,
            state,
            before: if options.accumulate { before } else { 0.0 },
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
        let ids: Vec<TensorId> = self.gradients().iter().map(|&(_, gradient)| gradient).collect();
        let mut results: Vec<Vec<f32>> = ids.into_iter().map(|id| self.get(id)).collect();
        results.push(self.get(self.output));
        results
    }

    /// Tensors with their gradients.
    pub fn gradients(&self) -> Vec<(TensorId, TensorId)> {
        let inputs = self.inputs.iter().zip(&self.input_gradients).filter_map(|(&x, &dx)| Some((x, dx?)));
        inputs.chain(self.parameters.iter().copied().zip(self.parameter_gradients.iter().copied())).collect()
    }

    /// Compares every gradient with the central difference of the loss.
    pub fn check_gradients(&mut self, what: &str) {
        const STEP: f32 = 4e-3;
        self.run().unwrap();
        let pairs = self.gradients();
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
                let found = f64::from(gradient[element] - self.before);
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
