//! What the user's crate gets to compile.

/// The expansion of a network as formatted Rust.
#[track_caller]
fn expanded(text: &str) -> String {
    let tokens = crate::network(text.parse().expect("balanced tokens"));
    let file = prettyplease::unparse(&syn::parse2(tokens).expect("items"));
    file.lines().map(without_bytes).collect::<Vec<_>>().join("\n")
}

/// A line without the contents of its byte string, which are `gpumem-core`'s.
fn without_bytes(line: &str) -> String {
    match line.split_once("b\"") {
        Some((before, rest)) => format!("{before}b\"..\"{}", rest.rsplit('"').next().unwrap_or_default()),
        None => line.to_string(),
    }
}

#[test]
fn raw_names_are_shown_without_their_prefix() {
    let file = expanded(
        "struct r#Type; fn forward(r#in: Features<4>) -> Features<4> { let r#final = Linear(4); [r#loop(4), r#final] }
         fn r#loop(r#type: usize) -> Block { [Linear(r#type)] }",
    );
    assert!(file.contains("struct r#Type;") && file.contains("\"Type\""), "{file}");
    assert!(file.contains("\"loop.linear\"") && file.contains("\"final\""), "{file}");
}

#[test]
fn a_condition_holds_for_all_of_the_network() {
    for body in ["[Linear(4)]", "[Linear(3)]", "[Linear(3, 3), Relu(1)]"] {
        let file = expanded(&format!(
            "#[cfg(feature = \"x\")] pub struct Net; use std::mem; pub const SIZE: usize = 4; const TRAIN: Train = Train {{ batch: 4, loss: Mse }};
             fn forward(x: Features<SIZE>) -> Features<SIZE> {{ {body} }}"
        ));
        let items = syn::parse_file(&file).expect("items").items;
        let is_conditional =
            |attributes: &[syn::Attribute]| attributes.iter().any(|attribute| attribute.path().is_ident("cfg"));
        for item in items {
            let attributes = match &item {
                syn::Item::Use(item) => &item.attrs,
                syn::Item::Const(item) => &item.attrs,
                syn::Item::Struct(item) => &item.attrs,
                syn::Item::Impl(item) => &item.attrs,
                _ => panic!("{file}"),
            };
            assert!(is_conditional(attributes), "{file}");
        }
    }
    // So is the way to modules of blocks, which may be there under the condition only.
    let file = expanded(
        "#[cfg(feature = \"x\")] pub struct Net; use blocks zoo::resnet;
         fn forward(x: Features<4>) -> Features<4> { resnet::stem }",
    );
    assert!(file.starts_with("#[cfg(feature = \"x\")]\nzoo::resnet::__declared_with_blocks! {"), "{file}");
}

#[test]
fn a_training_network() {
    insta::assert_snapshot!(expanded(
        "
        /// Two layers.
        pub struct Mlp;
        const HIDDEN: usize = 6;
        pub const WIDTH: usize = HIDDEN / 2;
        const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060] };
        fn forward(x: Features<6>) -> Logits<WIDTH> { [Linear(HIDDEN), Add(Relu, []), Linear(WIDTH)] }
        "
    ));
}

#[test]
fn a_network_generic_over_its_batch() {
    insta::assert_snapshot!(expanded(
        "
        struct Tiny<const BATCH: usize>;
        const INFER: Infer = Infer { batch: BATCH, precision: Mixed(Bf16) };
        fn forward(tokens: Tokens<4>) -> Sequence<4, 2> { [Embedding(9, 2)] }
        "
    ));
}

/// Numbers that are the same at every batch are checked where the network is declared.
#[test]
fn numbers_of_a_generic_network() {
    let checks = |optimizer: &str| {
        let text = format!(
            "struct Net<const B: usize>; const TRAIN: Train = Train {{ batch: B, optimizer: {optimizer}, loss: Mse }};
             fn forward(x: Features<4>) -> Features<4> {{ [Linear(4)] }}"
        );
        let expanded = expanded(&text);
        ["assert_hyperparameter(\n        &<Net<1>>", "assert_hyperparameter(\n                &<Net<B>>"]
            .map(|call| expanded.matches(call).count())
    };
    assert_eq!(checks("Sgd { lr: 0.1, momentum: 0.9 }"), [2, 0]);
    assert_eq!(checks("Sgd { lr: 0.1 * B as f64, momentum: 0.9 }"), [1, 1]);
    assert_eq!(checks("Sgd { lr: 0.1, momentum: 1.0 - 1.0 / (B as f64) }"), [0, 2]);
}

#[test]
fn a_network_with_mistakes_still_exists() {
    insta::assert_snapshot!(expanded(
        "
        pub(crate) struct Broken;
        const TRAIN: Train = Train { batch: 2 * 4, loss: Mse };
        fn forward(x: Features<6>) -> Features<3> { [Linear(7, 3)] }
        "
    ));
}

#[test]
fn a_module_with_a_network() {
    let item = "#[allow(dead_code)] pub mod tiny { pub struct Tiny; fn forward(x: Features<2>) -> Features<2> { [Linear(2)] } }";
    let tokens = crate::modules::network_mod(Default::default(), item.parse().expect("balanced tokens"));
    let file = prettyplease::unparse(&syn::parse2(tokens).expect("items"));
    assert!(file.starts_with("#[allow(dead_code)]\npub mod tiny {\n"), "{file}");
    assert!(file.contains("impl __gpumem::Network for Tiny"), "{file}");
}

#[test]
fn a_check_of_one_instantiation() {
    let tokens = crate::instantiation::fits("nets::Tiny<64>".parse().expect("balanced tokens"));
    insta::assert_snapshot!(prettyplease::unparse(&syn::parse2(tokens).expect("items")));
}

/// A deep network must not cost more to expand than to compile.
#[test]
fn a_thousand_layers_expand() {
    let text = "
        struct Deep;
        const TRAIN: Train = Train { batch: 8, loss: Mse };
        fn forward(image: Image<8, 32, 32>) -> Map<8, 32, 32> {
            [repeat(250, [Conv2d(8, 3, padding = 1), BatchNorm2d, Relu, Add([], [])])]
        }
    ";
    let tokens = crate::network(text.parse().expect("balanced tokens"));
    assert!(!tokens.to_string().contains("compile_error"));
}
