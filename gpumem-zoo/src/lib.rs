//! Well-known networks, each with the parameters and operations of the original.
//!
//! Every network is generic over its batch: `resnet::ResNet50<32>` is one whose training step has 32 images, and
//! [`gpumem::fits!`] asks whether it fits a card. `ResNet50::<1>::infer_on(&device)` loads the forward pass alone, for one image, in f32,
//! without what training needs. Parameters begin as PyTorch's layers of the same name do; what an original draws in
//! another way, such as the tables of words of transformers, comes with its state dict.
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
//! A tensor's path becomes the name in the original's state dict by [`torch_name`].

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
    /// Modules of nothing but other modules, for [`torch_name`](crate::torch_name).
    pub mod modules {
        fn item(inside: Block) -> Block { [inside] }
        fn block(inside: Block) -> Block { [inside] }
        fn at_1(inside: Block) -> Block { [inside] }
        fn at_3(inside: Block) -> Block { [inside] }
        fn at_4(inside: Block) -> Block { [inside] }
        fn at_5(inside: Block) -> Block { [inside] }
        fn at_6(inside: Block) -> Block { [inside] }
        fn at_7(inside: Block) -> Block { [inside] }
        fn at_8(inside: Block) -> Block { [inside] }
        fn at_9(inside: Block) -> Block { [inside] }
        fn at_10(inside: Block) -> Block { [inside] }
        fn at_11(inside: Block) -> Block { [inside] }
        fn at_12(inside: Block) -> Block { [inside] }
        fn at_13(inside: Block) -> Block { [inside] }
    }
}

/// The name that PyTorch's state dict has for a layer or a tensor of a network of this crate.
///
/// A block that stands several times in another is numbered, as the modules of a `ModuleList` are: `h[3]` is `h.3`. What cannot be
/// said by the name of a function is said by its beginning:
///
/// * a block whose name begins with `item` is one of a `Sequential`, which has its number only: `layer1.item_basic[0]` is
///   `layer1.0`, and `item` where it is alone is `0`;
/// * a block or a layer whose name begins with `inline_` has no module in the original;
/// * a layer whose name begins with `bare_` is a parameter of the module around it: `bare_pos_embed.weight` is `pos_embed`;
/// * `at_8` is a module called `8`, and `as_layers` one called `layers` where a function has that name already, or cannot have it;
/// * `camel_self_attention` is a module called `SelfAttention`;
/// * `dashed_block1[0]` is a module called `block1-0`.
///
/// ```
/// assert_eq!(gpumem_zoo::torch_name("layer1.item_basic[0].conv1.weight"), "layer1.0.conv1.weight");
/// assert_eq!(gpumem_zoo::torch_name("h[3].mlp.c_fc"), "h.3.mlp.c_fc");
/// assert_eq!(gpumem_zoo::torch_name("encoder.bare_pos_embedding.weight"), "encoder.pos_embedding");
/// assert_eq!(gpumem_zoo::torch_name("layer[1].camel_dense_relu_dense.wi"), "layer.1.DenseReluDense.wi");
/// assert_eq!(gpumem_zoo::torch_name("block2.dashed_block2[3].f.a"), "block2.block2-3.f.a");
/// ```
pub fn torch_name(path: &str) -> String {
    let mut names = Vec::new();
    let mut segments = path.split('.').peekable();
    while let Some(segment) = segments.next() {
        let (name, number) = match segment.split_once('[') {
            Some((name, number)) => (name, Some(number.trim_end_matches(']'))),
            None => (segment, None),
        };
        if let Some(parameter) = name.strip_prefix("bare_") {
            names.push(parameter.to_string());
            segments.next_if_eq(&"weight");
        } else if name == "item" || name.starts_with("item_") {
            names.push(number.unwrap_or("0").to_string());
        } else if let Some(words) = name.strip_prefix("camel_") {
            names.push(words.split('_').map(capitalized).collect());
            names.extend(number.map(String::from));
        } else if let Some(name) = name.strip_prefix("dashed_") {
            names.push(format!("{name}-{}", number.unwrap_or("0")));
        } else if !name.starts_with("inline_") {
            names.push(name.strip_prefix("at_").or(name.strip_prefix("as_")).unwrap_or(name).to_string());
            names.extend(number.map(String::from));
        }
    }
    names.join(".")
}

/// A word with a capital letter in front.
fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
