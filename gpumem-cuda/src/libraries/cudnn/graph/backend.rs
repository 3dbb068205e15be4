//! Descriptors of cuDNN's backend: attributes are set, the descriptor is finalised, answers are asked of it.

use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnStatus_t as Status,
};
use std::ffi::c_void;

owned!(
    /// A descriptor of any kind.
    Descriptor(sys::cudnnBackendDescriptor_t),
    destroy
);

/// cudarc has the bare function only.
///
/// # Safety
/// The descriptor was made by the library, and is destroyed once.
// SAFETY: `owned!` calls it, once for each value, with what the value was made of.
unsafe fn destroy(descriptor: sys::cudnnBackendDescriptor_t) -> Result<(), CudnnError> {
    // SAFETY: the caller has made the descriptor, and destroys it once.
    unsafe { sys::cudnnBackendDestroyDescriptor(descriptor) }.result()
}

/// What an attribute is made of, as the library reads it.
///
/// # Safety
/// `TYPE` stands for exactly this type in the library's header.
pub(super) unsafe trait Attribute: Copy {
    const TYPE: Type;
}

/// An address of the card, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub(super) struct Pointer(pub(super) *mut c_void);

/// Another descriptor. The one that it is given to keeps what it needs of it; it is kept alive all the same.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Reference(sys::cudnnBackendDescriptor_t);

macro_rules! attributes {
    ($($rust:ty => $library:ident,)*) => {
        $(
            // SAFETY: the header says so for each of them: `cudnnBackendSetAttribute`.
            unsafe impl Attribute for $rust {
                const TYPE: Type = Type::$library;
            }
        )*
    };
}

attributes! {
    i64 => CUDNN_TYPE_INT64,
    f32 => CUDNN_TYPE_FLOAT,
    bool => CUDNN_TYPE_BOOLEAN,
    u8 => CUDNN_TYPE_CHAR,
    Pointer => CUDNN_TYPE_VOID_PTR,
    Reference => CUDNN_TYPE_BACKEND_DESCRIPTOR,
    sys::cudnnHandle_t => CUDNN_TYPE_HANDLE,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t => CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE,
    sys::cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnNanPropagation_t => CUDNN_TYPE_NAN_PROPOGATION,
}

/// What the library says when it makes a descriptor, as what it means: one that is older than a kind says that the host has no memory
/// for it, as cuDNN 9.14 does of those of attention's gradient and mask.
pub(super) fn of_kind(error: CudnnError) -> CudnnError {
    match error.0 {
        Status::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED => CudnnError(Status::CUDNN_STATUS_NOT_SUPPORTED),
        _ => error,
    }
}

impl Descriptor {
    pub(super) fn new(kind: Kind) -> Result<Descriptor, CudnnError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for the handle that is written.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut raw) }.result().map_err(of_kind)?;
        Ok(Descriptor(raw))
    }

    pub(super) fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }

    pub(super) fn reference(&self) -> Reference {
        Reference(self.0)
    }

    /// Sets an attribute to so many values.
    pub(super) fn set<T: Attribute>(&self, name: Name, values: &[T]) -> Result<&Descriptor, CudnnError> {
        let (count, from) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is alive; there are as many values as are said, of the type that is said, and the library
        // copies them.
        unsafe { sys::cudnnBackendSetAttribute(self.0, name, T::TYPE, count, from) }.result()?;
        Ok(self)
    }

    /// Says that all attributes are set: nothing is asked of a descriptor before.
    pub(super) fn finalize(self) -> Result<Descriptor, CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result()?;
        Ok(self)
    }

    /// Reads an attribute of at most `room` values into `to`: how many there are.
    ///
    /// # Safety
    /// There is room for so many values of the type at `to`.
    // SAFETY: each caller has a vector of that length and type.
    unsafe fn get(&self, name: Name, kind: Type, room: usize, to: *mut c_void) -> Result<usize, CudnnError> {
        let mut count = 0;
        // SAFETY: the descriptor is alive; the caller has the room.
        unsafe { sys::cudnnBackendGetAttribute(self.0, name, kind, room as i64, &mut count, to) }.result()?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// A number of 64 bits.
    pub(super) fn number(&self, name: Name) -> Result<i64, CudnnError> {
        let mut number = 0i64;
        // SAFETY: it is one number of 64 bits.
        unsafe { self.get(name, Type::CUDNN_TYPE_INT64, 1, (&raw mut number).cast()) }?;
        Ok(number)
    }

    /// What an engine's arithmetic is noted for. As numbers: newer versions of the library know more of them.
    pub(super) fn notes(&self) -> Result<Vec<u32>, CudnnError> {
        const ROOM: usize = 32;
        let mut notes = vec![0u32; ROOM];
        let (name, kind) = (Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
        // SAFETY: enumerations of the library are C's, of 32 bits.
        let count = unsafe { self.get(name, kind, ROOM, notes.as_mut_ptr().cast()) }?;
        notes.truncate(count);
        Ok(notes)
    }

    /// The kind of an engine's setting. As a number: newer versions of the library know more of them.
    pub(super) fn knob(&self) -> Result<u32, CudnnError> {
        let mut kind = 0u32;
        let (name, of) = (Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE);
        // SAFETY: enumerations of the library are C's, of 32 bits.
        unsafe { self.get(name, of, 1, (&raw mut kind).cast()) }?;
        Ok(kind)
    }

    /// A text, in bytes.
    pub(super) fn text(&self, name: Name) -> Result<Vec<u8>, CudnnError> {
        // SAFETY: without room the library says how much it takes.
        let length = unsafe { self.get(name, Type::CUDNN_TYPE_CHAR, 0, std::ptr::null_mut()) }?;
        let mut text = vec![0u8; length];
        // SAFETY: there is room for so many bytes.
        let count = unsafe { self.get(name, Type::CUDNN_TYPE_CHAR, length, text.as_mut_ptr().cast()) }?;
        text.truncate(count);
        Ok(text)
    }

    /// Descriptors of one kind, at most `room`.
    pub(super) fn descriptors(&self, name: Name, kind: Kind, room: usize) -> Result<Vec<Descriptor>, CudnnError> {
        let mut all = (0..room).map(|_| Descriptor::new(kind)).collect::<Result<Vec<_>, _>>()?;
        // The library fills descriptors that exist, and is told of them in an array of their handles.
        let mut raw: Vec<_> = all.iter().map(|descriptor| descriptor.0).collect();
        // SAFETY: there are so many handles.
        let count = unsafe { self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, room, raw.as_mut_ptr().cast()) }?;
        all.truncate(count);
        Ok(all)
    }
}
