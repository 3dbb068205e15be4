//! Sizes as users write them in constants.

use gpumem_core::train::{gib, mib};

#[test]
fn sizes_are_bytes() {
    const HEADROOM: u64 = gib(1.5);
    assert_eq!((HEADROOM, mib(0.5), gib(0.0), mib(1e-9)), (3 << 29, 1 << 19, 0, 0));
}

#[test]
fn what_is_no_size_is_refused() {
    for count in [-1.0, f64::NAN, f64::INFINITY, 1e11] {
        let panic = std::panic::catch_unwind(|| gib(count)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"write a size that is not negative, as `gib(1.5)`"), "{count}");
    }
}
