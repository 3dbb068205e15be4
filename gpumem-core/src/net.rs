//! A network on a device: typed steps over an untyped runner.

use crate::device::{Device, Job, Placed, Runner};
use crate::error::Error;
use crate::layout::place;
use crate::network::Network;
use crate::optim::Optimizer;
use crate::program::{Class, Init, StateWord, TensorId};
use crate::random::Stream;
use crate::role::{Half, Precision};
use crate::suggest::nearest;
use crate::tensor::Host;
use crate::train::Train;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// A network `N` loaded onto a device `D`: `let mut net = Vgg16::on(&device)?`.
pub struct Net<N, D: Device> {
    runner: D::Runner,
    train: Option<Placed>,
    infer: Placed,
    precision: Precision,
    seed: u64,
    optimizer: Optimizer,
    buffer: Vec<u8>,
    network: PhantomData<N>,
}

impl<N: Network, D: Device> fmt::Debug for Net<N, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("name", &N::NAME).field("arena", &N::BUDGET.arena).finish_non_exhaustive()
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Loads the network onto `device`: one allocation, then the parameters are initialised from the seed in `TRAIN`.
    ///
    /// # Errors
    /// Too little memory, or a precision that the device cannot run.
    pub fn load(device: &D) -> Result<Net<N, D>, Error> {
        let () = N::CHECKED;
        let settings = N::TRAIN.unwrap_or(Train::DEFAULT);
        let train = N::TRAINING.map(place).transpose()?;
        let mut infer = place(N::EVALUATION)?;
        let mut arena = N::EVALUATION.budget.arena;
        if let Some(train) = &train {
            arena = share(train, &mut infer, N::PROGRAM.budget.arena, N::EVALUATION.budget.activations)?;
        }
        let runner = device.load(Job {
            name: N::NAME,
            arena,
            reserve: N::BUDGET.reserve,
            batch: N::EVALUATION.budget.batch_size,
            precision: N::EVALUATION.budget.precision,
            train: train.clone(),
            infer: infer.clone(),
            optimizer: settings.optimizer,
            tf32: settings.tf32,
            deterministic: settings.deterministic,
        })?;
        let (seed, optimizer) = (settings.seed, settings.optimizer);
        let precision = N::EVALUATION.budget.precision;
        let mut net =
            Net { runner, train, infer, precision, seed, optimizer, buffer: Vec::new(), network: PhantomData };
        net.reset()?;
        Ok(net)
    }

    /// Fills parameters, optimizer state and running statistics as before the first step.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn reset(&mut self) -> Result<(), Error> {
        let placed = self.train.as_ref().unwrap_or(&self.infer);
        let mut bytes = Vec::new();
        for (id, tensor) in placed.program.tensors.iter().enumerate() {
            bytes.clear();
            let elements = tensor.elements(1).unwrap_or(0);
            let Spot { offset, half } = spot(placed, id, self.precision);
            match tensor.class {
                Class::Parameter | Class::Moment | Class::Buffer => {
                    let mut stream = Stream::new(self.seed, id as u32);
                    bytes.extend((0..elements).flat_map(|_| draw(&mut stream, tensor.init).to_le_bytes()));
                    if let Some(master) = placed.masters[id] {
                        self.runner.write(master, &bytes)?;
                    }
                    if let Some(half) = half {
                        half.narrow_bytes(&mut bytes);
                    }
                }
                Class::State => {
                    let mut words = [0; StateWord::COUNT];
                    words[StateWord::Seed as usize] = self.seed as u32;
                    words[StateWord::Seed as usize + 1] = (self.seed >> 32) as u32;
                    words[StateWord::LearningRate as usize] = (self.optimizer.lr() as f32).to_bits();
                    words[StateWord::LossScale as usize] = loss_scale(self.precision).to_bits();
                    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                }
                Class::Input | Class::Target | Class::Gradient => {
                    bytes.resize(placed.bytes[id] as usize, 0);
                }
                Class::Transient => continue,
            }
            self.runner.write(offset, &bytes)?;
        }
        Ok(())
    }

    /// One training step: forward, backward and update. Returns the loss before the update, as soon as that is known: on a
    /// card the backward pass and the update may still be running.
    ///
    /// # Errors
    /// A network without `TRAIN`, or invalid data such as a label beyond the last class; the parameters are then as
    /// before.
    pub fn train_step(&mut self, input: &N::Input, target: &N::Target) -> Result<f32, Error>
    where
        N::Input: Host,
        N::Target: Host,
    {
        self.enqueue_step(input, target)?;
        self.loss()
    }

    /// Starts one training step and does not wait for anything but the step before the last: [`Net::loss`] asks for its
    /// loss. On a card the input is copied while an earlier step runs.
    ///
    /// # Errors
    /// As for [`Net::train_step`].
    pub fn enqueue_step(&mut self, input: &N::Input, target: &N::Target) -> Result<(), Error>
    where
        N::Input: Host,
        N::Target: Host,
    {
        let Some(train) = &self.train else {
            let what = "the network has no `const TRAIN`; add one to train it".into();
            return Err(Error::Unsupported { device: N::NAME, what });
        };
        let [input_at, target_at] = [Class::Input, Class::Target].map(|class| first_of(train, class, self.precision));
        let (input_at, target_at) = (input_at?, target_at?);
        self.put(input, input_at.half);
        self.runner.feed(input_at.offset, &self.buffer)?;
        self.put(target, target_at.half);
        self.runner.feed(target_at.offset, &self.buffer)?;
        self.runner.train()
    }

    /// The loss of the last training step, waiting for it if it is not known yet.
    ///
    /// # Errors
    /// A network without `TRAIN`, or a failure of the device.
    pub fn loss(&mut self) -> Result<f32, Error> {
        let at = self.trained()?.program.result;
        let offset = self.trained()?.offsets[at as usize];
        self.runner.loss(offset)
    }

    /// Starts one more training step on the batch of the last one, which is on the device already: nothing is copied, and
    /// only a step that is running is waited for.
    ///
    /// # Errors
    /// A network without `TRAIN`, or a failure of the device.
    pub fn train_again(&mut self) -> Result<(), Error> {
        self.trained()?;
        self.runner.train()
    }

    /// One forward pass: BatchNorm with its running statistics, no dropout.
    ///
    /// # Errors
    /// Invalid data such as a token beyond the table.
    pub fn forward(&mut self, input: &N::Input) -> Result<N::Output, Error>
    where
        N::Input: Host,
        N::Output: Host,
    {
        let input_at = first_of(&self.infer, Class::Input, self.precision)?;
        let output_at = spot(&self.infer, self.infer.program.result as usize, self.precision);
        self.put(input, input_at.half);
        self.runner.write(input_at.offset, &self.buffer)?;
        self.runner.infer()?;
        self.buffer.resize(<N::Output as Host>::ELEMENTS * if output_at.half.is_some() { 2 } else { 4 }, 0);
        self.runner.read(output_at.offset, &mut self.buffer)?;
        if let Some(half) = output_at.half {
            half.widen_bytes(&mut self.buffer);
        }
        N::Output::take(&self.buffer)
    }

    /// Puts a tensor's elements into the buffer as they are in the arena.
    fn put<T: Host>(&mut self, tensor: &T, half: Option<Half>) {
        self.buffer.clear();
        tensor.put(&mut self.buffer);
        if let Some(half) = half {
            half.narrow_bytes(&mut self.buffer);
        }
    }

    /// Names of all parameters, running statistics and optimizer state, such as `stage[0].conv2d[1].weight`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.main().program.tensors.iter().filter(|tensor| is_named(tensor.class)).map(|tensor| tensor.name.as_str())
    }

    /// The values of a parameter, a running statistic or an optimizer state, in row-major order. Under mixed precision a
    /// parameter's values are those of its f32 master copy.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name.
    pub fn get(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        let (id, elements) = self.find(name)?;
        let Spot { offset, half } = spot(self.main(), id, self.precision);
        let (offset, half) = self.main().masters[id].map_or((offset, half), |master| (master, None));
        let mut bytes = vec![0; elements as usize * if half.is_some() { 2 } else { 4 }];
        self.runner.read(offset, &mut bytes)?;
        if let Some(half) = half {
            half.widen_bytes(&mut bytes);
        }
        Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Sets a parameter, a running statistic or an optimizer state, in row-major order.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name, [`Error::Length`] if it has another number of elements.
    pub fn set(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        let (id, elements) = self.find(name)?;
        if elements != values.len() as u64 {
            let what = alloc::format!("`{name}`");
            return Err(Error::Length { what, expected: elements, found: values.len() as u64 });
        }
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let Spot { offset, half } = spot(self.main(), id, self.precision);
        if let Some(master) = self.main().masters[id] {
            self.runner.write(master, &bytes)?;
        }
        if let Some(half) = half {
            half.narrow_bytes(&mut bytes);
        }
        self.runner.write(offset, &bytes)
    }

    /// Training steps that have been made: what a training that goes on elsewhere needs beside everything in
    /// [`Net::names`], for the optimizer's first step differs and dropout draws by the step.
    ///
    /// # Errors
    /// A network without `TRAIN`, or a failure of the device.
    pub fn steps(&mut self) -> Result<u64, Error> {
        let offset = self.state()?;
        let mut bytes = [0; 8];
        self.runner.read(offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sets the number of training steps that have been made.
    ///
    /// # Errors
    /// As for [`Net::steps`].
    pub fn set_steps(&mut self, steps: u64) -> Result<(), Error> {
        let offset = self.state()?;
        self.runner.write(offset, &steps.to_le_bytes())
    }

    fn trained(&self) -> Result<&Placed, Error> {
        let what = "the network has no `const TRAIN`, so it makes no steps";
        self.train.as_ref().ok_or_else(|| Error::Unsupported { device: N::NAME, what: what.into() })
    }

    fn state(&self) -> Result<u64, Error> {
        let state = first_of(self.trained()?, Class::State, self.precision)?;
        Ok(state.offset + 4 * StateWord::Step as u64)
    }

    /// What runs the network, for what is special to a device.
    pub fn runner_mut(&mut self) -> &mut D::Runner {
        &mut self.runner
    }

    /// Changes the learning rate from the next step on.
    pub fn set_lr(&mut self, lr: f64) {
        self.optimizer = self.optimizer.with_lr(lr);
        self.runner.set_optimizer(self.optimizer);
    }

    fn main(&self) -> &Placed {
        self.train.as_ref().unwrap_or(&self.infer)
    }

    /// Number and elements of the tensor of this name.
    fn find(&self, name: &str) -> Result<(usize, u64), Error> {
        let mut tensors = self.main().program.tensors.iter().enumerate();
        match tensors.find(|(_, tensor)| is_named(tensor.class) && tensor.name == name) {
            Some((id, tensor)) => Ok((id, tensor.elements(1).unwrap_or(0))),
            None => {
                let known: Vec<&str> = self.names().collect();
                let nearest = nearest(name, &known).map(String::from);
                Err(Error::Name { name: name.to_string(), nearest })
            }
        }
    }
}

/// Lets the forward pass use the training step's parameters, buffers and input. Both passes use the activations' part of
/// the arena, one after the other; the arena's size is returned.
fn share(train: &Placed, infer: &mut Placed, arena: u64, activations: u64) -> Result<u64, Error> {
    let base = |placed: &Placed| placed.program.transients().map(|id| placed.offsets[id as usize]).min().unwrap_or(0);
    let (from, to) = (base(infer), base(train));
    for class in [Class::Parameter, Class::Buffer, Class::Input] {
        let own: Vec<TensorId> = infer.program.of_class(class).collect();
        let theirs: Vec<TensorId> = train.program.of_class(class).collect();
        if own.len() != theirs.len() {
            return Err(Error::Damaged("training and inference disagree on the network's tensors"));
        }
        for (own, theirs) in own.into_iter().zip(theirs) {
            infer.offsets[own as usize] = train.offsets[theirs as usize];
        }
    }
    let transients: Vec<TensorId> = infer.program.transients().collect();
    for id in transients {
        let offset = &mut infer.offsets[id as usize];
        *offset = *offset - from + to;
    }
    Ok(arena.max(to + activations))
}

/// A tensor's place in the arena, and the 16-bit format of its elements there, if they have one.
#[derive(Clone, Copy)]
struct Spot {
    offset: u64,
    half: Option<Half>,
}

fn spot(placed: &Placed, id: usize, precision: Precision) -> Spot {
    let is_narrow = placed.program.tensors[id].role.bytes(precision) == 2;
    Spot { offset: placed.offsets[id], half: precision.half().filter(|_| is_narrow) }
}

fn first_of(placed: &Placed, class: Class, precision: Precision) -> Result<Spot, Error> {
    let id = placed.program.of_class(class).next().ok_or(Error::Damaged("the program lacks an input"))?;
    Ok(spot(placed, id as usize, precision))
}

fn is_named(class: Class) -> bool {
    matches!(class, Class::Parameter | Class::Buffer | Class::Moment | Class::Gradient)
}

/// What the loss is multiplied with in the first step: gradients in binary16 would be lost below 6e-8. A backend changes it
/// where gradients become too large, or have long been small.
fn loss_scale(precision: Precision) -> f32 {
    if precision.half() == Some(Half::F16) { 65536.0 } else { 1.0 }
}

fn draw(stream: &mut Stream, init: Init) -> f32 {
    match init {
        Init::Constant(value) => value as f32,
        Init::Uniform(bound) => ((2.0 * stream.uniform() - 1.0) * bound) as f32,
        Init::Normal(deviation) => (stream.normal() * deviation) as f32,
    }
}
