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
         const X: usize = 1; const X: usize = 2; static Y: u8 = 0;
         fn forward(x: Features<2>) -> Features<2> { [Relu] }
         fn forward(x: Features<3>) -> Features<2> { [Relu] }",
        &[
            ("B", "a `network!` declares one struct, and `A` is already it; use a second `network!`"),
            ("{", "expected `;` after `struct C`: a network's struct has no fields"),
            ("C", "a `network!` declares one struct, and `A` is already it; use a second `network!`"),
            ("X", "`X` is defined twice; rename or remove one"),
            (
                "static",
                "expected `pub struct Name;`, `const TRAIN: Train = Train { .. };`, `fn forward(..)`, a block \
                 `fn name(..) -> Block`, a `const` or a `use`",
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
            ("..", "fields left out take PyTorch's defaults; remove the `..`"),
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
        let expansion = crate::compile(text.parse().expect("balanced tokens")).to_string();
        assert!(expansion.contains("struct Net ;"), "{expansion}");
    }
    for (train, underlined, said) in [
        ("const TRAIN: Tran = Train { batch: 4 };", "Tran", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = train();", "train", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = 3;", "3", "expected `Train`, as `: Train = Train { batch: 64 };`"),
        ("const TRAIN: Train = Train { batch, loss: Mse };", "batch", "expected `batch: value`"),
    ] {
        let text = format!("struct Net; {train} {forward}").replace("Features<4> {", "Logits<4> {");
        assert_mistakes(&text, &[(underlined, said)]);
        let expansion = crate::compile(text.parse().expect("balanced tokens")).to_string();
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
            ("size_of", "paths are not read here; write a literal, or a `const` that is declared inside the network"),
            (
                "std::mem::size_of",
                "paths are not read here; write a literal, or a `const` that is declared inside the network",
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
    let expansion = crate::compile(text.parse().expect("balanced tokens"));
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
    let expansion = crate::compile(product).to_string();
    assert!(!expansion.contains("compile_error"), "{expansion}");
    let expansion = crate::compile(tokens).to_string();
    assert!(!expansion.contains("compile_error"), "{expansion}");
    assert!(expansion.contains("Mixed (:: gpumem :: __private :: Half :: F16)"), "{expansion}");
    assert!(expansion.contains("Update :: Separate"), "{expansion}");
}

#[test]
fn modules() {
    let expand = |arguments: &str, item: &str| {
        let [arguments, item] = [arguments, item].map(|text| text.parse().expect("balanced tokens"));
        crate::module::network_mod(arguments, item).to_string()
    };
    let network = "struct Net; fn forward(x: Features<4>) -> Features<4> { [Linear(4)] }";
    let documented = expand("", &format!("/// Outside.\n pub mod m {{ //! Inside.\n {network} }}"));
    assert!(!documented.contains("compile_error"), "{documented}");
    assert!(documented.contains("Inside") && documented.contains("pub mod m"), "{documented}");
    let with_arguments = expand("batch = 4", &format!("mod m {{ {network} }}"));
    assert!(with_arguments.contains("`#[network_mod]` takes no arguments; remove them"), "{with_arguments}");
    assert!(with_arguments.contains("mod m"), "{with_arguments}");
    let on_a_struct = expand("", "pub struct Net;");
    assert!(on_a_struct.contains("`#[network_mod]` stands before a module with a network in it"), "{on_a_struct}");
    assert!(on_a_struct.contains("pub struct Net ;"), "{on_a_struct}");
}
