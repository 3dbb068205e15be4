//! Broken text of every kind: the macro says something, does not panic, and leaves the struct.

use super::networks::VGG16;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::sync::mpsc;
use std::time::Duration;

/// Networks that use all of the language.
const NETWORKS: [&str; 5] = [
    VGG16,
    "/// Text.
     pub(crate) struct Gpt<const BATCH: usize>;
     const WIDTH: usize = 16; pub const HEADS: usize = WIDTH / 4; use std::mem;
     const TRAIN: Train = Train { batch: BATCH, precision: Mixed(F16), optimizer: AdamW { lr: 3e-4 }, update: Separate };
     const INFER: Infer = Infer { batch: BATCH, cards: [T4], headroom: 1 << 20 };
     fn forward(tokens: Tokens<12>) -> TokenLogits<12, { WIDTH * 3 + 2 }> {
         let wte = Embedding(WIDTH * 3 + 2, WIDTH);
         [Add(wte, PositionEmbedding(12, WIDTH)), repeat(2, [block(HEADS, true)]), LayerNorm(name = \"last\"), Tied(wte)]
     }
     fn block(heads: usize, on: bool) -> Block {
         [Add([], [LayerNorm, CausalSelfAttention(heads)]), if on && heads != 3 || !true { mlp(0.1, [Gelu]) } else { [] }]
     }
     fn mlp(p: f64, inside: Block) -> Block { [Add([], [Linear(4 * WIDTH), inside, Linear(WIDTH), Dropout(p)])] }",
    "struct Unet;
     const INFER: Infer = Infer { batch: 2, precision: Bf16 };
     fn forward(image: Image<3, 32, 32>) -> Map<2, 32, 32> { [Conv2d(4, (3, 3), padding = 1), level(2, 4), Conv2d(2, 1)] }
     fn level(depth: usize, channels: usize) -> Block {
         [tap(skip), if depth > 0 { [MaxPool2d(2), level(depth - 1, channels), Upsample(2)] }, Concat(from(skip), [])]
     }",
    "#[derive(Debug)] pub struct Heads; const STEPS: u64 = 3 * 1000; const MASK: [[f64; 3]; 2] = [[0.0, 1e9, -1.5], [1.0, 2.0, 3.0]];
     const TRAIN: Train = Train {
         batch: 4, micro_batches: 2, precision: Mixed(Bf16), clip: GlobalNorm(1.0), offload: Activations, checkpoint: Budget(0.6),
         optimizer: Muon { lr: 0.02, groups: [Group { paths: \"*.bias, w.*\", weight_decay: 0.0 }], adamw_lr: 3e-4 },
         schedule: Cosine { warmup: STEPS / 10, total: STEPS, min: 1e-5 }, conv_workspace: 64 << 20, seed: 7, tf32: true,
         loss: CrossEntropy { label_smoothing: 0.1, weight: [1.0; 10] }(target = kind) + 0.5 * Mse(from = aux, target = codes)
             + CosineEmbedding { margin: 0.5 }(from = (left, right), target = same) + Mean(from = aux),
     };
     fn forward(image: Images<u8, 3, 16, 16>, words: Tokens<7>, rest: Values<2, 3>) -> (Logits<10>, Map<4, 8, 8>, Sequence<7, { 2 * 3 }>) {
         let w = Embedding(9, 6, name = \"w\");
         let head = [Linear(6), Tanh];
         [
             from(rest), Add([], Constant(MASK)), Flatten, head, tap(left), head, tap(right), tap(aux),
             Outputs(
                 Linear(10, freeze),
                 [from(image), Normalize((0.5, 0.4, 0.3), 0.25), Conv2d(4, (3, 3), stride = 2, padding = 1), Square, stage(kernel = 3, width = 4)],
                 [from(words), w, lora(2, 4.0, [Linear(6), MultiHeadAttention(2)], targets = \"linear, in_proj\"), checkpoint([Gelu])],
             ),
         ]
     }
     operation! {
         /// A square.
         fn Square(x, by: f64 = 1.0) { value: by * x * x, derivative: 2.0 * by * x }
     }
     /// A stage.
     #[checkpoint] fn stage(kernel: usize, width: usize) -> Block { [freeze(Conv2d(width, kernel, padding = kernel / 2)), SwishOf(2.0)] }
     operation! { fn SwishOf(x, beta: f64 = 1.0) { let y2 = sigmoid(beta * x); if beta > 0.0 && x == x { x * y2 } else { -x } } }",
    "struct Own; const INFER: Infer = Infer { batch: 3 };
     operation! {
         fn Mixed(x: [rows.., features], groups: usize, on: bool = true) -> [rows.., 2 * features] {
             requires: [features % groups == 0], parameters: { weight: [features, 2] = Normal(0.02), shift: [2 * features] = 0.0 },
             saves: { means: [rows..] }, keeps: [x, weight], workspace: (rows, 2 * rows), threads: rows, macs: rows * features,
             cpu: super::mixed, cuda: \"kernels/mixed.cu\",
         }
     }
     fn forward(x: Sequence<4, 6>) -> Sequence<4, 12> { [Mixed(2)] }",
];

/// Pieces that a mutation may put anywhere.
const PIECES: [&str; 66] = [
    "0",
    "18446744073709551615",
    "99999999999999999999999999999999999999999",
    "1e400",
    "-1",
    "2.5",
    "\"\"",
    "'a'",
    "b\"x\"",
    "[]",
    "()",
    "{}",
    "[,]",
    "(1, 2, 3)",
    "größe",
    "r#type",
    "self",
    "Self",
    "forward",
    "repeat(9999999, [Relu])",
    "repeat(3, repeat(3, []))",
    "from(x)",
    "Tied(w)",
    "::",
    ";",
    ",",
    "=",
    "'life",
    "_",
    "..",
    "fn",
    "struct",
    "nn.ReLU()",
    "x.relu().conv2d(8, 3)",
    "for i in 0..3 { [Relu] }",
    "for",
    "[Relu; 3]",
    "return",
    "|",
    "|i| { [Relu] }",
    "->",
    "while true { Relu }",
    "crate = gm;",
    "crate::W",
    "impl Net { }",
    "tap(x)",
    "vec![Relu]",
    "Conv2d(0)(x)",
    "padding: None",
    "dilate = \"same\"",
    "Add([], Foo, LSTM(8))",
    "if depth { True } else { False }",
    "{ } { }",
    "({})",
    "-> ({}, Map<1 {}>)",
    "(Logits<3>, {})",
    "Features<{}>",
    "/// Text.",
    "#[cfg(x)]",
    "#",
    "[Relu Relu; 3]",
    "[[Relu; 2] 3; 4]",
    "lora(2, 4.0, repeat(70000, Linear(8)))",
    "use blocks a::b;",
    "operation! { fn A(x) { x } }",
    "Outputs(Relu, Relu)",
];

/// A generator of numbers: Steele, Lea and Flood's SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

fn count(tokens: &TokenStream) -> usize {
    let inside = |token: TokenTree| match token {
        TokenTree::Group(group) => 1 + count(&group.stream()),
        _ => 1,
    };
    tokens.clone().into_iter().map(inside).sum()
}

/// Changes the token numbered `at`, counted depth first.
fn mutated(tokens: TokenStream, at: &mut usize, numbers: &mut Numbers) -> TokenStream {
    let mut changed: Vec<TokenTree> = Vec::new();
    for token in tokens {
        *at = at.wrapping_sub(1);
        if *at != usize::MAX {
            changed.push(match token {
                TokenTree::Group(group) => Group::new(group.delimiter(), mutated(group.stream(), at, numbers)).into(),
                token => token,
            });
            continue;
        }
        let piece: TokenStream = PIECES[numbers.below(PIECES.len())].parse().expect("balanced tokens");
        match numbers.below(8) {
            0 => {}
            1 => changed.extend([token.clone(), token]),
            2 => {
                let before = changed.pop();
                changed.push(token);
                changed.extend(before);
            }
            3 => changed.extend(piece),
            4 => changed.extend(piece.into_iter().chain([token])),
            5 => changed.push(Group::new(Delimiter::None, token.into()).into()),
            6 => {
                let delimiters = [Delimiter::Brace, Delimiter::Bracket, Delimiter::Parenthesis];
                let inside = match token {
                    TokenTree::Group(group) => group.stream(),
                    token => token.into(),
                };
                changed.push(Group::new(delimiters[numbers.below(3)], inside).into());
            }
            // Loses the delimiters, or what is between them.
            _ => match token {
                TokenTree::Group(group) if numbers.below(2) == 0 => changed.extend(group.stream()),
                TokenTree::Group(group) => changed.push(Group::new(group.delimiter(), TokenStream::new()).into()),
                _ => {}
            },
        }
    }
    changed.into_iter().collect()
}

/// `struct Name` somewhere at the outermost level.
fn declares(tokens: &TokenStream) -> bool {
    let name = |token: TokenTree| match token {
        TokenTree::Ident(name) => name.to_string(),
        _ => String::new(),
    };
    let tokens: Vec<String> = tokens.clone().into_iter().map(name).collect();
    let names = ["Vgg16", "Gpt", "Unet", "Heads", "Own"];
    tokens.windows(2).any(|pair| pair[0] == "struct" && names.contains(&pair[1].as_str()))
}

/// Networks are without mistakes before they are mutated, so that mutations reach every part.
#[test]
fn what_is_mutated_is_sound() {
    for network in NETWORKS {
        super::sound(network);
    }
}

/// Longer than any text takes, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// No panic, nothing that does not end, and an expansion that parses.
#[test]
fn no_text_makes_it_panic() {
    let (sender, texts) = mpsc::channel();
    let work = std::thread::spawn(move || mutate(&sender));
    let mut last = String::new();
    loop {
        match texts.recv_timeout(PATIENCE) {
            Ok(text) => last = text,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end is seen of\n{last}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(panic) = work.join() {
        eprintln!("{last}");
        std::panic::resume_unwind(panic);
    }
}

/// Compiles mutated networks, each of which is sent first.
fn mutate(sender: &mpsc::Sender<String>) {
    let rounds = std::env::var("GPUMEM_MUTATIONS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(160);
    for (index, network) in NETWORKS.iter().enumerate() {
        for round in 0..rounds {
            let mut numbers = Numbers((round * NETWORKS.len() + index) as u64);
            let mut tokens: TokenStream = network.parse().expect("balanced tokens");
            for _ in 0..=numbers.below(4) {
                let mut at = numbers.below(count(&tokens));
                tokens = mutated(tokens, &mut at, &mut numbers);
            }
            let text = tokens.to_string();
            sender.send(text.clone()).expect("somebody waits");
            let declared = declares(&tokens);
            let expansion = crate::network(tokens.clone());
            if let Err(error) = syn::parse2::<syn::File>(expansion.clone()) {
                panic!("{error} in the expansion of\n{text}\n{expansion}");
            }
            let expansion = expansion.to_string();
            if declared && !expansion.contains("struct") {
                panic!("no struct is left of\n{text}\n{expansion}");
            }
            let _ = crate::modules::network_mod(TokenStream::new(), quote::quote!(mod m { #tokens }));
            let _ = crate::instantiation::fits(tokens);
        }
    }
}

/// Layers with one mistake each, in any order: something is said, and never the same of the same tokens twice.
#[test]
fn mistakes_of_layers_in_any_order() {
    const LAYERS: [&str; 18] = [
        "Conv2d(16, 3, dilate = 2)",
        "Rleu",
        "Add([], Conv2d(24, 1))",
        "Concat(Conv2d(3, 2), [])",
        "Conv2d(20, 3, groups = 7)",
        "Linear(4096, 10)",
        "Linear(0)",
        "Conv2d(8)",
        "Conv2d(3, 16, 3, 1, 1)",
        "MaxPool2d(2, stride = 0)",
        "Foo",
        "LSTM(8)",
        "Embedding(9, 4)",
        "block(3)",
        "repeat([Flatten], 2)",
        "if WIDTH > 3 { Flatten } else { [Relu, tap(), from(skp)] }",
        "MatMul([], Linear(3))",
        "CausalSelfAttention(4, kv_heads = 2)",
    ];
    for round in 0..400 {
        let mut numbers = Numbers(round);
        let layers: Vec<&str> = (0..=numbers.below(8)).map(|_| LAYERS[numbers.below(LAYERS.len())]).collect();
        let input = ["Image<3, 32, 32>", "Sequence<8, 16>", "Tokens<8>", "Features<16>"][numbers.below(4)];
        let block = "fn block(width: usize, on: bool) -> Block { [tap(skip), if on { Conv2d(width, 3) }] }";
        let body = format!("[{}]", layers.join(", "));
        let found = super::mistakes(&super::forward(input, "Logits<10>", &body, block));
        assert!(!found.is_empty(), "{body}");
        for (index, (_, message)) in found.iter().enumerate() {
            let again = found[..index].iter().any(|(_, earlier)| earlier == message);
            assert!(!again || !message.starts_with("layer "), "{body}: {found:#?}");
        }
        let tokens: TokenStream = super::forward(input, "Logits<10>", &body, block).parse().expect("balanced tokens");
        let expansion = crate::network(tokens).to_string();
        assert!(expansion.contains("compile_error") && expansion.contains("struct Net ;"), "{expansion}");
    }
}

#[test]
fn nesting() {
    let mut list: TokenStream = "Relu".parse().expect("balanced tokens");
    for _ in 0..1000 {
        list = TokenTree::from(Group::new(Delimiter::Bracket, list)).into();
    }
    let tokens = quote::quote!(struct Net; fn forward(x: Features<4>) -> Features<4> { [Linear(4), #list] });
    let expansion = crate::network(tokens).to_string();
    assert!(expansion.contains("nested 128 deep") && expansion.contains("struct Net ;"), "{expansion}");
    let tokens = quote::quote!(
        struct Net;
        fn forward(x: Features<4>) -> Features<4> {
            f([])
        }
        fn f(b: Block) -> Block {
            f([b, b])
        }
    );
    let expansion = crate::network(tokens).to_string();
    assert!(expansion.contains("recursion without end"), "{expansion}");
}

/// Expansion would never end if a loop had no end, or if each level of nesting were read more often than the last.
#[test]
fn every_loop_ends() {
    let forward = |output: &str, body: &str| format!("struct Net; fn forward(x: Features<4>) -> {output} {{ {body} }}");
    let mut nested = "Relu".to_string();
    for _ in 0..60 {
        nested = format!("[[{nested}] Relu; 3]");
    }
    for text in [
        forward("({})", "[Linear(4)]"),
        forward("(Features<4>, Features<4 {}>)", "[Linear(4)]"),
        forward("({} {}, {})", "[Linear(4)]"),
        forward("(Heads { a: Features<4> }, Features<4>)", "[Linear(4)]"),
        forward("Features<4>", &nested),
        "struct Net; fn forward({}) -> Features<4> { [Linear(4)] }".to_string(),
        "struct Net; fn forward(x: {}, y: {} {}) -> Features<4> { [Linear(4)] }".to_string(),
        "struct Net; operation! { fn A(x: [{} {}], {}) -> [{}] { keeps: [{}], saves: { {} } } }".to_string(),
        "struct Net; const TRAIN: Train = Train { {} {}, # }; # fn".to_string(),
    ] {
        let (sender, ended) = mpsc::channel();
        let tokens = text.clone();
        std::thread::spawn(move || {
            let expansion = crate::network(tokens.parse().expect("balanced tokens")).to_string();
            sender.send(expansion.contains("compile_error")).expect("somebody waits");
        });
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "{text}");
    }
}
