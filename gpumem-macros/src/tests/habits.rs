//! What PyTorch, Keras and Python taught.

use super::{assert_mistakes, forward, mistakes};

/// The mistakes of a body from a map of three channels to one of sixteen.
#[track_caller]
fn assert_found(body: &str, expected: &[(&str, &str)]) {
    assert_mistakes(&forward("Image<3, 8, 8>", "Map<16, 6, 6>", body, ""), expected);
}

#[test]
fn paths_of_modules() {
    assert_found(
        "[nn.Conv2d(3, 16, 3), nn.ReLU(), torch.nn.functional.relu(x), nn.Foo(1)]",
        &[
            ("nn.Conv2d(3, 16, 3)", "layers have no path; write `Conv2d`"),
            ("nn.ReLU()", "layers have no path; write `Relu`"),
            ("torch.nn.functional.relu(x)", "layers have no path; write `Relu`"),
            ("nn.Foo(1)", "layers have no path; write `Foo`"),
            (
                "Foo",
                "no layer or block is called `Foo`; declare it, as `fn Foo() -> Block { [..] }`, or see `gpumem::layers` for \
                 what there is",
            ),
        ],
    );
    assert_found("[Conv2d(16, 3), ReLU]", &[("ReLU", "no layer or block is called `ReLU`; did you mean `Relu`?")]);
}

#[test]
fn methods_and_calls() {
    let listed = "layers have no methods; they are listed, each after the one that it follows: `[Conv2d(16, 3), Relu]`";
    assert_found("x.conv2d(16, 3).relu()", &[("x.conv2d(16, 3).relu()", listed)]);
    assert_found("[Conv2d(16, 3).relu()]", &[("Conv2d(16, 3).relu()", listed)]);
    let called = "layers are not called with a value; they are listed, each after the one that it follows: \
                  `[Conv2d(16, 3), ..]`";
    assert_found("[Conv2d(16, 3)(x), Relu]", &[("(x)", called)]);
    assert_found(
        "let x = Conv2d(16, 3)(image); let x = Relu(x); [x]",
        &[("(image)", called), ("x", "`x` is bound twice; rename one")],
    );
    assert_found(
        "[Conv2d(16, 3), [] + Conv2d(16, 1)]",
        &[("[] + Conv2d(16, 1)", "layers are joined by name; write `Add([], Conv2d(16, 1))`")],
    );
}

#[test]
fn loops() {
    assert_found(
        "[Conv2d(16, 3), for i in 0..3 { [Relu] }, for j in [1, 2] { Relu }]",
        &[
            ("for", "there are no loops; write `repeat(3, [..])`"),
            ("for", "there are no loops; write `repeat(3, [..])`"),
        ],
    );
    // It runs as often as it says, and what is inside is checked.
    assert_mistakes(
        &forward("Features<8>", "Features<9>", "[for _i in 0..2 { [Linear(8), Relu(inplce)] }, Linear(7, 8)]", ""),
        &[
            ("for", "there are no loops; write `repeat(2, [..])`"),
            ("inplce", "layer 1 `Relu` has no option `inplce`; did you mean `inplace`?"),
            ("Linear(7, 8)", "layer 4 `Linear` expects 7 input features, but the previous layer produces [8]"),
            ("Features<9>", "forward promises Features<9> = [9], but the last layer produces [8]"),
        ],
    );
    let counted = "[Conv2d(16, 3), for i in 0..2 { Conv2d(i, 3) }]";
    assert_found(counted, &[("for", "there are no loops; write `repeat(2, [..])`")]);
    let expected = [("[Relu; 3]", "what is repeated is written `repeat(3, Relu)`")];
    assert_found("[Conv2d(16, 3), [Relu; 3]]", &expected);
}

#[test]
fn words_of_python_and_rust() {
    assert_found(
        "[Conv2d(16, 3, padding: 0, bias = False), Conv2d(16, 1, bias = None)]",
        &[
            ("padding", "options are written with `=`: `padding = ..`"),
            ("False", "write `false`"),
            ("None", "there is no `None`; leave the argument out"),
        ],
    );
    assert_found("return [Conv2d(16, 3)]", &[("return", "remove `return`: a body stands for its list")]);
    assert_found("vec![Conv2d(16, 3)]", &[("vec", "lists need no macro; write `[..]` without `vec!`")]);
    assert_mistakes(
        "struct Net; fn forward(&self, x: Features<8>) -> Features<8> { [Linear(8)] }",
        &[("&", "a network has no `self`: `forward` takes its inputs only, and blocks their parameters")],
    );
}

#[test]
fn arguments() {
    // PyTorch's names are understood in any place.
    assert_found("[Conv2d(in_channels = 3, out_channels = 16, kernel_size = 3)]", &[]);
    assert_found("[Conv2d(3, out_channels = 16, kernel_size = 3)]", &[]);
    assert_found("[Conv2d(16, 3, padding = \"valid\"), Conv2d(16, 4, padding = \"same\")]", &[]);
    let takes = "layer 0 `Conv2d` takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but";
    assert_found(
        "[Conv2d(in_channels = 3, out_channels = 16)]",
        &[("Conv2d(in_channels = 3, out_channels = 16)", &format!("{takes} `kernel_size` is missing"))],
    );
    assert_found(
        "[Conv2d(3, 16, 3, 1, 0)]",
        &[(
            "Conv2d(3, 16, 3, 1, 0)",
            &format!("{takes} 5 are given; options are given by name: `stride = 1, padding = 0`"),
        )],
    );
    assert_found(
        "[Conv2d(in_channels = 3, filters = 16, kernel_size = 3)]",
        &[(
            "filters = 16",
            "layer 0 `Conv2d` has no option `filters`; its options are `stride`, `padding`, `dilation`, `groups` and `bias`, \
             after (out_channels, kernel_size) or (in_channels, out_channels, kernel_size)",
        )],
    );
    assert_found(
        "[Conv2d(16, 3, padding = \"same\", stride = 2)]",
        &[(
            "padding = \"same\"",
            "layer 0 `Conv2d` has `padding = \"same\"` with stride 2; PyTorch has that for stride 1 only, so write the padding \
             as a number",
        )],
    );
}

/// Layers that are called otherwise here, or are none. Which there are is read from the layers.
#[test]
fn other_layers() {
    let family = |word: &str, layer: &str| format!("of the {word} there are {layer}");
    for (written, hint, goes_on) in [
        ("LSTM(128)", "recurrent layers are not among the layers; sequences go through attention: `".into(), false),
        ("GRU", "recurrent layers are not among the layers; sequences go through attention: `".into(), false),
        ("Softplus", family("functions", "`Relu`"), true),
        ("InstanceNorm2d(4)", family("normalisations", "`BatchNorm2d`"), true),
        ("BatchNorm3d(4)", family("normalisations", "`BatchNorm2d`"), true),
        ("Conv1d(16, 3)", family("convolutions", "`Conv2d`"), false),
        ("MultiheadAttention(4)", family("attentions", "`CausalSelfAttention`"), false),
        ("Dropout2d", "of this kind there is `Dropout`".into(), true),
        ("Dense(3)", "here it is `Linear`".into(), false),
        ("Sequential(Relu)", "layers are listed, as `[Linear(8), Relu]`".into(), false),
        ("Identity", "what passes its input on is `[]`".into(), true),
        ("LogSoftmax", "`CrossEntropy` takes the logits as they are; leave it out".into(), true),
        ("Permute(0, 2)", "see `gpumem::layers` for what changes shapes".into(), false),
        ("CrossEntropyLoss()", "the loss is a field of `TRAIN`, as `loss: CrossEntropy`".into(), true),
    ] {
        let body = format!("[Conv2d(16, 3), {written}, Conv2d(8, 16, 1)]");
        let found = mistakes(&forward("Image<3, 8, 8>", "Map<16, 6, 6>", &body, ""));
        let name = written.split('(').next().unwrap_or_default();
        assert_eq!(found[0].0, name, "{found:#?}");
        let said = format!("no layer or block is called `{name}`; {hint}");
        assert!(found[0].1.starts_with(&said), "{found:#?}");
        // Where it keeps the shape, the layer behind it has a wrong number of channels.
        assert_eq!(found.len() > 1, goes_on || written.starts_with("Dense"), "{found:#?}");
    }
    assert_found(
        "[Conv2D(16, 3), Batchnorm2d]",
        &[
            ("Conv2D", "no layer or block is called `Conv2D`; did you mean `Conv2d`?"),
            ("Batchnorm2d", "no layer or block is called `Batchnorm2d`; did you mean `BatchNorm2d`?"),
        ],
    );
}
