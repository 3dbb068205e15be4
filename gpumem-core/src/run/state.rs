//! The training state, byte for byte, for a training that is resumed elsewhere.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::network::{Learns, Network};
use crate::number::{Format, Role};
use crate::program::{StateWord, TensorId};
use crate::run::device::{Device, Runner};
use crate::run::host_copies::{Spot, encode, exact, spot};
use crate::run::net::{Kind, Net};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A tensor of the training state, as the device stores it: see [`Net::state_tensors`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateTensor {
    /// Its name, such as `fc.weight`, `fc.weight.exp_avg`, or `fc.weight.absmax` for the scales of a quantized weight.
    pub name: String,
    /// Its dimensions, as PyTorch lays them out. Those of codes that share bytes are the number of bytes.
    pub shape: Vec<u64>,
    /// Its kind. Scales of a quantized weight are parameters.
    pub kind: Kind,
    /// The format of an element: that of the master copy if the parameter has one.
    pub format: Format,
    /// Bytes of all elements.
    pub bytes: u64,
    id: usize,
}

/// The numbers of a training state that are no tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateNumbers {
    /// Training steps that have been made.
    pub steps: u64,
    /// The seed that dropout draws from.
    pub seed: u64,
    /// The learning rate that [`Net::set_lr`] sets, before a schedule changes it.
    pub lr: f64,
    /// The factor of the loss before the backward pass. It is 1 unless gradients are in binary16.
    pub loss_scale: f32,
    /// Steps in a row whose gradients were finite, since the loss scale changed.
    pub good_steps: u32,
    /// Steps that updated nothing, because a gradient was not finite.
    pub skipped: u32,
    /// The number of times that parameters were averaged. 0 if `TRAIN` has no `ema`.
    pub averaged: u32,
    /// The `total` of the schedule that [`Net::set_total`] has set. `None` if it is that of `TRAIN`, or if there is none.
    pub total: Option<u64>,
}

/// A copy of a training state in host memory: see [`Net::snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The numbers of each training step.
    numbers: Vec<StateNumbers>,
    tensors: Vec<StateTensor>,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// Returns the numbers that are no tensors; of several training steps, those of the first.
    pub fn numbers(&self) -> StateNumbers {
        self.numbers.first().copied().expect("a network that trains has a step")
    }

    /// Returns the numbers that are no tensors, of each training step in the order of [`Network::STEPS`].
    pub fn numbers_of_steps(&self) -> &[StateNumbers] {
        &self.numbers
    }

    /// Returns each tensor with its bytes.
    pub fn tensors(&self) -> impl Iterator<Item = (&StateTensor, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.tensors.iter().map(move |tensor| {
            let (own, after) = rest.split_at_checked(tensor.bytes as usize).unwrap_or((rest, &[]));
            rest = after;
            (tensor, own)
        })
    }

    /// Returns the bytes of all tensors, which is the host memory that the snapshot takes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if the network has no tensor that lasts.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the tensors of the training state: parameters, running statistics and optimizer state.
    ///
    /// A parameter with a master copy is that copy; its rounded one follows from it. Gradients are no part of the state, since each step
    /// computes them anew.
    pub fn state_tensors(&self) -> Vec<StateTensor> {
        let placed = self.main();
        (0..placed.program.tensors.len()).filter_map(|id| self.state_tensor(placed, id)).collect()
    }

    pub(super) fn state_tensor(&self, placed: &Placed, id: usize) -> Option<StateTensor> {
        let tensor = &placed.program.tensors[id];
        let kind = match Kind::of(tensor) {
            Some(Kind::Gradient) => return None,
            Some(kind) => kind,
            // The scales of codes are a part of their weight, but separate bytes.
            None if tensor.role == Role::Scale => Kind::Parameter,
            None => return None,
        };
        let format = exact(placed, id, self.precision).format;
        // Of a sharded tensor the host has all elements.
        let stored = tensor.unsharded().unwrap_or(0);
        // Codes of 4 bits share bytes.
        let shape = if tensor.role.packed() > 1 { vec![stored] } else { tensor.shape.dims().to_vec() };
        let bytes = stored.saturating_mul(format.bytes());
        Some(StateTensor { name: tensor.name.clone(), shape, kind, format, bytes, id })
    }

    /// Copies the bytes of a tensor of the state to `to`, after all work that was started has ended.
    ///
    /// # Errors
    /// [`Error::Name`] for a tensor of another network, [`Error::Length`] if `to` has another length, or a failure of the device.
    pub fn read_state(&mut self, tensor: &StateTensor, to: &mut [u8]) -> Result<(), Error> {
        self.check_place(tensor, to.len())?;
        let Spot { offset, .. } = exact(self.main(), tensor.id, self.precision);
        self.runner.read(offset, to)
    }

    /// Checks that [`Net::write_state`] would take these bytes, and writes nothing.
    ///
    /// # Errors
    /// As for [`Net::write_state`], but none of the device.
    pub fn check_state(&self, tensor: &StateTensor, bytes: &[u8]) -> Result<(), Error> {
        self.check_place(tensor, bytes.len())?;
        if tensor.kind == Kind::Parameter || !tensor.format.is_float() {
            return Ok(());
        }
        self.states.check(tensor.id as TensorId, &tensor.name, false, &tensor.format.decode(bytes))
    }

    /// Writes the bytes of a tensor of the state. If it is a master copy, the rounded one follows it.
    ///
    /// # Errors
    /// As for [`Net::read_state`], and [`Error::Value`] for values that it cannot have, such as a negative variance. Nothing is written
    /// then.
    pub fn write_state(&mut self, tensor: &StateTensor, bytes: &[u8]) -> Result<(), Error> {
        self.check_state(tensor, bytes)?;
        // The cache was computed with the old numbers.
        self.kept.steps = 0;
        let placed = self.main();
        let (own, exact) = (spot(placed, tensor.id, self.precision), exact(placed, tensor.id, self.precision));
        if own.offset != exact.offset {
            let rounded = encode(own.format, &exact.format.decode(bytes));
            self.runner.write(own.offset, &rounded)?;
        }
        self.runner.write(exact.offset, bytes)
    }

    fn check_place(&self, tensor: &StateTensor, length: usize) -> Result<(), Error> {
        let placed = self.main();
        let own = (tensor.id < placed.program.tensors.len()).then(|| self.state_tensor(placed, tensor.id)).flatten();
        if own.as_ref() != Some(tensor) {
            return Err(Error::Name { name: tensor.name.clone(), nearest: None });
        }
        if tensor.bytes != length as u64 {
            let what = alloc::format!("`{}` in bytes", tensor.name);
            return Err(Error::Length { what, expected: tensor.bytes, found: length as u64 });
        }
        Ok(())
    }
}

impl<N: Learns, D: Device> Net<N, D> {
    /// Returns the numbers of the training state that are no tensors, of each training step in the order of [`Network::STEPS`].
    ///
    /// # Errors
    /// A failure of the device.
    pub fn state_numbers_of_steps(&mut self) -> Result<Vec<StateNumbers>, Error> {
        (0..=self.others.len()).map(|number| self.with_step(number, Net::state_numbers)).collect()
    }

    /// Sets the numbers of the training state that are no tensors, of each training step.
    ///
    /// # Errors
    /// As for [`Net::set_state_numbers`], and [`Error::Unsupported`] for those of more or fewer steps: nothing is set then.
    pub fn set_state_numbers_of_steps(&mut self, numbers: &[StateNumbers]) -> Result<(), Error> {
        self.check_state_numbers_of_steps(numbers)?;
        let mut all = numbers.iter().enumerate();
        all.try_for_each(|(number, numbers)| self.with_step(number, |net| net.set_state_numbers(*numbers)))
    }

    /// Checks that [`Net::set_state_numbers_of_steps`] would take these numbers, and sets nothing.
    ///
    /// # Errors
    /// As for [`Net::set_state_numbers_of_steps`], but none of the device.
    pub fn check_state_numbers_of_steps(&self, numbers: &[StateNumbers]) -> Result<(), Error> {
        let own = self.others.len() + 1;
        if numbers.len() != own {
            let what = alloc::format!(
                "the state has the numbers of {} training steps, and the network makes {own}; take the state of this network",
                numbers.len()
            );
            return Err(Error::Unsupported { device: N::NAME, what });
        }
        numbers.iter().try_for_each(|numbers| self.check_state_numbers(*numbers))
    }

    /// Returns the numbers of the training state that are no tensors; of several steps, those of the first.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn state_numbers(&mut self) -> Result<StateNumbers, Error> {
        let (steps, lr) = (self.steps()?, self.step.optimizer.lr());
        let [low, high, scale, good, skipped, averaged] = [
            StateWord::Seed as usize,
            StateWord::Seed as usize + 1,
            StateWord::LossScale as usize,
            StateWord::GoodSteps as usize,
            StateWord::Skipped as usize,
            StateWord::Averaged as usize,
        ]
        .map(|word| self.state_word(word));
        let seed = u64::from(low?) | u64::from(high?) << 32;
        let (own, written) = (self.step.schedule.total(), self.step.written_total);
        let total = own.filter(|_| own != written);
        let (loss_scale, good_steps) = (f32::from_bits(scale?), good?);
        let (skipped, averaged) = (skipped?, averaged?);
        Ok(StateNumbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged, total })
    }

    /// Sets the numbers of the training state that are no tensors; of several steps, those of the first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 2^53 steps or more, a learning rate that [`Net::set_lr`] refuses, a `total` that [`Net::set_total`] does, or a
    /// loss scale that is not a positive number: nothing is set then. A failure of the device.
    pub fn set_state_numbers(&mut self, numbers: StateNumbers) -> Result<(), Error> {
        self.check_state_numbers(numbers)?;
        self.set_steps(numbers.steps)?;
        self.set_lr(numbers.lr)?;
        if let Some(total) = numbers.total {
            self.take_total(total)?;
        }
        self.step.seed = numbers.seed;
        let words = [
            (StateWord::Seed as usize, numbers.seed as u32),
            (StateWord::Seed as usize + 1, (numbers.seed >> 32) as u32),
            (StateWord::LossScale as usize, numbers.loss_scale.to_bits()),
            (StateWord::GoodSteps as usize, numbers.good_steps),
            (StateWord::Skipped as usize, numbers.skipped),
            (StateWord::Averaged as usize, numbers.averaged),
        ];
        words.into_iter().try_for_each(|(word, value)| self.set_state_word(word, value))
    }

    /// Checks that [`Net::set_state_numbers`] would take these numbers, and sets nothing.
    ///
    /// # Errors
    /// As for [`Net::set_state_numbers`], but none of the device.
    pub fn check_state_numbers(&self, numbers: StateNumbers) -> Result<(), Error> {
        Self::check_steps(numbers.steps)?;
        Self::check_lr(numbers.lr)?;
        numbers.total.map_or(Ok(()), |total| self.check_total(total))?;
        if !(numbers.loss_scale > 0.0 && numbers.loss_scale.is_finite()) {
            let what = alloc::format!(
                "a loss scale must be above 0 and finite, not {}; take the one of a step whose loss was finite",
                numbers.loss_scale
            );
            return Err(Error::Unsupported { device: N::NAME, what });
        }
        Ok(())
    }

    /// Copies the training state to host memory.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let tensors = self.state_tensors();
        let mut snapshot = Snapshot { numbers: self.state_numbers_of_steps()?, tensors, bytes: Vec::new() };
        self.snapshot_into(&mut snapshot)?;
        Ok(snapshot)
    }

    /// Copies the training state to a snapshot that was taken before, whose memory it reuses.
    ///
    /// # Errors
    /// A failure of the device. The snapshot is then not a consistent state.
    pub fn snapshot_into(&mut self, snapshot: &mut Snapshot) -> Result<(), Error> {
        snapshot.numbers = self.state_numbers_of_steps()?;
        snapshot.tensors = self.state_tensors();
        let all: u64 = snapshot.tensors.iter().map(|tensor| tensor.bytes).sum();
        snapshot.bytes.resize(all as usize, 0);
        let mut rest = snapshot.bytes.as_mut_slice();
        for tensor in &snapshot.tensors {
            let (own, after) = rest.split_at_mut(tensor.bytes as usize);
            self.read_state(tensor, own)?;
            rest = after;
        }
        Ok(())
    }

    /// Takes part in the snapshot that another rank takes at the same time, and keeps nothing: shards of all ranks are gathered.
    ///
    /// # Errors
    /// As for [`Net::snapshot`].
    pub fn join_snapshot(&mut self) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for tensor in self.state_tensors() {
            bytes.resize(tensor.bytes as usize, 0);
            self.read_state(&tensor, &mut bytes)?;
        }
        Ok(())
    }

    /// Takes over the training state of a snapshot: the next step is the one that followed it, bit for bit on the CPU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the snapshot of a network with another state: nothing has changed then. A failure of the device.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        if self.state_tensors() != snapshot.tensors {
            let what =
                "the snapshot is of a network with other tensors; restore it to the network it was taken of".into();
            return Err(Error::Unsupported { device: N::NAME, what });
        }
        self.check_state_numbers_of_steps(&snapshot.numbers)?;
        for (tensor, bytes) in snapshot.tensors() {
            self.write_state(tensor, bytes)?;
        }
        self.set_state_numbers_of_steps(&snapshot.numbers)
    }
}

impl<N: Network, D: Device> Net<N, D> {
    pub(super) fn state_word(&mut self, word: usize) -> Result<u32, Error> {
        let place = self.state_place(word)?;
        let mut bytes = [0; 4];
        self.runner.read(place, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(super) fn set_state_word(&mut self, word: usize, value: u32) -> Result<(), Error> {
        let place = self.state_place(word)?;
        self.runner.write(place, &value.to_le_bytes())
    }
}
