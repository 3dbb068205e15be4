network! {
    /// A cache, and no training.
    pub struct Writer;

    const INFER: Infer = Infer { batch: 2, cache: 100, chunk: 8, precision: F16 };

    fn forward(text: Tokens<16>) -> TokenLogits<16, 50> {
        [Embedding(50, 64), repeat(3, Add([], CausalSelfAttention(4, kv_heads = 2, rotary = 1e4))), Linear(50)]
    }
}
