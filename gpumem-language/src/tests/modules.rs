//! Modules of blocks: how they reach a network, what their names mean there, and where mistakes are shown.

use super::{assert_mistakes, forward, mistakes_with, sound};
use crate::modules::cross_crate_blocks;
use crate::modules::declare::declare;
use crate::syntax::Facade;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};

const RESNET: &str = "
    const EXPANSION: usize = 4;
    /// Reduces and expands.
    fn bottleneck(width: usize) -> Block { [Add([], [conv(width, 1), conv(EXPANSION * width, 1)]), Relu] }
    fn conv(channels: usize, size: usize) -> Block { [Conv2d(channels, size), BatchNorm2d] }
";

/// Asserts the mistakes of a network whose `use blocks` bring these modules, in their order.
#[track_caller]
fn assert_mistakes_with(text: &str, modules: &[&str], expected: &[(&str, &str)]) {
    let mut found = mistakes_with(text, modules);
    for (_, message) in &mut found {
        // The file of a text is its number among those of this thread.
        if let (Some(start), Some(end)) = (message.find("<parsed string"), message.find('>')) {
            message.replace_range(start..=end, "<module>");
        }
    }
    let found: Vec<(&str, &str)> = found.iter().map(|(place, message)| (place.as_str(), message.as_str())).collect();
    assert_eq!(found, expected, "\n{found:#?}");
}

/// The inside of the module `name`, and its documentation.
fn declared(name: &str, tokens: &str) -> (String, TokenStream) {
    declare(&Ident::new(name, Span::call_site()), tokens.parse().expect("balanced tokens"))
}

/// The mistakes of a module of blocks by itself.
#[track_caller]
fn assert_declaration(tokens: &str, expected: &[&str]) {
    let (_, inside) = declared("m", tokens);
    let file: syn::File = syn::parse2(inside).expect("items");
    let said = file.items.iter().filter_map(|item| match item {
        syn::Item::Macro(item) if item.mac.path.segments.last()?.ident == "compile_error" => {
            Some(syn::parse2::<syn::LitStr>(item.mac.tokens.clone()).expect("a text").value())
        }
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), expected);
}

/// What the hidden macro in the inside of a module makes of the tokens that it is called with.
fn call_hidden(inside: &TokenStream, arguments: TokenStream) -> TokenStream {
    let file: syn::File = syn::parse2(inside.clone()).expect("items");
    let rule = file.items.iter().find_map(|item| match item {
        syn::Item::Macro(item) if item.ident.is_some() => item.mac.tokens.clone().into_iter().nth(3),
        _ => None,
    });
    let Some(TokenTree::Group(body)) = rule else { panic!("{inside}") };
    let Some(TokenTree::Group(braces)) = body.stream().into_iter().last() else { panic!("{body}") };
    let module = braces.stream().into_iter().last();
    let mut arguments = arguments.into_iter();
    let callback = arguments.next();
    quote::quote!(#callback #(#arguments)* #module)
}

#[test]
fn a_network_fetches_one_module_after_the_other() {
    let text = forward("Image<16, 4, 4>", "Map<16, 4, 4>", "[bottleneck(4), r::conv(16, 1), two(16)]", "");
    let text =
        text.replace("fn forward", "use blocks zoo::{resnet as r, self as z}; #[blocks] use ::zoo::{mine}; fn forward");
    let modules = [
        (":: zoo :: mine", "fn two(n: usize) -> Block { [] }"),
        ("zoo :: resnet", RESNET),
        ("zoo", "fn two_of_them() -> Block { [] }"),
    ];
    let mut tokens: TokenStream = text.parse().expect("balanced tokens");
    for _ in 0..3 {
        let call: syn::Macro = syn::parse2(crate::network(tokens)).expect("a call of a hidden macro");
        let path = quote::ToTokens::to_token_stream(&call.path).to_string();
        let path = path.strip_suffix(" :: __declared_with_blocks").expect("the hidden name");
        let (_, text) = modules.iter().find(|(known, _)| *known == path).unwrap_or_else(|| panic!("{path}"));
        let called = call_hidden(&declared("m", text).1, call.tokens);
        let mut trees = called.into_iter();
        assert_eq!(trees.next().expect("a callback").to_string(), "[:: gpumem :: network]");
        tokens = trees.collect();
    }
    let expanded = crate::network(tokens).to_string();
    assert!(expanded.contains("impl __gpumem :: Network for Net"), "{expanded}");
    assert!(!expanded.contains("compile_error"), "{expanded}");
}

#[test]
fn a_module_hands_on_the_modules_that_it_uses() {
    let (_, on_the_way) =
        declared("outer", "use blocks super::inner; fn out(n: usize) -> Block { [inner::linear(n)] }");
    let call: syn::Macro = syn::parse2(on_the_way).expect("a call of a hidden macro");
    let called = call_hidden(&declared("inner", "fn linear(n: usize) -> Block { [Linear(n)] }").1, call.tokens);
    let mut trees = called.into_iter();
    assert_eq!(trees.next().expect("a callback").to_string(), "[:: gpumem :: blocks]");
    let Ok(gathered) = cross_crate_blocks::arrive("blocks", trees.collect()) else { panic!("paths are left") };
    let inside = crate::modules::declare::arrived(gathered.tokens, &gathered.modules);
    let handed: Vec<TokenTree> = call_hidden(&inside, "network".parse().expect("a name")).into_iter().collect();
    let text = forward("Features<2>", "Features<3>", "[out(3)]", "use blocks outer;");
    let modules: Vec<TokenStream> = handed
        .into_iter()
        .filter_map(|tree| match tree {
            TokenTree::Group(group) => Some(group.stream()),
            _ => None,
        })
        .collect();
    let mut errors = crate::errors::Errors::default();
    let source = crate::parse::source(text.parse().expect("balanced tokens"), &modules, &mut errors).expect("a struct");
    let resolved = crate::resolve::resolve(&source, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(resolved.graph.rows[0].path, "out.linear.linear");
}

#[test]
fn names_of_imported_blocks() {
    let network = |body: &str, items: &str| forward("Image<16, 4, 4>", "Map<16, 4, 4>", body, items);
    let both = "use blocks a::resnet; use blocks b::{mobile};";
    let mobile = "fn bottleneck(n: usize) -> Block { [Conv2d(n, 1)] } fn narrow() -> Block { [] }";
    let modules = [RESNET, mobile];
    assert_mistakes_with(&network("[resnet::bottleneck(4), mobile::bottleneck(16), narrow]", both), &modules, &[]);
    assert_mistakes_with(
        &network("[bottleneck(4), mobile::botleneck(16), mobil::narrow, wide::x, resnet::x, mobile::narow]", both),
        &modules,
        &[
            (
                "bottleneck(4)",
                "`bottleneck` is a block of `resnet` and of `mobile`; write `resnet::bottleneck` or `mobile::bottleneck`",
            ),
            ("botleneck", "`mobile` has no block `botleneck`; did you mean `bottleneck`?"),
            ("mobil", "no module of blocks is imported as `mobil`; did you mean `mobile`?"),
            (
                "wide",
                "no module of blocks is imported as `wide`; import it beside the blocks that call it, as `use blocks \
                 path::to::wide;`",
            ),
            ("x", "`resnet` has no block `x`; it has `bottleneck`, `conv`"),
            ("narow", "`mobile` has no block `narow`; did you mean `narrow`?"),
        ],
    );
    // A block of the network is what its own name means, and constants stay where they are.
    let own = "use blocks a::resnet; const EXPANSION: usize = 2; fn conv(n: usize) -> Block { [Conv2d(n, 1)] }";
    assert_mistakes_with(&network("[conv(8), bottleneck(2), resnet::conv(16, 1)]", own), &[RESNET], &[]);
    assert_mistakes_with(
        &network(
            "[botleneck(4), resnet::bottleneck(4, 4), Conv2d(resnet::conv(3, 1), 1), conv(16, 1)]",
            "use blocks a::resnet;",
        ),
        &[RESNET],
        &[
            ("botleneck", "no layer or block is called `botleneck`; did you mean `bottleneck`?"),
            (
                "resnet::bottleneck(4, 4)",
                "block `bottleneck` takes (width: usize), but `resnet::bottleneck(4, 4)` is given",
            ),
            (
                "resnet::conv(3, 1)",
                "expected a value, found `resnet::conv(3, 1)`; values are literals, parameters, constants of the network \
                 and operators between them",
            ),
        ],
    );
    assert_mistakes(
        &network("[Conv2d(config::WIDTH, 1)]", ""),
        &[(
            "config::WIDTH",
            "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the network",
        )],
    );
}

/// A mistake in a block of another module is shown at the network's own call, however deep it is.
#[test]
fn mistakes_of_imported_blocks() {
    let module = "const SIZE: usize = 9 * ONE; const ONE: usize = 1 - 1 * OFF; const OFF: usize = 0;
        fn outer(b: Block) -> Block { [inner(SIZE), b] }
        fn inner(size: usize) -> Block { [Conv2d(4, size)] }
        fn below(n: usize) -> Block { [Conv2d(n - 5, 1)] }
        fn endless(n: usize) -> Block { [endless(n)] }";
    let text =
        forward("Image<3, 8, 8>", "Map<4, 8, 8>", "[Add(m::outer([Relu(inplce)]), []), below(4)]", "use blocks m;");
    let origin = "<module>";
    assert_mistakes_with(
        &text,
        &[module],
        &[
            (
                "m::outer([Relu(inplce)])",
                &format!(
                    "layer 0 `Conv2d` has a 9x9 kernel, which is larger than its 8x8 input; use a smaller kernel, more \
             padding, or fewer strides before it (in `inner(9)`, at {origin}:3:43)"
                ),
            ),
            ("inplce", "layer 1 `Relu` has no option `inplce`; did you mean `inplace`?"),
            ("below(4)", &format!("`4 - 5` is below 0, which no `usize` can be (in `below(4)`, at {origin}:4:47)")),
        ],
    );
    let text = forward("Image<3, 8, 8>", "Map<4, 8, 8>", "[endless(4)]", "use blocks m;");
    let (place, message) = &mistakes_with(&text, &[module])[0];
    assert_eq!(place, "endless(4)");
    assert!(message.starts_with("recursion without end: `endless` is called 128 calls deep"), "{message}");
}

#[test]
fn imports() {
    for (import, underlined, said) in [
        (
            "use blocks zoo::*;",
            "*",
            "`use blocks` names modules, not what is in them; write the module's path without `::*`",
        ),
        (
            "pub use blocks zoo::a;",
            "pub",
            "an import of blocks is seen by the blocks beside it only; remove the visibility",
        ),
        ("#[cfg(test)] use blocks zoo::a;", "#[cfg(test)]", "an import of blocks has no attributes; remove this one"),
        ("#[blocks(x)] use zoo::a;", "#[blocks(x)]", "an import of blocks has no attributes; remove this one"),
        ("use blocks {zoo::a, b as a};", "a", "`a` is imported twice; rename one, as `use blocks path::a as other;`"),
        (
            "use blocks zoo::{self};",
            "self",
            "`self` is no name that blocks can be called by; name the module with `as`",
        ),
    ] {
        let text = forward("Features<4>", "Features<4>", "[Linear(4)]", import);
        assert_mistakes_with(&text, &["", ""], &[(underlined, said)]);
    }
    // These are Rust's.
    for import in ["use blocks::zoo;", "use blocks as other;", "use blocks;"] {
        sound(&forward("Features<4>", "Features<4>", "[Linear(4)]", import));
    }
    // A module with mistakes hands none of its blocks on.
    let text = forward("Features<4>", "Features<4>", "[m::f(4)]", "use blocks m;");
    let mut errors = crate::errors::Errors::default();
    let broken = [quote::quote!(!)];
    assert!(crate::parse::source(text.parse().expect("balanced tokens"), &broken, &mut errors).is_some());
    let said: Vec<&str> = errors.list().iter().map(|error| error.message.as_str()).collect();
    assert_eq!(said, ["the blocks of `m` have mistakes, which are shown where they are declared"]);
}

#[test]
fn mistakes_that_need_no_call() {
    assert_declaration(RESNET, &[]);
    // Which channels and which width arrive, a call says.
    assert_declaration(
        "fn f(n: usize) -> Block { [Conv2d(n, 3), GroupNorm(4), Flatten, Reshape(7, 5), CausalSelfAttention(4)] }",
        &[],
    );
    assert_declaration(
        "fn f(w: Block, on: bool, n: usize) -> Block {
             let squeeze = Linear(n);
             [if on { Tied(w) } else { from(above) }, repeat(n, [squeeze, w]), f([w], on, n - 1), Dropout(0.25 * 2.0)]
         }",
        &[],
    );
    for (tokens, said) in [
        ("fn f() -> Block { [Lineer(4)] }", "no layer or block is called `Lineer`; did you mean `Linear`?"),
        (
            "fn f(n: usize) -> Block { [repeat(n, if n > 3 { [Lineer(4)] } else { [] })] }",
            "no layer or block is called `Lineer`; did you mean `Linear`?",
        ),
        ("fn f() -> Block { [] } fn f() -> Block { [] }", "`f` is defined twice; rename or remove one"),
        ("fn f(n: u8) -> Block { [] }", "a block's parameters are `usize`, `f64`, `bool` or `Block`; use one of these"),
        ("fn Linear() -> Block { [] }", "`Linear` has a meaning already; rename the block"),
        ("fn forward() -> Block { [] }", "a network begins at `forward`; rename the block"),
        ("fn f() -> Block { [tap(a), Relu] }", "nothing reads the tap `a`; read it with `from(a)`, or remove it"),
        (
            "#[cfg(any())] fn f() -> Block { [Relu] }",
            "no part of a module of blocks has a condition; put `#[cfg(..)]` before the module",
        ),
        ("fn f() -> Block { let a = Relu; [] }", "`a` is never used; remove it or put it into a list"),
        ("fn f() -> Block { let a = Relu; let a = Relu; [a] }", "`a` is bound twice; rename one"),
        ("fn f() -> Block { [g(3)] } fn g() -> Block { [] }", "block `g` takes (), but `g(3)` is given"),
        (
            "fn f() -> Block { [g([Reli])] } fn g(b: Block) -> Block { [b] }",
            "no layer or block is called `Reli`; did you mean `Relu`?",
        ),
        ("fn f() -> Block { [Relu(inplce)] }", "`Relu` has no option `inplce`; did you mean `inplace`?"),
        (
            "fn f() -> Block { [Linear(zoo::WIDTH)] }",
            "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the module",
        ),
        (
            "fn f() -> Block { [Linear(2 * WIDTH)] }",
            "no parameter or constant is called `WIDTH`; declare it inside the module, as `const WIDTH: usize = ..;`",
        ),
        (
            "fn f() -> Block { [Linear(WIDTH)] }",
            "`Linear` is given `WIDTH`, which is neither an option nor a parameter nor a constant; a number is declared \
             inside the module, as `const WIDTH: usize = ..;`",
        ),
        (
            "struct Net;",
            "a module of blocks has blocks `fn name(..) -> Block`, `operation!`s, `const`s and `use`s; a network is declared with \
             `network!`",
        ),
    ] {
        assert_declaration(tokens, &[said]);
    }
}

#[test]
fn declarations() {
    let expand = |text: &str| crate::modules::blocks(text.parse().expect("balanced tokens"));
    let several = expand(&format!(
        "/// Residual.\n pub mod resnet {{ {RESNET} use std::mem; pub const TRAIN: usize = 3; }} mod mobile {{ #![allow(dead_code)] fn a() -> Block {{ [] }} }}"
    ));
    let file: syn::File = syn::parse2(several).expect("items");
    let [syn::Item::Mod(resnet), syn::Item::Mod(mobile)] = file.items.as_slice() else { panic!("two modules") };
    assert!(matches!(resnet.vis, syn::Visibility::Public(_)) && matches!(mobile.vis, syn::Visibility::Inherited));
    let docs = quote::ToTokens::to_token_stream(&resnet.attrs[1]).to_string();
    assert!(docs.contains("# Blocks\\n\\n## `bottleneck(width: usize)`\\n\\nReduces and expands.\\n"), "{docs}");
    assert!(docs.contains("## `conv(channels: usize, size: usize)`"), "{docs}");
    let inside = quote::ToTokens::to_token_stream(resnet).to_string();
    assert!(inside.contains("const EXPANSION : usize = 4 ;") && inside.contains("pub const TRAIN"), "{inside}");
    assert!(inside.contains("use std :: mem ;") && inside.contains("__gpumem_blocks_resnet_"), "{inside}");
    for text in ["", "pub struct Net;", "mod a { } mod b;"] {
        let expanded = expand(text).to_string();
        assert!(expanded.contains("`blocks!` holds modules: `pub mod name"), "{expanded}");
    }
    let attribute = |arguments: &str, item: &str| {
        let [arguments, item] = [arguments, item].map(|text| text.parse().expect("balanced tokens"));
        crate::modules::blocks_mod(arguments, item).to_string()
    };
    assert!(attribute("", "mod m { fn f() -> Block { [] } }").contains("macro_rules"));
    assert!(attribute("x", "mod m { }").contains("`#[blocks_mod]` takes nothing but `crate = path`"));
    assert!(attribute("", "fn f() {}").contains("`#[blocks_mod]` stands before a module with blocks in it"));
}

/// `macro_rules!` dissolves invisible groups; these arrive as they departed.
/// Only paths are fetched: anything else after `@` was written by hand, and is refused like any token out of place.
#[test]
fn what_is_no_path_is_not_fetched() {
    for (paths, is_path) in [
        ("{ zoo :: resnet }", true),
        ("[ :: gpumem ] { :: zoo }", true),
        ("[] { zoo }", false),
        ("{ 7 fn f() }", false),
        ("{ zoo resnet }", false),
        ("{ zoo :: }", false),
        ("{ zoo : resnet }", false),
        ("{ }", false),
    ] {
        let tokens: TokenStream = format!("@ {{ {paths} }} {{ fn f() -> Block {{ [Relu] }} }}").parse().unwrap();
        assert_eq!(cross_crate_blocks::arrive("blocks", tokens).is_err(), is_path, "{paths}");
    }
}

#[test]
fn invisible_groups_travel() {
    use proc_macro2::{Delimiter, Group};
    let sum = Group::new(Delimiter::None, quote::quote!(2 + 3));
    let written = quote::quote! {
        struct Net; use blocks m; fn forward(x: Features<3>) -> Features<10> { [wide(2 * #sum)] }
    };
    let call: syn::Macro = syn::parse2(crate::network(written.clone())).expect("a call of a hidden macro");
    let module = declared("m", "fn wide(n: usize) -> Block { [Linear(n)] }").1;
    assert!(!holds_invisible(call.tokens.clone()), "{}", call.tokens);
    let called = call_hidden(&module, call.tokens).into_iter().skip(1).collect();
    let Ok(gathered) = cross_crate_blocks::arrive("network", called) else { panic!("paths are left") };
    assert_eq!(gathered.tokens.to_string(), written.to_string());
    assert!(holds_invisible(gathered.tokens));
    let stray = quote::quote!(@ (1) struct @);
    let uses = crate::parse::source(written, &[], &mut crate::errors::Errors::default()).expect("a struct").module.uses;
    let call: syn::Macro =
        syn::parse2(cross_crate_blocks::depart(&Facade::default(), "network", &uses, &stray).expect("a use"))
            .expect("a call");
    let called = call_hidden(&module, call.tokens).into_iter().skip(1).collect();
    let Ok(gathered) = cross_crate_blocks::arrive("network", called) else { panic!("paths are left") };
    assert_eq!(gathered.tokens.to_string(), stray.to_string());
}

fn holds_invisible(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::None || holds_invisible(group.stream()),
        _ => false,
    })
}
