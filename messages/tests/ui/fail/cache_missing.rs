use gpumem::{Cpu, greedy, network};

network! {
    pub struct Forgetful;

    const TRAIN: Train = Train { batch: 1 };
    const INFER: Infer = Infer { batch: 1 };

    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 100> {
        [Embedding(100, 32), CausalSelfAttention(4), Linear(100)]
    }
}

fn main() {
    let mut net = Forgetful::infer_on(&Cpu::new()).unwrap();
    let _ = net.generate(&[&[1, 2, 3]], greedy);
}
