//! Writes the tables and programs of a network as literals.

use super::Programs;
use super::assumed_sizes::{AssumedSizes, Guesses};
use crate::settings::ranks;
use gpumem_core::lower::{LayerLine, OwnedPaths, OwnedTables, tables};
use gpumem_core::memory::live_ranges::OwnedTransients;
use gpumem_core::memory::plan::{AddressOrders, OwnedOrder, PackedRanges};
use gpumem_core::program::Program;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::{BTreeMap, BTreeSet};

/// The names of a program's statics.
pub(super) struct Names {
    pub(super) tables: Ident,
    pub(super) program: Ident,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        let name = |suffix: &str| Ident::new(&format!("__{prefix}_{suffix}"), Span::call_site());
        Names { tables: name("TABLES"), program: name("PROGRAM") }
    }
}

/// Returns the layer table, the programs of the training step, and those of the forward pass.
pub(super) fn structure(programs: &Programs, table: &[LayerLine], guesses: &Guesses) -> TokenStream {
    let layers = layers(table);
    let OwnedPaths { text, ends } = table.iter().map(|line| &line.path).collect();
    let ends = ends.into_iter().map(Literal::u32_unsuffixed);
    let training = of_step(programs, guesses);
    let inference = statics(&Names::new("INFERENCE"), &programs.inference, (&guesses.inference, &[]), None);
    let evaluation = programs
        .evaluation
        .as_ref()
        .map(|program| statics(&Names::new("EVALUATION"), program, (&guesses.evaluation, &[]), None));
    quote! {
        #layers
        static __PATHS: __gpumem::__private::memory::tables::Paths<'static> =
            __gpumem::__private::memory::tables::Paths { text: #text, ends: &[#(#ends),*] };
        #training
        #inference
        #evaluation
    }
}

/// Returns the programs of one training step.
pub(super) fn of_step(programs: &Programs, guesses: &Guesses) -> TokenStream {
    let packed = &*programs.packed;
    let training = programs
        .training
        .as_ref()
        .map(|program| statics(&Names::new("TRAINING"), program, (&guesses.training, packed), None));
    let base = Names::new("TRAINING").tables;
    let levels = programs.levels.iter().map(|(level, program)| {
        statics(&Names::new(&format!("TRAINING_{level}")), program, (&guesses.levels, packed), Some(&base))
    });
    quote! {
        #training
        #(#levels)*
    }
}

/// Returns the layer table. Layers that differ only in their paths, as those of a repeated block do, share all other columns.
fn layers(table: &[LayerLine]) -> TokenStream {
    // The compiler evaluates a slice in place as a constant of its own. Layers have few different shapes, so each is a static that they share.
    let shapes: BTreeSet<&[u64]> = table.iter().map(|line| &*line.output_shape).collect();
    let shapes: BTreeMap<&[u64], Ident> =
        shapes.into_iter().enumerate().map(|(at, shape)| (shape, format_ident!("__SHAPE_{at}"))).collect();
    let (mut known, mut kinds) = (BTreeMap::new(), Vec::new());
    let lines: Vec<TokenStream> = table
        .iter()
        .map(|line| {
            let LayerLine { path, kind, output_shape, parameters, macs, kept } = line;
            let numbers = [*parameters, *macs];
            let index = *known.entry((kind, output_shape, numbers, kept)).or_insert_with(|| {
                let shape = &shapes[&**output_shape];
                let (numbers, kept) = (numbers.map(Literal::u64_unsuffixed), kept.map(Literal::u64_unsuffixed));
                kinds.push(quote!(__kind(#kind, &#shape, [#(#numbers),*], [#(#kept),*])));
                kinds.len() - 1
            });
            let index = Literal::usize_unsuffixed(index);
            quote!(__layer(#path, #index))
        })
        .collect();
    let shapes = shapes.iter().map(|(shape, name)| {
        let (rank, dimensions) = (shape.len(), shape.iter().copied().map(Literal::u64_unsuffixed));
        quote!(static #name: [::core::primitive::u64; #rank] = [#(#dimensions),*];)
    });
    let (layers, kind_count) = (lines.len(), kinds.len());
    quote! {
        #(#shapes)*
        const fn __kind(
            __name: &'static ::core::primitive::str,
            __shape: &'static [::core::primitive::u64],
            [__parameters, __macs]: [::core::primitive::u64; 2],
            __kept: [::core::primitive::u64; 6],
        ) -> __gpumem::__private::network::LayerInfo {
            __gpumem::__private::network::LayerInfo {
                path: "",
                kind: __name,
                output_shape: __shape,
                parameters: __parameters,
                macs: __macs,
                kept: __kept,
            }
        }
        static __KINDS: [__gpumem::__private::network::LayerInfo; #kind_count] = [#(#kinds),*];
        const fn __layer(
            __path: &'static ::core::primitive::str,
            __kind: ::core::primitive::usize,
        ) -> __gpumem::__private::network::LayerInfo {
            __gpumem::__private::network::LayerInfo { path: __path, ..__KINDS[__kind] }
        }
        static __LAYERS: [__gpumem::__private::network::LayerInfo; #layers] = [#(#lines),*];
    }
}

/// Returns the statics of a program: its tables and its encoded operations.
///
/// `packed` holds packings that are known already. With `base`, all fields that do not depend on the operations are those of another program.
fn statics(
    names: &Names,
    program: &Program,
    (guesses, packed): (&[AssumedSizes], &[PackedRanges]),
    base: Option<&Ident>,
) -> TokenStream {
    let Names { tables: own, program: name } = names;
    let tables = tables(program);
    let mut orders = AddressOrders::default();
    for &(samples, precision, workspaces) in guesses {
        let tables = tables.as_tables().with_workspaces(workspaces).of_part();
        orders.add(&tables, samples, precision, packed);
    }
    let AddressOrders { orders, below } = orders;
    let OwnedTables {
        operations,
        transients,
        parameters,
        buffers,
        batch,
        caches,
        moments,
        averages,
        holds_gradients,
        wide_sums,
        training,
        operation_tags,
        transient_tags,
        paths: _,
        micro_batches,
        ranks,
        offloads,
        parked,
        step,
    } = tables;
    let parts = micro_batches.saturating_mul(ranks.count);
    let [operations, moments, micro_batches, parts] =
        [operations, moments, micro_batches, parts].map(Literal::u64_unsuffixed);
    let ranks = ranks::tokens(ranks);
    let OwnedTransients { sizes, lives, moments: peaks, changes } = transients;
    let lives = lives.into_iter().map(Literal::u64_unsuffixed);
    let below = below.into_iter().map(Literal::u32_unsuffixed);
    // With several assumed sizes, each is unlikely to be the real one, so their offsets are left out.
    let is_known = guesses.len() == 1;
    let orders = orders.into_iter().map(|OwnedOrder { entries, size, lower_bound, offsets, bytes }| {
        let list = |numbers: Vec<u64>| {
            let numbers = numbers.into_iter().map(Literal::u64_unsuffixed);
            quote!(&[#(#numbers),*])
        };
        let [offsets, bytes] = [offsets, bytes].map(|numbers| if is_known { list(numbers) } else { quote!(&[]) });
        let (entries, [size, bound]) = (list(entries), [size, lower_bound].map(Literal::u64_unsuffixed));
        quote! {
            __gpumem::__private::memory::tables::Order {
                entries: #entries,
                size: #size,
                lower_bound: #bound,
                offsets: #offsets,
                bytes: #bytes,
            }
        }
    });
    let [parameters, buffers] = [rows(&parameters), rows(&buffers)];
    let [batch, parked] = [rows(&batch), rows(&parked)];
    let caches = rows(&caches);
    let [sizes, peaks, changes] = [rows(&sizes), rows(&peaks), rows(&changes)];
    let operation_tags = Literal::byte_string(&operation_tags);
    let transient_tags = Literal::byte_string(&transient_tags);
    let bytes = Literal::byte_string(&program.encode());
    let others = match base {
        Some(base) => quote!(..#base),
        None => quote! {
            parameters: #parameters,
            buffers: #buffers,
            batch: #batch,
            caches: #caches,
            moments: #moments,
            averages: #averages,
            holds_gradients: #holds_gradients,
            wide_sums: #wide_sums,
            training: #training,
            paths: __PATHS,
            workspaces: __gpumem::__private::memory::tables::Workspaces::UNLIMITED,
            micro_batches: #micro_batches,
            parts: #parts,
            ranks: #ranks,
            offloads: #offloads,
            step: #step,
        },
    };
    quote! {
        static #own: __gpumem::__private::memory::tables::Tables<'static> = __gpumem::__private::memory::tables::Tables {
            operations: #operations,
            transients: __gpumem::__private::memory::tables::Transients {
                sizes: #sizes,
                lives: &[#(#lives),*],
                moments: #peaks,
                changes: #changes,
                orders: &[#(#orders),*],
                below: &[#(#below),*],
            },
            operation_tags: #operation_tags,
            transient_tags: #transient_tags,
            parked: #parked,
            #others
        };
        static #name: &[::core::primitive::u8] = #bytes;
    }
}

/// Returns rows of numbers as a slice: `&[[0, 1], [2, 3]]`.
fn rows<Number: Copy + Into<i128>, const N: usize>(rows: &[[Number; N]]) -> TokenStream {
    let rows = rows.iter().map(|row| {
        let numbers = row.iter().map(|&number| Literal::i128_unsuffixed(number.into()));
        quote!([#(#numbers),*])
    });
    quote!(&[#(#rows),*])
}
