//! `fits!(Vgg16<64>);`: checks one instantiation of a network that is generic over its batch.

use crate::expand::{section, written_at};
use proc_macro2::{Group, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

pub(crate) fn fits(tokens: TokenStream) -> TokenStream {
    let path: syn::Type = match syn::parse2(tokens) {
        Ok(path) => path,
        Err(error) => return error.to_compile_error(),
    };
    let place = crate::syntax::Place::of(&path);
    let path = path.into_token_stream();
    let network = quote_spanned!(place.start=> <#path as ::gpumem::Network>);
    let mut checked = quote!(#network::CHECKED);
    // A block keeps the expression's span to the argument.
    let mut group = Group::new(proc_macro2::Delimiter::Brace, std::mem::take(&mut checked));
    group.set_span(place.end);
    let checked = TokenTree::from(group);
    let (file, line) = written_at(place.start);
    let record = section(
        &quote! {
            ::gpumem::__private::memory::record::Declared {
                name: #network::NAME,
                place: (#file, #line),
                is_generic: false,
                train: #network::TRAIN.as_ref(),
                infer: ::core::option::Option::None,
                training: #network::TRAINING,
                inference: ::core::option::Option::Some(#network::INFERENCE),
            }
        },
        &[],
    );
    quote! {
        const _: () = {
            #[allow(unused_braces)]
            const _: () = #checked;
            #record
        };
    }
}
