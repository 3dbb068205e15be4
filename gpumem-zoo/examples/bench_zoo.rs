//! Steps of image classifiers of the zoo on the CPU, four images each: the program of `examples/bench_cpu.rs` for other networks.
//!
//! `scripts/compare_cpu.py --drawn 4` compares some of them with torchvision's, drawn by the hash of the commit.

#[path = "../../examples/networks/mod.rs"]
#[macro_use]
mod networks;
#[path = "../../examples/networks/steps.rs"]
mod steps;

use gpumem_zoo::{
    alexnet, convnext, densenet, efficientnet, mobilenet, regnet, resnet, shufflenet, squeezenet, swin, vgg, vit,
};
use steps::{Case, Failure, case};

const CASES: [Case; 21] = [
    case::<alexnet::AlexNet<4>>("alexnet", 1000),
    case::<convnext::ConvNeXtTiny<4>>("convnext_tiny", 1000),
    case::<densenet::DenseNet121<4>>("densenet121", 1000),
    case::<efficientnet::EfficientNetB0<4>>("efficientnet_b0", 1000),
    case::<mobilenet::MnasNet<4>>("mnasnet1_0", 1000),
    case::<mobilenet::MobileNetV2<4>>("mobilenet_v2", 1000),
    case::<mobilenet::MobileNetV3Large<4>>("mobilenet_v3_large", 1000),
    case::<mobilenet::MobileNetV3Small<4>>("mobilenet_v3_small", 1000),
    case::<regnet::RegNetY400Mf<4>>("regnet_y_400mf", 1000),
    case::<resnet::ResNet18<4>>("resnet18_224", 1000),
    case::<resnet::ResNet34<4>>("resnet34", 1000),
    case::<resnet::ResNet50<4>>("resnet50", 1000),
    case::<resnet::ResNeXt50<4>>("resnext50_32x4d", 1000),
    case::<shufflenet::ShuffleNetV2<4>>("shufflenet_v2_x1_0", 1000),
    case::<squeezenet::SqueezeNet10<4>>("squeezenet1_0", 1000),
    case::<squeezenet::SqueezeNet11<4>>("squeezenet1_1", 1000),
    case::<swin::SwinT<4>>("swin_t", 1000),
    case::<vgg::Vgg11<4>>("vgg11", 1000),
    case::<vgg::Vgg11Bn<4>>("vgg11_bn", 1000),
    case::<vit::VitB16<4>>("vit_b_16", 1000),
    case::<resnet::WideResNet50<4>>("wide_resnet50_2", 1000),
];

fn main() -> Result<(), Failure> {
    steps::run(&CASES)
}
