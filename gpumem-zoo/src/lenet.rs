//! LeNet-5, the network that read cheques.
//!
//! Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE 86
//! (1998). Two convolutions, each followed by `tanh` and an average over 2 x 2 pixels, and three linear layers. As in most implementations
//! of today, the second convolution reads all six maps, and the outputs are logits rather than distances to drawn digits.
//!
//! ```
//! use gpumem::prelude::*;
//! use gpumem_zoo::lenet::LeNet5;
//!
//! let device = gpumem::default_device()?;
//! let mut net = LeNet5::<4>::on(&device)?;
//! let images = Tensor::from_fn(|index| (index % 7) as f32 / 7.0);
//! let loss = net.train_step(&images, &[3, 1, 4, 1].into())?;
//! assert!(loss.is_finite());
//! # Ok::<(), gpumem::Error>(())
//! ```

use gpumem::network;

network! {
    /// LeNet-5 on images of 32 x 32 pixels.
    pub struct LeNet5<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 0.01, momentum: 0.9 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<1, 32, 32>) -> Logits<10> {
        [features(), Flatten, classifier()]
    }

    fn features() -> Block {
        [Conv2d(6, 5, name = "0"), Tanh, AvgPool2d(2), Conv2d(16, 5, name = "3"), Tanh, AvgPool2d(2)]
    }

    fn classifier() -> Block {
        [Linear(120, name = "0"), Tanh, Linear(84, name = "2"), Tanh, Linear(10, name = "4")]
    }
}
