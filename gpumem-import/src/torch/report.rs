//! The report of a prediction.

use super::allocator::{Reserved, replay};
use super::trace::{Event, Phase, Purpose, Trace};
use crate::model::Model;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

/// A place in a training step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The phase.
    pub phase: Phase,
    /// The operation, as ATen calls it.
    pub operation: String,
    /// The path of the innermost module. Empty for the model itself, and outside of it.
    pub module: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.phase.name(), self.operation)?;
        if self.module.is_empty() { Ok(()) } else { write!(f, " of {}", self.module) }
    }
}

/// An operation of which nothing is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownOperation {
    /// Its name, as ATen calls it.
    pub operation: String,
    /// The number of times that the model runs it.
    pub count: usize,
    /// The name of the first node.
    pub first: String,
}

/// A prediction of what PyTorch needs for a training step.
#[derive(Debug)]
pub struct Report {
    /// The most bytes of tensors that are alive at once.
    pub allocated: u64,
    /// Less than `allocated` if there are unknown operations: the bytes if those keep nothing. They do not bound temporaries of the
    /// operations themselves.
    pub at_least: u64,
    /// The place of the peak.
    pub at: Place,
    /// The peak of each phase, in bytes.
    pub phases: Vec<(Phase, u64)>,
    /// The bytes at the peak by purpose.
    pub by_purpose: Vec<(Purpose, u64)>,
    /// The bytes at the peak by the module that took them, the most first.
    pub by_module: Vec<(String, u64)>,
    /// The bytes that stay between steps: parameters, gradients, optimizer state and buffers.
    pub states: u64,
    /// The operations of which nothing is known.
    pub unknown: Vec<UnknownOperation>,
    /// All that was taken and given back, from before the first step.
    pub trace: Trace,
    /// The event with which the reported step begins.
    pub step_begins: usize,
    /// The bytes that the allocator holds without a limit, without and with expandable segments. Empty before they are asked for.
    unlimited: [OnceCell<u64>; 2],
}

impl Report {
    /// Returns what the caching allocator holds: `torch.cuda.max_memory_reserved()`.
    ///
    /// Without a `capacity` it is that of a card with more than enough memory.
    pub fn reserved(&self, expandable_segments: bool, capacity: Option<u64>) -> Reserved {
        replay(&self.trace, expandable_segments, capacity)
    }

    /// True if the step runs where the allocator can have `capacity` bytes.
    pub fn fits(&self, expandable_segments: bool, capacity: u64) -> bool {
        // An allocator that needs no more in any case never meets the limit.
        let unlimited = &self.unlimited[usize::from(expandable_segments)];
        let unlimited = || *unlimited.get_or_init(|| self.reserved(expandable_segments, None).reserved);
        let runs = || self.reserved(expandable_segments, Some(capacity)).out_of_memory.is_none();
        self.allocated <= capacity && (unlimited() <= capacity || runs())
    }

    /// Makes the report of the step that begins with an event.
    pub(super) fn new(model: &Model, keys: &BTreeMap<u32, String>, trace: Trace, step_begins: usize) -> Report {
        let (phases, peak) = trace.peaks(step_begins);
        let place = match trace.events.get(peak) {
            Some(Event::Made(storage)) => place(model, &trace, *storage),
            _ => Place { phase: Phase::Start, operation: String::new(), module: String::new() },
        };
        let mut by_purpose: BTreeMap<Purpose, u64> = BTreeMap::new();
        let mut by_module: BTreeMap<String, u64> = BTreeMap::new();
        for (storage, purpose) in trace.alive(peak) {
            let bytes = trace.bytes(storage);
            let sum = by_purpose.entry(purpose).or_default();
            *sum = sum.saturating_add(bytes);
            let module = match keys.get(&storage) {
                Some(key) => key.rsplit_once('.').map_or(String::new(), |(module, _)| module.to_string()),
                None => self::place(model, &trace, storage).module,
            };
            let sum = by_module.entry(module).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let mut by_module: Vec<(String, u64)> = by_module.into_iter().collect();
        by_module.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let stays = [Purpose::Parameter, Purpose::Gradient, Purpose::OptimizerState, Purpose::Buffer];
        let end = trace.alive(trace.events.len());
        let staying = end.iter().filter(|(_, purpose)| stays.contains(purpose));
        let states = staying.fold(0u64, |sum, (storage, _)| sum.saturating_add(trace.bytes(*storage)));
        let allocated = phases.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        Report {
            allocated,
            at_least: allocated,
            at: place,
            phases,
            by_purpose: by_purpose.into_iter().collect(),
            by_module,
            states,
            unknown: Vec::new(),
            trace,
            step_begins,
            unlimited: [OnceCell::new(), OnceCell::new()],
        }
    }
}

/// Returns the place where a storage was made.
fn place(model: &Model, trace: &Trace, storage: u32) -> Place {
    let Some(storage) = trace.storages.get(storage as usize) else {
        return Place { phase: Phase::Start, operation: String::new(), module: String::new() };
    };
    let node = storage.site.node.and_then(|node| model.nodes.get(node));
    let operation = match (storage.site.label, node) {
        ("", Some(node)) => node.op.clone(),
        (label, _) => label.to_string(),
    };
    Place { phase: storage.phase, operation, module: node.map_or(String::new(), |node| node.path().to_string()) }
}
