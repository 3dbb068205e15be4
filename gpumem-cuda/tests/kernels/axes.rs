//! Axes in another order, parts along them, and the elements along them as one.

use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_mixed, check_narrow};
use gpumem_core::graph::{Graph, NodeId};

/// Values of one shape, added: one gradient is written, the others are added to it.
fn all(graph: &mut Graph, dims: &[u64], texts: &[&str]) -> NodeId {
    let input = graph.input(numbers(dims)).unwrap();
    let x = layer(graph, input, "Tanh");
    let results: Vec<NodeId> = texts.iter().map(|text| chain(graph, x, text)).collect();
    join(graph, &results, "Concat")
}

/// Rows as they are, tiles and parts of tiles, and several axes around them.
fn orders(graph: &mut Graph) -> NodeId {
    let texts = [
        "Permute([0; 2; 3; 1]) | Flatten",
        "Permute([0; 3; 2; 1]) | Flatten",
        "Permute([0; 2; 1; 3]) | Flatten",
        "Permute([0; 1; 3; 2]) | Flatten",
        "Permute([0; 3; 1; 2]) | Flatten",
    ];
    all(graph, &[3, 35, 16], &texts)
}

#[test]
fn permute() {
    check("orders", 3, orders);
    check("four axes", 2, |graph| {
        all(graph, &[2, 3, 5, 4], &["Permute([0; 3; 1; 4; 2]) | Flatten", "Permute([0; 4; 3; 2; 1]) | Flatten"])
    });
    check("six axes", 2, |graph| {
        all(
            graph,
            &[2, 3, 2, 3, 2, 2],
            &["Permute(0, 6, 3, 1, 4, 2, 5) | Flatten", "Permute(0, 6, 5, 4, 3, 2, 1) | Flatten"],
        )
    });
    check("shuffled", 3, |graph| {
        all(
            graph,
            &[12, 4, 6],
            &[
                "PixelShuffle(2) | Flatten",
                "PixelUnshuffle(2) | Flatten",
                "ChannelShuffle(3) | Flatten",
                "Roll([1; -2], [2; 3]) | Flatten",
            ],
        )
    });
}

#[test]
fn permute_in_sixteen_bits() {
    check_narrow("orders", 3, orders);
}

fn parts(graph: &mut Graph) -> NodeId {
    let texts = [
        "Slice(1, 3, dim = 2) | Flatten",
        "Slice(8, 16, dim = 3) | Flatten",
        "Slice(-1) | Flatten",
        "Select(2, dim = -1) | Flatten",
        "Glu | Flatten",
    ];
    all(graph, &[3, 5, 16], &texts)
}

#[test]
fn slices_along_any_axis() {
    check("parts", 3, parts);
    check_narrow("parts", 3, parts);
}

fn reductions(graph: &mut Graph) -> NodeId {
    let mut texts = Vec::new();
    for reduction in ["Sum", "Mean", "Max"] {
        texts.extend(["1", "2", "-1", "[1; 3]", "[1; 2; 3]"].map(|dim| format!("{reduction}({dim}) | Flatten")));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    all(graph, &[3, 37, 5], &texts)
}

#[test]
fn reductions_along_axes() {
    check("reductions", 3, reductions);
}

#[test]
fn reductions_in_sixteen_bits() {
    check_narrow("sums", 3, |graph| all(graph, &[3, 37, 5], &["Sum(2) | Flatten", "Mean(3) | Flatten"]));
}

/// Norms of every kind, in rows and in maps, along axes that lie side by side and others.
fn norms(graph: &mut Graph) -> NodeId {
    let mut texts = Vec::new();
    for p in ["1", "2", "3", "0.5", "\"inf\""] {
        texts.extend(["1", "2", "-1", "[1; 3]"].map(|dim| format!("Norm({p}, {dim}) | Flatten")));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    all(graph, &[3, 37, 5], &texts)
}

#[test]
fn norms_along_axes() {
    check("norms", 3, norms);
    // Orders 1 and 2 alone. An order below 1 magnifies the rounding of numbers near 0. With `inf`, several elements may round to the
    // largest number, and share its gradient.
    check_narrow("norms", 3, |graph| all(graph, &[3, 37, 5], &["Norm(1, 2) | Flatten", "Norm(2, 3) | Flatten"]));
}

#[test]
fn class_tokens() {
    let tokens = |graph: &mut Graph| all(graph, &[5, 24], &["ClassToken | Flatten", "ClassToken(2) | Flatten"]);
    check("class tokens", 3, tokens);
    check_narrow("class tokens", 3, tokens);
}

#[test]
fn learned_factors() {
    let slopes = |graph: &mut Graph| {
        all(graph, &[3, 5, 4], &["Prelu(3) | Flatten", "Prelu | Flatten", "Flatten | Prelu(60, init = -0.5)"])
    };
    let factors =
        |graph: &mut Graph| all(graph, &[3, 5, 4], &["Scale(init = 0.5, bias = true) | Flatten", "Flatten | Scale"]);
    check("slopes", 3, slopes);
    check("factors", 3, factors);
    check_narrow("slopes", 3, slopes);
    check_narrow("factors", 3, factors);
    check_mixed("slopes", 3, slopes);
    check_mixed("factors", 3, factors);
}

/// Layers of signals are those of maps of one row; in 16 bits the channels lie last between them.
#[test]
fn signals() {
    let signal = |text: &'static str| {
        move |graph: &mut Graph| {
            let input = graph.input(numbers(&[8, 20])).unwrap();
            chain(graph, input, text)
        }
    };
    check(
        "a signal",
        3,
        signal(
            "Conv1d(16, 3, padding = 1, bias = false) | BatchNorm1d | Relu | Conv1d(16, 5, stride = 2, groups = 2) | MaxPool1d(2) | \
             ConvTranspose1d(8, 3, stride = 2, bias = false) | InstanceNorm1d | AdaptiveAvgPool1d(3) | Flatten",
        ),
    );
    check_narrow(
        "a signal",
        3,
        signal("Conv1d(16, 3, padding = 1) | Relu | Conv1d(16, 5, stride = 2) | AvgPool1d(2) | Flatten"),
    );
    check_narrow("a longer signal", 3, signal("ConvTranspose1d(16, 3, stride = 2) | AvgPool1d(3, 2) | Flatten"));
}
