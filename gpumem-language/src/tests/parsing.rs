//! What the parser says of broken text, and that it goes on.

use super::{assert_mistakes, forward};

#[test]
fn a_missing_comma_is_one_mistake() {
    let text = forward("Image<3, 8, 8>", "Logits<10>", "[Conv2d(8, 3) Relu, Flatten, Linear(10)]", "");
    assert_mistakes(&text, &[("Relu", "expected `,` after `Conv2d(8, 3)`")]);
    let text =
        forward("Image<3, 8, 8>", "Logits<10>", "[Add([Conv2d(3 3 padding = 1) Relu], []) Flatten, Linear(10)]", "");
    assert_mistakes(
        &text,
        &[
            ("3", "expected `,` after `3`"),
            ("padding = 1", "expected `,` after `3`"),
            ("Relu", "expected `,` after `Conv2d(3, 3, padding = 1)`"),
            ("Flatten", "expected `,` after `Add([..], [])`"),
        ],
    );
}

#[test]
fn a_missing_comma_does_not_hide_other_mistakes() {
    let text = forward("Image<3, 8, 8>", "Logits<10>", "[Conv2d(8, 3) Rellu, Flatten, Linear(99, 10)]", "");
    assert_mistakes(
        &text,
        &[
            ("Rellu", "expected `,` after `Conv2d(8, 3)`"),
            ("Rellu", "no layer or block is called `Rellu`; did you mean `Relu`?"),
            ("Linear(99, 10)", "layer 3 `Linear` expects 99 input features, but the previous layer produces [288]"),
        ],
    );
}

#[test]
fn junk_is_skipped_up_to_the_next_comma() {
    let text = forward("Features<4>", "Features<4>", "[Linear(4), @what 3 4, Relu; Relu,, Linear::new(4), Relu]", "");
    assert_mistakes(
        &text,
        &[
            ("@", "expected a layer, a block, a list `[..]` or a number, found `@`"),
            (";", "expected `,` after `Relu`, found `;`"),
            (",", "expected a layer, found `,`; remove one comma"),
            ("Linear::new", "layers have no path; write `Linear`"),
        ],
    );
}

#[test]
fn statements() {
    let text = forward("Features<4>", "Features<4>", "let w = Linear(4) [w];", "");
    assert_mistakes(
        &text,
        &[
            ("[", "expected `;` after `let w = Linear(4)`"),
            (";", "remove this `;`: the list is what the body stands for"),
        ],
    );
    let text = forward("Features<4>", "Features<4>", "[Relu] [Linear(4)]", "");
    assert_mistakes(
        &text,
        &[("[Linear(4)]", "a body ends with one list, and `[..]` is already it; put both into one list")],
    );
    let text = forward("Features<4>", "Features<4>", "", "");
    assert_mistakes(&text, &[("{  }", "the body has no layers; write `[]` for one that passes its input on")]);
}

#[test]
fn items() {
    assert_mistakes("", &[("", "the network has no struct; start with `pub struct Name;`")]);
    assert_mistakes(
        "pub struct Net;",
        &[(
            "Net",
            "network `Net` has no `forward`; add `fn forward(image: Image<3, 224, 224>) -> Logits<1000> { [..] }`",
        )],
    );
    assert_mistakes(
        "struct A; struct B; struct C { x: u8 }
         const X: usize = 1; const X: usize = 2; static Y: u8 = 0; enum Z {}
         fn forward(x: Features<2>) -> Features<2> { [Relu] }
         fn forward(x: Features<3>) -> Features<2> { [Relu] }",
        &[
            ("B", "a `network!` declares one struct, and `A` is already it; use a second `network!`"),
            ("{", "expected `;` after `struct C`: a network's struct has no fields"),
            ("C", "a `network!` declares one struct, and `A` is already it; use a second `network!`"),
            ("X", "`X` is defined twice; rename or remove one"),
            ("static", "write `const` for `static`"),
            (
                "enum",
                "expected `pub struct Name;`, `const TRAIN: Train = Train { .. };`, `fn forward(..)`, a block \
                 `fn name(..) -> Block`, an `operation!`, a `const` or a `use`",
            ),
            ("forward", "`forward` is defined twice; rename or remove one"),
        ],
    );
}

#[test]
fn settings() {
    let text = forward(
        "Features<4>",
        "Logits<4>",
        "[Linear(4)]",
        "const TRAIN: Train = Train { batch: 64 optimizer: Sgd { lr: 0.1 }, ..Default::default() }",
    );
    assert_mistakes(
        &text,
        &[
            ("optimizer: Sgd { lr: 0.1 }", "expected `,` after `batch: ..`"),
            ("..", "fields left out take their defaults; remove the `..`"),
            ("", "expected `;` after `Train { .. }`"),
        ],
    );
}

#[test]
fn a_function_without_an_output_type() {
    let text = "struct Net; fn forward(x: Features<4>) { [Linear(4)] }";
    assert_mistakes(
        text,
        &[(
            "fn forward(x: Features<4>)",
            "`forward` has no output type; write `-> Logits<1000>` after its parentheses",
        )],
    );
}

/// The struct, `TRAIN` and `forward` are what the rest of the user's file mentions.
#[test]
fn what_is_mentioned_elsewhere_is_there_after_a_mistake() {
    let forward = "fn forward(x: Features<4>) -> Features<4> { [Linear(4)] }";
    for (declaration, underlined, said) in [
        ("struct Net { x: u8 }", "{", "expected `;` after `struct Net`: a network's struct has no fields"),
        ("struct Net {};", "{", "expected `;` after `struct Net`: a network's struct has no fields"),
        ("struct Net(u8);", "(", "expected `;` after `struct Net`: a network's struct has no fields"),
        ("struct Net", "fn", "expected `;` after `struct Net`: a network's struct has no fields"),
        ("struct Net where u8: Copy;", "where", "expected `;` after `struct Net`: a network's struct has no fields"),
        (
            "struct Net<T>;",
            "Net",
            "a network has no other parameter than its batch: `pub struct Net<const BATCH: usize>;`",
        ),
    ] {
        let text = format!("{declaration} {forward}");
        assert_mistakes(&text, &[(underlined, said)]);
        let expansion = crate::network(text.parse().expect("balanced tokens")).to_string();
        assert!(expansion.contains("struct Net ;"), "{expansion}");
    }
    for (train, underlined, said) in [
        ("const TRAIN: Tran = Train { batch: 4 };", "Tran", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = train();", "train", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = 3;", "3", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = Train { batch, loss: CrossEntropy };", "batch", "expected `batch: value`"),
    ] {
        let text = format!("struct Net; {train} {forward}").replace("Features<4> {", "Logits<4> {");
        assert_mistakes(&text, &[(underlined, said)]);
        let expansion = crate::network(text.parse().expect("balanced tokens")).to_string();
        assert!(expansion.contains("const TRAIN :"), "{expansion}");
    }
    assert_mistakes(
        &format!("struct Net; {}", forward.replace("forward", "foward")),
        &[("foward", "a network begins at `forward`, and there is none; rename `foward` to `forward`")],
    );
    assert_mistakes(
        &format!("#![allow(dead_code)] struct Net; {forward}"),
        &[("#", "attributes and documentation stand before the struct, as `#[..]` and `///`")],
    );
}

#[test]
fn paths() {
    let body =
        "[nn::Linear(4), Linear(size_of::<u8>()), Linear(std::mem::size_of::<u8>() + 1, bias = false), layers::Relu]";
    assert_mistakes(
        &forward("Features<4>", "Features<4>", body, ""),
        &[
            ("nn::Linear", "layers have no path; write `Linear`"),
            (
                "size_of",
                "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the network",
            ),
            (
                "std::mem::size_of",
                "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the network",
            ),
            ("layers::Relu", "layers have no path; write `Relu`"),
        ],
    );
}

/// Constants may be any Rust, as long as no layer needs them.
#[test]
fn constants_of_any_kind() {
    let constants =
        "const BIG: u128 = 340282366920938463463374607431768211455; const BATCH: usize = size_of::<[u8; 4]>();
         const LIST: &[(usize, u8, f32)] = &[(1, b'x', 1.5)]; const TRIPLE: (u8, u8, u8) = (1, 2, 3);
         const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: if BIG > 3 { 0.1 } else { 0.2 } } };";
    assert_mistakes(&forward("Features<4>", "Logits<4>", "[Linear(4)]", constants), &[]);
    let text = "const WIDTH: usize = 8; pub const HALF: usize = { WIDTH } / 2;";
    let text = forward("Features<4>", "Logits<4>", "[Linear(4)]", text);
    let expansion = crate::network(text.parse().expect("balanced tokens"));
    syn::parse2::<syn::File>(expansion).expect("items");
    assert_mistakes(
        &forward("Features<4>", "Logits<4>", "[Linear(4)]", "const WIDTH: usize = 8 8; use fn::x;"),
        &[
            ("8", "unexpected token"),
            ("fn", "expected one of: identifier, `self`, `super`, `crate`, `try`, `*`, curly braces"),
        ],
    );
}

/// What `$value:expr` of a macro brings is read as what was passed.
#[test]
fn invisible_groups() {
    use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
    let hidden = |text: &str| -> TokenTree {
        Group::new(Delimiter::None, text.parse::<TokenStream>().expect("balanced tokens")).into()
    };
    let [batch, optimizer, precision, loss] = ["8", "Adam { lr: 0.1 }", "Mixed(F16)", "Mse"].map(hidden);
    let [update, cards, layers, width] = ["Separate", "[RTX_3060, T4]", "[Linear(3), Relu]", "3"].map(hidden);
    let tokens = quote::quote! {
        struct Net;
        const TRAIN: Train = Train {
            batch: #batch, optimizer: #optimizer, precision: #precision, loss: #loss, update: #update, cards: #cards
        };
        fn forward(x: Features<#width>) -> Features<#width> { [#layers, Linear(#width, bias = false), repeat(#width, #layers)] }
    };
    let sum = hidden("2 + 3");
    let product = quote::quote!(struct Net; fn forward(x: Features<3>) -> Features<10> { [Linear(2 * #sum)] });
    let expansion = crate::network(product).to_string();
    assert!(!expansion.contains("compile_error"), "{expansion}");
    let expansion = crate::network(tokens).to_string();
    assert!(!expansion.contains("compile_error"), "{expansion}");
    assert!(expansion.contains("Mixed (__gpumem :: __private :: Half :: F16)"), "{expansion}");
    assert!(expansion.contains("Update :: Separate"), "{expansion}");
}

#[test]
fn modules() {
    let expand = |arguments: &str, item: &str| {
        let [arguments, item] = [arguments, item].map(|text| text.parse().expect("balanced tokens"));
        crate::modules::network_mod(arguments, item).to_string()
    };
    let network = "struct Net; fn forward(x: Features<4>) -> Features<4> { [Linear(4)] }";
    let documented = expand("", &format!("/// Outside.\n pub mod m {{ //! Inside.\n {network} }}"));
    assert!(!documented.contains("compile_error"), "{documented}");
    assert!(documented.contains("Inside") && documented.contains("pub mod m"), "{documented}");
    let with_arguments = expand("batch = 4", &format!("mod m {{ {network} }}"));
    assert!(with_arguments.contains("`#[network_mod]` takes nothing but `crate = path`"), "{with_arguments}");
    assert!(with_arguments.contains("mod m"), "{with_arguments}");
    let on_a_struct = expand("", "pub struct Net;");
    assert!(on_a_struct.contains("`#[network_mod]` stands before a module with a network in it"), "{on_a_struct}");
    assert!(on_a_struct.contains("pub struct Net ;"), "{on_a_struct}");
}

/// Inputs and outputs as other languages write them: one mistake each.
#[test]
fn inputs_and_outputs() {
    let types = "of one sample, without the batch, write `Image<C, H, W>`, `Images<u8, C, H, W>`, `Features<N>`, `Tokens<T>`, `Sequence<T, D>`, \
                 `Signal<C, L>`, `Volume<C, D, H, W>`, `Values<A, B, ..>`, `Lengths<T>` or `Segments<T>`";
    let tensor = format!("no type of an input is called `Tensor`; {types}");
    let no_self = "a network has no `self`: `forward` takes its inputs only, and blocks their parameters";
    for (inputs, place, said) in [
        ("x: Tensor<f32, (D<1>, D<8>)>", "Tensor", tensor.as_str()),
        ("x: Tensor", "Tensor", &tensor),
        ("&self, x: Features<8>", "&", no_self),
        ("&mut self", "&", no_self),
        ("self: &Self, x: Features<8>", "self", no_self),
        ("x: &Features<8>", "&", "there are no references; remove `&`"),
        ("mut x: Features<8>", "mut", "inputs and parameters never change; remove `mut`"),
        ("Features<8>", "Features<8>", "every input has a name; write `x: Features<..>`"),
        ("x", "x", "`x` has no type; write `x: Image<3, 224, 224>`"),
        ("x: [f32; 8]", "[", "expected a type, as `Image<3, 224, 224>`, found `[..]`"),
        ("x: Features(8)", "(8)", "sizes stand between `<` and `>`; write `Features<8>`"),
        ("x: gpumem::Features<8>", "gpumem::Features", "types have no path; write `Features`"),
        ("x: Features", "Features", "`Features` has 1 dimension, `Features<N>`, but none is given"),
        ("x: Features<f32, 8>", "Features<f32, 8>", "`Features` does not say what it consists of; write `Features<8>`"),
    ] {
        let text = format!("struct Net; fn forward({inputs}) -> Logits<4> {{ [Linear(4)] }}");
        // The last `&` of a receiver is part of what is skipped.
        let found = super::mistakes(&text);
        assert_eq!(found.len(), 1, "{inputs}: {found:#?}");
        assert!(found[0].0.starts_with(place), "{inputs}: {found:#?}");
        assert_eq!(found[0].1, said);
    }
    let fields = "outputs have no names; their types stand in parentheses, as `-> (Map<81, 8, 8>, Map<4, 8, 8>)`, and the body ends \
                  with `Outputs(x, y)`";
    for (output, place, said) in [
        ("{ cls: Map<1, 2, 3>, boxes: Map<1, 2, 3> }", "{ cls: Map<1, 2, 3>, boxes: Map<1, 2, 3> }", fields),
        ("Heads { cls: Map<1, 2, 3> }", "{ cls: Map<1, 2, 3> }", fields),
        (
            "[Logits<4>; 2]",
            "[",
            "expected a type, as `Logits<1000>`, or several in parentheses, as `(Logits<10>, Map<4, 8, 8>)`, found `[..]`",
        ),
        (
            "(Logits<4>, Logits<4>)",
            "Logits<4>, Logits<4>",
            "forward promises 2 outputs, but its body produces 1 output; end it with `Outputs(x, y)`, a value for each type",
        ),
    ] {
        let text = format!("struct Net; fn forward(x: Features<8>) -> {output} {{ [Linear(4)] }}");
        assert_mistakes(&text, &[(place, said)]);
    }
}

/// Items that Rust has in such places.
#[test]
fn items_of_rust() {
    let forward = "fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }";
    for (items, place, said) in [
        (
            format!("impl Net {{ {forward} }}"),
            "impl Net",
            "a network has no `impl`; put `fn forward(..)` beside the struct",
        ),
        (format!("static TRAIN: Train = Train {{ batch: 4 }}; {forward}"), "static", "write `const` for `static`"),
        (
            format!("const SETTINGS: Infer = Infer {{ batch: 4 }}; {forward}"),
            "SETTINGS",
            "a constant `Infer` is called `INFER`; rename `SETTINGS`",
        ),
        (
            forward.replace("forward", "forward<const N: usize>"),
            "<const N: usize>",
            "`forward` has no parameters in `<..>`; numbers stand in its parentheses, as `(n: usize)`",
        ),
    ] {
        assert_mistakes(&format!("struct Net; {items}"), &[(place, said)]);
    }
}
