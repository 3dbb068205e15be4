//! The [`network!`] macro of gpumem: tokens to graph to tokens.
//!
//! ```text
//! tokens --parse--> syntax --resolve--> graph --expand--> tokens
//! ```
//!
//! | stage | does |
//! | --- | --- |
//! | `parse` | reads what was written, mistakes or not |
//! | `resolve` | unrolls blocks, `repeat`, conditions and sharing into a graph with every shape known |
//! | `train` | reads `TRAIN` and `INFER` |
//! | `expand` | writes tables, the program, plans, checks and `typenum` proofs |
//!
//! Shapes, lifetimes and programs are those of `gpumem-core`; no memory is counted here. All mistakes are collected and reported in one build, each
//! at its own tokens. The struct exists even after a mistake, so that they are the only errors.

mod averages;
mod declare;
mod descent;
mod errors;
mod expand;
mod expressions;
mod instantiation;
mod layer_decay;
mod literals;
mod loss;
mod manifest;
mod micro;
mod module;
mod names;
mod namesake;
mod offload;
mod optimizer;
mod parse;
mod resolve;
mod selected;
mod steps;
mod syntax;
#[cfg(test)]
mod tests;
mod train;
mod travel;

use declare::declare;
use syn::ext::IdentExt as _;
// Outside a compiler the macros are functions of a library, which `fuzz/macros` builds from this file.
#[cfg(gpumem_library)]
extern crate proc_macro;
#[cfg(not(gpumem_library))]
use proc_macro::TokenStream;
#[cfg(gpumem_library)]
use proc_macro2::TokenStream;

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
/// | item | says |
/// | --- | --- |
/// | `pub struct Name;` | the network's type; `pub struct Name<const BATCH: usize>;` is generic over the batch and has `batch: BATCH` |
/// | `const TRAIN: Train = Train { .. };` | how it is trained. Without it the network is for inference |
/// | `const CRITIC: Train = Train { trains: "critic*", .. };` | one of several training steps, each of which trains the parameters that it names: `Net::critic(&mut net).train_step(..)` makes it |
/// | `const INFER: Infer = Infer { .. };` | how it is used without training; beside `TRAIN`, both programs are checked |
/// | `fn forward(x: Input) -> Output { .. }` | the network. It may have several inputs, `(image: Image<..>, tokens: Tokens<..>)`, and outputs, `-> (Logits<10>, Map<4, 8, 8>)`; at run time both are tuples |
/// | `fn name(a: usize, p: f64, f: bool, b: Block) -> Block { .. }` | a block, to be called as `name(..)` as often as you like. With `#[freeze]` it is frozen wherever it is called, with `#[checkpoint]` it is computed a second time for the backward pass |
/// | `const NAME: usize = ..;` | a number for dimensions and for `TRAIN`; it is an item of the module if it is `pub` |
/// | `use blocks path::to::resnet;` | blocks of a module that [`blocks!`] declares, here or in another crate, to be called as `resnet::bottleneck(..)`, or as `bottleneck(..)` where no other block has the name. Several at once, and `as`, are written as in Rust. `#[blocks] use path::to::resnet;` says the same |
/// | `use ..;` | passed through |
/// | `crate = gm;` | first, where this library has another name or is reached through another crate, `crate = company::gpumem;`. The path is read where the network stands; the attributes have it as `#[network_mod(crate = gm)]`, and `blocks!` and `fits!` begin with it |
///
/// Numbers that layers need stand in the network: a macro cannot read constants of other code. Other code can read those of the
/// network that are `pub`. No part of a network has a `#[cfg(..)]`; one before the struct is for all of it.
///
/// Inputs are `Image<C, H, W>`, `Images<u8, C, H, W>` (bytes, for `Normalize`), `Features<N>`, `Tokens<T>`, `Sequence<T, D>`, `Signal<C, L>`, `Volume<C, D, H, W>` and,
/// of any shape of up to six axes, `Values<A, B, ..>`; outputs are `Logits<N>`, `Features<N>`, `Map<C, H, W>`, `Sequence<T, D>`, `TokenLogits<T, V>`,
/// `Signal<C, L>`, `Volume<C, D, H, W>` and `Values<A, B, ..>`. The outputs are checked against what the layers produce. The body begins with the first
/// input; every input can be read by its name, `from(tokens)`.
///
/// Fields of `Train`: `batch`, `trains` (names of parameters, where a network has several steps), `micro_batches`, `precision` (`F32`, `Bf16`, `F16`, `Mixed(Bf16)`, `Mixed(F16)`), `optimizer`
/// (`Sgd { .. }`, `Adam { .. }`, `AdamW { .. }` and others, see `gpumem::optim`), `loss`, `cards`, `update` (`Fused`, `Separate`), `checkpoint`
/// (`Norms`, the default, `None`, `Cheap`, `Auto`, `Budget(0.6)`, see `gpumem::Checkpoint`), `conv_norm` (`Fused`, the default, `Separate`, see
/// `gpumem::ConvNorm`), `offload`
/// (`OptimizerState`, `Activations` or `All`, see `gpumem::Offload`), `clip`
/// (`GlobalNorm(1.0)`, `Value(0.5)`, see `gpumem::Clip`), `schedule` (`Cosine { .. }` and others, see `gpumem::Schedule`), `measure` (`GradientNorm`, see
/// `gpumem::Measurement`), `skip` (`NonFinite`, see `gpumem::Skip`), `ema` (`0.999`, or `Ema { .. }`, see `gpumem::Ema`), `conv_workspace`, `headroom`, `tf32`, `deterministic`, `seed`; of `Infer`: `batch`, `precision`, `cards`, `headroom`, and
/// for a network with causal attention `cache` and `chunk`, the most steps of a sequence whose keys and values are kept, and how many are
/// computed at a time. What
/// changes the program and the cards are written out, the numbers are any const expressions, and what is left out takes its
/// default, but for the `batch` of `Train`, which nobody else can choose. `batch: Largest` is the largest batch that fits the cards,
/// and `Net::TRAIN.batch` the number.
///
/// Every optimizer takes groups of parameters with a rate or a weight decay of their own, by their names, in which `*` stands for any text:
/// `AdamW { lr: 1e-3, groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }, Group { paths: "head.*", lr: 1e-2 }] }`. A number is
/// that of the last group that has it. Paths that match nothing are mistakes. Groups may have `betas`, `eps` and `momentum` too, and `layer_decay: 0.75`
/// gives early layers smaller rates: see `gpumem::optim::Group`.
///
/// A loss is one of `Loss`, each with its options on its page (`CrossEntropy`, `Nll`, `BceWithLogits`, `Mse`, `L1`, `SmoothL1`,
/// `Huber`, `KlDiv`, `CosineEmbedding`, `Ctc`, `Contrastive`, `Siglip`, `NtXent`, `TripletMargin`, `MarginRanking`, `Mean`), or a weighted sum of them: `CrossEntropy + 0.3 * CrossEntropy(from = aux)`. Options have
/// PyTorch's names and stand in braces, `Huber { delta: 0.5 }`, before the parentheses if there are some. A term
/// measures the first output, or the tap or input named by `from`; `CosineEmbedding` and losses of a batch measure the first two
/// outputs, or two taps, `from = (x, y)`. Terms without a `target = name` share the first target,
/// those with one name have one of their own, and `Mean` and losses of a batch compare with nothing. Targets are handed in as a tuple, in the order
/// in which they are first named: of a term its target, then `input_lengths` of `Ctc`, then `weights = name`, a number for each sample, or
/// `mask = name`, a number for each term. Losses of elements take `lengths = n`, an input `n: Lengths<T>`: only the first `n` of T steps
/// count; a mean over padded steps without it or a mask is an error, for classes without `ignore_index`. What only a loss reads is not part of
/// inference. `CrossEntropy` measures logits, so it is refused right
/// after `Softmax`, `Relu` or `Sigmoid`, as `BceWithLogits` is; a tap before these is measured with
/// `CrossEntropy(from = logits)`. A target of a class is a `u32`, all others are numbers.
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
/// | `SqueezeExcite(64, 16)`, `TransformerBlock(512, 8, causal)` | a composite, a block that comes with the language. A block of the same name takes its place |
/// | `repeat(n, x)` | `x` n times, with parameters of its own each time |
/// | `Add(x, y, ..)`, `Sub(x, y)`, `Mul(x, y)`, `Div(x, y)` | feeds its input to every branch and joins the results, broadcast over the axes of a sample as numpy does |
/// | `MatMul(x, y, transpose_b)`, `Concat(x, y, .., dim = 1)` | the same with matrix products, and side by side |
/// | `Outputs(x, y)`, at the end of `forward` | the outputs, each from the same input |
/// | `freeze(x)`, `Linear(10, freeze)` | this use of `x` without training: no gradient goes to its parameters here, and nothing is kept for one; without another use they have no optimizer state. Where nothing trainable lies before it, nothing flows back through it |
/// | `detach(x)`, `detach` after a value | the value, through which nothing flows back |
/// | `eval(x)`, `train(x)` | `x` in training as without it: batch norms by their running statistics, which rest, and no dropout; or as in training. `freeze` around a batch norm or dropout asks for one of them |
/// | `lengths(n, x)`, with an input `n: Lengths<T>` | `x` over the first `n` of T steps of each sample: attention sees no others, reductions over steps and recurrent layers end there; `of = name` names another value than what arrives |
/// | `segments(rows, x)`, with an input `rows: Segments<T>` | `x` over several documents in a row: attention sees its own, and positions count from its beginning |
/// | `checkpoint(x)` | `x`, whose inside is computed a second time for the backward pass and not kept for it |
/// | `lora(8, 16.0, x, targets = "q_proj, v_proj")` | `x` frozen, with trained adapters of rank 8 for its linear maps of these names, or without `targets` for all of them; with `base = Nf4`, `base = Nf4Double` or `base = Int8` their frozen weights are kept in 4 or 8 bits |
/// | `if condition { x } else { y }` | one of them, decided at compile time |
/// | `w`, after `let w = x;` | `x`; later uses share its parameters |
/// | `Tied(w)` | the transposed use of a named `Embedding` or `Linear` |
/// | `tap(name)`, `from(name)` | marks a value, under a name of its own; reads it again, here or in a block called from here. The input has its own name. A tap is read by a `from` or by the loss |
///
/// Values are numbers, `true`, `false`, texts, pairs `(height, width)` and expressions over literals, block parameters and
/// constants, with `+ - * / %`, comparisons, `&& || !` and `if`. Every layer takes `name = "fc1"`, its segment in the path.
///
/// # Paths
///
/// A layer's path is the blocks around it and its kind, `stage[0].conv2d[1]`, numbered among equal names of its block, without a
/// number where it is the only one. The layer table in the struct's documentation shows all of them.
///
/// Blocks and `repeat` take `name = ".."` too, and `#[name = ".."]` before the `fn` of a block names its calls. `""` adds nothing to paths, and
/// `"[]"` a number alone, as modules of an `nn.Sequential` have: `layer1[0].conv1`. A layer of one parameter takes `parameter = "cls_token"`:
/// its parameter is `cls_token`, and not `cls_token.weight`.
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn network(tokens: TokenStream) -> TokenStream {
    compile(tokens.into()).into()
}

/// Declares a network as [`network!`] does, but around a module, so that rustfmt and rust-analyzer see ordinary items:
/// `#[network_mod] mod vgg { pub struct Vgg16; .. }` declares `vgg::Vgg16`.
#[cfg_attr(not(gpumem_library), proc_macro_attribute)]
pub fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    module::network_mod(arguments.into(), item.into()).into()
}

/// Declares modules of blocks that networks use, in this crate and in others.
///
/// ```ignore
/// blocks! {
///     /// What residual networks are made of.
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
/// A module has blocks, `const`s, `use`s, and `use blocks ..` of its own. Every block of it can be called from where the
/// module can be named. The generated module's documentation lists them.
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn blocks(tokens: TokenStream) -> TokenStream {
    let expanded = match travel::arrive("blocks", tokens.into()) {
        Ok(gathered) if gathered.modules.is_empty() => module::blocks(gathered.tokens),
        Ok(gathered) => declare::arrived(gathered.tokens, &gathered.modules),
        Err(on_the_way) => on_the_way,
    };
    expanded.into()
}

/// Declares blocks as [`blocks!`] does, but around a module, so that rustfmt and rust-analyzer see ordinary items:
/// `#[blocks_mod] pub mod resnet { fn bottleneck(width: usize) -> Block { [..] } }`. There, and under
/// [`macro@network_mod`], blocks are imported with `#[blocks] use path::to::resnet;`.
#[cfg_attr(not(gpumem_library), proc_macro_attribute)]
pub fn blocks_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    module::blocks_mod(arguments.into(), item.into()).into()
}

/// Declares layers of one's own: see [the guide](https://docs.rs/gpumem/latest/gpumem/guide/layers_of_your_own/index.html).
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
/// Inside a network or a module of blocks, `operation! { fn Swish(x) { .. } }` declares a layer for what stands beside it.
///
/// Between the parentheses stands the value that arrives, with the names of its axes if they are needed, `x: [channels, height,
/// width]` or `x: [rows.., features]`, and then the layer's arguments, which are `usize`, `f64` or `bool` and may have a default.
///
/// # Formulas
///
/// A formula is made of `x`, arguments, constants and numbers, with `+ - * /`, comparisons, `&& || !`, `if .. else ..`, `let`, and
/// the functions `abs`, `clamp`, `cos`, `erf`, `exp`, `expm1`, `floor`, `log`, `log1p`, `max`, `min`, `pow`, `relu`, `round`,
/// `rsqrt`, `sigmoid`, `sign`, `sin`, `softplus`, `sqrt` and `tanh`. It runs on every device. Its derivative is found, or given. Where
/// both sides of `max` or `min` are equal, the one found is that of the second: `clamp` has slope 0 on its bounds, where PyTorch's has 1.
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
/// What is no formula has fields:
///
/// | field | says | left out |
/// | --- | --- | --- |
/// | `-> [rows.., features / 2]`, before the braces | the shape of the output | that of the input |
/// | `requires: [features % 2 == 0]` | what must hold | nothing |
/// | `parameters: { weight: [features] = Normal(0.02) }` | parameters and how they begin: a number, `Uniform(bound)`, `Normal(deviation)`, `Kaiming(inputs)` | none |
/// | `saves: { means: [rows] }` | what forward leaves for backward, for each sample, in f32 | nothing |
/// | `keeps: [x, y, weight]` | what backward reads beside the gradient of the output and what is saved | nothing |
/// | `workspace: rows` or `workspace: (rows, 2 * rows)` | scratch memory of forward and backward for each sample, in f32 | none |
/// | `macs: rows * features` | multiply-accumulates of a sample | 0 |
/// | `cpu: path` | a module or a type with `forward` and `backward`: see [`operation`](https://docs.rs/gpumem/latest/gpumem/operation/index.html) | it does not run on the CPU |
/// | `cuda: "kernels/blur.cu"` | a CUDA file with kernels `forward` and `backward`, from this file on | it does not run on cards |
/// | `threads: rows` or `threads: (rows, features)` | threads of the kernels for each sample | one an element of `y`, and of `x` |
///
/// All of it counts in every budget, also where there is no function for a device: loading the network there is an error then.
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn operation(tokens: TokenStream) -> TokenStream {
    module::operations(tokens.into()).into()
}

/// Checks one instantiation of a network that is generic over its batch: `fits!(Vgg16<64>);` fails under `cargo check` where
/// `Vgg16<64>` does not fit. Other instantiations are checked by `cargo build`, where they are loaded.
///
/// `fits!(Generator + Critic, RTX_3060);` checks that several networks fit a card at once, in one process. Without a card, those of
/// Cargo features, `GPUMEM_CARDS` and `GPUMEM_VRAM` are checked.
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn fits(tokens: TokenStream) -> TokenStream {
    instantiation::fits(tokens.into()).into()
}

/// Returns the largest batch with which a network fits a card, or several, as a constant: `const BATCH: usize = max_batch!(Vgg16, RTX_3060);`.
/// 0 if not even one sample fits. Without a card, those of Cargo features, `GPUMEM_CARDS` and `GPUMEM_VRAM` are meant.
///
/// The step is the network's own, or its forward pass where it has no `const TRAIN`, with the precision and the headroom that are written
/// there, and with as much recomputation as it has at its own batch. A network that is to have this batch itself has `batch: Largest`, which
/// is the largest that fits its own cards: with `checkpoint: Auto` that of the leanest step.
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn max_batch(tokens: TokenStream) -> TokenStream {
    instantiation::max_batch(tokens.into()).into()
}

/// Returns the text of a network's budget. Only generated code calls it.
#[doc(hidden)]
#[cfg_attr(not(gpumem_library), proc_macro)]
pub fn __needs(tokens: TokenStream) -> TokenStream {
    expand::documentation(tokens.into()).into()
}

/// Expands a network, through all stages. If it uses modules of blocks, the expansion is a call that fetches those first.
fn compile(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let travel::Gathered { tokens, modules } = match travel::arrive("network", tokens) {
        Ok(gathered) => gathered,
        Err(on_the_way) => return on_the_way,
    };
    let mut errors = errors::Errors::default();
    let Some(mut source) = parse::source(tokens.clone(), &modules, &mut errors) else {
        let (items, last) = errors.into_tokens();
        return quote::quote!(#items #last);
    };
    if source.facade.is_default()
        && let Some(name) = manifest::other_name()
    {
        let message = format!(
            "this crate calls `gpumem` by the name `{name}`; begin with `crate = {name};`, or write `#[network_mod(crate = {name})]`"
        );
        errors.add(&source.declaration.name, message);
        source.facade = syntax::Facade::named(&name);
    }
    if modules.is_empty()
        && let Some(on_the_way) = travel::depart(&source.facade, "network", &source.module.uses, &tokens)
    {
        let conditions = expand::conditions(&source);
        return quote::quote!(#conditions #on_the_way);
    }
    let resolved = resolve::resolve(&source, &mut errors);
    let readings = read(&source, &resolved, &mut errors);
    if let Some(line) = namesake::earlier(&source.declaration.name) {
        let name = source.declaration.name.unraw();
        let message = format!("the network in line {line} is called `{name}` too; give one of them another name");
        errors.add(&source.declaration.name, message);
        errors.last_to_front();
        let (items, last) = errors.into_tokens();
        return quote::quote!(#items #last);
    }
    expand::expand(&source, &resolved, &readings, errors)
}

/// Reads `TRAIN` and `INFER`, and checks the graph against them.
fn read<'s>(
    source: &'s syntax::Source,
    resolved: &resolve::Resolved,
    errors: &mut errors::Errors,
) -> expand::Readings<'s> {
    let is_generic = source.declaration.batch.is_some();
    let mut read = |settings| train::train(settings, is_generic, resolved, &source.module.constants, errors);
    let trains = source.trains.iter().map(&mut read).collect();
    let infer = source.infer.as_ref().map(|settings| train::infer(settings, errors));
    let readings = expand::Readings { trains, infer };
    steps::check(source, &readings.trains, resolved, errors);
    train::check_generic_batch(&source.declaration, readings.primary(), errors);
    if errors.is_empty() {
        let mut ends = resolved.outputs.clone().unwrap_or_default();
        ends.extend(readings.terms().flat_map(|term| term.nodes()));
        resolve::check::check_dead_layers(resolved, &ends, errors);
    }
    readings
}
