//! Writes the types of what a network takes and returns, and the traits that say so.

use super::{Programs, Readings, batch, generics};
use crate::resolve::Declared;
use crate::settings::values::is_name;
use crate::syntax::Source;
use gpumem_core::graph::Elements;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote};

/// The associated types of `Network`.
pub(super) fn types(
    source: &Source,
    readings: &Readings<'_>,
    inputs: &[Declared],
    promised: &[Declared],
) -> TokenStream {
    let batch = batch(source, readings);
    let chunk = readings.cached().filter(|_| readings.train().is_none()).map(|cached| cached.chunk);
    let [input, output] = batches(inputs, promised, &batch, chunk);
    let target = match readings.train() {
        Some(train) if train.constant != "TRAIN" => quote!(__gpumem::NamedSteps),
        Some(train) => {
            let targets = train.loss.targets.iter();
            all(targets.map(|target| tensor(target.elements, target.shape.dims(), &batch)).collect())
        }
        None => quote!(__gpumem::NoConstTrain),
    };
    quote! {
        type Input = #input;
        type Target = #target;
        type Output = #output;
    }
}

/// Implements `Serve`, which `infer_on` loads, if `INFER` is written.
pub(super) fn served(
    source: &Source,
    readings: &Readings<'_>,
    (inputs, promised): (&[Declared], &[Declared]),
) -> Option<TokenStream> {
    let batch = served_batch(source, readings)?;
    let [input, output] = batches(inputs, promised, &batch, readings.cached().map(|cached| cached.chunk));
    let (generics, path) = generics(source);
    let generates = readings.cached().map(|_| generates(source, readings));
    Some(quote! {
        #generates
        #[automatically_derived]
        impl #generics __gpumem::__private::network::Serve for #path {
            const SERVED_HEADROOM: ::core::primitive::u64 = <#path>::INFER.headroom;
            type ServedInput = #input;
            type ServedOutput = #output;
        }
    })
}

/// Implements the traits of networks that continue sequences from a cache.
pub(super) fn generates(source: &Source, readings: &Readings<'_>) -> TokenStream {
    let (generics, path) = generics(source);
    let alone = readings.train().is_none().then(|| {
        quote! {
            #[automatically_derived]
            impl #generics __gpumem::__private::network::Generate for #path {}
        }
    });
    quote! {
        #[automatically_derived]
        impl #generics __gpumem::__private::network::Caches for #path {}
        #alone
    }
}

/// Returns the batch of `INFER` for a type. `None` if `INFER` is not written.
///
/// In a network that is generic over its batch, the batch has to be a literal or the parameter itself; otherwise this is `None` too.
pub(super) fn served_batch(source: &Source, readings: &Readings<'_>) -> Option<TokenStream> {
    source.infer.as_ref()?;
    let infer = readings.infer.as_ref()?;
    if let Some(batch) = infer.known_batch {
        return Some(Literal::u64_unsuffixed(batch).into_token_stream());
    }
    let name = &source.declaration.name;
    match (&source.declaration.batch, infer.batch.map(|field| &field.value)) {
        (None, _) => Some(quote!({ <#name>::INFER.batch })),
        (Some(parameter), Some(value)) if is_name(value, parameter) => Some(quote!(#parameter)),
        (Some(_), _) => None,
    }
}

/// Returns the types of a batch of inputs and of outputs. With `chunk`, the first axis of each has that many time steps.
pub(super) fn batches(
    inputs: &[Declared],
    promised: &[Declared],
    batch: &TokenStream,
    chunk: Option<u64>,
) -> [TokenStream; 2] {
    let dimensions = |declared: &Declared| match (chunk, declared.value().shape.dims()) {
        (Some(chunk), [_, step @ ..]) => [&[chunk], step].concat(),
        (_, whole) => whole.to_vec(),
    };
    let input = inputs.iter().map(|input| tensor(input.value().elements, &dimensions(input), batch));
    let output = promised.iter().map(|output| tensor(Elements::Numbers, &dimensions(output), batch));
    [all(input.collect()), all(output.collect())]
}

/// Returns the inputs whose flag in `is_read` is true.
pub(super) fn wired(inputs: &[Declared], is_read: &[bool]) -> Vec<Declared> {
    inputs.iter().zip(is_read).filter(|(_, is_read)| **is_read).map(|(input, _)| input.clone()).collect()
}

/// Returns the inputs of `forward`. If each step has its own inputs, they are only those that the outputs depend on.
pub(super) fn inputs_of(programs: &Programs, inputs: &[Declared]) -> Vec<Declared> {
    let blueprint = &programs.blueprint;
    match blueprint.parts.all.is_empty() {
        true => inputs.to_vec(),
        false => wired(inputs, &blueprint.inputs_before(&blueprint.outputs)),
    }
}

/// Returns the types of a batch of each input.
pub(super) fn tensors(inputs: &[Declared], batch: &TokenStream) -> Vec<TokenStream> {
    inputs.iter().map(|input| tensor(input.value().elements, input.value().shape.dims(), batch)).collect()
}

/// Joins tensor types to one type: a tuple, or the tensor itself if there is only one.
pub(super) fn all(tensors: Vec<TokenStream>) -> TokenStream {
    match tensors.as_slice() {
        [only] => only.clone(),
        several => quote!((#(#several),*)),
    }
}

pub(super) fn tensor(elements: Elements, dimensions: &[u64], batch: &TokenStream) -> TokenStream {
    let element = match elements {
        Elements::Numbers => "f32",
        Elements::Indices => "u32",
        Elements::Bytes => "u8",
    };
    let element = Ident::new(element, Span::call_site());
    let dimensions = dimensions.iter().copied().map(Literal::u64_unsuffixed);
    quote!(__gpumem::Tensor<::core::primitive::#element, (__gpumem::D<#batch>, #(__gpumem::D<#dimensions>,)*)>)
}
