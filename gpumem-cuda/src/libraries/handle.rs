//! Types that own what a library makes.

/// Defines a type that owns an object of a library, and destroys it when dropped.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident($raw:ty), $destroy:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(pub(super) $raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object was made for this value, which is its only owner. A failure to free it leaves nothing to do.
                let _ = unsafe { $destroy(self.0) };
            }
        }
    };
}
