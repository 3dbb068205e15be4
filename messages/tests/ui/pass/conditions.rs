//! Of networks whose condition does not hold nothing is left: neither their mistakes nor the modules that they use.

use gpumem::network;

network! {
    #[cfg(any())]
    pub struct WithBlocks;

    use blocks nowhere::resnet;

    fn forward(x: Features<4>) -> Features<4> {
        resnet::stem
    }
}

network! {
    #[cfg(any())]
    pub struct Mistaken;

    fn forward(x: Features<4>) -> Features<4> {
        [Linear(3, 3), Relu(1), Linear(5)]
    }
}

network! {
    #[cfg(all())]
    pub struct Net;

    fn forward(x: Features<4>) -> Features<4> {
        Linear(4)
    }
}

pub(crate) fn main() {
    assert_eq!(<Net as gpumem::Network>::LAYERS.len(), 1);
}
