//! The confusion matrix.

use super::classes::{Options, Places, class_options, for_each_label};
use super::{Goal, Metric, Table};
use crate::error::{Error, Result};
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The most classes of a confusion matrix, which then takes 128 MiB.
const MOST_CLASSES: usize = 4096;

/// Counts of labels and predictions.
///
/// Row `i`, column `j` has the positions of label `i` whose largest logit is that of class `j`. It is a table, `val_confusion` in logs,
/// rather than a number. It has at most 4096 classes.
#[derive(Clone, Debug)]
pub struct ConfusionMatrix {
    pub(super) options: Options,
    classes: usize,
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// Returns a confusion matrix of as many classes as the network has.
    #[expect(clippy::new_without_default, reason = "other metrics have no default either")]
    pub fn new() -> ConfusionMatrix {
        ConfusionMatrix { options: Options::DEFAULT, classes: 0, counts: Vec::new() }
    }
}
class_options!(ConfusionMatrix);

impl<S: HostShape, L: HostShape> Metric<Tensor<f32, S>, Tensor<u32, L>> for ConfusionMatrix {
    fn name(&self) -> String {
        "confusion".into()
    }

    fn goal(&self) -> Goal {
        Goal::Highest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, labels: &Tensor<u32, L>, len: usize) -> Result<()> {
        let error = |what| Error::measure("confusion", what);
        let classes = Places::find(S::DIMS, L::DIMS, self.options.axis).map_err(error)?.classes;
        if classes > MOST_CLASSES {
            return Err(error(format!(
                "a matrix of {classes} classes would take too much memory; it may have {MOST_CLASSES}, and `F1` and `MeanIou` any number"
            )));
        }
        if self.classes != classes {
            self.classes = classes;
            self.counts = vec![0; classes * classes];
        }
        let counts = &mut self.counts;
        let labels = (labels.as_slice(), L::DIMS);
        for_each_label((outputs.as_slice(), S::DIMS), labels, len, self.options, |label, logits| {
            counts[label * classes + logits.argmax()] += 1;
        })
        .map_err(error)
    }

    fn value(&self) -> Option<f64> {
        None
    }

    fn table(&self) -> Option<Table> {
        (self.classes > 0).then(|| Table {
            name: "confusion".into(),
            columns: self.classes,
            counts: self.counts.clone(),
        })
    }

    fn reset(&mut self) {
        self.counts.fill(0);
    }
}
