//! What makes a training step fit that does not: other programs of it, each planned.

use super::fitted::budget;
use super::{Blueprint, Fitted, Setting, tables};
use crate::graph::Source;
use crate::memory::budget::{Budget, Line, lower_bound_at};
use crate::memory::refusal::{Offloaded, Recomputed, Remedies, Split};
use crate::program::{Op, Program};
use crate::train::optim::whole_states;
use crate::train::{Checkpoint, Offload};
use alloc::vec::Vec;

impl Blueprint {
    /// What makes the training step fit into an arena of `room` bytes, of which `program` is the leanest program as it is written. Nothing
    /// where that fits, or fails by what packing adds.
    pub fn remedies(&self, program: &Program, setting: &Setting, room: u64) -> Remedies {
        if room == u64::MAX || self.bound(program, setting).is_none_or(|bytes| bytes <= room) {
            return Remedies::UNKNOWN;
        }
        let recomputed = self.recomputed(setting, room);
        let split = self.split(setting, room);
        let offloaded = self.offloaded(setting, room);
        // Several together only where one alone is not enough.
        let split = match (recomputed, split) {
            (Recomputed::Unknown, None) => self.with(Checkpoint::Auto).and_then(|both| both.split(setting, room)),
            (_, split) => split,
        };
        let offloaded = match (recomputed, split, offloaded) {
            (Recomputed::Unknown, None, None) => {
                self.with(Checkpoint::Auto).and_then(|both| both.offloaded(setting, room))
            }
            (.., offloaded) => offloaded,
        };
        Remedies { recomputed, split, offloaded }
    }

    /// With as little recomputation as was found, where nothing says what is computed again.
    fn recomputed(&self, setting: &Setting, room: u64) -> Recomputed {
        let is_free = self.training.as_ref().is_some_and(|steps| steps.checkpoint == Checkpoint::None);
        let fitted = if is_free { self.fitted(setting, |_| room).ok().flatten() } else { None };
        match fitted.and_then(|Fitted { leaner, .. }| leaner).filter(|leaner| leaner.fits) {
            Some(leaner) => Recomputed::Some { arena: leaner.budget[Line::Arena], more: leaner.more },
            None => Recomputed::Unknown,
        }
    }

    /// The fewest parts of the batch with which it fits.
    fn split(&self, setting: &Setting, room: u64) -> Option<Split> {
        let steps = self.training.as_ref()?;
        let more = |parts: &u64| *parts > steps.descent.micro_batches && setting.batch.is_multiple_of(*parts);
        let numbers: Vec<u64> = (2..=setting.batch).filter(more).collect();
        // Parts of one sample need least: where those do not fit, nothing does. More parts need less, so that the fewest are between those
        // that do not fit and those that do.
        let mut found = self.in_parts(*numbers.last()?, setting, room)?;
        let (mut low, mut high) = (0, numbers.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            match self.in_parts(numbers[middle], setting, room) {
                Some(split) => (found, high) = (split, middle),
                None => low = middle + 1,
            }
        }
        Some(found)
    }

    /// The step in so many parts, if it fits.
    fn in_parts(&self, parts: u64, setting: &Setting, room: u64) -> Option<Split> {
        let mut other = self.clone();
        other.training.as_mut()?.descent.micro_batches = parts;
        let (budget, more) = other.fitting(setting, room)?;
        let is_norm = |source: &Source| match source {
            Source::Op { op, .. } => matches!(op, Op::BatchNorm(_) | Op::InplaceNorm(_)),
            _ => false,
        };
        let has_statistics = self.graph.nodes.iter().any(|node| is_norm(&node.source));
        Some(Split { micro_batches: parts, arena: budget[Line::Arena], more, has_statistics })
    }

    /// The step with optimizer state in host memory, where it has some that can be there, if it fits.
    fn offloaded(&self, setting: &Setting, room: u64) -> Option<Offloaded> {
        let mut other = self.clone();
        let steps = other.training.as_mut()?;
        let is_possible = !whole_states(steps.moments).1 && !steps.descent.offloads();
        if !is_possible || steps.moments == 0 && !setting.precision.has_master() {
            return None;
        }
        steps.descent.offload = Offload::OptimizerState;
        let (budget, more) = other.fitting(setting, room)?;
        let moved = budget.fetched.saturating_mul(2);
        Some(Offloaded { arena: budget[Line::Arena], moved, ms: budget.bus_ms(), more })
    }

    /// What the step needs if it fits, and what `checkpoint: Auto` takes where that is written and needed.
    fn fitting(&self, setting: &Setting, room: u64) -> Option<(Budget, Option<[u64; 2]>)> {
        let takes_what_fits = self.takes_what_fits();
        let (budget, more) = if takes_what_fits {
            let Fitted { plain, leaner } = self.fitted(setting, |_| room).ok()??;
            match leaner {
                Some(leaner) => (leaner.budget, Some(leaner.more)),
                None => (budget(&plain, setting)?, None),
            }
        } else {
            let program = self.chosen(setting, room).ok()??;
            if self.bound(&program, setting)? > room {
                return None;
            }
            (budget(&program, setting)?, None)
        };
        (budget[Line::Arena] <= room).then_some((budget, more))
    }

    /// The same network with another way to compute again, where nothing is said of it.
    fn with(&self, checkpoint: Checkpoint) -> Option<Blueprint> {
        let mut other = self.clone();
        let steps = other.training.as_mut().filter(|steps| steps.checkpoint == Checkpoint::None)?;
        steps.checkpoint = checkpoint;
        Some(other)
    }

    /// The fewest bytes of an arena for a program.
    fn bound(&self, program: &Program, setting: &Setting) -> Option<u64> {
        // Until the process ends, as elsewhere.
        let tables = tables(program).leak().with_workspaces(setting.workspaces);
        lower_bound_at(&tables, setting.batch, setting.precision).ok()
    }
}
