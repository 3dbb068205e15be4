//! Pages of the language's words that are not layers. An editor shows them at the words in a network.
//!
//! No program uses them.
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
    /// `freeze(x)`, or `freeze` among a layer's options: no gradient goes to its parameters through this use of them, and nothing is kept
    /// for one. Where every use is frozen, as of `let w = freeze(Linear(8));`, they have no optimizer state and training leaves them as they
    /// are; `[w, Tanh, freeze(w)]` trains `w` by its first use alone. Where nothing trainable lies before it, nothing flows back through it.
    ///
    /// Around a `BatchNorm2d` or dropout it asks for `freeze(eval(x))` or `freeze(train(x))`: see `eval`.
    ///
    /// PyTorch: `torch.func.functional_call(x, {k: v.detach() for k, v in x.named_parameters()}, input)`, and where every use is frozen
    /// `x.requires_grad_(False)`.
    freeze,
    /// `detach(x)`, or `detach` after a value: the value, through which nothing flows back. What is in `x` may still be trained elsewhere, and
    /// has no optimizer state where it is not. Nothing is kept for what lies before it alone.
    ///
    /// PyTorch: `x(input).detach()`.
    detach,
    /// `eval(x)`: `x` in training as it is without. `BatchNorm2d` and its kind normalise by their running statistics, which rest, and nothing is
    /// dropped. Parameters are trained, unless `freeze` is there too: `freeze(eval(backbone()))` is the frozen batch norm of detectors. A
    /// layer may have uses in both modes. Without training it changes nothing.
    ///
    /// A normalisation keeps its input for the gradient of its weight alone, so that a frozen one keeps two numbers a channel.
    ///
    /// PyTorch: `x.eval()` during `train_step`.
    eval,
    /// `train(x)`: `x` in training as it is there, inside of an `eval`, or where `freeze` asks for one of the two words.
    ///
    /// PyTorch: `x.train()`.
    train,
    /// `lengths(n, x)`, with an input `n: Lengths<T>`: of each sample only the first `n` of T steps count inside. What arrives is a sequence
    /// of T steps, `[T, D]` or tokens `[T]`; `of = name` names another value.
    ///
    /// * Attention sees the first `n` keys, in its own rows too; with `causal`, `window`, what is added, and dropout as ever. A row that sees no
    ///   key is 0, and so are its gradients. Rows of queries after `n` are computed as the others are.
    /// * `Mean`, `Max` and `Sum` over steps have the first `n`; of none they are 0.
    /// * `Lstm`, `Gru` and `Rnn` have the first `n`, in both directions; their outputs after them are 0.
    /// * What treats each step alone, or looks at earlier ones only, is as it is. What looks at steps after the end is a mistake. The first
    ///   step, `Select(0)`, may be taken.
    /// * An attention belongs to the `lengths` of the value that its keys are computed from; what it gives has the steps of its queries. Where
    ///   keys are of another value, that has `lengths` of its own: `lengths(n, lengths(m, of = memory, decoder()))`, or
    ///   `lengths(196, of = memory, ..)` where all of its 196 steps count. Otherwise it is a mistake.
    /// * What lies after the end must be finite where layers compute with it.
    /// * A length above T is an error of the step, before anything is computed. Memory: 4 bytes a sample for `n`, and no T x T tensor.
    ///
    /// PyTorch: `key_padding_mask = torch.arange(T) >= n[:, None]` of every attention, but for rows that see no key, which are NaN there;
    /// `pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)` of recurrent layers.
    lengths,
    /// `segments(rows, x)`, with an input `rows: Segments<T>`: several documents in a row of T steps. Steps of equal numbers are a document;
    /// numbers never fall along the row.
    ///
    /// * Attention sees keys of its own document. `PositionEmbedding` and `SinusoidalPositions` count from the document's beginning. `Rotary`,
    ///   `AlibiBias` and `RelativePositionBias` matter by differences of positions alone, which a document has anywhere.
    /// * What treats each step alone is as it is; any other layer is a mistake.
    /// * Memory: 4 bytes a step for `rows`, and no T x T tensor.
    ///
    /// PyTorch: `flash_attn_varlen_func` with `cu_seqlens`, or a boolean mask `rows[:, :, None] == rows[:, None, :]`.
    segments,
    /// `lora(rank, alpha, x)`: `x` frozen in all its uses, with low-rank adapters of its linear maps, those of attentions among them: `W x + b` becomes
    /// `W x + b + alpha / rank * B A x`, of which A and B are trained.
    ///
    /// * Option `targets = "q_proj, v_proj"`: only the maps of these names have adapters. A target is the last names of a path, or of a
    ///   layer that the map is in, with `*` for any text.
    /// * Option `base = Nf4`, `base = Nf4Double` or `base = Int8`: weights of linear maps inside, with an adapter or without, are kept in 4 or 8
    ///   bits and are made numbers of the network's format where a product reads them: see [`Coding`](crate::number::Coding). Not those that
    ///   something else reads, as `Tied` does. Without it they are in the network's format.
    /// * Parameters of each map: `lora_A.weight` `[rank, in_features]`, uniform within `1 / sqrt(in_features)`, and `lora_B.weight`
    ///   `[out_features, rank]` = 0. In-projections of `MultiHeadAttention` have them beside `in_proj_weight`.
    /// * What is inside of `freeze` has no adapter. Batch norms and dropout inside are in training as ever; `lora(8, 16.0, eval(x))` rests them.
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
    /// `Lengths<T>`: an input of one number a sample, from 0 to T, of which `lengths(n, ..)` reads how many steps of a sequence count.
    /// `Tensor<u32, (D<batch>,)>` at run time.
    Lengths,
    /// `Segments<T>`: an input of one number for each of T steps, equal within a document and never falling, which `segments(rows, ..)` reads.
    /// `Tensor<u32, (D<batch>, D<T>)>` at run time.
    Segments,
    /// `Logits<N>`: an output of N class scores a sample, as `CrossEntropy` takes them. `Tensor<f32, (D<batch>, D<N>)>` at run time.
    Logits,
    /// `Map<C, H, W>`: an output of C channels, H pixels high and W wide.
    Map,
    /// `TokenLogits<T, V>`: an output of V class scores for each of T positions.
    TokenLogits,
}
