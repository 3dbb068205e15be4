//! Facts that a card and its libraries report, for records of a run.

use super::arena::Arena;
use super::transfers::Transfers;
use crate::calls::Argument;
use crate::calls::product::{Element, Epilogue, Factor, Product};
use crate::card::Card;
use crate::context::bind;
use crate::device::Cuda;
use crate::error::failure;
use crate::libraries::cublaslt::Library;
use crate::libraries::cudnn;
use crate::libraries::cudnn::graph::property::device_property;
use crate::libraries::plan_cache::Plans;
use crate::profile::{CardFacts, NanProduct};
use cudarc::driver::CudaStream;
use gpumem_core::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows and columns of the factors.
const SIZE: u64 = 16;

/// Bytes from one tensor to the next: two factors, result and bias.
const APART: u64 = 4 * SIZE * SIZE;

impl Cuda {
    /// Returns the facts that the card and its libraries report. Uses a few KiB of the card's memory, and the libraries' handles, during the call.
    /// Kernels that the libraries load for it stay loaded, so the memory of the next network is not measured: call this after a network is loaded.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn facts(&self) -> Result<CardFacts, Error> {
        let card = &self.card;
        card.is_new.store(false, Ordering::Relaxed);
        bind(&card.context)?;
        let stream = card.context.new_stream().map_err(failure("making a stream"))?;
        let device_property = || {
            let library = if card.cudnn { cudnn::Library::new(&stream, false)? } else { None };
            library.as_ref().map_or(Ok(None), device_property)
        };
        let nan_products = || {
            let library = if card.library { Library::new(&stream, false)? } else { None };
            library.map_or(Ok(Vec::new()), |library| nan_products(card, &library, &stream))
        };
        Ok(CardFacts {
            name: self.name()?,
            row: self.row()?,
            capability: card.capability,
            memory: self.memory()?.1,
            device_property: device_property(),
            nan_products: nan_products(),
        })
    }
}

/// Returns the results of products of NaN and zero in each format, with a Relu in the same pass and without.
fn nan_products(card: &Card, library: &Library, stream: &Arc<CudaStream>) -> Result<Vec<NanProduct>, Error> {
    let arena = Arena::new(card, 4 * APART)?;
    let mut transfers = Transfers::new(stream)?;
    let mut found = Vec::new();
    for element in [Element::F32, Element::Bf16, Element::F16] {
        for epilogue in [Epilogue::None, Epilogue::Relu { bias: None }, Epilogue::Relu { bias: Some(3) }] {
            let product = Product::row_major([SIZE; 3], Factor::plain(0), Factor::plain(1), 2, element);
            let product = Product { epilogue, ..product };
            let keeps_nan = keeps_nan(&product, library, (&arena, &mut transfers), stream)?;
            found.push(NanProduct { element, epilogue: epilogue.name(), keeps_nan });
        }
    }
    Ok(found)
}

/// True if the whole result is NaN, given a first factor that is NaN throughout; `None` if the library has no algorithm.
fn keeps_nan(
    product: &Product,
    library: &Library,
    (arena, transfers): (&Arena, &mut Transfers),
    stream: &Arc<CudaStream>,
) -> Result<Option<bool>, Error> {
    // All bits set is a NaN in every format; the other factor, the result and the bias are zeros.
    transfers.write(arena, 0, None, &[0xff; APART as usize])?;
    transfers.write(arena, APART, None, &[0; 3 * APART as usize])?;
    let address = |tensor: Argument| arena.address(u64::from(tensor) * APART, APART);
    let Some(plan) = Plans::new(Some(library), &address).get(product)? else { return Ok(None) };
    plan.launch(stream)?;
    let mut bytes = vec![0; (SIZE * SIZE * product.element.bytes()) as usize];
    transfers.read(arena, 2 * APART, &mut bytes)?;
    Ok(Some(bytes.chunks_exact(product.element.bytes() as usize).all(|number| is_nan(product.element, number))))
}

/// True if a number of a format is NaN, given its bytes.
fn is_nan(element: Element, bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
    let (exponent, all) = match element {
        Element::F32 => (0x7f80_0000, 0x7fff_ffff),
        Element::Bf16 => (0x7f80, 0x7fff),
        Element::F16 => (0x7c00, 0x7fff),
    };
    bits & all > exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_told_from_infinity_in_every_format() {
        for number in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -1.5, f32::MAX] {
            assert_eq!(is_nan(Element::F32, &number.to_le_bytes()), number.is_nan(), "{number}");
            // bfloat16 is the upper half of an f32.
            assert_eq!(is_nan(Element::Bf16, &number.to_le_bytes()[2..]), number.is_nan(), "{number}");
        }
        let halves =
            [(0x7c00u16, false), (0xfc00, false), (0x7bff, false), (0x7e00, true), (0xfe00, true), (0x7c01, true)];
        assert!(halves.iter().all(|(bits, expected)| is_nan(Element::F16, &bits.to_le_bytes()) == *expected));
    }
}
