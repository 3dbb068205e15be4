//! The F1 score.

use super::classes::{ClassCounts, Options, class_options, for_each_label};
use super::{Goal, Metric};
use crate::error::{Error, Result};
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The F1 score of a class: twice its correct predictions, divided by the sum of its labels and predictions.
#[derive(Clone, Debug)]
pub struct F1 {
    pub(super) options: Options,
    /// `None` for the mean over all classes.
    class: Option<u32>,
    counts: ClassCounts,
}

impl F1 {
    /// Returns the mean over all classes that are a label or a prediction: `val_f1` in logs.
    ///
    /// scikit-learn: `f1_score(labels, predictions, average="macro")`.
    pub fn mean() -> F1 {
        F1 { options: Options::DEFAULT, class: None, counts: ClassCounts::default() }
    }

    /// Returns the score of one class: `val_f1_class1` of class 1 in logs. It is 0 if the class is neither a label nor a prediction.
    ///
    /// scikit-learn: `f1_score(labels, predictions, pos_label=class)`.
    pub fn of(class: u32) -> F1 {
        F1 { class: Some(class), ..F1::mean() }
    }
}
class_options!(F1);

impl<S: HostShape, L: HostShape> Metric<Tensor<f32, S>, Tensor<u32, L>> for F1 {
    fn name(&self) -> String {
        self.class.map_or("f1".into(), |class| format!("f1_class{class}"))
    }

    fn goal(&self) -> Goal {
        Goal::Highest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, labels: &Tensor<u32, L>, len: usize) -> Result<()> {
        let F1 { counts, options, class } = self;
        let name = class.map_or("f1".into(), |class| format!("f1_class{class}"));
        let labels = (labels.as_slice(), L::DIMS);
        for_each_label((outputs.as_slice(), S::DIMS), labels, len, *options, |label, logits| {
            counts.add(label, logits.argmax());
        })
        .map_err(|what| Error::measure(name, what))
    }

    fn value(&self) -> Option<f64> {
        let score = |[labels, predictions, both]: [u64; 3]| {
            let all = labels + predictions;
            if all == 0 { 0.0 } else { 2.0 * both as f64 / all as f64 }
        };
        let mean = self.counts.mean(score)?;
        Some(self.class.map_or(mean, |class| score(self.counts.of(class as usize))))
    }

    fn reset(&mut self) {
        self.counts.reset();
    }
}
