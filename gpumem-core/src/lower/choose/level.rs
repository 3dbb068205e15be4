//! Training steps that fit, if batch and cards are known while the network is lowered.

use crate::lower::schedule::recompute::{RecomputeLevel, Search, time_again};
use crate::lower::{Blueprint, LowerError, OwnedTables, Sizes, tables};
use crate::memory::budget::{Budget, Line, PlanError, budget_at, lasting_at, lower_bound_at, pack_within};
use crate::memory::levels::{ArenaSize, NOT_PACKED, available_within, choose_level, fits};
use crate::memory::plan::PackedRanges;
use crate::program::Program;
use crate::program::cost::flops;
use crate::train::Checkpoint;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A training step, and a recompute level of it if it does not fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The step as the user wrote it, without levels.
    pub plain: Program,
    /// The cheapest level that fits or, if none does, the leanest. `None` if the plain step fits, or no level is leaner.
    pub leaner: Option<Leaner>,
    /// The budget of the plain step, with a reserve of 0.
    pub budget: Budget,
    /// The packings of these steps at the setting: of the plain step, then of the level.
    pub packed: Vec<PackedRanges>,
}

/// A recompute level that was planned.
#[derive(Clone, Debug)]
pub struct Leaner {
    /// The program of the step.
    pub program: Program,
    /// Its budget, with a reserve of 0.
    pub budget: Budget,
    /// True if it fits.
    pub fits: bool,
    /// Its number among the levels that were found, and the number of these levels.
    pub number: [u64; 2],
    /// Floating-point operations and time beyond those of the plain step, in thousandths of that. The time is that of a model, in which an
    /// operation takes as long as its products or its memory traffic, whichever is longer.
    pub more: [u64; 2],
}

/// Steps that need less memory than a given training step.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Levels {
    /// The step that recomputes outputs of normalisations; `None` if it needs no less memory.
    pub(in crate::lower) again: Option<Program>,
    /// The levels, the first of which is the step as the user wrote it.
    pub(in crate::lower) found: Search,
    /// The last of these levels; `None` if it is not lowered yet.
    pub(in crate::lower) leanest: Option<Program>,
    /// Bytes of an arena that are small enough, even if a smaller packing exists.
    pub(in crate::lower) enough: u64,
}

/// A training step that fits.
pub(in crate::lower) struct Fitting {
    pub(in crate::lower) program: Program,
    /// Its budget, with a reserve of 0.
    pub(in crate::lower) budget: Budget,
    /// The cost of a level: see [`Leaner::more`]. `None` for the plain step.
    pub(in crate::lower) more: Option<[u64; 2]>,
}

impl Blueprint {
    /// Returns the training step in an arena of at most `room` bytes. `room` is called with the budget of the plain step. That step is returned
    /// if it fits, or else the one with as little recomputation as was found. `None` for a network that is not trained, or too large for any
    /// plan.
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn fitted(&self, setting: &Sizes, room: impl FnOnce(&Budget) -> u64) -> Result<Option<Fitted>, LowerError> {
        let Some(plain) = self.training_for(setting)? else { return Ok(None) };
        self.fitted_beside(plain, |plain| self.levels_beside(plain, setting), setting, room)
    }

    /// Fits a training step; `None` if it is too large for any plan. `levels` is called if `plain` does not fit, and returns the levels that are
    /// tried then.
    pub(in crate::lower) fn fitted_beside(
        &self,
        plain: Program,
        levels: impl FnOnce(&Program) -> Result<Levels, LowerError>,
        setting: &Sizes,
        room: impl FnOnce(&Budget) -> u64,
    ) -> Result<Option<Fitted>, LowerError> {
        let Some((budget, packed)) = packed(&plain, setting, 0) else { return Ok(None) };
        let (room, mut packed) = (room(&budget), Vec::from([packed]));
        if budget[Line::Arena] <= room {
            return Ok(Some(Fitted { plain, leaner: None, budget, packed }));
        }
        // All levels need equal memory besides activations.
        let lasting = budget[Line::Arena] - budget[Line::Activations];
        let leaner = self.level(&plain, levels(&plain)?, setting, [lasting, room], true)?;
        let leaner = leaner.map(|(leaner, of_leaner)| {
            packed.push(of_leaner);
            leaner
        });
        Ok(Some(Fitted { plain, leaner, budget, packed }))
    }

    /// Returns the levels at a setting that need less memory than a step.
    pub(in crate::lower) fn levels_beside(&self, plain: &Program, setting: &Sizes) -> Result<Levels, LowerError> {
        let again = self.renormalised(plain, setting)?;
        let found = self.leaner(again.as_ref().unwrap_or(plain), setting)?;
        Ok(Levels { again, found, leanest: None, enough: 0 })
    }

    /// Returns the training step in an arena of at most `room` bytes; `None` if none fits. A step is planned only if its lower bound fits.
    pub(in crate::lower) fn fitting(&self, setting: &Sizes, room: u64) -> Result<Option<Fitting>, LowerError> {
        let Some(program) = self.training_for(setting)? else { return Ok(None) };
        let tables = tables(&program);
        let tables = tables.as_tables().with_workspaces(setting.workspaces);
        let bound = lower_bound_at(&tables, setting.batch, setting.precision);
        if bound.is_ok_and(|bytes| bytes <= room)
            && let Some(budget) = budget(&program, setting).filter(|budget| budget[Line::Arena] <= room)
        {
            return Ok(Some(Fitting { program, budget, more: None }));
        }
        let Ok(lasting) = lasting_at(&tables, setting.batch, setting.precision) else { return Ok(None) };
        // The bytes that a level moves to host memory are known only after it is lowered.
        let parks = self.training.as_ref().is_some_and(|steps| steps.descent.parks());
        let levels = self.levels_beside(&program, setting)?;
        let leaner = self.level(&program, levels, setting, [lasting, room], parks)?.filter(|(leaner, _)| leaner.fits);
        Ok(leaner.map(|(Leaner { program, budget, more, .. }, _)| Fitting { program, budget, more: Some(more) }))
    }

    /// Returns the cheapest level that fits into `room` bytes, of which `lasting` are used by other tensors. If none fits, returns the last level
    /// with `or_last`, and `None` without it.
    fn level(
        &self,
        plain: &Program,
        levels: Levels,
        setting: &Sizes,
        [lasting, room]: [u64; 2],
        or_last: bool,
    ) -> Result<Option<(Leaner, PackedRanges)>, LowerError> {
        let before = levels.before();
        let mut peaks = levels.peaks(setting);
        // Levels begin with a step that keeps what the plain step may recompute.
        let own = if self.graph.groups.is_empty() { time_again(plain, setting) } else { 0 };
        let count = peaks.len() as u64;
        let step_cost = levels.found.step_cost;
        cheapest(&mut peaks, [lasting, room], or_last, |number, is_asked_for| {
            let (program, more) = match &levels.again {
                Some(again) if number == 1 => (again.clone(), [0, share(time_again(again, setting), step_cost)]),
                _ => {
                    let level = &levels.found.levels[number - before];
                    (self.of_level(plain, &levels, number, setting)?, more(plain, level, [step_cost, own]))
                }
            };
            // The updates of a level are gathered now, and its peak may have been that of another batch.
            if !is_asked_for && !fits(setting.peak(&program), lasting, room) {
                return Ok(Attempt::Misses);
            }
            let Some((budget, packed)) = packed(&program, setting, levels.enough.min(room)) else {
                return Ok(Attempt::HasNoPlan);
            };
            let is_small = budget[Line::Arena] <= room;
            if !is_small && !is_asked_for {
                return Ok(Attempt::Misses);
            }
            let number = [number as u64, count];
            Ok(Attempt::Is((Leaner { program, budget, fits: is_small, number, more }, packed)))
        })
    }

    /// Returns the program of a level: of the step that recomputes normalisations, or of one that was found.
    fn of_level(
        &self,
        plain: &Program,
        levels: &Levels,
        number: usize,
        setting: &Sizes,
    ) -> Result<Program, LowerError> {
        let known = match &levels.again {
            again @ Some(_) if number == 1 => again,
            _ if number + 1 == levels.count() => &levels.leanest,
            _ => &None,
        };
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let level = &levels.found.levels[number - levels.before()];
        Ok(self.training_in_order(setting.precision, &level.order)?.unwrap_or_else(|| plain.clone()))
    }
}

impl Levels {
    /// Returns the number of levels before the second one that was found.
    fn before(&self) -> usize {
        usize::from(self.again.is_some())
    }

    /// Returns the number of levels, with the plain step.
    fn count(&self) -> usize {
        1 + self.before() + self.found.levels.len().saturating_sub(1)
    }

    /// Returns the bytes of each level inside the step. The plain step, which does not fit, has none.
    fn peaks(&self, setting: &Sizes) -> Vec<u64> {
        let mut peaks = Vec::from([NOT_PACKED]);
        peaks.extend(self.again.as_ref().map(|again| setting.peak(again)));
        peaks.extend(self.found.levels.iter().skip(1).map(|level| level.peak));
        peaks
    }
}

/// The result of planning a level.
enum Attempt<T> {
    Is(T),
    /// It does not fit after all.
    Misses,
    /// It is too large for any plan.
    HasNoPlan,
}

/// Returns what `attempt` makes of the cheapest level that fits into `room` bytes, of which `lasting` are used by other tensors. If none fits, of
/// the last level with `or_last`, and `None` without it. A level that an attempt has refused is not tried again.
///
/// `attempt` is called with the number of a level, and with true if it is taken even if it does not fit.
fn cheapest<T>(
    peaks: &mut [u64],
    [lasting, room]: [u64; 2],
    or_last: bool,
    mut attempt: impl FnMut(usize, bool) -> Result<Attempt<T>, LowerError>,
) -> Result<Option<T>, LowerError> {
    loop {
        let number = choose_level(peaks, lasting, room);
        let is_asked_for = or_last && number + 1 == peaks.len();
        if number == 0 || !is_asked_for && !fits(peaks[number], lasting, room) {
            return Ok(None);
        }
        match attempt(number, is_asked_for)? {
            Attempt::Is(found) => return Ok(Some(found)),
            Attempt::HasNoPlan => return Ok(None),
            Attempt::Misses => peaks[number] = NOT_PACKED,
        }
    }
}

impl Blueprint {
    /// Returns the one program of the training step that the compiler takes if an arena may have `room` bytes. `None` for a network that is not
    /// trained.
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn chosen(&self, setting: &Sizes, room: u64) -> Result<Option<Program>, LowerError> {
        if decides(self.checkpoint()) {
            return self.choices(setting)?.map(|choices| choices.chosen(room)).transpose();
        }
        Ok(self.trainings(setting)?.into_iter().next())
    }
}

/// True if the bytes of an arena decide what is recomputed.
fn decides(checkpoint: Checkpoint) -> bool {
    matches!(checkpoint, Checkpoint::Auto | Checkpoint::Budget(_))
}

/// The programs of a training step at one setting, between which the bytes of an arena decide. What one arena asks for is known to later ones.
#[derive(Debug)]
pub struct Choices {
    blueprint: Blueprint,
    setting: Sizes,
    plain: Candidate,
    /// The levels of recomputation. `None` before an arena asked for one.
    levels: RefCell<Option<Levels>>,
    /// The levels that were lowered, by their numbers.
    lowered: RefCell<BTreeMap<usize, Candidate>>,
}

/// A program with the size of its arena.
#[derive(Debug)]
struct Candidate {
    program: Program,
    /// Bytes of its tensors inside the step.
    peak: u64,
    tables: OwnedTables,
    /// An error if it is too large for any plan.
    size: RefCell<Result<ArenaSize, PlanError>>,
}

impl Candidate {
    fn new(program: Program, setting: &Sizes) -> Candidate {
        let tables = tables(&program);
        let limited = tables.as_tables().with_workspaces(setting.workspaces);
        let size = ArenaSize::of(&limited, setting.batch, setting.precision);
        Candidate { peak: setting.peak(&program), program, tables, size: RefCell::new(size) }
    }

    /// Returns the budget; `None` if the program is too large for any plan.
    fn budget(&self, setting: &Sizes) -> Option<Budget> {
        self.size.borrow_mut().as_mut().ok()?.budget(|| self.plan(setting)).ok()
    }

    /// True if the arena has at most `room` bytes. `None` if the program is too large for any plan.
    fn fits(&self, setting: &Sizes, room: u64) -> Option<bool> {
        Some(self.size.borrow_mut().as_mut().ok()?.fits(room, || self.plan(setting)))
    }

    fn plan(&self, setting: &Sizes) -> Result<Budget, PlanError> {
        let limited = self.tables.as_tables().with_workspaces(setting.workspaces);
        budget_at(&limited, setting.batch, setting.precision)
    }

    /// Returns the bytes of an arena besides what lives inside the step.
    fn lasting(&self, setting: &Sizes) -> Result<u64, PlanError> {
        lasting_at(&self.tables.as_tables(), setting.batch, setting.precision)
    }
}

impl Blueprint {
    /// Returns the programs of the training step at a setting. `None` for a network that is not trained.
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn choices(&self, setting: &Sizes) -> Result<Option<Choices>, LowerError> {
        let plain = if decides(self.checkpoint()) { self.training_for(setting)? } else { self.chosen(setting, 0)? };
        let Some(plain) = plain else { return Ok(None) };
        let (levels, lowered) = (RefCell::default(), RefCell::default());
        let plain = Candidate::new(plain, setting);
        Ok(Some(Choices { blueprint: self.clone(), setting: *setting, plain, levels, lowered }))
    }
}

impl Choices {
    /// Returns the program that the compiler takes if an arena may have `room` bytes: that of [`Blueprint::chosen`].
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn chosen(&self, room: u64) -> Result<Program, LowerError> {
        let plain = || Ok(self.plain.program.clone());
        let (setting, checkpoint) = (&self.setting, self.blueprint.checkpoint());
        // The budget of the plain step is planned only if a share of it is asked for.
        let room = match checkpoint {
            Checkpoint::Budget(_) => self.plain.budget(setting).map(|it| available_within(checkpoint, &it, room)),
            _ => Some(room),
        };
        let (Some(room), Ok(lasting)) = (room, self.plain.lasting(setting)) else { return plain() };
        if !decides(checkpoint) || self.plain.fits(setting, room) != Some(false) {
            return plain();
        }
        let mut found = self.levels.borrow_mut();
        let levels = match &mut *found {
            Some(levels) => levels,
            none => none.insert(self.blueprint.levels_beside(&self.plain.program, setting)?),
        };
        let mut lowered = self.lowered.borrow_mut();
        let leaner = cheapest(&mut levels.peaks(setting), [lasting, room], true, |number, is_asked_for| {
            let level = match lowered.entry(number) {
                Entry::Occupied(level) => level.into_mut(),
                Entry::Vacant(level) => {
                    let program = self.blueprint.of_level(&self.plain.program, levels, number, setting)?;
                    level.insert(Candidate::new(program, setting))
                }
            };
            if !is_asked_for && !fits(level.peak, lasting, room) {
                return Ok(Attempt::Misses);
            }
            // The last level is taken even if it does not fit.
            let fits =
                if is_asked_for { level.size.borrow().is_ok().then_some(true) } else { level.fits(setting, room) };
            Ok(match fits {
                None => Attempt::HasNoPlan,
                Some(false) => Attempt::Misses,
                Some(true) => Attempt::Is(level.program.clone()),
            })
        })?;
        leaner.map_or_else(plain, Ok)
    }
}

/// Returns the budget of a step at a setting; `None` if it is too large for any plan.
pub(in crate::lower) fn budget(program: &Program, setting: &Sizes) -> Option<Budget> {
    packed(program, setting, 0).map(|(budget, _)| budget)
}

/// Returns a step's budget and the packing of its tensors; `None` if it is too large for any plan. An arena of `enough` bytes will do, even if a
/// smaller one exists.
fn packed(program: &Program, setting: &Sizes, enough: u64) -> Option<(Budget, PackedRanges)> {
    let tables = tables(program);
    pack_within(&tables.as_tables().with_workspaces(setting.workspaces), setting.batch, setting.precision, enough).ok()
}

/// Returns [`Leaner::more`] of a level. `own` is the time of what the plain step recomputes.
fn more(plain: &Program, level: &RecomputeLevel, [step_cost, own]: [u64; 2]) -> [u64; 2] {
    let all = plain.operations.iter().map(|operation| flops(operation, 1)).fold(0u64, u64::saturating_add);
    let time = share(level.cost.saturating_sub(own), step_cost.saturating_add(own));
    [share(level.macs_again.saturating_mul(2), all), time]
}

/// Returns a part in thousandths of the whole, rounded up; 0 if the whole is 0.
fn share(part: u64, whole: u64) -> u64 {
    (1000 * u128::from(part)).div_ceil(u128::from(whole).max(1)) as u64 * u64::from(whole > 0)
}
