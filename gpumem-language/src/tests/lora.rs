//! `lora(..)`.

use super::{assert_mistakes, forward, mistakes, sound};
use gpumem_core::Role;
use gpumem_core::graph::Source;
use gpumem_core::program::Op;

const TAKES: &str = "`lora` takes a rank, an alpha and one element, as `lora(8, 16.0, [Linear(64), Relu])` or `lora(8, 16.0, \
                     backbone(50), targets = \"q_proj, v_proj\")`";

#[test]
fn adapters() {
    let resolved = sound(&forward(
        "Sequence<4, 8>",
        "Sequence<4, 8>",
        "[tap(start), lora(2, 4.0, [repeat(2, block(4 - 2, Linear(8))), Add([], from(start))], targets = \"linear, *.qkv\"), Linear(8)]",
        "fn block(heads: usize, inside: Block) -> Block { [inside, LayerNorm, CausalSelfAttention(heads)] }",
    ));
    let names = |is_frozen: bool| {
        let parameters = resolved.graph.parameters.iter().zip(resolved.graph.frozen_parameters());
        let named = parameters.filter(|(_, frozen)| *frozen == is_frozen);
        named.map(|(parameter, _)| parameter.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(names(true).len(), 2 * (2 + 2 + 4));
    let adapted = [
        "block[0].linear",
        "block[0].causal_self_attention.qkv",
        "block[1].linear",
        "block[1].causal_self_attention.qkv",
    ];
    let expected = adapted.iter().flat_map(|path| ["A", "B"].map(|which| format!("{path}.lora_{which}.weight")));
    let expected: Vec<String> =
        ["linear.weight", "linear.bias"].map(String::from).into_iter().chain(expected).collect();
    assert_eq!(names(false), expected);
    // Layers are counted as before, and each has what was added to it.
    let first = &resolved.graph.rows[0];
    assert_eq!((first.path.as_str(), first.parameters), ("block[0].linear", 8 * 8 + 8 + 2 * 2 * 8));
    assert_eq!(resolved.graph.rows.len(), 2 * 3 + 2);
}

#[test]
fn shared_maps_share_their_adapter() {
    let resolved = sound(&forward(
        "Features<8>",
        "Features<8>",
        "let w = Linear(8, name = \"w\"); lora(rank = 2, alpha = 4, [w, Relu, w, Tied(w)])",
        "",
    ));
    let names: Vec<&str> = resolved.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["w.weight", "w.bias", "w.lora_A.weight", "w.lora_B.weight"]);
    let products = resolved.graph.macs(resolved.outputs.as_deref().unwrap()).iter().sum::<u64>();
    assert_eq!(products, 3 * 64 + 2 * 2 * 16);
}

#[test]
fn what_is_no_adapter() {
    for written in
        ["lora()", "lora(Linear(8))", "lora(8, Linear(8))", "lora(8, 16.0)", "lora(8, 16.0, Linear(8), Relu)"]
    {
        let text = forward("Features<8>", "Features<8>", &format!("[{written}, Linear(8)]"), "");
        assert_eq!(mistakes(&text), [(written.to_string(), TAKES.to_string())]);
    }
    let around = |arguments: &str| {
        let body = format!("[lora({arguments}), Linear(8)]");
        forward("Features<8>", "Features<8>", &body, "")
    };
    let inner = "[Linear(8, name = \"fc1\"), Relu, Linear(8, name = \"fc2\")]";
    for (arguments, place, message) in [
        (format!("0, 16.0, {inner}"), "0", "the rank of an adapter is 1 to 65536, not 0; 8 is usual"),
        (format!("8, -1.0, {inner}"), "-1.0", "the alpha of an adapter is above 0, not -1.0; twice the rank is usual"),
        (format!("8, true, {inner}"), "true", "the alpha of an adapter is a number, as 16.0, not `true` or `false`"),
        (format!("8, alphas = 16.0, {inner}"), "alphas = 16.0", "`lora` has no option `alphas`; did you mean `alpha`?"),
        (
            format!("8, 16.0, {inner}, dropout = 0.1"),
            "dropout = 0.1",
            "`lora` has no option `dropout`; there are `rank`, `alpha`, `targets` and `base`",
        ),
        (
            format!("8, 16.0, base = Nf8, {inner}"),
            "Nf8",
            "`base`, how weights that are not trained are kept, is `Int8`, `Nf4` or `Nf4Double`, not `Nf8`; did you mean `Nf4`?",
        ),
        (
            format!("8, 16.0, {inner}, base = \"Int8\""),
            "\"Int8\"",
            "`base`, how weights that are not trained are kept, is `Int8`, `Nf4` or `Nf4Double`, not `\"Int8\"`; write `base = Int8`",
        ),
        (
            format!("8, 16.0, base = 16, {inner}"),
            "16",
            "`base`, how weights that are not trained are kept, is `Int8`, `Nf4` or `Nf4Double`, not `16`; without `base` they are in the network's precision",
        ),
        (
            format!("8, 16.0, base = Nf4, base = Nf4, {inner}"),
            "base = Nf4",
            "`lora` has no option `base`; it is given twice",
        ),
        (
            "8, 16.0, base = Nf4, [Relu, LayerNorm]".into(),
            "lora(8, 16.0, base = Nf4, [Relu, LayerNorm])",
            "`lora` has no linear map inside that could have an adapter; put it around a `Linear` or an attention",
        ),
        (
            format!("8, 16.0, {inner}, targets = \"fc1, fc3\""),
            "\"fc1, fc3\"",
            "no linear map in this `lora` is called `fc3`; did you mean `fc1`?",
        ),
        (
            format!("8, 16.0, {inner}, targets = \"query\""),
            "\"query\"",
            "no linear map in this `lora` is called `query`; there are `fc1`, `fc2`",
        ),
        (
            format!("8, 16.0, {inner}, targets = \"fc1,\""),
            "targets = \"fc1,\"",
            "a target is empty; `targets` are names of linear maps with commas between them, as `targets = \"q_proj, v_proj\"`",
        ),
        (
            format!("8, 16.0, {inner}, targets = [\"fc1\", \"fc2\"]"),
            "[\"fc1\", \"fc2\"]",
            "`targets` are one text with commas; write `targets = \"fc1, fc2\"`",
        ),
        (
            "8, 16.0, [Relu, LayerNorm]".into(),
            "lora(8, 16.0, [Relu, LayerNorm])",
            "`lora` has no linear map inside that could have an adapter; put it around a `Linear` or an attention",
        ),
    ] {
        assert_mistakes(&around(&arguments), &[(place, message)]);
    }
    assert_mistakes(
        &around("8, 16.0, [Linear(8), lora(4, 8.0, Linear(8))]"),
        &[(
            "lora(4, 8.0, Linear(8))",
            "`lora` stands inside another `lora`, but a linear map has one adapter; remove one of them",
        )],
    );
}

/// What is kept in codes are matrices that only linear maps read.
#[test]
fn bases() {
    let resolved = sound(&forward(
        "Tokens<4>",
        "TokenLogits<4, 9>",
        "let words = Embedding(9, 8, name = \"words\"); let twice = Linear(8, name = \"twice\"); let third = Linear(8, name = \"third\");
         lora(2, 4.0, base = Nf4, targets = \"twice\", [
             words, twice, Relu, LayerNorm(name = \"norm\"), MultiHeadAttention(2, name = \"attn\"), twice, third, Tied(third), Tied(words),
         ])",
        "",
    ));
    let coded: Vec<(&str, String)> = resolved
        .graph
        .parameters
        .iter()
        .filter(|parameter| parameter.role == Role::Nf4)
        .map(|parameter| (parameter.name.as_str(), parameter.shape.to_string()))
        .collect();
    let expected = [("twice.weight", "[8, 8]"), ("attn.in_proj_weight", "[24, 8]"), ("attn.out_proj.weight", "[8, 8]")];
    assert_eq!(coded, expected.map(|(name, shape)| (name, shape.to_string())));
    let scales: Vec<(&str, String)> = resolved
        .graph
        .parameters
        .iter()
        .filter(|parameter| parameter.role == Role::Scale)
        .map(|parameter| (parameter.name.as_str(), parameter.shape.to_string()))
        .collect();
    let expected =
        [("twice.weight.absmax", "[1]"), ("attn.in_proj_weight.absmax", "[3]"), ("attn.out_proj.weight.absmax", "[1]")];
    assert_eq!(scales, expected.map(|(name, shape)| (name, shape.to_string())));
    // Each map reads the codes of its weight and their scales; a weight that is used twice is read twice.
    let graph = &resolved.graph;
    let name = |id: usize| match graph.nodes[id].source {
        Source::Parameter(parameter) => graph.parameters[parameter].name.as_str(),
        _ => "",
    };
    let maps = graph.nodes.iter().filter_map(|node| match &node.source {
        Source::Op { op: Op::CodedProduct(_), inputs, .. } => Some([name(inputs[1]), name(inputs[2]), name(inputs[3])]),
        _ => None,
    });
    let of = |layer: &str| ["weight", "weight.absmax", "bias"].map(|end| format!("{layer}{end}"));
    let expected = [of("twice."), of("attn.in_proj_"), of("attn.out_proj."), of("twice.")];
    assert_eq!(maps.map(|names| names.map(String::from)).collect::<Vec<_>>(), expected);
    // Parameters are counted as elements, whatever they take.
    assert_eq!(resolved.graph.rows[1].parameters, 8 * 8 + 8 + 2 * 2 * 8);
}

#[test]
fn a_base_of_nothing() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "let w = Linear(8, name = \"w\"); lora(2, 4.0, [w, Relu, Tied(w)], base = Int8)",
        "",
    );
    assert_mistakes(
        &text,
        &[(
            "Int8",
            "`base` is for weights that only linear maps read, and here each is shared with another use; leave `base` out",
        )],
    );
}
