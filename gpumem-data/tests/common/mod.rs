//! Data sets and loaders that several tests use.
#![allow(dead_code, reason = "each test takes some of it")]

use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::{Batched, Dataset, Loader, Result, from_fn};

pub type Input = Tensor<f32, (D<4>, D<2>)>;
pub type Labels = Tensor<u32, (D<4>,)>;
pub type Numbers = Tensor<f32, (D<4>, D<1>)>;

/// Samples whose input is their index and a random number, and whose label is their index.
pub fn numbered(len: usize) -> impl Dataset {
    from_fn(len, |index, draw, sample| {
        sample.input(0)?.put_numbers(&[index as f32, draw.uniform() as f32])?;
        sample.target(0)?.put_label(index as u32)
    })
}

/// The samples of an epoch, padding included.
pub fn collect<I: Batched + Clone, T: Batched + Clone>(loader: &mut Loader<I, T>) -> Result<Vec<(I, T, usize)>> {
    loader.epoch()?.map(|batch| batch.map(|batch| (batch.input.clone(), batch.target.clone(), batch.len))).collect()
}

/// The first error of an epoch.
pub fn first_error<I: Batched, T: Batched>(loader: &mut Loader<I, T>) -> String {
    match loader.epoch() {
        Err(error) => error.to_string(),
        Ok(epoch) => epoch.map(|batch| batch.err()).find_map(|error| error).expect("an error").to_string(),
    }
}
