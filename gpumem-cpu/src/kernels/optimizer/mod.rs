//! Parameter updates from gradients, and the step counter. The rules are those of `gpumem_core::train::optim`. Scalars are computed in double
//! precision, elements in single precision.

pub(super) mod average;
pub(super) mod clip;
mod codes;
mod elements;
mod factored;
mod orthogonal;
mod rules;
mod scalar;

use super::elementwise::dropout::{STATE_WORDS, step_and_seed};
use super::{Bound, kernel};
use crate::operands::{Operands, Source, Target, count};
use clip::Clipped;
use codes::Codes;
use elements::PIECE;
use gpumem_core::error::Error;
use gpumem_core::program::{Piece, Slot, StateWord};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Extent, Optimizer, extent_of, has_extent, scratch};
use rayon::prelude::*;
use rules::ElementStep;
use std::ops::Range;

/// The state words that hold the numbers of the schedule.
const SCHEDULE: Range<usize> =
    StateWord::Schedule as usize..StateWord::Schedule as usize + gpumem_core::train::Schedule::WORDS;

/// Returns the corrections of step number `step`, counted from 0. Other backends compute them once a step.
pub fn corrections(optimizer: &Optimizer, step: u64) -> [f64; 2] {
    rules::step_of(optimizer, step as f64 + 1.0).corrections.map(|number| number.0)
}

/// The elements of a parameter, for its update.
struct Weight<'a> {
    w: &'a mut [f32],
    shape: Shape,
    /// Scratch memory that the plan provides for the update.
    scratch: &'a mut [f32],
}

/// Applies step number `step` to all elements of a parameter.
fn change<'a>(
    optimizer: &Optimizer,
    step: u64,
    Weight { w, shape, scratch }: Weight<'a>,
    gradient: &'a [f32],
    states: [Option<&'a mut [f32]>; Optimizer::MOST_STATES],
) {
    // Steps are counted from 1 in all formulas.
    let t = step as f64 + 1.0;
    match (optimizer, states) {
        (Optimizer::Adafactor(adafactor), [Some(rows), columns, ..]) => {
            factored::divide(adafactor, t, (w, gradient), shape, [rows, columns.unwrap_or_default()]);
        }
        (Optimizer::Muon(muon), [Some(m), None, ..]) => orthogonal::step(muon, (w, gradient), shape, m, scratch),
        (optimizer, states) => rules::update(optimizer, t, (w, gradient), states),
    }
}

/// Binds the update of one parameter. Before anything runs, the session refuses an optimizer that needs more moments than there are.
pub(super) fn update(operands: &mut Operands<'_>) -> Bound {
    if let Some(shard) = operands.own_shard(Slot::Parameter)? {
        return update_shard(shard, shard, operands);
    }
    let length = operands.length(Slot::ParameterGradient)?;
    let gradient = operands.source(Slot::ParameterGradient, length)?;
    let parameter = operands.target(Slot::Parameter, length)?;
    let shape = operands.shape(Slot::Parameter)?;
    if count(shape.dims()) != length {
        return Err(Error::Damaged("a parameter's length does not match its shape"));
    }
    let codes = Codes::bind(operands, shape)?;
    let mut moments = [const { None }; Optimizer::MOST_STATES];
    for (index, moment) in (0u8..).zip(&mut moments).filter(|_| codes.is_none()) {
        let extent = extent_of(operands.moments(), index.into());
        let length = if matches!(extent, Extent::Whole | Extent::Others) {
            length
        } else {
            extent.shape(shape).map_or(0, |of| count(of.dims()))
        };
        *moment = operands.target_if_any(Slot::Moment(index), length)?;
    }
    let is_matrix = moments[1].is_none();
    let needed = scratch(operands.moments(), shape, is_matrix);
    let mut memory = None;
    if is_matrix && has_extent(operands.moments(), Extent::Others) {
        let there = operands.any_length(Slot::Workspace).unwrap_or(0);
        if (there as u64) < needed {
            return Err(Error::Damaged("an update has less scratch memory than it needs"));
        }
        memory = operands.target_if_any(Slot::Workspace, there)?;
    }
    bound(operands, Bindings { gradient, parameter, shape, codes, moments, memory, is_matrix })
}

/// Binds the update of a piece of a parameter. Its states start at the beginning of the memory bound for them.
pub(super) fn update_piece(piece: Piece, operands: &mut Operands<'_>) -> Bound {
    let Some(shard) = operands.own_shard(Slot::Parameter)? else { return update_shard(piece, piece, operands) };
    update_shard(shard, shard_piece(shard, piece), operands)
}

/// Returns a piece of a shard, counted in the whole parameter. It is counted from the beginning of the shard, and its end may be padding.
fn shard_piece(shard: Piece, piece: Piece) -> Piece {
    let first = piece.first.min(shard.count);
    Piece { first: shard.first + first, count: piece.count.min(shard.count - first), ..piece }
}

/// Binds the update of a piece of this rank's shard, both counted in the whole parameter. States have the elements of the piece alone.
fn update_shard(shard: Piece, piece: Piece, operands: &mut Operands<'_>) -> Bound {
    let of_gradient = operands.placed(Slot::ParameterGradient, shard, piece);
    let gradient = operands.source_piece(Slot::ParameterGradient, of_gradient)?;
    let parameter = operands.target_piece(Slot::Parameter, operands.placed(Slot::Parameter, shard, piece))?;
    let mut moments = [const { None }; Optimizer::MOST_STATES];
    for (index, moment) in (0u8..).zip(&mut moments) {
        if operands.writes(Slot::Moment(index)) {
            *moment = Some(operands.target_piece(Slot::Moment(index), Piece { first: 0, ..piece })?);
        }
    }
    let (shape, is_matrix) = (Shape::new(&[piece.count]), moments[1].is_none());
    bound(operands, Bindings { gradient, parameter, shape, codes: None, moments, memory: None, is_matrix })
}

/// The tensors of an update.
struct Bindings {
    gradient: Source,
    parameter: Target,
    shape: Shape,
    codes: Option<Codes>,
    moments: [Option<Target>; Optimizer::MOST_STATES],
    memory: Option<Target>,
    is_matrix: bool,
}

fn bound(operands: &Operands<'_>, bindings: Bindings) -> Bound {
    let Bindings { gradient, mut parameter, shape, mut codes, mut moments, mut memory, is_matrix } = bindings;
    let state = operands.words(Slot::State, STATE_WORDS)?;
    let name = operands.name(Slot::Parameter).to_string();
    let Descent { clip, schedule, .. } = operands.descent();
    kernel(move |frame| {
        let words = state.get();
        if words[StateWord::Overflow as usize] != 0 {
            return;
        }
        let (step, _) = step_and_seed(words);
        let schedule = schedule.with_words(&words[SCHEDULE]);
        let optimizer = frame.optimizer.with_lr(schedule.rate(frame.optimizer.lr(), step));
        let optimizer = optimizer.rule_of(is_matrix, &name).of(optimizer.own_as(is_matrix, &name));
        let gradient = match clip.map(|clip| Clipped::new(clip, words)) {
            Some(clipped) => clipped.of(gradient.get(), frame.scratch),
            None => gradient.get(),
        };
        let scratch = memory.as_mut().map(|memory| memory.get()).unwrap_or_default();
        let weight = Weight { w: parameter.get(), shape, scratch };
        if let (Some(codes), Optimizer::AdamW8bit(rule)) = (&mut codes, optimizer) {
            let step = rules::step_of(&optimizer, step as f64 + 1.0);
            codes.change(&ElementStep::<_, 3, 0b011>::new(rule, step), weight.w, gradient);
            return;
        }
        let states = moments.each_mut().map(|moment| moment.as_mut().map(|moment| moment.get()));
        change(&optimizer, step, weight, gradient, states);
    })
}

/// Returns the elements of the gradient that this rank has the sum of: all, or its shard.
fn own_gradient(operands: &Operands<'_>) -> Result<Source, Error> {
    match operands.own_shard(Slot::ParameterGradient)? {
        Some(shard) => {
            operands.source_piece(Slot::ParameterGradient, operands.placed(Slot::ParameterGradient, shard, shard))
        }
        None => operands.source(Slot::ParameterGradient, operands.length(Slot::ParameterGradient)?),
    }
}

/// Binds the check that a gradient is finite.
pub(super) fn check(operands: &mut Operands<'_>) -> Bound {
    let gradient = own_gradient(operands)?;
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        if !gradient.get().par_chunks(PIECE).all(|piece| piece.iter().all(|x| x.is_finite())) {
            state.get()[StateWord::Overflow as usize] = 1;
        }
    })
}

/// Binds the increment of the step counter. A skipped step does not count.
pub(super) fn advance(operands: &mut Operands<'_>) -> Bound {
    let ema = operands.descent().ema;
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        let words = state.get();
        if std::mem::take(&mut words[StateWord::Overflow as usize]) != 0 {
            let skipped = &mut words[StateWord::Skipped as usize];
            *skipped = skipped.wrapping_add(1);
            return;
        }
        let step = step_and_seed(words).0;
        if ema.is_some_and(|ema| ema.is_due(step)) {
            let averaged = &mut words[StateWord::Averaged as usize];
            *averaged = averaged.saturating_add(1);
        }
        let next = step.wrapping_add(1);
        (words[0], words[1]) = (next as u32, (next >> 32) as u32);
    })
}
