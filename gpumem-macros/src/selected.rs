//! Generated from `gpumem-core/data/cards.csv` by `scripts/cards.py`: change the table, then run the script.

use gpumem_core::cards::Card;

/// The cards whose Cargo feature is on: every network must fit all of them. In the order of the table.
pub(crate) const SELECTED: &[Card] = &[
    #[cfg(feature = "gtx1050ti")]
    gpumem_core::cards::GTX_1050_TI,
    #[cfg(feature = "gtx1060-3gb")]
    gpumem_core::cards::GTX_1060_3GB,
    #[cfg(feature = "gtx1060-6gb")]
    gpumem_core::cards::GTX_1060_6GB,
    #[cfg(feature = "gtx1070")]
    gpumem_core::cards::GTX_1070,
    #[cfg(feature = "gtx1070ti")]
    gpumem_core::cards::GTX_1070_TI,
    #[cfg(feature = "gtx1080")]
    gpumem_core::cards::GTX_1080,
    #[cfg(feature = "gtx1080ti")]
    gpumem_core::cards::GTX_1080_TI,
    #[cfg(feature = "titan-x-pascal")]
    gpumem_core::cards::TITAN_X_PASCAL,
    #[cfg(feature = "titan-xp")]
    gpumem_core::cards::TITAN_XP,
    #[cfg(feature = "gtx1650")]
    gpumem_core::cards::GTX_1650,
    #[cfg(feature = "gtx1660")]
    gpumem_core::cards::GTX_1660,
    #[cfg(feature = "gtx1660super")]
    gpumem_core::cards::GTX_1660_SUPER,
    #[cfg(feature = "gtx1660ti")]
    gpumem_core::cards::GTX_1660_TI,
    #[cfg(feature = "rtx2060")]
    gpumem_core::cards::RTX_2060,
    #[cfg(feature = "rtx2060-12gb")]
    gpumem_core::cards::RTX_2060_12GB,
    #[cfg(feature = "rtx2060super")]
    gpumem_core::cards::RTX_2060_SUPER,
    #[cfg(feature = "rtx2070")]
    gpumem_core::cards::RTX_2070,
    #[cfg(feature = "rtx2070super")]
    gpumem_core::cards::RTX_2070_SUPER,
    #[cfg(feature = "rtx2080")]
    gpumem_core::cards::RTX_2080,
    #[cfg(feature = "rtx2080super")]
    gpumem_core::cards::RTX_2080_SUPER,
    #[cfg(feature = "rtx2080ti")]
    gpumem_core::cards::RTX_2080_TI,
    #[cfg(feature = "titan-rtx")]
    gpumem_core::cards::TITAN_RTX,
    #[cfg(feature = "rtx3050-6gb")]
    gpumem_core::cards::RTX_3050_6GB,
    #[cfg(feature = "rtx3050-8gb")]
    gpumem_core::cards::RTX_3050_8GB,
    #[cfg(feature = "rtx3060")]
    gpumem_core::cards::RTX_3060,
    #[cfg(feature = "rtx3060ti")]
    gpumem_core::cards::RTX_3060_TI,
    #[cfg(feature = "rtx3070")]
    gpumem_core::cards::RTX_3070,
    #[cfg(feature = "rtx3070ti")]
    gpumem_core::cards::RTX_3070_TI,
    #[cfg(feature = "rtx3080-10gb")]
    gpumem_core::cards::RTX_3080_10GB,
    #[cfg(feature = "rtx3080-12gb")]
    gpumem_core::cards::RTX_3080_12GB,
    #[cfg(feature = "rtx3080ti")]
    gpumem_core::cards::RTX_3080_TI,
    #[cfg(feature = "rtx3090")]
    gpumem_core::cards::RTX_3090,
    #[cfg(feature = "rtx3090ti")]
    gpumem_core::cards::RTX_3090_TI,
    #[cfg(feature = "rtx4060")]
    gpumem_core::cards::RTX_4060,
    #[cfg(feature = "rtx4060ti-8gb")]
    gpumem_core::cards::RTX_4060_TI_8GB,
    #[cfg(feature = "rtx4060ti-16gb")]
    gpumem_core::cards::RTX_4060_TI_16GB,
    #[cfg(feature = "rtx4070")]
    gpumem_core::cards::RTX_4070,
    #[cfg(feature = "rtx4070super")]
    gpumem_core::cards::RTX_4070_SUPER,
    #[cfg(feature = "rtx4070ti")]
    gpumem_core::cards::RTX_4070_TI,
    #[cfg(feature = "rtx4070tisuper")]
    gpumem_core::cards::RTX_4070_TI_SUPER,
    #[cfg(feature = "rtx4080")]
    gpumem_core::cards::RTX_4080,
    #[cfg(feature = "rtx4080super")]
    gpumem_core::cards::RTX_4080_SUPER,
    #[cfg(feature = "rtx4090")]
    gpumem_core::cards::RTX_4090,
    #[cfg(feature = "rtx5050")]
    gpumem_core::cards::RTX_5050,
    #[cfg(feature = "rtx5060")]
    gpumem_core::cards::RTX_5060,
    #[cfg(feature = "rtx5060ti-8gb")]
    gpumem_core::cards::RTX_5060_TI_8GB,
    #[cfg(feature = "rtx5060ti-16gb")]
    gpumem_core::cards::RTX_5060_TI_16GB,
    #[cfg(feature = "rtx5070")]
    gpumem_core::cards::RTX_5070,
    #[cfg(feature = "rtx5070ti")]
    gpumem_core::cards::RTX_5070_TI,
    #[cfg(feature = "rtx5080")]
    gpumem_core::cards::RTX_5080,
    #[cfg(feature = "rtx5090")]
    gpumem_core::cards::RTX_5090,
    #[cfg(feature = "rtx3050-laptop-4gb")]
    gpumem_core::cards::RTX_3050_LAPTOP_4GB,
    #[cfg(feature = "rtx3060-laptop")]
    gpumem_core::cards::RTX_3060_LAPTOP,
    #[cfg(feature = "rtx3070ti-laptop")]
    gpumem_core::cards::RTX_3070_TI_LAPTOP,
    #[cfg(feature = "rtx3080-laptop-16gb")]
    gpumem_core::cards::RTX_3080_LAPTOP_16GB,
    #[cfg(feature = "rtx4050-laptop")]
    gpumem_core::cards::RTX_4050_LAPTOP,
    #[cfg(feature = "rtx4060-laptop")]
    gpumem_core::cards::RTX_4060_LAPTOP,
    #[cfg(feature = "rtx4070-laptop")]
    gpumem_core::cards::RTX_4070_LAPTOP,
    #[cfg(feature = "rtx4080-laptop")]
    gpumem_core::cards::RTX_4080_LAPTOP,
    #[cfg(feature = "rtx4090-laptop")]
    gpumem_core::cards::RTX_4090_LAPTOP,
    #[cfg(feature = "rtx5080-laptop")]
    gpumem_core::cards::RTX_5080_LAPTOP,
    #[cfg(feature = "rtx5090-laptop")]
    gpumem_core::cards::RTX_5090_LAPTOP,
    #[cfg(feature = "k80")]
    gpumem_core::cards::K80,
    #[cfg(feature = "p40")]
    gpumem_core::cards::P40,
    #[cfg(feature = "p100-16gb")]
    gpumem_core::cards::P100_16GB,
    #[cfg(feature = "v100-16gb")]
    gpumem_core::cards::V100_16GB,
    #[cfg(feature = "v100-32gb")]
    gpumem_core::cards::V100_32GB,
    #[cfg(feature = "titan-v")]
    gpumem_core::cards::TITAN_V,
    #[cfg(feature = "t4")]
    gpumem_core::cards::T4,
    #[cfg(feature = "a2")]
    gpumem_core::cards::A2,
    #[cfg(feature = "a10")]
    gpumem_core::cards::A10,
    #[cfg(feature = "a10g")]
    gpumem_core::cards::A10G,
    #[cfg(feature = "a30")]
    gpumem_core::cards::A30,
    #[cfg(feature = "a40")]
    gpumem_core::cards::A40,
    #[cfg(feature = "a100-40gb")]
    gpumem_core::cards::A100_40GB,
    #[cfg(feature = "a100-80gb")]
    gpumem_core::cards::A100_80GB,
    #[cfg(feature = "a100-pcie-80gb")]
    gpumem_core::cards::A100_PCIE_80GB,
    #[cfg(feature = "a100-40gb-mig-1g-5gb")]
    gpumem_core::cards::A100_40GB_MIG_1G_5GB,
    #[cfg(feature = "a100-40gb-mig-1g-10gb")]
    gpumem_core::cards::A100_40GB_MIG_1G_10GB,
    #[cfg(feature = "a100-40gb-mig-2g-10gb")]
    gpumem_core::cards::A100_40GB_MIG_2G_10GB,
    #[cfg(feature = "a100-40gb-mig-3g-20gb")]
    gpumem_core::cards::A100_40GB_MIG_3G_20GB,
    #[cfg(feature = "a100-40gb-mig-4g-20gb")]
    gpumem_core::cards::A100_40GB_MIG_4G_20GB,
    #[cfg(feature = "a100-40gb-mig-7g-40gb")]
    gpumem_core::cards::A100_40GB_MIG_7G_40GB,
    #[cfg(feature = "a100-80gb-mig-1g-10gb")]
    gpumem_core::cards::A100_80GB_MIG_1G_10GB,
    #[cfg(feature = "a100-80gb-mig-1g-20gb")]
    gpumem_core::cards::A100_80GB_MIG_1G_20GB,
    #[cfg(feature = "a100-80gb-mig-2g-20gb")]
    gpumem_core::cards::A100_80GB_MIG_2G_20GB,
    #[cfg(feature = "a100-80gb-mig-3g-40gb")]
    gpumem_core::cards::A100_80GB_MIG_3G_40GB,
    #[cfg(feature = "a100-80gb-mig-4g-40gb")]
    gpumem_core::cards::A100_80GB_MIG_4G_40GB,
    #[cfg(feature = "a100-80gb-mig-7g-80gb")]
    gpumem_core::cards::A100_80GB_MIG_7G_80GB,
    #[cfg(feature = "l4")]
    gpumem_core::cards::L4,
    #[cfg(feature = "l40")]
    gpumem_core::cards::L40,
    #[cfg(feature = "l40s")]
    gpumem_core::cards::L40S,
    #[cfg(feature = "l20")]
    gpumem_core::cards::L20,
    #[cfg(feature = "h100-sxm")]
    gpumem_core::cards::H100_SXM,
    #[cfg(feature = "h100-pcie")]
    gpumem_core::cards::H100_PCIE,
    #[cfg(feature = "h100-nvl")]
    gpumem_core::cards::H100_NVL,
    #[cfg(feature = "h100-80gb-mig-1g-10gb")]
    gpumem_core::cards::H100_80GB_MIG_1G_10GB,
    #[cfg(feature = "h100-80gb-mig-1g-20gb")]
    gpumem_core::cards::H100_80GB_MIG_1G_20GB,
    #[cfg(feature = "h100-80gb-mig-2g-20gb")]
    gpumem_core::cards::H100_80GB_MIG_2G_20GB,
    #[cfg(feature = "h100-80gb-mig-3g-40gb")]
    gpumem_core::cards::H100_80GB_MIG_3G_40GB,
    #[cfg(feature = "h100-80gb-mig-4g-40gb")]
    gpumem_core::cards::H100_80GB_MIG_4G_40GB,
    #[cfg(feature = "h100-80gb-mig-7g-80gb")]
    gpumem_core::cards::H100_80GB_MIG_7G_80GB,
    #[cfg(feature = "h20")]
    gpumem_core::cards::H20,
    #[cfg(feature = "gh200-96gb")]
    gpumem_core::cards::GH200_96GB,
    #[cfg(feature = "h200")]
    gpumem_core::cards::H200,
    #[cfg(feature = "h200-mig-1g-18gb")]
    gpumem_core::cards::H200_MIG_1G_18GB,
    #[cfg(feature = "h200-mig-1g-35gb")]
    gpumem_core::cards::H200_MIG_1G_35GB,
    #[cfg(feature = "h200-mig-2g-35gb")]
    gpumem_core::cards::H200_MIG_2G_35GB,
    #[cfg(feature = "h200-mig-3g-71gb")]
    gpumem_core::cards::H200_MIG_3G_71GB,
    #[cfg(feature = "h200-mig-4g-71gb")]
    gpumem_core::cards::H200_MIG_4G_71GB,
    #[cfg(feature = "h200-mig-7g-141gb")]
    gpumem_core::cards::H200_MIG_7G_141GB,
    #[cfg(feature = "b200")]
    gpumem_core::cards::B200,
    #[cfg(feature = "b200-mig-1g-23gb")]
    gpumem_core::cards::B200_MIG_1G_23GB,
    #[cfg(feature = "b200-mig-1g-45gb")]
    gpumem_core::cards::B200_MIG_1G_45GB,
    #[cfg(feature = "b200-mig-2g-45gb")]
    gpumem_core::cards::B200_MIG_2G_45GB,
    #[cfg(feature = "b200-mig-3g-90gb")]
    gpumem_core::cards::B200_MIG_3G_90GB,
    #[cfg(feature = "b200-mig-4g-90gb")]
    gpumem_core::cards::B200_MIG_4G_90GB,
    #[cfg(feature = "b200-mig-7g-180gb")]
    gpumem_core::cards::B200_MIG_7G_180GB,
    #[cfg(feature = "gb10-dgx-spark")]
    gpumem_core::cards::GB10_DGX_SPARK,
    #[cfg(feature = "quadro-rtx5000")]
    gpumem_core::cards::QUADRO_RTX_5000,
    #[cfg(feature = "quadro-rtx6000")]
    gpumem_core::cards::QUADRO_RTX_6000,
    #[cfg(feature = "quadro-rtx8000")]
    gpumem_core::cards::QUADRO_RTX_8000,
    #[cfg(feature = "rtx-a2000-12gb")]
    gpumem_core::cards::RTX_A2000_12GB,
    #[cfg(feature = "rtx-a4000")]
    gpumem_core::cards::RTX_A4000,
    #[cfg(feature = "rtx-a4000-ecc")]
    gpumem_core::cards::RTX_A4000_ECC,
    #[cfg(feature = "rtx-a5000")]
    gpumem_core::cards::RTX_A5000,
    #[cfg(feature = "rtx-a6000")]
    gpumem_core::cards::RTX_A6000,
    #[cfg(feature = "rtx4000-ada")]
    gpumem_core::cards::RTX_4000_ADA,
    #[cfg(feature = "rtx4000-sff-ada")]
    gpumem_core::cards::RTX_4000_SFF_ADA,
    #[cfg(feature = "rtx6000-ada")]
    gpumem_core::cards::RTX_6000_ADA,
    #[cfg(feature = "rtx6000-ada-ecc")]
    gpumem_core::cards::RTX_6000_ADA_ECC,
    #[cfg(feature = "rtx-pro-6000-blackwell")]
    gpumem_core::cards::RTX_PRO_6000_BLACKWELL,
    #[cfg(feature = "jetson-orin-nano-4gb")]
    gpumem_core::cards::JETSON_ORIN_NANO_4GB,
    #[cfg(feature = "jetson-orin-nano-8gb")]
    gpumem_core::cards::JETSON_ORIN_NANO_8GB,
    #[cfg(feature = "jetson-orin-nx-8gb")]
    gpumem_core::cards::JETSON_ORIN_NX_8GB,
    #[cfg(feature = "jetson-orin-nx-16gb")]
    gpumem_core::cards::JETSON_ORIN_NX_16GB,
    #[cfg(feature = "jetson-agx-orin-32gb")]
    gpumem_core::cards::JETSON_AGX_ORIN_32GB,
    #[cfg(feature = "jetson-agx-orin-64gb")]
    gpumem_core::cards::JETSON_AGX_ORIN_64GB,
    #[cfg(feature = "jetson-xavier-nx-8gb")]
    gpumem_core::cards::JETSON_XAVIER_NX_8GB,
    #[cfg(feature = "jetson-agx-xavier-16gb")]
    gpumem_core::cards::JETSON_AGX_XAVIER_16GB,
    #[cfg(feature = "jetson-agx-xavier-32gb")]
    gpumem_core::cards::JETSON_AGX_XAVIER_32GB,
    #[cfg(feature = "jetson-thor-128gb")]
    gpumem_core::cards::JETSON_THOR_128GB,
];
