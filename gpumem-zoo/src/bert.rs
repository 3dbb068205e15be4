//! BERT, RoBERTa and DistilBERT: transformers that read a text in both directions.
//!
//! J. Devlin, M.-W. Chang, K. Lee and K. Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
//! (arXiv:1810.04805), Y. Liu and others, "RoBERTa: A Robustly Optimized BERT Pretraining Approach" (arXiv:1907.11692), and V. Sanh and
//! others, "DistilBERT, a distilled version of BERT" (arXiv:1910.01108), as in transformers: `BertForMaskedLM` on 512 tokens, in the sizes
//! base and large, and classifiers of sentences of 128 tokens into two classes, `BertForSequenceClassification`,
//! `RobertaForSequenceClassification` and `DistilBertForSequenceClassification`. In training on masked text, a target of -100 is a token
//! that was not masked. Parameters and operations were counted on transformers' modules, since the papers print rounded numbers only.
//!
//! The head of the masked text shares its weights with the embedding of the words. Its bias is `cls.predictions.decoder.bias`; the original
//! has it a second time as `cls.predictions.bias`.
//!
//! There is no attention mask, so a text must have all of its tokens; positions of RoBERTa do not count padding. RoBERTa has one segment
//! only: its second input is zeros.
//!
//! Names are those of transformers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::bert::BertBaseClassifier;
//!
//! let first = BertBaseClassifier::<8>::LAYERS.iter().find(|layer| layer.kind == "LayerNorm").unwrap();
//! assert_eq!(first.path, "bert.embeddings.LayerNorm");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The blocks that the networks share. Layers normalise after the residual sums.
    pub mod bert_blocks {
        fn embeddings(words: Block, positions: Block, segments: Block, eps: f64) -> Block {
            [Add(words, positions, segments), LayerNorm(eps = eps, name = "LayerNorm"), Dropout(0.1)]
        }

        fn encoder(layers: usize, width: usize, heads: usize, eps: f64) -> Block {
            [repeat(layers, layer(width, heads, eps))]
        }

        fn layer(width: usize, heads: usize, eps: f64) -> Block {
            [
                tap(arriving),
                attention([
                    projections(width, heads),
                    output([
                        Linear(width, name = "dense"), Dropout(0.1), Add([], from(arriving)),
                        LayerNorm(eps = eps, name = "LayerNorm"),
                    ]),
                ]),
                tap(attended), intermediate(4 * width),
                output([
                    Linear(width, name = "dense"), Dropout(0.1), Add([], from(attended)),
                    LayerNorm(eps = eps, name = "LayerNorm"),
                ]),
            ]
        }

        #[name = "self"]
        fn projections(width: usize, heads: usize) -> Block {
            [
                Attention(
                    Linear(width, name = "query"), Linear(width, name = "key"), Linear(width, name = "value"),
                    heads = heads, dropout = 0.1,
                ),
            ]
        }

        fn attention(inside: Block) -> Block {
            [inside]
        }

        fn intermediate(width: usize) -> Block {
            [Linear(width, name = "dense"), Gelu]
        }

        fn output(inside: Block) -> Block {
            [inside]
        }
    }
}

network! {
    /// transformers' `BertForMaskedLM` of `bert-base-uncased`: 12 layers of 768 features.
    pub struct BertBaseMaskedLm<const BATCH: usize>;

    use blocks bert_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 1e-4, weight_decay: 0.01 },
        loss: CrossEntropy { ignore_index: -100 },
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<512>, segments: Tokens<512>) -> TokenLogits<512, 30522> {
        let words = Embedding(30522, 768, padding_idx = 0, name = "word_embeddings");
        [
            bert([
                embeddings(
                    words,
                    [from(text), PositionEmbedding(512, 768, name = "position_embeddings")],
                    [from(segments), Embedding(2, 768, name = "token_type_embeddings")],
                    1e-12,
                ),
                encoder(12, 768, 12, 1e-12),
            ]),
            cls([predictions([transform(), Tied(words, bias, name = "decoder")])]),
        ]
    }

    fn bert(inside: Block) -> Block {
        [inside]
    }

    fn cls(inside: Block) -> Block {
        [inside]
    }

    fn predictions(inside: Block) -> Block {
        [inside]
    }

    fn transform() -> Block {
        [Linear(768, name = "dense"), Gelu, LayerNorm(eps = 1e-12, name = "LayerNorm")]
    }
}

network! {
    /// transformers' `BertForMaskedLM` of `bert-large-uncased`: 24 layers of 1024 features.
    pub struct BertLargeMaskedLm<const BATCH: usize>;

    use blocks bert_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 1e-4, weight_decay: 0.01 },
        loss: CrossEntropy { ignore_index: -100 },
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<512>, segments: Tokens<512>) -> TokenLogits<512, 30522> {
        let words = Embedding(30522, 1024, padding_idx = 0, name = "word_embeddings");
        [
            bert([
                embeddings(
                    words,
                    [from(text), PositionEmbedding(512, 1024, name = "position_embeddings")],
                    [from(segments), Embedding(2, 1024, name = "token_type_embeddings")],
                    1e-12,
                ),
                encoder(24, 1024, 16, 1e-12),
            ]),
            cls([predictions([transform(), Tied(words, bias, name = "decoder")])]),
        ]
    }

    fn bert(inside: Block) -> Block {
        [inside]
    }

    fn cls(inside: Block) -> Block {
        [inside]
    }

    fn predictions(inside: Block) -> Block {
        [inside]
    }

    fn transform() -> Block {
        [Linear(1024, name = "dense"), Gelu, LayerNorm(eps = 1e-12, name = "LayerNorm")]
    }
}

network! {
    /// transformers' `BertForSequenceClassification` of `bert-base-uncased`.
    pub struct BertBaseClassifier<const BATCH: usize>;

    use blocks bert_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 2e-5, weight_decay: 0.01 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<128>, segments: Tokens<128>) -> Logits<2> {
        [
            bert([
                embeddings(
                    [from(text), Embedding(30522, 768, padding_idx = 0, name = "word_embeddings")],
                    [from(text), PositionEmbedding(512, 768, name = "position_embeddings")],
                    [from(segments), Embedding(2, 768, name = "token_type_embeddings")],
                    1e-12,
                ),
                encoder(12, 768, 12, 1e-12), pooler(),
            ]),
            Dropout(0.1), Linear(2, name = "classifier"),
        ]
    }

    fn bert(inside: Block) -> Block {
        [inside]
    }

    fn pooler() -> Block {
        [Select(0), Linear(768, name = "dense"), Tanh]
    }
}

network! {
    /// transformers' `RobertaForSequenceClassification` of `roberta-base`.
    pub struct RobertaBaseClassifier<const BATCH: usize>;

    use blocks bert_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 2e-5, weight_decay: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<128>, segments: Tokens<128>) -> Logits<2> {
        [
            roberta([embeddings(from(segments)), encoder(12, 768, 12, 1e-5)]),
            Select(0), classifier(),
        ]
    }

    fn embeddings(segments: Block) -> Block {
        [
            Add(
                Embedding(50265, 768, padding_idx = 1, name = "word_embeddings"),
                PositionEmbedding(514, 768, padding_idx = 1, name = "position_embeddings"),
                [segments, Embedding(1, 768, name = "token_type_embeddings")],
            ),
            LayerNorm(eps = 1e-5, name = "LayerNorm"), Dropout(0.1),
        ]
    }

    fn roberta(inside: Block) -> Block {
        [inside]
    }

    fn classifier() -> Block {
        [Dropout(0.1), Linear(768, name = "dense"), Tanh, Dropout(0.1), Linear(2, name = "out_proj")]
    }
}

network! {
    /// transformers' `DistilBertForSequenceClassification` of `distilbert-base-uncased`.
    pub struct DistilBertClassifier<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 2e-5, weight_decay: 0.01 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<128>) -> Logits<2> {
        [
            distilbert([embeddings(), transformer()]),
            Select(0), Linear(768, name = "pre_classifier"), Relu, Dropout(0.2), Linear(2, name = "classifier"),
        ]
    }

    fn distilbert(inside: Block) -> Block {
        [inside]
    }

    fn embeddings() -> Block {
        [
            Add(
                Embedding(30522, 768, padding_idx = 0, name = "word_embeddings"),
                PositionEmbedding(512, 768, name = "position_embeddings"),
            ),
            LayerNorm(eps = 1e-12, name = "LayerNorm"), Dropout(0.1),
        ]
    }

    fn transformer() -> Block {
        [repeat(6, layer())]
    }

    fn layer() -> Block {
        [
            Add([], attention()),
            LayerNorm(eps = 1e-12, name = "sa_layer_norm"),
            Add([], ffn()), LayerNorm(eps = 1e-12, name = "output_layer_norm"),
        ]
    }

    fn attention() -> Block {
        [
            Attention(
                Linear(768, name = "q_lin"), Linear(768, name = "k_lin"), Linear(768, name = "v_lin"), heads = 12,
                dropout = 0.1,
            ),
            Linear(768, name = "out_lin"),
        ]
    }

    fn ffn() -> Block {
        [Linear(3072, name = "lin1"), Gelu, Linear(768, name = "lin2"), Dropout(0.1)]
    }
}
