//! Assigns logits to labels, for metrics of classes.

use gpumem_data::IGNORED;

/// The options of a metric of classes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The label of positions that do not count.
    pub ignored: u32,
    /// The axis of the outputs that has the classes. `None` finds it by the shapes.
    pub axis: Option<usize>,
}

impl Options {
    pub const DEFAULT: Options = Options { ignored: IGNORED, axis: None };
}

/// Adds the options of a metric of classes to its builder.
macro_rules! class_options {
    ($name:ident) => {
        impl $name {
            /// Ignores positions with this label, like `ignore_index` of the loss. The default is -100.
            #[must_use]
            pub fn ignore_label(mut self, label: u32) -> Self {
                self.options.ignored = label;
                self
            }

            /// Sets the axis of the outputs that has the classes, with the batch as axis 0.
            ///
            /// Without it, the axis follows from the shapes: outputs are `[B, C, ..]` or `[B, .., C]`, and labels `[B, ..]`. It is needed
            /// if both fit, as of `[B, 16, 16]` and `[B, 16]`.
            #[must_use]
            pub fn class_axis(mut self, axis: usize) -> Self {
                self.options.axis = Some(axis);
                self
            }
        }
    };
}
pub(super) use class_options;

/// The layout of classes in outputs: `[outer, classes, inner]`, with one label for each `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub classes: usize,
    inner: usize,
}

impl Places {
    /// Finds the axis of the classes. The error is the reason why there is none. Shapes include the batch.
    pub fn find(outputs: &[usize], labels: &[usize], axis: Option<usize>) -> Result<Places, String> {
        let fits = |axis: usize| {
            let before = outputs.get(..axis)?;
            let after = outputs.get(axis + 1..)?;
            (axis > 0 && [before, after].concat() == labels).then_some(axis)
        };
        let last = outputs.len().saturating_sub(1);
        let found = match axis {
            Some(axis) => fits(axis),
            None => match (fits(1), fits(last)) {
                (Some(1), Some(last)) if last != 1 => {
                    return Err(format!(
                        "the classes of outputs {outputs:?} with labels {labels:?} may be axis 1 or {last}; say which with `.class_axis(1)` or `.class_axis({last})`"
                    ));
                }
                (first, last) => first.or(last),
            },
        };
        match found {
            Some(axis) if outputs[axis] > 0 => {
                Ok(Places { classes: outputs[axis], inner: outputs[axis + 1..].iter().product() })
            }
            _ => Err(format!(
                "outputs {outputs:?} have no axis of classes for labels {labels:?}; outputs are [B, C, ..] or [B, .., C], and labels [B, ..]"
            )),
        }
    }

    /// Returns the logits of a position, which is its index among the labels.
    fn logits<'a>(&self, outputs: &'a [f32], position: usize) -> Logits<'a> {
        let (outer, inner) = (position / self.inner, position % self.inner);
        let from = outputs.get(outer * self.classes * self.inner + inner..).unwrap_or_default();
        Logits { from, stride: self.inner, classes: self.classes }
    }
}

/// The logits of all classes at one position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logits<'a> {
    from: &'a [f32],
    stride: usize,
    classes: usize,
}

impl Logits<'_> {
    /// Returns the logit of each class.
    pub fn iter(&self) -> impl Iterator<Item = f32> {
        self.from.iter().step_by(self.stride).take(self.classes).copied()
    }

    /// Returns the logit of one class.
    pub fn of(&self, class: usize) -> f32 {
        self.from.get(class * self.stride).copied().unwrap_or(f32::NAN)
    }

    /// Returns the class of the largest logit, the first of several. A NaN is larger than any number.
    pub fn argmax(&self) -> usize {
        let first = (0, self.of(0));
        let (class, _) =
            self.iter().enumerate().fold(first, |best, next| if beats(next.1, best.1) { next } else { best });
        class
    }

    /// Returns the number of classes before `class` in the order of their logits, the largest first. Of equal logits the first class comes
    /// first.
    pub fn rank(&self, class: usize) -> usize {
        let own = self.of(class);
        let is_before = |&(other, logit): &(usize, f32)| beats(logit, own) || (other < class && !beats(own, logit));
        self.iter().enumerate().filter(is_before).count()
    }
}

fn beats(value: f32, other: f32) -> bool {
    value > other || (value.is_nan() && !other.is_nan())
}

/// Calls `each` with label and logits of every position that counts. The error is the fault in words.
///
/// The first `len` samples count, except positions with the ignored label.
pub(super) fn for_each_label(
    outputs: (&[f32], &[usize]),
    labels: (&[u32], &[usize]),
    len: usize,
    options: Options,
    mut each: impl FnMut(usize, Logits<'_>),
) -> Result<(), String> {
    let places = Places::find(outputs.1, labels.1, options.axis)?;
    let batch = labels.1.first().copied().unwrap_or(1).max(1);
    let positions = labels.0.len() / batch * len.min(batch);
    for (position, &label) in labels.0.iter().take(positions).enumerate() {
        if label == options.ignored {
            continue;
        }
        if label as usize >= places.classes {
            return Err(format!(
                "label {} at position {position} of a batch is not below the {} classes; correct the data, or leave the label out with `.ignore_label({label})`",
                shown(label),
                places.classes
            ));
        }
        each(label as usize, places.logits(outputs.0, position));
    }
    Ok(())
}

/// Returns a label as the number that was meant: -1 for the largest `u32`.
fn shown(label: u32) -> i64 {
    if label >= 1 << 31 { label.cast_signed().into() } else { label.into() }
}

/// Counts of each class: labels, predictions, and both at once.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassCounts {
    /// `[labels, predictions, both]` of each class.
    counts: Vec<[u64; 3]>,
}

impl ClassCounts {
    pub fn add(&mut self, label: usize, predicted: usize) {
        let needed = label.max(predicted) + 1;
        if self.counts.len() < needed {
            self.counts.resize(needed, [0; 3]);
        }
        self.counts[label][0] += 1;
        self.counts[predicted][1] += 1;
        self.counts[label][2] += u64::from(label == predicted);
    }

    /// Returns labels, predictions and both of a class.
    pub fn of(&self, class: usize) -> [u64; 3] {
        self.counts.get(class).copied().unwrap_or_default()
    }

    /// Returns the mean of `score` over the classes that are a label or a prediction somewhere. `None` if there are none.
    pub fn mean(&self, score: impl Fn([u64; 3]) -> f64) -> Option<f64> {
        let seen = self.counts.iter().filter(|[labels, predictions, _]| labels + predictions > 0);
        let (sum, count) = seen.fold((0.0, 0u64), |(sum, count), &counts| (sum + score(counts), count + 1));
        (count > 0).then(|| sum / count as f64)
    }

    pub fn reset(&mut self) {
        self.counts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Logits, Options, Places, for_each_label};

    #[test]
    fn classes_are_the_axis_that_labels_lack() {
        let find = |outputs: &[usize], labels: &[usize]| Places::find(outputs, labels, None);
        assert_eq!(find(&[4, 10], &[4]), Ok(Places { classes: 10, inner: 1 }));
        assert_eq!(find(&[4, 10, 8, 6], &[4, 8, 6]), Ok(Places { classes: 10, inner: 48 }));
        assert_eq!(find(&[4, 8, 61], &[4, 8]), Ok(Places { classes: 61, inner: 1 }));
        assert_eq!(Places::find(&[4, 8, 8], &[4, 8], Some(2)), Ok(Places { classes: 8, inner: 1 }));
        assert_eq!(Places::find(&[4, 8, 8], &[4, 8], Some(1)), Ok(Places { classes: 8, inner: 8 }));
        assert_eq!(
            find(&[4, 8, 8], &[4, 8]).unwrap_err(),
            "the classes of outputs [4, 8, 8] with labels [4, 8] may be axis 1 or 2; say which with `.class_axis(1)` or `.class_axis(2)`"
        );
        let none = "outputs [4, 10] have no axis of classes for labels [4, 10]; outputs are [B, C, ..] or [B, .., C], and labels [B, ..]";
        assert_eq!(find(&[4, 10], &[4, 10]).unwrap_err(), none);
        assert!(find(&[4], &[4]).is_err() && find(&[], &[]).is_err() && find(&[4, 0], &[4]).is_err());
        assert!(Places::find(&[4, 4], &[4], Some(0)).is_err() && Places::find(&[4, 10], &[4], Some(7)).is_err());
    }

    #[test]
    fn ranks_agree_with_the_largest_logit() {
        let nan = f32::NAN;
        for values in [[1.0, 3.0, 2.0, 3.0], [0.0; 4], [nan, 1.0, nan, 2.0], [-1.0, f32::INFINITY, nan, f32::INFINITY]]
        {
            let logits = Logits { from: &values, stride: 1, classes: 4 };
            assert_eq!(logits.rank(logits.argmax()), 0, "{values:?}");
            let mut ranks: Vec<usize> = (0..4).map(|class| logits.rank(class)).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1, 2, 3], "{values:?}");
        }
    }

    #[test]
    fn positions_have_their_logits() {
        // [B, C, L] of 2, 3, 2: the classes of a position are 2 apart.
        let outputs: Vec<f32> = (0..12).map(|index| index as f32).collect();
        let labels = [0, 1, (-100_i32).cast_unsigned(), 2];
        let mut seen = Vec::new();
        let mut each = |label: usize, logits: Logits<'_>| seen.push((label, logits.iter().collect::<Vec<_>>()));
        let given = ((&outputs[..], &[2, 3, 2][..]), (&labels[..], &[2, 2][..]));
        for_each_label(given.0, given.1, 2, Options::DEFAULT, &mut each).unwrap();
        let all = [(0, vec![0.0, 2.0, 4.0]), (1, vec![1.0, 3.0, 5.0]), (2, vec![7.0, 9.0, 11.0])];
        assert_eq!(seen, all);
        seen.clear();
        let mut each = |label: usize, logits: Logits<'_>| seen.push((label, logits.iter().collect::<Vec<_>>()));
        for_each_label(given.0, given.1, 1, Options::DEFAULT, &mut each).unwrap();
        assert_eq!(seen, all[..2]);
    }
}
