//! The lines of a budget.

/// A line of a budget, in the order of tables, messages and JSON. Those before [`Line::Arena`] are the arena's parts: see [`Line::parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
#[non_exhaustive]
pub enum Line {
    /// The parameters.
    Weights,
    /// f32 copies of 16-bit parameters under mixed precision. 0 if they are in host memory.
    Master,
    /// Gradients of all parameters, if they live until the end of the step. Other gradients are activations.
    Gradients,
    /// Optimizer state: for each parameter its state tensors, one after the other. 0 if it is in host memory.
    Optimizer,
    /// Moving averages of the parameters, in f32.
    Ema,
    /// Running statistics, step counter, random state.
    Buffers,
    /// Inputs and targets. In training two halves of equal size: one is filled while the other is read.
    BatchIo,
    /// Keys and values of earlier time steps of a sequence, if `INFER` has a `cache`.
    Cache,
    /// Everything that lives inside a step, packed by live range, with the padding of each tensor.
    Activations,
    /// One allocation that holds all of the above, with the padding of each tensor.
    Arena,
    /// Bytes that context, modules, library handles and graph take besides the arena. A property of the card.
    Reserve,
    /// Bytes that the communication library takes besides: a bound that follows from the ranks and the card. 0 for one rank.
    Communication,
    /// `arena + reserve + communication`.
    Total,
}

impl Line {
    /// The number of lines.
    pub const COUNT: usize = Line::ALL.len();

    /// Every line, in order.
    pub const ALL: [Line; 13] = [
        Line::Weights,
        Line::Master,
        Line::Gradients,
        Line::Optimizer,
        Line::Ema,
        Line::Buffers,
        Line::BatchIo,
        Line::Cache,
        Line::Activations,
        Line::Arena,
        Line::Reserve,
        Line::Communication,
        Line::Total,
    ];

    /// The number of the arena's parts.
    pub const PARTS: usize = Line::Arena as usize;

    /// The parts of an arena, in their order in memory. What lasts from step to step comes first, so that steps of one network have it at equal
    /// offsets.
    pub(super) const PLACES: [Line; Line::PARTS] = [
        Line::Weights,
        Line::Master,
        Line::Optimizer,
        Line::Ema,
        Line::Buffers,
        Line::Gradients,
        Line::BatchIo,
        Line::Cache,
        Line::Activations,
    ];

    /// Returns the parts of an arena, in their order in memory.
    pub fn parts() -> impl Iterator<Item = Line> {
        Line::PLACES.into_iter()
    }

    /// Returns the name in tables, messages and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Line::Weights => "weights",
            Line::Master => "master",
            Line::Gradients => "gradients",
            Line::Optimizer => "optimizer",
            Line::Ema => "ema",
            Line::Buffers => "buffers",
            Line::BatchIo => "batch_io",
            Line::Cache => "cache",
            Line::Activations => "activations",
            Line::Arena => "arena",
            Line::Reserve => "reserve",
            Line::Communication => "communication",
            Line::Total => "total",
        }
    }
}
