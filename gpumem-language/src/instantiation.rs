//! The macros that check if networks fit cards.
//!
//! `fits!(Vgg16<64>);` checks one instantiation of a network that is generic over its batch.
//! `fits!(Generator + Critic, RTX_3060);` checks that networks fit a card at once.
//! `max_batch!(Vgg16, RTX_3060)` is the largest batch that fits.

use crate::errors::Errors;
use crate::expand::{called_at, column, section, written_at};
use crate::settings::cards::cards_of;
use crate::syntax::{Facade, Place};
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, Token, Type};

/// The arguments of these macros: networks, then cards.
struct Asked {
    facade: Facade,
    networks: Punctuated<Type, Token![+]>,
    cards: Punctuated<Expr, Token![,]>,
}

impl Parse for Asked {
    fn parse(input: ParseStream<'_>) -> syn::Result<Asked> {
        let facade = crate::parse::facade(input)?;
        if facade.is_some() {
            input.parse::<Token![;]>()?;
        }
        let facade = facade.unwrap_or_default();
        let mut networks = Punctuated::new();
        loop {
            networks.push_value(input.call(Type::without_plus)?);
            if !input.peek(Token![+]) {
                break;
            }
            networks.push_punct(input.parse()?);
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        Ok(Asked { facade, networks, cards: Punctuated::parse_terminated(input)? })
    }
}

pub(crate) fn fits(tokens: TokenStream) -> TokenStream {
    let asked: Asked = match syn::parse2(tokens) {
        Ok(asked) => asked,
        Err(error) => {
            let message = "`fits!` takes networks and the cards that they must fit, as `fits!(Vgg16<64>);` or \
                           `fits!(Generator + Critic, RTX_3060, T4);`";
            return syn::Error::new(error.span(), message).to_compile_error();
        }
    };
    let mut errors = Errors::default();
    let cards = cards_of(&asked.cards, &mut errors);
    let (mistakes, last) = errors.into_tokens();
    let place = Place::of(&asked.networks);
    let networks = asked.networks.iter().map(|network| {
        let Place { start, .. } = Place::of(network);
        let path = network.to_token_stream();
        (quote_spanned!(start=> <#path as __gpumem::Network>), start)
    });
    let networks: Vec<_> = networks.collect();
    let checked = match networks.as_slice() {
        [(network, _)] if asked.cards.is_empty() => in_braces(quote!(#network::CHECKED), place),
        _ => {
            together(&networks.iter().map(|(network, _)| network.clone()).collect::<Vec<_>>(), (&asked, &cards), place)
        }
    };
    let import = asked.facade.import();
    let is_plain = networks.len() == 1 && asked.cards.is_empty();
    let records = networks.iter().enumerate().map(|(index, (network, start))| {
        let fits = (!is_plain).then(|| asked_with(index, networks.len(), place.start, &cards));
        record(network, written_at(*start), fits)
    });
    quote! {
        #mistakes
        #last
        const _: () = {
            #import
            #[allow(unused_braces)]
            const _: () = #checked;
            #(const _: () = { #records };)*
        };
    }
}

/// Wraps an expression in braces that end at `place`. A block keeps the span of an expression up to its argument.
fn in_braces(expression: TokenStream, place: Place) -> TokenStream {
    let mut group = Group::new(proc_macro2::Delimiter::Brace, expression);
    group.set_span(place.end);
    TokenTree::from(group).into()
}

/// Returns the check that networks fit at once on the cards that are named, or on those of Cargo features and variables.
fn together(networks: &[TokenStream], (asked, cards): (&Asked, &TokenStream), place: Place) -> TokenStream {
    let target_cards = target_cards(asked, cards);
    let Place { start, end } = place;
    let first = &networks[0];
    let arguments = quote! {
        &[#((#networks::NAME, #networks::BUDGET.get(__gpumem::__private::memory::budget::Line::Arena))),*],
        &__gpumem::__private::memory::target_cards::TargetCards {
            headroom: __gpumem::__private::memory::refusal::largest(&[#(#networks::HEADROOM),*]),
            ranks: #first::PROGRAM.tables.ranks,
            #target_cards
        }
    };
    called_at(quote!(__gpumem::__private::memory::refusal::check_together), arguments, Place { start, end })
}

/// Returns the fields of `TargetCards` for the cards that are named, or for those of Cargo features and variables.
fn target_cards(asked: &Asked, cards: &TokenStream) -> TokenStream {
    if asked.cards.is_empty() {
        return quote! { cards: &[], selected: __gpumem::SELECTED, environment: __gpumem::__environment!() };
    }
    // Cards that are named replace those of features and variables.
    quote! {
        cards: #cards,
        selected: &[],
        environment: __gpumem::__private::memory::target_cards::Environment {
            cards: ::core::option::Option::None,
            vram: ::core::option::Option::None,
            ..__gpumem::__environment!()
        }
    }
}

/// Expands `max_batch!(Vgg16, RTX_3060)`.
pub(crate) fn max_batch(tokens: TokenStream) -> TokenStream {
    let taken = "`max_batch!` takes a network and the cards that it must fit, as `max_batch!(Vgg16, RTX_3060)`";
    let asked: Asked = match syn::parse2(tokens) {
        Ok(asked) => asked,
        Err(error) => return syn::Error::new(error.span(), taken).to_compile_error(),
    };
    if asked.networks.len() > 1 {
        return syn::Error::new(Place::of(&asked.networks).start, taken).to_compile_error();
    }
    let mut errors = Errors::default();
    let cards = cards_of(&asked.cards, &mut errors);
    if !errors.is_empty() {
        let (mistakes, last) = errors.into_tokens();
        return quote!({ #mistakes #last 1 });
    }
    let place = Place::of(&asked.networks);
    let path = asked.networks.to_token_stream();
    let start = place.start;
    let network = quote_spanned!(start=> <#path as __gpumem::Network>);
    let (target_cards, import) = (target_cards(&asked, &cards), asked.facade.import());
    let arguments = quote! {
        &#network::PROGRAM.tables.for_cards(
            &__AIM,
            match #network::TRAINED {
                ::core::option::Option::Some(__train) => __train.conv_workspace,
                ::core::option::Option::None => __gpumem::__private::Train::DEFAULT.conv_workspace,
            },
        ),
        #network::PROGRAM.precision,
        &__AIM
    };
    let batch =
        called_at(quote!(__gpumem::__private::memory::refusal::largest_fitting::<{ __TRANSIENTS }>), arguments, place);
    quote! {{
        #import
        const __TRANSIENTS: ::core::primitive::usize = #network::PLAN.len();
        const __AIM: __gpumem::__private::memory::target_cards::TargetCards<'_> =
            __gpumem::__private::memory::target_cards::TargetCards {
                headroom: #network::HEADROOM,
                ranks: #network::PROGRAM.tables.ranks,
                #target_cards
            };
        #[allow(long_running_const_eval)]
        const __BATCH: ::core::primitive::usize = #batch as ::core::primitive::usize;
        __BATCH
    }}
}

/// Returns an expression that identifies a network within a `fits!`: the place of the macro, the network's index, and the cards.
fn asked_with(index: usize, count: usize, start: Span, cards: &TokenStream) -> TokenStream {
    let (line, column) = (written_at(start).1, column(start));
    let [index, count] = [index, count].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    quote! {
        __gpumem::__private::memory::record::Fits {
            place: [#line, #column],
            index: #index,
            count: #count,
            cards: #cards,
        }
    }
}

fn record(network: &TokenStream, (file, line): (String, u32), fits: Option<TokenStream>) -> TokenStream {
    let fits = match fits {
        Some(fits) => quote!(::core::option::Option::Some(#fits)),
        None => quote!(::core::option::Option::None),
    };
    let declared = quote! {
        __gpumem::__private::memory::record::Declared {
            name: #network::NAME,
            place: (#file, #line),
            is_generic: false,
            of: ::core::option::Option::Some(#network::PLACE),
            fits: #fits,
            selected: __gpumem::SELECTED,
            train: #network::TRAINED.as_ref(),
            infer: ::core::option::Option::None,
            training: #network::TRAINING,
            inference: ::core::option::Option::Some(#network::INFERENCE),
        }
    };
    section(&declared, &[])
}
