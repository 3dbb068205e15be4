//! Words of the language that are not layers: pages, which an editor shows at the words in a network, and the names that are reserved.
//!
//! No program uses the pages.
#![allow(non_camel_case_types, reason = "they are spelt as in a network")]

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug)] pub enum $name {})*

        /// Names of all words.
        pub const WORDS: &[&str] = &[$(stringify!($name),)*];
    };
}

words! {
    /// `repeat(n, x)`: `x`, n times in a row, each time with parameters of its own.
    repeat,
    /// `tap(name)`: marks the value here, for `from(name)` and for the loss. It changes nothing.
    tap,
    /// `from(name)`: the value that `tap(name)` marked, or an input of that name, in place of the value that arrives.
    from,
    /// `freeze(x)`, or `freeze` among a layer's options: this use of its parameters gives them no gradient, and nothing is kept for one. If
    /// every use is frozen, as with `let w = freeze(Linear(8));`, they have no optimizer state and training does not change them.
    /// `[w, Tanh, freeze(w)]` trains `w` by its first use alone. If nothing before it is trained, no gradient goes through it.
    ///
    /// Around a `BatchNorm2d` or dropout it asks for `freeze(eval(x))` or `freeze(train(x))`: see `eval`.
    ///
    /// PyTorch: `torch.func.functional_call(x, {k: v.detach() for k, v in x.named_parameters()}, input)`, and if every use is frozen
    /// `x.requires_grad_(False)`.
    freeze,
    /// `detach(x)`, or `detach` after a value: the value, through which no gradient goes. The parameters of `x` may still be trained by other
    /// uses; if they are not, they have no optimizer state. Nothing is kept for layers that only lead to it.
    ///
    /// PyTorch: `x(input).detach()`.
    detach,
    /// `eval(x)`: in training, `x` as in inference. Batch norms normalise by their running statistics, which do not change, and dropout does
    /// nothing. Parameters are trained, unless `freeze` is there too: `freeze(eval(backbone()))` is the frozen batch norm of detectors. A
    /// layer may have uses in both modes. In inference the word changes nothing.
    ///
    /// Such a norm keeps its input only for the gradient of its weight, so a frozen one keeps two numbers a channel.
    ///
    /// PyTorch: `x.eval()` during `train_step`.
    eval,
    /// `train(x)`: `x` as in training, inside of an `eval`, or to answer `freeze`, which asks for one of the two words.
    ///
    /// PyTorch: `x.train()`.
    train,
    /// `lengths(n, x)`, with an input `n: Lengths<T>`: of each sample only the first `n` of T time steps count inside. The value that arrives is
    /// a sequence of T time steps, `[T, D]` or tokens `[T]`; `of = name` names another value.
    ///
    /// * Attention, of a sequence over itself too, sees the first `n` keys. `causal`, `window`, bias and dropout apply as well. A row that
    ///   sees no key is 0, and so are its gradients. Rows of queries after `n` are computed as the others are.
    /// * `Mean`, `Max` and `Sum` over time steps reduce the first `n`. They are 0 if `n` is 0.
    /// * `Lstm`, `Gru` and `Rnn` run over the first `n`, in both directions. Their outputs after these are 0.
    /// * Layers that treat each time step alone, or see earlier ones only, do not change. A layer that sees time steps after the end is a
    ///   mistake. The first time step, `Select(0)`, may be taken.
    /// * An attention belongs to the `lengths` of the value from which its keys are computed. Its output has the time steps of its queries. If
    ///   keys come from another value, that value needs `lengths` of its own: `lengths(n, lengths(m, of = memory, decoder()))`, or
    ///   `lengths(196, of = memory, ..)` if all of its 196 time steps count. Otherwise it is a mistake.
    /// * Numbers after the end must be finite if layers compute with them.
    /// * A length above T is an error of the training step, before anything is computed. Memory: 4 bytes a sample for `n`, and no T x T tensor.
    ///
    /// PyTorch: `key_padding_mask = torch.arange(T) >= n[:, None]` of every attention, but for rows that see no key, which are NaN there;
    /// `pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)` of recurrent layers.
    lengths,
    /// `segments(rows, x)`, with an input `rows: Segments<T>`: several documents in a row of T time steps. Equal numbers are a document,
    /// and numbers never fall along the row.
    ///
    /// * Attention sees keys of its own document. `PositionEmbedding` and `SinusoidalPositions` count from the document's beginning. `Rotary`,
    ///   `AlibiBias` and `RelativePositionBias` do not change, since they depend on differences of positions only.
    /// * Layers that treat each time step alone do not change. Any other layer is a mistake.
    /// * Memory: 4 bytes a time step for `rows`, and no T x T tensor.
    ///
    /// PyTorch: `flash_attn_varlen_func` with `cu_seqlens`, or a boolean mask `rows[:, :, None] == rows[:, None, :]`.
    segments,
    /// `lora(rank, alpha, x)`: `x` frozen in all its uses, with low-rank adapters of its linear layers, those in attentions included:
    /// `W x + b` becomes `W x + b + alpha / rank * B A x`. Only A and B are trained.
    ///
    /// * Option `targets = "q_proj, v_proj"`: only linear layers of these names get adapters. A target matches the last names of a path, or
    ///   of a layer that contains the linear one, with `*` for any text.
    /// * Option `base = Nf4`, `base = Nf4Double` or `base = Int8`: weights of linear layers inside, with an adapter or without, are quantized to
    ///   4 or 8 bits, and decoded when a product reads them: see [`Coding`](crate::number::Coding). Weights that other layers read, as `Tied`
    ///   does, are not quantized. Without the option weights are in the network's format.
    /// * Parameters of each adapter: `lora_A.weight` `[rank, in_features]`, uniform within `1 / sqrt(in_features)`, and `lora_B.weight`
    ///   `[out_features, rank]` = 0. In-projections of `MultiHeadAttention` have theirs next to `in_proj_weight`.
    /// * A layer inside of `freeze` gets no adapter. Batch norms and dropout stay in training mode, unless written `lora(8, 16.0, eval(x))`.
    /// * Backward keeps the input of each adapter, once if several read it, and `rank` numbers a row.
    ///
    /// PEFT: `LoraConfig(r=rank, lora_alpha=alpha, target_modules=["q_proj", "v_proj"])`, and of a base in 4 bits
    /// `BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")`, with `bnb_4bit_use_double_quant=True` for `Nf4Double`.
    lora,
    /// `Outputs(x, y)`, at the end of `forward`: the network's outputs, each computed from the value that arrives.
    Outputs,
    /// `fn stage(depth: usize) -> Block { [..] }`: a block, to be called as `stage(2)`; as the type of a parameter, any element.
    Block,
    /// `Image<C, H, W>`: an input of C channels, H pixels high and W wide. `Tensor<f32, (D<batch>, D<C>, D<H>, D<W>)>` at run time.
    Image,
    /// `Images<u8, C, H, W>`: an input of images as they are stored, a byte for each channel of each pixel. `Normalize` turns them
    /// into numbers on the device. `Tensor<u8, (D<batch>, D<C>, D<H>, D<W>)>` at run time.
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
    /// `Lengths<T>`: an input of one number a sample, from 0 to T: the time steps of a sequence that count, for `lengths(n, ..)`.
    /// `Tensor<u32, (D<batch>,)>` at run time.
    Lengths,
    /// `Segments<T>`: an input of one number for each of T time steps, equal within a document and never falling, for `segments(rows, ..)`.
    /// `Tensor<u32, (D<batch>, D<T>)>` at run time.
    Segments,
    /// `Logits<N>`: an output of N class scores a sample, as `CrossEntropy` takes them. `Tensor<f32, (D<batch>, D<N>)>` at run time.
    Logits,
    /// `Map<C, H, W>`: an output of C channels, H pixels high and W wide.
    Map,
    /// `TokenLogits<T, V>`: an output of V class scores for each of T positions.
    TokenLogits,
}

/// Names of elements that are neither layers nor blocks. No block and no parameter may have one of them.
pub const KEYWORDS: [&str; 13] = [
    "repeat",
    "tap",
    "from",
    "freeze",
    "detach",
    "eval",
    "train",
    "checkpoint",
    "lora",
    "init",
    "lengths",
    "segments",
    "Outputs",
];
