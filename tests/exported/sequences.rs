//! Networks of sequences: encoders of text, a tagger, patches of images.

use crate::{check, sums};
use gpumem::network;

network! {
    /// transformers' `BertForSequenceClassification`. Projections of queries, keys and values are one here.
    pub struct Bert;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>, segments: Tokens<128>) -> Logits<2> {
        [
            Add(
                [from(text), Embedding(30522, 768, padding_idx = 0, name = "words")],
                [from(segments), Embedding(2, 768, name = "segments")],
                [from(text), PositionEmbedding(512, 768, name = "positions")],
            ),
            LayerNorm(eps = 1e-12), Dropout(0.1), repeat(12, layer(768, 12)),
            Select(0), Linear(768, name = "pooler"), Tanh, Dropout(0.1), Linear(2, name = "classifier"),
        ]
    }

    fn layer(width: usize, heads: usize) -> Block {
        [
            Add([], [MultiHeadAttention(heads, dropout = 0.1), Dropout(0.1)]), LayerNorm(eps = 1e-12),
            Add([], [Linear(4 * width), Gelu, Linear(width), Dropout(0.1)]), LayerNorm(eps = 1e-12),
        ]
    }
}

network! {
    /// transformers' `AlbertForSequenceClassification`: twelve layers with the same parameters.
    pub struct Albert;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>, segments: Tokens<128>) -> Logits<2> {
        let attention = MultiHeadAttention(12);
        let attended = LayerNorm(eps = 1e-12);
        let wide = Linear(3072);
        let narrow = Linear(768);
        let whole = LayerNorm(eps = 1e-12);
        [
            Add(
                [from(text), Embedding(30000, 128, padding_idx = 0, name = "words")],
                [from(segments), Embedding(2, 128, name = "segments")],
                [from(text), PositionEmbedding(512, 128, name = "positions")],
            ),
            LayerNorm(eps = 1e-12, name = "embedded"), Linear(768, name = "mapping"),
            repeat(12, [
                Add([], attention), attended, Add([], [wide, Gelu(approximate = "tanh"), narrow]), whole,
            ]),
            Select(0), Linear(768, name = "pooler"), Tanh, Dropout(0.1), Linear(2, name = "classifier"),
        ]
    }
}

network! {
    /// transformers' `GPT2LMHeadModel` on 128 tokens.
    pub struct Gpt2;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>) -> TokenLogits<128, 50257> {
        let words = Embedding(50257, 768);
        [
            Add(words, PositionEmbedding(1024, 768)), Dropout(0.1), repeat(12, layer(768)), LayerNorm, Tied(words),
        ]
    }

    fn layer(width: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(12, dropout = 0.1), Dropout(0.1)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width), Dropout(0.1)]),
        ]
    }
}

network! {
    /// timm's `deit_tiny_distilled_patch16_224`: two tokens, and two heads of which the mean is taken.
    pub struct DeitTinyDistilled;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(192, 16, stride = 16, name = "patches"), Reshape(192, 196), Transpose(1, 2),
            ClassToken(name = "distillation"), ClassToken(name = "class"), Add([], PositionEmbedding(198)),
            repeat(12, layer(192)), LayerNorm(eps = 1e-6, name = "norm"),
            Add([Select(0), Linear(1000, name = "head")], [Select(1), Linear(1000, name = "head_dist")]), Affine(0.5),
        ]
    }

    fn layer(width: usize) -> Block {
        [
            Add([], [LayerNorm(eps = 1e-6), MultiHeadAttention(3)]),
            Add([], [LayerNorm(eps = 1e-6), Linear(4 * width), Gelu, Linear(width)]),
        ]
    }
}

network! {
    /// A variational autoencoder of digits; the noise is an input.
    pub struct Vae;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Features<784>, noise: Features<20>) -> (Features<784>, Features<20>, Features<20>) {
        [
            from(image), Linear(400, name = "fc1"), Relu, tap(seen),
            Linear(20, name = "mu"), tap(mean), from(seen), Linear(20, name = "logvar"), tap(log_variance),
            Add(from(mean), Mul([Affine(0.5), Exp], from(noise))),
            Linear(400, name = "fc3"), Relu, Linear(784, name = "fc4"), Sigmoid,
            Outputs([], from(mean), from(log_variance)),
        ]
    }
}

network! {
    /// A tagger of words by an LSTM that reads in both directions.
    pub struct BiLstmTagger;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<64>) -> TokenLogits<64, 17> {
        [
            Embedding(20000, 100, padding_idx = 0), Dropout(0.25),
            Lstm(128, layers = 2, bidirectional = true, dropout = 0.25), Dropout(0.25), Linear(17),
        ]
    }
}

network! {
    /// A language model by an LSTM, whose embedding is its last layer's weight.
    pub struct LstmLm;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<35>) -> TokenLogits<35, 10000> {
        let encoder = Embedding(10000, 650);
        [
            encoder, Dropout(0.5), Lstm(650, layers = 2, dropout = 0.5, name = "rnn"), Dropout(0.5),
            Tied(encoder, bias, name = "decoder"),
        ]
    }
}

network! {
    /// The same by a GRU.
    pub struct GruLm;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<35>) -> TokenLogits<35, 10000> {
        let encoder = Embedding(10000, 650);
        [
            encoder, Dropout(0.5), Gru(650, layers = 2, dropout = 0.5, name = "rnn"), Dropout(0.5),
            Tied(encoder, bias, name = "decoder"),
        ]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<Bert>(109_483_778, 22_348_434_432);
    check::<Albert>(11_685_122, 22_373_600_256);
    check::<Gpt2>(124_439_808, 32_228_179_968);
    check::<DeitTinyDistilled>(5_910_800, 2_522_007_552);
    check::<Vae>(652_824, 1_302_400);
    // PyTorch does not count what recurrences multiply: in each direction of each layer a step maps the input and the last output to
    // four gates.
    let recurrences = 2 * 64 * 2 * 4 * 128 * ((100 + 128) + (256 + 128));
    assert_eq!(sums::<BiLstmTagger>(), (2_635_153, 557_056 + recurrences));
    let recurrences = 2 * 35 * 2 * 4 * 650 * (650 + 650);
    assert_eq!(sums::<LstmLm>(), (13_280_400, 455_000_000 + recurrences));
    // Those of a GRU it counts.
    check::<GruLm>(11_587_800, 809_900_000);
    let parameters: Vec<_> =
        <LstmLm as gpumem::Network>::LAYERS.iter().map(|layer| (layer.path, layer.parameters)).collect();
    assert_eq!(parameters.first(), Some(&("encoder", 6_500_000)));
    assert_eq!(parameters.last(), Some(&("decoder", 10_000)));
}
