//! Training steps that fit, if batch and cards are known while the network is lowered.

use crate::lower::choose::candidates::{Levels, ListedLevel};
use crate::lower::{Blueprint, LowerError, OwnedTables, Sizes, tables};
use crate::memory::budget::{Budget, Line, PlanError, budget_at, budget_within, lasting_at, pack_within};
use crate::memory::levels::{ArenaSize, NOT_PACKED, available_within, choose_level, fits};
use crate::memory::plan::PackedRanges;
use crate::memory::refusal::{InChunks, Remedy};
use crate::program::Program;
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
    /// The chunks that `chunks: Auto` has in it; `None` if its logits are whole or in chunks whose number is written.
    pub chunks: Option<InChunks>,
    /// The price of recomputation: floating-point operations and time beyond those of the plain step, in thousandths of that. The time is that of
    /// a model, in which an operation takes as long as its products or its memory traffic, whichever is longer. `None` if nothing is recomputed
    /// that the plain step saves.
    pub more: Option<[u64; 2]>,
}

/// A training step that fits.
pub(in crate::lower) struct Fitting {
    pub(in crate::lower) program: Program,
    /// Its budget, with a reserve of 0.
    pub(in crate::lower) budget: Budget,
    /// The chunks that `chunks: Auto` has: see [`Leaner::chunks`].
    pub(in crate::lower) chunks: Option<InChunks>,
    /// The price of recomputation: see [`Leaner::more`]. `None` for the plain step.
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
        let Some(plain) = self.plain(setting)? else { return Ok(None) };
        self.fitted_beside(plain, |plain| self.levels_beside(plain, setting, self.searches()), setting, room)
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
        let Some((budget, packed)) = packed_within(&plain, setting, 0) else { return Ok(None) };
        let (room, mut packed) = (room(&budget), Vec::from([packed]));
        if budget[Line::Arena] <= room {
            return Ok(Some(Fitted { plain, leaner: None, budget, packed }));
        }
        // All levels need equal memory besides activations.
        let lasting = budget[Line::Arena] - budget[Line::Activations];
        let levels = levels(&plain)?;
        let enough = levels.enough.min(room);
        let pack = |program: &Program, is_asked_for: bool| match packed_within(program, setting, enough) {
            None => Attempt::HasNoPlan,
            Some((budget, _)) if !is_asked_for && budget[Line::Arena] > room => Attempt::Misses,
            Some(packed) => Attempt::Is(packed),
        };
        let leaner = self.level(levels, setting, [lasting, room], pack, true)?;
        let leaner = leaner.map(|(leaner, of_leaner)| {
            packed.push(of_leaner);
            leaner
        });
        Ok(Some(Fitted { plain, leaner, budget, packed }))
    }

    /// Returns the training step in an arena of at most `room` bytes; `None` if none fits. With `searches`, as little is recomputed as was
    /// found. See [`budget_of`].
    pub(in crate::lower) fn fitting(
        &self,
        setting: &Sizes,
        room: u64,
        searches: bool,
    ) -> Result<Option<Fitting>, LowerError> {
        let Some(program) = self.plain(setting)? else { return Ok(None) };
        let tables = tables(&program);
        let tables = tables.as_tables().with_workspaces(setting.workspaces);
        if let Ok(Some(budget)) = budget_within(&tables, setting.batch, setting.precision, room) {
            return Ok(Some(Fitting { program, budget, chunks: None, more: None }));
        }
        let Ok(lasting) = lasting_at(&tables, setting.batch, setting.precision) else { return Ok(None) };
        // The bytes that a level moves to host memory are known only after it is lowered.
        let parks = self.training.as_ref().is_some_and(|steps| steps.descent.parks());
        let levels = self.levels_beside(&program, setting, searches)?;
        let pack = |program: &Program, is_asked_for: bool| match budget_of(program, setting, room) {
            Ok(Some(budget)) => Attempt::Is((budget, ())),
            // No level comes after the last one.
            Ok(None) if !is_asked_for => Attempt::Misses,
            Ok(None) | Err(_) => Attempt::HasNoPlan,
        };
        let leaner = self.level(levels, setting, [lasting, room], pack, parks)?;
        let fitting = |(leaner, _)| {
            let Leaner { program, budget, chunks, more, .. } = leaner;
            Fitting { program, budget, chunks, more }
        };
        Ok(leaner.map(fitting))
    }

    /// Returns the cheapest level that fits into `room` bytes, of which `lasting` are used by other tensors. If none fits, returns the last level
    /// with `or_last`, and `None` without it.
    ///
    /// `pack` plans a level, which is taken even if it does not fit if the flag is true.
    fn level<P>(
        &self,
        levels: Levels,
        setting: &Sizes,
        [lasting, room]: [u64; 2],
        pack: impl Fn(&Program, bool) -> Attempt<(Budget, P)>,
        or_last: bool,
    ) -> Result<Option<(Leaner, P)>, LowerError> {
        let mut peaks = levels.peaks(setting);
        let count = peaks.len() as u64;
        cheapest(&mut peaks, [lasting, room], or_last, |number, is_asked_for| {
            let (Some(level), Some(program)) = (levels.level(number), levels.program(self, number, setting)?) else {
                return Ok(Attempt::HasNoPlan);
            };
            // The updates of a level are gathered now, and its peak may have been that of another batch.
            if !is_asked_for && !fits(setting.peak(&program), lasting, room) {
                return Ok(Attempt::Misses);
            }
            Ok(match pack(&program, is_asked_for) {
                Attempt::Is((budget, packed)) => {
                    let (fits, number) = (budget[Line::Arena] <= room, [number as u64, count]);
                    let (chunks, more) = (level.chunks(), level.more());
                    Attempt::Is((Leaner { program, budget, fits, number, chunks, more }, packed))
                }
                Attempt::Misses => Attempt::Misses,
                Attempt::HasNoPlan => Attempt::HasNoPlan,
            })
        })
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
        if self.decides() {
            return self.choices(setting)?.map(|choices| choices.chosen(room)).transpose();
        }
        self.plain(setting)
    }
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
        let Some(plain) = self.plain(setting)? else { return Ok(None) };
        let (levels, lowered) = (RefCell::default(), RefCell::default());
        let plain = Candidate::new(plain, setting);
        Ok(Some(Choices { blueprint: self.clone(), setting: *setting, plain, levels, lowered }))
    }
}

/// The step that runs in an arena, and its price beyond that of the plain step.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenStep {
    /// Its program.
    pub program: Program,
    /// The chunks that `chunks: Auto` has in it: see [`Leaner::chunks`].
    pub chunks: Option<InChunks>,
    /// The price of recomputation: see [`Leaner::more`].
    pub more: Option<[u64; 2]>,
}

impl ChosenStep {
    /// Returns the time that chunks and recomputation add, in thousandths of the plain step.
    pub fn time(&self) -> u64 {
        Remedy { chunks: self.chunks, more: self.more, ..Remedy::as_written(0) }.time()
    }
}

impl Choices {
    /// Returns the program that the compiler takes if an arena may have `room` bytes: that of [`Blueprint::chosen`].
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn chosen(&self, room: u64) -> Result<Program, LowerError> {
        Ok(self.step(room)?.program)
    }

    /// Returns the step that the compiler takes if an arena may have `room` bytes.
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn step(&self, room: u64) -> Result<ChosenStep, LowerError> {
        let plain = || Ok(ChosenStep { program: self.plain.program.clone(), chunks: None, more: None });
        let (setting, checkpoint) = (&self.setting, self.blueprint.checkpoint());
        // The budget of the plain step is planned only if a share of it is asked for.
        let room = match checkpoint {
            Checkpoint::Budget(_) => self.plain.budget(setting).map(|it| available_within(checkpoint, &it, room)),
            _ => Some(room),
        };
        let (Some(room), Ok(lasting)) = (room, self.plain.lasting(setting)) else { return plain() };
        if !self.blueprint.decides() || self.plain.fits(setting, room) != Some(false) {
            return plain();
        }
        let mut found = self.levels.borrow_mut();
        let levels = match &mut *found {
            Some(levels) => levels,
            none => {
                none.insert(self.blueprint.levels_beside(&self.plain.program, setting, self.blueprint.searches())?)
            }
        };
        let mut lowered = self.lowered.borrow_mut();
        let leaner = cheapest(&mut levels.peaks(setting), [lasting, room], true, |number, is_asked_for| {
            let level = match lowered.entry(number) {
                Entry::Occupied(level) => level.into_mut(),
                Entry::Vacant(level) => {
                    let Some(program) = levels.program(&self.blueprint, number, setting)? else {
                        return Ok(Attempt::HasNoPlan);
                    };
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
                Some(true) => {
                    let (program, level) = (level.program.clone(), levels.level(number));
                    let (chunks, more) = (level.and_then(ListedLevel::chunks), level.and_then(ListedLevel::more));
                    Attempt::Is(ChosenStep { program, chunks, more })
                }
            })
        })?;
        leaner.map_or_else(plain, Ok)
    }
}

/// Returns the budget of a step at a setting if its arena has at most `room` bytes: see [`budget_within`].
pub(in crate::lower) fn budget_of(program: &Program, setting: &Sizes, room: u64) -> Result<Option<Budget>, PlanError> {
    let tables = tables(program);
    budget_within(&tables.as_tables().with_workspaces(setting.workspaces), setting.batch, setting.precision, room)
}

/// Returns a step's budget and the packing of its tensors; `None` if it is too large for any plan. An arena of `enough` bytes will do, even if a
/// smaller one exists.
pub(in crate::lower) fn packed_within(
    program: &Program,
    setting: &Sizes,
    enough: u64,
) -> Option<(Budget, PackedRanges)> {
    let tables = tables(program);
    pack_within(&tables.as_tables().with_workspaces(setting.workspaces), setting.batch, setting.precision, enough).ok()
}
