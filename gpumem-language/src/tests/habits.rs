//! What PyTorch, Keras and Python taught.

use super::{assert_mistakes, forward, mistakes, sound};
use gpumem_core::train::optim::Optimizer;

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
            (
                "Foo",
                "no layer or block is called `Foo`; see `gpumem::layers` for what there is; what those can build is a block, as \
                 `fn foo() -> Block { [..] }`, and what they cannot is an `operation!`",
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
        "[Conv2d(16, 3), [] + Conv2d(16, 1)]",
        &[("[] + Conv2d(16, 1)", "layers are joined by name; write `Add([], Conv2d(16, 1))`")],
    );
}

/// What is written in place of a name is a network.
#[test]
fn convolutions_of_timm() {
    let same = "no layer or block is called `StdConv2dSame`; it is `Conv2d(64, 3, padding = \"same\", standardized)`; where stride 2 \
                meets an even size it pads at the end only, as `[Pad((0, 1, 0, 1)), Conv2d(64, 3, stride = 2, standardized)]`";
    let network = |output: &str, body: &str| forward("Image<3, 8, 8>", output, body, "");
    assert_mistakes(&network("Map<64, 8, 8>", "StdConv2dSame(3, 64, 3)"), &[("StdConv2dSame", same)]);
    sound(&network("Map<64, 8, 8>", "Conv2d(64, 3, padding = \"same\", standardized)"));
    sound(&network("Map<64, 4, 4>", "[Pad((0, 1, 0, 1)), Conv2d(64, 3, stride = 2, standardized)]"));
}

#[test]
fn loops() {
    assert_found(
        "[Conv2d(16, 3), for i in 0..3 { [Relu] }, for j in [1, 2] { Relu }]",
        &[
            ("for", "there are no loops; write `repeat(3, [..])`"),
            ("for", "there are no loops; write `repeat(n, [..])`"),
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
            "layer 0 `Conv2d` has no option `filters`; its options are `stride`, `padding`, `dilation`, `groups`, `bias`, \
             `standardized`, `gamma`, `eps`, `weight_norm`, `weight_norm_names` and `spectral_norm`, \
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
        ("LSTM(128)", "did you mean `Lstm`?".into(), false),
        ("GRU(128)", "did you mean `Gru`?".into(), false),
        ("RNN(128)", "did you mean `Rnn`?".into(), false),
        ("SimpleRNN(128)", "here it is `Rnn`".into(), false),
        ("LSTMCell(128)", "a cell is one step; all steps of a sequence go through `Lstm(128)`".into(), false),
        ("Bidirectional", "it is an option, as `Lstm(128, bidirectional = true)`".into(), false),
        ("ConvLSTM2D(8, 3)", "of the recurrent layers there are `Lstm`, `Gru` and `Rnn`".into(), false),
        ("Softmin", "it is `[Affine(-1.0), Softmax]`".into(), true),
        ("Clamp(0.0, 6.0)", "it is `Hardtanh(0.0, 1.0)`, with the bounds that are meant".into(), true),
        ("GlobalMaxPool", "it is `[AdaptiveMaxPool2d(1), Flatten]`".into(), false),
        ("Min(1)", "it is `[Affine(-1.0), Max(1), Affine(-1.0)]`".into(), false),
        ("ReflectionPad3d(1)", "it is `Pad(1, mode = \"reflect\")`".into(), false),
        ("Threshold(0.1, 20.0)", family("functions", "`Gelu`"), true),
        (
            "WeightNorm(4)",
            "it is an option of the layer whose weight it is, as `Linear(64, weight_norm)`".into(),
            false,
        ),
        ("MaxPooling3D(2)", "here it is `MaxPool3d`".into(), false),
        ("GELUs", "did you mean `Gelu`?".into(), true),
        ("Embed(3, 4)", "here it is `Embedding`".into(), false),
        ("GlobalAveragePooling2D", "here it is `GlobalAvgPool`".into(), false),
        ("ZeroPad2d(1)", "here it is `Pad`".into(), true),
        ("TransformerEncoderLayer(8)", "an encoder's layer is `TransformerBlock(512, 8)`".into(), false),
        ("Adam(1)", "an optimizer is no layer but a field of `TRAIN`, as `optimizer: Adam { lr: 1e-3 }`".into(), true),
        ("SyncBatchNorm(4)", family("normalisations", "`BatchNorm2d`"), true),
        ("DeformConv2d(16, 3)", family("convolutions", "`Conv2d`"), false),
        ("MultiheadAttention(4)", "did you mean `MultiHeadAttention`?".into(), true),
        ("GroupQueryAttention(4)", family("attentions", "`CausalSelfAttention(heads)`"), false),
        ("AlphaDropout", "of this kind there is `Dropout`".into(), true),
        ("StochasticDepth(0.1)", "here it is `DropPath`".into(), true),
        ("Dense(3)", "here it is `Linear`".into(), false),
        ("Sequential(Relu)", "layers are listed, as `[Linear(8), Relu]`".into(), true),
        ("Identity", "what passes its input on is `[]`".into(), true),
        ("Unflatten(0, 2)", "of what changes shapes there are `Flatten`".into(), false),
        ("CTCLoss(0)", "a loss is no layer but a field of `TRAIN`, as `loss: Ctc { target_length: 32 }`".into(), true),
        ("CosineEmbeddingLoss", "a loss is no layer but a field of `TRAIN`, as `loss: CosineEmbedding`".into(), true),
        ("CrossEntropyLoss()", "a loss is no layer but a field of `TRAIN`, as `loss: CrossEntropy`".into(), true),
    ] {
        let body = format!("[Conv2d(16, 3), {written}, Conv2d(8, 16, 1)]");
        let found = mistakes(&forward("Image<3, 8, 8>", "Map<16, 6, 6>", &body, ""));
        let name = written.split('(').next().unwrap_or_default();
        assert_eq!(found[0].0, name, "{found:#?}");
        let said = format!("no layer or block is called `{name}`; {hint}");
        assert!(found[0].1.starts_with(&said), "{found:#?}");
        // Where it keeps the shape, the layer behind it has a wrong number of channels.
        let meant = ["Dense", "GlobalAverage"].iter().any(|name| written.starts_with(name));
        assert_eq!(found.len() > 1, goes_on || meant, "{found:#?}");
    }
    let optimizers: Vec<String> = Optimizer::ROWS.iter().map(|row| format!("`{}`", row.name)).collect();
    let (last, others) = optimizers.split_last().expect("there are some");
    let found = mistakes(&forward("Features<3>", "Features<3>", "[Lion(0.1)]", ""));
    assert!(found[0].1.ends_with(&format!("; it is {} or {last}", others.join(", "))), "{found:#?}");
    assert_found(
        "[Conv2D(16, 3), Batchnorm2d]",
        &[
            ("Conv2D", "no layer or block is called `Conv2D`; did you mean `Conv2d`?"),
            ("Batchnorm2d", "no layer or block is called `Batchnorm2d`; did you mean `BatchNorm2d`?"),
        ],
    );
}

/// Names that stand for values elsewhere, and for layers here.
#[test]
fn values_with_names() {
    let called = "layers are not called with a value; they are listed, each after the one that it follows: `[Conv2d(16, 3), Relu]`";
    for body in [
        "let x = Conv2d(16, 3)(image); let x = Relu(x); [x]",
        "let x = Conv2d(16, 3)(image); let x = Relu(x); x",
        "let y = Conv2d(16, 3)(image); Relu()(y)",
        "let mut y = Conv2d(16, 3)(image); [Relu(y)]",
    ] {
        let found = mistakes(&forward("Image<3, 8, 8>", "Map<16, 6, 6>", body, ""));
        let listed = ("(image)".to_string(), called.to_string());
        assert_eq!(found.last(), Some(&listed), "{body}: {found:#?}");
        assert_eq!(found.len(), 1, "{body}: {found:#?}");
    }
    assert_found(
        "let y = Conv2d(16, 3)(x); let z = Relu(y); z + y",
        &[(
            "(x)",
            "layers are not called with a value; they are listed, each after the one that it follows: `[..]`; a value that is \
             read again is marked with `tap(name)` and read with `from(name)`",
        )],
    );
    let nested = |listed: &str| {
        format!(
            "layers are not called with other layers; they are listed, each after the one that it follows: `{listed}`"
        )
    };
    assert_found("[Relu(Conv2d(16, 3))]", &[("Conv2d(16, 3)", &nested("[Conv2d(16, 3), Relu]"))]);
    assert_found(
        "[Dropout(Conv2d(16, 3), p = 0.1)]",
        &[("Conv2d(16, 3)", &nested("[Conv2d(16, 3), Dropout(p = 0.1)]"))],
    );
    assert_found(
        "[x, Conv2d(16, 3)]",
        &[("x", "`x` is a value and no layer; read it with `from(x)`, or leave it out where it is what arrives")],
    );
    let joined = "layers are joined by name; write `Add(from(x), Conv2d(16, 3))`";
    assert_found("x + Conv2d(16, 3)", &[("x + Conv2d(16, 3)", joined)]);
    let method = "layers have no methods, and there is no layer `view`; of what changes shapes there are `Flatten`";
    let found = mistakes(&forward("Image<3, 8, 8>", "Logits<10>", "[Conv2d(8, 3), x.view(x.size(0), -1)]", ""));
    assert!(found.len() == 1 && found[0].1.starts_with(method), "{found:#?}");
}

#[test]
fn statements_of_python() {
    let listed = "layers are not called with a value; they are listed, each after the one that it follows: `[Conv2d(16, 3), Relu]`";
    assert_found("y = Conv2d(16, 3)(x); y = Relu(y); y", &[("(x)", listed)]);
    let named = "a name is given with `let`, as `let stem = Conv2d(64, 3);`";
    assert_found("stem = Conv2d(16, 3); [stem]", &[("stem", named)]);
    let no_self = "a network has no `self`; layers are listed where they are used, as `[Conv2d(64, 3), Relu]`, and one that is used \
                   twice has a name, as `let conv = Conv2d(64, 3);`";
    assert_found("self.conv1(x)", &[("self.conv1(x)", no_self)]);
    assert_found("[Conv2d(16, 3), self.relu]", &[("self.relu", no_self)]);
    let braces = "arguments stand in parentheses, and options are written with `=`: `Conv2d(..)`";
    assert_found("[Conv2d { out_channels: 16 }]", &[("{ out_channels: 16 }", braces)]);
    assert_found("[Conv2d(16, 3), nn::relu()]", &[("nn::relu", "layers have no path; write `Relu`")]);
    let times = "what is repeated is written `repeat(3, [..])`";
    assert_found("[Conv2d(16, 3), [Relu] * 3]", &[("[Relu] * 3", times)]);
}

#[test]
fn sequences_in_other_words() {
    let listed = "layers are listed, each after the one that it follows: `[Conv2d(16, 3), Relu]`";
    for pipe in ["|", "|>", ">>", "->", "=>"] {
        assert_found(&format!("Conv2d(16, 3) {pipe} Relu"), &[(pipe, listed)]);
        assert_found(&format!("[Conv2d(16, 3) {pipe} Relu]"), &[(pipe, listed)]);
    }
    let commas = "layers stand in one list, with commas between them: `[Conv2d(16, 3), Relu]`";
    assert_found("Conv2d(16, 3), Relu", &[(",", commas)]);
    assert_found("Conv2d(16, 3); Relu", &[(";", commas)]);
    let brackets = |not: &str| format!("layers are listed in brackets, not in {not}: `[Conv2d(16, 3), Relu, Relu]`");
    let [round, curly] = ["(Conv2d(16, 3), Relu, Relu)", "{ Conv2d(16, 3), Relu, Relu }"];
    assert_found(round, &[(round, &brackets("parentheses"))]);
    assert_found(curly, &[(curly, &brackets("braces"))]);
    assert_found("return [Conv2d(16, 3)];", &[("return", "remove `return`: a body stands for its list")]);
    let text = "struct Net; fn forward(x: Features<8>) -> (Logits<4>, Logits<2>) { (Linear(4), Linear(2)) }";
    let outputs = "several outputs are written `Outputs(Linear(4), Linear(2))`";
    assert_mistakes(text, &[("(Linear(4), Linear(2))", outputs)]);
    assert_found(
        "nn.Sequential(Conv2d(3, 16, 3), Relu)",
        &[("Sequential", "no layer or block is called `Sequential`; layers are listed, as `[Linear(8), Relu]`")],
    );
}

#[test]
fn repetitions_in_other_words() {
    let takes = "`repeat` takes how often and what";
    for (written, said) in [
        ("repeat(Relu, 3)", "; write `repeat(3, Relu)`"),
        ("repeat([Relu], 3)", "; write `repeat(3, [..])`"),
        ("repeat(3, Relu, Tanh)", "; put the layers into a list: `repeat(3, [Relu, Tanh])`"),
        ("repeat(Relu)", ", as `repeat(3, [Linear(64), Relu])`"),
        ("repeat(3, layer = Relu)", ", without names but its own, as `repeat(3, [Relu])`"),
    ] {
        assert_found(&format!("[Conv2d(16, 3), {written}]"), &[(written, &format!("{takes}{said}"))]);
    }
    for (written, place, said) in [
        ("repeat(3, |i| Relu)", "|i|", "what is repeated is no function; write it alone, as `repeat(3, Relu)`"),
        ("repeat(3, || { Relu })", "||", "what is repeated is no function; write it alone, as `repeat(3, [..])`"),
        (
            "repeat(3, |i| Conv2d(i, 3))",
            "|i|",
            "what is repeated is no function, and the same each time; for a `i` that counts, write a block with a parameter that \
             calls itself: `fn stage(i: usize) -> Block { .. }`",
        ),
        ("while true { Relu }", "while", "there are no loops; write `repeat(n, [..])`"),
        ("loop { Relu }", "loop", "there are no loops; write `repeat(n, [..])`"),
        ("for i in 0..=4 { Relu }", "for", "there are no loops; write `repeat(5, [..])`"),
        ("for i in 1..9 { Relu }", "for", "there are no loops; write `repeat(8, [..])`"),
        ("for i in 2..n { Relu }", "for", "there are no loops; write `repeat(n, [..])`"),
        ("Relu for _ in range(5)", "for", "there are no loops; write `repeat(5, [..])`"),
    ] {
        assert_found(&format!("[Conv2d(16, 3), {written}]"), &[(place, said)]);
    }
}

/// Operators between layers, and numbers among them. What is written in their place is an element.
#[test]
fn layers_with_operators() {
    let items = "const N: usize = 3; const HALF: f64 = 0.5;";
    let network = |body: &str| forward("Features<8>", "Features<8>", body, items);
    for (written, said, instead) in [
        ("x + Linear(8) + Relu", "layers are joined by name", "Add(Add(from(x), Linear(8)), Relu)"),
        ("x - 2 * Linear(8)", "layers are joined by name", "Sub(from(x), repeat(2, Linear(8)))"),
        ("Tanh * (Relu + Sigmoid)", "layers are joined by name", "Mul(Tanh, Add(Relu, Sigmoid))"),
        ("N * Linear(8)", "what is repeated is written", "repeat(N, Linear(8))"),
        ("Linear(8) * (N - 1)", "what is repeated is written", "repeat(N - 1, Linear(8))"),
        ("0.5 * Linear(8)", "a number is no layer", "[Linear(8), Affine(0.5)]"),
        ("2 * x", "a number is no layer", "[from(x), Affine(2)]"),
        ("1 + Linear(8)", "a number is no layer", "[Linear(8), Affine(1.0, 1)]"),
        ("HALF - Linear(8)", "a number is no layer", "[Linear(8), Affine(-1.0, HALF)]"),
        ("x - (HALF + 1.0)", "a number is no layer", "[from(x), Affine(1.0, -(HALF + 1.0))]"),
        ("x / (HALF * 2.0)", "a number is no layer", "[from(x), Affine(1.0 / (HALF * 2.0))]"),
        ("1.0 / x", "a number is no layer", "[from(x), Pow(-1.0), Affine(1.0)]"),
    ] {
        let write = if said.ends_with("written") { "" } else { "; write" };
        assert_mistakes(&network(written), &[(written, &format!("{said}{write} `{instead}`"))]);
        sound(&network(instead));
    }
    let inverse = "a number is no layer; write its inverse, as `[from(x), Affine(0.5)]`";
    assert_mistakes(&network("x / N"), &[("x / N", inverse)]);
    assert_mistakes(&network("2 + N"), &[("2 + N", "expected a layer, a block or a list `[..]`, found `2 + N`")]);
}

#[test]
fn values_in_braces() {
    let items = "const WIDTH: usize = 4;";
    let braces = "what is no list stands without braces; write `2 * WIDTH`";
    let text = forward("Features<8>", "Features<8>", "Linear({ 2 * WIDTH })", items);
    assert_mistakes(&text, &[("{ 2 * WIDTH }", braces)]);
    let sizes = "sizes stand between `<` and `>`; write `Image<3, { 2 * WIDTH }, WIDTH>`";
    let text = format!("struct Net; fn forward(x: Image(3, 2 * WIDTH, WIDTH)) -> Map<3, 8, 4> {{ [Relu] }} {items}");
    assert_mistakes(&text, &[("(3, 2 * WIDTH, WIDTH)", sizes)]);
}

/// A suggestion means what was written.
#[test]
fn parentheses_are_kept_where_they_count() {
    for (written, said) in [
        ("2 * (N + 1)", "2 * (N + 1)"),
        ("(2 * N) + 1", "2 * N + 1"),
        ("N - (2 - 1)", "N - (2 - 1)"),
        ("(N - 2) - 1", "N - 2 - 1"),
        ("N / (2 * 3) % 4", "N / (2 * 3) % 4"),
        ("if !(N > 3 && (N < 5 || N == 6)) { 1 } else { 2 }", "if !(N > 3 && (N < 5 || N == 6)) { .. }"),
    ] {
        let expected = format!("what is repeated is written `repeat({said}, Relu)`");
        let text = forward("Features<8>", "Features<8>", &format!("[Relu; {written}]"), "const N: usize = 3;");
        assert_eq!(mistakes(&text)[0].1, expected);
    }
}

#[test]
fn pairs_in_other_words() {
    assert_found("[Conv2d(16, [3, 3])]", &[("[3, 3]", "a pair is written `(3, 3)`")]);
    let path = "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the network";
    assert_found("[Conv2d(16, (config::K, 3))]", &[("config::K", path)]);
    assert_found("[Conv2d(16, 3, padding = [0, 0])]", &[("[0, 0]", "a pair is written `(0, 0)`")]);
}

/// Masks are no options of layers here, whatever is written for them. What is said to write is a network.
#[test]
fn masks_of_attention() {
    let mask = "a mask is the last branch of `Attention(q, k, v, mask)`: numbers that are added to the scores, -infinity where a key is \
                hidden, [M] for all queries or [T, M]; an input of the network is read as `from(mask)`";
    let padding = "padding is left out by `lengths(n, ..)` around the layers, with an input `n: Lengths<T>`; a mask that is no prefix is the \
                   last branch of `Attention(q, k, v, mask)`";
    let of = |option: &str| if option.ends_with("key_padding_mask") { padding } else { mask };
    let network = |body: &str| {
        format!("pub struct Net; fn forward(x: Sequence<6, 16>, mask: Features<6>) -> Sequence<6, 16> {{ {body} }}")
    };
    let through = "Add(from(x), [from(mask), Linear(1)])";
    for (attention, place) in [
        ("MultiHeadAttention(4, key_padding_mask = mask)", "key_padding_mask = mask"),
        ("MultiHeadAttention(16, 4, attn_mask = from(mask))", "attn_mask = from(mask)"),
        ("CausalSelfAttention(4, attention_mask = m)", "attention_mask = m"),
        ("Attention([], [], [], attn_mask = mask, heads = 4)", "attn_mask = mask"),
    ] {
        let (name, _) = attention.split_once('(').unwrap();
        let (option, _) = place.split_once(' ').unwrap();
        let said = format!("layer 2 `{name}` has no option `{option}`; {}", of(option));
        assert_mistakes(&network(&format!("[{through}, {attention}]")), &[(place, &said)]);
    }
    let alone = network("[MultiHeadAttention(4, key_padding_mask = mask)]");
    let said = format!("layer 0 `MultiHeadAttention` has no option `key_padding_mask`; {padding}");
    assert_mistakes(&alone, &[("key_padding_mask = mask", &said)]);
    let block = "TransformerBlock(16, 4, src_key_padding_mask = mask)";
    let said = format!("block `TransformerBlock` has no parameter `src_key_padding_mask`; {padding}");
    assert_mistakes(&network(&format!("[{through}, {block}]")), &[("src_key_padding_mask = mask", &said)]);
    for mask in ["from(mask)", "[from(mask), Reshape(1, 6)]"] {
        let attention = format!("Attention(Linear(16), Linear(16), Linear(16), {mask}, heads = 4)");
        sound(&network(&format!("[from(x), {attention}, Linear(16)]")));
        let joined = format!("let m = {mask}; [from(x), Linear(48), Attention([], m, heads = 4), Linear(16)]");
        sound(&network(&joined));
    }
}
