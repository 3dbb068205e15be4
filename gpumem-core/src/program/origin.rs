//! Roles of operations and tensors in their layer.

/// The row in tags of operations and tensors that belong to no layer, such as the loss.
pub const NO_ROW: u16 = u16::MAX;

/// The purpose of an operation in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Computes the layer's output.
    Forward = 0,
    /// Computes gradients.
    Backward = 1,
    /// Updates a parameter.
    Update = 2,
    /// Computes the loss and its gradient, and a chunk of the value that it measures.
    Loss = 3,
    /// Recomputes the layer's output.
    Again = 4,
}

impl Phase {
    /// Returns the text between `peak at` and the layer's path.
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

/// The purpose of a transient tensor in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The layer's output.
    Output = 0,
    /// The gradient of the layer's output.
    OutputGradient = 1,
    /// The gradient of a parameter of the layer.
    ParameterGradient = 2,
    /// A tensor that the forward pass saves for the backward pass, such as indices or statistics.
    Saved = 3,
    /// Scratch memory of one operation.
    Workspace = 4,
    /// A staging buffer for optimizer state on its way from host memory and back.
    Staging = 5,
}

impl Part {
    /// Returns the text after the layer's path.
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
