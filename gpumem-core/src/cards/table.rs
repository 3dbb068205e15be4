//! Generated from `data/cards.csv` by `scripts/cards.py`: change the table, then run the script.

use super::{Alias, Architecture, Basis, Card};

/// GeForce GTX 1050 Ti: 4,038 MiB usable (measured). Cargo feature `gtx1050ti`.
pub const GTX_1050_TI: Card = Card { slug: "gtx1050ti", constant: "GTX_1050_TI", short_name: "GTX 1050 Ti", name: "GeForce GTX 1050 Ti",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 4096, usable_mib: 4038, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(128), bandwidth_gbs: Some(112.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(6), cuda_cores: Some(768), fp32_tflops: Some(2.14), tensor_fp16_tflops: None, has_multicast: false, notes: "Windows shows 4095-4096", };
/// GeForce GTX 1060 3GB: 2,970 MiB usable (estimated). Cargo feature `gtx1060-3gb`.
pub const GTX_1060_3GB: Card = Card { slug: "gtx1060-3gb", constant: "GTX_1060_3GB", short_name: "GTX 1060 3GB", name: "GeForce GTX 1060 3GB",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 3072, usable_mib: 2970, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(192), bandwidth_gbs: Some(192.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(9), cuda_cores: Some(1152), fp32_tflops: Some(3.94), tensor_fp16_tflops: None, has_multicast: false, notes: "no Linux figure found", };
/// GeForce GTX 1060 6GB: 6,063 MiB usable (measured). Cargo feature `gtx1060-6gb`.
pub const GTX_1060_6GB: Card = Card { slug: "gtx1060-6gb", constant: "GTX_1060_6GB", short_name: "GTX 1060 6GB", name: "GeForce GTX 1060 6GB",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 6144, usable_mib: 6063, basis: Basis::Measured, source: "https://github.com/tromp/cuckoo/issues/54", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(192), bandwidth_gbs: Some(192.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(10), cuda_cores: Some(1280), fp32_tflops: Some(4.38), tensor_fp16_tflops: None, has_multicast: false, notes: "range 6063-6078 over drivers 2018-2025; Windows 6144", };
/// GeForce GTX 1070: 8,111 MiB usable (measured). Cargo feature `gtx1070`.
pub const GTX_1070: Card = Card { slug: "gtx1070", constant: "GTX_1070", short_name: "GTX 1070", name: "GeForce GTX 1070",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 8192, usable_mib: 8111, basis: Basis::Measured, source: "https://github.com/tensorflow/tensorflow/issues/3864", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(256), bandwidth_gbs: Some(256.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(15), cuda_cores: Some(1920), fp32_tflops: Some(6.46), tensor_fp16_tflops: None, has_multicast: false, notes: "range 8111-8119; Windows 8191", };
/// GeForce GTX 1070 Ti: 8,119 MiB usable (measured). Cargo feature `gtx1070ti`.
pub const GTX_1070_TI: Card = Card { slug: "gtx1070ti", constant: "GTX_1070_TI", short_name: "GTX 1070 Ti", name: "GeForce GTX 1070 Ti",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 8192, usable_mib: 8119, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(256), bandwidth_gbs: Some(256.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(19), cuda_cores: Some(2432), fp32_tflops: Some(8.19), tensor_fp16_tflops: None, has_multicast: false, notes: "one old-driver figure only; newer drivers cost 10-20 MiB more on other 10-series cards", };
/// GeForce GTX 1080: 8,098 MiB usable (measured). Cargo feature `gtx1080`.
pub const GTX_1080: Card = Card { slug: "gtx1080", constant: "GTX_1080", short_name: "GTX 1080", name: "GeForce GTX 1080",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 8192, usable_mib: 8098, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5X", bus_bits: Some(256), bandwidth_gbs: Some(320.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(20), cuda_cores: Some(2560), fp32_tflops: Some(8.87), tensor_fp16_tflops: None, has_multicast: false, notes: "range 8098-8120", };
/// GeForce GTX 1080 Ti: 11,169 MiB usable (measured). Cargo feature `gtx1080ti`.
pub const GTX_1080_TI: Card = Card { slug: "gtx1080ti", constant: "GTX_1080_TI", short_name: "GTX 1080 Ti", name: "GeForce GTX 1080 Ti",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 11_264, usable_mib: 11_169, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5X", bus_bits: Some(352), bandwidth_gbs: Some(484.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(28), cuda_cores: Some(3584), fp32_tflops: Some(11.34), tensor_fp16_tflops: None, has_multicast: false, notes: "range 11169-11178 (10.91-10.92 GiB); Windows 11264", };
/// NVIDIA TITAN X (Pascal): 12,189 MiB usable (measured). Cargo feature `titan-x-pascal`.
pub const TITAN_X_PASCAL: Card = Card { slug: "titan-x-pascal", constant: "TITAN_X_PASCAL", short_name: "TITAN X (Pascal)", name: "NVIDIA TITAN X (Pascal)",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 12_288, usable_mib: 12_189, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5X", bus_bits: Some(384), bandwidth_gbs: Some(480.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(28), cuda_cores: Some(3584), fp32_tflops: Some(10.97), tensor_fp16_tflops: None, has_multicast: false, notes: "nvidia-smi figure, not cudaMemGetInfo; 12196 in", };
/// NVIDIA TITAN Xp: 12,186 MiB usable (measured). Cargo feature `titan-xp`.
pub const TITAN_XP: Card = Card { slug: "titan-xp", constant: "TITAN_XP", short_name: "TITAN Xp", name: "NVIDIA TITAN Xp",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 12_288, usable_mib: 12_186, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5X", bus_bits: Some(384), bandwidth_gbs: Some(547.7), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: Some(12.15), tensor_fp16_tflops: None, has_multicast: false, notes: "", };
/// GeForce GTX 1650: 3,712 MiB usable (measured). Cargo feature `gtx1650`.
pub const GTX_1650: Card = Card { slug: "gtx1650", constant: "GTX_1650", short_name: "GTX 1650", name: "GeForce GTX 1650",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 4096, usable_mib: 3712, basis: Basis::Measured, source: "https://github.com/csxmli2016/DFDNet/issues/39", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(128), bandwidth_gbs: Some(128.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(14), cuda_cores: Some(896), fp32_tflops: Some(2.98), tensor_fp16_tflops: None, has_multicast: false, notes: "desktop GDDR5 variant specs, name is shared with laptops and the GDDR6 variant (192 GB/s); newest drivers cost ~190 MiB more than 2020 ones; Windows 4096", };
/// GeForce GTX 1660: 5,732 MiB usable (estimated). Cargo feature `gtx1660`.
pub const GTX_1660: Card = Card { slug: "gtx1660", constant: "GTX_1660", short_name: "GTX 1660", name: "GeForce GTX 1660",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 6144, usable_mib: 5732, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(192), bandwidth_gbs: Some(192.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(22), cuda_cores: Some(1408), fp32_tflops: Some(5.03), tensor_fp16_tflops: None, has_multicast: false, notes: "no figure found", };
/// GeForce GTX 1660 SUPER: 5,745 MiB usable (estimated). Cargo feature `gtx1660super`.
pub const GTX_1660_SUPER: Card = Card { slug: "gtx1660super", constant: "GTX_1660_SUPER", short_name: "GTX 1660 SUPER", name: "GeForce GTX 1660 SUPER",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 6144, usable_mib: 5745, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(336.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(22), cuda_cores: Some(1408), fp32_tflops: Some(5.03), tensor_fp16_tflops: None, has_multicast: false, notes: "2023 driver; by analogy ~5745 with CUDA 12.8+ drivers as for the 1660 Ti", };
/// GeForce GTX 1660 Ti: 5,747 MiB usable (measured). Cargo feature `gtx1660ti`.
pub const GTX_1660_TI: Card = Card { slug: "gtx1660ti", constant: "GTX_1660_TI", short_name: "GTX 1660 Ti", name: "GeForce GTX 1660 Ti",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 6144, usable_mib: 5747, basis: Basis::Measured, source: "https://github.com/zhou13/lcnn/issues/23", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(288.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(24), cuda_cores: Some(1536), fp32_tflops: Some(5.44), tensor_fp16_tflops: None, has_multicast: false, notes: "range 5747-5949", };
/// GeForce RTX 2060 6GB: 5,735 MiB usable (measured). Cargo feature `rtx2060`.
pub const RTX_2060: Card = Card { slug: "rtx2060", constant: "RTX_2060", short_name: "RTX 2060", name: "GeForce RTX 2060 6GB",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 6144, usable_mib: 5735, basis: Basis::Measured, source: "https://github.com/hashcat/hashcat/issues/2473", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(336.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(30), cuda_cores: Some(1920), fp32_tflops: Some(6.45), tensor_fp16_tflops: Some(25.8), has_multicast: false, notes: "range 5735-5934", };
/// GeForce RTX 2060 12GB: 11,833 MiB usable (measured). Cargo feature `rtx2060-12gb`.
pub const RTX_2060_12GB: Card = Card { slug: "rtx2060-12gb", constant: "RTX_2060_12GB", short_name: "RTX 2060 12GB", name: "GeForce RTX 2060 12GB",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 12_288, usable_mib: 11_833, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(336.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(34), cuda_cores: Some(2176), fp32_tflops: Some(7.18), tensor_fp16_tflops: Some(28.7), has_multicast: false, notes: "", };
/// GeForce RTX 2060 SUPER: 7,741 MiB usable (estimated). Cargo feature `rtx2060super`.
pub const RTX_2060_SUPER: Card = Card { slug: "rtx2060super", constant: "RTX_2060_SUPER", short_name: "RTX 2060 SUPER", name: "GeForce RTX 2060 SUPER",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 8192, usable_mib: 7741, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(34), cuda_cores: Some(2176), fp32_tflops: Some(7.18), tensor_fp16_tflops: Some(28.7), has_multicast: false, notes: "", };
/// GeForce RTX 2070: 7,780 MiB usable (estimated). Cargo feature `rtx2070`.
pub const RTX_2070: Card = Card { slug: "rtx2070", constant: "RTX_2070", short_name: "RTX 2070", name: "GeForce RTX 2070",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 8192, usable_mib: 7780, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(36), cuda_cores: Some(2304), fp32_tflops: Some(7.47), tensor_fp16_tflops: Some(29.9), has_multicast: false, notes: "old driver only; by analogy ~7780 with CUDA 12.8+ drivers (see rtx2080)", };
/// GeForce RTX 2070 SUPER: 7,972 MiB usable (measured). Cargo feature `rtx2070super`.
pub const RTX_2070_SUPER: Card = Card { slug: "rtx2070super", constant: "RTX_2070_SUPER", short_name: "RTX 2070 SUPER", name: "GeForce RTX 2070 SUPER",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 8192, usable_mib: 7972, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(40), cuda_cores: Some(2560), fp32_tflops: Some(9.06), tensor_fp16_tflops: Some(36.2), has_multicast: false, notes: "old drivers only; a 2026 text says 7.6 GiB usable", };
/// GeForce RTX 2080: 7,783 MiB usable (measured). Cargo feature `rtx2080`.
pub const RTX_2080: Card = Card { slug: "rtx2080", constant: "RTX_2080", short_name: "RTX 2080", name: "GeForce RTX 2080",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 8192, usable_mib: 7783, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(46), cuda_cores: Some(2944), fp32_tflops: Some(10.07), tensor_fp16_tflops: Some(40.3), has_multicast: false, notes: "", };
/// GeForce RTX 2080 SUPER: 7,780 MiB usable (estimated). Cargo feature `rtx2080super`.
pub const RTX_2080_SUPER: Card = Card { slug: "rtx2080super", constant: "RTX_2080_SUPER", short_name: "RTX 2080 SUPER", name: "GeForce RTX 2080 SUPER",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 8192, usable_mib: 7780, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(496.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(48), cuda_cores: Some(3072), fp32_tflops: Some(11.15), tensor_fp16_tflops: Some(44.6), has_multicast: false, notes: "old driver only; by analogy ~7780 with CUDA 12.8+ drivers", };
/// GeForce RTX 2080 Ti: 10,825 MiB usable (measured). Cargo feature `rtx2080ti`.
pub const RTX_2080_TI: Card = Card { slug: "rtx2080ti", constant: "RTX_2080_TI", short_name: "RTX 2080 Ti", name: "GeForce RTX 2080 Ti",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 11_264, usable_mib: 10_825, basis: Basis::Measured, source: "https://github.com/ispc-lab/TMA/issues/5", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(352), bandwidth_gbs: Some(616.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(68), cuda_cores: Some(4352), fp32_tflops: Some(13.45), tensor_fp16_tflops: Some(53.8), has_multicast: false, notes: "at 1545 MHz (FE 1635 MHz: 14.23 / 56.9); range 10825-11020; 22 GB modded cards exist", };
/// NVIDIA TITAN RTX: 24,212 MiB usable (measured). Cargo feature `titan-rtx`.
pub const TITAN_RTX: Card = Card { slug: "titan-rtx", constant: "TITAN_RTX", short_name: "TITAN RTX", name: "NVIDIA TITAN RTX",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 24_576, usable_mib: 24_212, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(672.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(72), cuda_cores: Some(4608), fp32_tflops: Some(16.31), tensor_fp16_tflops: Some(130.5), has_multicast: false, notes: "full-rate FP32 accumulate; old driver; Windows 24.00 GiB", };
/// GeForce RTX 3050 6GB: 5,803 MiB usable (measured). Cargo feature `rtx3050-6gb`.
pub const RTX_3050_6GB: Card = Card { slug: "rtx3050-6gb", constant: "RTX_3050_6GB", short_name: "RTX 3050 6GB", name: "GeForce RTX 3050 6GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 6144, usable_mib: 5803, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(96), bandwidth_gbs: Some(168.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(18), cuda_cores: Some(2304), fp32_tflops: Some(6.77), tensor_fp16_tflops: Some(13.5), has_multicast: false, notes: "", };
/// GeForce RTX 3050 8GB: 7,741 MiB usable (estimated). Cargo feature `rtx3050-8gb`.
pub const RTX_3050_8GB: Card = Card { slug: "rtx3050-8gb", constant: "RTX_3050_8GB", short_name: "RTX 3050 8GB", name: "GeForce RTX 3050 8GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 8192, usable_mib: 7741, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(224.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(20), cuda_cores: Some(2560), fp32_tflops: Some(9.01), tensor_fp16_tflops: Some(18.0), has_multicast: false, notes: "only a Windows figure found (8191)", };
/// GeForce RTX 3060 12GB: 11,906 MiB usable (measured). Cargo feature `rtx3060`.
pub const RTX_3060: Card = Card { slug: "rtx3060", constant: "RTX_3060", short_name: "RTX 3060", name: "GeForce RTX 3060 12GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 12_288, usable_mib: 11_906, basis: Basis::Measured, source: "https://github.com/TencentARC/PhotoMaker/issues/47", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(360.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(28), cuda_cores: Some(3584), fp32_tflops: Some(12.74), tensor_fp16_tflops: Some(25.5), has_multicast: false, notes: "range 11906-12045; Windows 12287 an 8 GB 128-bit variant exists (240 GB/s)", };
/// GeForce RTX 3060 Ti: 7,833 MiB usable (measured). Cargo feature `rtx3060ti`.
pub const RTX_3060_TI: Card = Card { slug: "rtx3060ti", constant: "RTX_3060_TI", short_name: "RTX 3060 Ti", name: "GeForce RTX 3060 Ti",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 8192, usable_mib: 7833, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(38), cuda_cores: Some(4864), fp32_tflops: Some(16.2), tensor_fp16_tflops: Some(32.4), has_multicast: false, notes: "range 7833-7972; Windows/WSL 8191", };
/// GeForce RTX 3070: 7,753 MiB usable (measured). Cargo feature `rtx3070`.
pub const RTX_3070: Card = Card { slug: "rtx3070", constant: "RTX_3070", short_name: "RTX 3070", name: "GeForce RTX 3070",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 8192, usable_mib: 7753, basis: Basis::Measured, source: "https://github.com/akshitac8/OW-DETR/issues/46", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(46), cuda_cores: Some(5888), fp32_tflops: Some(20.31), tensor_fp16_tflops: Some(40.6), has_multicast: false, notes: "range 7753-7974, usual with CUDA 12.8+ drivers 7817-7851; Windows 8192", };
/// GeForce RTX 3070 Ti: 7,840 MiB usable (measured). Cargo feature `rtx3070ti`.
pub const RTX_3070_TI: Card = Card { slug: "rtx3070ti", constant: "RTX_3070_TI", short_name: "RTX 3070 Ti", name: "GeForce RTX 3070 Ti",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 8192, usable_mib: 7840, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(256), bandwidth_gbs: Some(608.3), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(21.75), tensor_fp16_tflops: Some(43.5), has_multicast: false, notes: "", };
/// GeForce RTX 3080 10GB: 9,871 MiB usable (measured). Cargo feature `rtx3080-10gb`.
pub const RTX_3080_10GB: Card = Card { slug: "rtx3080-10gb", constant: "RTX_3080_10GB", short_name: "RTX 3080 10GB", name: "GeForce RTX 3080 10GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 10_240, usable_mib: 9871, basis: Basis::Measured, source: "https://github.com/hashcat/hashcat/issues/3418", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(320), bandwidth_gbs: Some(760.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(68), cuda_cores: Some(8704), fp32_tflops: Some(29.77), tensor_fp16_tflops: Some(59.5), has_multicast: false, notes: "range 9871-10014; Windows 10240", };
/// GeForce RTX 3080 12GB: 11,910 MiB usable (estimated). Cargo feature `rtx3080-12gb`.
pub const RTX_3080_12GB: Card = Card { slug: "rtx3080-12gb", constant: "RTX_3080_12GB", short_name: "RTX 3080 12GB", name: "GeForce RTX 3080 12GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 12_288, usable_mib: 11_910, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(384), bandwidth_gbs: Some(912.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(70), cuda_cores: Some(8960), fp32_tflops: Some(30.64), tensor_fp16_tflops: Some(61.3), has_multicast: false, notes: "one old-driver figure; by analogy ~11910 with CUDA 12.8+ drivers (see rtx3080ti)", };
/// GeForce RTX 3080 Ti: 11,910 MiB usable (measured). Cargo feature `rtx3080ti`.
pub const RTX_3080_TI: Card = Card { slug: "rtx3080ti", constant: "RTX_3080_TI", short_name: "RTX 3080 Ti", name: "GeForce RTX 3080 Ti",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 12_288, usable_mib: 11_910, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(384), bandwidth_gbs: Some(912.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(80), cuda_cores: Some(10_240), fp32_tflops: Some(34.1), tensor_fp16_tflops: Some(68.2), has_multicast: false, notes: "Windows 12.00 GiB", };
/// GeForce RTX 3090: 24,121 MiB usable (measured). Cargo feature `rtx3090`.
pub const RTX_3090: Card = Card { slug: "rtx3090", constant: "RTX_3090", short_name: "RTX 3090", name: "GeForce RTX 3090",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 24_576, usable_mib: 24_121, basis: Basis::Measured, source: "https://github.com/ultralytics/ultralytics/issues/5359", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(384), bandwidth_gbs: Some(935.8), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(82), cuda_cores: Some(10_496), fp32_tflops: Some(35.58), tensor_fp16_tflops: Some(71.2), has_multicast: false, notes: "range 24121-24268; Windows 24575", };
/// GeForce RTX 3090 Ti: 24,110 MiB usable (measured). Cargo feature `rtx3090ti`.
pub const RTX_3090_TI: Card = Card { slug: "rtx3090ti", constant: "RTX_3090_TI", short_name: "RTX 3090 Ti", name: "GeForce RTX 3090 Ti",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 24_576, usable_mib: 24_110, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(384), bandwidth_gbs: Some(1008.3), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(84), cuda_cores: Some(10_752), fp32_tflops: Some(40.0), tensor_fp16_tflops: Some(80.0), has_multicast: false, notes: "", };
/// GeForce RTX 4060: 7,807 MiB usable (measured). Cargo feature `rtx4060`.
pub const RTX_4060: Card = Card { slug: "rtx4060", constant: "RTX_4060", short_name: "RTX 4060", name: "GeForce RTX 4060",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 8192, usable_mib: 7807, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(272.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(24), cuda_cores: Some(3072), fp32_tflops: Some(15.1), tensor_fp16_tflops: Some(30.2), has_multicast: false, notes: "", };
/// GeForce RTX 4060 Ti 8GB: 7,806 MiB usable (measured). Cargo feature `rtx4060ti-8gb`.
pub const RTX_4060_TI_8GB: Card = Card { slug: "rtx4060ti-8gb", constant: "RTX_4060_TI_8GB", short_name: "RTX 4060 Ti 8GB", name: "GeForce RTX 4060 Ti 8GB",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 8192, usable_mib: 7806, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(288.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(34), cuda_cores: Some(4352), fp32_tflops: Some(22.1), tensor_fp16_tflops: Some(44.1), has_multicast: false, notes: "", };
/// GeForce RTX 4060 Ti 16GB: 15,938 MiB usable (measured). Cargo feature `rtx4060ti-16gb`.
pub const RTX_4060_TI_16GB: Card = Card { slug: "rtx4060ti-16gb", constant: "RTX_4060_TI_16GB", short_name: "RTX 4060 Ti 16GB", name: "GeForce RTX 4060 Ti 16GB",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 16_384, usable_mib: 15_938, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(288.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(34), cuda_cores: Some(4352), fp32_tflops: Some(22.1), tensor_fp16_tflops: Some(44.1), has_multicast: false, notes: "another Linux report 15.60 GiB; Windows 16379", };
/// GeForce RTX 4070: 11,866 MiB usable (measured). Cargo feature `rtx4070`.
pub const RTX_4070: Card = Card { slug: "rtx4070", constant: "RTX_4070", short_name: "RTX 4070", name: "GeForce RTX 4070",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 12_288, usable_mib: 11_866, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(192), bandwidth_gbs: Some(504.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(46), cuda_cores: Some(5888), fp32_tflops: Some(29.1), tensor_fp16_tflops: Some(58.3), has_multicast: false, notes: "Windows 12282", };
/// GeForce RTX 4070 SUPER: 11,852 MiB usable (measured). Cargo feature `rtx4070super`.
pub const RTX_4070_SUPER: Card = Card { slug: "rtx4070super", constant: "RTX_4070_SUPER", short_name: "RTX 4070 SUPER", name: "GeForce RTX 4070 SUPER",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 12_288, usable_mib: 11_852, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(192), bandwidth_gbs: Some(504.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(56), cuda_cores: Some(7168), fp32_tflops: Some(35.48), tensor_fp16_tflops: Some(71.0), has_multicast: false, notes: "Windows 12282", };
/// GeForce RTX 4070 Ti: 11,870 MiB usable (estimated). Cargo feature `rtx4070ti`.
pub const RTX_4070_TI: Card = Card { slug: "rtx4070ti", constant: "RTX_4070_TI", short_name: "RTX 4070 Ti", name: "GeForce RTX 4070 Ti",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 12_288, usable_mib: 11_870, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(192), bandwidth_gbs: Some(504.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(60), cuda_cores: Some(7680), fp32_tflops: Some(40.1), tensor_fp16_tflops: Some(80.2), has_multicast: false, notes: "2023 driver only; by analogy ~11870 with CUDA 12.8+ drivers (see rtx4070); Windows 12282", };
/// GeForce RTX 4070 Ti SUPER: 15,928 MiB usable (measured). Cargo feature `rtx4070tisuper`.
pub const RTX_4070_TI_SUPER: Card = Card { slug: "rtx4070tisuper", constant: "RTX_4070_TI_SUPER", short_name: "RTX 4070 Ti SUPER", name: "GeForce RTX 4070 Ti SUPER",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 16_384, usable_mib: 15_928, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(256), bandwidth_gbs: Some(672.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(66), cuda_cores: Some(8448), fp32_tflops: Some(44.1), tensor_fp16_tflops: Some(88.2), has_multicast: false, notes: "Windows 16375-16376", };
/// GeForce RTX 4080: 15,945 MiB usable (measured). Cargo feature `rtx4080`.
pub const RTX_4080: Card = Card { slug: "rtx4080", constant: "RTX_4080", short_name: "RTX 4080", name: "GeForce RTX 4080",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 16_384, usable_mib: 15_945, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(256), bandwidth_gbs: Some(717.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(76), cuda_cores: Some(9728), fp32_tflops: Some(48.7), tensor_fp16_tflops: Some(97.5), has_multicast: false, notes: "Windows 16375", };
/// GeForce RTX 4080 SUPER: 15,937 MiB usable (measured). Cargo feature `rtx4080super`.
pub const RTX_4080_SUPER: Card = Card { slug: "rtx4080super", constant: "RTX_4080_SUPER", short_name: "RTX 4080 SUPER", name: "GeForce RTX 4080 SUPER",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 16_384, usable_mib: 15_937, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(256), bandwidth_gbs: Some(736.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(80), cuda_cores: Some(10_240), fp32_tflops: Some(52.22), tensor_fp16_tflops: Some(104.4), has_multicast: false, notes: "Windows 16375-16376", };
/// GeForce RTX 4090: 24,081 MiB usable (measured). Cargo feature `rtx4090`.
pub const RTX_4090: Card = Card { slug: "rtx4090", constant: "RTX_4090", short_name: "RTX 4090", name: "GeForce RTX 4090",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 24_576, usable_mib: 24_081, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6X", bus_bits: Some(384), bandwidth_gbs: Some(1008.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(128), cuda_cores: Some(16_384), fp32_tflops: Some(82.6), tensor_fp16_tflops: Some(165.2), has_multicast: false, notes: "range 24081-24217; nvidia-smi total 24564; Windows 24563", };
/// GeForce RTX 5050: 7,741 MiB usable (estimated). Cargo feature `rtx5050`.
pub const RTX_5050: Card = Card { slug: "rtx5050", constant: "RTX_5050", short_name: "RTX 5050", name: "GeForce RTX 5050",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 8192, usable_mib: 7741, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(320.0), host_link: "PCIe 5.0 x8", host_gbs: 25.0, multiprocessors: Some(20), cuda_cores: Some(2560), fp32_tflops: Some(13.17), tensor_fp16_tflops: Some(26.3), has_multicast: false, notes: "W lists 224 GB/s and 12.9; no usable figure found", };
/// GeForce RTX 5060: 7,743 MiB usable (measured). Cargo feature `rtx5060`.
pub const RTX_5060: Card = Card { slug: "rtx5060", constant: "RTX_5060", short_name: "RTX 5060", name: "GeForce RTX 5060",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 8192, usable_mib: 7743, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(128), bandwidth_gbs: Some(448.0), host_link: "PCIe 5.0 x8", host_gbs: 25.0, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: Some(19.18), tensor_fp16_tflops: Some(38.4), has_multicast: false, notes: "", };
/// GeForce RTX 5060 Ti 8GB: 7,741 MiB usable (estimated). Cargo feature `rtx5060ti-8gb`.
pub const RTX_5060_TI_8GB: Card = Card { slug: "rtx5060ti-8gb", constant: "RTX_5060_TI_8GB", short_name: "RTX 5060 Ti 8GB", name: "GeForce RTX 5060 Ti 8GB",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 8192, usable_mib: 7741, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(128), bandwidth_gbs: Some(448.0), host_link: "PCIe 5.0 x8", host_gbs: 25.0, multiprocessors: Some(36), cuda_cores: Some(4608), fp32_tflops: Some(23.7), tensor_fp16_tflops: Some(47.4), has_multicast: false, notes: "no figure found", };
/// GeForce RTX 5060 Ti 16GB: 15,816 MiB usable (measured). Cargo feature `rtx5060ti-16gb`.
pub const RTX_5060_TI_16GB: Card = Card { slug: "rtx5060ti-16gb", constant: "RTX_5060_TI_16GB", short_name: "RTX 5060 Ti 16GB", name: "GeForce RTX 5060 Ti 16GB",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 16_384, usable_mib: 15_816, basis: Basis::Measured, source: "https://github.com/Luce-Org/lucebox/issues/407", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(128), bandwidth_gbs: Some(448.0), host_link: "PCIe 5.0 x8", host_gbs: 25.0, multiprocessors: Some(36), cuda_cores: Some(4608), fp32_tflops: Some(23.7), tensor_fp16_tflops: Some(47.4), has_multicast: false, notes: "Windows 16311", };
/// GeForce RTX 5070: 11,755 MiB usable (measured). Cargo feature `rtx5070`.
pub const RTX_5070: Card = Card { slug: "rtx5070", constant: "RTX_5070", short_name: "RTX 5070", name: "GeForce RTX 5070",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 12_288, usable_mib: 11_755, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(192), bandwidth_gbs: Some(672.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(30.97), tensor_fp16_tflops: Some(61.7), has_multicast: false, notes: "Windows/WSL 12226-12227", };
/// GeForce RTX 5070 Ti: 15,808 MiB usable (measured). Cargo feature `rtx5070ti`.
pub const RTX_5070_TI: Card = Card { slug: "rtx5070ti", constant: "RTX_5070_TI", short_name: "RTX 5070 Ti", name: "GeForce RTX 5070 Ti",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 16_384, usable_mib: 15_808, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(256), bandwidth_gbs: Some(896.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(70), cuda_cores: Some(8960), fp32_tflops: Some(43.94), tensor_fp16_tflops: Some(87.9), has_multicast: false, notes: "Windows 16302", };
/// GeForce RTX 5080: 15,840 MiB usable (measured). Cargo feature `rtx5080`.
pub const RTX_5080: Card = Card { slug: "rtx5080", constant: "RTX_5080", short_name: "RTX 5080", name: "GeForce RTX 5080",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 16_384, usable_mib: 15_840, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(256), bandwidth_gbs: Some(960.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(84), cuda_cores: Some(10_752), fp32_tflops: Some(56.28), tensor_fp16_tflops: Some(112.6), has_multicast: false, notes: "Windows 16302-16303", };
/// GeForce RTX 5090: 32,102 MiB usable (measured). Cargo feature `rtx5090`.
pub const RTX_5090: Card = Card { slug: "rtx5090", constant: "RTX_5090", short_name: "RTX 5090", name: "GeForce RTX 5090",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 32_768, usable_mib: 32_102, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(512), bandwidth_gbs: Some(1792.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(170), cuda_cores: Some(21_760), fp32_tflops: Some(104.8), tensor_fp16_tflops: Some(209.5), has_multicast: false, notes: "Windows 32606", };
/// GeForce RTX 3050 Laptop GPU 4GB: 3,710 MiB usable (estimated). Cargo feature `rtx3050-laptop-4gb`.
pub const RTX_3050_LAPTOP_4GB: Card = Card { slug: "rtx3050-laptop-4gb", constant: "RTX_3050_LAPTOP_4GB", short_name: "RTX 3050 Laptop 4GB", name: "GeForce RTX 3050 Laptop GPU 4GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 4096, usable_mib: 3710, basis: Basis::Estimated, source: "https://github.com/NVlabs/RVT/issues/7", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(192.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(16), cuda_cores: Some(2048), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "clocks depend on TGP; 2023 drivers; by analogy ~3710 with CUDA 12.8+ drivers", };
/// GeForce RTX 3060 Laptop GPU: 5,806 MiB usable (measured). Cargo feature `rtx3060-laptop`.
pub const RTX_3060_LAPTOP: Card = Card { slug: "rtx3060-laptop", constant: "RTX_3060_LAPTOP", short_name: "RTX 3060 Laptop", name: "GeForce RTX 3060 Laptop GPU",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 6144, usable_mib: 5806, basis: Basis::Measured, source: "https://github.com/JiehongLin/SAM-6D/issues/13", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(336.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "clocks depend on TGP", };
/// GeForce RTX 3070 Ti Laptop GPU: 7,850 MiB usable (measured). Cargo feature `rtx3070ti-laptop`.
pub const RTX_3070_TI_LAPTOP: Card = Card { slug: "rtx3070ti-laptop", constant: "RTX_3070_TI_LAPTOP", short_name: "RTX 3070 Ti Laptop", name: "GeForce RTX 3070 Ti Laptop GPU",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 8192, usable_mib: 7850, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(46), cuda_cores: Some(5888), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "clocks depend on TGP", };
/// GeForce RTX 3080 Laptop GPU 16GB: 15,993 MiB usable (measured). Cargo feature `rtx3080-laptop-16gb`.
pub const RTX_3080_LAPTOP_16GB: Card = Card { slug: "rtx3080-laptop-16gb", constant: "RTX_3080_LAPTOP_16GB", short_name: "RTX 3080 Laptop 16GB", name: "GeForce RTX 3080 Laptop GPU 16GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 16_384, usable_mib: 15_993, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "an 8 GB variant exists; Windows 16383", };
/// GeForce RTX 4050 Laptop GPU: 5,800 MiB usable (measured). Cargo feature `rtx4050-laptop`.
pub const RTX_4050_LAPTOP: Card = Card { slug: "rtx4050-laptop", constant: "RTX_4050_LAPTOP", short_name: "RTX 4050 Laptop", name: "GeForce RTX 4050 Laptop GPU",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 6144, usable_mib: 5800, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(96), bandwidth_gbs: Some(192.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(20), cuda_cores: Some(2560), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "Windows 6141", };
/// GeForce RTX 4060 Laptop GPU: 7,806 MiB usable (measured). Cargo feature `rtx4060-laptop`.
pub const RTX_4060_LAPTOP: Card = Card { slug: "rtx4060-laptop", constant: "RTX_4060_LAPTOP", short_name: "RTX 4060 Laptop", name: "GeForce RTX 4060 Laptop GPU",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 8192, usable_mib: 7806, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(256.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(24), cuda_cores: Some(3072), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "Windows 8187", };
/// GeForce RTX 4070 Laptop GPU: 7,806 MiB usable (measured). Cargo feature `rtx4070-laptop`.
pub const RTX_4070_LAPTOP: Card = Card { slug: "rtx4070-laptop", constant: "RTX_4070_LAPTOP", short_name: "RTX 4070 Laptop", name: "GeForce RTX 4070 Laptop GPU",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 8192, usable_mib: 7806, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(256.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(36), cuda_cores: Some(4608), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "8 GB, unlike the 12 GB desktop card", };
/// GeForce RTX 4080 Laptop GPU: 11,759 MiB usable (estimated). Cargo feature `rtx4080-laptop`.
pub const RTX_4080_LAPTOP: Card = Card { slug: "rtx4080-laptop", constant: "RTX_4080_LAPTOP", short_name: "RTX 4080 Laptop", name: "GeForce RTX 4080 Laptop GPU",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 12_288, usable_mib: 11_759, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(432.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(58), cuda_cores: Some(7424), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "12 GB, unlike the 16 GB desktop card; only Windows figures found (12282)", };
/// GeForce RTX 4090 Laptop GPU: 15,810 MiB usable (estimated). Cargo feature `rtx4090-laptop`.
pub const RTX_4090_LAPTOP: Card = Card { slug: "rtx4090-laptop", constant: "RTX_4090_LAPTOP", short_name: "RTX 4090 Laptop", name: "GeForce RTX 4090 Laptop GPU",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 16_384, usable_mib: 15_810, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(576.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(76), cuda_cores: Some(9728), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "16 GB, unlike the 24 GB desktop card; nvidia-smi total 16376, no CUDA figure found on Linux", };
/// GeForce RTX 5080 Laptop GPU: 15,881 MiB usable (measured). Cargo feature `rtx5080-laptop`.
pub const RTX_5080_LAPTOP: Card = Card { slug: "rtx5080-laptop", constant: "RTX_5080_LAPTOP", short_name: "RTX 5080 Laptop", name: "GeForce RTX 5080 Laptop GPU",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 16_384, usable_mib: 15_881, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(256), bandwidth_gbs: Some(896.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(60), cuda_cores: Some(7680), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "approximate figure", };
/// GeForce RTX 5090 Laptop GPU: 24,084 MiB usable (estimated). Cargo feature `rtx5090-laptop`.
pub const RTX_5090_LAPTOP: Card = Card { slug: "rtx5090-laptop", constant: "RTX_5090_LAPTOP", short_name: "RTX 5090 Laptop", name: "GeForce RTX 5090 Laptop GPU",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 24_576, usable_mib: 24_084, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(256), bandwidth_gbs: Some(896.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(82), cuda_cores: Some(10_496), fp32_tflops: Some(31.8), tensor_fp16_tflops: None, has_multicast: false, notes: "24 GB, unlike the 32 GB desktop card; no figure found", };
/// Tesla K80 (one of two GPUs): 11,441 MiB usable (measured). Cargo feature `k80`.
pub const K80: Card = Card { slug: "k80", constant: "K80", short_name: "K80", name: "Tesla K80 (one of two GPUs)",
    architecture: Architecture::Kepler, compute_capability: (3, 7), spec_mib: 12_288, usable_mib: 11_441, basis: Basis::Measured, source: "https://github.com/shllln/GenerativeGraph/issues/5", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(384), bandwidth_gbs: Some(240.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(13), cuda_cores: Some(2496), fp32_tflops: Some(4.11), tensor_fp16_tflops: None, has_multicast: false, notes: "ecc on; 24 GB board = 2 x 12; dropped by CUDA 12", };
/// Tesla P40: 24,446 MiB usable (measured). Cargo feature `p40`.
pub const P40: Card = Card { slug: "p40", constant: "P40", short_name: "P40", name: "Tesla P40",
    architecture: Architecture::Pascal, compute_capability: (6, 1), spec_mib: 24_576, usable_mib: 24_446, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR5", bus_bits: Some(384), bandwidth_gbs: Some(346.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: Some(11.76), tensor_fp16_tflops: None, has_multicast: false, notes: "ecc off figure; with ecc on (GDDR5 inline) it is ~1.5 GiB less, no evidence read here; no fp16 throughput", };
/// Tesla P100-PCIE-16GB: 16,269 MiB usable (measured). Cargo feature `p100-16gb`.
pub const P100_16GB: Card = Card { slug: "p100-16gb", constant: "P100_16GB", short_name: "P100-16GB", name: "Tesla P100-PCIE-16GB",
    architecture: Architecture::Pascal, compute_capability: (6, 0), spec_mib: 16_384, usable_mib: 16_269, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(4096), bandwidth_gbs: Some(732.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(56), cuda_cores: Some(3584), fp32_tflops: Some(9.34), tensor_fp16_tflops: None, has_multicast: false, notes: "no tensor cores, fp16 vector 18.7; ecc is free on HBM2", };
/// Tesla V100 16GB (SXM2): 16,130 MiB usable (measured). Cargo feature `v100-16gb`.
pub const V100_16GB: Card = Card { slug: "v100-16gb", constant: "V100_16GB", short_name: "V100-16GB", name: "Tesla V100 16GB (SXM2)",
    architecture: Architecture::Volta, compute_capability: (7, 0), spec_mib: 16_384, usable_mib: 16_130, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(4096), bandwidth_gbs: Some(900.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(80), cuda_cores: Some(5120), fp32_tflops: Some(15.7), tensor_fp16_tflops: Some(125.0), has_multicast: false, notes: "PCIe: 14.0 / 112; range 16130-16161; Windows TCC/WDDM 16383", };
/// Tesla V100 32GB (SXM2): 32,494 MiB usable (measured). Cargo feature `v100-32gb`.
pub const V100_32GB: Card = Card { slug: "v100-32gb", constant: "V100_32GB", short_name: "V100-32GB", name: "Tesla V100 32GB (SXM2)",
    architecture: Architecture::Volta, compute_capability: (7, 0), spec_mib: 32_768, usable_mib: 32_494, basis: Basis::Measured, source: "https://github.com/hiyouga/LlamaFactory/issues/182", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(4096), bandwidth_gbs: Some(900.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(80), cuda_cores: Some(5120), fp32_tflops: Some(15.7), tensor_fp16_tflops: Some(125.0), has_multicast: false, notes: "PCIe: 14.0 / 112; range 32494-32512", };
/// NVIDIA TITAN V: 12,064 MiB usable (measured). Cargo feature `titan-v`.
pub const TITAN_V: Card = Card { slug: "titan-v", constant: "TITAN_V", short_name: "TITAN V", name: "NVIDIA TITAN V",
    architecture: Architecture::Volta, compute_capability: (7, 0), spec_mib: 12_288, usable_mib: 12_064, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(3072), bandwidth_gbs: Some(652.8), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(80), cuda_cores: Some(5120), fp32_tflops: Some(14.9), tensor_fp16_tflops: Some(110.0), has_multicast: false, notes: "tensor as NVIDIA states (W gives 110.6-134.1)", };
/// Tesla T4: 14,912 MiB usable (measured). Cargo feature `t4`.
pub const T4: Card = Card { slug: "t4", constant: "T4", short_name: "T4", name: "Tesla T4",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 16_384, usable_mib: 14_912, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(320.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(40), cuda_cores: Some(2560), fp32_tflops: Some(8.1), tensor_fp16_tflops: Some(65.0), has_multicast: false, notes: "ecc on (default; inline ECC takes ~1 GiB of 16); range read 14912-14972; ECC off on Windows 15.83 GiB 70 W part, sustained speed far lower", };
/// NVIDIA A2: 14,909 MiB usable (estimated). Cargo feature `a2`.
pub const A2: Card = Card { slug: "a2", constant: "A2", short_name: "A2", name: "NVIDIA A2",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 16_384, usable_mib: 14_909, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(128), bandwidth_gbs: Some(200.0), host_link: "PCIe 4.0 x8", host_gbs: 12.5, multiprocessors: Some(10), cuda_cores: Some(1280), fp32_tflops: Some(4.53), tensor_fp16_tflops: Some(18.1), has_multicast: false, notes: "ecc on; F lists 15 GB visible; no CUDA figure read", };
/// NVIDIA A10: 22,516 MiB usable (measured). Cargo feature `a10`.
pub const A10: Card = Card { slug: "a10", constant: "A10", short_name: "A10", name: "NVIDIA A10",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 24_576, usable_mib: 22_516, basis: Basis::Measured, source: "https://github.com/zai-org/CogVLM/issues/236", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(600.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(72), cuda_cores: Some(9216), fp32_tflops: Some(31.24), tensor_fp16_tflops: Some(125.0), has_multicast: false, notes: "ecc on (default); range 22516-22731", };
/// NVIDIA A10G (AWS g5): 22,587 MiB usable (measured). Cargo feature `a10g`.
pub const A10G: Card = Card { slug: "a10g", constant: "A10G", short_name: "A10G", name: "NVIDIA A10G (AWS g5)",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 24_576, usable_mib: 22_587, basis: Basis::Measured, source: "https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/1259", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(600.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(80), cuda_cores: Some(10_240), fp32_tflops: Some(35.0), tensor_fp16_tflops: Some(70.0), has_multicast: false, notes: "SM count from torch; cores = 80 x 128; fp32/tensor ecc on (default)", };
/// NVIDIA A30: 24,089 MiB usable (measured). Cargo feature `a30`.
pub const A30: Card = Card { slug: "a30", constant: "A30", short_name: "A30", name: "NVIDIA A30",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 24_576, usable_mib: 24_089, basis: Basis::Measured, source: "https://github.com/google/RB-Modulation/issues/5", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(3072), bandwidth_gbs: Some(933.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(56), cuda_cores: Some(3584), fp32_tflops: Some(10.32), tensor_fp16_tflops: Some(165.0), has_multicast: false, notes: "ecc on costs nothing on HBM2", };
/// NVIDIA A40: 45,403 MiB usable (measured). Cargo feature `a40`.
pub const A40: Card = Card { slug: "a40", constant: "A40", short_name: "A40", name: "NVIDIA A40",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 49_152, usable_mib: 45_403, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(696.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(84), cuda_cores: Some(10_752), fp32_tflops: Some(37.42), tensor_fp16_tflops: Some(149.7), has_multicast: false, notes: "ecc on; ecc off 48688", };
/// NVIDIA A100-SXM4-40GB: 40,339 MiB usable (measured). Cargo feature `a100-40gb`.
pub const A100_40GB: Card = Card { slug: "a100-40gb", constant: "A100_40GB", short_name: "A100-40GB", name: "NVIDIA A100-SXM4-40GB",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 40_960, usable_mib: 40_339, basis: Basis::Measured, source: "https://github.com/bottlerocket-os/bottlerocket/pull/3873", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: Some(5120), bandwidth_gbs: Some(1555.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(108), cuda_cores: Some(6912), fp32_tflops: Some(19.5), tensor_fp16_tflops: Some(312.0), has_multicast: false, notes: "range 40339-40514; PCIe 40377; MIG slices are smaller", };
/// NVIDIA A100-SXM4-80GB: 81,038 MiB usable (measured). Cargo feature `a100-80gb`.
pub const A100_80GB: Card = Card { slug: "a100-80gb", constant: "A100_80GB", short_name: "A100-80GB", name: "NVIDIA A100-SXM4-80GB",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 81_920, usable_mib: 81_038, basis: Basis::Measured, source: "https://github.com/HiDream-ai/VAREdit/issues/6", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: Some(5120), bandwidth_gbs: Some(2039.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(108), cuda_cores: Some(6912), fp32_tflops: Some(19.5), tensor_fp16_tflops: Some(312.0), has_multicast: false, notes: "range 81038-81251", };
/// NVIDIA A100 80GB PCIe: 81,154 MiB usable (measured). Cargo feature `a100-pcie-80gb`.
pub const A100_PCIE_80GB: Card = Card { slug: "a100-pcie-80gb", constant: "A100_PCIE_80GB", short_name: "A100-PCIe-80GB", name: "NVIDIA A100 80GB PCIe",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 81_920, usable_mib: 81_154, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: Some(5120), bandwidth_gbs: Some(1935.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(108), cuda_cores: Some(6912), fp32_tflops: Some(19.5), tensor_fp16_tflops: Some(312.0), has_multicast: false, notes: "", };
/// NVIDIA A100 40GB MIG 1g.5gb: 4,864 MiB usable (measured). Cargo feature `a100-40gb-mig-1g-5gb`.
pub const A100_40GB_MIG_1G_5GB: Card = Card { slug: "a100-40gb-mig-1g-5gb", constant: "A100_40GB_MIG_1G_5GB", short_name: "A100-40GB MIG 1g.5gb", name: "NVIDIA A100 40GB MIG 1g.5gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 5120, usable_mib: 4864, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: Some(194.4), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(14), cuda_cores: Some(896), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; cudaMemGetInfo shows the same (4.75 GiB of 1g.5gb)", };
/// NVIDIA A100 40GB MIG 1g.10gb: 9,856 MiB usable (measured). Cargo feature `a100-40gb-mig-1g-10gb`.
pub const A100_40GB_MIG_1G_10GB: Card = Card { slug: "a100-40gb-mig-1g-10gb", constant: "A100_40GB_MIG_1G_10GB", short_name: "A100-40GB MIG 1g.10gb", name: "NVIDIA A100 40GB MIG 1g.10gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 10_240, usable_mib: 9856, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: None, host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(14), cuda_cores: Some(896), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 40GB MIG 2g.10gb: 9,856 MiB usable (measured). Cargo feature `a100-40gb-mig-2g-10gb`.
pub const A100_40GB_MIG_2G_10GB: Card = Card { slug: "a100-40gb-mig-2g-10gb", constant: "A100_40GB_MIG_2G_10GB", short_name: "A100-40GB MIG 2g.10gb", name: "NVIDIA A100 40GB MIG 2g.10gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 10_240, usable_mib: 9856, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: Some(388.8), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(28), cuda_cores: Some(1792), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 40GB MIG 3g.20gb: 19,968 MiB usable (measured). Cargo feature `a100-40gb-mig-3g-20gb`.
pub const A100_40GB_MIG_3G_20GB: Card = Card { slug: "a100-40gb-mig-3g-20gb", constant: "A100_40GB_MIG_3G_20GB", short_name: "A100-40GB MIG 3g.20gb", name: "NVIDIA A100 40GB MIG 3g.20gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: Some(777.5), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(42), cuda_cores: Some(2688), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 40GB MIG 4g.20gb: 19,968 MiB usable (measured). Cargo feature `a100-40gb-mig-4g-20gb`.
pub const A100_40GB_MIG_4G_20GB: Card = Card { slug: "a100-40gb-mig-4g-20gb", constant: "A100_40GB_MIG_4G_20GB", short_name: "A100-40GB MIG 4g.20gb", name: "NVIDIA A100 40GB MIG 4g.20gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: Some(777.5), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(56), cuda_cores: Some(3584), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 40GB MIG 7g.40gb: 40,192 MiB usable (measured). Cargo feature `a100-40gb-mig-7g-40gb`.
pub const A100_40GB_MIG_7G_40GB: Card = Card { slug: "a100-40gb-mig-7g-40gb", constant: "A100_40GB_MIG_7G_40GB", short_name: "A100-40GB MIG 7g.40gb", name: "NVIDIA A100 40GB MIG 7g.40gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 40_960, usable_mib: 40_192, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2", bus_bits: None, bandwidth_gbs: Some(1555.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(98), cuda_cores: Some(6272), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 80GB MIG 1g.10gb: 9,728 MiB usable (measured). Cargo feature `a100-80gb-mig-1g-10gb`.
pub const A100_80GB_MIG_1G_10GB: Card = Card { slug: "a100-80gb-mig-1g-10gb", constant: "A100_80GB_MIG_1G_10GB", short_name: "A100-80GB MIG 1g.10gb", name: "NVIDIA A100 80GB MIG 1g.10gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 10_240, usable_mib: 9728, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(254.9), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(14), cuda_cores: Some(896), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; bandwidth of the SXM form", };
/// NVIDIA A100 80GB MIG 1g.20gb: 19,968 MiB usable (measured). Cargo feature `a100-80gb-mig-1g-20gb`.
pub const A100_80GB_MIG_1G_20GB: Card = Card { slug: "a100-80gb-mig-1g-20gb", constant: "A100_80GB_MIG_1G_20GB", short_name: "A100-80GB MIG 1g.20gb", name: "NVIDIA A100 80GB MIG 1g.20gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: None, host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(14), cuda_cores: Some(896), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA A100 80GB MIG 2g.20gb: 19,968 MiB usable (measured). Cargo feature `a100-80gb-mig-2g-20gb`.
pub const A100_80GB_MIG_2G_20GB: Card = Card { slug: "a100-80gb-mig-2g-20gb", constant: "A100_80GB_MIG_2G_20GB", short_name: "A100-80GB MIG 2g.20gb", name: "NVIDIA A100 80GB MIG 2g.20gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(509.8), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(28), cuda_cores: Some(1792), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; bandwidth of the SXM form", };
/// NVIDIA A100 80GB MIG 3g.40gb: 40,192 MiB usable (measured). Cargo feature `a100-80gb-mig-3g-40gb`.
pub const A100_80GB_MIG_3G_40GB: Card = Card { slug: "a100-80gb-mig-3g-40gb", constant: "A100_80GB_MIG_3G_40GB", short_name: "A100-80GB MIG 3g.40gb", name: "NVIDIA A100 80GB MIG 3g.40gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 40_960, usable_mib: 40_192, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(1019.5), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(42), cuda_cores: Some(2688), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; bandwidth of the SXM form", };
/// NVIDIA A100 80GB MIG 4g.40gb: 40,192 MiB usable (measured). Cargo feature `a100-80gb-mig-4g-40gb`.
pub const A100_80GB_MIG_4G_40GB: Card = Card { slug: "a100-80gb-mig-4g-40gb", constant: "A100_80GB_MIG_4G_40GB", short_name: "A100-80GB MIG 4g.40gb", name: "NVIDIA A100 80GB MIG 4g.40gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 40_960, usable_mib: 40_192, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(1019.5), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(56), cuda_cores: Some(3584), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; bandwidth of the SXM form", };
/// NVIDIA A100 80GB MIG 7g.80gb: 80,640 MiB usable (measured). Cargo feature `a100-80gb-mig-7g-80gb`.
pub const A100_80GB_MIG_7G_80GB: Card = Card { slug: "a100-80gb-mig-7g-80gb", constant: "A100_80GB_MIG_7G_80GB", short_name: "A100-80GB MIG 7g.80gb", name: "NVIDIA A100 80GB MIG 7g.80gb",
    architecture: Architecture::Ampere, compute_capability: (8, 0), spec_mib: 81_920, usable_mib: 80_640, basis: Basis::Measured, source: "smallest figure of nvidia-smi mig -lgip in public logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(2039.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(98), cuda_cores: Some(6272), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; bandwidth of the SXM form", };
/// NVIDIA L4: 22,563 MiB usable (measured). Cargo feature `l4`.
pub const L4: Card = Card { slug: "l4", constant: "L4", short_name: "L4", name: "NVIDIA L4",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 24_576, usable_mib: 22_563, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(300.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(58), cuda_cores: Some(7424), fp32_tflops: Some(30.3), tensor_fp16_tflops: Some(121.0), has_multicast: false, notes: "cores D; ecc on (default); 72 W part", };
/// NVIDIA L40: 45,414 MiB usable (measured). Cargo feature `l40`.
pub const L40: Card = Card { slug: "l40", constant: "L40", short_name: "L40", name: "NVIDIA L40",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 49_152, usable_mib: 45_414, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(864.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(142), cuda_cores: Some(18_176), fp32_tflops: Some(90.52), tensor_fp16_tflops: Some(181.0), has_multicast: false, notes: "tensor D (W lists the sparse 362); ecc on; weak figure, L40S/L20 are alike: 45373-45467", };
/// NVIDIA L40S: 45,373 MiB usable (measured). Cargo feature `l40s`.
pub const L40S: Card = Card { slug: "l40s", constant: "L40S", short_name: "L40S", name: "NVIDIA L40S",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 49_152, usable_mib: 45_373, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(864.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(142), cuda_cores: Some(18_176), fp32_tflops: Some(91.6), tensor_fp16_tflops: Some(362.0), has_multicast: false, notes: "ecc on (default)", };
/// NVIDIA L20: 45,457 MiB usable (measured). Cargo feature `l20`.
pub const L20: Card = Card { slug: "l20", constant: "L20", short_name: "L20", name: "NVIDIA L20",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 49_152, usable_mib: 45_457, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(864.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(92), cuda_cores: Some(11_776), fp32_tflops: Some(59.35), tensor_fp16_tflops: Some(119.5), has_multicast: false, notes: "ecc on", };
/// NVIDIA H100 80GB HBM3 (SXM5): 81,079 MiB usable (measured). Cargo feature `h100-sxm`.
pub const H100_SXM: Card = Card { slug: "h100-sxm", constant: "H100_SXM", short_name: "H100-SXM", name: "NVIDIA H100 80GB HBM3 (SXM5)",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 81_920, usable_mib: 81_079, basis: Basis::Measured, source: "gpumem::calibrate; driver 580.159.04; CUDA 13.0; NVRTC 13.0; cuBLASLt 13.1; cuDNN 9.14", host_mib: 0, host_source: "",
    memory: "HBM3", bus_bits: Some(5120), bandwidth_gbs: Some(3352.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(132), cuda_cores: Some(16_896), fp32_tflops: Some(66.9), tensor_fp16_tflops: Some(989.4), has_multicast: true, notes: "range 81079-81106 in public Linux logs; nvidia-smi total 81559; bytes: context 266338304; given back by limits 276824064; probe: handles 10485760, trials 2097152, modules 2097152, graphs 0; most beside arena and context 25165824", };
/// NVIDIA H100 PCIe 80GB: 81,008 MiB usable (measured). Cargo feature `h100-pcie`.
pub const H100_PCIE: Card = Card { slug: "h100-pcie", constant: "H100_PCIE", short_name: "H100-PCIe", name: "NVIDIA H100 PCIe 80GB",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 81_920, usable_mib: 81_008, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: Some(5120), bandwidth_gbs: Some(2039.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(114), cuda_cores: Some(14_592), fp32_tflops: Some(51.2), tensor_fp16_tflops: Some(756.4), has_multicast: false, notes: "", };
/// NVIDIA H100 NVL 94GB: 95,320 MiB usable (measured). Cargo feature `h100-nvl`.
pub const H100_NVL: Card = Card { slug: "h100-nvl", constant: "H100_NVL", short_name: "H100-NVL", name: "NVIDIA H100 NVL 94GB",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 96_256, usable_mib: 95_320, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM3", bus_bits: None, bandwidth_gbs: Some(3938.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(132), cuda_cores: Some(16_896), fp32_tflops: Some(60.32), tensor_fp16_tflops: Some(835.5), has_multicast: false, notes: "tensor D", };
/// NVIDIA H100 80GB MIG 1g.10gb: 9,856 MiB usable (measured). Cargo feature `h100-80gb-mig-1g-10gb`.
pub const H100_80GB_MIG_1G_10GB: Card = Card { slug: "h100-80gb-mig-1g-10gb", constant: "H100_80GB_MIG_1G_10GB", short_name: "H100-80GB MIG 1g.10gb", name: "NVIDIA H100 80GB MIG 1g.10gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 10_240, usable_mib: 9856, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(254.9), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(14), cuda_cores: Some(1792), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H100 80GB MIG 1g.20gb: 19,968 MiB usable (measured). Cargo feature `h100-80gb-mig-1g-20gb`.
pub const H100_80GB_MIG_1G_20GB: Card = Card { slug: "h100-80gb-mig-1g-20gb", constant: "H100_80GB_MIG_1G_20GB", short_name: "H100-80GB MIG 1g.20gb", name: "NVIDIA H100 80GB MIG 1g.20gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: None, host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(14), cuda_cores: Some(1792), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H100 80GB MIG 2g.20gb: 19,968 MiB usable (measured). Cargo feature `h100-80gb-mig-2g-20gb`.
pub const H100_80GB_MIG_2G_20GB: Card = Card { slug: "h100-80gb-mig-2g-20gb", constant: "H100_80GB_MIG_2G_20GB", short_name: "H100-80GB MIG 2g.20gb", name: "NVIDIA H100 80GB MIG 2g.20gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 20_480, usable_mib: 19_968, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(509.8), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H100 80GB MIG 3g.40gb: 40,192 MiB usable (measured). Cargo feature `h100-80gb-mig-3g-40gb`.
pub const H100_80GB_MIG_3G_40GB: Card = Card { slug: "h100-80gb-mig-3g-40gb", constant: "H100_80GB_MIG_3G_40GB", short_name: "H100-80GB MIG 3g.40gb", name: "NVIDIA H100 80GB MIG 3g.40gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 40_960, usable_mib: 40_192, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(1019.5), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(46), cuda_cores: Some(5888), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H100 80GB MIG 4g.40gb: 40,192 MiB usable (measured). Cargo feature `h100-80gb-mig-4g-40gb`.
pub const H100_80GB_MIG_4G_40GB: Card = Card { slug: "h100-80gb-mig-4g-40gb", constant: "H100_80GB_MIG_4G_40GB", short_name: "H100-80GB MIG 4g.40gb", name: "NVIDIA H100 80GB MIG 4g.40gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 40_960, usable_mib: 40_192, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(1019.5), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(62), cuda_cores: Some(7936), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H100 80GB MIG 7g.80gb: 80,896 MiB usable (measured). Cargo feature `h100-80gb-mig-7g-80gb`.
pub const H100_80GB_MIG_7G_80GB: Card = Card { slug: "h100-80gb-mig-7g-80gb", constant: "H100_80GB_MIG_7G_80GB", short_name: "H100-80GB MIG 7g.80gb", name: "NVIDIA H100 80GB MIG 7g.80gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 81_920, usable_mib: 80_896, basis: Basis::Measured, source: "https://www.scaleway.com/en/docs/compute/gpu/how-to/use-nvidia-mig-technology/", host_mib: 0, host_source: "",
    memory: "HBM2e", bus_bits: None, bandwidth_gbs: Some(2039.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(114), cuda_cores: Some(14_592), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; figures of the PCIe form; the SXM form has more: 9.75 / 19.62 / 39.50 / 79.25 GiB and 16 / 26 / 32 / 60 / 64 / 132 multiprocessors", };
/// NVIDIA H20 96GB: 97,285 MiB usable (measured). Cargo feature `h20`.
pub const H20: Card = Card { slug: "h20", constant: "H20", short_name: "H20", name: "NVIDIA H20 96GB",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 98_304, usable_mib: 97_285, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM3", bus_bits: Some(6144), bandwidth_gbs: Some(4000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(78), cuda_cores: Some(9984), fp32_tflops: Some(44.0), tensor_fp16_tflops: Some(148.0), has_multicast: true, notes: "", };
/// NVIDIA GH200 (96GB HBM3): 96,768 MiB usable (measured). Cargo feature `gh200-96gb`.
pub const GH200_96GB: Card = Card { slug: "gh200-96gb", constant: "GH200_96GB", short_name: "GH200-96GB", name: "NVIDIA GH200 (96GB HBM3)",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 98_304, usable_mib: 96_768, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM3", bus_bits: Some(6144), bandwidth_gbs: Some(4000.0), host_link: "NVLink-C2C", host_gbs: 357.14, multiprocessors: Some(132), cuda_cores: Some(16_896), fp32_tflops: Some(66.9), tensor_fp16_tflops: Some(989.4), has_multicast: false, notes: "the GB in the device name is LPDDR, not HBM", };
/// NVIDIA H200 (SXM5): 143,156 MiB usable (measured). Cargo feature `h200`.
pub const H200: Card = Card { slug: "h200", constant: "H200", short_name: "H200", name: "NVIDIA H200 (SXM5)",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 144_384, usable_mib: 143_156, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: Some(6144), bandwidth_gbs: Some(4800.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(132), cuda_cores: Some(16_896), fp32_tflops: Some(66.9), tensor_fp16_tflops: Some(989.4), has_multicast: true, notes: "nvidia-smi total 143771; 141 is GB by marketing", };
/// NVIDIA H200 MIG 1g.18gb: 16,384 MiB usable (measured). Cargo feature `h200-mig-1g-18gb`.
pub const H200_MIG_1G_18GB: Card = Card { slug: "h200-mig-1g-18gb", constant: "H200_MIG_1G_18GB", short_name: "H200 MIG 1g.18gb", name: "NVIDIA H200 MIG 1g.18gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 18_432, usable_mib: 16_384, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(600.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(16), cuda_cores: Some(2048), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; torch shows the same (16.0 GiB of 1g.18gb)", };
/// NVIDIA H200 MIG 1g.35gb: 33,024 MiB usable (measured). Cargo feature `h200-mig-1g-35gb`.
pub const H200_MIG_1G_35GB: Card = Card { slug: "h200-mig-1g-35gb", constant: "H200_MIG_1G_35GB", short_name: "H200 MIG 1g.35gb", name: "NVIDIA H200 MIG 1g.35gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 35_840, usable_mib: 33_024, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: None, host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(26), cuda_cores: Some(3328), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA H200 MIG 2g.35gb: 33,024 MiB usable (measured). Cargo feature `h200-mig-2g-35gb`.
pub const H200_MIG_2G_35GB: Card = Card { slug: "h200-mig-2g-35gb", constant: "H200_MIG_2G_35GB", short_name: "H200 MIG 2g.35gb", name: "NVIDIA H200 MIG 2g.35gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 35_840, usable_mib: 33_024, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(1200.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(32), cuda_cores: Some(4096), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA H200 MIG 3g.71gb: 71,168 MiB usable (measured). Cargo feature `h200-mig-3g-71gb`.
pub const H200_MIG_3G_71GB: Card = Card { slug: "h200-mig-3g-71gb", constant: "H200_MIG_3G_71GB", short_name: "H200 MIG 3g.71gb", name: "NVIDIA H200 MIG 3g.71gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 72_704, usable_mib: 71_168, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(2400.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(60), cuda_cores: Some(7680), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA H200 MIG 4g.71gb: 71,168 MiB usable (measured). Cargo feature `h200-mig-4g-71gb`.
pub const H200_MIG_4G_71GB: Card = Card { slug: "h200-mig-4g-71gb", constant: "H200_MIG_4G_71GB", short_name: "H200 MIG 4g.71gb", name: "NVIDIA H200 MIG 4g.71gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 72_704, usable_mib: 71_168, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(2400.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(64), cuda_cores: Some(8192), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA H200 MIG 7g.141gb: 143,104 MiB usable (measured). Cargo feature `h200-mig-7g-141gb`.
pub const H200_MIG_7G_141GB: Card = Card { slug: "h200-mig-7g-141gb", constant: "H200_MIG_7G_141GB", short_name: "H200 MIG 7g.141gb", name: "NVIDIA H200 MIG 7g.141gb",
    architecture: Architecture::Hopper, compute_capability: (9, 0), spec_mib: 144_384, usable_mib: 143_104, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/issues/120", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(4800.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(132), cuda_cores: Some(16_896), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA B200: 182,631 MiB usable (measured). Cargo feature `b200`.
pub const B200: Card = Card { slug: "b200", constant: "B200", short_name: "B200", name: "NVIDIA B200",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 184_320, usable_mib: 182_631, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: Some(8192), bandwidth_gbs: Some(8000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(148), cuda_cores: Some(18_944), fp32_tflops: Some(74.45), tensor_fp16_tflops: Some(2250.0), has_multicast: true, notes: "tensor D (HGX 4500 sparse); sold as 180 or 192 GB", };
/// NVIDIA B200 MIG 1g.23gb: 20,992 MiB usable (measured). Cargo feature `b200-mig-1g-23gb`.
pub const B200_MIG_1G_23GB: Card = Card { slug: "b200-mig-1g-23gb", constant: "B200_MIG_1G_23GB", short_name: "B200 MIG 1g.23gb", name: "NVIDIA B200 MIG 1g.23gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 23_552, usable_mib: 20_992, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/pull/187", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(1000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(18), cuda_cores: Some(2304), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; 1g.23gb is 22.00 GiB on an earlier driver", };
/// NVIDIA B200 MIG 1g.45gb: 45,312 MiB usable (measured). Cargo feature `b200-mig-1g-45gb`.
pub const B200_MIG_1G_45GB: Card = Card { slug: "b200-mig-1g-45gb", constant: "B200_MIG_1G_45GB", short_name: "B200 MIG 1g.45gb", name: "NVIDIA B200 MIG 1g.45gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 46_080, usable_mib: 45_312, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/pull/187", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: None, host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(30), cuda_cores: Some(3840), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA B200 MIG 2g.45gb: 45,312 MiB usable (measured). Cargo feature `b200-mig-2g-45gb`.
pub const B200_MIG_2G_45GB: Card = Card { slug: "b200-mig-2g-45gb", constant: "B200_MIG_2G_45GB", short_name: "B200 MIG 2g.45gb", name: "NVIDIA B200 MIG 2g.45gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 46_080, usable_mib: 45_312, basis: Basis::Measured, source: "https://github.com/NVIDIA/mig-parted/pull/187", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(2000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(36), cuda_cores: Some(4608), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA B200 MIG 3g.90gb: 90,624 MiB usable (estimated). Cargo feature `b200-mig-3g-90gb`.
pub const B200_MIG_3G_90GB: Card = Card { slug: "b200-mig-3g-90gb", constant: "B200_MIG_3G_90GB", short_name: "B200 MIG 3g.90gb", name: "NVIDIA B200 MIG 3g.90gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 92_160, usable_mib: 90_624, basis: Basis::Estimated, source: "estimated: twice the memory of 2g.45gb", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(4000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: None, cuda_cores: None, fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA B200 MIG 4g.90gb: 90,624 MiB usable (estimated). Cargo feature `b200-mig-4g-90gb`.
pub const B200_MIG_4G_90GB: Card = Card { slug: "b200-mig-4g-90gb", constant: "B200_MIG_4G_90GB", short_name: "B200 MIG 4g.90gb", name: "NVIDIA B200 MIG 4g.90gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 92_160, usable_mib: 90_624, basis: Basis::Estimated, source: "estimated: twice the memory of 2g.45gb", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(4000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: None, cuda_cores: None, fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA B200 MIG 7g.180gb: 181,248 MiB usable (estimated). Cargo feature `b200-mig-7g-180gb`.
pub const B200_MIG_7G_180GB: Card = Card { slug: "b200-mig-7g-180gb", constant: "B200_MIG_7G_180GB", short_name: "B200 MIG 7g.180gb", name: "NVIDIA B200 MIG 7g.180gb",
    architecture: Architecture::Blackwell, compute_capability: (10, 0), spec_mib: 184_320, usable_mib: 181_248, basis: Basis::Estimated, source: "estimated: four times the memory of 2g.45gb", host_mib: 0, host_source: "",
    memory: "HBM3e", bus_bits: None, bandwidth_gbs: Some(8000.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: None, cuda_cores: None, fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "MIG slice; profile: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", };
/// NVIDIA GB10 (DGX Spark): 122,502 MiB seen (measured), 11,776 MiB of it left to the host. Cargo feature `gb10-dgx-spark`.
pub const GB10_DGX_SPARK: Card = Card { slug: "gb10-dgx-spark", constant: "GB10_DGX_SPARK", short_name: "GB10 DGX Spark", name: "NVIDIA GB10 (DGX Spark)",
    architecture: Architecture::Blackwell, compute_capability: (12, 1), spec_mib: 131_072, usable_mib: 122_502, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 11_776, host_source: "110.34 of 121.69 GiB are available with a desktop: https://github.com/MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks/issues/47",
    memory: "LPDDR5X", bus_bits: Some(256), bandwidth_gbs: Some(273.0), host_link: "shared memory", host_gbs: 136.5, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(29.71), tensor_fp16_tflops: None, has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; one pair of boards shows 102 of 121.69 GiB free, unexplained", };
/// Quadro RTX 5000: 15,927 MiB usable (measured). Cargo feature `quadro-rtx5000`.
pub const QUADRO_RTX_5000: Card = Card { slug: "quadro-rtx5000", constant: "QUADRO_RTX_5000", short_name: "Quadro RTX 5000", name: "Quadro RTX 5000",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 16_384, usable_mib: 15_927, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(48), cuda_cores: Some(3072), fp32_tflops: Some(11.15), tensor_fp16_tflops: Some(89.2), has_multicast: false, notes: "tensor D (full-rate FP32 accumulate)", };
/// Quadro RTX 6000: 24,084 MiB usable (estimated). Cargo feature `quadro-rtx6000`.
pub const QUADRO_RTX_6000: Card = Card { slug: "quadro-rtx6000", constant: "QUADRO_RTX_6000", short_name: "Quadro RTX 6000", name: "Quadro RTX 6000",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 24_576, usable_mib: 24_084, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(672.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(72), cuda_cores: Some(4608), fp32_tflops: Some(16.31), tensor_fp16_tflops: Some(130.5), has_multicast: false, notes: "no CUDA figure read", };
/// Quadro RTX 8000: 48,380 MiB usable (measured). Cargo feature `quadro-rtx8000`.
pub const QUADRO_RTX_8000: Card = Card { slug: "quadro-rtx8000", constant: "QUADRO_RTX_8000", short_name: "Quadro RTX 8000", name: "Quadro RTX 8000",
    architecture: Architecture::Turing, compute_capability: (7, 5), spec_mib: 49_152, usable_mib: 48_380, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(672.0), host_link: "PCIe 3.0 x16", host_gbs: 12.5, multiprocessors: Some(72), cuda_cores: Some(4608), fp32_tflops: Some(16.31), tensor_fp16_tflops: Some(130.5), has_multicast: false, notes: "ecc off figures", };
/// RTX A2000 12GB: 11,900 MiB usable (estimated). Cargo feature `rtx-a2000-12gb`.
pub const RTX_A2000_12GB: Card = Card { slug: "rtx-a2000-12gb", constant: "RTX_A2000_12GB", short_name: "RTX A2000 12GB", name: "RTX A2000 12GB",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 12_288, usable_mib: 11_900, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(192), bandwidth_gbs: Some(288.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(26), cuda_cores: Some(3328), fp32_tflops: Some(7.99), tensor_fp16_tflops: Some(31.9), has_multicast: false, notes: "2023 driver; by analogy ~11900 with CUDA 12.8+ drivers; ecc off", };
/// RTX A4000: 16,117 MiB usable (measured). Cargo feature `rtx-a4000`.
pub const RTX_A4000: Card = Card { slug: "rtx-a4000", constant: "RTX_A4000", short_name: "RTX A4000", name: "RTX A4000",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 16_384, usable_mib: 16_117, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(19.17), tensor_fp16_tflops: Some(76.7), has_multicast: false, notes: "ecc off, old driver; Ollama on a 12.2 driver prints 15.7 GiB", };
/// RTX A4000 (ECC on): 15,089 MiB usable (measured). Cargo feature `rtx-a4000-ecc`.
pub const RTX_A4000_ECC: Card = Card { slug: "rtx-a4000-ecc", constant: "RTX_A4000_ECC", short_name: "RTX A4000 (ECC on)", name: "RTX A4000 (ECC on)",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 16_384, usable_mib: 15_089, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(256), bandwidth_gbs: Some(448.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(19.17), tensor_fp16_tflops: Some(76.7), has_multicast: false, notes: "ecc variant (Hyperstack cloud); nvidia-smi free, not cudaMemGetInfo", };
/// RTX A5000: 24,114 MiB usable (measured). Cargo feature `rtx-a5000`.
pub const RTX_A5000: Card = Card { slug: "rtx-a5000", constant: "RTX_A5000", short_name: "RTX A5000", name: "RTX A5000",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 24_576, usable_mib: 24_114, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(768.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(64), cuda_cores: Some(8192), fp32_tflops: Some(27.77), tensor_fp16_tflops: Some(111.1), has_multicast: false, notes: "ecc off", };
/// RTX A6000: 48,539 MiB usable (measured). Cargo feature `rtx-a6000`.
pub const RTX_A6000: Card = Card { slug: "rtx-a6000", constant: "RTX_A6000", short_name: "RTX A6000", name: "RTX A6000",
    architecture: Architecture::Ampere, compute_capability: (8, 6), spec_mib: 49_152, usable_mib: 48_539, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(768.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(84), cuda_cores: Some(10_752), fp32_tflops: Some(38.71), tensor_fp16_tflops: Some(154.8), has_multicast: false, notes: "ecc off; with ecc on nvidia-smi total is 46068, so ~45.4k MiB by analogy with rtx6000-ada-ecc (not evidenced here)", };
/// RTX 4000 Ada Generation: 20,070 MiB usable (estimated). Cargo feature `rtx4000-ada`.
pub const RTX_4000_ADA: Card = Card { slug: "rtx4000-ada", constant: "RTX_4000_ADA", short_name: "RTX 4000 Ada", name: "RTX 4000 Ada Generation",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 20_480, usable_mib: 20_070, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(160), bandwidth_gbs: Some(360.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(26.73), tensor_fp16_tflops: Some(106.9), has_multicast: false, notes: "tensor = 4 x fp32; no figure found", };
/// RTX 4000 SFF Ada Generation: 20,070 MiB usable (estimated). Cargo feature `rtx4000-sff-ada`.
pub const RTX_4000_SFF_ADA: Card = Card { slug: "rtx4000-sff-ada", constant: "RTX_4000_SFF_ADA", short_name: "RTX 4000 SFF Ada", name: "RTX 4000 SFF Ada Generation",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 20_480, usable_mib: 20_070, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(160), bandwidth_gbs: Some(280.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(48), cuda_cores: Some(6144), fp32_tflops: Some(19.23), tensor_fp16_tflops: Some(76.7), has_multicast: false, notes: "tensor = sparse FP8 figure / 4", };
/// RTX 6000 Ada Generation: 48,497 MiB usable (measured). Cargo feature `rtx6000-ada`.
pub const RTX_6000_ADA: Card = Card { slug: "rtx6000-ada", constant: "RTX_6000_ADA", short_name: "RTX 6000 Ada", name: "RTX 6000 Ada Generation",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 49_152, usable_mib: 48_497, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(960.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(142), cuda_cores: Some(18_176), fp32_tflops: Some(91.06), tensor_fp16_tflops: Some(364.2), has_multicast: false, notes: "ecc off", };
/// RTX 6000 Ada Generation (ECC on): 45,491 MiB usable (measured). Cargo feature `rtx6000-ada-ecc`.
pub const RTX_6000_ADA_ECC: Card = Card { slug: "rtx6000-ada-ecc", constant: "RTX_6000_ADA_ECC", short_name: "RTX 6000 Ada (ECC on)", name: "RTX 6000 Ada Generation (ECC on)",
    architecture: Architecture::Ada, compute_capability: (8, 9), spec_mib: 49_152, usable_mib: 45_491, basis: Basis::Measured, source: "https://github.com/DINGYANB/MTVCrafter/issues/21", host_mib: 0, host_source: "",
    memory: "GDDR6", bus_bits: Some(384), bandwidth_gbs: Some(960.0), host_link: "PCIe 4.0 x16", host_gbs: 25.0, multiprocessors: Some(142), cuda_cores: Some(18_176), fp32_tflops: Some(91.06), tensor_fp16_tflops: Some(364.2), has_multicast: false, notes: "ecc variant, common in clouds", };
/// RTX PRO 6000 Blackwell Workstation: 97,247 MiB usable (measured). Cargo feature `rtx-pro-6000-blackwell`.
pub const RTX_PRO_6000_BLACKWELL: Card = Card { slug: "rtx-pro-6000-blackwell", constant: "RTX_PRO_6000_BLACKWELL", short_name: "RTX PRO 6000 Blackwell", name: "RTX PRO 6000 Blackwell Workstation",
    architecture: Architecture::Blackwell, compute_capability: (12, 0), spec_mib: 98_304, usable_mib: 97_247, basis: Basis::Measured, source: "https://github.com/antirez/ds4/issues/431", host_mib: 0, host_source: "",
    memory: "GDDR7", bus_bits: Some(512), bandwidth_gbs: Some(1792.0), host_link: "PCIe 5.0 x16", host_gbs: 50.0, multiprocessors: Some(188), cuda_cores: Some(24_064), fp32_tflops: Some(126.0), tensor_fp16_tflops: Some(503.8), has_multicast: false, notes: "tensor D (FP32 accumulate); Max-Q same memory; Windows 97886", };
/// Jetson Orin Nano 4GB: 3,399 MiB seen (estimated), 1,536 MiB of it left to the host. Cargo feature `jetson-orin-nano-4gb`.
pub const JETSON_ORIN_NANO_4GB: Card = Card { slug: "jetson-orin-nano-4gb", constant: "JETSON_ORIN_NANO_4GB", short_name: "Jetson Orin Nano 4GB", name: "Jetson Orin Nano 4GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 4096, usable_mib: 3399, basis: Basis::Estimated, source: "estimated from cards of the same class and current drivers", host_mib: 1536, host_source: "a 4 GB Jetson Nano with a desktop uses 1.5 GB: https://github.com/Qengineering/Jetson-Nano-Ubuntu-20-image/issues/88",
    memory: "LPDDR5", bus_bits: Some(64), bandwidth_gbs: Some(34.0), host_link: "shared memory", host_gbs: 17.0, multiprocessors: Some(4), cuda_cores: Some(512), fp32_tflops: Some(0.64), tensor_fp16_tflops: Some(5.0), has_multicast: false, notes: "no figure found; unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson Orin Nano 8GB: 7,290 MiB seen (measured), 2,048 MiB of it left to the host. Cargo feature `jetson-orin-nano-8gb`.
pub const JETSON_ORIN_NANO_8GB: Card = Card { slug: "jetson-orin-nano-8gb", constant: "JETSON_ORIN_NANO_8GB", short_name: "Jetson Orin Nano 8GB", name: "Jetson Orin Nano 8GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 8192, usable_mib: 7290, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 2048, host_source: "system and runtime use 1.5 to 2 GB of 8: https://edgeaistack.app/engines/memory-estimator",
    memory: "LPDDR5", bus_bits: Some(128), bandwidth_gbs: Some(68.0), host_link: "shared memory", host_gbs: 34.0, multiprocessors: Some(8), cuda_cores: Some(1024), fp32_tflops: Some(1.28), tensor_fp16_tflops: Some(10.0), has_multicast: false, notes: "figures are for 8 GB Orin modules, log does not tell Nano from NX; unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson Orin NX 8GB: 7,290 MiB seen (measured), 2,048 MiB of it left to the host. Cargo feature `jetson-orin-nx-8gb`.
pub const JETSON_ORIN_NX_8GB: Card = Card { slug: "jetson-orin-nx-8gb", constant: "JETSON_ORIN_NX_8GB", short_name: "Jetson Orin NX 8GB", name: "Jetson Orin NX 8GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 8192, usable_mib: 7290, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 2048, host_source: "estimated: as for Jetson Orin Nano 8GB",
    memory: "LPDDR5", bus_bits: Some(128), bandwidth_gbs: Some(102.4), host_link: "shared memory", host_gbs: 51.2, multiprocessors: Some(8), cuda_cores: Some(1024), fp32_tflops: Some(1.57), tensor_fp16_tflops: Some(12.5), has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson Orin NX 16GB: 15,388 MiB seen (measured), 2,560 MiB of it left to the host. Cargo feature `jetson-orin-nx-16gb`.
pub const JETSON_ORIN_NX_16GB: Card = Card { slug: "jetson-orin-nx-16gb", constant: "JETSON_ORIN_NX_16GB", short_name: "Jetson Orin NX 16GB", name: "Jetson Orin NX 16GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 16_384, usable_mib: 15_388, basis: Basis::Measured, source: "https://github.com/OE4T/meta-tegra/pull/2243", host_mib: 2560, host_source: "idle boards in public tegrastats logs use 1224 to 2534 MB, 3386 MB where swap is in use, Nov 2026",
    memory: "LPDDR5", bus_bits: Some(128), bandwidth_gbs: Some(102.4), host_link: "shared memory", host_gbs: 51.2, multiprocessors: Some(8), cuda_cores: Some(1024), fp32_tflops: Some(1.88), tensor_fp16_tflops: Some(15.0), has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson AGX Orin 32GB: 30,697 MiB seen (measured), 4,096 MiB of it left to the host. Cargo feature `jetson-agx-orin-32gb`.
pub const JETSON_AGX_ORIN_32GB: Card = Card { slug: "jetson-agx-orin-32gb", constant: "JETSON_AGX_ORIN_32GB", short_name: "Jetson AGX Orin 32GB", name: "Jetson AGX Orin 32GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 32_768, usable_mib: 30_697, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 4096, host_source: "estimated between the shares of 16 and 64 GB; an idle board without a desktop uses 1313 MB in a public tegrastats log",
    memory: "LPDDR5", bus_bits: Some(256), bandwidth_gbs: Some(204.8), host_link: "shared memory", host_gbs: 102.4, multiprocessors: Some(14), cuda_cores: Some(1792), fp32_tflops: Some(3.33), tensor_fp16_tflops: Some(27.0), has_multicast: false, notes: "tensor = sparse INT8 TOPS (108) / 4; unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson AGX Orin 64GB: 62,827 MiB seen (measured), 6,656 MiB of it left to the host. Cargo feature `jetson-agx-orin-64gb`.
pub const JETSON_AGX_ORIN_64GB: Card = Card { slug: "jetson-agx-orin-64gb", constant: "JETSON_AGX_ORIN_64GB", short_name: "Jetson AGX Orin 64GB", name: "Jetson AGX Orin 64GB",
    architecture: Architecture::Ampere, compute_capability: (8, 7), spec_mib: 65_536, usable_mib: 62_827, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 6656, host_source: "free(1) in a public log of an idle AGX Orin with a desktop, Aug 2026: 61 GiB in all, 55 GiB available",
    memory: "LPDDR5", bus_bits: Some(256), bandwidth_gbs: Some(204.8), host_link: "shared memory", host_gbs: 102.4, multiprocessors: Some(16), cuda_cores: Some(2048), fp32_tflops: Some(5.32), tensor_fp16_tflops: Some(42.5), has_multicast: false, notes: "tensor = sparse INT8 TOPS (170) / 4; unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Orin\"", };
/// Jetson Xavier NX 8GB: 6,832 MiB seen (measured), 2,048 MiB of it left to the host. Cargo feature `jetson-xavier-nx-8gb`.
pub const JETSON_XAVIER_NX_8GB: Card = Card { slug: "jetson-xavier-nx-8gb", constant: "JETSON_XAVIER_NX_8GB", short_name: "Jetson Xavier NX 8GB", name: "Jetson Xavier NX 8GB",
    architecture: Architecture::Volta, compute_capability: (7, 2), spec_mib: 8192, usable_mib: 6832, basis: Basis::Measured, source: "https://github.com/hunglc007/tensorflow-yolov4-tflite/issues/211", host_mib: 2048, host_source: "estimated: as for Jetson Orin Nano 8GB",
    memory: "LPDDR4x", bus_bits: Some(128), bandwidth_gbs: Some(59.7), host_link: "shared memory", host_gbs: 29.85, multiprocessors: Some(6), cuda_cores: Some(384), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Xavier\"", };
/// Jetson AGX Xavier 16GB: 15,692 MiB seen (measured), 2,560 MiB of it left to the host. Cargo feature `jetson-agx-xavier-16gb`.
pub const JETSON_AGX_XAVIER_16GB: Card = Card { slug: "jetson-agx-xavier-16gb", constant: "JETSON_AGX_XAVIER_16GB", short_name: "Jetson AGX Xavier 16GB", name: "Jetson AGX Xavier 16GB",
    architecture: Architecture::Volta, compute_capability: (7, 2), spec_mib: 16_384, usable_mib: 15_692, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 2560, host_source: "estimated: as for Jetson Orin NX 16GB",
    memory: "LPDDR4x", bus_bits: Some(256), bandwidth_gbs: Some(136.5), host_link: "shared memory", host_gbs: 68.25, multiprocessors: Some(8), cuda_cores: Some(512), fp32_tflops: Some(1.41), tensor_fp16_tflops: None, has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Xavier\"", };
/// Jetson AGX Xavier 32GB: 31,912 MiB seen (measured), 4,096 MiB of it left to the host. Cargo feature `jetson-agx-xavier-32gb`.
pub const JETSON_AGX_XAVIER_32GB: Card = Card { slug: "jetson-agx-xavier-32gb", constant: "JETSON_AGX_XAVIER_32GB", short_name: "Jetson AGX Xavier 32GB", name: "Jetson AGX Xavier 32GB",
    architecture: Architecture::Volta, compute_capability: (7, 2), spec_mib: 32_768, usable_mib: 31_912, basis: Basis::Measured, source: "https://github.com/tensorflow/tensorflow/issues/52287", host_mib: 4096, host_source: "estimated: as for Jetson AGX Orin 32GB",
    memory: "LPDDR4x", bus_bits: Some(256), bandwidth_gbs: Some(136.5), host_link: "shared memory", host_gbs: 68.25, multiprocessors: Some(8), cuda_cores: Some(512), fp32_tflops: Some(1.41), tensor_fp16_tflops: None, has_multicast: false, notes: "unified memory shared with CPU and OS: totalGlobalMem is nearly all RAM; device name is only \"Xavier\"", };
/// Jetson AGX Thor T5000 128GB: 125,748 MiB seen (measured), 11,776 MiB of it left to the host. Cargo feature `jetson-thor-128gb`.
pub const JETSON_THOR_128GB: Card = Card { slug: "jetson-thor-128gb", constant: "JETSON_THOR_128GB", short_name: "Jetson Thor 128GB", name: "Jetson AGX Thor T5000 128GB",
    architecture: Architecture::Blackwell, compute_capability: (11, 0), spec_mib: 131_072, usable_mib: 125_748, basis: Basis::Measured, source: "smallest figure read in public Linux logs, Nov 2026", host_mib: 11_776, host_source: "estimated: as for GB10",
    memory: "LPDDR5X", bus_bits: Some(256), bandwidth_gbs: Some(273.0), host_link: "shared memory", host_gbs: 136.5, multiprocessors: Some(20), cuda_cores: Some(2560), fp32_tflops: None, tensor_fp16_tflops: None, has_multicast: false, notes: "unified memory; device name \"NVIDIA Thor\"", };
/// GeForce GTX 1060 3GB, [`GTX_1060_3GB`]: the smallest card that the name can mean. Cargo feature `gtx1060`.
pub const GTX_1060: Card = GTX_1060_3GB;
/// GeForce RTX 3050 6GB, [`RTX_3050_6GB`]: the smallest card that the name can mean. Cargo feature `rtx3050`.
pub const RTX_3050: Card = RTX_3050_6GB;
/// GeForce RTX 3060 12GB, [`RTX_3060`]: the smallest card that the name can mean. Cargo feature `rtx3060-12gb`.
pub const RTX_3060_12GB: Card = RTX_3060;
/// GeForce RTX 3080 10GB, [`RTX_3080_10GB`]: the smallest card that the name can mean. Cargo feature `rtx3080`.
pub const RTX_3080: Card = RTX_3080_10GB;
/// GeForce RTX 4060 Ti 8GB, [`RTX_4060_TI_8GB`]: the smallest card that the name can mean. Cargo feature `rtx4060ti`.
pub const RTX_4060_TI: Card = RTX_4060_TI_8GB;
/// GeForce RTX 5060 Ti 8GB, [`RTX_5060_TI_8GB`]: the smallest card that the name can mean. Cargo feature `rtx5060ti`.
pub const RTX_5060_TI: Card = RTX_5060_TI_8GB;
/// GeForce RTX 3050 Laptop GPU 4GB, [`RTX_3050_LAPTOP_4GB`]: the smallest card that the name can mean. Cargo feature `rtx3050-laptop`.
pub const RTX_3050_LAPTOP: Card = RTX_3050_LAPTOP_4GB;
/// Tesla P100-PCIE-16GB, [`P100_16GB`]: the smallest card that the name can mean. Cargo feature `p100`.
pub const P100: Card = P100_16GB;
/// Tesla V100 16GB (SXM2), [`V100_16GB`]: the smallest card that the name can mean. Cargo feature `v100`.
pub const V100: Card = V100_16GB;
/// NVIDIA A100-SXM4-40GB, [`A100_40GB`]: the smallest card that the name can mean. Cargo feature `a100`.
pub const A100: Card = A100_40GB;
/// NVIDIA H100 PCIe 80GB, [`H100_PCIE`]: the smallest card that the name can mean. Cargo feature `h100`.
pub const H100: Card = H100_PCIE;
/// NVIDIA H100 PCIe 80GB, [`H100_PCIE`]: the smallest card that the name can mean. Cargo feature `h100-80gb`.
pub const H100_80GB: Card = H100_PCIE;
/// NVIDIA GH200 (96GB HBM3), [`GH200_96GB`]: the smallest card that the name can mean. Cargo feature `gh200`.
pub const GH200: Card = GH200_96GB;
/// NVIDIA GB10 (DGX Spark), [`GB10_DGX_SPARK`]: the smallest card that the name can mean. Cargo feature `gb10`.
pub const GB10: Card = GB10_DGX_SPARK;
/// NVIDIA GB10 (DGX Spark), [`GB10_DGX_SPARK`]: the smallest card that the name can mean. Cargo feature `dgx-spark`.
pub const DGX_SPARK: Card = GB10_DGX_SPARK;
/// RTX PRO 6000 Blackwell Workstation, [`RTX_PRO_6000_BLACKWELL`]: the smallest card that the name can mean. Cargo feature `rtx-pro-6000`.
pub const RTX_PRO_6000: Card = RTX_PRO_6000_BLACKWELL;
/// Jetson Orin Nano 4GB, [`JETSON_ORIN_NANO_4GB`]: the smallest card that the name can mean. Cargo feature `jetson-orin-nano`.
pub const JETSON_ORIN_NANO: Card = JETSON_ORIN_NANO_4GB;
/// Jetson Orin NX 8GB, [`JETSON_ORIN_NX_8GB`]: the smallest card that the name can mean. Cargo feature `jetson-orin-nx`.
pub const JETSON_ORIN_NX: Card = JETSON_ORIN_NX_8GB;
/// Jetson AGX Orin 32GB, [`JETSON_AGX_ORIN_32GB`]: the smallest card that the name can mean. Cargo feature `jetson-agx-orin`.
pub const JETSON_AGX_ORIN: Card = JETSON_AGX_ORIN_32GB;
/// Jetson Xavier NX 8GB, [`JETSON_XAVIER_NX_8GB`]: the smallest card that the name can mean. Cargo feature `jetson-xavier-nx`.
pub const JETSON_XAVIER_NX: Card = JETSON_XAVIER_NX_8GB;
/// Jetson AGX Xavier 16GB, [`JETSON_AGX_XAVIER_16GB`]: the smallest card that the name can mean. Cargo feature `jetson-agx-xavier`.
pub const JETSON_AGX_XAVIER: Card = JETSON_AGX_XAVIER_16GB;
/// Jetson AGX Thor T5000 128GB, [`JETSON_THOR_128GB`]: the smallest card that the name can mean. Cargo feature `jetson-thor`.
pub const JETSON_THOR: Card = JETSON_THOR_128GB;

/// Every card, by usable memory, the smallest first.
pub const ALL: &[Card] = &[
    JETSON_ORIN_NANO_4GB,
    GTX_1060_3GB,
    RTX_3050_LAPTOP_4GB,
    GTX_1650,
    GTX_1050_TI,
    JETSON_XAVIER_NX_8GB,
    A100_40GB_MIG_1G_5GB,
    JETSON_ORIN_NANO_8GB,
    JETSON_ORIN_NX_8GB,
    GTX_1660,
    RTX_2060,
    GTX_1660_SUPER,
    GTX_1660_TI,
    RTX_4050_LAPTOP,
    RTX_3050_6GB,
    RTX_3060_LAPTOP,
    GTX_1060_6GB,
    RTX_2060_SUPER,
    RTX_3050_8GB,
    RTX_5050,
    RTX_5060_TI_8GB,
    RTX_5060,
    RTX_3070,
    RTX_2070,
    RTX_2080_SUPER,
    RTX_2080,
    RTX_4060_LAPTOP,
    RTX_4060_TI_8GB,
    RTX_4070_LAPTOP,
    RTX_4060,
    RTX_3060_TI,
    RTX_3070_TI,
    RTX_3070_TI_LAPTOP,
    RTX_2070_SUPER,
    GTX_1080,
    GTX_1070,
    GTX_1070_TI,
    A100_80GB_MIG_1G_10GB,
    A100_40GB_MIG_1G_10GB,
    A100_40GB_MIG_2G_10GB,
    H100_80GB_MIG_1G_10GB,
    RTX_3080_10GB,
    RTX_2080_TI,
    GTX_1080_TI,
    K80,
    RTX_5070,
    RTX_4080_LAPTOP,
    RTX_2060_12GB,
    RTX_4070_SUPER,
    RTX_4070,
    RTX_4070_TI,
    RTX_A2000_12GB,
    RTX_3060,
    RTX_3080_12GB,
    RTX_3080_TI,
    TITAN_V,
    TITAN_XP,
    TITAN_X_PASCAL,
    JETSON_ORIN_NX_16GB,
    JETSON_AGX_XAVIER_16GB,
    A2,
    T4,
    RTX_A4000_ECC,
    RTX_5070_TI,
    RTX_4090_LAPTOP,
    RTX_5060_TI_16GB,
    RTX_5080,
    RTX_5080_LAPTOP,
    QUADRO_RTX_5000,
    RTX_4070_TI_SUPER,
    RTX_4080_SUPER,
    RTX_4060_TI_16GB,
    RTX_4080,
    RTX_3080_LAPTOP_16GB,
    RTX_A4000,
    V100_16GB,
    P100_16GB,
    H200_MIG_1G_18GB,
    A100_40GB_MIG_3G_20GB,
    A100_40GB_MIG_4G_20GB,
    A100_80GB_MIG_1G_20GB,
    A100_80GB_MIG_2G_20GB,
    H100_80GB_MIG_1G_20GB,
    H100_80GB_MIG_2G_20GB,
    RTX_4000_ADA,
    RTX_4000_SFF_ADA,
    B200_MIG_1G_23GB,
    A10,
    L4,
    A10G,
    RTX_4090,
    QUADRO_RTX_6000,
    RTX_5090_LAPTOP,
    A30,
    RTX_3090_TI,
    RTX_A5000,
    RTX_3090,
    TITAN_RTX,
    P40,
    JETSON_AGX_ORIN_32GB,
    JETSON_AGX_XAVIER_32GB,
    RTX_5090,
    V100_32GB,
    H200_MIG_1G_35GB,
    H200_MIG_2G_35GB,
    A100_40GB_MIG_7G_40GB,
    A100_80GB_MIG_3G_40GB,
    A100_80GB_MIG_4G_40GB,
    H100_80GB_MIG_3G_40GB,
    H100_80GB_MIG_4G_40GB,
    A100_40GB,
    B200_MIG_1G_45GB,
    B200_MIG_2G_45GB,
    L40S,
    A40,
    L40,
    L20,
    RTX_6000_ADA_ECC,
    QUADRO_RTX_8000,
    RTX_6000_ADA,
    RTX_A6000,
    JETSON_AGX_ORIN_64GB,
    H200_MIG_3G_71GB,
    H200_MIG_4G_71GB,
    A100_80GB_MIG_7G_80GB,
    H100_80GB_MIG_7G_80GB,
    H100_PCIE,
    A100_80GB,
    H100_SXM,
    A100_PCIE_80GB,
    B200_MIG_3G_90GB,
    B200_MIG_4G_90GB,
    H100_NVL,
    GH200_96GB,
    RTX_PRO_6000_BLACKWELL,
    H20,
    GB10_DGX_SPARK,
    JETSON_THOR_128GB,
    H200_MIG_7G_141GB,
    H200,
    B200_MIG_7G_180GB,
    B200,
];

/// Other names of cards.
pub const ALIASES: &[Alias] = &[
    Alias { slug: "gtx1060", constant: "GTX_1060", card: &GTX_1060_3GB },
    Alias { slug: "rtx3050", constant: "RTX_3050", card: &RTX_3050_6GB },
    Alias { slug: "rtx3060-12gb", constant: "RTX_3060_12GB", card: &RTX_3060 },
    Alias { slug: "rtx3080", constant: "RTX_3080", card: &RTX_3080_10GB },
    Alias { slug: "rtx4060ti", constant: "RTX_4060_TI", card: &RTX_4060_TI_8GB },
    Alias { slug: "rtx5060ti", constant: "RTX_5060_TI", card: &RTX_5060_TI_8GB },
    Alias { slug: "rtx3050-laptop", constant: "RTX_3050_LAPTOP", card: &RTX_3050_LAPTOP_4GB },
    Alias { slug: "p100", constant: "P100", card: &P100_16GB },
    Alias { slug: "v100", constant: "V100", card: &V100_16GB },
    Alias { slug: "a100", constant: "A100", card: &A100_40GB },
    Alias { slug: "h100", constant: "H100", card: &H100_PCIE },
    Alias { slug: "h100-80gb", constant: "H100_80GB", card: &H100_PCIE },
    Alias { slug: "gh200", constant: "GH200", card: &GH200_96GB },
    Alias { slug: "gb10", constant: "GB10", card: &GB10_DGX_SPARK },
    Alias { slug: "dgx-spark", constant: "DGX_SPARK", card: &GB10_DGX_SPARK },
    Alias { slug: "rtx-pro-6000", constant: "RTX_PRO_6000", card: &RTX_PRO_6000_BLACKWELL },
    Alias { slug: "jetson-orin-nano", constant: "JETSON_ORIN_NANO", card: &JETSON_ORIN_NANO_4GB },
    Alias { slug: "jetson-orin-nx", constant: "JETSON_ORIN_NX", card: &JETSON_ORIN_NX_8GB },
    Alias { slug: "jetson-agx-orin", constant: "JETSON_AGX_ORIN", card: &JETSON_AGX_ORIN_32GB },
    Alias { slug: "jetson-xavier-nx", constant: "JETSON_XAVIER_NX", card: &JETSON_XAVIER_NX_8GB },
    Alias { slug: "jetson-agx-xavier", constant: "JETSON_AGX_XAVIER", card: &JETSON_AGX_XAVIER_16GB },
    Alias { slug: "jetson-thor", constant: "JETSON_THOR", card: &JETSON_THOR_128GB },
];

/// The columns of `data/cards.csv`, in order.
#[doc(hidden)]
pub const COLUMNS: &[&str] = &[
    "slug",
    "aliases",
    "name",
    "arch",
    "compute_capability",
    "vram_spec_mib",
    "usable_mib",
    "usable_basis",
    "usable_source",
    "host_mib",
    "host_source",
    "mem_type",
    "bus_bits",
    "bandwidth_gbs",
    "host_link",
    "sm_count",
    "cuda_cores",
    "fp32_tflops",
    "tensor_fp16_dense_tflops",
    "multicast",
    "notes",
];

/// Expands to the cards whose Cargo feature the calling crate has on, as a `&[Card]` in the order of the table.
///
/// The compiler looks up a `cfg` in the crate that calls the macro: `gpumem` and its language have the features, this crate has none.
#[doc(hidden)]
#[macro_export]
macro_rules! selected_cards {
    () => {
        &[
            #[cfg(feature = "gtx1050ti")] $crate::cards::GTX_1050_TI,
            #[cfg(feature = "gtx1060-3gb")] $crate::cards::GTX_1060_3GB,
            #[cfg(feature = "gtx1060-6gb")] $crate::cards::GTX_1060_6GB,
            #[cfg(feature = "gtx1070")] $crate::cards::GTX_1070,
            #[cfg(feature = "gtx1070ti")] $crate::cards::GTX_1070_TI,
            #[cfg(feature = "gtx1080")] $crate::cards::GTX_1080,
            #[cfg(feature = "gtx1080ti")] $crate::cards::GTX_1080_TI,
            #[cfg(feature = "titan-x-pascal")] $crate::cards::TITAN_X_PASCAL,
            #[cfg(feature = "titan-xp")] $crate::cards::TITAN_XP,
            #[cfg(feature = "gtx1650")] $crate::cards::GTX_1650,
            #[cfg(feature = "gtx1660")] $crate::cards::GTX_1660,
            #[cfg(feature = "gtx1660super")] $crate::cards::GTX_1660_SUPER,
            #[cfg(feature = "gtx1660ti")] $crate::cards::GTX_1660_TI,
            #[cfg(feature = "rtx2060")] $crate::cards::RTX_2060,
            #[cfg(feature = "rtx2060-12gb")] $crate::cards::RTX_2060_12GB,
            #[cfg(feature = "rtx2060super")] $crate::cards::RTX_2060_SUPER,
            #[cfg(feature = "rtx2070")] $crate::cards::RTX_2070,
            #[cfg(feature = "rtx2070super")] $crate::cards::RTX_2070_SUPER,
            #[cfg(feature = "rtx2080")] $crate::cards::RTX_2080,
            #[cfg(feature = "rtx2080super")] $crate::cards::RTX_2080_SUPER,
            #[cfg(feature = "rtx2080ti")] $crate::cards::RTX_2080_TI,
            #[cfg(feature = "titan-rtx")] $crate::cards::TITAN_RTX,
            #[cfg(feature = "rtx3050-6gb")] $crate::cards::RTX_3050_6GB,
            #[cfg(feature = "rtx3050-8gb")] $crate::cards::RTX_3050_8GB,
            #[cfg(feature = "rtx3060")] $crate::cards::RTX_3060,
            #[cfg(feature = "rtx3060ti")] $crate::cards::RTX_3060_TI,
            #[cfg(feature = "rtx3070")] $crate::cards::RTX_3070,
            #[cfg(feature = "rtx3070ti")] $crate::cards::RTX_3070_TI,
            #[cfg(feature = "rtx3080-10gb")] $crate::cards::RTX_3080_10GB,
            #[cfg(feature = "rtx3080-12gb")] $crate::cards::RTX_3080_12GB,
            #[cfg(feature = "rtx3080ti")] $crate::cards::RTX_3080_TI,
            #[cfg(feature = "rtx3090")] $crate::cards::RTX_3090,
            #[cfg(feature = "rtx3090ti")] $crate::cards::RTX_3090_TI,
            #[cfg(feature = "rtx4060")] $crate::cards::RTX_4060,
            #[cfg(feature = "rtx4060ti-8gb")] $crate::cards::RTX_4060_TI_8GB,
            #[cfg(feature = "rtx4060ti-16gb")] $crate::cards::RTX_4060_TI_16GB,
            #[cfg(feature = "rtx4070")] $crate::cards::RTX_4070,
            #[cfg(feature = "rtx4070super")] $crate::cards::RTX_4070_SUPER,
            #[cfg(feature = "rtx4070ti")] $crate::cards::RTX_4070_TI,
            #[cfg(feature = "rtx4070tisuper")] $crate::cards::RTX_4070_TI_SUPER,
            #[cfg(feature = "rtx4080")] $crate::cards::RTX_4080,
            #[cfg(feature = "rtx4080super")] $crate::cards::RTX_4080_SUPER,
            #[cfg(feature = "rtx4090")] $crate::cards::RTX_4090,
            #[cfg(feature = "rtx5050")] $crate::cards::RTX_5050,
            #[cfg(feature = "rtx5060")] $crate::cards::RTX_5060,
            #[cfg(feature = "rtx5060ti-8gb")] $crate::cards::RTX_5060_TI_8GB,
            #[cfg(feature = "rtx5060ti-16gb")] $crate::cards::RTX_5060_TI_16GB,
            #[cfg(feature = "rtx5070")] $crate::cards::RTX_5070,
            #[cfg(feature = "rtx5070ti")] $crate::cards::RTX_5070_TI,
            #[cfg(feature = "rtx5080")] $crate::cards::RTX_5080,
            #[cfg(feature = "rtx5090")] $crate::cards::RTX_5090,
            #[cfg(feature = "rtx3050-laptop-4gb")] $crate::cards::RTX_3050_LAPTOP_4GB,
            #[cfg(feature = "rtx3060-laptop")] $crate::cards::RTX_3060_LAPTOP,
            #[cfg(feature = "rtx3070ti-laptop")] $crate::cards::RTX_3070_TI_LAPTOP,
            #[cfg(feature = "rtx3080-laptop-16gb")] $crate::cards::RTX_3080_LAPTOP_16GB,
            #[cfg(feature = "rtx4050-laptop")] $crate::cards::RTX_4050_LAPTOP,
            #[cfg(feature = "rtx4060-laptop")] $crate::cards::RTX_4060_LAPTOP,
            #[cfg(feature = "rtx4070-laptop")] $crate::cards::RTX_4070_LAPTOP,
            #[cfg(feature = "rtx4080-laptop")] $crate::cards::RTX_4080_LAPTOP,
            #[cfg(feature = "rtx4090-laptop")] $crate::cards::RTX_4090_LAPTOP,
            #[cfg(feature = "rtx5080-laptop")] $crate::cards::RTX_5080_LAPTOP,
            #[cfg(feature = "rtx5090-laptop")] $crate::cards::RTX_5090_LAPTOP,
            #[cfg(feature = "k80")] $crate::cards::K80,
            #[cfg(feature = "p40")] $crate::cards::P40,
            #[cfg(feature = "p100-16gb")] $crate::cards::P100_16GB,
            #[cfg(feature = "v100-16gb")] $crate::cards::V100_16GB,
            #[cfg(feature = "v100-32gb")] $crate::cards::V100_32GB,
            #[cfg(feature = "titan-v")] $crate::cards::TITAN_V,
            #[cfg(feature = "t4")] $crate::cards::T4,
            #[cfg(feature = "a2")] $crate::cards::A2,
            #[cfg(feature = "a10")] $crate::cards::A10,
            #[cfg(feature = "a10g")] $crate::cards::A10G,
            #[cfg(feature = "a30")] $crate::cards::A30,
            #[cfg(feature = "a40")] $crate::cards::A40,
            #[cfg(feature = "a100-40gb")] $crate::cards::A100_40GB,
            #[cfg(feature = "a100-80gb")] $crate::cards::A100_80GB,
            #[cfg(feature = "a100-pcie-80gb")] $crate::cards::A100_PCIE_80GB,
            #[cfg(feature = "a100-40gb-mig-1g-5gb")] $crate::cards::A100_40GB_MIG_1G_5GB,
            #[cfg(feature = "a100-40gb-mig-1g-10gb")] $crate::cards::A100_40GB_MIG_1G_10GB,
            #[cfg(feature = "a100-40gb-mig-2g-10gb")] $crate::cards::A100_40GB_MIG_2G_10GB,
            #[cfg(feature = "a100-40gb-mig-3g-20gb")] $crate::cards::A100_40GB_MIG_3G_20GB,
            #[cfg(feature = "a100-40gb-mig-4g-20gb")] $crate::cards::A100_40GB_MIG_4G_20GB,
            #[cfg(feature = "a100-40gb-mig-7g-40gb")] $crate::cards::A100_40GB_MIG_7G_40GB,
            #[cfg(feature = "a100-80gb-mig-1g-10gb")] $crate::cards::A100_80GB_MIG_1G_10GB,
            #[cfg(feature = "a100-80gb-mig-1g-20gb")] $crate::cards::A100_80GB_MIG_1G_20GB,
            #[cfg(feature = "a100-80gb-mig-2g-20gb")] $crate::cards::A100_80GB_MIG_2G_20GB,
            #[cfg(feature = "a100-80gb-mig-3g-40gb")] $crate::cards::A100_80GB_MIG_3G_40GB,
            #[cfg(feature = "a100-80gb-mig-4g-40gb")] $crate::cards::A100_80GB_MIG_4G_40GB,
            #[cfg(feature = "a100-80gb-mig-7g-80gb")] $crate::cards::A100_80GB_MIG_7G_80GB,
            #[cfg(feature = "l4")] $crate::cards::L4,
            #[cfg(feature = "l40")] $crate::cards::L40,
            #[cfg(feature = "l40s")] $crate::cards::L40S,
            #[cfg(feature = "l20")] $crate::cards::L20,
            #[cfg(feature = "h100-sxm")] $crate::cards::H100_SXM,
            #[cfg(feature = "h100-pcie")] $crate::cards::H100_PCIE,
            #[cfg(feature = "h100-nvl")] $crate::cards::H100_NVL,
            #[cfg(feature = "h100-80gb-mig-1g-10gb")] $crate::cards::H100_80GB_MIG_1G_10GB,
            #[cfg(feature = "h100-80gb-mig-1g-20gb")] $crate::cards::H100_80GB_MIG_1G_20GB,
            #[cfg(feature = "h100-80gb-mig-2g-20gb")] $crate::cards::H100_80GB_MIG_2G_20GB,
            #[cfg(feature = "h100-80gb-mig-3g-40gb")] $crate::cards::H100_80GB_MIG_3G_40GB,
            #[cfg(feature = "h100-80gb-mig-4g-40gb")] $crate::cards::H100_80GB_MIG_4G_40GB,
            #[cfg(feature = "h100-80gb-mig-7g-80gb")] $crate::cards::H100_80GB_MIG_7G_80GB,
            #[cfg(feature = "h20")] $crate::cards::H20,
            #[cfg(feature = "gh200-96gb")] $crate::cards::GH200_96GB,
            #[cfg(feature = "h200")] $crate::cards::H200,
            #[cfg(feature = "h200-mig-1g-18gb")] $crate::cards::H200_MIG_1G_18GB,
            #[cfg(feature = "h200-mig-1g-35gb")] $crate::cards::H200_MIG_1G_35GB,
            #[cfg(feature = "h200-mig-2g-35gb")] $crate::cards::H200_MIG_2G_35GB,
            #[cfg(feature = "h200-mig-3g-71gb")] $crate::cards::H200_MIG_3G_71GB,
            #[cfg(feature = "h200-mig-4g-71gb")] $crate::cards::H200_MIG_4G_71GB,
            #[cfg(feature = "h200-mig-7g-141gb")] $crate::cards::H200_MIG_7G_141GB,
            #[cfg(feature = "b200")] $crate::cards::B200,
            #[cfg(feature = "b200-mig-1g-23gb")] $crate::cards::B200_MIG_1G_23GB,
            #[cfg(feature = "b200-mig-1g-45gb")] $crate::cards::B200_MIG_1G_45GB,
            #[cfg(feature = "b200-mig-2g-45gb")] $crate::cards::B200_MIG_2G_45GB,
            #[cfg(feature = "b200-mig-3g-90gb")] $crate::cards::B200_MIG_3G_90GB,
            #[cfg(feature = "b200-mig-4g-90gb")] $crate::cards::B200_MIG_4G_90GB,
            #[cfg(feature = "b200-mig-7g-180gb")] $crate::cards::B200_MIG_7G_180GB,
            #[cfg(feature = "gb10-dgx-spark")] $crate::cards::GB10_DGX_SPARK,
            #[cfg(feature = "quadro-rtx5000")] $crate::cards::QUADRO_RTX_5000,
            #[cfg(feature = "quadro-rtx6000")] $crate::cards::QUADRO_RTX_6000,
            #[cfg(feature = "quadro-rtx8000")] $crate::cards::QUADRO_RTX_8000,
            #[cfg(feature = "rtx-a2000-12gb")] $crate::cards::RTX_A2000_12GB,
            #[cfg(feature = "rtx-a4000")] $crate::cards::RTX_A4000,
            #[cfg(feature = "rtx-a4000-ecc")] $crate::cards::RTX_A4000_ECC,
            #[cfg(feature = "rtx-a5000")] $crate::cards::RTX_A5000,
            #[cfg(feature = "rtx-a6000")] $crate::cards::RTX_A6000,
            #[cfg(feature = "rtx4000-ada")] $crate::cards::RTX_4000_ADA,
            #[cfg(feature = "rtx4000-sff-ada")] $crate::cards::RTX_4000_SFF_ADA,
            #[cfg(feature = "rtx6000-ada")] $crate::cards::RTX_6000_ADA,
            #[cfg(feature = "rtx6000-ada-ecc")] $crate::cards::RTX_6000_ADA_ECC,
            #[cfg(feature = "rtx-pro-6000-blackwell")] $crate::cards::RTX_PRO_6000_BLACKWELL,
            #[cfg(feature = "jetson-orin-nano-4gb")] $crate::cards::JETSON_ORIN_NANO_4GB,
            #[cfg(feature = "jetson-orin-nano-8gb")] $crate::cards::JETSON_ORIN_NANO_8GB,
            #[cfg(feature = "jetson-orin-nx-8gb")] $crate::cards::JETSON_ORIN_NX_8GB,
            #[cfg(feature = "jetson-orin-nx-16gb")] $crate::cards::JETSON_ORIN_NX_16GB,
            #[cfg(feature = "jetson-agx-orin-32gb")] $crate::cards::JETSON_AGX_ORIN_32GB,
            #[cfg(feature = "jetson-agx-orin-64gb")] $crate::cards::JETSON_AGX_ORIN_64GB,
            #[cfg(feature = "jetson-xavier-nx-8gb")] $crate::cards::JETSON_XAVIER_NX_8GB,
            #[cfg(feature = "jetson-agx-xavier-16gb")] $crate::cards::JETSON_AGX_XAVIER_16GB,
            #[cfg(feature = "jetson-agx-xavier-32gb")] $crate::cards::JETSON_AGX_XAVIER_32GB,
            #[cfg(feature = "jetson-thor-128gb")] $crate::cards::JETSON_THOR_128GB,
        ]
    };
}
