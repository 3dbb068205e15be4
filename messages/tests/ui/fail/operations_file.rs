//! A CUDA file of a layer of one's own that is not there.
use gpumem::prelude::*;

network! {
    pub struct Net;

    operation! {
        fn Half(x) { cuda: "nowhere.cu" }
    }

    fn forward(x: Features<10>) -> Features<10> {
        [Half]
    }
}

fn main() {}
