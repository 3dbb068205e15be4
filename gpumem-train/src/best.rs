//! The best value of a training so far, and the evaluations since.

use crate::error::{Error, Result};
use crate::metrics::Goal;
use serde_json::{Map, Value};

/// The best value of a training.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Best {
    /// The value's name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Training steps that had been made.
    pub step: u64,
    /// The epoch; the first is 0.
    pub epoch: u64,
}

/// Follows a value from evaluation to evaluation.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    name: String,
    goal: Goal,
    /// Evaluations without a better value after which training stops. `None` never stops it.
    patience: Option<u64>,
    best: Option<Best>,
    /// Evaluations since the best one.
    since: u64,
}

impl Follow {
    pub fn new(name: String, goal: Goal, patience: Option<u64>) -> Follow {
        Follow { name, goal, patience, best: None, since: 0 }
    }

    /// Compares the values of an evaluation with the best one so far. Returns true if they contain a better one.
    pub fn look(&mut self, values: &[(String, f64)], step: u64, epoch: u64) -> Result<bool> {
        let Some(&(_, value)) = values.iter().find(|(name, _)| *name == self.name) else {
            let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::setting(format!(
                "the evaluation after step {step} has no value `{}` to choose the best by; it has {}: log it in `on_epoch`, or choose one of these",
                self.name,
                listed(&names)
            )));
        };
        // A NaN is never the best value, not even as the first one.
        let is_better = match &self.best {
            None => !value.is_nan(),
            Some(best) => self.goal.is_better(value, best.value),
        };
        if is_better {
            self.best = Some(Best { name: self.name.clone(), value, step, epoch });
            self.since = 0;
        } else {
            self.since += 1;
        }
        Ok(is_better)
    }

    /// True if there were `patience` evaluations without a better value.
    pub fn has_stalled(&self) -> bool {
        self.patience.is_some_and(|patience| self.since >= patience)
    }

    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Returns the state as JSON, for a checkpoint.
    pub fn save(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), self.name.clone().into());
        map.insert("since".into(), self.since.into());
        if let Some(best) = &self.best {
            // As bits, so that the value is restored exactly.
            map.insert("bits".into(), best.value.to_bits().into());
            map.insert("value".into(), best.value.into());
            map.insert("step".into(), best.step.into());
            map.insert("epoch".into(), best.epoch.into());
        }
        Value::Object(map)
    }

    /// Restores the state that [`Follow::save`] returned, if it belongs to a value of this name.
    pub fn resume(&mut self, saved: &Value) {
        if saved.get("name").and_then(Value::as_str) != Some(&self.name) {
            return;
        }
        let number = |name: &str| saved.get(name).and_then(Value::as_u64);
        self.since = number("since").unwrap_or(0);
        let place = number("step").zip(number("epoch"));
        self.best = number("bits").zip(place).map(|(bits, (step, epoch))| Best {
            name: self.name.clone(),
            value: f64::from_bits(bits),
            step,
            epoch,
        });
    }
}

/// Returns names as text: "`a`, `b`", or "nothing".
pub(crate) fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        return "nothing".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Follow, listed};
    use crate::metrics::Goal;

    fn look(follow: &mut Follow, value: f64, step: u64) -> bool {
        follow.look(&[("other".into(), 0.0), ("x".into(), value)], step, 0).unwrap()
    }

    #[test]
    fn the_best_value_is_followed_in_its_direction() {
        let mut lowest = Follow::new("x".into(), Goal::Lowest, Some(2));
        let seen = [f64::NAN, 3.0, 3.0, f64::NAN, 2.0, 2.5].map(|value| look(&mut lowest, value, 1));
        assert_eq!(seen, [false, true, false, false, true, false]);
        assert_eq!(lowest.best().unwrap().value, 2.0);
        let mut highest = Follow::new("x".into(), Goal::Highest, None);
        assert_eq!([1.0, 2.0, 1.5].map(|value| look(&mut highest, value, 1)), [true, true, false]);
        assert!(!highest.has_stalled());
    }

    #[test]
    fn training_stalls_after_its_patience() {
        let mut follow = Follow::new("x".into(), Goal::Lowest, Some(2));
        let stalled = [1.0, 2.0, 0.5, 0.5, f64::NAN].map(|value| {
            look(&mut follow, value, 1);
            follow.has_stalled()
        });
        assert_eq!(stalled, [false, false, false, false, true]);
        let mut never_a_number = Follow::new("x".into(), Goal::Lowest, Some(1));
        look(&mut never_a_number, f64::NAN, 1);
        assert!(never_a_number.has_stalled());
    }

    #[test]
    fn what_was_saved_goes_on() {
        let mut follow = Follow::new("x".into(), Goal::Lowest, Some(3));
        for (step, value) in [(1, 0.1 + 0.2), (2, 0.5)] {
            look(&mut follow, value, step);
        }
        let text = follow.save().to_string();
        let mut resumed = Follow::new("x".into(), Goal::Lowest, Some(3));
        resumed.resume(&serde_json::from_str(&text).unwrap());
        assert_eq!((resumed.best(), resumed.since), (follow.best(), 1));
        let mut other = Follow::new("y".into(), Goal::Lowest, Some(3));
        other.resume(&follow.save());
        assert_eq!((other.best(), other.since), (None, 0));
    }

    #[test]
    fn a_value_that_is_missing_is_an_error() {
        let mut follow = Follow::new("x".into(), Goal::Lowest, None);
        let error = follow.look(&[("a".into(), 0.0), ("b".into(), 0.0)], 7, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the evaluation after step 7 has no value `x` to choose the best by; it has `a`, `b`: log it in `on_epoch`, or choose one of these"
        );
        assert_eq!(listed(&[]), "nothing");
    }
}
