//! The memory of a step as a list of events: storages that are made and freed, in order.

/// The phases of a training step.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Before the step: parameters, buffers, inputs and targets.
    Start,
    /// `out = model(x)`.
    Forward,
    /// `loss = f(out, y)`.
    Loss,
    /// `loss.backward()`.
    Backward,
    /// `optimizer.step()`.
    Update,
}

impl Phase {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Backward => "backward",
            Phase::Update => "update",
        }
    }
}

/// The purposes of memory.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Purpose {
    /// Parameters.
    Parameter,
    /// Gradients of parameters.
    Gradient,
    /// Tensors that an optimizer keeps of a parameter.
    OptimizerState,
    /// Running statistics and constants.
    Buffer,
    /// Inputs and targets of the step, and what the network returns.
    InputOutput,
    /// Tensors that autograd keeps for the backward pass.
    Saved,
    /// Everything else: values that a Python frame holds, gradients of values, temporaries.
    Temporary,
}

impl Purpose {
    /// All purposes, in the order of reports.
    pub const ALL: [Purpose; 7] = [
        Purpose::Parameter,
        Purpose::Gradient,
        Purpose::OptimizerState,
        Purpose::Buffer,
        Purpose::InputOutput,
        Purpose::Saved,
        Purpose::Temporary,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Parameter => "parameters",
            Purpose::Gradient => "gradients",
            Purpose::OptimizerState => "optimizer state",
            Purpose::Buffer => "buffers",
            Purpose::InputOutput => "inputs and outputs",
            Purpose::Saved => "saved for the backward pass",
            Purpose::Temporary => "temporaries",
        }
    }
}

/// The place in a program where memory is taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Site {
    /// The index of the operation in [`Model::nodes`](crate::model::Model). `None` outside of the model.
    pub node: Option<usize>,
    /// The work that takes the memory, if it is not the operation itself: `sum_to_size`, `accumulate_grad`.
    pub label: &'static str,
}

/// A storage: memory that tensors share.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    /// The size, rounded up to the grain of the trace.
    pub bytes: u64,
    /// The phase in which it was made.
    pub phase: Phase,
    /// The operation that made it.
    pub site: Site,
}

/// An event of a trace. Storages are named by their index in [`Trace::storages`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Memory is taken.
    Made(u32),
    /// Memory is given back.
    Freed(u32),
    /// A storage has this purpose from now on.
    Marked(u32, Purpose),
    /// A phase begins.
    Began(Phase),
}

/// All events of a run.
#[derive(Debug)]
pub struct Trace {
    /// The storages, in the order in which they were made.
    pub storages: Vec<Storage>,
    /// The events.
    pub events: Vec<Event>,
    grain: u64,
    phase: Phase,
    site: Site,
    /// True if a size did not fit into a number.
    overflows: bool,
}

/// The most bytes of one storage. Sums of as many storages as a trace can hold stay below 2^128.
const MOST: u64 = 1 << 62;

impl Trace {
    /// Makes an empty trace. Sizes are rounded up to a multiple of `grain` bytes.
    pub fn new(grain: u64) -> Trace {
        let (storages, events) = (Vec::new(), Vec::new());
        Trace { storages, events, grain: grain.max(1), phase: Phase::Start, site: Site::default(), overflows: false }
    }

    /// Takes memory. Returns the number of the storage.
    pub(super) fn make(&mut self, bytes: u64) -> u32 {
        let rounded = bytes.div_ceil(self.grain).saturating_mul(self.grain);
        self.overflows |= rounded >= MOST;
        let Ok(index) = u32::try_from(self.storages.len()) else {
            self.overflows = true;
            return u32::MAX;
        };
        self.storages.push(Storage { bytes: rounded.min(MOST), phase: self.phase, site: self.site });
        self.events.push(Event::Made(index));
        index
    }

    pub(super) fn free(&mut self, index: u32) {
        self.events.push(Event::Freed(index));
    }

    pub(super) fn mark(&mut self, index: u32, purpose: Purpose) {
        self.events.push(Event::Marked(index, purpose));
    }

    pub(super) fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.site = Site::default();
        self.events.push(Event::Began(phase));
    }

    /// Sets the place of what is made from now on. Returns the place before.
    pub(super) fn enter(&mut self, site: Site) -> Site {
        std::mem::replace(&mut self.site, site)
    }

    pub(super) fn site(&self) -> Site {
        self.site
    }

    /// True if a tensor has 2^62 bytes or more.
    pub fn overflows(&self) -> bool {
        self.overflows
    }

    /// Returns the size of a storage, in bytes. 0 for one that was not counted, since there were too many.
    pub fn bytes(&self, index: u32) -> u64 {
        self.storages.get(index as usize).map_or(0, |storage| storage.bytes)
    }

    /// Returns the largest sum of bytes in each phase from event `first` on, and the event after which the sum is largest of all.
    ///
    /// A phase begins with what is alive then.
    pub fn peaks(&self, first: usize) -> (Vec<(Phase, u64)>, usize) {
        let (mut total, mut most, mut at) = (0u128, 0u128, first);
        let mut phases: Vec<(Phase, u128)> = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            match event {
                Event::Made(storage) => total += u128::from(self.bytes(*storage)),
                Event::Freed(storage) => total = total.saturating_sub(u128::from(self.bytes(*storage))),
                Event::Began(phase) if index >= first => phases.push((*phase, total)),
                _ => {}
            }
            if index >= first {
                if let Some((_, peak)) = phases.last_mut() {
                    *peak = total.max(*peak);
                }
                if total > most {
                    (most, at) = (total, index);
                }
            }
        }
        let phases = phases.into_iter().map(|(phase, peak)| (phase, u64::try_from(peak).unwrap_or(u64::MAX)));
        (phases.collect(), at)
    }

    /// Returns the storages that are alive after an event, each with its purpose.
    pub fn alive(&self, at: usize) -> Vec<(u32, Purpose)> {
        let mut alive: Vec<Option<Purpose>> = vec![None; self.storages.len()];
        for event in self.events.iter().take(at.saturating_add(1)) {
            let (index, purpose) = match *event {
                Event::Made(index) => (index, Some(Purpose::Temporary)),
                Event::Freed(index) => (index, None),
                Event::Marked(index, purpose) => (index, Some(purpose)),
                Event::Began(_) => continue,
            };
            if let Some(slot) = alive.get_mut(index as usize) {
                // A mark after the end of a storage changes nothing.
                if !matches!((*event, &*slot), (Event::Marked(..), None)) {
                    *slot = purpose;
                }
            }
        }
        let all = alive.into_iter().zip(0u32..);
        all.filter_map(|(purpose, index)| Some((index, purpose?))).collect()
    }
}
