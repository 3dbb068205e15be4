//! Well-known networks, each with the parameters and operations of the original.
//!
//! Every network is generic over its batch: a training step of `resnet::ResNet50<32>` has 32 images, and [`gpumem::fits!`] checks that it
//! fits a card. `ResNet50::<1>::infer_on(&device)` loads the forward pass alone, for one image, in f32, without the memory of training.
//! Parameters are initialised like those of PyTorch's layers. If an original initialises some in another way, such as the word embeddings
//! of transformers, load its state dict.
//!
//! | family | networks | original |
//! | --- | --- | --- |
//! | [`convnext`] | ConvNeXt-Tiny | torchvision |
//! | [`densenet`] | DenseNet-121 | torchvision |
//! | [`googlenet`] | GoogLeNet with its auxiliary heads | torchvision |
//! | [`inception`] | Inception v3 with its auxiliary head | torchvision |
//! | [`squeezenet`] | SqueezeNet 1.0, 1.1 | torchvision |
//! | [`lenet`] | LeNet-5 | LeCun and others 1998 |
//! | [`alexnet`] | AlexNet | torchvision |
//! | [`vgg`] | VGG-11, -13, -16, -19, with and without batch normalisation | torchvision |
//! | [`resnet`] | ResNet-18, -34, -50, -101, -152, ResNeXt-50 32x4d, Wide ResNet-50-2 | torchvision |
//! | [`resnet3d`] | R3D-18 | torchvision |
//! | [`mobilenet`] | MobileNetV2, MobileNetV3 small and large, MNASNet 1.0 | torchvision |
//! | [`efficientnet`] | EfficientNet-B0, EfficientNetV2-S | torchvision |
//! | [`regnet`] | RegNetY-400MF | torchvision |
//! | [`segformer`] | SegFormer-B0 | transformers |
//! | [`segmentation`] | FCN and DeepLabV3 on ResNet-50, with auxiliary heads | torchvision |
//! | [`shufflenet`] | ShuffleNet V2 1.0 | torchvision |
//! | [`unet`] | U-Net | Ronneberger and others 2015 |
//! | [`dcgan`] | generator, discriminator | PyTorch's example |
//! | [`vae`] | variational autoencoder of digits | PyTorch's example |
//! | [`ddpm`] | DDPM for CIFAR-10 | diffusers |
//! | [`vit`] | ViT-B/16, ViT-S/16 | torchvision, timm |
//! | [`swin`] | Swin-T | torchvision |
//! | [`bert`] | BERT base and large, RoBERTa base, DistilBERT | transformers |
//! | [`clip`] | CLIP ViT-B/32 | transformers |
//! | [`deit`] | DeiT-Ti/16, -S/16, -B/16 with distillation | timm |
//! | [`mixer`] | MLP-Mixer S/16, B/16 | timm |
//! | [`t5`] | T5 small | transformers |
//! | [`wav2vec2`] | wav2vec 2.0 base | transformers |
//! | [`whisper`] | Whisper tiny | transformers |
//! | [`word_lm`] | language models of words by an LSTM and by a GRU | PyTorch's example |
//! | [`mamba`] | Mamba-130M | transformers |
//! | [`gpt2`] | GPT-2 small, medium, large, XL | transformers, nanoGPT |
//! | [`llama`] | TinyLlama-1.1B, Llama-3.2-1B, Qwen2-0.5B, Mistral-7B, Gemma-2B | transformers |
//!
//! Names are those of the original's state dict, with numbers in brackets: `layer1[0].conv1.weight` is `layer1.0.conv1.weight` there.
//! `net.load_weights(path)` of [`gpumem::weights`] reads the original's files.

pub mod alexnet;
pub mod bert;
pub mod clip;
pub mod convnext;
pub mod dcgan;
pub mod ddpm;
pub mod deit;
pub mod densenet;
pub mod efficientnet;
pub mod googlenet;
pub mod gpt2;
pub mod inception;
pub mod lenet;
pub mod llama;
pub mod mamba;
pub mod mixer;
pub mod mobilenet;
pub mod regnet;
pub mod resnet;
pub mod resnet3d;
pub mod segformer;
pub mod segmentation;
pub mod shufflenet;
pub mod squeezenet;
pub mod swin;
pub mod t5;
pub mod unet;
pub mod vae;
pub mod vgg;
pub mod vit;
pub mod wav2vec2;
pub mod whisper;
pub mod word_lm;

gpumem::blocks! {
    /// Modules that contain only other modules.
    pub mod modules {
        /// A module of an `nn.Sequential` or a `ModuleList`.
        #[name = "[]"]
        fn item(inside: Block) -> Block { [inside] }
        fn block(inside: Block) -> Block { [inside] }
    }
}
