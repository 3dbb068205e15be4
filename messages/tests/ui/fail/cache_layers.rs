use gpumem::network;

network! {
    pub struct Sees;

    const INFER: Infer = Infer { batch: 1, cache: 128 };

    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 100> {
        [Embedding(100, 32), MultiHeadAttention(4), Linear(100)]
    }
}

network! {
    pub struct Counts;

    const INFER: Infer = Infer { batch: 1, cache: 128 };

    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 100> {
        [Embedding(100, 32), Add([], PositionEmbedding(64)), CausalSelfAttention(4), Linear(100)]
    }
}

network! {
    pub struct Classifies;

    const INFER: Infer = Infer { batch: 1, cache: 128, chunk: 256 };

    fn forward(tokens: Tokens<64>) -> Logits<10> {
        [Embedding(100, 32), CausalSelfAttention(4), Select(-1), Linear(10)]
    }
}

fn main() {}
