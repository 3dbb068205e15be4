//! Writes `typenum` assertions: one for each distinct edge of the graph, and one for each number in the network's types.
//!
//! Those of edges are statements of one constant: each constant of its own would cost the compiler more than the arithmetic of most edges.

use super::Readings;
use crate::resolve::{Declared, Resolved};
use gpumem_core::program::op::Edge;
use gpumem_core::shape::Shape;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::{BTreeSet, HashSet};

/// The numbers that need a `typenum` alias.
#[derive(Default)]
struct Numbers(BTreeSet<u64>);

impl Numbers {
    fn name(&mut self, number: u64) -> Ident {
        self.0.insert(number);
        format_ident!("__N{}", number)
    }

    fn shape(&mut self, shape: Shape) -> TokenStream {
        let dimensions = shape.dims().iter().map(|&dimension| self.name(dimension));
        quote!((#(#dimensions,)*))
    }

    /// Returns the aliases, as `type __N6 = UInt<UInt<UInt<UTerm, B1>, B1>, B0>;`.
    fn aliases(&self) -> TokenStream {
        let alias = |&number: &u64| {
            let name = format_ident!("__N{}", number);
            let mut binary = quote!(__typed::UTerm);
            for bit in (0..u64::BITS - number.leading_zeros()).rev() {
                let bit = if number >> bit & 1 == 1 { quote!(B1) } else { quote!(B0) };
                binary = quote!(__typed::UInt<#binary, __typed::#bit>);
            }
            quote!(type #name = #binary;)
        };
        self.0.iter().map(alias).collect()
    }
}

pub(super) fn proofs(
    resolved: &Resolved,
    readings: &Readings<'_>,
    (inputs, promised): (&[Declared], &[Declared]),
) -> TokenStream {
    let mut numbers = Numbers::default();
    let edges = edges(resolved, &mut numbers);
    let dimensions = dimensions(readings, inputs.iter().chain(promised), &mut numbers);
    let aliases = numbers.aliases();
    quote! {
        #[allow(non_camel_case_types, dead_code)]
        const _: () = {
            use __gpumem::__private::typed as __typed;
            // A type of this network alone, so that implementations for it do not collide with those of other networks.
            struct __Net;
            #aliases
            #edges
            #dimensions
        };
    }
}

fn edges(resolved: &Resolved, numbers: &mut Numbers) -> TokenStream {
    let mut known: HashSet<Edge> = HashSet::new();
    let mut tokens = TokenStream::new();
    for (_, edge) in resolved.graph.edges() {
        if known.contains(&edge) {
            continue;
        }
        let rule = Ident::new(edge.rule, Span::call_site());
        let arguments: Vec<Ident> = edge.arguments.iter().map(|&number| numbers.name(number)).collect();
        let arguments = (!arguments.is_empty()).then(|| quote!(<#(#arguments),*>));
        let shapes: Vec<TokenStream> = edge.inputs.iter().map(|&input| numbers.shape(input)).collect();
        let input = match shapes.as_slice() {
            [only] => only.clone(),
            several => quote!((#(#several),*)),
        };
        let output = numbers.shape(edge.output);
        tokens.extend(quote! {
            __typed::assert_edge::<__typed::#rule #arguments, #input, #output>();
        });
        known.insert(edge);
    }
    quote!(const _: () = { #tokens };)
}

/// Ties `D<224>` to its `typenum` alias, for each number in the network's types.
fn dimensions<'d>(
    readings: &Readings<'_>,
    types: impl Iterator<Item = &'d Declared>,
    numbers: &mut Numbers,
) -> TokenStream {
    let mut distinct: BTreeSet<u64> = types.flat_map(|declared| declared.dimensions.iter().copied()).collect();
    let targets = readings.trains.iter().flat_map(|train| &train.loss.targets);
    distinct.extend(targets.flat_map(|target| target.shape.dims().iter().copied()));
    let batches = readings.primary().into_iter().chain(&readings.trains).filter(|reading| reading.batch.is_some());
    distinct.extend(batches.filter_map(|reading| reading.known_batch));
    let each = distinct.into_iter().map(|number| {
        let typed = numbers.name(number);
        let number = Literal::u64_unsuffixed(number);
        quote! {
            #[doc(hidden)]
            impl __typed::TypenumOf<__Net> for __typed::D<#number> {
                type Number = #typed;
            }
            const _: () = __typed::assert_dimension::<__Net, #number>();
        }
    });
    each.collect()
}
