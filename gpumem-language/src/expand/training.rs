//! Generates the plans and checks of one training step: its only program, or its recompute levels.

use super::levels::{Leveled, leveled};
use super::planned::{Planned, check};
use super::tables::Names;
use super::{Programs, Readings};
use crate::settings::reading::Reading;
use crate::syntax::Source;
use gpumem_core::program::Program;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

/// A training step.
pub(super) struct Trained<'a> {
    /// The program of a step without recompute levels. Empty for others.
    pub(super) only: Vec<Planned<'a>>,
    /// The programs of a step with recompute levels, between which const evaluation chooses.
    pub(super) levels: Vec<Planned<'a>>,
    pub(super) leveled: Option<TokenStream>,
    /// Its checks against the cards, as expressions.
    pub(super) checks: Vec<TokenStream>,
    /// An expression for the compiled program that runs. It names an item that does not exist if the network does not train.
    pub(super) value: TokenStream,
}

/// Generates the first training step among `readings`.
pub(super) fn trained<'a>(source: &Source, readings: &'a Readings<'_>, programs: &Programs) -> Trained<'a> {
    let reading = readings.train();
    let settings = || reading.map_or_else(|| Ident::new("TRAIN", Span::call_site()), Reading::ident);
    let planned = |prefix: &str, program: &Program, structure: &str| Planned {
        prefix: prefix.to_string(),
        names: Names::new(structure),
        transients: program.transients().count(),
        settings: settings(),
        trains: true,
        reading,
        is_checked: true,
        remedies: programs.remedies,
    };
    let (mut only, mut levels) = (Vec::new(), Vec::new());
    match &programs.training {
        Some(program) if programs.levels.is_empty() => only.push(planned("TRAINING", program, "TRAINING")),
        Some(program) => {
            levels.push(planned("TRAINING_0", program, "TRAINING"));
            for (level, program) in &programs.levels {
                let name = format!("TRAINING_{level}");
                levels.push(planned(&name, program, &name));
            }
        }
        None => {}
    }
    let mut checks: Vec<TokenStream> = only.iter().map(|planned| check(source, planned)).collect();
    let leveled = (!levels.is_empty()).then(|| leveled(source, &levels, programs)).map(|Leveled { items, check }| {
        checks.push(check);
        items
    });
    Trained { only, levels, leveled, checks, value: value(source, "TRAINING") }
}

/// Returns an expression for the compiled program of this prefix.
pub(super) fn value(source: &Source, prefix: &str) -> TokenStream {
    let compiled = format_ident!("__{prefix}");
    match &source.declaration.batch {
        Some(parameter) => quote!(__Plans::<#parameter>::#compiled),
        None => quote!(&#compiled),
    }
}
