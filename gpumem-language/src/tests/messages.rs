//! One test for each message about what a network is made of.

use super::names::LAYER_NAME;
use super::networks::VGG16;
use super::{assert_mistakes, forward, mistakes, sound};

#[test]
fn unknown_layer() {
    let text = forward("Image<3, 8, 8>", "Map<8, 6, 6>", "[Conv2D(8, 3), bloc]", "fn block() -> Block { [Relu] }");
    assert_mistakes(
        &text,
        &[
            ("Conv2D", "no layer or block is called `Conv2D`; did you mean `Conv2d`?"),
            ("bloc", "no layer or block is called `bloc`; did you mean `block`?"),
        ],
    );
    let text = forward("Features<4>", "Features<4>", "[Linear(4), LayerScale(8)]", "");
    assert_mistakes(
        &text,
        &[(
            "LayerScale",
            "no layer or block is called `LayerScale`; see `gpumem::layers` for what there is; what those can build is a block, \
             as `fn layer_scale() -> Block { [..] }`, and what they cannot is an `operation!`",
        )],
    );
}

#[test]
fn unknown_option() {
    // What follows is checked as if the near names had been written: the shapes are right.
    let text =
        forward("Image<3, 8, 8>", "Map<8, 8, 8>", "[Conv2d(8, 3, pading = 1), Relu(inplce), Dropout(0.5, x)]", "");
    assert_mistakes(
        &text,
        &[
            ("pading = 1", "layer 0 `Conv2d` has no option `pading`; did you mean `padding`?"),
            ("inplce", "layer 1 `Relu` has no option `inplce`; did you mean `inplace`?"),
            (
                "x",
                "layer 2 `Dropout` is given `x`, which is neither an option nor a parameter nor a constant; a number is \
                 declared inside the network, as `const x: usize = ..;`",
            ),
        ],
    );
}

#[test]
fn unknown_number() {
    let text = forward(
        "Image<3, 8, 8>",
        "Map<8, 6, 6>",
        "[block(8), Conv2d(WIDTH * 2, 3)]",
        "fn block(channels: usize) -> Block { [Conv2d(chanels, 3)] }",
    );
    assert_mistakes(
        &text,
        &[
            (
                "chanels",
                "layer 0 `Conv2d` is given `chanels`, which is neither an option nor a parameter nor a constant; did you \
                 mean `channels`? (in `block(8)`)",
            ),
            (
                "WIDTH",
                "no parameter or constant is called `WIDTH`; declare it inside the network, as `const WIDTH: usize = ..;`",
            ),
        ],
    );
}

#[test]
fn wrong_number_of_arguments() {
    let text = forward(
        "Image<3, 8, 8>",
        "Logits<10>",
        "[stage(2), stage(1, 2, 3), stage(1, width = 2), Conv2d(8), Flatten(3), Add([]), repeat(2), tap(), Linear(10)]",
        "fn stage(depth: usize, channels: usize) -> Block { [repeat(depth, Conv2d(channels, 1))] }",
    );
    assert_mistakes(
        &text,
        &[
            ("stage(2)", "block `stage` takes (depth: usize, channels: usize), but `stage(2)` is given"),
            ("stage(1, 2, 3)", "block `stage` takes (depth: usize, channels: usize), but `stage(1, 2, 3)` is given"),
            (
                "stage(1, width = 2)",
                "block `stage` takes (depth: usize, channels: usize), but `stage(1, width = 2)` is given",
            ),
            (
                "Conv2d(8)",
                "layer 4 `Conv2d` takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but 1 is \
                 given",
            ),
            ("Flatten(3)", "layer 5 `Flatten` takes no arguments, but 1 is given"),
            ("Add([])", "layer 6 `Add` joins at least 2 branches, but 1 is given; a branch can be `[]`"),
            ("repeat(2)", "`repeat` takes how often and what, as `repeat(3, [Linear(64), Relu])`"),
            ("tap()", "expected one name, as `tap(skip)`"),
        ],
    );
}

#[test]
fn argument_types() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[block(1.5, true, 3, 2), block(2, 1, 0.5, [Relu]), Linear(\"x\"), Dropout(Relu), 5, Linear(8)]",
        "fn block(n: usize, flag: bool, p: f64, inner: Block) -> Block {
            [inner, Dropout(p), if flag { repeat(n, [Relu]) } else { n }]
         }",
    );
    assert_mistakes(
        &text,
        &[
            ("1.5", "`n` is a `usize`, but a number with a fraction is given"),
            ("2", "`inner` is a `Block`, but `2` is given; put layers in a list, as `[Relu]`"),
            ("p", "layer 0 `Dropout` needs `p` to be at least 0 and below 1, not 3.0 (in `block(.., true, 3.0, ..)`)"),
            ("1", "`flag` is a `bool`, but a whole number is given"),
            ("\"x\"", "layer 6 `Linear` needs a whole number for `out_features`, not \"x\""),
            (
                "Relu",
                "no parameter or constant is called `Relu`; declare it inside the network, as `const Relu: usize = ..;`",
            ),
            ("5", "expected a layer, a block or a list `[..]`, found `5`"),
        ],
    );
}

#[test]
fn shape_mismatch() {
    let text = VGG16.replace("Flatten,", "").replacen("Linear(4096)", "Linear(4096, 4096)", 1);
    assert_mistakes(
        &text,
        &[(
            "Linear(4096, 4096)",
            "layer 31 `Linear` expects 4096 input features, but the previous layer produces [512, 7, 7] = 25088",
        )],
    );
}

#[test]
fn branch_mismatch() {
    let text = forward("Image<3, 8, 8>", "Map<3, 8, 8>", "[Add([], Conv2d(4, 1)), Concat([], MaxPool2d(2))]", "");
    assert_mistakes(
        &text,
        &[
            (
                "Conv2d(4, 1)",
                "layer 1 `Add` joins branches of one shape, but branch 0 produces [3, 8, 8] and branch 1 produces [4, 8, 8]",
            ),
            (
                "MaxPool2d(2)",
                "layer 3 `Concat` joins branches that agree in all but the first dimension, but branch 0 produces [3, 8, 8] \
                 and branch 1 produces [3, 4, 4]",
            ),
            ("Map<3, 8, 8>", "forward promises Map<3, 8, 8> = [3, 8, 8], but the last layer produces [6, 8, 8]"),
        ],
    );
}

/// Squeeze and excitation with a vector where a map of one pixel is broadcast.
#[test]
fn vectors_beside_maps() {
    let text = forward("Image<4, 8, 8>", "Map<4, 8, 8>", "[Mul([], [GlobalAvgPool, Linear(4), Sigmoid])]", "");
    assert_mistakes(
        &text,
        &[(
            "[GlobalAvgPool, Linear(4), Sigmoid]",
            "layer 3 `Mul` joins branches of one shape, but branch 0 produces [4, 8, 8] and branch 1 produces [4]; as a map of \
             [4, 1, 1], from `AdaptiveAvgPool2d(1)` and 1x1 convolutions, it is broadcast",
        )],
    );
    sound(&forward("Image<4, 8, 8>", "Map<4, 8, 8>", "[Mul([], [AdaptiveAvgPool2d(1), Conv2d(4, 1), Sigmoid])]", ""));
}

#[test]
fn kernels_and_groups() {
    let text = forward("Image<3, 8, 8>", "Map<3, 8, 8>", "[Conv2d(4, 1, groups = 3), Conv2d(8, 9), Relu]", "");
    assert_mistakes(
        &text,
        &[
            (
                "groups = 3",
                "layer 0 `Conv2d` has groups = 3, which does not divide its 4 output channels; use a number of groups that \
                 divides both 3 and 4",
            ),
            (
                "Conv2d(8, 9)",
                "layer 1 `Conv2d` has a 9x9 kernel, which is larger than its 8x8 input; use a smaller kernel, more padding, or \
                 fewer strides before it",
            ),
        ],
    );
}

#[test]
fn output_type() {
    let text = VGG16.replace("Linear(1000),", "");
    assert_mistakes(
        &text,
        &[("Logits<1000>", "forward promises Logits<1000> = [1000], but the last layer produces [4096]")],
    );
    let text = forward("Tokens<8>", "Sequence<8, 4>", "[PositionEmbedding(8, 4)]", "");
    assert_mistakes(
        &text,
        &[(
            "PositionEmbedding(8, 4)",
            "layer 0 `PositionEmbedding` gives the same for every sample, so that what arrives is lost here; add it: \
             `Add(Embedding(..), PositionEmbedding(8, 4))`",
        )],
    );
}

#[test]
fn declared_types() {
    let text = forward("Imag<3, 0, 8>", "Logit<3>", "[Relu]", "");
    assert_mistakes(
        &text,
        &[
            ("Imag", "no type of an input is called `Imag`; did you mean `Image`?"),
            ("0", "a dimension of `Image` is 0; it must be at least 1"),
            ("Logit", "no type of an output is called `Logit`; did you mean `Logits`?"),
        ],
    );
    let text = forward("Image<3, 0, 8>", "Logits<{ 2 - 2 }>", "[Flatten, Linear(3)]", "");
    assert_mistakes(
        &text,
        &[
            ("0", "a dimension of `Image` is 0; it must be at least 1"),
            ("2 - 2", "a dimension of `Logits` is 0; it must be at least 1"),
        ],
    );
    let text = forward("Image<3, 8>", "Logits<3>", "[Flatten, Linear(3)]", "");
    assert_mistakes(&text, &[("Image<3, 8>", "`Image` has 3 dimensions, `Image<C, H, W>`, but 2 are given")]);
    let text = "struct Net; fn forward(x: Features<2>, y: Features<2>) -> Features<2> { [Relu] }";
    assert_mistakes(text, &[("y", "nothing reads the input `y`; read it with `from(y)`, or remove it")]);
}

#[test]
fn empty_networks() {
    let text = forward("Features<2>", "Features<2>", "[]", "");
    assert_mistakes(&text, &[("Features<2>", "the network has no layers; put some into the list of `forward`")]);
}

#[test]
fn unused_blocks_and_lets() {
    let text = forward(
        "Features<2>",
        "Features<2>",
        "let w = Relu; let v = [Relu]; [v, if false { hidden() } else { [] }]",
        "fn spare() -> Block { [helper()] } fn helper() -> Block { [Relu] } fn hidden() -> Block { [Relu] }",
    );
    assert_mistakes(
        &text,
        &[
            ("w", "`w` is never used; remove it or put it into a list"),
            ("spare", "block `spare` is never used; remove it or call it"),
            ("helper", "block `helper` is never used; remove it or call it"),
        ],
    );
}

#[test]
fn recursion_without_end() {
    let text = forward("Features<2>", "Features<2>", "[a(3)]", "fn a(n: usize) -> Block { [Relu, a(n + 1), a(n)] }");
    assert_mistakes(
        &text,
        &[(
            "a(n + 1)",
            "recursion without end: `a` is called 128 calls deep; end it with `if`, on a parameter that counts down",
        )],
    );
    // It comes first, and what it leads to is not said.
    let text = forward(
        "Image<3, 32, 32>",
        "Logits<2>",
        "[Rellu, deep(1), Flatten, Linear(2)]",
        "fn deep(n: usize) -> Block { [Conv2d(8, 3, dilate = 2), other(n)] } fn other(n: usize) -> Block { [deep(n + 1)] }",
    );
    let found = mistakes(&text);
    let said: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(said.len(), 3, "{found:#?}");
    assert!(said[0].starts_with("recursion without end: `deep` is called 128 calls deep"), "{found:#?}");
    assert!(said[1].starts_with("no layer or block is called `Rellu`"), "{found:#?}");
    assert!(said[2].contains("has no option `dilate`"), "{found:#?}");
    let found = mistakes(&forward("Features<2>", "Features<2>", "[repeat(99999999999, [Relu])]", ""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("more than 65534 layers"), "{found:?}");
    let found = mistakes(&forward("Features<2>", "Features<2>", "[Relu, repeat(99999999999, [])]", ""));
    assert_eq!(found.len(), 1, "{found:?}");
}

/// What arrives is not known after a mistake, but some mistakes are the same whatever arrives.
#[test]
fn arguments_after_a_mistake() {
    let text = forward(
        "Image<3, 8, 8>",
        "Logits<9>",
        "[
            Conv2d(0, 3), Linear(0), MaxPool2d(2, stride = 0), Dropout(1.5), Conv2d(8, 3, groups = 3), Linear(5, 9),
            Conv2d(7, 8, 99), Embedding(0, 4), Linear(9),
        ]",
        "",
    );
    assert_mistakes(
        &text,
        &[
            ("0", "layer 0 `Conv2d` needs `out_channels` to be at least 1, not 0"),
            ("0", "layer 1 `Linear` needs `out_features` to be at least 1, not 0"),
            ("stride = 0", "layer 2 `MaxPool2d` needs `stride` to be at least 1, not 0"),
            ("1.5", "layer 3 `Dropout` needs `p` to be at least 0 and below 1, not 1.5"),
            (
                "Conv2d(7, 8, 99)",
                "layer 6 `Conv2d` works on a feature map [C, H, W], but the previous layer produces [9]",
            ),
            ("0", "layer 7 `Embedding` needs `num_embeddings` to be at least 1, not 0"),
            (
                "Embedding(0, 4)",
                "layer 7 `Embedding` works on tokens; make the network's input `Tokens<T>` and put it first",
            ),
        ],
    );
}

#[test]
fn arithmetic() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[
            Linear(18446744073709551615 + 1), Linear(3 - 4), Linear(3 / (2 - 2)), Linear(A), Linear(2 * 1.5),
            Linear(true + 1), Linear(99999999999999999999999), if 3 { [] } else { [] }, Linear(B),
        ]",
        "const A: usize = A + 1; const B: usize = size_of::<u8>();",
    );
    assert_mistakes(
        &text,
        &[
            (
                "99999999999999999999999",
                "99999999999999999999999 is too large; the largest number is 18446744073709551615",
            ),
            (
                "18446744073709551615 + 1",
                "`18446744073709551615 + 1` overflows: the largest number is 18446744073709551615",
            ),
            ("3 - 4", "`3 - 4` is below 0, which no `usize` can be"),
            ("3 / (2 - 2)", "`3 / 0` divides by zero"),
            ("A", "`A` is defined in terms of itself"),
            ("2 * 1.5", "`2 * 1.5` mixes a whole number with a fraction; write `2.0` for a fraction"),
            ("true + 1", "`+` does not apply to `true` or `false` and a whole number"),
            ("3", "expected `true` or `false`, found `3`"),
            (
                "size_of::<u8>()",
                "`B` is no expression that `network!` can read; layers need literals, and constants made of literals",
            ),
        ],
    );
    let text = forward("Features<8>", "Features<8>", "[Linear(4294967296), Linear(4294967296)]", "");
    assert_mistakes(
        &text,
        &[(
            "Linear(4294967296)",
            "layer 1 `Linear` has a parameter of shape [4294967296, 4294967296], more than the 281474976710656 elements that \
             one tensor can have; check its numbers",
        )],
    );
}

#[test]
fn mistakes_in_a_block_used_twice_are_reported_once() {
    let text = VGG16.replace("Conv2d(channels, 3, padding = 1)", "Conv2d(channels, 3, pading = 1)");
    assert_mistakes(
        &text,
        &[("pading = 1", "layer 0 `Conv2d` has no option `pading`; did you mean `padding`? (in `stage(2, 64)`)")],
    );
}

#[test]
fn several_mistakes_in_one_build() {
    let text = "
        pub struct Net;
        const TRAIN: Train = Train { batch: 0, cards: [RTX_3061], optimizer: Sgdd { lr: 1 }, los: Mse };
        fn forward(image: Image<3, 32, 32>) -> Logits<10> {
            [Conv2d(16, 3) Relu(inplce), Conv2d(4, 8, 3), Flatten, Linear(99, 10)]
        }
        fn spare() -> Block { [Relu] }
    ";
    assert_mistakes(
        text,
        &[
            ("Relu(inplce)", "expected `,` after `Conv2d(16, 3)`"),
            ("inplce", "layer 1 `Relu` has no option `inplce`; did you mean `inplace`?"),
            (
                "Conv2d(4, 8, 3)",
                "layer 2 `Conv2d` expects 4 input channels, but the previous layer produces [16, 30, 30], which has 16",
            ),
            ("Linear(99, 10)", "layer 4 `Linear` expects 99 input features, but the previous layer produces [6272]"),
            ("spare", "block `spare` is never used; remove it or call it"),
            ("los", "`TRAIN` has no field `los`; did you mean `loss`?"),
            ("0", "the batch is 0; a step needs at least 1 sample"),
            ("RTX_3061", "no card is called `RTX_3061`; did you mean `RTX_3060`?"),
            ("Sgdd", "no optimizer is called `Sgdd`; did you mean `Sgd`?"),
        ],
    );
}

#[test]
fn taps() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[tap(skip), Linear(8), Add(from(skp), []), from(later), tap(later)]",
        "",
    );
    assert_mistakes(
        &text,
        &[
            ("from(skp)", "no value was tapped as `skp` before this; did you mean `skip`?"),
            ("from(later)", "no value was tapped as `later` before this; put `tap(later)` where the value is"),
        ],
    );
    let text = forward("Features<8>", "Features<8>", "[tap(skip), Linear(8), Relu, from(skip), Linear(8)]", "");
    assert_mistakes(
        &text,
        &[("Relu", "nothing reads what layer 1 `Relu` produces; `tap` it and read it with `from`, or remove it")],
    );
}

#[test]
fn ties_and_shares() {
    let text = forward(
        "Tokens<8>",
        "TokenLogits<8, 50>",
        "let wte = Embedding(50, 16); let two = [Linear(16), Relu]; let own = Linear(16);
         [Tied(wte), wte, two, Tied(two), Tied(wt), own, Linear(8), own, Tied(wte), Tied(3)]",
        "",
    );
    assert_mistakes(
        &text,
        &[
            ("Tied(wte)", "layer 0 `Tied` comes before the first use of `wte`; put `wte` into a list before it"),
            ("Tied(two)", "layer 4 `Tied` ties the weight of one layer, but `two` is more than that"),
            ("Tied(wt)", "layer 5 `Tied` finds no layer called `wt`; did you mean `wte`?"),
            ("Tied(3)", "layer 10 `Tied` takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`"),
        ],
    );
    let text = forward(
        "Features<4>",
        "Features<4>",
        "let own = Linear(4); let two = [Relu, Linear(4)]; [own, Linear(8), own, Tied(own), two, Tied(two)]",
        "",
    );
    assert_mistakes(
        &text,
        &[
            (
                "Linear(4)",
                "layer 2 `Linear` shares `own.weight`, whose shape is [4, 4], but here it needs [4, 8]; use a layer of its own",
            ),
            ("Tied(two)", "layer 6 `Tied` ties the weight of one layer, but `two` is more than that"),
        ],
    );
}

#[test]
fn chosen_names() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[Linear(4, name = \"a\"), Relu(name = \"a\"), Relu(name = \"b..c\"), Add([], [], name = 3), Relu(name = \"relu\"), Relu]",
        "",
    );
    assert_mistakes(
        &text,
        &[
            ("\"b..c\"", LAYER_NAME),
            ("3", "a layer's name is a text, as `name = \"fc1\"`"),
            ("\"a\"", "the name \"a\" is taken by another layer of the same block; choose another"),
            ("\"relu\"", "the name \"relu\" is taken by another layer of the same block; choose another"),
        ],
    );
    // Letters are those of any script, as in the names of blocks.
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[größe(), Linear(4, name = \"схема\"), Linear(4, name = \"層2\"), Relu(name = \"0\"), Relu(name = \"a b\"), Relu(name = \"a \"), Relu(name = \"ü-\")]",
        "fn größe() -> Block { [Linear(4, name = \"größe\")] }",
    );
    assert_mistakes(&text, &[("\"a b\"", LAYER_NAME), ("\"a \"", LAYER_NAME), ("\"ü-\"", LAYER_NAME)]);
}

/// A layer with a name that is used again keeps it; uses have numbers.
#[test]
fn chosen_names_of_shared_layers() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "let a = Linear(4, name = \"fc\"); [a, Relu, a, inside(a), a]",
        "fn inside(b: Block) -> Block { [b, b] }",
    );
    let resolved = sound(&text);
    let paths: Vec<&str> = resolved.graph.rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths, ["fc", "relu", "fc[1]", "inside.fc", "inside.fc[1]", "fc[2]"]);
    let names: Vec<&str> = resolved.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["fc.weight", "fc.bias"]);
}

/// Values that are none, or of another kind.
#[test]
fn values() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "[
            Linear(if true { 8 }), Linear(8, bias = if false { true }), Linear(-true), Linear(WIDTH(3)),
            Linear(true && 3), Linear(()), Linear('a'), Dropout(block), Linear(8),
        ]",
        "fn block() -> Block { [] } fn unused(x: Block) -> Block { [x] }",
    );
    assert_mistakes(
        &text,
        &[
            ("()", "expected one value or a pair (height, width) between these parentheses"),
            ("'a'", "expected a number, `true`, `false` or a text"),
            ("if false { true }", "needs an `else`: here it stands for a value"),
            ("-true", "cannot negate `true` or `false`"),
            (
                "WIDTH(3)",
                "expected a value, found `WIDTH(3)`; values are literals, parameters, constants of the network and operators \
                 between them",
            ),
            ("true && 3", "`&&` does not apply to `true` or `false` and a whole number"),
            (
                "block",
                "no parameter or constant is called `block`; declare it inside the network, as `const block: usize = ..;`",
            ),
            ("unused", "block `unused` is never used; remove it or call it"),
        ],
    );
    let text = "struct Net<const BATCH: usize>; const INFER: Infer = Infer { batch: BATCH };
        fn forward(x: Features<8>) -> Features<8> { [Linear(BATCH), Linear(8), inner([Relu], 3)] }
        fn inner(b: Block, n: usize) -> Block { [repeat(true, b), Dropout(b), b(3), n] }";
    assert_mistakes(
        text,
        &[
            ("BATCH", "`BATCH` is the batch, which no layer can depend on"),
            ("true", "expected a whole number, found `true` (in `inner([..], 3)`)"),
            ("b", "expected a value, but `b` is a block (in `inner([..], 3)`)"),
            ("b(3)", "`b` is a layer with a name and takes no arguments; write `b` (in `inner([..], 3)`)"),
            ("n", "expected a layer, but `n` is a whole number (in `inner([..], 3)`)"),
        ],
    );
}

#[test]
fn tokens_and_positions() {
    assert_mistakes(
        &forward("Tokens<8>", "Sequence<8, 4>", "[]", ""),
        &[("Sequence<8, 4>", "the network has no layers; put some into the list of `forward`")],
    );
    let text = forward(
        "Tokens<8>",
        "Sequence<8, 4>",
        "let w = Embedding(9, 4); [w, Linear(4), Tied(w, 3), Linear(4), Mul([], PositionEmbedding(8, 4))]",
        "",
    );
    assert_mistakes(&text, &[("3", "layer 2 `Tied` takes one layer, and the option `bias`")]);
}

/// Whole numbers below 0 are whole, and sizes are not below 0.
#[test]
fn numbers_with_a_sign() {
    let items = "const SHIFT: i64 = -3; const LAST: isize = 2 - 5;
                 fn stage(n: usize) -> Block { if n > -1 { [Roll(2 * SHIFT, 1), Transpose(LAST + 1, -1)] } else { [] } }
                 fn scaled(by: f64) -> Block { [Affine(by), Affine(-SHIFT / 2)] }";
    sound(&forward("Sequence<4, 4>", "Sequence<4, 4>", "[stage(2), scaled(SHIFT), Affine(-1)]", items));
    assert_mistakes(
        &forward(
            "Sequence<4, 4>",
            "Sequence<4, 4>",
            "[stage(-1), Linear(2 * SHIFT), Affine(0.5 * SHIFT), scaled(1)]",
            items,
        ),
        &[
            ("-1", "`n` is a `usize`, but a whole number below 0 is given"),
            ("2 * SHIFT", "layer 2 `Linear` needs a whole number for `out_features`, not -6, which is below 0"),
            ("0.5 * SHIFT", "`0.5 * -3` mixes a whole number with a fraction; write `2.0` for a fraction"),
        ],
    );
    let below = [("SHIFT", "`-3` is below 0, which no `usize` can be")];
    assert_mistakes(&forward("Features<4>", "Features<4>", "[repeat(SHIFT, Relu)]", "const SHIFT: i64 = -3;"), &below);
}
