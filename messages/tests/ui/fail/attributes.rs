//! Attributes and documentation where there are none.
use gpumem::network;

network! {
    pub struct Net;
    const TRAIN: Train = Train {
        #[cfg(not(test))]
        batch: 8,
        /// Squared.
        loss: Mse,
    };
    fn forward(x: Features<8>) -> Features<8> {
        [
            /// The first layer.
            Linear(8),
            #[cfg(feature = "deep")]
            Relu,
            #[freeze]
            Linear(8),
        ]
    }
}

fn main() {}
