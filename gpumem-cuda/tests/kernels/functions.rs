//! Functions of one number at their kinks and in their tails.

use crate::host::given::on_kernels;
use crate::host::harness::functions::{KNOWN, check, slopes};
use crate::host::harness::given::assert_right;

#[test]
fn values_and_slopes() {
    check(on_kernels);
}

#[test]
fn known_slopes() {
    for (layer, x, expected) in KNOWN {
        for (who, found) in slopes(on_kernels, layer, &x) {
            assert_right(&who, &found, &expected, 1e-4, 0.0);
        }
    }
}
