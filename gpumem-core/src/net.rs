//! A network on a device: typed steps over an untyped runner.

use crate::device::{Device, Job, Placed, Runner};
use crate::error::Error;
use crate::layout::place;
use crate::network::Network;
use crate::optim::Optimizer;
use crate::program::{Class, Init, StateWord, TensorId};
use crate::random::Stream;
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
            batch: N::EVALUATION.budget.batch_size,
            precision: N::EVALUATION.budget.precision,
            train: train.clone(),
            infer: infer.clone(),
            optimizer: settings.optimizer,
            tf32: settings.tf32,
            deterministic: settings.deterministic,
        })?;
        let (seed, optimizer) = (settings.seed, settings.optimizer);
        let mut net = Net { runner, train, infer, seed, optimizer, buffer: Vec::new(), network: PhantomData };
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
        for (id, (tensor, &offset)) in placed.program.tensors.iter().zip(&placed.offsets).enumerate() {
            bytes.clear();
            let elements = tensor.elements(1).unwrap_or(0);
            match tensor.class {
                Class::Parameter | Class::Moment | Class::Buffer => {
                    let mut stream = Stream::new(self.seed, id as u32);
                    bytes.extend((0..elements).flat_map(|_| draw(&mut stream, tensor.init).to_le_bytes()));
                }
                Class::State => {
                    let mut words = [0; StateWord::COUNT];
                    words[StateWord::Seed as usize] = self.seed as u32;
                    words[StateWord::Seed as usize + 1] = (self.seed >> 32) as u32;
                    words[StateWord::LearningRate as usize] = (self.optimizer.lr() as f32).to_bits();
                    words[StateWord::LossScale as usize] = 1f32.to_bits();
                    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                }
                Class::Input | Class::Target | Class::Gradient => {
                    bytes.resize(tensor.elements(N::PROGRAM.budget.batch_size).unwrap_or(0) as usize * 4, 0);
                }
                Class::Transient => continue,
            }
            self.runner.write(offset, &bytes)?;
        }
        Ok(())
    }

    /// One training step: forward, backward and update. Returns the loss before the update.
    ///
    /// # Errors
    /// A network without `TRAIN`, or invalid data such as a label beyond the last class; the parameters are then as
    /// before.
    pub fn train_step(&mut self, input: &N::Input, target: &N::Target) -> Result<f32, Error>
    where
        N::Input: Host,
        N::Target: Host,
    {
        let Some(train) = &self.train else {
            let what = "the network has no `const TRAIN`; add one to train it".into();
            return Err(Error::Unsupported { device: N::NAME, what });
        };
        let (input_at, target_at) = (offset_of(train, Class::Input)?, offset_of(train, Class::Target)?);
        let loss_at = train.offsets[train.program.result as usize];
        self.send(input_at, input)?;
        self.send(target_at, target)?;
        self.runner.train()?;
        let mut loss = [0; 4];
        self.runner.read(loss_at, &mut loss)?;
        Ok(f32::from_le_bytes(loss))
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
        let input_at = offset_of(&self.infer, Class::Input)?;
        let output_at = self.infer.offsets[self.infer.program.result as usize];
        self.send(input_at, input)?;
        self.runner.infer()?;
        self.buffer.resize(<N::Output as Host>::ELEMENTS * 4, 0);
        self.runner.read(output_at, &mut self.buffer)?;
        N::Output::take(&self.buffer)
    }

    fn send<T: Host>(&mut self, offset: u64, tensor: &T) -> Result<(), Error> {
        self.buffer.clear();
        tensor.put(&mut self.buffer);
        self.runner.write(offset, &self.buffer)
    }

    /// Names of all parameters, running statistics and optimizer state, such as `stage[0].conv2d[1].weight`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.main().program.tensors.iter().filter(|tensor| is_named(tensor.class)).map(|tensor| tensor.name.as_str())
    }

    /// The values of a parameter, a running statistic or an optimizer state, in row-major order.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name.
    pub fn get(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        let (offset, elements) = self.find(name)?;
        let mut bytes = vec![0; elements as usize * 4];
        self.runner.read(offset, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Sets a parameter, a running statistic or an optimizer state, in row-major order.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name, [`Error::Length`] if it has another number of elements.
    pub fn set(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        let (offset, elements) = self.find(name)?;
        if elements != values.len() as u64 {
            let what = alloc::format!("`{name}`");
            return Err(Error::Length { what, expected: elements, found: values.len() as u64 });
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
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

    fn state(&self) -> Result<u64, Error> {
        let what = "the network has no `const TRAIN`, so it makes no steps";
        let train = self.train.as_ref().ok_or_else(|| Error::Unsupported { device: N::NAME, what: what.into() })?;
        Ok(offset_of(train, Class::State)? + 4 * StateWord::Step as u64)
    }

    /// Changes the learning rate from the next step on.
    pub fn set_lr(&mut self, lr: f64) {
        self.optimizer = self.optimizer.with_lr(lr);
        self.runner.set_optimizer(self.optimizer);
    }

    fn main(&self) -> &Placed {
        self.train.as_ref().unwrap_or(&self.infer)
    }

    fn find(&self, name: &str) -> Result<(u64, u64), Error> {
        let placed = self.main();
        let found = placed
            .program
            .tensors
            .iter()
            .zip(&placed.offsets)
            .find(|(tensor, _)| is_named(tensor.class) && tensor.name == name);
        match found {
            Some((tensor, &offset)) => Ok((offset, tensor.elements(1).unwrap_or(0))),
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

fn offset_of(placed: &Placed, class: Class) -> Result<u64, Error> {
    let id = placed.program.of_class(class).next().ok_or(Error::Damaged("the program lacks an input"))?;
    Ok(placed.offsets[id as usize])
}

fn is_named(class: Class) -> bool {
    matches!(class, Class::Parameter | Class::Buffer | Class::Moment | Class::Gradient)
}

fn draw(stream: &mut Stream, init: Init) -> f32 {
    match init {
        Init::Constant(value) => value as f32,
        Init::Uniform(bound) => ((2.0 * stream.uniform() - 1.0) * bound) as f32,
        Init::Normal(deviation) => (stream.normal() * deviation) as f32,
    }
}
