//! Criteria: losses of values of known shape, which programs contain.

use super::Slot;
use super::encoding::{Reader, Wire};
use super::indices::{Allowed, Indices};
use super::loss::{Compares, LossOptions, Over, Reduction, Weighting, Written};
use super::losses::Measure;
use crate::shape::{Shape, product};
use alloc::vec::Vec;

/// A loss and the shape of its value: `[outer, classes, inner]` elements a sample. Logits of a vector have
/// `outer` = `inner` = 1, of a sequence `outer` = T, of a map `inner` = H * W.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    /// The loss.
    pub kind: Measure,
    /// Positions before the class axis.
    pub outer: u64,
    /// Positions before the class axis in a sample's target. They are more than `outer` if this is one of several
    /// [chunks](LossOptions::chunks), which compares `outer` of them from `first` on.
    pub whole: u64,
    /// First position of the target that is compared: see `whole`.
    pub first: u64,
    /// Classes, or 1 without a class axis.
    pub classes: u64,
    /// Positions after the class axis.
    pub inner: u64,
    /// Factor of the loss and its gradient.
    pub weight: f64,
    /// Its options.
    pub options: LossOptions,
    /// True for each of scale and bias that is a value of the network, in a loss across a batch.
    pub learned: [bool; 2],
    /// True if only its gradient is of use: the loss of the same values was added up before. See [`Chunks::Twice`](crate::program::loss::Chunks).
    pub again: bool,
}

/// The slot of the terms' factors, if they have factors.
pub const WEIGHTS: Slot = Slot::Input(8);

/// Number of partial sums in a loss over elements rather than positions.
const PARTIAL_SUMS: u64 = 256;

impl Criterion {
    /// Returns the loss of values of this shape. Classes are the channels of a map and the last axis of any other shape.
    pub fn new(kind: Measure, weight: f64, options: LossOptions, shape: Shape) -> Criterion {
        let dims = shape.dims();
        let over = options.over(kind);
        let is_of_elements = matches!(over, Over::Elements | Over::Rankings);
        let has_classes = !is_of_elements || options.weights.len() > 1;
        let has_channels = matches!(over, Over::Elements | Over::Positions);
        let (outer, classes, inner) = match *dims {
            [classes, height, width] if has_classes && has_channels => (1, classes, product(&[height, width])),
            [.., classes] if has_classes => (product(&dims[..dims.len() - 1]), classes, 1),
            _ => (product(dims), 1, 1),
        };
        Criterion {
            kind,
            outer,
            whole: outer,
            first: 0,
            classes,
            inner,
            weight,
            options,
            learned: [false; 2],
            again: false,
        }
    }

    /// Sets whether the scale and the bias are values of the network.
    pub fn with_learned(self, learned: [bool; 2]) -> Criterion {
        Criterion { learned, ..self }
    }

    /// Returns the criterion that computes its gradient a second time.
    pub fn again(self) -> Criterion {
        Criterion { again: true, ..self }
    }

    /// Returns the index of the input with the scale, or `None` if the scale is a constant.
    pub fn scale_input(&self) -> Option<u8> {
        self.learned[0].then_some(2)
    }

    /// Returns the index of the input with the bias, or `None` if the bias is a constant.
    pub fn bias_input(&self) -> Option<u8> {
        self.learned[1].then_some(2 + u8::from(self.learned[0]))
    }

    /// True if a gradient may overwrite its value, which is read once. In a loss that compares samples, each is read by all others.
    pub fn overwrites(&self) -> bool {
        !self.over().compares_samples()
    }

    /// Returns the loss of the part that begins at position `first` of `whole`. Its terms are divided as those of the whole are.
    pub fn part_of(self, first: u64, whole: u64) -> Criterion {
        Criterion { first, whole, ..self }
    }

    /// True if other terms measure the rest of its target.
    pub fn is_part(&self) -> bool {
        self.outer != self.whole
    }

    /// Converts a position among this part's samples into a position in the whole batch's target.
    pub fn place(&self, position: u64) -> u64 {
        let [part, whole, first] =
            [self.outer, self.whole, self.first].map(|positions| product(&[positions, self.inner]));
        position / part.max(1) * whole + first + position % part.max(1)
    }

    /// Returns the unit of its terms.
    pub fn over(&self) -> Over {
        self.options.over(self.kind)
    }

    /// Returns how many terms, in the target's order, share one number of [`WEIGHTS`]. `None` if the terms have no factors.
    pub fn weighted(&self) -> Option<u64> {
        let of_sample = match self.over() {
            Over::Elements | Over::Rankings => [self.whole, self.classes, self.inner],
            Over::Positions | Over::Pairs | Over::Triples => [self.whole, 1, self.inner],
            Over::Sequences | Over::Batch | Over::Mined => [1; 3],
        };
        match self.options.weighting {
            Weighting::None => None,
            Weighting::Samples => Some(product(&of_sample)),
            Weighting::Mask => Some(1),
        }
    }

    /// Returns the number of factors in [`WEIGHTS`] for each sample.
    pub fn weights(&self) -> u64 {
        match (self.options.weighting, self.over()) {
            (Weighting::Mask, Over::Elements | Over::Rankings) => product(&[self.whole, self.classes, self.inner]),
            (Weighting::Mask, Over::Positions | Over::Pairs | Over::Triples) => product(&[self.whole, self.inner]),
            _ => 1,
        }
    }

    /// True if it measures rows, each with the classes of one position.
    pub fn is_of_rows(&self) -> bool {
        self.over() == Over::Positions && self.inner == 1
    }

    /// Returns the kind of its target.
    pub fn compares(&self) -> Compares {
        self.options.compares(self.kind)
    }

    /// Returns its numeric option: the one that is written, else the default of its kind.
    pub fn number(&self) -> f64 {
        self.options.number.or(self.kind.row().number.map(|number| number.default)).unwrap_or(0.0)
    }

    /// Returns its second numeric option: the one that is written, else the default of its kind.
    pub fn second(&self) -> f64 {
        self.options.second.or(self.kind.row().second.map(|number| number.default)).unwrap_or(0.0)
    }

    /// Returns the elements of a time step, for a loss that counts by lengths.
    pub fn step(&self) -> u64 {
        product(&[self.outer, self.classes, self.inner]) / self.options.counted.max(1)
    }

    /// True if a mean divides by the weight of what counts. That is the sum of the targets' class weights, the sum of a mask, the elements
    /// of the time steps that count, or the number of anchors that have both a positive and a negative.
    pub fn counts(&self) -> bool {
        let is_weighted = self.compares() == Compares::Classes
            && (self.options.ignored.is_some() || !self.options.weights.is_empty());
        let is_counted = self.options.counted > 0 && self.kind != Measure::Dot;
        self.options.reduction == Reduction::Mean
            && match self.options.weighting {
                Weighting::None => is_counted || is_weighted || self.over() == Over::Mined,
                Weighting::Samples => false,
                Weighting::Mask => true,
            }
    }

    /// Returns the weight of a position with this label, or of a sample of that many time steps. It is used by losses that
    /// [count](Criterion::counts).
    pub fn weight_of(&self, label: u32) -> f64 {
        match &*self.options.weights {
            _ if self.options.counted > 0 => f64::from(label) * self.step() as f64,
            _ if self.options.ignored == Some(label) => 0.0,
            [] => 1.0,
            // The label is no class: reading the target reports that elsewhere.
            weights => weights.get(label as usize).copied().unwrap_or(f64::NAN),
        }
    }

    /// Returns the divisor of the sum of terms of `batch` samples, unless the loss [counts](Criterion::counts).
    pub fn divisor(&self, batch: u64) -> u64 {
        let each = match self.over() {
            Over::Elements | Over::Rankings => [self.whole, self.classes, self.inner],
            Over::Positions | Over::Pairs | Over::Triples => [self.whole, 1, self.inner],
            Over::Sequences | Over::Batch | Over::Mined => [1; 3],
        };
        match self.options.reduction {
            _ if self.kind == Measure::Dot => 1,
            Reduction::Mean => product(&each).saturating_mul(batch),
            Reduction::Sum => 1,
            Reduction::BatchMean => batch,
        }
    }

    /// Returns the shape of the terms that are summed, and true if there are as many for each sample. They are kept apart so that they are
    /// added in the same order in every run.
    pub fn terms(&self) -> (Shape, bool) {
        match self.over() {
            Over::Positions | Over::Pairs | Over::Triples => (Shape::new(&[self.outer, self.inner]), true),
            Over::Sequences => (Shape::new(&[1]), true),
            // A term for each vector of both values, and as many for the gradient of each learned number.
            Over::Batch => {
                let learned = self.learned.iter().filter(|is_learned| **is_learned).count() as u64;
                (Shape::new(&[2 * (1 + learned)]), true)
            }
            Over::Elements | Over::Rankings => (Shape::new(&[PARTIAL_SUMS]), false),
            // A term, and 1 if it counts.
            Over::Mined => (Shape::new(&[2]), true),
        }
    }

    /// Returns the number of states of a sequence: each label, and a blank before and after each.
    pub fn states(&self) -> u64 {
        self.options.target_length.saturating_mul(2).saturating_add(1)
    }

    /// Returns the tensors that it saves from its first pass over the value to its last. Each has true if there is one for each sample.
    /// The first is the divisor if it [counts](Criterion::counts). A loss of sequences saves the probability of each state at each time step,
    /// with [three more rows](EXTRA_ROWS). A loss that compares samples saves the logarithm of the sum for each vector, and one that mines
    /// the batch saves indices and distances of positive and negative.
    pub fn saved(&self) -> Vec<(Shape, bool)> {
        let own = match self.over() {
            Over::Sequences => Some(Shape::new(&[self.outer.saturating_add(EXTRA_ROWS), self.states()])),
            Over::Batch if self.kind != Measure::Siglip => Some(Shape::new(&[2])),
            Over::Mined => Some(Shape::new(&[4])),
            _ => None,
        };
        let divisor = self.counts().then(|| (Shape::new(&[]), false));
        divisor.into_iter().chain(own.map(|shape| (shape, true))).collect()
    }

    /// Returns the slot of the tensor that it saves besides a divisor.
    pub fn own_saved(&self) -> Slot {
        Slot::Saved(u8::from(self.counts()))
    }

    /// Returns the limits of the user's indices that it reads. A slot may be absent.
    pub fn indices(&self) -> Vec<Indices> {
        let label = |each, allowed| {
            let of_classes = Indices::below(self.classes, "label", Slot::Target, each);
            Indices { allowed, ..of_classes }
        };
        match self.compares() {
            // The first chunk checks the whole target.
            Compares::Classes if self.first > 0 => Vec::new(),
            Compares::Classes => {
                let allowed = self.options.ignored.map_or(Allowed::Nothing, Allowed::One);
                Vec::from([label(self.whole.saturating_mul(self.inner), allowed)])
            }
            Compares::Labels => {
                let limit = self.outer.saturating_add(1);
                let lengths = Indices::below(limit, "input length", Slot::Input(1), 1);
                Vec::from([label(self.options.target_length, Allowed::Negative), lengths])
            }
            Compares::Nothing | Compares::Numbers | Compares::Signs if self.options.counted > 0 => {
                Vec::from([Indices::below(self.options.counted.saturating_add(1), "length", Slot::Input(1), 1)])
            }
            Compares::Nothing | Compares::Numbers | Compares::Signs | Compares::Ids => Vec::new(),
        }
    }

    /// True if a backend can run it. It looks up a weight for each class, and the blank.
    fn is_sound(&self) -> bool {
        let LossOptions { weights, blank, target_length, .. } = &self.options;
        let has_weights = weights.is_empty() || weights.len() as u64 == self.classes;
        let elements = product(&[self.outer, self.classes, self.inner]);
        let is_counted = match self.options.counted {
            0 => true,
            steps => {
                let is_of_elements = self.over() == Over::Elements && !self.is_part();
                let is_alone = self.options.weighting == Weighting::None;
                is_of_elements
                    && is_alone
                    && steps < u64::from(u32::MAX)
                    && elements > 0
                    && elements.is_multiple_of(steps)
            }
        };
        let is_inside = self.first.checked_add(self.outer).is_some_and(|end| end <= self.whole);
        has_weights
            && is_counted
            && is_inside
            && (self.over() == Over::Batch || self.learned == [false; 2])
            && match self.over() {
                Over::Elements | Over::Positions | Over::Rankings => true,
                Over::Pairs | Over::Triples => self.inner == 1,
                Over::Batch | Over::Mined => {
                    self.outer == 1 && self.inner == 1 && self.options.weighting == Weighting::None
                }
                Over::Sequences => {
                    let has_target = u64::from(*blank) < self.classes && *target_length > 0;
                    self.inner == 1 && has_target && self.options.weighting != Weighting::Mask
                }
            }
    }
}

/// Rows of states of a sequence besides one for each time step. Two are for the backward walk, one for where each label comes next.
pub const EXTRA_ROWS: u64 = 3;

impl Wire for Criterion {
    fn put(&self, out: &mut Vec<u8>) {
        Written { kind: self.kind, options: self.options.clone() }.put(out);
        [self.outer, self.whole, self.first, self.classes, self.inner].put(out);
        self.weight.put(out);
        self.learned.put(out);
        self.again.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Criterion> {
        let Written { kind, options } = Wire::take(from)?;
        let [outer, whole, first, classes, inner] = Wire::take(from)?;
        let (weight, learned, again) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        Some(Criterion { kind, outer, whole, first, classes, inner, weight, options, learned, again })
            .filter(Criterion::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::loss::{Chunks, Mining};
    use alloc::borrow::Cow;

    #[test]
    fn criteria_survive_and_damage_is_noticed() {
        let shape = Shape::new(&[5, 2, 3]);
        let options = LossOptions {
            reduction: Reduction::Sum,
            number: Some(0.1),
            second: Some(-2.5),
            weights: Cow::Owned(Vec::from([1.0, 2.0, 3.0, 4.0, 5.0])),
            ignored: Some(7),
            probabilities: true,
            log_target: true,
            blank: 2,
            target_length: 3,
            zero_infinity: true,
            chunks: Chunks::Count(4),
            swap: true,
            mining: Mining::Hardest,
            weighting: Weighting::Mask,
            counted: 0,
        };
        for options in [LossOptions::DEFAULT, options] {
            let criterion = Criterion::new(Measure::CrossEntropy, 0.5, options, shape);
            let mut bytes = Vec::new();
            criterion.put(&mut bytes);
            assert_eq!(Criterion::take(&mut Reader::new(&bytes)), Some(criterion.clone()));
            (0..bytes.len()).for_each(|end| assert_eq!(Criterion::take(&mut Reader::new(&bytes[..end])), None));
            let mut other = criterion;
            other.classes = 4;
            let mut bytes = Vec::new();
            other.put(&mut bytes);
            let is_sound = other.options.weights.is_empty();
            assert_eq!(Criterion::take(&mut Reader::new(&bytes)).is_some(), is_sound);
        }
    }

    /// An element of the first time steps counts as one. A damaged program may name any number of time steps.
    #[test]
    fn steps_that_count() {
        let of = |kind, counted| {
            let options = LossOptions { counted, ..LossOptions::DEFAULT };
            Criterion::new(kind, 1.0, options, Shape::new(&[5, 6]))
        };
        let criterion = of(Measure::Mse, 5);
        assert!(criterion.is_sound() && criterion.counts());
        assert_eq!((criterion.step(), criterion.weight_of(3)), (6, 18.0));
        assert_eq!(criterion.indices(), [Indices::below(6, "length", Slot::Input(1), 1)]);
        assert!(!of(Measure::Mse, 0).counts() && of(Measure::Mse, 0).indices().is_empty());
        for damaged in [of(Measure::Mse, 7), of(Measure::CrossEntropy, 5), of(Measure::Mse, 1 << 40)] {
            assert!(!damaged.is_sound(), "{damaged:?}");
        }
        for weighting in [Weighting::Samples, Weighting::Mask] {
            let options = LossOptions { counted: 5, weighting, ..LossOptions::DEFAULT };
            assert!(!Criterion::new(Measure::Mse, 1.0, options, Shape::new(&[5, 6])).is_sound(), "{weighting:?}");
        }
    }

    #[test]
    fn divisors() {
        let of = |kind, reduction| {
            let options = LossOptions { reduction, ..LossOptions::DEFAULT };
            Criterion::new(kind, 1.0, options, Shape::new(&[5, 2, 3])).divisor(4)
        };
        let all = [Reduction::Mean, Reduction::Sum, Reduction::BatchMean];
        assert_eq!(all.map(|it| of(Measure::CrossEntropy, it)), [24, 1, 4]);
        assert_eq!(all.map(|it| of(Measure::KlDiv, it)), [120, 1, 4]);
        assert_eq!(all.map(|it| of(Measure::Dot, it)), [1; 3]);
    }

    #[test]
    fn losses_of_a_batch_are_linear_in_it() {
        let of = |kind, learned| {
            let criterion = Criterion::new(kind, 0.5, LossOptions::DEFAULT, Shape::new(&[512])).with_learned(learned);
            let mut bytes = Vec::new();
            criterion.put(&mut bytes);
            assert_eq!(Criterion::take(&mut Reader::new(&bytes)), Some(criterion.clone()));
            assert!(!criterion.overwrites() && criterion.divisor(7) == 7);
            (criterion.terms(), criterion.saved(), [criterion.scale_input(), criterion.bias_input()])
        };
        let each = |count| (Shape::new(&[count]), true);
        let kept = |count| Vec::from([each(count)]);
        assert_eq!(of(Measure::Contrastive, [false; 2]), (each(2), kept(2), [None, None]));
        assert_eq!(of(Measure::NtXent, [true, false]), (each(4), kept(2), [Some(2), None]));
        assert_eq!(of(Measure::Siglip, [true; 2]), (each(6), Vec::new(), [Some(2), Some(3)]));
        assert_eq!(of(Measure::Siglip, [false, true]), (each(4), Vec::new(), [None, Some(2)]));
        let other = Criterion::new(Measure::Mse, 1.0, LossOptions::DEFAULT, Shape::new(&[4])).with_learned([true; 2]);
        let mut bytes = Vec::new();
        other.put(&mut bytes);
        assert_eq!(Criterion::take(&mut Reader::new(&bytes)), None);
    }
}
