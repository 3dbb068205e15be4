//! The memory of a step over its events.

use super::allocator::reserved_after_each;
use super::report::Report;
use super::trace::{Event, Phase};

/// The memory after one event of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The phase in which the event is.
    pub phase: Phase,
    /// The share of the phase's events up to this one, from 0 to 1.
    pub share: f64,
    /// Bytes of all tensors.
    pub live: u64,
    /// Bytes that the caching allocator holds, on a card with more than enough memory.
    pub reserved: u64,
}

impl Report {
    /// Returns the memory after each event of the reported step that takes memory or gives it back.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let reserved = reserved_after_each(&self.trace, false);
        let mut live = 0u64;
        let mut phase = Phase::Start;
        let mut all: Vec<CurvePoint> = Vec::new();
        // The first point of the phase that began last.
        let mut first = 0;
        for (index, event) in self.trace.events.iter().enumerate() {
            match *event {
                Event::Made(storage) => live = live.saturating_add(self.trace.bytes(storage)),
                Event::Freed(storage) => live = live.saturating_sub(self.trace.bytes(storage)),
                Event::Began(next) => {
                    spread(&mut all[first..]);
                    (phase, first) = (next, all.len());
                    continue;
                }
                Event::Marked(..) => continue,
            }
            if index >= self.step_begins {
                all.push(CurvePoint { phase, share: 0.0, live, reserved: reserved[index] });
            }
        }
        spread(&mut all[first..]);
        all
    }
}

/// Sets the shares of the points of one phase.
fn spread(points: &mut [CurvePoint]) {
    let count = points.len() as f64;
    for (index, point) in points.iter_mut().enumerate() {
        point.share = (index + 1) as f64 / count;
    }
}
