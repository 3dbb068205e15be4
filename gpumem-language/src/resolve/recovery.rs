//! Finds the mistakes that do not depend on a guess.
//!
//! After a mistake the checks continue with the most probable meaning. If another meaning is possible, the network is resolved again under the
//! other guesses. A later mistake is reported only if it is found under all of them:
//!
//! * if there are two readings (an option's nearest name or none, one branch of an `if` or the other), it must be found under both, but may quote
//!   other shapes;
//! * if any number could be meant, its text must be equal for two different numbers. Otherwise it quotes a number that nobody wrote.

use super::frame::Current;
use super::{Attempt, Resolved};
use crate::errors::Error;
use gpumem_core::graph::{NodeId, Type};
use gpumem_core::layers::recovery::{Guess, Guessed};
use std::collections::HashSet;

/// The most places whose second readings are tried independently. Further places share them.
const MOST_READINGS: usize = 16;

/// The guesses under which a network is resolved, and those that it needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Guesses {
    /// Expressions that are taken in their second reading.
    second: HashSet<usize>,
    other_number: bool,
    /// Expressions that had two readings, in the order in which they were found.
    readings: Vec<usize>,
    /// True if a number was guessed.
    number: bool,
}

impl Guesses {
    /// Returns the guess for an expression.
    pub(super) fn of(&self, id: usize) -> Guess {
        Guess { second: self.second.contains(&id), other_number: self.other_number }
    }

    /// Records that an expression needed a guess.
    pub(super) fn note(&mut self, id: usize, guessed: Guessed) {
        if guessed.reading && !self.readings.contains(&id) {
            self.readings.push(id);
        }
        self.number |= guessed.number;
    }

    /// True if the second reading of an expression is used. Records that it has two readings.
    pub(super) fn second(&mut self, id: usize) -> bool {
        self.note(id, Guessed { reading: true, number: false });
        self.of(id).second
    }

    /// Returns further guesses to try after these first ones. For any three places, all combinations of readings are among them.
    fn others(&self) -> Vec<Guesses> {
        let readings = self.readings.len().min(MOST_READINGS);
        if readings == 0 {
            return Vec::new();
        }
        // These are the columns of an orthogonal array of strength 3: no two of their numbers are equal, and no three add up to 0.
        let top = readings.next_power_of_two();
        let is_second = |run: usize, index: usize| ((run & (top + index % readings)).count_ones() & 1) == 1;
        let others = (1..2 * top).map(|run| {
            let seconds = self.readings.iter().enumerate().filter(|(index, _)| is_second(run, *index));
            Guesses { second: seconds.map(|(_, id)| *id).collect(), ..Guesses::default() }
        });
        others.collect()
    }

    /// Returns these guesses with a different number for each guessed number.
    pub(super) fn with_another_number(&self) -> Guesses {
        Guesses { second: self.second.clone(), other_number: true, ..Guesses::default() }
    }
}

/// Resolves a network under every guess that its mistakes leave open.
///
/// Returns the result of the first guess with the mistakes that are found under all guesses. Resolves at most `most_steps` elements, except that two
/// attempts are always made.
pub(super) fn certain(mut attempt: impl FnMut(Guesses) -> Attempt, most_steps: usize) -> (Resolved, Vec<Error>) {
    let mut attempts = vec![attempt(Guesses::default())];
    if !attempts[0].stopped {
        let most = most_steps / attempts[0].steps.max(1) / 2;
        attempts.extend(attempts[0].guesses.others().into_iter().take(most.max(1)).map(&mut attempt));
    }
    let any_number = !attempts[0].stopped && attempts.iter().any(|attempt| attempt.guesses.number);
    let numbers = attempts.iter().filter(|_| any_number).map(|it| it.guesses.with_another_number());
    let numbers: Vec<Attempt> = numbers.map(attempt).collect();

    let is_certain = |error: &Error| {
        attempts.iter().enumerate().all(|(index, attempt)| {
            let Some(found) = attempt.errors.like(error) else { return false };
            let again = numbers.get(index).map(|other| other.errors.like(error));
            again.is_none_or(|again| again.is_some_and(|again| again.message == found.message))
        })
    };
    let certain: Vec<Error> = attempts[0].errors.list().iter().filter(|error| is_certain(error)).cloned().collect();
    let others: Vec<Resolved> = attempts.drain(1..).chain(numbers).map(|attempt| attempt.resolved).collect();
    let mut first = attempts.remove(0).resolved;
    others.iter().for_each(|other| first.keep_equal(other));
    (first, certain)
}

impl Resolved {
    fn types(&self, nodes: Option<&[NodeId]>) -> Option<Vec<Type>> {
        nodes.map(|nodes| nodes.iter().map(|&node| self.graph.value(node)).collect())
    }

    /// Removes outputs and taps that have another type under another guess.
    fn keep_equal(&mut self, other: &Resolved) {
        if self.types(self.outputs.as_deref()) != other.types(other.outputs.as_deref()) {
            self.outputs = None;
        }
        let kind = |resolved: &Resolved, tap: Current| tap.map(|node| resolved.graph.value(node));
        let differs = |(name, tap): (&String, &Current)| {
            let same = kind(self, *tap) == kind(other, other.taps.get(name).copied().flatten());
            (!same).then(|| name.clone())
        };
        let open: Vec<String> = self.taps.iter().filter_map(differs).collect();
        self.taps.extend(open.into_iter().map(|name| (name, None)));
    }
}
