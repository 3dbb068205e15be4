//! Constants that stand where a macro cannot read them.
use gpumem::network;

mod config {
    pub const WIDTH: usize = 8;
}

mod computed {
    use gpumem::network;

    network! {
        pub struct Net;
        const WIDTH: usize = super::config::WIDTH;
        fn forward(x: Features<8>) -> Logits<10> {
            [Linear(WIDTH), Linear(WIDTH), Linear(10)]
        }
    }
}

mod imported {
    use gpumem::network;

    network! {
        pub struct Net;
        use crate::config::WIDTH;
        fn forward(x: Features<WIDTH>) -> Logits<10> {
            [Linear(10)]
        }
    }
}

network! {
    pub struct Net;
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(crate::config::WIDTH), Linear(10)]
    }
}

fn main() {}
