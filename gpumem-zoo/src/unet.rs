//! U-Net: classifies each pixel, from maps of every size.
//!
//! O. Ronneberger, P. Fischer and T. Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation" (arXiv:1505.04597), with
//! padding, so that the output is as large as the image, and batch normalisation: 64 to 1024 channels, 512 x 512 pixels, two classes. Each
//! map of the contracting path is kept until the expanding path reads it, in addition to the saved tensors.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::unet::UNet;
//!
//! assert_eq!(UNet::<1>::LAYERS.last().unwrap().output_shape, [2, 512, 512]);
//! ```

use gpumem::network;

network! {
    /// The U-Net for images of 512 x 512 pixels.
    pub struct UNet<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 0.01, momentum: 0.99 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 512, 512>) -> Map<2, 512, 512> {
        [
            inc(), tap(first), MaxPool2d(2), downs(128), tap(second), MaxPool2d(2), downs(256), tap(third),
            MaxPool2d(2), downs(512), tap(fourth), MaxPool2d(2), downs(1024),
            Concat(from(fourth), ups(512)), upconvs(512), Concat(from(third), ups(256)), upconvs(256),
            Concat(from(second), ups(128)), upconvs(128), Concat(from(first), ups(64)), upconvs(64),
            Conv2d(2, 1, name = "outc"),
        ]
    }

    fn inc() -> Block {
        [double_conv(64)]
    }

    fn downs(channels: usize) -> Block {
        [double_conv(channels)]
    }

    fn ups(channels: usize) -> Block {
        [ConvTranspose2d(channels, 2, stride = 2, name = "")]
    }

    fn upconvs(channels: usize) -> Block {
        [double_conv(channels)]
    }

    fn double_conv(channels: usize) -> Block {
        [
            Conv2d(channels, 3, padding = 1, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            Conv2d(channels, 3, padding = 1, bias = false, name = "3"), BatchNorm2d(name = "4"), Relu(inplace),
        ]
    }
}
