//! The budget in a network's documentation: planned where documentation is built, and nowhere else.
//!
//! The struct has `#[cfg_attr(doc, doc = gpumem::__needs!(..))]`, so that this macro is called by rustdoc alone.

use super::{Programs, Readings};
use crate::syntax::{Facade, Field, Settings, Source};
use crate::train::literal;
use gpumem_core::Precision;
use gpumem_core::cards::{Card, UNKNOWN_RESERVE, find};
use gpumem_core::lower::tables;
use gpumem_core::memory::budget::pack_at;
use gpumem_core::memory::refusal::Aim;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::Program;
use gpumem_core::report::needs;
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprCall, ExprLit, Lit, LitByteStr, LitInt, LitStr, Token};

/// The attribute, where every number of the plan is a literal.
pub(super) fn attribute(source: &Source, readings: &Readings<'_>, programs: &Programs) -> Option<TokenStream> {
    if source.declaration.batch.is_some() {
        return None;
    }
    let (settings, reading) = match (&readings.train, &readings.infer) {
        (Some(train), _) => (source.train.as_ref(), Some(train)),
        (None, infer) => (source.infer.as_ref(), infer.as_ref()),
    };
    let batch = match reading.and_then(|reading| reading.batch) {
        Some(Field { value, .. }) => literal(value)?,
        None => 1,
    };
    let precision = reading.map_or(Precision::F32, |reading| reading.precision);
    let bytes = |name: &str, default: u64| match settings.and_then(|settings| field(settings, name)) {
        Some(value) => size(value),
        None => Some(default),
    };
    let (headroom, workspace) =
        (bytes("headroom", 0)?, bytes("conv_workspace", gpumem_core::Train::DEFAULT.conv_workspace)?);
    let cards = cards(settings);
    let program = programs.training.as_ref().unwrap_or(&programs.inference);
    let program = Literal::byte_string(&program.encode());
    let number = Precision::ALL.iter().position(|known| *known == precision)?;
    let [batch, headroom, workspace] = [batch, headroom, workspace].map(Literal::u64_unsuffixed);
    let number = Literal::usize_unsuffixed(number);
    let Facade(facade) = &source.facade;
    Some(quote! {
        #[cfg_attr(doc, doc = #facade::__needs!(#program, #batch, #number, #headroom, #workspace, #(#cards),*))]
    })
}

fn field<'s>(settings: &'s Settings, name: &str) -> Option<&'s Expr> {
    settings.fields.iter().find(|field| field.name == name).map(|field| &field.value)
}

/// Bytes that are written as `256 << 20` or otherwise are not known here; those of `mib(256)` and `gib(1.5)` are.
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

/// The cards of `cards:`, by their slugs.
fn cards(settings: Option<&Settings>) -> Vec<&'static str> {
    let Some(Expr::Array(list)) = settings.and_then(|settings| field(settings, "cards")) else { return Vec::new() };
    let name = |card: &Expr| match card {
        Expr::Path(path) => find(&path.path.segments.last()?.ident.to_string()).map(|card| card.slug),
        _ => None,
    };
    list.elems.iter().filter_map(name).collect()
}

/// What `__needs!` is given.
struct Asked {
    program: LitByteStr,
    /// Batch, number of the precision, headroom, workspace of convolutions.
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

/// Markdown for the struct's page; nothing where the network cannot be planned, which the compiler says.
pub(crate) fn documentation(tokens: TokenStream) -> TokenStream {
    let text = syn::parse2(tokens).ok().and_then(|asked| text(&asked)).unwrap_or_default();
    quote!(#text)
}

fn text(asked: &Asked) -> Option<String> {
    let [batch, precision, headroom, workspace] = asked.numbers;
    let precision = *Precision::ALL.get(usize::try_from(precision).ok()?)?;
    let program = Program::decode(&asked.program.value())?;
    let cards: Vec<Card> = asked.cards.iter().filter_map(|slug| find(slug)).copied().collect();
    // Until the process ends: elsewhere tables are statics.
    let tables = tables(&program).leak().with_workspaces(Workspaces::aimed(&Aim::at(&cards), workspace));
    let (budget, _) = pack_at(&tables, batch, precision).ok()?;
    let budget = budget.with_reserve(cards.first().map_or(UNKNOWN_RESERVE, Card::reserve));
    let doing = if program.training { "Training" } else { "Inference" };
    let needs = needs(&tables, precision, &budget, headroom, &cards);
    Some(format!("\n# Memory\n\n{doing}, batch {batch}, {}:\n\n```text\n{needs}```\n", precision.name()))
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

    #[test]
    fn the_budget_is_in_the_documentation() {
        let network = "pub struct Net;
            const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060, T4] };
            fn forward(x: Features<64>) -> Logits<10> { [Linear(32), Relu, Linear(10)] }";
        let expanded = crate::compile(network.parse().unwrap()).to_string();
        let (_, call) = expanded.split_once("__needs !").unwrap();
        let inside = call.trim_start().trim_start_matches('(').split_once("))").unwrap().0;
        let said: LitStr = syn::parse2(documentation(inside.parse().unwrap())).unwrap();
        insta::assert_snapshot!(said.value());
    }
}
