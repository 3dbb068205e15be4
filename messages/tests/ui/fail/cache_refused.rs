use gpumem::network;

network! {
    pub struct Long;

    const INFER: Infer = Infer { batch: 2, cache: 1000000, chunk: 64, precision: F16, cards: [T4] };

    fn forward(tokens: Tokens<512>) -> TokenLogits<512, 1000> {
        [Embedding(1000, 512), repeat(8, CausalSelfAttention(8, kv_heads = 4, rotary = 10000.0)), Linear(1000)]
    }
}

fn main() {}
