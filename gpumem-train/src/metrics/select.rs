//! Metrics of one of several outputs and targets.

use super::{Goal, Metric, Table};
use crate::error::Result;
use std::marker::PhantomData;

/// A metric of one output and one target of several: see [`select`].
#[derive(Clone, Debug)]
pub struct Selected<M, FO, FT, O, T> {
    metric: M,
    output: FO,
    target: FT,
    name: Option<String>,
    tensors: PhantomData<fn(O, T)>,
}

/// Returns a metric of the output and the target that two functions choose.
///
/// ```
/// use gpumem_core::run::tensor::Tensor;
/// use gpumem_core::typed::D;
/// use gpumem_train::metrics::{Accuracy, Metric, select};
///
/// type Logits = Tensor<f32, (D<1>, D<3>)>;
/// type Labels = Tensor<u32, (D<1>,)>;
/// type Outputs = (Logits, Tensor<f32, (D<1>, D<9>)>);
///
/// let mut metric = select(Accuracy::new(), |outputs: &Outputs| &outputs.0, |labels: &Labels| labels).named("first_accuracy");
/// metric.add(&(Tensor::from([[0.0, 2.0, 1.0]]), Tensor::zeros()), &Tensor::from([1]), 1)?;
/// assert_eq!((metric.name(), metric.value()), ("first_accuracy".to_string(), Some(1.0)));
/// # Ok::<(), gpumem_train::Error>(())
/// ```
pub fn select<M, FO, FT, Outputs, Targets, O, T>(metric: M, output: FO, target: FT) -> Selected<M, FO, FT, O, T>
where
    M: Metric<O, T>,
    FO: Fn(&Outputs) -> &O,
    FT: Fn(&Targets) -> &T,
{
    Selected { metric, output, target, name: None, tensors: PhantomData }
}

impl<M, FO, FT, O, T> Selected<M, FO, FT, O, T> {
    /// Sets the name in logs, so that one metric can be used for several outputs.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl<M, FO, FT, Outputs, Targets, O, T> Metric<Outputs, Targets> for Selected<M, FO, FT, O, T>
where
    M: Metric<O, T>,
    FO: Fn(&Outputs) -> &O,
    FT: Fn(&Targets) -> &T,
{
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.metric.name())
    }

    fn goal(&self) -> Goal {
        self.metric.goal()
    }

    fn add(&mut self, outputs: &Outputs, targets: &Targets, len: usize) -> Result<()> {
        self.metric.add((self.output)(outputs), (self.target)(targets), len)
    }

    fn value(&self) -> Option<f64> {
        self.metric.value()
    }

    fn table(&self) -> Option<Table> {
        let table = self.metric.table()?;
        Some(Table { name: self.name.clone().unwrap_or(table.name), ..table })
    }

    fn reset(&mut self) {
        self.metric.reset();
    }
}
