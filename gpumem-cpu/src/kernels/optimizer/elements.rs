//! Applies an optimizer's rule to all elements of a parameter and of its states, in parallel pieces.

use crate::simd::{Loop, wide};
use rayon::prelude::*;

/// Elements that one task updates.
pub(super) const PIECE: usize = 1 << 13;

/// An update of one element that has `STATES` states.
///
/// `change` should be `#[inline(always)]`: code that is not inlined into the loop does not use the widest SIMD instructions.
pub(super) trait Rule<const STATES: usize>: Sync {
    /// Updates a weight and its states from its gradient.
    fn change(&self, w: &mut f32, gradient: f32, states: [&mut f32; STATES]);
}

/// A rule, and the elements of a piece.
struct RuleOverElements<'a, R, const STATES: usize> {
    rule: &'a R,
    w: &'a mut [f32],
    gradient: &'a [f32],
    states: [&'a mut [f32]; STATES],
}

impl<R: Rule<0>> Loop for RuleOverElements<'_, R, 0> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (w, &gradient) in self.w.iter_mut().zip(self.gradient) {
            self.rule.change(w, gradient, []);
        }
    }
}

impl<R: Rule<1>> Loop for RuleOverElements<'_, R, 1> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let [a] = self.states;
        for ((w, &gradient), a) in self.w.iter_mut().zip(self.gradient).zip(a) {
            self.rule.change(w, gradient, [a]);
        }
    }
}

impl<R: Rule<2>> Loop for RuleOverElements<'_, R, 2> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let [a, b] = self.states;
        for ((w, &gradient), (a, b)) in self.w.iter_mut().zip(self.gradient).zip(a.iter_mut().zip(b)) {
            self.rule.change(w, gradient, [a, b]);
        }
    }
}

impl<R: Rule<3>> Loop for RuleOverElements<'_, R, 3> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let [a, b, c] = self.states;
        let states = a.iter_mut().zip(b).zip(c);
        for ((w, &gradient), ((a, b), c)) in self.w.iter_mut().zip(self.gradient).zip(states) {
            self.rule.change(w, gradient, [a, b, c]);
        }
    }
}

/// Applies a rule without states.
pub(super) fn none(rule: &impl Rule<0>, w: &mut [f32], gradient: &[f32]) {
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE));
    pieces.for_each(|(w, gradient)| wide(RuleOverElements { rule, w, gradient, states: [] }));
}

/// Applies a rule with one state.
pub(super) fn one(rule: &impl Rule<1>, w: &mut [f32], gradient: &[f32], a: &mut [f32]) {
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(a.par_chunks_mut(PIECE));
    pieces.for_each(|((w, gradient), a)| wide(RuleOverElements { rule, w, gradient, states: [a] }));
}

/// Applies a rule with two states.
pub(super) fn two(rule: &impl Rule<2>, w: &mut [f32], gradient: &[f32], [a, b]: [&mut [f32]; 2]) {
    let states = a.par_chunks_mut(PIECE).zip(b.par_chunks_mut(PIECE));
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(states);
    pieces.for_each(|((w, gradient), (a, b))| wide(RuleOverElements { rule, w, gradient, states: [a, b] }));
}

/// Applies a rule with three states.
pub(super) fn three(rule: &impl Rule<3>, w: &mut [f32], gradient: &[f32], [a, b, c]: [&mut [f32]; 3]) {
    let states = a.par_chunks_mut(PIECE).zip(b.par_chunks_mut(PIECE)).zip(c.par_chunks_mut(PIECE));
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(states);
    pieces.for_each(|((w, gradient), ((a, b), c))| wide(RuleOverElements { rule, w, gradient, states: [a, b, c] }));
}
