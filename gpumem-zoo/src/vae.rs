//! A variational autoencoder of digits: PyTorch's example.
//!
//! D. Kingma and M. Welling, "Auto-Encoding Variational Bayes", 2014. An image of 28 x 28 pixels becomes the means and the logarithms of
//! the variances of 20 numbers; numbers that are drawn from this distribution become an image again. The second input are samples of the
//! standard normal distribution, from which they are drawn; with zeros they are the means. The target is the image.
//!
//! The loss of an image is the cross entropy of its pixels plus the divergence of its 20 numbers from the standard normal distribution,
//! `(mean^2 + variance - 1 - log(variance)) / 2`.
//!
//! ```
//! use gpumem::prelude::*;
//! use gpumem_zoo::vae::Vae;
//!
//! gpumem::fits!(Vae<128>, GTX_1050_TI);
//! ```

use gpumem::network;

network! {
    /// The autoencoder. Its outputs are an image, and the means and logarithms of variances that it is drawn from. The layers `mu` and
    /// `logvar` are `fc21` and `fc22` in PyTorch's example.
    pub struct Vae<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Adam { lr: 1e-3 },
        loss: 784.0 * BceWithLogits(from = pixels) + 20.0 * Mean(from = divergence),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Features<784>, noise: Features<20>) -> (Features<784>, Features<20>, Features<20>) {
        [
            from(image), Linear(400, name = "fc1"), Relu, tap(seen),
            Linear(20, name = "mu"), tap(mean), from(seen), Linear(20, name = "logvar"), tap(log_variance),
            Add([from(mean), Pow(2.0)], [Sub(Exp, []), Affine(1.0, -1.0)]), Affine(0.5), tap(divergence),
            Add(from(mean), Mul([from(log_variance), Affine(0.5), Exp], from(noise))),
            Linear(400, name = "fc3"), Relu, Linear(784, name = "fc4"), tap(pixels), Sigmoid,
            Outputs([], from(mean), from(log_variance)),
        ]
    }
}
