//! Networks of sequences: encoders of text, a tagger, patches of images.

use crate::{check, sums};
use gpumem::network;

network! {
    /// transformers' `BertForSequenceClassification`. Projections of queries, keys and values are one here.
    pub struct Bert;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

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

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

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

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

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

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

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
    /// A tagger of words by an LSTM that reads in both directions.
    pub struct BiLstmTagger;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<64>) -> TokenLogits<64, 17> {
        [
            Embedding(20000, 100, padding_idx = 0), Dropout(0.25),
            Lstm(128, layers = 2, bidirectional = true, dropout = 0.25), Dropout(0.25), Linear(17),
        ]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<Bert>(109_483_778, 22_348_434_432, [4_361_397_792, 4_799_333_708]);
    check::<Albert>(11_685_122, 22_373_600_256, [4_441_200_160, 4_487_940_756]);
    check::<Gpt2>(124_439_808, 32_228_179_968, [9_527_684_104, 10_025_443_928]);
    check::<DeitTinyDistilled>(5_910_800, 2_522_007_552, [1_029_558_728, 1_053_202_548]);
    // PyTorch does not count what recurrences multiply: in each direction of each layer a step maps the input and the last output to
    // four gates.
    let recurrences = 2 * 64 * 2 * 4 * 128 * ((100 + 128) + (256 + 128));
    // Its peak leaves out what PyTorch's one operation for an LSTM keeps.
    assert_eq!(sums::<BiLstmTagger>(), (2_635_153, 557_056 + recurrences));
}
