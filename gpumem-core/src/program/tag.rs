//! What operations and tensors are to the layer that they belong to.

/// The row that tags write for operations and tensors that belong to no layer (the loss, for one).
pub const NO_ROW: u16 = u16::MAX;

/// What an operation does for its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Computes the layer's output.
    Forward = 0,
    /// Computes gradients.
    Backward = 1,
    /// Updates a parameter.
    Update = 2,
    /// Computes the loss and the gradient it starts from, and a chunk of what it measures.
    Loss = 3,
    /// Computes the layer's output a second time.
    Again = 4,
}

impl Phase {
    /// The text between `peak at` and the layer's path.
    pub const fn describe(tag: u8) -> &'static str {
        match tag {
            0 => "forward of ",
            1 => "backward of ",
            2 => "update of ",
            4 => "recomputation of ",
            _ => "loss over a chunk of ",
        }
    }
}

/// What a transient tensor is to its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The layer's output.
    Output = 0,
    /// The gradient of the layer's output.
    OutputGradient = 1,
    /// The gradient of a parameter of the layer.
    ParameterGradient = 2,
    /// Something the forward pass leaves for the backward pass: indices, statistics.
    Saved = 3,
    /// Scratch memory of one operation.
    Workspace = 4,
    /// What optimizer state passes through on its way from host memory and back.
    Staging = 5,
}

impl Part {
    /// The text after the layer's path.
    pub const fn describe(tag: u8) -> &'static str {
        match tag {
            0 => " output",
            1 => " output gradient",
            2 => " parameter gradient",
            3 => " saved tensor",
            5 => " staging buffer",
            _ => " workspace",
        }
    }
}
