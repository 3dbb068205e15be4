//! The sizes that a plan will have, if the macro can read them before const evaluation does.

use super::{Programs, Readings};
use crate::settings::reading::Reading;
use crate::settings::values::literal;
use crate::syntax::{Field, Settings, Source};
use gpumem_core::cards::{Card, find};
use gpumem_core::lower::Sizes;
use gpumem_core::memory::budget::MANY;
use gpumem_core::memory::tables::{Workspaces, samples};
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::{Precision, Train};
use syn::{Expr, ExprCall, ExprLit, Lit};

/// Samples per pass, precision and scratch limits at which the macro packs a program.
pub(super) type AssumedSizes = (u64, Precision, Workspaces);

/// Assumed sizes for each program of a network.
pub(super) struct Guesses {
    pub(super) training: Vec<AssumedSizes>,
    /// Sizes for the training step with recomputation.
    pub(super) levels: Vec<AssumedSizes>,
    pub(super) inference: Vec<AssumedSizes>,
    /// Sizes for the forward pass that is loaded with the training step, used if it is a program of its own.
    pub(super) evaluation: Vec<AssumedSizes>,
}

/// Batches at which a network is packed if its batch is not a literal.
///
/// A packing for one of them usually serves other batches too, which then need no packing of their own.
const BATCHES: [u64; 6] = [256, 32, 4, 1, 8, 16];

/// The batch at which recomputation is searched if the batch is not a literal. The result is about as good at other batches.
const NOMINAL: u64 = 32;

impl Guesses {
    pub(super) fn new(source: &Source, readings: &Readings<'_>, programs: &Programs) -> Guesses {
        let [training, inference] = [programs.training.as_ref(), Some(&programs.inference)]
            .map(|program| program.map_or(0, |program| program.transients().count()));
        let found = programs.found.map(|[batch, _]| batch);
        let train = |tensors| guesses(settings_of(readings), readings.train(), tensors, found);
        let infer = guesses(source.infer.as_ref(), readings.infer.as_ref(), inference, None);
        let (training, mut inference, mut evaluation) = (train(training), infer, train(inference));
        if programs.evaluation.is_none() {
            inference.append(&mut evaluation);
        }
        if readings.infer.is_none() && readings.train().is_none() {
            inference.push((1, Precision::F32, aimed(&[], None)));
        }
        let (batch, precision, workspaces) = nominal(readings);
        let at_once = samples(found.unwrap_or(batch), readings.train().map_or(1, |train| train.descent.micro_batches));
        Guesses { training, levels: vec![(at_once, precision, workspaces)], inference, evaluation }
    }
}

/// Returns the sizes at which recomputation is searched, with the whole batch.
pub(super) fn nominal(readings: &Readings<'_>) -> AssumedSizes {
    let settings = settings_of(readings);
    let batch = readings.train().and_then(|train| literal(&train.batch?.value)).unwrap_or(NOMINAL);
    let precision = readings.train().map_or(Precision::F32, |train| train.precision);
    (batch.max(1), precision, aimed(&cards(settings), conv_workspace(settings)))
}

/// Returns the sizes of the smallest batch that a step may have: one sample if the batch is not a literal.
pub(super) fn least(readings: &Readings<'_>) -> Sizes {
    let (_, precision, workspaces) = nominal(readings);
    let batch = readings.train().and_then(|train| train.batch).map_or(Some(1), |batch| literal(&batch.value));
    Sizes::new(batch.unwrap_or(1).max(1), precision, workspaces)
}

/// Returns the settings that the first training step's constant has in the source. `None` if there is none.
pub(super) fn settings_of<'s>(readings: &Readings<'s>) -> Option<&'s Settings> {
    readings.train()?.settings
}

/// Returns the sizes at which a program with `tensors` tensors is packed. Its batch is the one that was found or is written.
fn guesses(
    settings: Option<&Settings>,
    reading: Option<&Reading<'_>>,
    tensors: usize,
    found: Option<u64>,
) -> Vec<AssumedSizes> {
    // Packing many tensors takes long, so one batch is enough for them.
    let most = if tensors > 4 * MANY { 1 } else { BATCHES.len() };
    let Some(reading) = reading else { return Vec::new() };
    let batches = match reading.batch {
        Some(Field { value, .. }) => {
            found.or_else(|| literal(value)).map_or(BATCHES[..most].to_vec(), |batch| vec![batch])
        }
        None => vec![1],
    };
    let workspaces = aimed(&cards(settings), conv_workspace(settings));
    let parts = reading.descent.micro_batches;
    batches.into_iter().map(|batch| (samples(batch, parts), reading.precision, workspaces)).collect()
}

fn aimed(slugs: &[&str], convolution: Option<u64>) -> Workspaces {
    let cards: Vec<Card> = slugs.iter().filter_map(|slug| find(slug)).copied().collect();
    Workspaces::of(&TargetCards::at(&cards), convolution.unwrap_or(Train::DEFAULT.conv_workspace))
}

fn field<'s>(settings: &'s Settings, name: &str) -> Option<&'s Expr> {
    settings.fields.iter().find(|field| field.name == name).map(|field| &field.value)
}

/// Returns the bytes of a field, or `default` if it is not written. `None` if the value is not a literal.
pub(super) fn bytes(settings: Option<&Settings>, name: &str, default: u64) -> Option<u64> {
    match settings.and_then(|settings| field(settings, name)) {
        Some(value) => size(value),
        None => Some(default),
    }
}

/// Returns the most scratch bytes that one convolution may use. `None` if the value is not a literal.
pub(super) fn conv_workspace(settings: Option<&Settings>) -> Option<u64> {
    bytes(settings, "conv_workspace", Train::DEFAULT.conv_workspace)
}

/// Returns the bytes of a literal, `mib(256)` or `gib(1.5)`. `None` for others, such as `256 << 20`.
fn size(value: &Expr) -> Option<u64> {
    let Expr::Call(ExprCall { func, args, .. }) = value else { return literal(value) };
    let Expr::Path(function) = &**func else { return None };
    let unit = match function.path.segments.last()?.ident.to_string().as_str() {
        "mib" => 20,
        "gib" => 30,
        _ => return None,
    };
    match args.first()? {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse::<u64>().ok()?.checked_shl(unit),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => {
            Some((number.base10_parse::<f64>().ok()? * f64::from(1u32 << unit)) as u64)
        }
        _ => None,
    }
}

/// Returns the cards of `cards:`. `None` unless all of them are names of the table.
pub(super) fn card_list(settings: Option<&Settings>) -> Option<Vec<Card>> {
    let written = match settings.and_then(|settings| field(settings, "cards")) {
        None => 0,
        Some(Expr::Array(list)) => list.elems.len(),
        Some(_) => return None,
    };
    let known: Vec<Card> = cards(settings).into_iter().filter_map(find).copied().collect();
    (known.len() == written).then_some(known)
}

/// Returns the slugs of the cards of `cards:` that the table knows.
pub(super) fn cards(settings: Option<&Settings>) -> Vec<&'static str> {
    let Some(Expr::Array(list)) = settings.and_then(|settings| field(settings, "cards")) else { return Vec::new() };
    let name = |card: &Expr| match card {
        Expr::Path(path) => find(&path.path.segments.last()?.ident.to_string()).map(|card| card.slug),
        _ => None,
    };
    list.elems.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        let size = |text: &str| size(&syn::parse_str(text).unwrap());
        assert_eq!(size("1024"), Some(1024));
        assert_eq!(size("mib(256)"), Some(256 << 20));
        assert_eq!(size("gpumem::gib(1.5)"), Some(3 << 29));
        assert_eq!([size("256 << 20"), size("kib(1)"), size("mib(N)"), size("HEADROOM")], [None; 4]);
    }
}
