network! {
    /// Master copies, gradients that are added up, moving averages, and recomputation.
    pub struct Parts;

    const TRAIN: Train = Train {
        batch: 32,
        micro_batches: 4,
        precision: Mixed(Bf16),
        optimizer: AdamW { lr: 1e-3 },
        loss: CrossEntropy,
        checkpoint: Cheap,
        ema: 0.999,
        cards: [T4],
    };

    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 1000> {
        [Embedding(1000, 128), repeat(4, TransformerBlock(128, 4, causal)), LayerNorm, Linear(1000)]
    }
}
