//! `freeze`, `detach`, `eval` and `train`.

use super::{assert_mistakes, forward, mistakes, mistakes_with, sound};
use crate::resolve::Resolved;
use gpumem_core::graph::Source;
use gpumem_core::program::Op;

/// A network of vectors.
fn vectors(body: &str, items: &str) -> String {
    forward("Features<8>", "Features<8>", body, items)
}

/// A network of maps.
fn maps(body: &str, items: &str) -> String {
    forward("Image<3, 8, 8>", "Map<4, 8, 8>", body, items)
}

/// Of each use of a parameter whether it is frozen, in order.
fn uses(resolved: &Resolved) -> Vec<(String, bool)> {
    let nodes = resolved.graph.nodes.iter();
    let uses = nodes.filter_map(|node| match node.source {
        Source::Parameter(id) => Some((resolved.graph.parameters[id].name.clone(), node.detached)),
        _ => None,
    });
    uses.collect()
}

#[test]
fn a_use_is_frozen_or_a_layer() {
    let weights = |body: &str| {
        let items = if body.contains("block(") { "#[freeze] fn block(w: Block) -> Block { [w] }" } else { "" };
        let resolved = sound(&vectors(body, items));
        let weights = uses(&resolved).into_iter().filter(|(name, _)| name.ends_with("weight"));
        weights.collect::<Vec<_>>()
    };
    let expect =
        |all: &[(&str, bool)]| all.iter().map(|(name, frozen)| (name.to_string(), *frozen)).collect::<Vec<_>>();
    let found = weights("let w = Linear(8); [Linear(8), w, Tanh, freeze(w)]");
    assert_eq!(found, expect(&[("linear.weight", false), ("w[0].weight", false), ("w[0].weight", true)]));
    for body in ["let w = freeze(Linear(8)); [w, Tanh, w]", "let w = Linear(8, freeze); [w, Tanh, w]"] {
        assert_eq!(weights(body), expect(&[("w[0].weight", true), ("w[0].weight", true)]));
    }
    let found = weights("let w = Linear(8); [block(w), Tanh, w, freeze(Tied(w))]");
    assert_eq!(found.iter().map(|(_, frozen)| *frozen).collect::<Vec<_>>(), [true, false, true], "{found:?}");
    // A layer that is frozen at its `let` is frozen in a `Tied` use, too.
    for frozen in ["freeze(Linear(8))", "Linear(8, freeze)", "[freeze(Linear(8))]"] {
        let found = weights(&format!("let w = {frozen}; [Linear(8), w, Tanh, Tied(w)]"));
        assert_eq!(found.iter().map(|(_, frozen)| *frozen).collect::<Vec<_>>(), [false, true, true], "{found:?}");
    }
    // `lora` freezes a layer wherever it is used.
    let found = weights("let w = Linear(8); [lora(2, 4.0, w), Tanh, w]");
    assert!(found.iter().all(|(name, frozen)| *frozen != name.contains("lora_")), "{found:?}");
    // The use outside reads the adapter and trains it; one that is frozen reads it alone.
    let found = weights("let w = Linear(8); [lora(2, 4.0, w), Tanh, freeze(w)]");
    let adapters: Vec<bool> =
        found.iter().filter(|(name, _)| name.contains("lora_")).map(|(_, frozen)| *frozen).collect();
    assert_eq!(adapters, [false, false, true, true]);
}

#[test]
fn what_is_wrong_with_detach() {
    sound(&vectors("[Linear(8), detach, Linear(8), Add([], detach(Sub(Relu, [])))]", ""));
    let nothing = "nothing trained lies before this `detach`; remove it";
    assert_mistakes(&vectors("[detach, Linear(8)]", ""), &[("detach", nothing)]);
    assert_mistakes(&vectors("[freeze(Linear(8)), detach(Relu), Linear(8)]", ""), &[("detach(Relu)", nothing)]);
    assert_mistakes(&vectors("[Linear(8), detach, detach, Linear(8)]", ""), &[("detach", nothing)]);
    // Somewhere it stops something.
    let block = "fn stop(x: Block) -> Block { [x, detach] }";
    sound(&vectors("[stop(freeze(Linear(8))), stop(Linear(8)), Linear(8)]", block));
    assert_mistakes(&vectors("[stop(Relu), Linear(8)]", block), &[("detach", &format!("{nothing} (in `stop(Relu)`)"))]);
    let takes = "`detach` takes one element, as `detach(from(target))`, or stands alone after a value";
    for written in ["detach()", "detach(Linear(8), Relu)", "detach(x = 2)"] {
        let text = vectors(&format!("[Linear(8), {written}, Linear(8)]"), "");
        assert_eq!(mistakes(&text), [(written.to_string(), takes.to_string())]);
    }
}

#[test]
fn what_is_wrong_with_modes() {
    sound(&maps(
        "[eval([Conv2d(4, 1), BatchNorm2d, Dropout(0.5), train(BatchNorm2d)]), freeze(eval(BatchNorm2d))]",
        "",
    ));
    for (word, takes) in [
        ("eval", "`eval` takes one element, as `eval(backbone(50))` or `freeze(eval([Conv2d(64, 3), BatchNorm2d]))`"),
        ("train", "`train` takes one element, as `freeze(train([Conv2d(64, 3), BatchNorm2d]))`"),
    ] {
        for written in [word.to_string(), format!("{word}()"), format!("{word}(Relu, Relu)")] {
            let found = mistakes(&maps(&format!("[Conv2d(4, 1), {written}]"), ""));
            assert_eq!(found, [(written, takes.to_string())]);
        }
    }
    let rest = "finds its input again from the batch's statistics and cannot rest; use `BatchNorm2d, LeakyRelu(0.01)`";
    let text = maps("[Conv2d(4, 1), eval(InplaceAbn)]", "");
    assert_mistakes(&text, &[("InplaceAbn", &format!("layer 1 `InplaceAbn` {rest}"))]);
    let text = maps("[Conv2d(4, 1), eval(InplaceAbn(activation_param = 0.2))]", "");
    assert!(mistakes(&text)[0].1.ends_with("use `BatchNorm2d, LeakyRelu(0.2)`"), "{:?}", mistakes(&text));
    let text = maps("[Conv2d(4, 1), eval()]", "fn eval() -> Block { [Relu] }");
    assert_mistakes(&text, &[("eval", "`eval` has a meaning already; rename the block")]);
}

/// `freeze` says nothing of statistics and of dropout: whoever writes it says which is meant.
#[test]
fn what_is_frozen_asks_for_a_mode() {
    let normalises = |layer: &str| {
        format!(
            "layer 1 `{layer}` is frozen, but would still normalise by the batch and move its statistics; write `freeze(eval(..))` for \
             statistics at rest, or `freeze(train(..))` if that is meant"
        )
    };
    let drops = |layer: &str| {
        format!(
            "layer 1 `{layer}` is frozen, but would still drop at random; write `freeze(eval(..))` for no dropout, or \
             `freeze(train(..))` if that is meant"
        )
    };
    let network = |layers: &str| {
        let blocks = [
            ("body()", "fn body() -> Block { [Conv2d(4, 1), BatchNorm2d, Relu, BatchNorm2d] }"),
            ("rests()", "#[freeze] fn rests() -> Block { [BatchNorm2d] }"),
        ];
        let called = blocks.iter().filter(|(call, _)| layers.contains(call)).map(|(_, block)| *block);
        maps(layers, &called.collect::<String>())
    };
    for (body, place) in [
        ("[Conv2d(4, 1), freeze([BatchNorm2d, Relu, BatchNorm2d])]", "freeze([BatchNorm2d, Relu, BatchNorm2d])"),
        ("[freeze(body())]", "freeze(body())"),
        (
            "[freeze([freeze(Conv2d(4, 1)), freeze(BatchNorm2d)])]",
            "freeze([freeze(Conv2d(4, 1)), freeze(BatchNorm2d)])",
        ),
        ("[Conv2d(4, 1), BatchNorm2d(freeze)]", "BatchNorm2d(freeze)"),
        ("[Conv2d(4, 1), rests()]", "rests()"),
        ("let norm = BatchNorm2d; [Conv2d(4, 1), freeze(norm), Tanh, norm]", "freeze(norm)"),
    ] {
        assert_mistakes(&network(body), &[(place, &normalises("BatchNorm2d"))]);
    }
    for word in ["eval", "train"] {
        sound(&network(&format!("[freeze({word}(body()))]")));
        sound(&network(&format!("[{word}(freeze(body()))]")));
        sound(&network(&format!("[Conv2d(4, 1), {word}(rests())]")));
    }
    let undone = "layer 1 `InplaceAbn` is frozen, but would still normalise by the batch and move its statistics; write \
                  `freeze(train(..))` if that is meant, or use `BatchNorm2d, LeakyRelu(0.01)` inside of `freeze(eval(..))`";
    assert_mistakes(&maps("[Conv2d(4, 1), freeze(InplaceAbn)]", ""), &[("freeze(InplaceAbn)", undone)]);
    let sequence =
        |layer: &str| forward("Sequence<4, 8>", "Sequence<4, 8>", &format!("[Linear(8), freeze({layer})]"), "");
    for layer in
        ["Dropout(0.5)", "DropPath(0.1)", "CausalSelfAttention(2, dropout = 0.1)", "Lstm(8, layers = 2, dropout = 0.5)"]
    {
        let name = layer.split('(').next().unwrap();
        let found = mistakes(&sequence(layer));
        assert_eq!(found, [(format!("freeze({layer})"), drops(name))]);
        sound(&sequence(&format!("eval({layer})")));
    }
    for layer in
        ["Dropout(0.0)", "CausalSelfAttention(2)", "Lstm(8, layers = 2)", "TransformerBlock(8, 2, 16, dropout = 0.0)"]
    {
        sound(&sequence(layer));
    }
    // LoRA trains with what drops, as PEFT does, and adapters are for what is not frozen.
    sound(&forward("Sequence<4, 8>", "Sequence<4, 8>", "[lora(2, 4.0, [Linear(8), Dropout(0.5)])]", ""));
    let frozen = "all linear maps in this `lora` are inside of `freeze`, where no adapter is trained; remove `freeze`: `lora` freezes what \
                  it is around";
    assert_mistakes(&vectors("[lora(2, 4.0, freeze(Linear(8)))]", ""), &[("lora(2, 4.0, freeze(Linear(8)))", frozen)]);
}

/// A block of another module knows nothing of the words around its call.
#[test]
fn modes_reach_into_blocks_of_other_modules() {
    let module = "fn normed() -> Block { [Conv2d(4, 1), BatchNorm2d, Dropout(0.5)] }";
    let network = |body: &str| {
        format!("pub struct Net; use blocks parts; fn forward(x: Image<3, 8, 8>) -> Map<4, 8, 8> {{ {body} }}")
    };
    let found = mistakes_with(&network("[freeze(normed())]"), &[module]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "freeze(normed())");
    assert!(
        found[0].1.starts_with("layer 1 `BatchNorm2d` is frozen, but would still normalise by the batch"),
        "{found:?}"
    );
    assert_eq!(mistakes_with(&network("[freeze(eval(normed()))]"), &[module]), []);
    let resolved = super::resolved_with(&network("[eval(normed())]"), &[module]).0.unwrap();
    let ops = resolved.graph.nodes.iter().filter_map(|node| match &node.source {
        Source::Op { op, .. } => Some(op),
        _ => None,
    });
    let ops: Vec<&Op> = ops.collect();
    assert!(matches!(ops[..], [Op::Convolution(_), Op::BatchNorm(norm)] if norm.eval), "{ops:?}");
}

#[test]
fn words_of_pytorch() {
    let nothing = "nothing flows back through `detach(x)`, or through `detach` after a value";
    let found = |body: &str| mistakes(&vectors(body, ""));
    let unknown = |name: &str, hint: &str| format!("no layer or block is called `{name}`; {hint}");
    for (name, hint) in [
        ("Detach", "did you mean `detach`?"),
        ("Eval", "did you mean `eval`?"),
        ("StopGradient", nothing),
        ("NoGrad", nothing),
    ] {
        assert_eq!(found(&format!("[Linear(8), {name}, Linear(8)]"))[0].1, unknown(name, hint));
    }
    let method = |name: &str| format!("layers have no methods, and there is no layer `{name}`; ");
    for (written, name, hint) in [
        ("x.detach()", "detach", nothing),
        (
            "model.eval()",
            "eval",
            "what computes in training as it does without is written `eval(x)`; a network has no mode: `forward` is never training",
        ),
        (
            "model.train()",
            "train",
            "what computes in training as training does is written `train(x)`; a network has no mode: `train_step` is always training",
        ),
        ("x.requires_grad_(false)", "requires_grad_", "what is not trained is written `freeze(..)`"),
    ] {
        let all = found(&format!("[Linear(8), {written}]"));
        assert_eq!(all, [(written.to_string(), format!("{}{hint}", method(name)))]);
    }
}
