//! The words of the language that are no layers, as pages: an editor shows them where the words are written in a network.
//!
//! Nothing here is used by a program.
#![allow(non_camel_case_types, reason = "they are spelt as in a network")]

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug)] pub enum $name {})*

        /// The names of all words.
        pub const WORDS: &[&str] = &[$(stringify!($name),)*];
    };
}

words! {
    /// `repeat(n, x)`: `x` so many times, one after the other, with parameters of its own each time.
    repeat,
    /// `tap(name)`: marks the value here, for `from(name)` and for the loss. It changes nothing.
    tap,
    /// `from(name)`: the value that `tap(name)` marked, or an input of that name, in place of what arrives.
    from,
    /// `freeze(x)`, or `freeze` among a layer's options: its parameters get no gradient and no optimizer state, and nothing is kept
    /// for them. Where nothing trainable lies before it, nothing flows back through it.
    freeze,
    /// `lora(rank, alpha, x)`: `x` frozen, with low-rank adapters of its linear maps, those of attentions among them: `W x + b` becomes
    /// `W x + b + alpha / rank * B A x`, of which A and B are trained.
    ///
    /// * Option `targets = "q_proj, v_proj"`: only the maps of these names have adapters. A target is the last names of a path, or of a
    ///   layer that the map is in, with `*` for any text.
    /// * Option `base = Nf4`, `base = Nf4Double` or `base = Int8`: weights of linear maps inside, with an adapter or without, are kept in 4 or 8
    ///   bits and are made numbers of the network's format where a product reads them: see [`Coding`](crate::number::Coding). Not those that
    ///   something else reads, as `Tied` does. Without it they are in the network's format.
    /// * Parameters of each map: `lora_A.weight` `[rank, in_features]`, uniform within `1 / sqrt(in_features)`, and `lora_B.weight`
    ///   `[out_features, rank]` = 0. In-projections of `MultiHeadAttention` have them beside `in_proj_weight`.
    /// * Backward keeps the input of each map, once for all that read it, and `rank` numbers a row.
    ///
    /// PEFT: `LoraConfig(r=rank, lora_alpha=alpha, target_modules=["q_proj", "v_proj"])`, and of a base in 4 bits
    /// `BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")`, with `bnb_4bit_use_double_quant=True` for `Nf4Double`.
    lora,
    /// `Outputs(x, y)`, at the end of `forward`: the network's outputs, each computed from what arrives.
    Outputs,
    /// `fn stage(depth: usize) -> Block { [..] }`: a block, to be called as `stage(2)`; as the type of a parameter, any element.
    Block,
    /// `Image<C, H, W>`: an input of C channels, H pixels high and W wide. `Tensor<f32, (D<batch>, D<C>, D<H>, D<W>)>` at run time.
    Image,
    /// `Images<u8, C, H, W>`: an input of images as they are stored, a byte for each channel of each pixel; `Normalize` makes numbers of
    /// them, on the device. `Tensor<u8, (D<batch>, D<C>, D<H>, D<W>)>` at run time.
    Images,
    /// `Features<N>`: a vector of N numbers a sample. `Tensor<f32, (D<batch>, D<N>)>` at run time.
    Features,
    /// `Tokens<T>`: an input of T indices a sample. `Tensor<u32, (D<batch>, D<T>)>` at run time.
    Tokens,
    /// `Sequence<T, D>`: T vectors of D numbers a sample. `Tensor<f32, (D<batch>, D<T>, D<D>)>` at run time.
    Sequence,
    /// `Signal<C, L>`: C channels of L numbers a sample. `Tensor<f32, (D<batch>, D<C>, D<L>)>` at run time.
    Signal,
    /// `Volume<C, D, H, W>`: C channels of D planes, H pixels high and W wide: frames of a clip, or slices of a scan.
    /// `Tensor<f32, (D<batch>, D<C>, D<D>, D<H>, D<W>)>` at run time.
    Volume,
    /// `Values<A, B, ..>`: numbers of any shape of up to six axes a sample.
    Values,
    /// `Logits<N>`: an output of N class scores a sample, as `CrossEntropy` takes them. `Tensor<f32, (D<batch>, D<N>)>` at run time.
    Logits,
    /// `Map<C, H, W>`: an output of C channels, H pixels high and W wide.
    Map,
    /// `TokenLogits<T, V>`: an output of V class scores for each of T positions.
    TokenLogits,
}
