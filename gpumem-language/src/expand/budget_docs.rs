//! Writes the budget into a network's documentation. It is planned only when documentation is built.
//!
//! The struct has `#[cfg_attr(doc, doc = gpumem::__needs!(..))]`, so only rustdoc calls this macro.

use super::target_cards;
use super::{Programs, Readings};
use crate::settings::reading::Reading;
use crate::syntax::{Facade, Source};
use gpumem_core::Precision;
use gpumem_core::cards::{Card, UNKNOWN_RESERVE, find};
use gpumem_core::lower::tables;
use gpumem_core::memory::budget::pack_at;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::program::Program;
use gpumem_core::report::{needs, split};
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{LitByteStr, LitInt, LitStr, Token};

/// Returns the attribute of the struct. `None` unless every size of the plan is a literal.
pub(super) fn attribute(source: &Source, readings: &Readings<'_>, programs: &Programs) -> Option<TokenStream> {
    if source.declaration.batch.is_some() {
        return None;
    }
    // The largest of several steps is known only after all are planned.
    if readings.trains.len() > 1 {
        return None;
    }
    let without = Reading::new("INFER");
    let reading = readings.primary().unwrap_or(&without);
    let (batch, headroom, workspace) = (reading.known_batch?, reading.headroom?, reading.conv_workspace?);
    let cards = reading.cards.iter().map(|card| card.slug);
    let program = match programs.levels.last() {
        // Const evaluation takes one of several levels. The macro knows which one only if all sizes are literals.
        Some((_, level)) => target_cards::known(readings).map(|_| level)?,
        None => programs.training.as_ref().unwrap_or(&programs.inference),
    };
    let program = Literal::byte_string(&program.encode());
    let number = Precision::ALL.iter().position(|known| *known == reading.precision)?;
    let [batch, headroom, workspace] = [batch, headroom, workspace].map(Literal::u64_unsuffixed);
    let number = Literal::usize_unsuffixed(number);
    let Facade(facade) = &source.facade;
    Some(quote! {
        #[cfg_attr(doc, doc = #facade::__needs!(#program, #batch, #number, #headroom, #workspace, #(#cards),*))]
    })
}

/// The arguments of `__needs!`.
struct Asked {
    program: LitByteStr,
    /// Batch, index of the precision in `Precision::ALL`, headroom and scratch limit of convolutions. The last two are in bytes.
    numbers: [u64; 4],
    cards: Vec<String>,
}

impl Parse for Asked {
    fn parse(input: ParseStream<'_>) -> syn::Result<Asked> {
        let program = input.parse()?;
        let mut numbers = [0; 4];
        for number in &mut numbers {
            input.parse::<Token![,]>()?;
            *number = input.parse::<LitInt>()?.base10_parse()?;
        }
        input.parse::<Token![,]>()?;
        let cards: Punctuated<LitStr, Token![,]> = Punctuated::parse_terminated(input)?;
        Ok(Asked { program, numbers, cards: cards.iter().map(LitStr::value).collect() })
    }
}

/// Returns Markdown for the struct's page. It is empty if the network cannot be planned; the compiler reports that.
pub(crate) fn documentation(tokens: TokenStream) -> TokenStream {
    let text = syn::parse2(tokens).ok().and_then(|asked| text(&asked)).unwrap_or_default();
    quote!(#text)
}

fn text(asked: &Asked) -> Option<String> {
    let [batch, precision, headroom, workspace] = asked.numbers;
    let precision = *Precision::ALL.get(usize::try_from(precision).ok()?)?;
    let program = Program::decode(&asked.program.value())?;
    let cards: Vec<Card> = asked.cards.iter().filter_map(|slug| find(slug)).copied().collect();
    let tables = tables(&program);
    let tables = tables.as_tables().for_cards(&TargetCards::at(&cards), workspace);
    let (budget, _) = pack_at(&tables, batch, precision).ok()?;
    let ranks = tables.ranks;
    let budget = budget.with_reserve(cards.first().map_or(UNKNOWN_RESERVE, Card::reserve));
    let budget = budget.with_communication(ranks.communication(cards.first()));
    let doing = if program.training { "Training" } else { "Inference" };
    let needs = needs(&tables, precision, &budget, headroom, &cards);
    let parts = split(&tables);
    Some(format!("\n# Memory\n\n{doing}, batch {batch}{parts}, {}:\n\n```text\n{needs}```\n", precision.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_in_the_documentation() {
        let network = "pub struct Net;
            const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060, T4] };
            fn forward(x: Features<64>) -> Logits<10> { [Linear(32), Relu, Linear(10)] }";
        let expanded = crate::network(network.parse().unwrap()).to_string();
        let (_, call) = expanded.split_once("__needs !").unwrap();
        let inside = call.trim_start().trim_start_matches('(').split_once("))").unwrap().0;
        let said: LitStr = syn::parse2(documentation(inside.parse().unwrap())).unwrap();
        insta::assert_snapshot!(said.value());
    }

    /// With recomputation, the budget is that of the step that runs. It is absent if only const evaluation can choose that step.
    #[test]
    fn the_budget_is_that_of_the_step_that_runs() {
        let said = |settings: &str| {
            let network = format!(
                "pub struct Net;
                const TRAIN: Train = Train {{ batch: 64, optimizer: Sgd {{ lr: 0.1 }}, loss: CrossEntropy, {settings} }};
                fn forward(x: Features<64>) -> Logits<10> {{
                    [repeat(4, [Linear(64), Relu, LayerNorm]), Linear(10)]
                }}"
            );
            let expanded = crate::network(network.parse().unwrap()).to_string();
            let (_, call) = expanded.split_once("__needs !")?;
            let inside = call.trim_start().trim_start_matches('(').split_once("))")?.0.to_string();
            let said: LitStr = syn::parse2(documentation(inside.parse().unwrap())).unwrap();
            let line = said.value().lines().find(|line| line.starts_with("activations")).map(String::from);
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
        };
        let checkpoint = |word: &str| said(&format!("cards: [T4], checkpoint: {word}"));
        let (plain, keeping) = (said("cards: [T4]").unwrap(), checkpoint("None").unwrap());
        assert!(plain < keeping, "{plain} of {keeping}");
        let share = checkpoint("Budget(0.7)").unwrap();
        assert!(share <= 0.7 * keeping, "{share} of {keeping}");
        // It fits, so that all is kept.
        assert_eq!(checkpoint("Auto"), Some(keeping));
        assert_eq!(said("cards: OURS, checkpoint: Budget(0.7)"), None);
    }
}
