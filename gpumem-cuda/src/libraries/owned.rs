//! What a library makes and is to destroy.

/// A type that owns something of a library's: made, filled with attributes, and destroyed with the value.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident($raw:ty), $destroy:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(pub(super) $raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by whoever made this value, which is the only one to hold it. A failure to free it leaves
                // nothing to do.
                let _ = unsafe { $destroy(self.0) };
            }
        }
    };
}
