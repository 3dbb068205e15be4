//! Roles of tensors for an operation.

use super::encoding::{Reader, Wire};
use alloc::vec::Vec;

/// The role of a tensor for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An input, activation or parameter, by its number.
    Input(u8),
    /// The output.
    Output,
    /// A running statistic: read and written in training.
    Buffer(u8),
    /// A tensor that the forward pass saves for the backward pass.
    Saved(u8),
    /// The gradient of the output.
    Gradient,
    /// The gradient of an input: written, or added to if the operation accumulates.
    InputGradient(u8),
    /// A parameter that is updated.
    Parameter,
    /// Its gradient.
    ParameterGradient,
    /// Its optimizer state.
    Moment(u8),
    /// The words of [`StateWord`](super::StateWord).
    State,
    /// The target that the loss compares with.
    Target,
    /// The scalar loss.
    Loss,
    /// Scratch memory of this operation alone. A backend that needs none leaves it.
    Workspace,
    /// An operand of the operation before in a [fusion group](super::fusion), which this one must not overwrite, so that both may run as one.
    GroupInput(u8),
    /// A cache entry: numbers of earlier time steps, to which this call adds its own.
    Cache(u8),
    /// A piece of the parameter's master copy, if the copy is in host memory.
    Master,
    /// Scratch memory that the operation requires, by its number. No other operation reads it.
    Scratch(u8),
    /// The moving average of a parameter.
    Average,
    /// A tensor that an exchange sends to other ranks, by its number.
    Sent(u8),
    /// The tensor in which an exchange receives numbers for the `Sent` of the same number.
    Received(u8),
}

impl Slot {
    /// True if this is memory of the operation alone, without contents before and after it.
    pub fn is_scratch(self) -> bool {
        matches!(self, Slot::Workspace | Slot::Scratch(_))
    }
}

impl Wire for Slot {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, index) = match *self {
            Slot::Input(index) => (0u64, index),
            Slot::Output => (1, 0),
            Slot::Buffer(index) => (2, index),
            Slot::Saved(index) => (3, index),
            Slot::Gradient => (4, 0),
            Slot::InputGradient(index) => (5, index),
            Slot::Parameter => (6, 0),
            Slot::ParameterGradient => (7, 0),
            Slot::Moment(index) => (8, index),
            Slot::State => (9, 0),
            Slot::Target => (10, 0),
            Slot::Loss => (11, 0),
            Slot::Workspace => (12, 0),
            Slot::GroupInput(index) => (13, index),
            Slot::Cache(index) => (14, index),
            Slot::Master => (15, 0),
            Slot::Scratch(index) => (16, index),
            Slot::Average => (17, 0),
            Slot::Sent(index) => (18, index),
            Slot::Received(index) => (19, index),
        };
        (u64::from(index) << 5 | kind).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Slot> {
        let word = u64::take(from)?;
        let index = u8::try_from(word >> 5).ok()?;
        Some(match word & 31 {
            0 => Slot::Input(index),
            1 => Slot::Output,
            2 => Slot::Buffer(index),
            3 => Slot::Saved(index),
            4 => Slot::Gradient,
            5 => Slot::InputGradient(index),
            6 => Slot::Parameter,
            7 => Slot::ParameterGradient,
            8 => Slot::Moment(index),
            9 => Slot::State,
            10 => Slot::Target,
            11 => Slot::Loss,
            12 => Slot::Workspace,
            13 => Slot::GroupInput(index),
            14 => Slot::Cache(index),
            15 => Slot::Master,
            16 => Slot::Scratch(index),
            17 => Slot::Average,
            18 => Slot::Sent(index),
            19 => Slot::Received(index),
            _ => return None,
        })
    }
}
