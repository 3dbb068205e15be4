//! Number formats, and the formats that each precision uses.

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Half {
    /// bfloat16: 8 exponent bits, 7 fraction bits.
    Bf16,
    /// IEEE 754 binary16: 5 exponent bits, 10 fraction bits.
    F16,
}

impl Half {
    /// Returns it as a [`Format`].
    pub const fn format(self) -> Format {
        match self {
            Half::Bf16 => Format::Bf16,
            Half::F16 => Format::F16,
        }
    }
}

/// The number format of one element in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// Unsigned 32-bit integers.
    U32,
    /// Unsigned 8-bit integers.
    U8,
}

impl Format {
    /// True if it has a fraction.
    pub const fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::Bf16 | Format::F16)
    }

    /// Returns the bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Format::F32 | Format::U32 => 4,
            Format::Bf16 | Format::F16 => 2,
            Format::U8 => 1,
        }
    }
}

/// The number format of a network's weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Every precision.
    pub const ALL: [Precision; 5] =
        [Precision::F32, Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)];

    /// Returns the name as written in `TRAIN`, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "F32",
            Precision::Bf16 => "Bf16",
            Precision::F16 => "F16",
            Precision::Mixed(Half::Bf16) => "Mixed(Bf16)",
            Precision::Mixed(Half::F16) => "Mixed(F16)",
        }
    }

    /// Returns the format of weights and activations.
    pub const fn narrow(self) -> Format {
        match self {
            Precision::F32 => Format::F32,
            Precision::Bf16 => Format::Bf16,
            Precision::F16 => Format::F16,
            Precision::Mixed(half) => half.format(),
        }
    }

    /// Returns the format of optimizer state and of the parameters of normalisation layers.
    pub const fn wide(self) -> Format {
        match self {
            Precision::F32 | Precision::Mixed(_) => Format::F32,
            Precision::Bf16 => Format::Bf16,
            Precision::F16 => Format::F16,
        }
    }

    /// True if every weight also has an f32 master copy.
    pub const fn has_master(self) -> bool {
        matches!(self, Precision::Mixed(_))
    }

    /// True if gradients can be too small or too large for their format, so that the loss is scaled.
    pub const fn scales_loss(self) -> bool {
        matches!(self.narrow(), Format::F16)
    }
}
