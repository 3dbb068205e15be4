//! The procedural macros of gpumem. Each converts its tokens, and `gpumem-language` does the rest.

use proc_macro::TokenStream;

/// Declares a network: a struct that implements `gpumem::Network`, checked against the memory of the cards it is aimed at.
///
/// ```ignore
/// network! {
///     /// VGG-16 for 224x224 RGB images.
///     pub struct Vgg16;
///
///     const TRAIN: Train = Train {
///         batch: 64,
///         optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
///         loss: CrossEntropy,
///         cards: [RTX_3060],
///     };
///
///     fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
///         [
///             stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512),
///             Flatten,
///             Linear(4096), Relu(inplace), Dropout(0.5),
///             Linear(4096), Relu(inplace), Dropout(0.5),
///             Linear(1000),
///         ]
///     }
///
///     fn stage(depth: usize, channels: usize) -> Block {
///         [repeat(depth, [Conv2d(channels, 3, padding = 1), Relu(inplace)]), MaxPool2d(2)]
///     }
/// }
/// ```
///
/// # Items
///
/// | item | declares |
/// | --- | --- |
/// | `pub struct Name;` | the network's type; `pub struct Name<const BATCH: usize>;` is generic over the batch and has `batch: BATCH` |
/// | `const TRAIN: Train = Train { .. };` | the settings of training. Without it the network is for inference |
/// | `const CRITIC: Train = Train { trains: "critic*", .. };` | one of several training steps, with the names of the parameters it trains |
/// | `const INFER: Infer = Infer { .. };` | the settings of inference. With a `TRAIN` too, both programs are checked |
/// | `fn forward(x: Input) -> Output { .. }` | the network. It may have several inputs, `(image: Image<..>, tokens: Tokens<..>)`, and outputs, `-> (Logits<10>, Map<4, 8, 8>)`; at run time both are tuples |
/// | `fn name(a: usize, p: f64, f: bool, b: Block) -> Block { .. }` | a block, which can be called as `name(..)` any number of times |
/// | `const NAME: usize = ..;` | a number for dimensions and for `TRAIN`. If it is `pub`, it is an item of the module |
/// | `use blocks path::to::resnet;` | an import of a module of blocks that [`blocks!`] declares, here or in another crate |
/// | `use ..;` | an import of Rust, passed through |
/// | `crate = gm;` | the path of this library, if it has another name or is reached through another crate |
///
/// With several training steps, `Net::critic(&mut net).train_step(..)` runs the one of `const CRITIC`. With `#[freeze]` before its `fn`, a block is
/// frozen in all its calls. With `#[checkpoint]`, it is recomputed for the backward pass.
///
/// Imported blocks are called as `resnet::bottleneck(..)`, or as `bottleneck(..)` if no other block has the name. `use blocks` takes several
/// paths and `as`, as `use` does in Rust. `#[blocks] use path::to::resnet;` is equivalent. `crate = gm;` is the first item, and may be a path,
/// `crate = company::gpumem;`. It is resolved at the place of the network. The attributes take it as `#[network_mod(crate = gm)]`. `blocks!` and
/// `fits!` begin with it.
///
/// The network declares the numbers that its layers need, because a macro cannot read constants of other code. Other code can read the network's
/// `pub` constants. No part of a network can have a `#[cfg(..)]`. One before the struct applies to the whole network.
///
/// Inputs are `Image<C, H, W>`, `Images<u8, C, H, W>` (bytes, for `Normalize`), `Features<N>`, `Tokens<T>`, `Sequence<T, D>`, `Signal<C, L>`,
/// `Volume<C, D, H, W>` and, of any shape of up to six axes, `Values<A, B, ..>`. Outputs are `Logits<N>`, `Features<N>`, `Map<C, H, W>`,
/// `Sequence<T, D>`, `TokenLogits<T, V>`, `Signal<C, L>`, `Volume<C, D, H, W>` and `Values<A, B, ..>`. The outputs are checked against the shapes
/// that the layers produce. The body begins with the first input. Every input can be read by its name, `from(tokens)`.
///
/// Fields of `Train`: `batch`, `trains` (names of parameters, if a network has several steps), `micro_batches`, `precision` (`F32`, `Bf16`, `F16`,
/// `Mixed(Bf16)`, `Mixed(F16)`), `optimizer` (`Sgd { .. }`, `Adam { .. }`, `AdamW { .. }` and others, see `gpumem::optim`), `loss`, `cards`,
/// `update` (`Fused`, `Separate`), `checkpoint` (`Norms`, the default, `None`, `Cheap`, `Auto`, `Budget(0.6)`, see `gpumem::Checkpoint`),
/// `conv_norm` (`Fused`, the default, `Separate`, see `gpumem::ConvNorm`), `offload` (`OptimizerState`, `Activations` or `All`, see
/// `gpumem::Offload`), `clip` (`GlobalNorm(1.0)`, `Value(0.5)`, see `gpumem::Clip`), `schedule` (`Cosine { .. }` and others, see
/// `gpumem::Schedule`), `measure` (`GradientNorm`, see `gpumem::Measurement`), `skip` (`NonFinite`, see `gpumem::Skip`), `ema` (`0.999`, or
/// `Ema { .. }`, see `gpumem::Ema`), `conv_workspace`, `headroom`, `tf32`, `deterministic`, `seed`.
///
/// Fields of `Infer`: `batch`, `precision`, `cards`, `headroom`, and for a network with causal attention `cache` (the most steps of a sequence
/// whose keys and values are kept) and `chunk` (the number of steps that are computed at a time).
///
/// Settings that change the program, and the cards, are written literally. Numbers may be any const expressions. A field that is left out has its
/// default. Only the `batch` of `Train` has none. `batch: Largest` is the largest batch that fits the cards, and `Net::TRAIN.batch` is its number.
///
/// Every optimizer takes groups of parameters with their own rate or weight decay. Groups select parameters by name; `*` matches any text:
/// `AdamW { lr: 1e-3, groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }, Group { paths: "head.*", lr: 1e-2 }] }`. If several groups of a
/// parameter set a number, the last one applies. Paths that match nothing are mistakes. Groups may have `betas`, `eps` and `momentum` too, and
/// `layer_decay: 0.75` gives early layers smaller rates: see `gpumem::optim::Group`.
///
/// A loss is one of `Loss`, or a weighted sum of them: `CrossEntropy + 0.3 * CrossEntropy(from = aux)`. The page of `Loss` has all of them with
/// their options. Options have PyTorch's names and are in braces, `SmoothL1 { beta: 0.5 }`, before the parentheses if there are any.
///
/// * A term measures the first output, or the tap or input named by `from`. Losses of two values and losses of a batch measure the first two
///   outputs, or two taps, `from = (x, y)`.
/// * Terms without a `target = name` share the first target. Terms with equal names share another target. `Mean` and losses of a batch have none.
/// * Targets are passed as a tuple, in the order in which they are first named. Each term has its target, then `input_lengths` for `Ctc`, then
///   `weights = name` (a number for each sample) or `mask = name` (a number for each term). A target of a class is a `u32`, all others are numbers.
/// * Losses of elements take `lengths = n`, an input `n: Lengths<T>`: only the first `n` of T steps count. A mean over padded steps without `lengths`
///   or a mask is an error; for classes, `ignore_index` is allowed too.
/// * Values that only a loss reads are not part of inference.
/// * `CrossEntropy` and `BceWithLogits` measure logits, so they are refused directly after `Softmax`, `Relu` or `Sigmoid`. A tap before these
///   is measured with `CrossEntropy(from = logits)`.
///
/// # Elements
///
/// A body is `let` statements and one element.
///
/// | element | does |
/// | --- | --- |
/// | `[a, b, c]` | one after the other; `[]` passes its input on |
/// | `Conv2d(64, 3, padding = 1)`, `Relu(inplace)`, `Flatten` | a layer with values, `name = value` options and flags |
/// | `stage(2, 64)`, `stage(channels = 64, depth = 2)` | a block; the name of a `bool` among its parameters is a flag |
/// | `SqueezeExcite(64, 16)`, `TransformerBlock(512, 8, causal)` | a composite, which is a built-in block. A block of that name replaces it |
/// | `repeat(n, x)` | `x` n times, each time with its own parameters |
/// | `Add(x, y, ..)`, `Sub(x, y)`, `Mul(x, y)`, `Div(x, y)` | feeds its input to every branch and joins the results, broadcast over the axes of a sample as numpy does |
/// | `MatMul(x, y, transpose_b)`, `Concat(x, y, .., dim = 1)` | joins the branches by a matrix product, or by concatenation |
/// | `Outputs(x, y)`, at the end of `forward` | the outputs, each from the same input |
/// | `freeze(x)`, `Linear(10, freeze)` | this use of `x` without training |
/// | `detach(x)`, `detach` after a value | the value, through which no gradient flows back |
/// | `eval(x)`, `train(x)` | `x` in the mode of inference or of training, as PyTorch's `eval()` and `train()` |
/// | `lengths(n, x)`, with an input `n: Lengths<T>` | `x` over the first `n` of T steps of each sample |
/// | `segments(rows, x)`, with an input `rows: Segments<T>` | `x` over several documents in each row of T steps |
/// | `checkpoint(x)` | `x`, whose inside is recomputed for the backward pass instead of kept |
/// | `lora(8, 16.0, x, targets = "q_proj, v_proj")` | `x` frozen, with trained adapters of rank 8 for its linear maps of these names |
/// | `if condition { x } else { y }` | one of them, decided at compile time |
/// | `w`, after `let w = x;` | `x`; later uses share its parameters |
/// | `Tied(w)` | the transposed use of a named `Embedding` or `Linear` |
/// | `tap(name)`, `from(name)` | marks a value by a name; reads it again, here or in a block called from here |
///
/// * `freeze`: this use passes no gradient to its parameters, and keeps nothing for one. Parameters without another use have no optimizer state. If
///   nothing trainable is before it, no gradient flows back through it. Around a batch norm or dropout, `freeze` requires `eval` or `train`.
/// * `eval`: batch norms use their running statistics without updating them, and dropout does nothing.
/// * `lengths`: inside, attention sees only these steps, and reductions over steps and recurrent layers end after them. `of = name` names a value to
///   use instead of the current one.
/// * `segments`: inside, attention sees only its own document, and positions count from the document's beginning.
/// * `lora`: without `targets`, all linear maps have adapters. With `base = Nf4`, `base = Nf4Double` or `base = Int8`, their frozen weights are kept
///   in 4 or 8 bits.
/// * `tap`: each tap has its own name, which no input has. A `from` or the loss must read it.
///
/// Values are numbers, `true`, `false`, texts, pairs `(height, width)` and expressions over literals, block parameters and
/// constants, with `+ - * / %`, comparisons, `&& || !` and `if`. Every layer takes `name = "fc1"`, its segment in the path.
///
/// # Paths
///
/// A layer's path is the names of the blocks around it and its kind, `stage[0].conv2d[1]`. Equal names in a block are numbered; a name that occurs
/// once has no number. The layer table in the struct's documentation shows all paths.
///
/// Blocks and `repeat` take `name = ".."` too, and `#[name = ".."]` before the `fn` of a block names its calls. `""` adds nothing to paths. `"[]"`
/// adds only a number, as for modules of an `nn.Sequential`: `layer1[0].conv1`. A layer of one parameter takes `parameter = "cls_token"`: its
/// parameter is then `cls_token` instead of `cls_token.weight`.
#[proc_macro]
pub fn network(tokens: TokenStream) -> TokenStream {
    gpumem_language::network(tokens.into()).into()
}

/// Declares a network in a module, as [`network!`] does in a macro call. rustfmt and rust-analyzer then see ordinary items:
/// `#[network_mod] mod vgg { pub struct Vgg16; .. }` declares `vgg::Vgg16`.
#[proc_macro_attribute]
pub fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    gpumem_language::network_mod(arguments.into(), item.into()).into()
}

/// Declares modules of blocks that networks use, in this crate and in others.
///
/// ```ignore
/// blocks! {
///     /// The blocks of residual networks.
///     pub mod resnet {
///         const EXPANSION: usize = 4;
///
///         /// Reduces, convolves and expands.
///         fn bottleneck(width: usize, stride: usize) -> Block {
///             [conv(width, 1, 1), conv(width, 3, stride), conv(EXPANSION * width, 1, 1)]
///         }
///
///         fn conv(channels: usize, kernel_size: usize, stride: usize) -> Block {
///             [Conv2d(channels, kernel_size, stride = stride, padding = kernel_size / 2, bias = false), BatchNorm2d, Relu]
///         }
///     }
/// }
///
/// network! {
///     pub struct Net;
///
///     use blocks resnet;
///
///     fn forward(image: Image<3, 32, 32>) -> Map<256, 16, 16> {
///         [resnet::bottleneck(64, 2)]
///     }
/// }
/// ```
///
/// A module has its own blocks, `const`s, `use`s, and `use blocks ..`. Each of its blocks can be called from any place where the module can be named.
/// The generated module's documentation lists them.
#[proc_macro]
pub fn blocks(tokens: TokenStream) -> TokenStream {
    gpumem_language::blocks(tokens.into()).into()
}

/// Declares blocks in a module, as [`blocks!`] does in a macro call. rustfmt and rust-analyzer then see ordinary items:
/// `#[blocks_mod] pub mod resnet { fn bottleneck(width: usize) -> Block { [..] } }`. There, and under
/// [`macro@network_mod`], blocks are imported with `#[blocks] use path::to::resnet;`.
#[proc_macro_attribute]
pub fn blocks_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    gpumem_language::blocks_mod(arguments.into(), item.into()).into()
}

/// Declares custom layers: see [the guide](https://docs.rs/gpumem/latest/gpumem/guide/layers_of_your_own/index.html).
///
/// ```ignore
/// operation! {
///     /// `x * sigmoid(beta * x)`.
///     pub fn Swish(x, beta: f64 = 1.0) {
///         x * sigmoid(beta * x)
///     }
/// }
///
/// network! {
///     pub struct Net;
///
///     use blocks Swish;
///
///     fn forward(image: Features<784>) -> Logits<10> {
///         [Linear(128), Swish(1.5), Linear(10)]
///     }
/// }
/// ```
///
/// Inside a network or a module of blocks, `operation! { fn Swish(x) { .. } }` declares a layer for that network or module.
///
/// The first parameter is the layer's input. It lists the names of its axes if the formula needs them, `x: [channels, height, width]` or
/// `x: [rows.., features]`. The layer's arguments follow. They are `usize`, `f64` or `bool` and may have a default.
///
/// # Formulas
///
/// A formula consists of `x`, arguments, constants and numbers, with `+ - * /`, comparisons, `&& || !`, `if .. else ..`, `let`, and
/// the functions `abs`, `clamp`, `cos`, `erf`, `exp`, `expm1`, `floor`, `log`, `log1p`, `max`, `min`, `pow`, `relu`, `round`,
/// `rsqrt`, `sigmoid`, `sign`, `sin`, `softplus`, `sqrt` and `tanh`. It runs on every device. Its derivative is computed automatically, or given.
/// If both sides of `max` or `min` are equal, the computed derivative is that of the second: `clamp` has slope 0 on its bounds, but PyTorch's has 1.
///
/// ```ignore
/// operation! {
///     /// Backward keeps the output `y`, and not `x`.
///     pub fn Squash(x) { value: tanh(x), derivative: 1.0 - y * y }
/// }
/// ```
///
/// # Functions
///
/// A layer that is not a formula has fields:
///
/// | field | meaning | if left out |
/// | --- | --- | --- |
/// | `-> [rows.., features / 2]`, before the braces | the shape of the output | the shape of the input |
/// | `requires: [features % 2 == 0]` | conditions that must hold | none |
/// | `parameters: { weight: [features] = Normal(0.02) }` | parameters and their initial values | none |
/// | `saves: { means: [rows] }` | tensors that forward saves for backward, for each sample, in f32 | none |
/// | `keeps: [x, y, weight]` | tensors that backward reads, besides the gradient of the output and the saved tensors | none |
/// | `workspace: rows` or `workspace: (rows, 2 * rows)` | scratch memory of forward and backward for each sample, in f32 | none |
/// | `macs: rows * features` | multiply-accumulates of a sample | 0 |
/// | `cpu: path` | a module or a type with `forward` and `backward`: see [`operation`](https://docs.rs/gpumem/latest/gpumem/operation/index.html) | it does not run on the CPU |
/// | `cuda: "kernels/blur.cu"` | a CUDA file with kernels `forward` and `backward`, relative to this file | it does not run on cards |
/// | `threads: rows` or `threads: (rows, features)` | threads of the kernels for each sample | one per element of `y`, and of `x` |
///
/// The initial values of a parameter are a number, `Uniform(bound)`, `Normal(deviation)` or `Kaiming(inputs)`.
///
/// Every budget counts these fields, even if there is no function for a device. Then loading the network onto that device is an error.
#[proc_macro]
pub fn operation(tokens: TokenStream) -> TokenStream {
    gpumem_language::operation(tokens.into()).into()
}

/// Checks one instantiation of a network that is generic over its batch: `fits!(Vgg16<64>);` fails under `cargo check` if
/// `Vgg16<64>` does not fit. `cargo build` checks other instantiations when it compiles code that loads them.
///
/// `fits!(Generator + Critic, RTX_3060);` checks that several networks fit a card at once, in one process. If no card is named, it checks the
/// cards of Cargo features, `GPUMEM_CARDS` and `GPUMEM_VRAM`.
#[proc_macro]
pub fn fits(tokens: TokenStream) -> TokenStream {
    gpumem_language::fits(tokens.into()).into()
}

/// Returns the largest batch with which a network fits a card, or several, as a constant: `const BATCH: usize = max_batch!(Vgg16, RTX_3060);`.
/// It is 0 if not even one sample fits. If no card is named, it uses the cards of Cargo features, `GPUMEM_CARDS` and `GPUMEM_VRAM`.
///
/// The batch is that of the network's training step, or of its forward pass if it has no `const TRAIN`. Precision and headroom are the network's
/// own. The step recomputes as much as it does at the network's own batch. To give a network this batch itself, use `batch: Largest`: the largest
/// batch that fits its own cards. With `checkpoint: Auto`, that is the largest batch of the step with the least memory.
#[proc_macro]
pub fn max_batch(tokens: TokenStream) -> TokenStream {
    gpumem_language::max_batch(tokens.into()).into()
}

/// Returns the text of a network's budget. Only generated code calls it.
#[doc(hidden)]
#[proc_macro]
pub fn __needs(tokens: TokenStream) -> TokenStream {
    gpumem_language::needs(tokens.into()).into()
}
