//! The fields of `TRAIN` and `INFER`: read, checked, and written as constants.

pub(crate) mod averages;
pub(crate) mod cards;
pub(crate) mod clip_and_schedule;
pub(crate) mod layer_decay;
pub(crate) mod literals;
pub(crate) mod loss;
pub(crate) mod micro_batches;
pub(crate) mod offload;
pub(crate) mod optimizer;
pub(crate) mod ranks;
pub(crate) mod reading;
pub(crate) mod steps;
pub(crate) mod train;
pub(crate) mod values;
