//! The library's description of the card in this machine: the text from which [`AbsentCard`](super::absent::AbsentCard) is made.

use super::{Descriptor, Kind, Name};
use crate::libraries::cudnn::{Library, failure, is_refused};
use cudarc::cudnn::result::CudnnError;
use gpumem_core::error::Error;

/// Returns the serialised device property of the handle's card, in JSON; `None` before cuDNN 9.8, which has none.
///
/// # Errors
/// [`Error::Device`] if the library fails.
pub(crate) fn device_property(library: &Library) -> Result<Option<String>, Error> {
    let card = || {
        let card = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        card.set(Name::CUDNN_ATTR_DEVICEPROP_HANDLE, &[library.0.handle])?;
        text(&card.finalize()?)
    };
    match card() {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_refused(error) => Ok(None),
        Err(error) => Err(failure("asking what it knows of the card".into())(error)),
    }
}

/// Reads the text of a device property.
pub(super) fn text(card: &Descriptor) -> Result<String, CudnnError> {
    let text = card.text(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)?;
    Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_string())
}
