//! The evaluation of a network on a validation set.

use crate::error::{Error, Result};
use crate::metrics::{Metric, Table};
use crate::padding::Padding;
use crate::replay::trained_samples;
use crate::shard::shard;
use gpumem_core::network::Trains;
use gpumem_core::run::averages::Averaged;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_data::{Batch, Batched, Dataset, Loader, Position};

/// Samples to validate on: a data set, or a loader of one.
///
/// A data set is read in its order, and its last batch is padded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no samples for a network with the input `{I}` and the target `{T}`",
    label = "expected a `Dataset`, or a `Loader` with the network's input and target"
)]
pub trait ValidateOn<I: Batched, T: Batched, Kind> {
    /// Returns a loader of the samples.
    fn loader(self) -> Loader<I, T>;
}

/// A marker type: [`ValidateOn`] for data sets.
#[derive(Debug)]
pub enum BySet {}

/// A marker type: [`ValidateOn`] for loaders.
#[derive(Debug)]
pub enum ByLoader {}

impl<I: Batched, T: Batched, S: Dataset> ValidateOn<I, T, BySet> for S {
    fn loader(self) -> Loader<I, T> {
        Loader::new(self).pad()
    }
}

impl<I: Batched, T: Batched> ValidateOn<I, T, ByLoader> for Loader<I, T> {
    fn loader(self) -> Loader<I, T> {
        self
    }
}

/// The metrics of a network.
pub(crate) type Metrics<'n, N> = Vec<
    Box<dyn Metric<<N as gpumem_core::network::Network>::Output, <N as gpumem_core::network::Network>::Target> + 'n>,
>;

/// The result of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// `val_loss` and the metrics, under their names in logs.
    pub values: Vec<(String, f64)>,
    pub tables: Vec<Table>,
}

/// A network that evaluates: with its parameters, or with their moving averages.
pub(crate) trait Evaluates<N: Trains> {
    /// Returns the loss without an update, as [`Net::eval_loss`] does.
    fn eval_loss(&mut self, input: &N::Input, target: &N::Target) -> Loss;

    /// Runs one forward pass, as [`Net::forward`] does.
    fn forward(&mut self, input: &N::Input) -> std::result::Result<N::Output, gpumem_core::error::Error>;
}

/// A loss, or the error of the network.
type Loss = std::result::Result<f32, gpumem_core::error::Error>;

impl<N: Trains, D: Device> Evaluates<N> for Net<N, D> {
    fn eval_loss(&mut self, input: &N::Input, target: &N::Target) -> Loss {
        Net::eval_loss(self, input, target)
    }

    fn forward(&mut self, input: &N::Input) -> std::result::Result<N::Output, gpumem_core::error::Error> {
        Net::forward(self, input)
    }
}

impl<N: Trains, D: Device> Evaluates<N> for Averaged<'_, N, D> {
    fn eval_loss(&mut self, input: &N::Input, target: &N::Target) -> Loss {
        Averaged::eval_loss(self, input, target)
    }

    fn forward(&mut self, input: &N::Input) -> std::result::Result<N::Output, gpumem_core::error::Error> {
        Averaged::forward(self, input)
    }
}

/// Evaluates as [`evaluate_with`] does, with moving averages if the network keeps some.
pub(crate) fn evaluate<N: Trains, D: Device>(
    net: &mut Net<N, D>,
    loader: &mut Loader<N::Input, N::Target>,
    metrics: &mut Metrics<'_, N>,
    step: u64,
    is_asked: &dyn Fn() -> bool,
) -> Result<Option<Scores>>
where
    N::Input: Batched,
    N::Target: Batched,
{
    shard(net, loader)?;
    let at = (step, net.ranks());
    if !net.has_averages() {
        return evaluate_with(net, loader, metrics, at, is_asked);
    }
    let evaluated = net.averaged(|net| Ok(evaluate_with(net, loader, metrics, at, is_asked)));
    evaluated.map_err(Error::compute(step))?
}

/// Evaluates the loss and the metrics on all samples of a loader, from its first epoch's start. `None` if `is_asked` to stop before the end.
///
/// `ranks` have a share of the samples each. Metrics of shares cannot be put together, so that each rank measures all samples.
fn evaluate_with<N: Trains>(
    net: &mut impl Evaluates<N>,
    loader: &mut Loader<N::Input, N::Target>,
    metrics: &mut Metrics<'_, N>,
    (step, ranks): (u64, usize),
    is_asked: &dyn Fn() -> bool,
) -> Result<Option<Scores>>
where
    N::Input: Batched,
    N::Target: Batched,
{
    let padding = Padding::of::<N>();
    let room = room::<N>();
    metrics.iter_mut().for_each(|metric| metric.reset());
    loader.resume(Position::default());
    let (mut sum, mut samples) = (0.0, 0u64);
    for batch in loader.epoch()? {
        let batch = batch?;
        if is_asked() {
            return Ok(None);
        }
        let all = trained_samples(&batch, ranks);
        // All ranks decide alike.
        let is_whole = all == room.saturating_mul(ranks);
        let counts =
            if ranks > 1 { padding.has_mean_of::<N::Target>() } else { padding.has_mean(&batch.target, all, room) };
        if all > 0 && (is_whole || counts) {
            let loss = net.eval_loss(&batch.input, &batch.target).map_err(Error::compute(step))?;
            sum += f64::from(loss) * all as f64;
            samples += all as u64;
        }
        if ranks == 1 {
            measure(net, &batch, metrics, step)?;
        }
    }
    if ranks > 1 && !metrics.is_empty() {
        let [rank, of] = loader.share();
        loader.set_shard(0, 1);
        loader.resume(Position::default());
        loader.epoch()?.try_for_each(|batch| measure(net, &batch?, metrics, step))?;
        loader.set_shard(rank, of);
    }
    if samples == 0 {
        return Err(Error::setting(format!(
            "the validation set fills no batch of {room}, and the loss would count the padding of the incomplete one; validate on more \
             samples, or add `ignore_index: -100` to each term of a loss of classes"
        )));
    }
    let mut scores = Scores { values: vec![("val_loss".into(), sum / samples as f64)], tables: Vec::new() };
    for metric in metrics.iter() {
        scores.values.extend(metric.value().map(|value| (logged(&metric.name()), value)));
        scores.tables.extend(metric.table().map(|table| Table { name: logged(&table.name), ..table }));
    }
    Ok(Some(scores))
}

/// Adds the samples of a batch to the metrics.
fn measure<N: Trains>(
    net: &mut impl Evaluates<N>,
    batch: &Batch<N::Input, N::Target>,
    metrics: &mut Metrics<'_, N>,
    step: u64,
) -> Result<()>
where
    N::Input: Batched,
    N::Target: Batched,
{
    if batch.len == 0 || metrics.is_empty() {
        return Ok(());
    }
    let outputs = net.forward(&batch.input).map_err(Error::compute(step))?;
    metrics.iter_mut().try_for_each(|metric| metric.add(&outputs, &batch.target, batch.len))
}

/// Returns the name of a metric in logs.
pub(crate) fn logged(name: &str) -> String {
    format!("val_{name}")
}

/// Returns the samples that a batch of the network has room for.
pub(crate) fn room<N: Trains>() -> usize
where
    N::Input: Batched,
{
    N::Input::batches().first().copied().unwrap_or(0)
}
