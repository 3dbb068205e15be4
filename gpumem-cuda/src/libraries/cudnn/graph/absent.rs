//! The library's choices for a card that is not in this machine.

use super::backend::Descriptor;
use super::{Executable, Kind, Name, Question, Target, choose};
use crate::calls::{Attention, Convolution};
use crate::libraries::cudnn::failure;
use crate::libraries::preflight;
use gpumem_core::error::Error;

/// An engine of cuDNN for a convolution or for attention.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// Its number in the library.
    pub engine: i64,
    /// True if it runs on tensor cores.
    pub tensor_cores: bool,
    /// Bytes of scratch memory that it needs.
    pub workspace: u64,
}

/// A card that is given by its properties. From 9.8 on, cuDNN makes plans for it without a driver.
#[derive(Debug)]
pub struct AbsentCard(Descriptor);

impl AbsentCard {
    /// Makes a card with these properties: cuDNN's serialised device property, in JSON.
    ///
    /// # Errors
    /// [`Error::Device`] if cuDNN is missing, is older than 9.8, or lacks a property.
    pub fn new(properties: &str) -> Result<AbsentCard, Error> {
        if preflight::cudnn().is_none() {
            return Err(Error::failed("CUDA", "cuDNN is not installed: GPUMEM_CUDA names the folder that it is in"));
        }
        let card = || {
            let card = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
            card.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, properties.as_bytes())?;
            card.finalize()
        };
        card().map(AbsentCard).map_err(failure("describing a card".into()))
    }

    /// Returns the engine that a session uses for a 16-bit convolution, if no engine is refused when it runs. By the library's heuristics it is
    /// the fastest that needs no more than the convolution's scratch memory. `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    pub fn engine(&self, convolution: &Convolution) -> Result<Option<Answer>, Error> {
        let room = convolution.workspace.map_or(0, |workspace| workspace.bytes);
        self.fastest(convolution, room)
    }

    /// Returns the engine for a convolution as [`AbsentCard::engine`] does, but with `room` bytes of scratch memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    pub fn fastest(&self, convolution: &Convolution, room: u64) -> Result<Option<Answer>, Error> {
        self.answer(convolution, room)
    }

    /// Returns the engine that a session uses for attention with `room` bytes of scratch.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    pub fn attention(&self, attention: &Attention, room: u64) -> Result<Option<Answer>, Error> {
        self.answer(attention, room)
    }

    fn answer(&self, question: &impl Question, room: u64) -> Result<Option<Answer>, Error> {
        choose(question, room, Target::Card(&self.0), |it: Executable| {
            Ok(Some(Answer {
                engine: it.engine.number,
                tensor_cores: it.engine.tensor_cores,
                workspace: it.memory as u64,
            }))
        })
    }
}
