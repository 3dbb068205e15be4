//! `init`, `bias_init`, and values of their own.

use super::{assert_mistakes, forward, sound};
use gpumem_core::program::Init;

fn vectors(body: &str, items: &str) -> String {
    forward("Features<8>", "Features<8>", body, items)
}

/// How each parameter of a network of vectors begins.
fn begins(body: &str, items: &str) -> Vec<(String, Init)> {
    let parameters = sound(&vectors(body, items)).graph.parameters;
    parameters.into_iter().map(|parameter| (parameter.name, parameter.init)).collect()
}

/// How the first parameter begins.
fn first(body: &str) -> Init {
    begins(body, "")[0].1
}

#[test]
fn initialisers_are_those_of_pytorch() {
    let layer = |init: &str| first(&format!("[Linear(2, init = {init}), Linear(8)]"));
    assert_eq!(layer("Zeros"), Init::Constant(0.0));
    assert_eq!(layer("Ones"), Init::Constant(1.0));
    assert_eq!(layer("Constant(0.5)"), Init::Constant(0.5));
    assert_eq!(layer("0.5"), Init::Constant(0.5));
    assert_eq!(layer("Normal"), Init::Normal(1.0));
    assert_eq!(layer("Normal(0.02)"), Init::Normal(0.02));
    assert_eq!(layer("Normal(std = 0.02, mean = 1.0)"), Init::NormalAround { mean: 1.0, deviation: 0.02 });
    assert_eq!(layer("TruncatedNormal(0.02)"), Init::TruncatedNormal { deviation: 0.02, low: -2.0, high: 2.0 });
    assert_eq!(layer("Uniform(0.1)"), Init::Uniform(0.1));
    assert_eq!(layer("Uniform(-0.1, 0.3)"), Init::Between { low: -0.1, high: 0.3 });
    assert_eq!(layer("Orthogonal(gain = 2.0)"), Init::Orthogonal { gain: 2.0, rows: 2 });
    // The weight is [2, 8]: 8 inputs and 2 outputs. `nn.init.xavier_uniform_(torch.empty(2, 8))` draws within sqrt(6 / 10).
    let close = |found: Init, expected: Init| match (found, expected) {
        (Init::Uniform(found), Init::Uniform(expected)) | (Init::Normal(found), Init::Normal(expected)) => {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        other => panic!("{other:?}"),
    };
    close(layer("XavierUniform"), Init::Uniform(0.6f64.sqrt()));
    close(layer("XavierNormal(gain = 2.0)"), Init::Normal(2.0 * 0.2f64.sqrt()));
    close(layer("KaimingUniform"), Init::Uniform((6.0f64 / 8.0).sqrt()));
    close(layer("KaimingUniform(a = 2.0)"), Init::Uniform((6.0f64 / 5.0 / 8.0).sqrt()));
    close(layer("KaimingNormal(mode = \"fan_out\", nonlinearity = \"relu\")"), Init::Normal(1.0));
    close(layer("KaimingNormal(nonlinearity = \"tanh\")"), Init::Normal(5.0 / 3.0 / 8.0f64.sqrt()));
    close(layer("KaimingNormal(nonlinearity = \"linear\")"), Init::Normal(1.0 / 8.0f64.sqrt()));
    // A kernel counts for both fans.
    let maps = forward("Image<3, 8, 8>", "Map<4, 8, 8>", "[Conv2d(4, 3, padding = 1, init = XavierNormal)]", "");
    close(sound(&maps).graph.parameters[0].init, Init::Normal((2.0f64 / (27.0 + 36.0)).sqrt()));
}

#[test]
fn an_initialiser_is_for_weights_or_biases() {
    let linear = begins("[Linear(8, init = Ones, bias_init = Zeros)]", "");
    let expected = [("linear.weight", Init::Constant(1.0)), ("linear.bias", Init::Constant(0.0))];
    assert_eq!(linear, expected.map(|(name, init)| (name.to_string(), init)));
    // The scale of a norm, as for residual branches that begin as nothing.
    assert_eq!(begins("[BatchNorm1d(init = Zeros, bias_init = 0.5)]", "")[0].1, Init::Constant(0.0));
    // A layer's own number stays its own.
    assert_eq!(first("[Scale(init = 0.1)]"), Init::Constant(0.1));
    assert_eq!(first("[Scale(init = Normal(0.1))]"), Init::Normal(0.1));
    let normed = begins("[Linear(8, weight_norm, init = Orthogonal)]", "");
    assert_eq!(normed[0].1, Init::Orthogonal { gain: 1.0, rows: 8 });
    assert_eq!(normed[1].1, Init::Lengths);
    let of_sequences = |body: &str| {
        let parameters = sound(&forward("Sequence<3, 8>", "Sequence<3, 8>", body, "")).graph.parameters;
        parameters.into_iter().map(|parameter| (parameter.name, parameter.init)).collect::<Vec<_>>()
    };
    for (name, init) in of_sequences("[Lstm(8, init = Orthogonal, bias_init = Ones)]") {
        let expected =
            if name.contains("bias") { Init::Constant(1.0) } else { Init::Orthogonal { gain: 1.0, rows: 32 } };
        assert_eq!(init, expected, "{name}");
    }
    // The row of padding stays 0.
    let tokens = |init: &str| {
        let body = format!("[Embedding(20, 8, padding_idx = 1, init = {init})]");
        sound(&forward("Tokens<3>", "Sequence<3, 8>", &body, "")).graph.parameters[0].init
    };
    assert_eq!(tokens("Normal(0.02)"), Init::NormalWithZeros { deviation: 0.02, zeros: [8, 8] });
    assert_eq!(tokens("Zeros"), Init::Constant(0.0));
}

/// What is random inside begins as they say; factors of 1 and shifts of 0 do not, and a layer's own word is nearer.
#[test]
fn initialisers_stand_around_layers() {
    let body = "[init(Normal(0.02), [Linear(8), LayerNorm, Scale(init = 0.1), block(Ones), init(Zeros, Linear(8))], bias_init = Zeros), Linear(8)]";
    let inits =
        begins(&body.replace("block(Ones)", "block(1.0)"), "fn block(x: f64) -> Block { [Linear(8, init = x)] }");
    let of = |name: &str| inits.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("{name}: {inits:?}")).1;
    assert_eq!(of("linear[0].weight"), Init::Normal(0.02));
    assert_eq!(of("linear[0].bias"), Init::Constant(0.0));
    assert_eq!(of("layer_norm.weight"), Init::Constant(1.0));
    assert_eq!(of("scale.weight"), Init::Constant(0.1));
    assert_eq!(of("block.linear.weight"), Init::Constant(1.0));
    assert_eq!(of("block.linear.bias"), Init::Constant(0.0));
    assert_eq!(of("linear[1].weight"), Init::Constant(0.0));
    assert!(matches!(of("linear[2].weight"), Init::Uniform(_)));
}

#[test]
fn a_parameter_is_a_value_of_its_own() {
    assert_eq!(first("[Add([], Parameter(8))]"), Init::Normal(1.0));
    let named =
        begins("[Add([], Parameter(8, init = Zeros, name = \"shift\"), Parameter(8, parameter = \"prompt\"))]", "");
    assert_eq!(named[0], ("shift.weight".into(), Init::Constant(0.0)));
    assert_eq!(named[1].0, "prompt");
}

#[test]
fn what_is_wrong_with_an_initialiser() {
    let wrong = |body: &str, place: &str, message: &str| assert_mistakes(&vectors(body, ""), &[(place, message)]);
    let layer = |init: &str| format!("[Linear(8, init = {init})]");
    wrong(
        &layer("Xavier"),
        "Xavier",
        "`init` is given `Xavier`, which is no initialiser; did you mean `XavierNormal`?",
    );
    wrong(
        &layer("LeCun(2)"),
        "LeCun(2)",
        "`init` is given `LeCun`, which is no initialiser; write a number or one of `Zeros`, `Ones`, `Constant`, `Normal`, \
         `TruncatedNormal`, `Uniform`, `XavierUniform`, `XavierNormal`, `KaimingUniform`, `KaimingNormal`, `Orthogonal`",
    );
    wrong(
        &layer("true"),
        "true",
        "`init` is an initialiser as `Normal(0.02)`, or a finite number, and not `true` or `false`",
    );
    wrong(&layer("Normal(-1.0)"), "-1.0", "initialiser `Normal` needs `std` to be at least 0, not -1");
    wrong(
        &layer("Normal(1.0, sigma = 2.0)"),
        "sigma = 2.0",
        "initialiser `Normal` has no option `sigma`; its only option is `mean`, after () or (std)",
    );
    wrong(
        &layer("TruncatedNormal(0.1, a = 1.0, b = 0.5)"),
        "Linear(8, init = TruncatedNormal(0.1, a = 1.0, b = 0.5))",
        "layer 0 `Linear` begins normal between a = 1 and b = 0.5; `a` is below `b`",
    );
    wrong(
        &layer("Uniform(0.5, 0.1)"),
        "Linear(8, init = Uniform(0.5, 0.1))",
        "layer 0 `Linear` begins uniform from 0.5 to 0.1; the first of two bounds is the lower one",
    );
    wrong("[Tanh(init = Zeros)]", "Tanh(init = Zeros)", "layer 0 `Tanh` has no weight to begin so; remove `init`");
    wrong(
        "[Linear(8, bias = false, bias_init = Zeros)]",
        "Linear(8, bias = false, bias_init = Zeros)",
        "layer 0 `Linear` has no bias to begin so; remove `bias_init`",
    );
    wrong(
        "[Linear(8, bias_init = XavierUniform)]",
        "Linear(8, bias_init = XavierUniform)",
        "layer 0 `Linear` begins with a deviation that depends on inputs and outputs, but a parameter of [8] has neither; use \
         `Normal(..)` or `Uniform(..)`",
    );
    wrong(
        "[Add([], Parameter(8, init = Orthogonal))]",
        "Parameter(8, init = Orthogonal)",
        "layer 0 `Parameter` begins with orthogonal rows, but a parameter of [8] is no matrix; use `Normal(..)` or `Uniform(..)`",
    );
    let padding =
        forward("Tokens<3>", "Sequence<3, 8>", "[Embedding(20, 8, padding_idx = 1, init = XavierUniform)]", "");
    assert_mistakes(
        &padding,
        &[(
            "Embedding(20, 8, padding_idx = 1, init = XavierUniform)",
            "layer 0 `Embedding` has a row of padding, which begins as 0; write `init = Normal(..)`, which leaves that row as it is",
        )],
    );
    let one = "`init` takes an initialiser and one element, as `init(Normal(0.02), [Conv2d(64, 3), Relu])`, and maybe `bias_init = Zeros`";
    wrong("[Linear(8), init(Linear(8))]", "init(Linear(8))", one);
    wrong("[Linear(8), init(Zeros, Linear(8), bias = Zeros)]", "init(Zeros, Linear(8), bias = Zeros)", one);
}

#[test]
fn what_is_wrong_with_a_parameter() {
    let wrong = |body: &str, expected: &[(&str, &str)]| assert_mistakes(&vectors(body, ""), expected);
    let shape = "layer 0 `Parameter` needs a shape as `(100, 256)` or a whole number, all above 0, for `shape`, not";
    wrong("[Add([], Parameter(0))]", &[("0", &format!("{shape} 0"))]);
    wrong("[Add([], Parameter((2, 0)))]", &[("(2, 0)", &format!("{shape} (2, 0)"))]);
    wrong("[Add([], Parameter(1.5))]", &[("1.5", &format!("{shape} 1.5"))]);
    wrong(
        "[Parameter(8)]",
        &[(
            "Parameter(8)",
            "layer 0 `Parameter` gives the same for every sample, so that what arrives is lost here; add it: `Add([], Parameter(8))`",
        )],
    );
    wrong(
        "[Linear(8), Add([], Parameter((1, 1, 1, 1, 1, 1, 8)))]",
        &[("(1, 1, 1, 1, 1, 1, 8)", "layer 1 `Parameter` has 7 axes; a tensor has no more than 6")],
    );
}

#[test]
fn what_is_wrong_with_a_weight_that_is_computed() {
    let maps = |body: &str| forward("Image<4, 8, 8>", "Map<4, 8, 8>", body, "");
    sound(&maps("[Convolve2d([], [Parameter((4, 4, 3, 3)), Tanh], padding = \"same\")]"));
    let sizes = "layer 1 `Convolve2d` needs a weight [out_channels, in_channels / groups, kernel height, kernel width], but branch 1 produces [4, 4]";
    assert_mistakes(&maps("[Convolve2d([], Parameter((4, 4)))]"), &[("Parameter((4, 4))", sizes)]);
    let each = "layer 1 `Convolve2d` has one weight for all samples, but branch 1 differs between samples; let it begin at a `Parameter`, not at an input";
    assert_mistakes(&maps("[Convolve2d([], [Reshape(4, 4, 4, 4)])]"), &[("[Reshape(4, 4, 4, 4)]", each)]);
    let channels = "layer 1 `Convolve2d` has 4 input channels in groups = 2, which need a weight of 2 channels, but branch 1 produces [4, 4, 1, 1]";
    assert_mistakes(
        &maps("[Convolve2d([], Parameter((4, 4, 1, 1)), groups = 2)]"),
        &[("Parameter((4, 4, 1, 1))", channels)],
    );
}
