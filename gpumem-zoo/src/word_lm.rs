//! Language models of words by recurrent networks: PyTorch's example, in the size that Zaremba and others call medium.
//!
//! W. Zaremba, I. Sutskever and O. Vinyals, "Recurrent Neural Network Regularization", 2014. Two layers of 650 units read 35 words of the
//! 10000 of the Penn Treebank; the word embedding is the weight of the last layer too.
//!
//! A sequence begins with a state of zeros, whereas PyTorch's example takes the last state of the sequence before. The word embedding is
//! initialised like [`Embedding`](gpumem::layers::Embedding), and the example's uniformly within 0.1 of 0.
//!
//! ```
//! use gpumem::prelude::*;
//! use gpumem_zoo::word_lm::LstmLm;
//!
//! gpumem::fits!(LstmLm<20>, GTX_1050_TI);
//! ```

use gpumem::network;

network! {
    /// The model with long short-term memory.
    pub struct LstmLm<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 20.0 }, clip: GlobalNorm(0.25), loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(words: Tokens<35>) -> TokenLogits<35, 10000> {
        let encoder = Embedding(10000, 650);
        [
            encoder, Dropout(0.5), Lstm(650, layers = 2, dropout = 0.5, name = "rnn"), Dropout(0.5),
            Tied(encoder, bias, name = "decoder"),
        ]
    }
}

network! {
    /// The model with gated recurrent units.
    pub struct GruLm<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 20.0 }, clip: GlobalNorm(0.25), loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(words: Tokens<35>) -> TokenLogits<35, 10000> {
        let encoder = Embedding(10000, 650);
        [
            encoder, Dropout(0.5), Gru(650, layers = 2, dropout = 0.5, name = "rnn"), Dropout(0.5),
            Tied(encoder, bias, name = "decoder"),
        ]
    }
}
