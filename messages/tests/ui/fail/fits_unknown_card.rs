use gpumem::prelude::*;

network! {
    pub struct Net<const N: usize>;
    const TRAIN: Train = Train { batch: N, loss: CrossEntropy };
    fn forward(x: Features<4>) -> Logits<2> { [Linear(2)] }
}

gpumem::fits!(Net<64>, RTX_3O60);
gpumem::fits!(Net<64> T4);

fn main() {}
