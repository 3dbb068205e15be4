//! Language models of words by recurrent networks: PyTorch's example, in the size that Zaremba and others call medium.
//!
//! W. Zaremba, I. Sutskever and O. Vinyals, "Recurrent Neural Network Regularization", 2014. Two layers of 650 units read 35 words of
//! the 10000 of the Penn Treebank; the table of words is the weight of the last layer, too.
//!
//! A sequence begins with a state of zeros, where PyTorch's example hands the state of the last one on. The table of words begins as
//! [`Embedding`](gpumem::layers::Embedding) does, and the example's within 0.1 of 0.
//!
//! ```
//! use gpumem::prelude::*;
//! use gpumem_zoo::word_lm::LstmLm;
//!
//! gpumem::fits!(LstmLm<20>, GTX_1050_TI);
//! ```

use gpumem::network;

network! {
    /// By long short-term memory.
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
    /// By gated recurrent units.
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
