//! Networks in texts: what is found, what it resolves to, and where mistakes are.

use gpumem_core::cards::{RTX_3060, T4};
use gpumem_core::report::Device;
use gpumem_language::source::{Mistake, Overrides, Text, declared, resolve};
use std::path::Path;

/// The sources of the zoo, with their names.
fn zoo() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpumem-zoo/src");
    let mut files: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().into(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn mistakes(text: &str) -> Vec<String> {
    resolve(text).unwrap_err().iter().map(Mistake::to_string).collect()
}

/// Blocks are found in their own file and in others, also those that use further blocks.
#[test]
fn every_network_of_the_zoo_resolves() {
    let mut texts: Vec<Text> = zoo().iter().map(|(_, text)| Text::read(text).unwrap()).collect();
    let mut shared = Text::default();
    texts.iter().for_each(|text| shared.add_blocks(text));
    let (mut count, mut parameters) = (0, Vec::new());
    for text in &mut texts {
        text.add_blocks(&shared);
        for name in text.names() {
            let network = text.resolve(Some(&name)).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}"));
            assert_eq!(network.name, name);
            assert!(!network.outputs.is_empty() && !network.inputs.is_empty(), "{name}");
            count += 1;
            let elements: u64 =
                network.graph.parameters.iter().map(|parameter| parameter.shape.elements().unwrap()).sum();
            parameters.push((name, elements));
        }
    }
    assert!(count > 60, "{count} networks");
    // Those of torchvision and transformers.
    for (name, elements) in
        [("ResNet50", 25_557_032), ("Gpt2", 124_439_808), ("SwinT", 28_288_354), ("EfficientNetB0", 5_288_548)]
    {
        assert!(parameters.contains(&(name.to_string(), elements)), "{name}: {parameters:?}");
    }
}

const MLP: &str = "pub struct Mlp;

fn forward(features: Features<64>) -> Logits<10> {
    [Linear(128), Relu, Linear(10)]
}";

#[test]
fn a_network_may_stand_alone_or_in_a_file() {
    let alone = resolve(MLP).unwrap();
    for text in [
        format!("use gpumem::prelude::*;\n\nnetwork! {{\n{MLP}\n}}\n\nfn main() {{}}"),
        format!("fn main() {{ gpumem::network!({MLP}); }}"),
        format!("#[cfg(test)] mod tests {{ #[test] fn it() {{ network![{MLP}]; }} }}"),
        format!("#[gpumem::network_mod(crate = gm)] /// Text. \n#[allow(dead_code)] pub(crate) mod net {{ {MLP} }}"),
        format!(
            "macro_rules! network_of {{ ($name:ident) => {{ network! {{ pub struct $name; }} }} }} network! {{ {MLP} }}"
        ),
    ] {
        let network = resolve(&text).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"));
        assert_eq!((network.name.as_str(), &network.graph, &network.outputs), ("Mlp", &alone.graph, &alone.outputs));
    }
    assert_eq!(alone.inputs[0].name, "features");
    let own = "operation! { fn Half(x) { 0.5 * x } }";
    let own = resolve(&format!("{} {own}", MLP.replace("Relu", "Half"))).unwrap();
    assert!(own.graph.rows.iter().any(|row| row.kind == "Half"));
    assert_eq!(alone.inputs[0].value.shape.dims(), [64]);
    let names: Vec<&str> = alone.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["linear[0].weight", "linear[0].bias", "linear[1].weight", "linear[1].bias"]);
}

/// Lines and columns are those of the whole text, and all mistakes are reported.
#[test]
fn mistakes_have_lines_and_columns() {
    let text = format!("use gpumem::network;\n\nnetwork! {{\n{MLP}\n}}");
    let text =
        text.replace("Relu", "Relo").replace("fn forward", "const TRAIN: Train = Train { batch: 0 };\nfn forward");
    assert_eq!(
        mistakes(&text),
        [
            "8:19: no layer or block is called `Relo`; did you mean `Relu`?",
            "6:37: the batch is 0; a step needs at least 1 sample"
        ]
    );
    assert_eq!(
        mistakes("network! {\n  fn forward( }"),
        ["2:15: this is no token of Rust, or a bracket without its counterpart"]
    );
    assert_eq!(mistakes(""), ["1:1: the network has no struct; start with `pub struct Name;`"]);
    assert_eq!(
        mistakes("blocks! { pub mod b { fn f() -> Block { [Relu] } } }"),
        ["1:1: no network is declared here; write `network! { .. }`"]
    );
    let two = format!("network! {{ {MLP} }} network! {{ {} }}", MLP.replace("Mlp", "Other"));
    assert_eq!(mistakes(&two), ["1:1: several networks are declared here; name one: Mlp, Other"]);
    let text = Text::read(&two).unwrap();
    assert_eq!(text.names(), ["Mlp", "Other"]);
    assert_eq!(text.resolve(Some("Other")).unwrap().name, "Other");
    let unknown = text.resolve(Some("other")).unwrap_err();
    assert_eq!(unknown[0].message, "no network is called `other`; did you mean `Other`?");
}

#[test]
fn blocks_are_found_by_their_names() {
    let net = |uses: &str, body: &str| {
        format!("network! {{ pub struct Net; {uses} fn forward(x: Features<8>) -> Features<8> {{ {body} }} }}")
    };
    let blocks = "blocks! { pub mod a { use blocks super::b; fn twice(n: usize) -> Block { [b::once(n), b::once(n)] } }
        pub mod b { fn once(n: usize) -> Block { [Linear(n)] } } }";
    let operation = "operation! { pub fn Half(x) { 0.5 * x } }";
    for text in [
        format!("{} {blocks}", net("use blocks crate::net::a;", "[a::twice(8)]")),
        format!("{operation} {} {blocks}", net("use blocks {a, Half};", "[a::twice(8), Half]")),
        format!(
            "{} #[blocks_mod] mod c {{ fn one() -> Block {{ [Linear(8), Linear(8)] }} }}",
            net("use blocks c;", "[c::one()]")
        ),
    ] {
        let network = resolve(&text).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"));
        assert_eq!(network.graph.parameters.len(), 4, "{text}");
    }
    let unknown = mistakes(&format!("{} {blocks}", net("use blocks c;", "[c::once(8)]")));
    assert_eq!(unknown, ["1:39: no module of blocks is called `c` here"]);
    let circle = "blocks! { pub mod a { use blocks super::a; fn f() -> Block { [Relu] } } }";
    assert!(mistakes(&format!("{} {circle}", net("use blocks a;", "[a::f()]")))[0].ends_with("`a` uses itself"));
    let chain: String = (0..2000)
        .map(|number| format!("pub mod m{number} {{ use blocks m{}; fn f() -> Block {{ [Relu] }} }}", number + 1))
        .collect();
    let long = mistakes(&format!("{} blocks! {{ {chain} }}", net("use blocks m0;", "[m0::f()]")));
    assert!(long[0].contains("more than 32 one through another"), "{long:?}");
    let broken = "blocks! { pub mod a { fn f() -> Block { [Relo] } } }";
    assert!(
        mistakes(&format!("{} {broken}", net("use blocks a;", "[a::f()]")))[0]
            .contains("no layer or block is called `Relo`")
    );
    assert!(mistakes("blocks! { fn f() {} }")[0].contains("`blocks!` holds modules"));
}

/// No text makes it panic or hang, however deep its groups are.
#[test]
fn texts_that_are_no_networks() {
    let deep = |open: &str, close: &str, count: usize| open.repeat(count) + &close.repeat(count);
    let nested = |open: &str, close: &str, count: usize| {
        let body = format!("{}Relu{}", open.repeat(count), close.repeat(count));
        format!("network! {{ pub struct Net; fn forward(x: Features<8>) -> Features<8> {{ {body} }} }}")
    };
    assert!(resolve(&nested("[", "]", 100)).is_ok());
    assert!(resolve(&nested("repeat(1, ", ")", 100)).is_ok());
    assert!(resolve(&nested("Add([], ", ")", 100)).is_ok());
    for text in [
        deep("{", "}", 100_000),
        deep("(", ")", 100_000),
        format!(
            "network! {{ pub struct Net; fn forward(x: Features<8>) -> Features<8> {{ {} }} }}",
            deep("[", "]", 200)
        ),
        "\u{0}".into(),
        "\u{feff}".into(),
        "network! {} network! {}".into(),
        "network!".into(),
        "#[network_mod]".into(),
        "#[network_mod] fn f() {}".into(),
        "blocks! { pub mod".into(),
        "/* ".into(),
        "\"".into(),
        "'".into(),
        "struct".into(),
        "network! { struct }".into(),
    ] {
        let start: String = text.chars().take(40).collect();
        let found = resolve(&text);
        assert!(found.is_err(), "{start}");
    }
}

/// Parameters and operations are counted, and each device is answered for.
#[test]
fn facts_of_a_text() {
    let mut overrides = Overrides::default();
    overrides.set("batch", "32").unwrap();
    overrides.set_optimizer("adamw").unwrap();
    overrides.set_checkpoint("auto").unwrap();
    overrides.set("headroom", "1 << 20").unwrap();
    let network = declared(MLP, &overrides).unwrap();
    let small = Device::Size(1 << 20);
    let facts = network.facts(&[Device::Known(&T4), small]).unwrap();
    assert_eq!((facts.parameters, facts.flops_forward), (9610, 18_944));
    let [t4, refused] = facts.fits[..] else { panic!("two devices") };
    assert_eq!(t4.total, t4.arena + T4.reserve());
    assert_eq!(t4.left, Some(T4.usable() - t4.total - (1 << 20)));
    // Parameters and the two states of the optimizer for each, in f32, and more for the samples.
    assert!(t4.arena > 3 * 4 * 9610 && t4.largest_batch > 1_000_000, "{t4:?}");
    assert!(refused.left.is_none() && refused.largest_batch == 0, "{refused:?}");
    assert_eq!(declared(MLP, &Overrides::default()).unwrap().plan().unwrap().batch, 1);
}

/// Copies to host memory take as long as the link of the card needs: a T4 has half of the lanes' rate of an RTX 3060.
#[test]
fn copies_take_the_time_of_a_cards_link() {
    let mut overrides = Overrides::default();
    overrides.set("batch", "32").unwrap();
    overrides.set_optimizer("adamw").unwrap();
    overrides.set("offload", "OptimizerState").unwrap();
    let plan = declared(MLP, &overrides).unwrap().plan().unwrap();
    let bus_ms = |device| plan.adviser(&[], Some(device), 0).now().unwrap().bus_ms;
    let [t4, rtx3060, size] = [Device::Known(&T4), Device::Known(&RTX_3060), Device::Size(8 << 30)].map(bus_ms);
    assert!(rtx3060 > 0.0 && (t4 / rtx3060 - 2.0).abs() < 1e-9 && size == rtx3060, "{t4} {rtx3060} {size}");
}

/// Ranks divide a batch, which is a number once a caller gives one.
#[test]
fn a_batch_of_a_generic_network_is_divided() {
    let text = "network! {
        pub struct Mlp<const BATCH: usize>;
        const TRAIN: Train = Train { batch: BATCH };
        const INFER: Infer = Infer { batch: 1 };
        fn forward(x: Features<64>) -> Logits<10> { [Linear(128), Relu, Linear(10)] }
    }";
    let declared = |batch: &str| {
        let mut overrides = Overrides::default();
        overrides.set("batch", batch).unwrap();
        overrides.set("ranks", "4").unwrap();
        Text::read(text).unwrap().declared(None, &overrides)
    };
    let network = declared("32").unwrap();
    assert_eq!((network.train.as_ref().unwrap().batch, network.infer.as_ref().unwrap().batch), (Some(32), Some(1)));
    assert_eq!(network.plan().unwrap().samples(), 8);
    let message = |batch: &str| declared(batch).unwrap_err().remove(0).message;
    assert!(message("30").contains("30"), "{}", message("30"));
    assert!(message("Largest").contains("a type cannot divide a parameter"), "{}", message("Largest"));
}

/// A layer has the line at which it is written, in the file of its block, then the lines of the calls around it.
#[test]
fn layers_have_the_lines_of_their_files() {
    let blocks = Text::read(
        "blocks! {\n    pub mod parts {\n        fn pair(n: usize) -> Block {\n            [Linear(n),\n             Relu]\n        }\n    }\n}",
    );
    let network = Text::read(
        "network! {\n    pub struct Net;\n    use blocks parts;\n    const TRAIN: Train = Train { batch: 2, loss: Mse };\n    fn forward(x: Features<8>) -> Features<4> {\n        [twice(),\n         SwiGlu(8, 16),\n         Linear(4)]\n    }\n    fn twice() -> Block {\n        [repeat(2, parts::pair(8))]\n    }\n}",
    );
    let (blocks, mut network) = (blocks.unwrap().in_file("src/parts.rs"), network.unwrap());
    let lines = |network: &Text| {
        let graph = network.declared(None, &Overrides::default()).unwrap().blueprint.graph;
        let of = |(row, layer): (usize, &gpumem_core::graph::Row)| {
            let places: Vec<String> = graph.lines.of_row(row).map(|(file, line)| format!("{file}:{line}")).collect();
            format!("{} {}", layer.kind, places.join(" "))
        };
        graph.rows.iter().enumerate().map(of).collect::<Vec<_>>()
    };
    network.add_blocks(&blocks);
    // A text without a file has no lines, nor has any that it is mixed with.
    assert!(lines(&network).iter().all(|line| line.ends_with(' ')), "{:?}", lines(&network));
    let mut network = network.in_file("src/net.rs");
    network.add_blocks(&blocks);
    let found = lines(&network);
    assert_eq!(found[0], "Linear src/parts.rs:4 src/net.rs:11 src/net.rs:6");
    assert_eq!(found[1], "Relu src/parts.rs:5 src/net.rs:11 src/net.rs:6");
    assert_eq!(found[2..4], found[..2], "`repeat` writes a layer once");
    // A composite is written in no file: its layers have the line of its call.
    assert!(found[4..found.len() - 1].iter().all(|line| line.ends_with(" src/net.rs:7")), "{found:?}");
    assert_eq!(found.last().unwrap(), "Linear src/net.rs:8");
}
