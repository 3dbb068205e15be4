use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        let w = Relu;
        [Flatten, w, Tied(v), Tied(w), Linear(10)]
    }
}

fn main() {}
