//! DCGAN: a generator and a discriminator of convolutions.
//!
//! A. Radford, L. Metz and S. Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks"
//! (arXiv:1511.06434), with the sizes of PyTorch's example: images of 64 x 64 pixels from 100 numbers. Here the generator is trained by
//! squared errors. The adversarial loss is left to a program that has both networks.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::dcgan::Generator;
//!
//! assert_eq!(Generator::<16>::LAYERS.last().unwrap().output_shape, [3, 64, 64]);
//! ```

use gpumem::network;

network! {
    /// The generator of images.
    pub struct Generator<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 2e-4, betas: (0.5, 0.999) }, loss: Mse };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(noise: Image<100, 1, 1>) -> Map<3, 64, 64> {
        [main()]
    }

    fn main() -> Block {
        [
            ConvTranspose2d(512, 4, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            ConvTranspose2d(256, 4, stride = 2, padding = 1, bias = false, name = "3"), BatchNorm2d(name = "4"), Relu(inplace),
            ConvTranspose2d(128, 4, stride = 2, padding = 1, bias = false, name = "6"), BatchNorm2d(name = "7"), Relu(inplace),
            ConvTranspose2d(64, 4, stride = 2, padding = 1, bias = false, name = "9"), BatchNorm2d(name = "10"), Relu(inplace),
            ConvTranspose2d(3, 4, stride = 2, padding = 1, bias = false, name = "12"), Tanh,
        ]
    }
}

network! {
    /// The discriminator of generated and real images: one logit.
    pub struct Discriminator<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 2e-4, betas: (0.5, 0.999) }, loss: BceWithLogits };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 64, 64>) -> Features<1> {
        [main(), Flatten]
    }

    fn main() -> Block {
        [
            Conv2d(64, 4, stride = 2, padding = 1, bias = false, name = "0"), LeakyRelu(0.2),
            Conv2d(128, 4, stride = 2, padding = 1, bias = false, name = "2"), BatchNorm2d(name = "3"), LeakyRelu(0.2),
            Conv2d(256, 4, stride = 2, padding = 1, bias = false, name = "5"), BatchNorm2d(name = "6"), LeakyRelu(0.2),
            Conv2d(512, 4, stride = 2, padding = 1, bias = false, name = "8"), BatchNorm2d(name = "9"), LeakyRelu(0.2),
            Conv2d(1, 4, bias = false, name = "11"),
        ]
    }
}
