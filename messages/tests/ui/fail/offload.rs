use gpumem::prelude::*;

network! {
    pub struct Unknown;

    const TRAIN: Train = Train { batch: 4, optimizer: Adam { lr: 1e-3 }, offload: Optimizer };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Other;

    const TRAIN: Train = Train { batch: 4, optimizer: Adam { lr: 1e-3 }, offload: Weights };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Computed;

    const TRAIN: Train = Train { batch: 4, optimizer: Adam { lr: 1e-3 }, offload: where_to() };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Factored;

    const TRAIN: Train = Train { batch: 4, optimizer: Adafactor { lr: 1e-3 }, offload: OptimizerState };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Coded;

    const TRAIN: Train = Train { batch: 4, offload: OptimizerState, optimizer: AdamW8bit { lr: 1e-3 } };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Orthogonal;

    const TRAIN: Train = Train { batch: 4, optimizer: Muon { lr: 0.02 }, offload: OptimizerState };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Stateless;

    const TRAIN: Train = Train { batch: 4, offload: OptimizerState };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct NoMomentum;

    const TRAIN: Train = Train {
        batch: 4, precision: Bf16, optimizer: Sgd { lr: 0.1, momentum: 0.0 }, offload: OptimizerState,
    };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct CodedAll;

    const TRAIN: Train = Train { batch: 4, optimizer: AdamW8bit { lr: 1e-3 }, offload: All };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct StatelessAll;

    const TRAIN: Train = Train { batch: 4, offload: All };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Misspelt;

    const TRAIN: Train = Train { batch: 4, optimizer: Adam { lr: 1e-3 }, offload: Al };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

fn main() {}
