//! What the macro cannot see: constants of other code, conditions, and the name that this library has.

use super::{assert_mistakes, forward, mistakes_with};

const READS: &str = "a macro cannot read constants of other code; write the number here, as `pub const WIDTH: usize = 64;`, which \
                     is then a constant of this module that other code can use";

#[test]
fn constants_of_other_code() {
    let network =
        |items: &str| forward("Features<8>", "Logits<10>", "[Linear(WIDTH), Linear(WIDTH), Linear(10)]", items);
    for (items, place) in [
        ("const WIDTH: usize = cfg::W;", "cfg::W"),
        ("const WIDTH: usize = 2 * super::W;", "2 * super::W"),
        ("const WIDTH: usize = crate::config::WIDTH;", "crate::config::WIDTH"),
        ("use crate::config::WIDTH;", "WIDTH"),
        ("use crate::{config::{DEPTH, W as WIDTH}, other};", "WIDTH"),
    ] {
        assert_mistakes(&network(items), &[(place, READS)]);
    }
    let text = forward("Features<WIDTH>", "Logits<10>", "[Linear(10)]", "use crate::config::WIDTH;");
    assert_mistakes(&text, &[("WIDTH", READS)]);
    // What no layer needs may come from anywhere.
    let train = "use crate::config::BATCH; const RATE: f64 = crate::RATE;
                 const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: RATE } };";
    assert_mistakes(&forward("Features<8>", "Logits<10>", "[Linear(10)]", train), &[]);
    let path = "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the network";
    for written in ["crate::WIDTH", "super::WIDTH", "::zoo::WIDTH", "self::WIDTH"] {
        let text = forward("Features<8>", "Logits<10>", &format!("[Linear({written}), Linear(10)]"), "");
        assert_mistakes(&text, &[(written, path)]);
    }
    // A constant of a module in another crate is shown at the call.
    let text = forward("Features<8>", "Logits<10>", "[m::wide(), Linear(10)]", "use blocks zoo::m;");
    let module = "const WIDTH: usize = super::W; fn wide() -> Block { [Linear(WIDTH)] }";
    assert_eq!(mistakes_with(&text, &[module]), [("m::wide()".to_string(), READS.to_string())]);
}

#[test]
fn conditions() {
    let message = "no part of a network has a condition; put `#[cfg(..)]` before `pub struct ..;`, where it is for the whole network, \
                   and write a second network for the other case";
    for item in [
        "const TRAIN: Train = Train { batch: 4 };",
        "const INFER: Infer = Infer { batch: 4 };",
        "pub const WIDTH: usize = 4;",
        "fn forward(x: Features<8>) -> Logits<10> { [Linear(10)] }",
    ] {
        let forward =
            if item.contains("forward") { "" } else { "fn forward(x: Features<8>) -> Logits<10> { [Linear(10)] }" };
        let text = format!("pub struct Net; #[cfg(any())] {item} {forward}");
        assert_mistakes(&text, &[("#[cfg(any())]", message)]);
    }
    let allowed = "pub struct Net; /// Docs.\n #[allow(dead_code)] const TRAIN: Train = Train { batch: 4 };
                   fn forward(x: Features<8>) -> Logits<10> { [Linear(10)] }";
    assert_mistakes(allowed, &[]);
}

/// Everything that is generated finds this library where `crate = ..` says.
#[test]
fn another_name_of_the_library() {
    let items = "pub struct Net; const TRAIN: Train = Train { batch: 4, cards: [T4] }; const INFER: Infer = Infer { batch: 1 };";
    for body in ["[Linear(10)]", "[Linear(9)]"] {
        let text = format!("{items} fn forward(x: Features<8>) -> Logits<10> {{ {body} }}");
        for path in ["gm", "company :: gpumem", ":: gm"] {
            let named: proc_macro2::TokenStream = format!("crate = {path}; {text}").parse().expect("balanced tokens");
            let expansion = crate::network(named).to_string();
            syn::parse_str::<syn::File>(&expansion).expect("items");
            assert!(expansion.contains(&format!("use {path} as __gpumem ;")), "{expansion}");
            assert!(!expansion.contains(":: gpumem ::") || path.contains("gpumem"), "{expansion}");
            let attribute = format!("crate = {path}").parse().expect("balanced tokens");
            let module = format!("pub mod m {{ {text} }}").parse().expect("balanced tokens");
            let expansion = crate::modules::network_mod(attribute, module).to_string();
            assert!(expansion.contains(&format!("use {path} as __gpumem ;")), "{expansion}");
        }
    }
    let text = "crate = gm; pub mod m { use blocks super::inner; fn f() -> Block { [inner::g()] } }";
    let expansion = crate::modules::blocks(text.parse().expect("balanced tokens")).to_string();
    assert!(expansion.contains("[gm :: blocks] @ { [gm] }"), "{expansion}");
    let fits = crate::instantiation::fits("crate = gm; nets::Tiny<64>".parse().expect("balanced tokens")).to_string();
    assert!(fits.contains("use gm as __gpumem ;") && !fits.contains(":: gpumem ::"), "{fits}");
}
