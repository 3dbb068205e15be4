//! Descriptors of cuDNN's backend: attributes are set, the descriptor is finalised, then attributes can be read.

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

/// Destroys a descriptor; cudarc has only the bare function.
///
/// # Safety
/// The descriptor was made by the library, and is destroyed once.
// SAFETY: `owned!` calls it, once for each value, with what the value was made of.
unsafe fn destroy(descriptor: sys::cudnnBackendDescriptor_t) -> Result<(), CudnnError> {
    // SAFETY: by contract the library made the descriptor, and it is destroyed once.
    unsafe { sys::cudnnBackendDestroyDescriptor(descriptor) }.result()
}

/// A type of values that attributes consist of.
///
/// # Safety
/// `TYPE` denotes exactly this type in the library's header.
pub(super) unsafe trait Attribute: Copy {
    const TYPE: Type;
}

/// An address on the card, or null.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub(super) struct Pointer(pub(super) *mut c_void);

/// A reference to another descriptor. The library copies what it needs of it; it is kept alive nevertheless.
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

/// Translates an error from making a descriptor. For a kind that it does not know, an older version reports that host memory could not be
/// allocated, as cuDNN 9.14 does for attention's gradient and mask.
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

    /// Sets an attribute to these values.
    pub(super) fn set<T: Attribute>(&self, name: Name, values: &[T]) -> Result<&Descriptor, CudnnError> {
        let (count, from) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is alive; count and type are those of `values`, and the library copies them.
        unsafe { sys::cudnnBackendSetAttribute(self.0, name, T::TYPE, count, from) }.result()?;
        Ok(self)
    }

    /// Finalises the descriptor: all attributes are set, and attributes can be read from now on.
    pub(super) fn finalize(self) -> Result<Descriptor, CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result()?;
        Ok(self)
    }

    /// Reads an attribute of at most `room` values into `to`, and returns their number.
    ///
    /// # Safety
    /// `to` has space for `room` values of the type.
    // SAFETY: each caller has a vector of that length and type.
    unsafe fn get(&self, name: Name, kind: Type, room: usize, to: *mut c_void) -> Result<usize, CudnnError> {
        let mut count = 0;
        // SAFETY: the descriptor is alive; by contract `to` has the space.
        unsafe { sys::cudnnBackendGetAttribute(self.0, name, kind, room as i64, &mut count, to) }.result()?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Reads a number of 64 bits.
    pub(super) fn number(&self, name: Name) -> Result<i64, CudnnError> {
        let mut number = 0i64;
        // SAFETY: it is one number of 64 bits.
        unsafe { self.get(name, Type::CUDNN_TYPE_INT64, 1, (&raw mut number).cast()) }?;
        Ok(number)
    }

    /// Reads the numerical notes of an engine. They are plain numbers, because newer versions of the library know more of them.
    pub(super) fn notes(&self) -> Result<Vec<u32>, CudnnError> {
        const ROOM: usize = 32;
        let mut notes = vec![0u32; ROOM];
        let (name, kind) = (Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
        // SAFETY: enumerations of the library are C's, of 32 bits.
        let count = unsafe { self.get(name, kind, ROOM, notes.as_mut_ptr().cast()) }?;
        notes.truncate(count);
        Ok(notes)
    }

    /// Reads the kind of an engine's setting (knob). It is a plain number, because newer versions of the library know more of them.
    pub(super) fn knob(&self) -> Result<u32, CudnnError> {
        let mut kind = 0u32;
        let (name, of) = (Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE);
        // SAFETY: enumerations of the library are C's, of 32 bits.
        unsafe { self.get(name, of, 1, (&raw mut kind).cast()) }?;
        Ok(kind)
    }

    /// Reads a text, in bytes.
    pub(super) fn text(&self, name: Name) -> Result<Vec<u8>, CudnnError> {
        // SAFETY: with no space given, the library only returns the length.
        let length = unsafe { self.get(name, Type::CUDNN_TYPE_CHAR, 0, std::ptr::null_mut()) }?;
        let mut text = vec![0u8; length];
        // SAFETY: the buffer has this many bytes.
        let count = unsafe { self.get(name, Type::CUDNN_TYPE_CHAR, length, text.as_mut_ptr().cast()) }?;
        text.truncate(count);
        Ok(text)
    }

    /// Reads descriptors of one kind, at most `room`.
    pub(super) fn descriptors(&self, name: Name, kind: Kind, room: usize) -> Result<Vec<Descriptor>, CudnnError> {
        let mut all = (0..room).map(|_| Descriptor::new(kind)).collect::<Result<Vec<_>, _>>()?;
        // The library fills existing descriptors, given as an array of their handles.
        let mut raw: Vec<_> = all.iter().map(|descriptor| descriptor.0).collect();
        // SAFETY: the array has `room` handles.
        let count = unsafe { self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, room, raw.as_mut_ptr().cast()) }?;
        all.truncate(count);
        Ok(all)
    }
}
