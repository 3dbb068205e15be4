//! What a tensor's elements are for, and how many bytes each takes at a given precision.
//!
//! A program says the *role* of every tensor; bytes exist only once a [`Precision`] is chosen. This is what lets the
//! refusal plan the same network at another precision without asking the macro again.

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// bfloat16: 8 exponent bits, 7 fraction bits.
    Bf16,
    /// IEEE 754 binary16: 5 exponent bits, 10 fraction bits.
    F16,
}

/// The number format of a network's weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats everywhere.
    F32,
    /// bfloat16 weights, gradients, optimizer state and activations. Statistics stay in f32.
    Bf16,
    /// binary16 weights, gradients, optimizer state and activations. Statistics stay in f32.
    F16,
    /// 16-bit weights and activations with an f32 master copy of every weight and f32 optimizer state. Parameters of
    /// normalisation layers exist in f32 only, and so do their gradients.
    Mixed(Half),
}

impl Precision {
    /// The name as written in `TRAIN`, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "F32",
            Precision::Bf16 => "Bf16",
            Precision::F16 => "F16",
            Precision::Mixed(Half::Bf16) => "Mixed(Bf16)",
            Precision::Mixed(Half::F16) => "Mixed(F16)",
        }
    }

    /// The 16-bit format of weights and activations, if they have one.
    pub const fn half(self) -> Option<Half> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 | Precision::Mixed(Half::Bf16) => Some(Half::Bf16),
            Precision::F16 | Precision::Mixed(Half::F16) => Some(Half::F16),
        }
    }

    /// Whether every weight has an f32 master copy beside it.
    pub const fn has_master(self) -> bool {
        matches!(self, Precision::Mixed(_))
    }
}

/// What a tensor's elements are for.
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
    /// The step counter and the random seed: 32-bit words.
    State = 6,
    /// Scratch memory of a matrix product: as many f32 as could be of use, or fewer where
    /// [`Workspaces::product`](crate::step::Workspaces) caps it.
    ProductWorkspace = 7,
    /// Scratch memory of a convolution: as many f32 as could be of use, or fewer where
    /// [`Workspaces::convolution`](crate::step::Workspaces) caps it.
    ConvolutionWorkspace = 8,
}

impl Role {
    /// Every role, in the order of their numbers.
    pub const ALL: [Role; 9] = [
        Role::Activation,
        Role::Weight,
        Role::Norm,
        Role::Moment,
        Role::Statistic,
        Role::Index,
        Role::State,
        Role::ProductWorkspace,
        Role::ConvolutionWorkspace,
    ];

    /// The role with this number, as the generated tables write it.
    pub const fn from_number(number: u64) -> Option<Role> {
        if number < Role::ALL.len() as u64 { Some(Role::ALL[number as usize]) } else { None }
    }

    /// Bytes one element takes at `precision`. A workspace may be cut short: see [`Workspaces::cap`](crate::step::Workspaces).
    pub const fn bytes(self, precision: Precision) -> u64 {
        match (self, precision) {
            (Role::Statistic | Role::Index | Role::State, _) | (_, Precision::F32) => 4,
            (Role::ProductWorkspace | Role::ConvolutionWorkspace, _) => 4,
            (Role::Norm | Role::Moment, Precision::Mixed(_)) => 4,
            _ => 2,
        }
    }

    /// Bytes one element of a parameter's f32 master copy takes at `precision`: 4 for 16-bit weights under mixed
    /// precision, else 0.
    pub const fn master_bytes(self, precision: Precision) -> u64 {
        match (self, precision) {
            (Role::Weight, Precision::Mixed(_)) => 4,
            _ => 0,
        }
    }
}
