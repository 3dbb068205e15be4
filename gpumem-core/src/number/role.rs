//! Roles: the purpose of a tensor's elements, and their format in memory at a given precision.
//!
//! A program states the *role* of every tensor. Bytes are known only once a [`Precision`] is chosen. So a refusal can plan
//! the network at another precision without asking the macro again.

use super::{Coding, Format, Precision};

/// The purpose of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Values between layers, and their gradients.
    Activation = 0,
    /// Weights and biases of products, convolutions and embeddings, and their gradients.
    Weight = 1,
    /// Scale and shift of normalisation layers, and their gradients.
    Norm = 2,
    /// Optimizer state: one element for each element of the parameter.
    Moment = 3,
    /// Means, variances, row maxima, losses: f32 at every precision.
    Statistic = 4,
    /// Class labels, tokens, positions of maxima: unsigned 32-bit integers.
    Index = 5,
    /// Step counter, random seed and other [words of the state](crate::program::StateWord): 32-bit words.
    State = 6,
    /// Scratch memory of a matrix product, in f32: as much as it could use, or less if
    /// [`Workspaces::product`](crate::memory::tables::Workspaces) limits it.
    ProductWorkspace = 7,
    /// Scratch memory of a convolution, in f32: as much as it could use, or less if
    /// [`Workspaces::convolution`](crate::memory::tables::Workspaces) limits it.
    ConvolutionWorkspace = 8,
    /// Pixels of images as they are stored: unsigned 8-bit integers.
    Byte = 9,
    /// Optimizer state in 8 bits: the codes of a [`DynamicMap`](crate::number::dynamic_8bit::DynamicMap).
    Code = 10,
    /// Optimizer state that is f32 at every precision. It is the scales of blocks of codes, or the whole state of a parameter that has
    /// too few elements for codes.
    WideMoment = 11,
    /// Weights of 8 bits: the codes of [`Coding::Int8`].
    Int8 = 12,
    /// Weights of 4 bits: the codes of [`Coding::Nf4`], two to a byte.
    Nf4 = 13,
    /// The scales of blocks of quantized weights, or words with codes of the scales: f32 at every precision.
    Scale = 14,
    /// A piece of master copies on its way from host memory and back. It is f32 if there are [master copies](Role::master), and 0 bytes
    /// if there are none.
    Master = 15,
    /// An activation mask: a bit of each element, eight to a byte.
    Bit = 16,
    /// Weights of 4 bits whose scales are quantized as well: [`Coding::Nf4Double`].
    Nf4Double = 17,
}

impl Role {
    /// Every role, in the order of their numbers.
    pub const ALL: [Role; 18] = [
        Role::Activation,
        Role::Weight,
        Role::Norm,
        Role::Moment,
        Role::Statistic,
        Role::Index,
        Role::State,
        Role::ProductWorkspace,
        Role::ConvolutionWorkspace,
        Role::Byte,
        Role::Code,
        Role::WideMoment,
        Role::Int8,
        Role::Nf4,
        Role::Scale,
        Role::Master,
        Role::Bit,
        Role::Nf4Double,
    ];

    /// Returns the role with this number, as the generated tables write it. `None` if there is no such role.
    pub const fn from_number(number: u64) -> Option<Role> {
        if number < Role::ALL.len() as u64 { Some(Role::ALL[number as usize]) } else { None }
    }

    /// Returns the format of an element at `precision`.
    pub const fn format(self, precision: Precision) -> Format {
        match self {
            Role::Activation | Role::Weight => precision.narrow(),
            Role::Norm | Role::Moment => precision.wide(),
            Role::Statistic
            | Role::ProductWorkspace
            | Role::ConvolutionWorkspace
            | Role::WideMoment
            | Role::Scale
            | Role::Master => Format::F32,
            Role::Index | Role::State => Format::U32,
            Role::Byte | Role::Code | Role::Int8 | Role::Nf4 | Role::Bit | Role::Nf4Double => Format::U8,
        }
    }

    /// Returns the format of a parameter's master copy at `precision`. `None` if there is no copy, as for all but weights that are narrower
    /// than optimizer state.
    pub const fn master(self, precision: Precision) -> Option<Format> {
        match self {
            _ if self.has_master() && precision.has_master() => Some(precision.wide()),
            _ => None,
        }
    }

    /// True if parameters of this role have a master copy at precisions with master copies.
    pub const fn has_master(self) -> bool {
        matches!(self, Role::Weight)
    }

    /// True if it is optimizer state.
    pub const fn is_optimizer_state(self) -> bool {
        matches!(self, Role::Moment | Role::Code | Role::WideMoment)
    }

    /// Returns the coding of a quantized weight, or `None` for any other role.
    pub const fn coding(self) -> Option<Coding> {
        match self {
            Role::Int8 => Some(Coding::Int8),
            Role::Nf4 => Some(Coding::Nf4),
            Role::Nf4Double => Some(Coding::Nf4Double),
            _ => None,
        }
    }

    /// Returns the elements of a tensor's shape in one element in memory: more than one if codes or bits share a byte.
    pub const fn packed(self) -> u64 {
        match self.coding() {
            Some(coding) => coding.packed(),
            None if matches!(self, Role::Bit) => 8,
            None => 1,
        }
    }

    /// True if it is scratch memory that may be limited.
    pub const fn is_workspace(self) -> bool {
        matches!(self, Role::ProductWorkspace | Role::ConvolutionWorkspace)
    }

    /// Returns the bytes of one element in memory at `precision`. Scratch may be limited: see [`Workspaces::cap`](crate::memory::tables::Workspaces).
    pub const fn bytes(self, precision: Precision) -> u64 {
        match self {
            Role::Master if !precision.has_master() => 0,
            _ => self.format(precision).bytes(),
        }
    }
}

impl Coding {
    /// Returns the role of a tensor of its codes.
    pub const fn role(self) -> Role {
        match self {
            Coding::Int8 => Role::Int8,
            Coding::Nf4 => Role::Nf4,
            Coding::Nf4Double => Role::Nf4Double,
        }
    }
}
